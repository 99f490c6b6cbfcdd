"""docs/settings.md, made from the table; a test holds that it is current."""

from __future__ import annotations

from pathlib import Path

from infra.settings.pools import POOL_KEYS, PoolKey
from infra.settings.sources import CONFIG, FILE_NAME
from infra.settings.table import PREFIX, SETTINGS, Setting

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"

_HEAD = f"""\
# Settings

<!-- Written by `python -m infra.settings`; change infra/settings/table.py instead. -->

A value comes from the first of these that has it: the command line (`nightmill --home DIR`), the environment
(`{PREFIX}<NAME>`, as `{PREFIX}LEASE_S=60`), the settings file, the default.

The settings file is TOML, one `name = value` a line. It is the one given by `nightmill --config FILE`, or by
`{CONFIG}`, or else `{FILE_NAME}` in the data directory, if there is one. A relative path is below the data directory;
only `home` itself is relative to the settings file, or to the current directory when it comes from elsewhere. Texts are
a list in the file (`["a", "b"]`), and parted by commas in the environment.

A name that is not known, a value of the wrong type and one out of range are all refused at the start, together.

| name | default | type | what it is |
|---|---|---|---|
"""

_POOLS = """
## Pools

A cluster (`nightmill up --cluster`) runs the pools that the settings file declares, a table each; an embedded run
needs none. Several pools may serve one purpose with different models. A job goes to the first pool that serves its
model and is not interactive, unless `nightmill submit --pool` names one. A request goes to the pools of its model that
take requests: interactive ones first, then embedding ones, then those that have batch jobs beside.

```toml
[pools.batch]
model = "smollm2"
engine_args = { max_num_seqs = 64 }
min_workers = 0
max_workers = 4
```

| key | default | type | what it is |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    lines = "".join(_line(setting) for setting in SETTINGS)
    return _HEAD + lines + _POOLS + "".join(_pool_line(key) for key in POOL_KEYS)


def _pool_line(key: PoolKey) -> str:
    default = f"`{key.default}`" if key.default and " " not in key.default and key.default != "none" else key.default
    return f"| `{key.name}` | {default} | {key.shown} | {key.help} |\n"


def _line(setting: Setting) -> str:
    shown = setting.shown_default if "`" in setting.shown_default else f"`{setting.shown_default}`"
    unit = f" ({setting.unit})" if setting.unit else ""
    choices = f" One of {', '.join(f'`{c}`' for c in setting.choices)}." if setting.choices else ""
    return f"| `{setting.name}` | {shown} | {setting.type}{unit} | {setting.help}{choices}{_range(setting)} |\n"


def _range(setting: Setting) -> str:
    if setting.low is None:
        return ""
    low = f"{setting.low:_.10g}"
    return f" From {low} to {setting.high:_.10g}." if setting.high is not None else f" {low} or more."
