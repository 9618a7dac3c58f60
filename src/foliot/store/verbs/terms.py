"""For how long what is over is kept."""

from __future__ import annotations

from foliot.store.verbs.transaction import Transaction


async def keep_days(tx: Transaction) -> int | None:
    row = await tx.one("keep_days")
    return None if row is None else row[0]


async def set_keep_days(tx: Transaction, days: int | None, actor: str, note: str) -> None:
    await tx.run("set_keep_days", days=days)
    await tx.audit(actor, "keep", "history", f"{'unlimited' if days is None else f'{days} days'}: {note}")
