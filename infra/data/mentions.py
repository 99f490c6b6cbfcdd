"""Which columns a template mentions, in the order in which it does, and whether all of them exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from jinja2 import meta, nodes

from jobs.errors import BadTemplate

ROW = "row"
"""The name under which a template sees all columns: `row["odd name"]`. It hides a column of this name."""
_FOREIGN = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)
_DICT_NAMES = frozenset(name for name in dir(dict) if not name.startswith("_"))
_SHOWN = 40


def mentioned(tree: nodes.Template, columns: Sequence[str], globals_: frozenset[str], where: str) -> list[str]:
    """The columns that a parsed template uses, each once. Raises BadTemplate for a name that is no column."""
    known = set(columns)
    undeclared = meta.find_undeclared_variables(tree)
    seen: dict[str, None] = {}
    for node in _walk(tree):
        if isinstance(node, _FOREIGN):
            raise BadTemplate(
                reason=f"{where}, line {node.lineno}: a template may not include, import or extend another"
            )
        for name in _columns_of(node, columns, undeclared):
            if name not in known:
                if name in globals_ and isinstance(node, nodes.Name):
                    continue
                raise BadTemplate(reason=f"{where}, line {node.lineno}: {_unknown(name, columns)}")
            seen.setdefault(name)
    return list(seen)


def _walk(node: nodes.Node) -> Iterator[nodes.Node]:
    """Every node in the order of the text; below `row["x"]` the name `row` itself is not visited."""
    yield node
    if _row_key(node) is not None:
        return
    for child in node.iter_child_nodes():
        yield from _walk(child)


def _columns_of(node: nodes.Node, columns: Sequence[str], undeclared: set[str]) -> Sequence[str]:
    key = _row_key(node)
    if key is not None:
        return (key,)
    if isinstance(node, nodes.Name) and node.ctx == "load":
        if node.name == ROW and ROW in undeclared:
            return columns  # `row.items()`, `row | tojson`, `row[name]`: may be any of them
        if node.name in undeclared:
            return (node.name,)
    return ()


def _row_key(node: nodes.Node) -> str | None:
    """X of `row["X"]` and of `row.X` (unless X is a method of dict)."""
    if not isinstance(node, nodes.Getitem | nodes.Getattr):
        return None
    if not (isinstance(node.node, nodes.Name) and node.node.name == ROW):
        return None
    if isinstance(node, nodes.Getattr):
        return None if node.attr in _DICT_NAMES else node.attr
    key = node.arg.value if isinstance(node.arg, nodes.Const) else None
    return key if isinstance(key, str) else None


def plain_key(node: nodes.Node) -> str | None:
    """The column of a bare `{{ x }}` or `{{ row["x"] }}`."""
    if isinstance(node, nodes.Name) and node.ctx == "load" and node.name != ROW:
        return node.name
    return _row_key(node)


def _unknown(name: str, columns: Sequence[str]) -> str:
    lower = {column.lower(): column for column in columns}
    near = get_close_matches(name.lower(), list(lower), n=1, cutoff=0.5)
    hint = f"; did you mean {lower[near[0]]!r}?" if near else "."
    more = f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
    return f"there is no column {name!r}{hint} The columns are: {', '.join(columns[:_SHOWN])}{more}"
