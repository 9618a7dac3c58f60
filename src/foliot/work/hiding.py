"""Texts that are stored about an attempt must not repeat its secrets: an error's message often quotes an argument."""

from __future__ import annotations

from collections.abc import Callable

from foliot.domain.redaction import Secrets, redacted_text, secret_values
from foliot.domain.run import Claimed

Hide = Callable[[str], str]


def as_it_is(text: str) -> str:
    return text


class Hider:
    """Takes out of texts what has the form of a secret, and what the run's arguments say in secret places. Nothing is
    looked at before the first text: most attempts have none."""

    __slots__ = ("_known", "_payload", "_secrets")

    def __init__(self, claimed: Claimed, secrets: Secrets) -> None:
        self._payload = claimed.payload
        self._secrets = secrets
        self._known: tuple[str, ...] | None = None

    def __call__(self, text: str) -> str:
        if self._known is None:
            self._known = secret_values(self._payload, self._secrets)
        return redacted_text(text, self._known)
