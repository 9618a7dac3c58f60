"""Who comes next when tenants share workers: start-time fair queueing, with ranks that chunks can share.

Each tenant has a *tag*: how much service it has been promised so far, counted in runs of mean length, divided by its
weight. A run starts at its tenant's tag, or at the *virtual time* where that is later (nobody saves up what he did not
use), and moves the tag on by what it costs. Virtual time is where the queue stands: the first rank that still waits.

Ranks are tags in bands of `BAND`, so that a chunk can hold many runs of one rank:

    2 * band       begins in the band that the queue stands in: before all that was put off to this band
    2 * band + 1   was put off to this band, because its tenant had had its part of the ones before, or was put off
                   within it, because its tenant had begun `LIGHT` units of it already

Why that is fair. (1) *A light tenant waits for nobody's backlog*: while it asks for no more than `LIGHT` of a band, its
runs begin where the queue stands, before whatever was put off. (2) *Backlogs share by weight*: each band holds `BAND`
units of every tenant that has them, and bands are taken one after another; so two who both wait are never further apart
than a band each. (3) *Nobody starves*: the queue stands still only while something waits in its band, and each tenant
can put no more than its own band in front of that.

Order alone does not help whoever comes while all slots are taken by runs that last. So workers keep some slots free of
what was put off (`is_put_off`): these are there for whoever has had less than its share.

How well it is kept in mind: tags live in the memory of the process that fires, one set each, and are forgotten once
the queue has passed them. Runs of a tenant are spread over all shards, so that each process sees its part of every one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from foliot.domain.instant import MINUTE, SECOND, Duration, Instant

BAND = 64
"""Runs of mean length that a tenant of weight 1 may have begun before others have their turn."""

LIGHT = 8
"""Of these, so many go before what was put off, and may have the slots that are kept free of it."""

UNRANKED = 1
"""The rank of runs in a store without tenants, and of what goes back to where it came from. Should a tenant come, it
does not wait for them. They are not put off, and so a line in which nothing waits begins with a band that has other
ranks."""
FIRST_BAND = 1

MOST_COST = 16.0
"""A run of a tenant counts as so many mean runs at most, and as one in so many at least."""

LEAST_WEIGHT = 0.001
EACH = "*"
"""Where the weight of those is that have none of their own."""

LEARN_EVERY: Duration = SECOND
IN_USE_FOR: Duration = MINUTE
"""How long after the last run of a tenant a store still counts as one that has tenants."""

_DOUBT = 4
"""So many mean runs are added to what is known of a tenant: one odd run says little."""
_FEW_TAGS = 1_024

Line = tuple[str, int, int]
"""What stands in one line: queue, lane, priority."""

Tenant = str | None
"""Runs without a tenant share as if they had one of their own."""


class Heads(NamedTuple):
    """Where the queue stands."""

    own: int | None
    """The first rank that waits in this line; None when nothing does."""
    beside: int | None
    """The same, over all queues of its lane and priority: workers may serve several."""

    @property
    def band(self) -> int:
        """A line in which nothing waits begins where those beside it stand, neither before nor behind them."""
        head = self.beside if self.own is None else self.own
        return FIRST_BAND if head is None else head // 2


class Sample(NamedTuple):
    """How long runs of a tenant took of late."""

    tenant: Tenant
    runs: int
    took: Duration
    """All of them together."""


class FairShares:
    """The tags of one process that fires."""

    def __init__(self) -> None:
        self._lines: dict[Line, _Tags] = {}
        self._prices = Prices({}, 1.0)
        self._learned_at: Instant | None = None
        self._seen_at: Instant | None = None

    # What is known of tenants

    def is_used(self, now: Instant, tenants: Iterable[Tenant] = ()) -> bool:
        """Whether there are tenants to be fair to: among these, or a little while ago."""
        if any(tenant is not None for tenant in tenants):
            self._seen_at = now
        return self._seen_at is not None and abs(now - self._seen_at) < IN_USE_FOR

    def is_to_learn(self, now: Instant) -> bool:
        """Whether weights and run times are to be read anew; also when the clock went back."""
        return self._learned_at is None or abs(now - self._learned_at) >= LEARN_EVERY

    def learn(self, now: Instant, weights: Mapping[str, float], samples: Sequence[Sample]) -> None:
        self._learned_at = now
        self._prices = prices(weights, samples)

    def price(self, tenant: Tenant) -> float:
        """What a run moves its tenant's tag on by."""
        return self._prices.known.get(tenant, 1.0 if tenant is None else self._prices.usual)

    # Tags

    @property
    def size(self) -> int:
        """How many tags are in memory."""
        return sum(len(line.tags) for line in self._lines.values())

    def tag(self, line: Line, tenant: Tenant) -> float:
        known = self._lines.get(line)
        return 0.0 if known is None else known.tags.get(tenant, 0.0)

    def move(self, line: Line, tags: Mapping[Tenant, float], heads: Heads) -> None:
        if heads.own is None:
            # Nothing waited: whoever had more than others had it from nobody.
            self._lines.pop(line, None)
        self._lines.setdefault(line, _Tags()).move(tags, heads.band * BAND)


