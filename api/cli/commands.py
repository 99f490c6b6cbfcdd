"""The list of commands: where each is and what it does in a line, so that `--help` imports none of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Lazy:
    """module: below api.cli. attribute: the click command in it. summary: the first sentence of its help."""

    module: str
    attribute: str
    summary: str

    def load(self) -> click.Command:
        command = getattr(import_module(f"api.cli.{self.module}"), self.attribute)
        assert isinstance(command, click.Command)
        return command


COMMANDS: dict[str, Lazy] = {
    "run": Lazy("run", "run", "Generate an output for every row of a file, here and now."),
    "quote": Lazy("run", "quote", "What a run would cost and how long it would take."),
    "chat": Lazy("chat", "chat", "Talk to a model."),
    "submit": Lazy("submitting", "submit", "Hand a job to `nightmill up` and return at once."),
    "watch": Lazy("submitting", "watch", "Show a job's progress until it ends or pauses."),
    "jobs": Lazy("jobs", "jobs", "List jobs, the newest first."),
    "status": Lazy("jobs", "status", "Show how a job stands."),
    "wait": Lazy("jobs", "wait", "Wait until a job ends or pauses."),
    "results": Lazy("results", "results", "Show results, or stream them as JSONL."),
    "pause": Lazy("jobs", "pause", "Pause a running job."),
    "resume": Lazy("run", "resume", "Go on with a job that was paused, stopped, or whose process died."),
    "cancel": Lazy("jobs", "cancel", "Cancel a job; finished rows stay."),
    "priority": Lazy("submitting", "priority", "Change a job's priority."),
    "retry": Lazy("run", "retry", "Run the rows with some outcomes again, as a child job."),
    "models": Lazy("models", "models", "List, add, prepare, verify and remove models, and give them other names."),
    "prices": Lazy("prices", "prices", "Set and list what models cost."),
    "tenants": Lazy("tenants", "tenants", "Add, list, limit and disable tenants."),
    "keys": Lazy("keys", "keys", "Make, list, rotate and revoke API keys."),
    "grants": Lazy("grants", "grants", "Let tenants read and write storage over the API, and take it back."),
    "webhooks": Lazy("webhooks", "webhooks", "Say who is told of the ends of jobs and batches, and see what was sent."),
    "audit": Lazy("audit", "audit", "Who changed tenants, keys, grants, aliases and prices."),
    "ledger": Lazy("ledger", "ledger", "Cost statements, balances, and a check of the book."),
    "up": Lazy("cluster", "up", "Bring Nightmill up and show what runs: here, on this machine, or on a Ray cluster."),
    "down": Lazy("cluster", "down", "Drain all workers and end Nightmill on the Ray cluster."),
    "pools": Lazy("pools", "pools", "List the declared pools, what waits for them, and their workers."),
    "workers": Lazy("pools", "workers", "List the workers of the cluster."),
    "drain": Lazy("pools", "drain", "Take a worker out: it commits what is finished, gives the rest back and ends."),
    "restart": Lazy("pools", "restart", "Replace all workers of a pool, one after the other; jobs go on meanwhile."),
    "topics": Lazy("topics", "topics", "List the topics of pools and ingresses, and what waits in each."),
    "dead": Lazy("topics", "dead", "Messages unread and submissions refused: list, show and replay them."),
    "sweep": Lazy("sweep", "sweep", "Delete what dead leases left in result folders, and deleted and expired files."),
    "doctor": Lazy("doctor", "doctor", "Say what is there and what is not, with the mend."),
}
"""In the order of `nightmill --help`."""


class LazyGroup(click.Group):
    """A group that imports a command when it is called, and names the nearest one when there is none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        return COMMANDS[cmd_name].load() if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from infra.hints import nearest

            near = nearest(name, COMMANDS)
            hint = f" Did you mean {near}?" if near else " See: nightmill --help."
            ctx.fail(f"There is no command {name}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        rows: Sequence[tuple[str, str]] = [(name, lazy.summary) for name, lazy in COMMANDS.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def json_wanted(argv: Sequence[str]) -> bool:
    """Whether errors are to be JSON: a wrong command line is known before its options are."""
    return "--json" in argv


def error_body(code: str, sentence: str, data: Any = None) -> dict[str, Any]:
    """The JSON of an error."""
    return {"error": {"code": code, "message": sentence, "data": data or {}}}
