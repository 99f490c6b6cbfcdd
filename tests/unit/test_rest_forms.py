"""A multipart form, however the network cuts it."""

import asyncio
import hashlib

import pytest

from api.rest.forms import Form, Local, read_form
from jobs.errors import BadInput, StorageFull

pytestmark = pytest.mark.unit
KIND = "multipart/form-data; boundary=XX"
CONTENT = b'{"a": 1}\r\n--X\r\n--not the end\r\n'


def a_form(*parts, end=b"--XX--\r\n"):
    out = b""
    for name, filename, data in parts:
        file = f'; filename="{filename}"' if filename is not None else ""
        out += f'--XX\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode() + data + b"\r\n"
    return out + end


GOOD = a_form(("purpose", None, b"batch"), ("file", "in.jsonl", CONTENT))


def read(body, tmp_path, *, cut=1 << 20, kind=KIND):
    async def chunks():
        for at in range(0, len(body), cut):
            yield body[at : at + cut]

    path = tmp_path / "new" / "file"
    with Local(lambda: path) as local:
        form = asyncio.run(read_form(kind, chunks(), local))
        written = path.read_bytes() if path.exists() else None
        assert (local.path is not None) == (written is not None)
    assert not path.exists()
    return form, written


def form_of(content, **changes):
    return Form(
        fields={"purpose": "batch"},
        filename="in.jsonl",
        head=content[:16],
        size=len(content),
        checksum=hashlib.sha256(content).hexdigest(),
        **changes,
    )


@pytest.mark.parametrize("cut", [1, 2, 7, 64, 1 << 20])
def test_fields_and_file_are_the_same_wherever_the_body_is_cut(tmp_path, cut):
    assert read(GOOD, tmp_path, cut=cut) == (form_of(CONTENT, short=CONTENT), None)


@pytest.mark.parametrize("size", [64 << 10, (64 << 10) + 1, 3 << 20])
def test_a_file_that_is_not_short_is_written_as_it_comes(tmp_path, size):
    content = CONTENT * (size // len(CONTENT)) + b"x" * (size % len(CONTENT))
    body = a_form(("purpose", None, b"batch"), ("file", "in.jsonl", content))
    kept = form_of(content, short=content), None
    written = form_of(content), content
    assert read(body, tmp_path, cut=100_000) == (kept if size <= 64 << 10 else written)


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (GOOD, "application/json", "multipart/form-data"),
        (GOOD, "multipart/form-data", "multipart/form-data"),
        (GOOD[:-9], KIND, "before its last boundary"),
        (b"no form at all", KIND, "no multipart form"),
        (a_form(("file", "a", b"1"), ("file", "b", b"2")), KIND, "one file"),
        (a_form(("purpose", None, b"x" * 5000)), KIND, "longer than 4096"),
        (a_form(*((f"f{n}", None, b"") for n in range(40))), KIND, "at most 32 fields"),
        (a_form((f"{'n' * 100_000}", None, b"")), KIND, "no multipart form"),
    ],
)
def test_what_is_no_form_is_refused(tmp_path, body, kind, reason):
    with pytest.raises(BadInput, match=reason):
        read(body, tmp_path, kind=kind)


def test_a_full_disk_is_no_fault_of_the_form(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file").symlink_to("/dev/full")
    with pytest.raises(StorageFull):
        read(a_form(("file", "in.jsonl", b"x" * (3 << 20))), tmp_path)


def test_what_a_full_disk_did_not_take_is_thrown_away(tmp_path):
    (path := tmp_path / "file").symlink_to("/dev/full")
    with Local(lambda: path) as local:
        local.write(b"x")
    assert not path.is_symlink()
