"""Keys as text: `foliot_key_` and 256 random bits. Encryption and the signatures of the audit log use the same form."""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64

from foliot.errors import InvalidInput

PREFIX = "foliot_key_"
_BYTES = 32


def new_key() -> str:
    return PREFIX + urlsafe_b64encode(os.urandom(_BYTES)).decode().rstrip("=")


def read_key(key: str, what: str) -> bytes:
    """The bits of a key; `what` names its use in errors. No message repeats a key, not even a wrong one."""
    if not isinstance(key, str) or not key.startswith(PREFIX):
        raise InvalidInput(f"{what} key must start with {PREFIX}; create one with `foliot keys new`")
    text = key.removeprefix(PREFIX)
    try:
        secret = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (NotBase64, ValueError):
        secret = b""
    if len(secret) != _BYTES:
        raise InvalidInput(
            f"{what} key has {_BYTES} bytes behind {PREFIX}, in base64; the given key is truncated or invalid: "
            "create one with `foliot keys new`"
        )
    return secret
