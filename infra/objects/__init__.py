"""Objects by URI: the scheme says which adapter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from infra.objects.local import LocalObjects
from infra.objects.routed import Opener, RoutedObjects
from infra.objects.s3_options import S3Options
from jobs.errors import Refused
from jobs.ports.objects import Objects

__all__ = ["RoutedObjects", "S3Options", "open_objects"]


def open_objects(*, scratch: Path, s3: S3Options, more: Mapping[str, Opener] | None = None) -> RoutedObjects:
    """All stores behind one port. scratch: a local folder for files on their way to S3. more: openers by scheme."""
    return RoutedObjects(openers={"file": LocalObjects, "s3": lambda: _open_s3(s3, scratch), **(more or {})})


def _open_s3(options: S3Options, scratch: Path) -> Objects:
    try:
        from infra.objects.s3 import S3Objects  # noqa: PLC0415 - boto3 takes time and is an extra
        from infra.objects.s3_client import Connection  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise Refused(reason=f"s3:// needs {error.name}; install it with: pip install 'nightmill[s3]'") from error
    return S3Objects(Connection(options), scratch)
