"""Who may act over HTTP, and what was asked for already."""

from __future__ import annotations

from typing import Protocol

from foliot.domain.access import MOST_KEYS, Answer, NewToken, Request, Token
from foliot.domain.instant import Instant


class AccessStore(Protocol):
    """Tokens, the sessions of browsers, and answers that were given. Of secrets only hashes are kept."""

    async def add_token(self, wanted: NewToken, *, actor: str, note: str) -> Token:
        """Conflict when the name was ever a token's: it says in the audit log who acted."""

    async def tokens(self) -> list[Token]:
        """All that were ever made, by name."""

    async def token(self, hash: bytes) -> Token | None:
        """The one with this hash, whether it is good or not."""

    async def any_token(self) -> bool:
        """Whether one was ever made."""

    async def revoke_token(self, name: str, *, actor: str, note: str) -> Token:
        """It is good for nothing from now on, nor are its sessions. Once more changes nothing. UnknownName."""

    async def use_token(self, number: int) -> None:
        """It was used now. May be forgotten in a crash, and is written once a minute at most."""

    async def begin_session(self, hash: bytes, token: int, until: Instant) -> None:
        """A browser was logged in with a token. Deletes sessions that have ended. When the token has `MOST_SESSIONS`,
        the oldest of them ends."""

    async def session(self, hash: bytes) -> Token | None:
        """The token that a session stands for, whether that is good or not; None when there is no such session, or it
        has ended."""

    async def end_session(self, hash: bytes) -> None: ...

    async def begin_request(self, credential: int, key: str, digest: bytes, *, most: int = MOST_KEYS) -> Request:
        """Asks, durably, for the right to do something once under a key. `new` is told to one caller only, until
        `end_request` or `drop_request`. What was kept for its time is swept away. Who has `most` keys gets no other:
        `too many`, and nothing is kept of it."""

    async def end_request(self, credential: int, key: str, answer: Answer) -> None:
        """What was answered: whoever asks the same again is told the same."""

    async def drop_request(self, credential: int, key: str) -> None:
        """Nothing was done: the next one who asks may try."""