class _Tags:
    """Those of one line. What the queue has passed is swept out when there is twice as much as after the last time, so
    that a tag costs the same however many there are."""

    __slots__ = ("_most", "tags")

    def __init__(self) -> None:
        self.tags: dict[Tenant, float] = {}
        self._most = _FEW_TAGS

    def move(self, tags: Mapping[Tenant, float], passed: float) -> None:
        self.tags.update(tags)
        if len(self.tags) > self._most:
            self.tags = {tenant: tag for tenant, tag in self.tags.items() if tag > passed}
            self._most = max(_FEW_TAGS, 2 * len(self.tags))


class Placing:
    """The ranks of one firing. The shares do not know of it before it is kept: it may come to nothing."""

    def __init__(self, shares: FairShares) -> None:
        self.shares = shares
        self._lines: dict[Line, tuple[Heads, dict[Tenant, float]]] = {}

    def begin(self) -> None:
        """Anew, because the transaction was."""
        self._lines.clear()

    def ranks(self, line: Line, heads: Heads, tenants: Iterable[Tenant]) -> list[int]:
        """One for each run, in the order in which they were due."""
        heads, moved = self._lines.setdefault(line, (heads, {}))
        band, price = heads.band, self.shares.price
        light_until = band * BAND + LIGHT
        found = []
        for tenant in tenants:  # of each run that fires: nothing is called here that need not be
            start = moved.get(tenant)
            if start is None:
                start = self._start(line, heads, tenant)
            moved[tenant] = start + price(tenant)
            found.append(2 * (int(start) // BAND) + (start >= light_until))
        return found

    def _start(self, line: Line, heads: Heads, tenant: Tenant) -> float:
        here = float(heads.band * BAND)
        return here if heads.own is None else max(here, self.shares.tag(line, tenant))

    def keep(self) -> None:
        """It happened."""
        for line, (heads, moved) in self._lines.items():
            self.shares.move(line, moved, heads)


def is_put_off(rank: int) -> bool:
    """Whether runs of this rank are those of tenants that have had their share. The dialects say the same in SQL."""
    return rank > UNRANKED and rank % 2 == 1


class Prices(NamedTuple):
    """What a run of each tenant costs."""

    known: dict[Tenant, float]
    usual: float
    """Of tenants of which nothing is known."""


def prices(weights: Mapping[str, float], samples: Sequence[Sample]) -> Prices:
    """How long a tenant's runs take beside those of all, by its weight (or by that of `EACH`).

    So a tenant whose runs take ten times as long has a tenth of the starts, and the same time of the workers.
    """
    runs, took = sum(one.runs for one in samples), sum(one.took for one in samples)
    mean = took / runs if runs else 0.0
    costs: dict[Tenant, float] = dict.fromkeys(weights, 1.0)
    if mean > 0:
        costs |= {one.tenant: _cost(one, mean) for one in samples}
    known = {tenant: cost / weight_of(tenant, weights) for tenant, cost in costs.items()}
    return Prices(known, 1 / weight_of("", weights))


def weight_of(tenant: Tenant, weights: Mapping[str, float]) -> float:
    usual = weights.get(EACH, 1.0)
    return max(1.0 if tenant is None else weights.get(tenant, usual), LEAST_WEIGHT)


def _cost(known: Sample, mean: float) -> float:
    cost = (known.took + _DOUBT * mean) / ((known.runs + _DOUBT) * mean)
    return min(max(cost, 1 / MOST_COST), MOST_COST)


class TenantView(NamedTuple):
    """How one tenant stands."""

    tenant: Tenant
    waiting: int
    """Due runs that wait for a worker."""
    running: int
    oldest: Instant | None
    """Since when the first of those that wait has been due."""
    weight: float = 1.0


def fair_slots(views: Sequence[TenantView]) -> dict[Tenant, float]:
    """How many of the attempts that run now each tenant would have, if all were shared by weight among those who want
    them; what one does not want is the others'."""
    wanting = {view.tenant: (view.waiting + view.running, max(view.weight, LEAST_WEIGHT)) for view in views}
    left, slots = float(sum(view.running for view in views)), dict.fromkeys(wanting, 0.0)
    # The one that wants least for its weight first: what it leaves is known before the next is given its part.
    by_need = sorted(wanting, key=lambda tenant: wanting[tenant][0] / wanting[tenant][1])
    weights = sum(weight for _, weight in wanting.values())
    for tenant in by_need:
        want, weight = wanting[tenant]
        slots[tenant] = min(float(want), left * weight / weights)
        left, weights = left - slots[tenant], weights - weight
    return slots


def takes_more(view: TenantView, slots: Mapping[Tenant, float], others_wait: bool) -> bool:
    """Whether a tenant has clearly more than its share of what runs, while others wait for it."""
    return others_wait and view.running > 1.25 * slots[view.tenant] + 1
