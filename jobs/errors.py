"""The error tree: one root, four branches by who has to act.

The class docstring is the sentence a person reads; `{fields}` in it are filled from the data the
error was raised with. `code` is stable and part of the public interface.
"""

from __future__ import annotations

from typing import Any, ClassVar


class NightmillError(Exception):
    """Something went wrong: {reason}."""

    code: ClassVar[str] = "error"

    def __init__(self, **data: Any) -> None:
        self.data = data
        super().__init__(self.sentence)

    @property
    def sentence(self) -> str:
        """The docstring's first paragraph with the data filled in."""
        template = " ".join((type(self).__doc__ or "").split("\n\n", maxsplit=1)[0].split())
        text = template.format_map(_Data(self.data))
        return text[:-1] if text.endswith(("?.", "..")) else text  # a reason may end in a question or a stop itself

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["data"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.data))


class _Data(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return f"<{key}?>"


def _rebuild(cls: type[NightmillError], data: dict[str, Any]) -> NightmillError:
    return cls(**data)


class Refused(NightmillError):
    """The request cannot be taken: {reason}."""

    code = "refused"


class Conflict(NightmillError):
    """Someone else already did this: {reason}."""

    code = "conflict"


class Unavailable(NightmillError):
    """A backend does not answer: {reason}. Try again."""

    code = "unavailable"


class Broken(NightmillError):
    """This can never work: {reason}."""

    code = "broken"


# ---- refused: the caller must change something --------------------------------------------------


class NotFound(Refused):
    """There is no {kind} named {name}. {hint}"""

    code = "not_found"


class BadInput(Refused):
    """{source}: {reason}."""

    code = "bad_input"


class BadTemplate(Refused):
    """The prompt template cannot be used: {reason}."""

    code = "bad_template"


class BadSchema(Refused):
    """The output schema cannot be used: {reason}."""

    code = "bad_schema"


class BadSetting(Refused):
    """The settings have faults: {reason}."""

    code = "bad_setting"


class InputChanged(Refused):
    """The input file {file} changed since the job was submitted ({reason}). Restore it, or submit a new job."""

    code = "input_changed"


class ModelChanged(Refused):
    """The weights of model {name} changed since it was added ({reason}). Run: nightmill models add {name} … again."""

    code = "model_changed"


class NoPrice(Refused):
    """Model {model} has no price. Run: nightmill prices set {model} INPUT/CACHED/OUTPUT, or --free."""

    code = "no_price"


class OutputTaken(Refused):
    """The output folder {folder} already holds {holder}. Choose another --output."""

    code = "output_taken"


class StorageRefused(Refused):
    """{uri} may not be named by an ingress: the setting {setting} allows {prefixes}."""

    code = "storage_refused"


class WrongState(Refused):
    """Job {job} is {state}; {action} needs a job that is {needed}."""

    code = "wrong_state"


class KeyRefused(Refused):
    """The API key is not good: {reason}."""

    code = "invalid_api_key"


class NotAllowed(Refused):
    """This API key may not do that: {reason}."""

    code = "not_allowed"


class NoGrant(NotAllowed):
    """Tenant {tenant} was not granted to {verb} {uri}. An operator can: nightmill grants add {tenant} PREFIX."""

    code = "no_grant"


class QuotaExceeded(Refused):
    """Tenant {tenant} may have {limit} tokens enqueued and has {enqueued}; this asks for {asked} more. Try later."""

    code = "token_limit_exceeded"


class RateLimited(QuotaExceeded):
    """{who} may have {limit} {what}; {reason}."""

    # retry_after_s: None where it can never be granted. standing: `jobs.ports.limiting.Standing`.
    code = "rate_limit_exceeded"


# ---- conflict: someone else moved it first ------------------------------------------------------


class JobOwned(Conflict):
    """Job {job} is being run by process {pid}. Wait for it, or stop that process."""

    code = "job_owned"


class KeyReused(Conflict):
    """Idempotency key {key} made job {job}, which was asked for with another {fields}. Take another key, or ask for the
    same again.
    """

    code = "idempotency_key_reused"


class BatchEnded(Conflict):
    """Batch {batch} is {state} already; only one that is not at its end can be cancelled."""

    code = "batch_ended"


class Deposed(Conflict):
    """Pool {scope} is scheduled by {owner} now."""

    code = "deposed"


class Exists(Conflict):
    """{uri} already exists with other content."""

    code = "exists"


# ---- unavailable: a backend ---------------------------------------------------------------------


class EngineDied(Unavailable):
    """The engine of model {model} died: {reason}."""

    code = "engine_died"


class EngineHung(EngineDied):
    """The engine of model {model} moved no token for {seconds} s."""

    code = "engine_hung"


class EngineStartFailed(Unavailable):
    """The engine of model {model} did not start: {reason}."""

    code = "engine_start_failed"


class Overloaded(Unavailable):
    """All workers of model {model} are busy, or start just now. Try again in {retry_after_s} s."""

    code = "overloaded"


class Unserved(Unavailable):
    """No worker of model {model} takes requests at the moment. Try again."""

    code = "no_worker"


class Interrupted(Unavailable):
    """The answer broke off after {output_tokens} tokens: {reason}. Try again."""

    code = "interrupted"


class StorageFull(Unavailable):
    """No space left on the disk that holds {where}. Free some space; the job can be resumed."""

    code = "storage_full"


class DatabaseUnavailable(Unavailable):
    """The database {where} does not answer: {reason}."""

    code = "database_unavailable"


# ---- broken: our bug or a task that can never work ----------------------------------------------


class LedgerBroken(Broken):
    """The ledger does not add up: {reason}."""

    code = "ledger_broken"


class StorageCorrupt(Broken):
    """{uri} is not what was written: {reason}."""

    code = "storage_corrupt"
