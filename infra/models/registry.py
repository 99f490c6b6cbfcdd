"""The model registry: `models.toml` in the data directory, and the models that are shipped.

A model is written down when it is added: its folder, kind, engine arguments, and for each file size, time and sha256.
The shipped models need no adding: `fake` has no files, the others are written down when they are first used.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from infra.hints import known_names
from infra.locks import FileLock
from infra.models import facts, weights
from infra.models.prepare import PREPARE, is_complete
from infra.models.shipped import FAKE, SHIPPED, fake_model
from infra.models.weights import ModelFile, Progress
from infra.objects.local import LocalObjects
from jobs.errors import BadInput, NotFound, Refused
from jobs.model import Model, Value
from jobs.ports.engine import ModelKind

_MODEL_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@")
_HEAD = "# The models Nightmill knows. Written by `nightmill models add`, `prepare` and `verify`.\n\n"


class NotPrepared(Refused):
    """Model {name} is shipped, but its files are not there yet. Run: nightmill models prepare {name}."""

    code = "not_prepared"


class BadModel(Refused):
    """Model {name} cannot be added: {reason}."""

    code = "bad_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry(Value):
    """A model as `models.toml` has it."""

    path: str
    kind: ModelKind
    engine: str = "vllm"
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[ModelFile, ...] = ()

    def model(self, name: str) -> Model:
        return Model(
            name=name,
            kind=self.kind,
            path=self.path,
            engine=self.engine,
            engine_args=self.engine_args,
            checksum=weights.checksum_of(self.files),
            stamp=weights.stamp_of(self.files),
            example=name in SHIPPED,
        )


class Registry:
    """`file`: models.toml. `folder`: where shipped models are prepared. Safe to use from several processes."""

    def __init__(self, file: Path, folder: Path) -> None:
        self._file = file
        self._folder = folder

    # ---- asking ---------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """All known models, the shipped ones too, prepared or not."""
        return sorted({*SHIPPED, *self._read()})

    def check_known(self, name: str) -> None:
        """Raise NotFound, naming the nearest, unless the model is added or shipped."""
        known = self.names()
        if name not in known:
            raise NotFound(kind="model", name=name, hint=known_names(name, known))

    def find(self, name: str) -> Model:
        """The model as it was written down, whether its files are as they were or not. Raises NotFound, NotPrepared."""
        entry = self._entry(name)
        return fake_model() if entry is None else entry.model(name)

    def resolve(self, name: str) -> Model:
        """The model, ready to start: raises NotFound, NotPrepared, ModelChanged (a file has another size or time)."""
        entry = self._entry(name)
        if entry is None:
            return fake_model()
        if entry.engine != FAKE:
            weights.check_stamp(name, Path(entry.path), entry.files)
        return entry.model(name)

    def _entry(self, name: str) -> _Entry | None:
        """None for the fake model, which has nothing to write down."""
        self.check_known(name)
        entry = self._read().get(name)
        if name == FAKE or (entry is not None and not self._is_shipped(name, entry)):
            return entry
        if not is_complete(self._folder / name):
            raise NotPrepared(name=name)
        if entry is not None:
            return entry
        self.add(name, self._folder / name, kind=SHIPPED[name].kind)
        return self._read()[name]

    def _is_shipped(self, name: str, entry: _Entry) -> bool:
        """Whether the files are those that `prepare` makes, and not the user's own under a shipped name."""
        return name in SHIPPED and entry.path == str((self._folder / name).absolute())

    # ---- changing -------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        path: Path | None,
        *,
        kind: ModelKind | None = None,
        engine: str = "vllm",
        engine_args: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
    ) -> Model:
        """Hash the folder and write the model down, over what had that name. Raises BadModel, BadInput.

        path: None for the fake engine only, which may be added under other names with other arguments.
        """
        _check_name(name)
        args = dict(engine_args or {})
        if engine == FAKE:
            entry = _Entry(path="", kind=kind or "chat", engine=FAKE, engine_args=args)
        else:
            if path is None:
                raise BadModel(name=name, reason="a folder with its weights is needed")
            folder = path.expanduser().absolute()
            found = kind or facts.detect_kind(folder)
            files = weights.hashed(folder, progress)
            entry = _Entry(path=str(folder), kind=found, engine=engine, engine_args=args, files=files)
        self._write(name, entry)
        return entry.model(name)

    def prepare(self, name: str, progress: Progress | None = None) -> Model:
        """Make a shipped model's files from the package that carries them, and write it down."""
        if name == FAKE:
            return fake_model()
        if name not in PREPARE:
            raise NotFound(kind="model to prepare", name=name, hint=known_names(name, PREPARE))
        folder = PREPARE[name](self._folder / name)
        kind = SHIPPED[name].kind if name in SHIPPED else None
        return self.add(name, folder, kind=kind, progress=progress)

    def verify(self, name: str, progress: Progress | None = None) -> Model:
        """Hash all files again: ModelChanged if a content differs, else the new times are accepted."""
        entry = self._entry(name)
        if entry is None or not entry.files:
            return self.find(name)
        files = weights.hashed(Path(entry.path), progress)
        weights.check_content(name, Path(entry.path), entry.files, files)
        if files != entry.files:
            self._write(name, entry.evolve(files=files))
        return entry.evolve(files=files).model(name)

    def remove(self, name: str) -> None:
        """Forget a model; its files stay where they are."""
        with self._lock():
            entries = self._read()
            if name not in entries:
                raise NotFound(kind="added model", name=name, hint=known_names(name, entries))
            del entries[name]
            self._replace(entries)

    # ---- the file -------------------------------------------------------------------------------

    def _write(self, name: str, entry: _Entry) -> None:
        with self._lock():
            self._replace({**self._read(), name: entry})

    def _lock(self) -> FileLock:
        return FileLock(self._file.with_suffix(".lock"), wait=True)

    def _read(self) -> dict[str, _Entry]:
        try:
            text = self._file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        try:
            return {name: _from_toml(table) for name, table in tomllib.loads(text).items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadInput(source=str(self._file), reason=f"it is no model registry ({error})") from error

    def _replace(self, entries: Mapping[str, _Entry]) -> None:
        try:
            text = _HEAD + tomli_w.dumps({name: _to_toml(entries[name]) for name in sorted(entries)})
        except TypeError as error:
            raise BadInput(source=str(self._file), reason=f"an engine argument cannot be written ({error})") from error
        LocalObjects().replace(str(self._file), text.encode())


def embedding_size(model: Model) -> int | None:
    """Floats in one of its vectors; None where its files do not say, or it makes no vectors."""
    if model.kind != "embedding":
        return None
    if model.engine == FAKE:
        return int(model.engine_args.get("embedding_size", SHIPPED[FAKE].embedding_size))
    return facts.embedding_size(Path(model.path))


def embedding_sizes(model: Model) -> Sequence[int] | None:
    """What `dimensions` may be for an embedding model; None for any."""
    if model.engine == FAKE:
        return None
    overrides = model.engine_args.get("hf_overrides")
    return facts.embedding_sizes(Path(model.path), overrides if isinstance(overrides, Mapping) else {})


def context_length(model: Model) -> int | None:
    """Tokens of prompt and output together; None where its files do not say."""
    told = model.engine_args.get("max_model_len")
    if told is not None and told != -1:
        return int(told)
    if model.engine == FAKE:
        return SHIPPED[FAKE].context_length
    return facts.context_length(Path(model.path))


def _check_name(name: str) -> None:
    if not name or not set(name) <= _MODEL_NAME_CHARS or len(name) > 200:
        raise BadModel(name=repr(name), reason="a name is made of letters, digits and . _ - / : @ (at most 200)")
    if name == FAKE:
        raise BadModel(name=name, reason="that is the shipped fake model; add it under another name with --engine fake")


def _to_toml(entry: _Entry) -> dict[str, Any]:
    files = {file.name: {k: v for k, v in asdict(file).items() if k != "name"} for file in entry.files}
    return {
        "path": entry.path,
        "kind": entry.kind,
        "engine": entry.engine,
        "checksum": weights.checksum_of(entry.files),
        "engine_args": dict(entry.engine_args),
        "files": files,
    }


def _from_toml(table: Mapping[str, Any]) -> _Entry:
    if table["kind"] not in {"chat", "completion", "embedding"}:
        msg = f"kind {table['kind']!r}"
        raise ValueError(msg)
    return _Entry(
        path=str(table["path"]),
        kind=table["kind"],
        engine=str(table.get("engine", "vllm")),
        engine_args=dict(table.get("engine_args", {})),
        files=_files(table.get("files", {})),
    )


def _files(tables: Mapping[str, Mapping[str, Any]]) -> tuple[ModelFile, ...]:
    return tuple(ModelFile(name=name, **table) for name, table in sorted(tables.items()))
