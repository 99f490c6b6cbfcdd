"""Model folders for tests: what a registry looks at, without weights worth the name."""

import json
from pathlib import Path

CONFIG = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 2048, "hidden_size": 64}


def model_folder(path: Path, config: dict | None = None, files: dict[str, object] | None = None) -> Path:
    """config: changes of CONFIG. files: by name below the folder; what is no text is written as JSON."""
    for name, content in {"config.json": CONFIG | (config or {}), "model.safetensors": "w", **(files or {})}.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
    return path
