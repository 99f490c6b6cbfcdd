"""Objects by URI: the scheme says which adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from infra.objects.local import LocalObjects, scheme_of
from jobs.errors import Refused
from jobs.ports.objects import Objects

SCHEMES: Mapping[str, Callable[[], Objects]] = {"file": LocalObjects}


def objects_for(uri: str) -> Objects:
    """The adapter for a URI or a plain path. Raises Refused naming the scheme and those there are."""
    scheme = scheme_of(uri)
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise Refused(reason=f"{uri} has the scheme {scheme}://, and only {known} and plain paths can be used")
    return SCHEMES[scheme]()
