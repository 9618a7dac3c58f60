"""The operators' log: read by filters, and sealed after the fact. See `foliot.domain.audit`."""

from __future__ import annotations

from foliot.domain.audit import (
    START,
    AuditFilter,
    AuditRow,
    Seal,
    SealedRow,
    Signed,
    Standing,
    Unsealed,
    is_unsigned,
    sealed,
    why_unsigned,
)
from foliot.store.verbs.transaction import Row, Transaction, longs

_ALL = (1 << 63) - 1


async def audit(tx: Transaction, wanted: AuditFilter, before: int | None, limit: int) -> list[SealedRow]:
    query = "audit_rows" if wanted.subject is None else "audit_rows_of"
    rows = await tx.all(query, **wanted._asdict(), before=_ALL if before is None else before, limit=limit)
    return [_sealed_row(tx, row[0], _row(row[:7]), None if row[7] is None else Seal(row[7], row[8])) for row in rows]


async def any_unsealed(tx: Transaction) -> bool:
    return bool(await tx.value("any_unsealed"))


async def seal(tx: Transaction, limit: int) -> int:
    """1. One at a time. 2. From where the chain ends now. 3. All that can be seen and has no seal, by its number: a row
    that commits later than one behind it is sealed later, too. 4. A row that lacks its signature is sealed as others
    are, so that it stays in evidence, and is reported as an event."""
    await tx.all("lock_seals")
    last = await _head(tx)
    seals: list[tuple[int, int, str]] = []
    is_begun = tx.audit_keys is not None and bool(await tx.value("any_signed_seal"))
    for row in map(_row, await tx.all("rows_to_seal", limit=limit)):
        last = sealed(last, row)
        seals.append((last.position, row.number, last.hash))
        signed = _signed(tx, row)
        if is_unsigned(signed, is_begun):
            await tx.event("unsigned_audit", f"audit:{row.number}", why_unsigned(row.number, signed))
        is_begun = is_begun or signed is Signed.YES
    await tx.run_each("add_seal", seals)
    await tx.run("no_longer_unsealed", numbers=longs([number for _, number, _ in seals]))
    return len(seals)


async def seals(tx: Transaction, after: int, limit: int) -> list[SealedRow]:
    return [
        _sealed_row(tx, row[0], None if row[3] is None else _row((row[0], *row[3:])), Seal(row[1], row[2]))
        for row in await tx.all("seals_after", position=after, limit=limit)
    ]


async def sealing(tx: Transaction) -> Standing:
    row = await tx.one("unsealed_now")
    assert row is not None
    return Standing(await _head(tx), int(row[0]), row[1])


async def unsealed(tx: Transaction, after: int, limit: int) -> tuple[list[Unsealed], int | None]:
    last = await tx.value("audit_page", after=after, limit=limit)
    if last is None:
        return [Unsealed(row[0], 0, None) for row in await tx.all("gone_unsealed")], None
    return [Unsealed(*row) for row in await tx.all("oddly_sealed", after=after, last=last)], int(last)


async def _head(tx: Transaction) -> Seal:
    row = await tx.one("last_seal")
    return START if row is None else Seal(*row)


def _row(row: Row) -> AuditRow:
    """Of a number and the columns of a row."""
    number, at, actor, action, subject, note, signature = row
    return AuditRow(at, actor, action, note, subject, number, signature)


def _sealed_row(tx: Transaction, number: int, row: AuditRow | None, seal: Seal | None) -> SealedRow:
    return SealedRow(number, row, seal, None if row is None else _signed(tx, row))


def _signed(tx: Transaction, row: AuditRow) -> Signed | None:
    return None if tx.audit_keys is None else tx.audit_keys.judge(row)
