"""`python -m infra.settings`: write docs/settings.md."""

from __future__ import annotations

from infra.settings.page import PAGE, page

if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
