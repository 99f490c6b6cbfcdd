"""Which storage a tenant's request may name: what an operator granted it, and never the platform's own. The one place
that says so.

For requests that come over REST or a topic. The local command line is the operator's own and needs no grant. Uploads
and results in the platform's storage are reached by their ids, not by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

from jobs.errors import NoGrant
from jobs.ports.intake import SubmitRequest
from jobs.ports.tenancy import TenantStore
from jobs.tenancy import covered

_WILD = re.compile(r"[*?\[]")


def check_access(request: SubmitRequest, *, store: TenantStore, never: Sequence[str]) -> None:
    """Before anything is looked at, so that nobody learns what is there. never: as in `check_places`.

    Raises NoGrant.
    """
    check_places(request.tenant, reads=[request.input], writes=[request.output], store=store, never=never)


def check_places(
    tenant: str,
    *,
    reads: Iterable[str] = (),
    writes: Iterable[str] = (),
    store: TenantStore,
    never: Sequence[str],
    param: str | None = None,
) -> None:
    """reads: URIs of files, globs or folders (these end in "/"); writes: of folders.

    never: beginnings of places that are the platform's own, whatever is granted; param: what named them, for the error.
    """
    grants, told = store.grants(tenant), {} if param is None else {"param": param}
    for uri in reads:
        if not covered(uri, grants) or touches(uri, never):
            raise NoGrant(tenant=tenant, verb="read", uri=uri, **told)
    for uri in writes:
        folder = uri if uri.endswith("/") else f"{uri}/"
        if not covered(folder, grants, write=True) or touches(folder, never):
            raise NoGrant(tenant=tenant, verb="write", uri=uri, **told)


def touches(uri: str, never: Iterable[str]) -> bool:
    """Whether a file, folder or glob lies in one of the places, or could hold one of them: a grant may be wider than
    the platform's own folder below it.
    """
    fixed = _plain(_WILD.split(uri, maxsplit=1)[0])
    places = [_plain(place) for place in never]
    return any(fixed.startswith(place) or place.startswith(fixed) for place in places)


def _plain(uri: str) -> str:
    """A local file as it is opened: its %-escapes read. Keys of S3 stand as they are."""
    return unquote(uri) if uri.startswith("file://") else uri
