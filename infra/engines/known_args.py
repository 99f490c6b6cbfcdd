"""Which engine arguments there are, known without starting an engine: vLLM's are read from its source.

To import vLLM takes ten seconds, to parse the one file that declares its arguments 30 ms.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from infra.engines.backend import StartFailed, check_argument_names
from infra.engines.fake_args import read_args
from jobs.errors import BadInput

_FILE = "engine/arg_utils.py"
_CLASSES = frozenset({"EngineArgs", "AsyncEngineArgs"})
_MORE = ("tool_call_parser",)
"""What the backend takes beside vLLM's own."""


def check_engine_args(engine: str, given: Mapping[str, Any], *, source: str) -> None:
    """Raises BadInput naming an argument that the engine does not know; what only the engine can tell, it tells later.

    engine: of the model's entry. source: where the arguments are from, for the sentence.
    """
    try:
        if engine == "fake":
            read_args(given)
        elif given and (known := vllm_arguments()):
            check_argument_names(given, [*known, *_MORE])
    except StartFailed as error:
        raise BadInput(source=source, reason=str(error)) from error


def vllm_arguments() -> list[str]:
    """Names of the fields of vLLM's `AsyncEngineArgs`; none where it is not installed, or is made otherwise."""
    spec = find_spec("vllm")
    if spec is None or spec.origin is None:
        return []
    try:
        tree = ast.parse((Path(spec.origin).parent / _FILE).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return []
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in _CLASSES]
    if len(classes) < len(_CLASSES):
        return []
    return [
        statement.target.id
        for node in classes
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    ]
