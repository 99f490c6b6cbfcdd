"""What every command gets: settings, the data directory and a way to print; each made when first asked for."""

from __future__ import annotations

import getpass
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from infra.bootstrap import Home
    from infra.settings import Settings


class AppContext:
    """`home_option`, `config_option`: what the command line said."""

    def __init__(self, home_option: Path | None = None, config_option: Path | None = None) -> None:
        self.home_option = home_option
        self.config_option = config_option

    @cached_property
    def settings(self) -> Settings:
        """With what the `environment_file` adds to this process's environment. Raises BadSetting."""
        from infra.settings import load

        settings = load(home=self.home_option, config=self.config_option)
        if settings.environment_file != Path():
            from infra.settings.environment import add_to_environment

            add_to_environment(settings.home / settings.environment_file, os.environ)
        return settings

    @cached_property
    def home(self) -> Home:
        """The data directory; its log is set up."""
        from infra.bootstrap import open_home

        return open_home(self.settings)

    @property
    def actor(self) -> str:
        """Who acts, for the audit log and a job's record."""
        return f"cli:{getpass.getuser()}"

    @property
    def log_file(self) -> Path | None:
        """Where this process logs, once it does."""
        return self.settings.log_file if "home" in self.__dict__ else None

    def close(self) -> None:
        """Close the data directory if it was opened."""
        home = self.__dict__.pop("home", None)
        if home is not None:
            home.close()


pass_app = click.make_pass_decorator(AppContext)

json_option = click.option("--json", "as_json", is_flag=True, help="For machines: JSON on stdout, errors as JSON.")
"""A command that takes --json writes one JSON value to stdout (or one a line) and nothing else."""
