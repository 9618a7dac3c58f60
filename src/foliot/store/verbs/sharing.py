"""Fair shares of tenants: where their runs stand in line, and who has how much. See `foliot.domain.fairness`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foliot.domain.fairness import FairShares, Heads, Line, Placing, Sample, TenantView, weight_of
from foliot.domain.instant import Instant
from foliot.store.verbs.rows import handed_off
from foliot.store.verbs.transaction import Transaction, longs
from foliot.store.verbs.working import Group

SAMPLE = 1_000
"""How many of the newest ended runs tell how long those of each tenant take."""

_TENANT = "tenant:"


async def ranked(
    tx: Transaction, placing: Placing, groups: Mapping[Group, Sequence[int]], tenants: Mapping[int, str]
) -> Mapping[Group, Sequence[int]]:
    """The groups of a firing, each parted by the ranks of its runs. As they are, in a store without tenants."""
    placing.begin()
    if not placing.shares.is_used(tx.now, tenants.values()):
        return groups
    if placing.shares.is_to_learn(tx.now):
        await learn(tx, placing.shares)
    heads: dict[Line, Heads] = {}
    parted: dict[Group, list[int]] = {}
    for (queue, lane, priority, label, alone, version, _), numbers in groups.items():
        line = (queue, lane, priority)
        if line not in heads:
            heads[line] = await _heads(tx, line)
        ranks = placing.ranks(line, heads[line], map(tenants.get, numbers))
        for number, rank in zip(numbers, ranks, strict=True):
            parted.setdefault((queue, lane, priority, label, alone, version, rank), []).append(number)
    return parted


async def _heads(tx: Transaction, line: Line) -> Heads:
    queue, lane, priority = line
    row = await tx.one("line_heads", queue=queue, lane=lane, priority=priority, now=tx.now)
    assert row is not None
    return Heads(row[0], row[1])


async def learn(tx: Transaction, shares: FairShares) -> None:
    samples = [Sample(tenant, int(runs), int(took)) for tenant, runs, took in await tx.all("run_times", limit=SAMPLE)]
    shares.learn(tx.now, await weights(tx), samples)


async def weights(tx: Transaction) -> dict[str, float]:
    """By tenant, where somebody set one."""
    return {name.removeprefix(_TENANT): weight for name, weight in await tx.all("tenant_weights")}


async def tenants_waiting(tx: Transaction, limit: int) -> list[TenantView]:
    """Read through chunks and claims: there is no index by tenant, because each run would pay for it."""
    claimed = [number for (stored,) in await tx.all("owned_by_workers") for number in tx.unpacked(stored)]
    waiting: dict[str | None, tuple[int, Instant]] = {}
    for tenant, count, oldest in await tx.all("waiting_by_tenant", numbers=longs(await handed_off(tx)), now=tx.now):
        waiting[tenant] = int(count), oldest
    running = {tenant: int(count) for tenant, count in await tx.all("running_by_tenant", numbers=longs(claimed))}
    by_weight = await weights(tx)
    views = []
    for tenant in waiting.keys() | running.keys():
        count, oldest = waiting.get(tenant, (0, None))
        views.append(TenantView(tenant, count, running.get(tenant, 0), oldest, weight_of(tenant, by_weight)))
    return sorted(views, key=lambda view: (-view.waiting, -view.running, view.tenant or ""))[:limit]
