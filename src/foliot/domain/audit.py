"""The audit log: its rows, the chain of seals over them, their signatures, and the check of all three. Pure.

    audit row     records who did what to what, and why; written in the transaction of the action
    seal          gives a row its position in the chain, and a hash over the previous seal and the row
    signature     an HMAC over the row and its number, by a key that only processes of Foliot have
    anchor        a copy of a seal outside the store: it shows any change to the chain up to that seal

Rows are sealed after their transaction, so that operators never wait for one another. The chain is in the order of
sealing.

A seal proves that a row did not change after it was sealed. It does not prove who wrote the row: the scheduler seals
any row of the table. A signature proves that. Once a row is signed, each row that is sealed after it must be signed.
The hash of a signed row covers its signature, so that a removed signature breaks the chain.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from enum import StrEnum
from hashlib import blake2b, sha256
from typing import NamedTuple

from foliot.domain.instant import Instant, parse_rfc3339, rfc3339
from foliot.errors import InvalidInput

GENESIS = "0" * 64
"""What the first seal follows."""


class AuditRow(NamedTuple):
    """What a person did, and why."""

    at: Instant
    actor: str
    action: str
    note: str
    subject: str = ""
    """The run, schedule, job, limit, worker, ... that it was done to."""
    number: int = 0
    signature: str | None = None
    """`key:hex` as `AuditKeys.sign` makes it; None: the process that wrote the row had no key."""


class AuditFilter(NamedTuple):
    """Which rows are wanted; None: any."""

    actor: str | None = None
    action: str | None = None
    subject: str | None = None
    since: Instant | None = None
    until: Instant | None = None
    """Before this."""
    text: str | None = None
    """Somewhere in subject, note or actor; in capitals or not, as far as the store knows the letters."""


class Seal(NamedTuple):
    position: int
    """From 1, without a gap."""
    hash: str


START = Seal(0, GENESIS)


class Signed(StrEnum):
    """Whether a process that has a key wrote a row."""

    YES = "yes"
    NO = "no"
    """The row has no signature."""
    WRONG = "wrong"
    """The signature is not that of this row with this number."""
    UNKNOWN = "unknown"
    """The key that the signature names is not here."""


class SealedRow(NamedTuple):
    """A row with its seal. One of the two may be missing: the row has no seal yet, or is gone."""

    number: int
    row: AuditRow | None
    seal: Seal | None
    signed: Signed | None = None
    """None: this process has no key."""


class Unsealed(NamedTuple):
    """A row without exactly one seal, that does not wait for it either."""

    number: int
    seals: int
    at: Instant | None
    """None: it waits for its seal, and is gone."""


class Standing(NamedTuple):
    """How far the chain has come."""

    head: Seal
    waiting: int
    """Rows that have no seal yet."""
    since: Instant | None
    """When the first of those was written."""


class AuditKeys:
    """Keys that sign rows: the first one signs, all verify."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._keys = {_key_name(secret): hmac.digest(secret, _PURPOSE, "sha256") for secret in secrets}
        self._first = next(iter(self._keys))

    def sign(self, row: AuditRow) -> str:
        """The signature of a row with its number: no other row, and none in another place, has the same."""
        return f"{self._first}:{_signature(self._keys[self._first], row)}"

    def judge(self, row: AuditRow) -> Signed:
        if row.signature is None:
            return Signed.NO
        name, _, signature = row.signature.partition(":")
        key = self._keys.get(name)
        if key is None:
            return Signed.UNKNOWN
        is_right = hmac.compare_digest(signature.encode("utf-8", "replace"), _signature(key, row).encode())
        return Signed.YES if is_right else Signed.WRONG


def _key_name(secret: bytes) -> str:
    return blake2b(secret, digest_size=4, person=b"foliot-audit").hexdigest()


def _signature(key: bytes, row: AuditRow) -> str:
    """Of the row as it is read back: where a store cannot hold a NUL, it holds the symbol for it."""
    texts = {name: getattr(row, name).replace("\0", "\N{SYMBOL FOR NULL}") for name in _TEXTS}
    return hmac.digest(key, _canonical(row._replace(**texts, signature=None)), "sha256").hex()


def is_unsigned(signed: Signed | None, is_begun: bool) -> bool:
    """Whether a row lacks a signature that it must have. `is_begun`: a row before it is signed."""
    return signed in (Signed.WRONG, Signed.UNKNOWN) or (signed is Signed.NO and is_begun)


