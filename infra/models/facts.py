"""What a model folder's own files say about it, before any engine has read them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.errors import BadInput
from jobs.ports.engine import ModelKind

_LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "seq_len",
    "model_max_length",
    "max_sequence_length",
    "max_seq_length",
    "max_target_positions",
)
"""Where configurations keep the context length, as vLLM reads them (transformers_utils/model_arch_config_convertor)."""
_SIZES = ("hidden_size", "d_model", "n_embd", "dim")
_UNSCALED_ROPE = {"default", "su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"}
"""Kinds of RoPE scaling that `max_position_embeddings` counts already (vLLM: config/model.py)."""


def detect_kind(folder: Path) -> ModelKind:
    """Chat, completion or embedding. Raises BadInput when the files do not tell (then --kind must)."""
    config = _config(folder)
    if (folder / "modules.json").is_file():  # sentence-transformers
        return "embedding"
    names = config.get("architectures") or [""]
    name = str(names[0])
    if name.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
        return "chat" if has_chat_template(folder) else "completion"
    if name.endswith(("Model", "ForTextEmbedding", "EmbeddingModel")):
        return "embedding"
    raise BadInput(
        source=str(folder / "config.json"),
        reason=f"its architecture {name or '(none)'} does not tell whether the model chats, completes or embeds; "
        "say so with --kind",
    )


def has_chat_template(folder: Path) -> bool:
    """Whether the tokenizer brings a chat template."""
    if any((folder / name).is_file() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    return bool(_json(folder / "tokenizer_config.json").get("chat_template"))


def embedding_size(folder: Path) -> int | None:
    """Floats in a vector: the last dense layer's output, else the hidden size. None if the files do not say."""
    dense = [_json(module / "config.json").get("out_features") for module in _modules(folder, "Dense")]
    if dense and dense[-1]:
        return int(dense[-1])
    config = _text_config(_config(folder))
    return next((int(config[name]) for name in _SIZES if config.get(name)), None)


def embedding_sizes(folder: Path, overrides: Mapping[str, Any]) -> Sequence[int] | None:
    """What a shorter vector may have: of Matryoshka models what their files say, or anything (None) if they only say
    that they are one; of others their own size alone. overrides: of the configuration, by the engine's arguments.
    """
    config = {**_config(folder), **overrides}
    sizes = config.get("matryoshka_dimensions")
    if isinstance(sizes, list) and sizes:
        return sorted({int(size) for size in sizes})
    own = embedding_size(folder)
    return None if config.get("is_matryoshka") or own is None else (own,)


def context_length(folder: Path) -> int | None:
    """Tokens of prompt and output together. None if the files do not say; the started engine has the last word."""
    sentence = _json(folder / "sentence_bert_config.json").get("max_seq_length")
    if sentence:
        return int(sentence)
    config = _text_config(_config(folder))
    lengths = [float(config[name]) for name in _LENGTHS if config.get(name)]
    tokenizer = _json(folder / "tokenizer_config.json").get("model_max_length")
    if not lengths:
        return None
    return int(min(*lengths, float(tokenizer or "inf")) * _rope_factor(config))


def _rope_factor(config: Mapping[str, Any]) -> float:
    """How much further than `max_position_embeddings` RoPE scaling reaches."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    return 1.0 if kind in _UNSCALED_ROPE else float(scaling.get("factor") or 1.0)


def _modules(folder: Path, kind: str) -> Iterator[Path]:
    """Folders of the sentence-transformers modules of a kind, in the order they run."""
    file = folder / "modules.json"
    if not file.is_file():
        return
    for module in json.loads(file.read_text(encoding="utf-8")):
        if str(module.get("type", "")).endswith(f".{kind}"):
            yield folder / str(module.get("path", ""))


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Models of several modes keep their language part in `text_config`."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def _config(folder: Path) -> Mapping[str, Any]:
    if not folder.is_dir():
        raise BadInput(source=str(folder), reason="there is no such folder")
    if not (folder / "config.json").is_file():
        raise BadInput(source=str(folder), reason="it has no config.json, so it is no Hugging Face model folder")
    return _json(folder / "config.json")


def _json(file: Path) -> Mapping[str, Any]:
    """A JSON object, empty if there is no such file. Raises BadInput."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise BadInput(source=str(file), reason=f"it is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadInput(source=str(file), reason="it is not a JSON object")
    return found
