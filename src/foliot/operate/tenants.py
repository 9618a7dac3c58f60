"""How tenants stand: who waits, who runs, and who is in the way of whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foliot.domain.fairness import TenantView, fair_slots, takes_more
from foliot.domain.instant import Duration, Instant
from foliot.operate.acting import Acting
from foliot.operate.shapes import Shape, moment, seconds
from foliot.operate.words import counted

MOST = 100_000
"""Tenants that are looked at; shares are worked out over all of them."""
NOBODY = "(none)"
"""How runs without a tenant are told."""
_FLOOD = 100
"""Fewer waiting runs than this are no flood."""


class TenantShare(NamedTuple):
    """How one tenant stands beside the others."""

    view: TenantView
    share: float
    """Running attempts that correspond to the weight of the tenant among those who want them."""
    takes_more: bool
    """It clearly has more than that, while others wait."""
    floods: bool
    """Most of all that waits is its own, while others want workers too."""
    delay: Duration | None
    """For how long the first of its waiting runs has been due."""


class TenantVerbs(Acting):
    """Who shares the workers."""

    async def tenants_async(self) -> list[TenantShare]:
        """Tenants with due runs that wait for a worker, or run; those with the most waiting first."""
        store = await self._opened()
        return shares(await store.tenants_waiting(MOST), await store.now())


def shares(views: Sequence[TenantView], now: Instant) -> list[TenantShare]:
    slots, waiting = fair_slots(views), sum(view.waiting for view in views)
    return [
        TenantShare(
            view,
            slots[view.tenant],
            takes_more(view, slots, others_wait=waiting > view.waiting),
            len(views) > 1 and view.waiting >= _FLOOD and 2 * view.waiting > waiting,
            None if view.oldest is None else max(now - view.oldest, 0),
        )
        for view in views
    ]


def tenant_shape(share: TenantShare) -> Shape:
    view = share.view
    return {
        "tenant": view.tenant,
        "weight": view.weight,
        "waiting": view.waiting,
        "running": view.running,
        "share": round(share.share, 1),
        "oldest_due_at": moment(view.oldest),
        "delay": seconds(share.delay),
        "takes_more": share.takes_more,
        "floods": share.floods,
    }


def tenant_words(share: TenantShare, everyone: Sequence[TenantShare]) -> str:
    """What a person should know of it; nothing of most."""
    notes = []
    if share.floods:
        everything = sum(one.view.waiting for one in everyone)
        notes.append(f"floods: {share.view.waiting:,} of {counted(everything, 'waiting run')}")
    if share.takes_more:
        notes.append(f"takes {share.view.running:,} slots, its fair share is {share.share:.0f}")
    return "; ".join(notes)
