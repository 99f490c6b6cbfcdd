"""The settings: one table, read once at a composition root. Parts below it get plain policies, never `Settings`.

A value comes from the first of: the command line (`--home`), the environment (`NIGHTMILL_<NAME>`), the settings file,
the default. `python -m infra.settings` writes docs/settings.md.
"""

from __future__ import annotations

from infra.settings.sources import CONFIG, load
from infra.settings.table import SETTINGS, Setting, Settings

__all__ = ["CONFIG", "SETTINGS", "Setting", "Settings", "load"]
