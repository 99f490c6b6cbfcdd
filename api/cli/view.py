"""What a person or a program sees while a job runs: a live view, plain lines, JSON lines, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import orjson
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from jobs.model import Job, JobState, Outcome, Usage
from jobs.pricing import show
from workers.mill import Snapshot

PLAIN_EVERY_S = 5.0


class View(Protocol):
    """`note` for a sentence, `update` often, `close` before anything else is printed, `end` last."""

    def note(self, text: str) -> None: ...

    def update(self, snapshot: Snapshot) -> None: ...

    def close(self) -> None: ...

    def end(self, job: Job, snapshot: Snapshot | None, seconds: float, exit_code: int) -> None:
        """How the job stands now. seconds: of generating, in this process."""
        ...


def view_for(*, quiet: bool, as_json: bool) -> View:
    """The live view only where a person looks at it."""
    if as_json:
        return JsonView()
    if quiet:
        return QuietView()
    console = Console(stderr=True)
    return LiveView(console) if console.is_terminal else PlainView()


class QuietView:
    """Says nothing."""

    def note(self, text: str) -> None:
        pass

    def update(self, snapshot: Snapshot) -> None:
        pass

    def close(self) -> None:
        pass

    def end(self, job: Job, snapshot: Snapshot | None, seconds: float, exit_code: int) -> None:
        pass


class JsonView(QuietView):
    """One JSON object a line on stdout: progress every few seconds."""

    def __init__(self) -> None:
        self._last_s = 0.0

    def update(self, snapshot: Snapshot) -> None:
        if time.monotonic() - self._last_s >= PLAIN_EVERY_S:
            self._last_s = time.monotonic()
            emit({"event": "progress", **progress_facts(snapshot)})

    def end(self, job: Job, snapshot: Snapshot | None, seconds: float, exit_code: int) -> None:
        facts = progress_facts(snapshot.evolve(job=job)) if snapshot else job_facts(job)
        emit({"event": "end", **facts, "exit_code": int(exit_code), "seconds": round(seconds, 3)})


class PlainView(QuietView):
    """A line now and then on stderr, for logs and pipes."""

    def __init__(self) -> None:
        self._last_s = 0.0

    def note(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def update(self, snapshot: Snapshot) -> None:
        if time.monotonic() - self._last_s >= PLAIN_EVERY_S:
            self._last_s = time.monotonic()
            self.note(one_line(snapshot))

    def end(self, job: Job, snapshot: Snapshot | None, seconds: float, exit_code: int) -> None:  # noqa: ARG002 - the port's
        summary(Console(file=sys.stderr), job, snapshot, seconds)


class LiveView:
    """A panel that is drawn over itself."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._quiet_keys: Callable[[], None] = _nothing
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f} rows"),
        )
        self._bars: dict[str, Any] = {}

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def update(self, snapshot: Snapshot) -> None:
        if self._live is None:
            self._quiet_keys = _no_control_echo()
            self._live = Live(console=self._console, refresh_per_second=8, transient=True)
            self._live.start()
            self._bars["generated"] = self._bar.add_task("generated", total=snapshot.job.total_rows)
            self._bars["committed"] = self._bar.add_task("committed", total=snapshot.job.total_rows)
        done = snapshot.job.usage.rows
        self._bar.update(self._bars["generated"], completed=max(done, generated_rows(snapshot)))
        self._bar.update(self._bars["committed"], completed=done)
        self._live.update(Panel(Group(self._bar, _figures(snapshot)), title=_title(snapshot), title_align="left"))

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._quiet_keys()

    def end(self, job: Job, snapshot: Snapshot | None, seconds: float, exit_code: int) -> None:  # noqa: ARG002 - the port's
        summary(self._console, job, snapshot, seconds)


def _nothing() -> None:
    pass


def _no_control_echo() -> Callable[[], None]:
    """Keep the terminal from writing "^C" into the panel; returns what undoes it."""
    try:
        import termios

        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (ImportError, OSError, ValueError, termios.error):
        return _nothing
    quiet = [*before]
    quiet[3] = int(quiet[3]) & ~termios.ECHOCTL
    termios.tcsetattr(terminal, termios.TCSANOW, quiet)
    return partial(termios.tcsetattr, terminal, termios.TCSANOW, before)


def _title(snapshot: Snapshot) -> str:
    job = snapshot.job
    return f"[bold]{job.id}[/] · {job.spec.model} · {job.state}"


def _figures(snapshot: Snapshot) -> Table:
    job = snapshot.job
    table = Table.grid(padding=(0, 3))
    table.add_row("outcomes", outcome_text(job.usage) or "[dim]none yet[/]")
    table.add_row("speed", f"{snapshot.rows_per_s:,.1f} rows/s · {snapshot.output_tokens_per_s:,.0f} output tokens/s")
    table.add_row("prefix cache", f"{cached_share(snapshot.generated):.0%} of input tokens")
    table.add_row("spent so far", show(job.amount_pico, job.price.currency))
    table.add_row("time left", duration_text(snapshot.eta_s))
    if snapshot.engine_deaths:
        table.add_row("[red]engine deaths", str(snapshot.engine_deaths))
    return table


