"""The models that come with Nightmill: known without being added, with example prices."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from jobs.model import Model, Value
from jobs.ports.engine import ModelKind

FAKE = "fake"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped(Value):
    """price: INPUT/CACHED/OUTPUT as typed, an example in whatever currency the book has.

    context_length (tokens), embedding_size: of the fake model only; the others' files say.
    """

    kind: ModelKind
    price: str
    about: str
    context_length: int | None = None
    embedding_size: int | None = None


SHIPPED = {
    FAKE: Shipped(
        kind="chat",
        price="0.10/0.05/0.40",
        about="made-up answers at once; for looking round and for tests",
        context_length=4096,
        embedding_size=64,
    ),
    "minilm": Shipped(kind="embedding", price="0.02/0.01/0", about="all-MiniLM-L6-v2: texts to vectors of 384 floats"),
    "smollm2": Shipped(kind="chat", price="0.05/0.025/0.20", about="SmolLM2-135M-Instruct: small enough for a CPU"),
}


def fake_model() -> Model:
    """The fake model: no files, so its checksum says only what it is."""
    return Model(
        name=FAKE, kind="chat", path="", engine=FAKE, checksum=hashlib.sha256(FAKE.encode()).hexdigest(), example=True
    )