def why_unsigned(number: int, signed: Signed | None) -> str:
    return f"row {number} {_UNSIGNED[signed or Signed.NO]}"


_PURPOSE = b"foliot audit"
_TEXTS = ("actor", "action", "subject", "note")
_UNSIGNED = {
    Signed.NO: "is not signed, but earlier rows are: it was inserted without a key, or by a process without "
    "FOLIOT_AUDIT_KEYS",
    Signed.WRONG: "has an invalid signature: it was inserted without a key",
    Signed.UNKNOWN: "is signed with an unknown key: add the key to FOLIOT_AUDIT_KEYS; if the key is not yours, the "
    "row was forged",
}
_NONE_SIGNED = (
    "this process has a key, and no row is signed: if the key is new, the next action writes the first signed row; "
    "otherwise all signatures were removed, so compare the log with a backup"
)


def sealed(before: Seal, row: AuditRow) -> Seal:
    """The seal that follows `before`. Equal rows have equal seals in each store."""
    return Seal(before.position + 1, sha256(bytes.fromhex(before.hash) + _canonical(row)).hexdigest())


def possible_seals(before: Seal, row: AuditRow) -> tuple[Seal, ...]:
    """The seals of a row that follow `before`. Schedulers of an earlier release leave the signature out of the hash."""
    unsigned = () if row.signature is None else (sealed(before, row._replace(signature=None)),)
    return sealed(before, row), *unsigned


def _canonical(row: AuditRow) -> bytes:
    """Each field with its length before it: no two rows look alike, wherever their fields begin and end."""
    signature = () if row.signature is None else (row.signature,)
    fields = (str(row.number), str(row.at), row.actor, row.action, row.subject, row.note, *signature)
    encoded = (field.encode("utf-8", "surrogatepass") for field in fields)
    return b"".join(b"%d:%s" % (len(one), one) for one in encoded)


# --------------------------------------------------------------------------------------------------------- verification


class Breach(StrEnum):
    """What is wrong with a chain."""

    EDITED = "edited"
    """A row is not as it was when it was sealed."""
    MISSING = "missing"
    """A sealed row is gone."""
    FORGED = "forged"
    """A seal fits neither its row nor its neighbours."""
    BROKEN = "broken"
    """A seal is missing, or the chain was written anew from here on."""
    EXTRA = "extra"
    """A row has more than one seal."""
    UNSEALED = "unsealed"
    """A row has no seal, and waits for none."""
    UNSIGNED = "unsigned"
    """A row lacks its signature, and rows before it are signed; or no row at all is signed."""
    ANCHOR = "anchor"
    """The chain does not hold what an anchor says."""


class Problem(NamedTuple):
    """The first thing that is wrong, in the order of the chain."""

    breach: Breach
    position: int | None
    """In the chain; None for what is not in it."""
    row: int | None
    detail: str


class Anchor(NamedTuple):
    at: Instant
    position: int
    hash: str

    def line(self) -> str:
        return f"{rfc3339(self.at)} {self.position} {self.hash}"