def generated_rows(snapshot: Snapshot) -> int:
    """Rows the engine gave back in this process, beside those committed before it began."""
    return snapshot.rows_before + snapshot.generated_rows


def one_line(snapshot: Snapshot) -> str:
    """The state of a job in a line."""
    job = snapshot.job
    parts = [
        f"{job.id} {job.state}: {job.usage.rows:,} of {job.total_rows:,} rows committed",
        outcome_text(job.usage),
        f"{snapshot.rows_per_s:,.1f} rows/s",
        f"{snapshot.output_tokens_per_s:,.0f} output tokens/s",
        f"cached {cached_share(snapshot.generated):.0%}",
        f"left {duration_text(snapshot.eta_s)}",
        f"spent {show(job.amount_pico, job.price.currency)}",
    ]
    return " · ".join(part for part in parts if part)


def progress_facts(snapshot: Snapshot) -> dict[str, Any]:
    """The same for programs."""
    return {
        **job_facts(snapshot.job),
        "generated_rows": generated_rows(snapshot),
        "rows_per_s": round(snapshot.rows_per_s, 3),
        "output_tokens_per_s": round(snapshot.output_tokens_per_s, 3),
        "eta_s": None if snapshot.eta_s is None else round(snapshot.eta_s, 1),
        "engine_deaths": snapshot.engine_deaths,
    }


def job_facts(job: Job) -> dict[str, Any]:
    """A job's record for `--json`. input_tokens are all prompt tokens, as OpenAI counts them."""
    usage = job.usage
    return {
        "job": job.id,
        "state": str(job.state),
        "reason": job.reason,
        "model": job.spec.model,
        "tenant": job.tenant,
        "project": job.project,
        "tags": dict(job.tags),
        "parent": job.parent,
        "total_rows": job.total_rows,
        "rows": usage.rows,
        "outcomes": {str(k): n for k, n in usage.outcomes.items() if n},
        "input_tokens": usage.input_tokens + usage.cached_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "amount_pico": job.amount_pico,
        "currency": job.price.currency,
        "output": job.folder,
        "created_at": job.created_at,
        "finished_at": job.finished_at,
    }


def tell_job(job: Job, *, as_json: bool) -> None:
    """The job on stdout before its first row, for scripts; a person at a terminal has it from the view."""
    if as_json:
        emit({"event": "begin", **job_facts(job)})
    elif not sys.stdout.isatty():
        print(job.id, flush=True)


def emit(facts: dict[str, Any]) -> None:
    """One JSON line on stdout."""
    sys.stdout.write(orjson.dumps(facts).decode() + "\n")
    sys.stdout.flush()


def outcome_text(usage: Usage) -> str:
    """ "44 ok, 4 truncated", in the order of the outcomes."""
    counts = [(str(outcome), usage.outcomes.get(outcome, 0)) for outcome in Outcome]
    return ", ".join(f"{n:,} {name}" for name, n in counts if n)


def cached_share(usage: Usage) -> float:
    """Of all input tokens, 0.0 where there are none."""
    total = usage.input_tokens + usage.cached_tokens
    return usage.cached_tokens / total if total else 0.0


def duration_text(seconds: float | None) -> str:
    """ "1 h 05 min", "2 min 03 s", "7 s", or a dash."""
    if seconds is None:
        return "–"
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def summary(console: Console, job: Job, snapshot: Snapshot | None, seconds: float) -> None:
    """What a finished or paused run ends with; `status` shows the same."""
    for name, value in _summary_lines(job, snapshot, seconds):
        console.print(f"{name:<13} {value}", highlight=False, soft_wrap=True, markup=False)


def _summary_lines(job: Job, snapshot: Snapshot | None, seconds: float) -> Iterator[tuple[str, str]]:
    usage = job.usage
    yield "job", f"{job.id}  ({_state_text(job)})"
    yield "rows", f"{usage.rows:,} of {job.total_rows:,}: {outcome_text(usage) or 'none'}"
    inputs = f"{usage.input_tokens:,} uncached input · {usage.cached_tokens:,} cached input"
    yield "tokens", f"{inputs} · {usage.output_tokens:,} output"
    yield "prefix cache", f"{cached_share(usage):.1%} of input tokens"
    if snapshot is not None and snapshot.generated_rows and seconds > 0:
        rows, tokens = snapshot.generated_rows / seconds, snapshot.generated.output_tokens / seconds
        yield "speed", f"{rows:,.1f} rows/s · {tokens:,.0f} output tokens/s ({duration_text(seconds)} of generating)"
    mark = "  (example price)" if job.price.example else ""
    yield "cost", f"{show(job.amount_pico, job.price.currency)}{mark}"
    yield "results", job.folder if job.state.terminal else f"{job.folder} (published when the job ends)"
    if job.state is JobState.PAUSED:
        yield "go on with", f"nightmill resume {job.id}"


def _state_text(job: Job) -> str:
    if job.state is JobState.PAUSED:
        return f"paused: {job.reason}"
    return f"{job.state}: {job.reason}" if job.reason else str(job.state)
