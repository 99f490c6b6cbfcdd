"""Secrets that must be read again (a webhook's, which signs): encrypted with a key of the installation."""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from jobs.errors import BadSetting, Broken

_NONCE_BYTES = 12
_VERSION = "v1"
KEY_BYTES = 32


class SealedElsewhere(Broken):
    """A stored secret was sealed with another key. All nodes must have the same setting `seal_key`."""

    code = "sealed_elsewhere"


def seal_key(text: str) -> bytes:
    """The setting `seal_key`. Raises BadSetting."""
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        fault = f"seal_key: it is not the Base64 of {KEY_BYTES} bytes; make one with: openssl rand -base64 {KEY_BYTES}"
        raise BadSetting(reason=fault, faults=(fault,))
    return key


class AesSeal:
    """`jobs.ports.webhooks.Seal`: AES-256-GCM. key: 32 bytes, of which only derived ones are used."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(hashlib.blake2b(key, digest_size=KEY_BYTES, person=b"nightmill-seal").digest())

    def seal(self, text: str, about: Sequence[str]) -> str:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, text.encode(), _bound(about))
        return f"{_VERSION}.{base64.b64encode(sealed).decode()}"

    def open(self, sealed: str, about: Sequence[str]) -> str:
        version, _, text = sealed.partition(".")
        try:
            data = base64.b64decode(text, validate=True)
            if version != _VERSION:
                raise SealedElsewhere
            return self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _bound(about)).decode()
        except (InvalidTag, ValueError) as error:
            raise SealedElsewhere from error


def _bound(about: Sequence[str]) -> bytes:
    return "\0".join(about).encode()
