"""Keys, and what they lock: AES-256-GCM, each value under a random nonce, bound to what it is about.

Bound means that a value opens only where it was put: the arguments of one job cannot be given to another, nor the
result of one run to another, by somebody who can write to the database and has no key.
"""

from __future__ import annotations

import os
from binascii import Error as NotBase64
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable
from hashlib import blake2b

from foliot.domain.locking import DAMAGED, LOCKED
from foliot.errors import InvalidInput
from foliot.store.keys import read_key

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
except ModuleNotFoundError as error:  # it is an extra, which not everybody has
    if error.name is None or not error.name.startswith("cryptography"):
        raise
    raise InvalidInput(
        'encryption needs the package cryptography, which is not installed; pip install "foliot[crypto]"'
    ) from None

_NONCE = 12


class Keyring:
    """The first key locks, all unlock."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._ciphers: dict[str, AESGCM] = {}
        for key in keys:
            secret = read_key(key, "an encryption")
            # Named by what they are: two processes that give one name to two keys would damage what they share.
            name = blake2b(secret, digest_size=4, person=b"foliot-key").hexdigest()
            self._ciphers.setdefault(name, AESGCM(secret))
        if not self._ciphers:
            raise InvalidInput("no encryption key is given; create one with `foliot keys new`")
        self.names = tuple(self._ciphers)
        self._first = self._ciphers[self.names[0]]
        self._mark = LOCKED + self.names[0].encode() + b":"

    def lock(self, data: bytes, about: str) -> bytes:
        nonce = os.urandom(_NONCE)
        sealed = nonce + self._first.encrypt(nonce, data, about.encode())
        return self._mark + b2a_base64(sealed, newline=False) + b'"'

    def unlock(self, data: bytes, about: str) -> bytes:
        """What was locked. A value that is not locked comes back as it is, and so does one whose key is not here; one
        that does not open comes back marked as damaged."""
        if not data.startswith(LOCKED):
            return data
        name, _, sealed = data[len(LOCKED) :].rstrip(b'"').partition(b":")
        cipher = self._ciphers.get(name.decode("ascii", "replace"))
        if cipher is None:
            return data
        try:
            raw = a2b_base64(sealed, strict_mode=True)
            if b2a_base64(raw, newline=False) != sealed:  # bits that its last letter has over say nothing, and are zero
                raise NotBase64
            return cipher.decrypt(raw[:_NONCE], raw[_NONCE:], about.encode())
        except (InvalidTag, NotBase64, ValueError):
            return DAMAGED + name + b'"'

    def is_newest(self, data: bytes) -> bool:
        return data.startswith(self._mark)