class ChainCheck:
    """Follows a chain from its first seal, page by page, up to the first place where it is broken.

    If a seal does not fit its row, the seal after it shows which of the two was changed. A row without its signature
    does not end the check: one process without the key must not hide a later change of the chain.
    """

    def __init__(self, anchors: Iterable[Anchor] = ()) -> None:
        self._before = START
        self._anchors = sorted(anchors, key=lambda one: (one.position, one.at))
        self._suspect: SealedRow | None = None
        self._first_unsigned: Problem | None = None
        self._is_judged = False
        """Whether this process has a key."""
        self.problem: Problem | None = None
        self.proven: Anchor | None = None
        """The last anchor that the chain holds."""
        self.signed = 0
        """Rows with a right signature."""
        self.unsigned = 0
        """Rows that lack a signature which they must have."""
        self.signed_from: int | None = None
        """The position of the first row with a right signature."""

    @property
    def head(self) -> Seal:
        return self._before

    def follow(self, page: Sequence[SealedRow]) -> None:
        for one in page:
            if self.problem is not None:
                return
            self._look(one)

    def end(self) -> None:
        """There are no more seals."""
        if self.problem is None and self._suspect is not None:
            self.problem = _told_of(self._suspect, Breach.EDITED)
        if self.problem is None and self._anchors:
            first = self._anchors[0]
            detail = f"the chain ends at {self._before.position}, and an anchor of {rfc3339(first.at)} names position"
            self.problem = Problem(
                Breach.ANCHOR, first.position, None, f"{detail} {first.position}: the end of the log was cut off"
            )
        if self.problem is None:
            self.problem = self._first_unsigned
        if self.problem is None and self._is_judged and self.signed_from is None:
            self.problem = Problem(Breach.UNSIGNED, None, None, _NONE_SIGNED)

    def _look(self, one: SealedRow) -> None:
        assert one.seal is not None
        if self._suspect is not None:
            self.problem = self._judged(self._suspect, one)
            return
        if one.seal.position != self._before.position + 1:
            detail = f"seal {self._before.position + 1} is missing: the next seal is {one.seal.position}"
            self.problem = Problem(Breach.BROKEN, self._before.position + 1, None, detail)
            return
        self.problem = self._compared(one.seal)
        if self.problem is None and (one.row is None or one.seal not in possible_seals(self._before, one.row)):
            self._suspect = one
            return
        self._before = one.seal
        if self.problem is None:
            self._look_at_signature(one, one.seal)

    def _look_at_signature(self, one: SealedRow, seal: Seal) -> None:
        self._is_judged = self._is_judged or one.signed is not None
        if one.signed is Signed.YES:
            self.signed += 1
            self.signed_from = seal.position if self.signed_from is None else self.signed_from
        elif is_unsigned(one.signed, self.signed_from is not None):
            self.unsigned += 1
            self._first_unsigned = self._first_unsigned or Problem(
                Breach.UNSIGNED, seal.position, one.number, why_unsigned(one.number, one.signed)
            )

    def _compared(self, seal: Seal) -> Problem | None:
        """With the anchors of this position."""
        while self._anchors and self._anchors[0].position <= seal.position:
            anchor = self._anchors.pop(0)
            if anchor.hash != seal.hash:
                detail = f"an anchor of {rfc3339(anchor.at)} has another hash for position {seal.position}"
                return Problem(Breach.ANCHOR, seal.position, None, f"{detail}: history up to there was rewritten")
            self.proven = anchor
        return None

    def _judged(self, suspect: SealedRow, following: SealedRow) -> Problem:
        """Decides by the seal after it which of a row and its seal was changed."""
        if suspect.row is None:
            return _told_of(suspect, Breach.MISSING)
        assert suspect.seal is not None
        assert following.seal is not None
        if following.row is not None:
            if following.seal in possible_seals(suspect.seal, following.row):
                return _told_of(suspect, Breach.EDITED)
            genuine = possible_seals(self._before, suspect.row)
            if any(following.seal in possible_seals(seal, following.row) for seal in genuine):
                return _told_of(suspect, Breach.FORGED)
        return _told_of(suspect, Breach.BROKEN)


def _told_of(one: SealedRow, breach: Breach) -> Problem:
    assert one.seal is not None
    if one.row is None:
        breach = Breach.MISSING
    what = {
        Breach.MISSING: f"row {one.number} was deleted after it was sealed",
        Breach.EDITED: f"row {one.number} does not match its seal: the row was changed, or the seal was forged",
        Breach.FORGED: f"the seal of row {one.number} was changed; the row matches the seals before and after it",
        Breach.BROKEN: f"the hash chain breaks at row {one.number}: rows or seals were changed from here on",
    }[breach]
    return Problem(breach, one.seal.position, one.number, what)


def told_of_unsealed(one: Unsealed) -> Problem:
    if one.seals > 1:
        return Problem(Breach.EXTRA, None, one.number, f"row {one.number} has {one.seals} seals; a row has one")
    if one.at is None:
        return Problem(Breach.MISSING, None, one.number, f"row {one.number} was removed before it was sealed")
    detail = (
        f"row {one.number} of {rfc3339(one.at)} has no seal and is not queued for one: it was not inserted by Foliot"
    )
    return Problem(Breach.UNSEALED, None, one.number, detail)


def read_anchors(text: str) -> list[Anchor]:
    """The lines of an anchor file: a time, a position and a hash each. Blank lines and comments are passed over."""
    return [
        _anchor(line, number)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]


def _anchor(line: str, number: int) -> Anchor:
    try:
        at, position, digest = line.split()
        if int(position) < 1 or len(bytes.fromhex(digest)) != 32:
            raise InvalidInput("a seal with this position cannot exist")
        return Anchor(parse_rfc3339(at), int(position), digest.lower())
    except ValueError:
        raise InvalidInput(
            f"line {number}, {line!r:.80}, is not an anchor; each line needs a time, a position and a hash of 64 "
            "digits, as `foliot audit anchor` writes it"
        ) from None
