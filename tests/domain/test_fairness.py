"""Fair shares, as pure decisions: a line of runs that workers take by rank, in a test's memory."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foliot.domain.fairness import (
    BAND,
    EACH,
    FIRST_BAND,
    IN_USE_FOR,
    LEARN_EVERY,
    LIGHT,
    MOST_COST,
    UNRANKED,
    FairShares,
    Heads,
    Placing,
    Sample,
    Tenant,
    TenantView,
    fair_slots,
    is_put_off,
    prices,
    takes_more,
)
from foliot.domain.instant import SECOND

LINE = ("default", 0, 0)
NOBODY = Heads(None, None)


class Queue:
    """A line as workers see it."""

    def __init__(self, weights: dict[str, float] | None = None, samples: Sequence[Sample] = ()) -> None:
        self.shares = FairShares()
        self.shares.learn(0, weights or {}, samples)
        self._waiting: list[tuple[int, int, Tenant]] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def heads(self) -> Heads:
        head = self._waiting[0][0] if self._waiting else None
        return Heads(head, head)

    def fire(self, *tenants: Tenant) -> list[int]:
        placing = Placing(self.shares)
        ranks = placing.ranks(LINE, self.heads, tenants)
        placing.keep()
        for rank, tenant in zip(ranks, tenants, strict=True):
            heapq.heappush(self._waiting, (rank, self._added, tenant))
            self._added += 1
        return ranks

    def flood(self, tenant: Tenant, runs: int, batch: int = 500) -> None:
        for start in range(0, runs, batch):
            self.fire(*[tenant] * min(batch, runs - start))

    def take(self, runs: int) -> Counter[Tenant]:
        return Counter(heapq.heappop(self._waiting)[2] for _ in range(min(runs, len(self))))


def test_who_trickles_goes_before_a_backlog_however_long_it_is() -> None:
    queue = Queue()
    queue.flood("flood", 10_000)
    queue.take(5_000)
    queue.fire("trickle")
    assert queue.take(1) == {"trickle": 1}


def test_a_tenant_that_has_had_its_band_waits_for_the_others() -> None:
    queue = Queue()
    queue.flood("first", 1_000)
    queue.flood("second", 1_000)
    assert queue.take(2 * BAND) == {"first": BAND, "second": BAND}


def test_nobody_saves_up_what_he_did_not_use() -> None:
    queue = Queue()
    queue.flood("busy", 10_000)
    queue.take(9_000)
    queue.flood("late", 1_000)
    taken = queue.take(1_000)
    assert abs(taken["busy"] - taken["late"]) <= 2 * BAND


def test_a_batch_of_many_light_tenants_has_one_rank() -> None:
    queue = Queue()
    queue.flood("flood", 10_000)
    queue.take(1_000)
    assert len(set(queue.fire(*(f"tenant {n}" for n in range(500))))) == 1


def test_a_flood_has_one_rank_for_each_band_and_one_for_what_goes_first() -> None:
    ranks = Queue().fire(*["flood"] * 500)
    assert len(set(ranks)) == 1 + -(-500 // BAND)
    assert ranks == sorted(ranks)


def test_a_tenant_is_put_off_once_it_has_had_what_goes_first() -> None:
    ranks = Queue().fire(*["flood"] * 500, "trickle", *["burst"] * (LIGHT + 1))
    assert [is_put_off(rank) for rank in ranks[:500]] == [False] * LIGHT + [True] * (500 - LIGHT)
    assert [is_put_off(rank) for rank in ranks[500:]] == [False] * (1 + LIGHT) + [True]


def test_what_a_tenant_may_begin_first_goes_by_weight() -> None:
    ranks = Queue({"large": 2.0}).fire(*["large"] * 100)
    assert [is_put_off(rank) for rank in ranks].count(False) == 2 * LIGHT


def test_who_was_put_off_is_light_again_when_the_queue_has_passed_its_tag() -> None:
    queue = Queue()
    queue.flood("flood", 1_000)
    queue.flood("burst", BAND)
    queue.take(3 * BAND)
    [rank] = queue.fire("burst")
    assert not is_put_off(rank)
    [rank] = queue.fire("flood")
    assert is_put_off(rank)


def test_runs_of_a_store_without_tenants_are_not_put_off() -> None:
    assert not is_put_off(UNRANKED)
    assert not any(is_put_off(rank) for rank in Placing(FairShares()).ranks(LINE, Heads(UNRANKED, UNRANKED), ["acme"]))


def test_when_nothing_waits_all_begin_anew() -> None:
    queue = Queue()
    queue.flood("flood", 1_000)
    queue.take(1_000)
    assert queue.fire("flood") == [2 * FIRST_BAND]
    assert queue.shares.size == 1


def test_an_empty_line_begins_beside_the_others() -> None:
    placing = Placing(FairShares())
    assert placing.ranks(LINE, Heads(None, 2_001), ["acme"]) == [2_000]
    assert placing.ranks(("mail", 0, 0), NOBODY, ["acme"]) == [2 * FIRST_BAND]


def test_a_firing_that_came_to_nothing_is_not_remembered() -> None:
    shares = FairShares()
    for _ in range(2):
        assert max(Placing(shares).ranks(LINE, Heads(0, 0), ["acme"] * LIGHT)) == 0
    placing = Placing(shares)
    placing.ranks(LINE, Heads(0, 0), ["acme"] * BAND)
    placing.begin()
    placing.ranks(LINE, Heads(0, 0), ["acme"] * BAND)
    placing.keep()
    assert shares.tag(LINE, "acme") == BAND


def test_what_is_placed_in_parts_counts_as_one_firing() -> None:
    shares = FairShares()
    whole, parts = Placing(shares), Placing(shares)
    tenants = ["acme"] * 2 * BAND
    assert whole.ranks(LINE, NOBODY, tenants) == [
        rank for tenant in tenants for rank in parts.ranks(LINE, NOBODY, [tenant])
    ]


def test_tags_that_the_queue_has_passed_are_forgotten() -> None:
    queue = Queue()
    queue.flood("flood", 200 * BAND)
    for n in range(100):
        queue.fire(*(f"tenant {n} {m}" for m in range(100)))
        queue.take(100 + BAND)
    assert queue.shares.size < 5_000


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=200), st.integers(0, 200)), max_size=30
    )
)
def test_whoever_waits_is_never_behind_by_more_than_a_band_or_two(steps: list[tuple[list[Tenant], int]]) -> None:
    """While two tenants both have something waiting, they have had the same, but for a band each."""
    queue, since = Queue(), Counter[Tenant]()
    waiting = Counter[Tenant]()
    both_since: dict[tuple[Tenant, Tenant], Counter[Tenant]] = {}
    for tenants, takes in steps:
        queue.fire(*tenants)
        waiting.update(tenants)
        for _ in range(min(takes, len(queue))):
            [taken] = queue.take(1)
            since[taken] += 1
            waiting[taken] -= 1
            busy = {tenant for tenant, count in waiting.items() if count}
            pairs = {(a, b) for a in busy for b in busy if str(a) < str(b)}
            both_since = {pair: both_since.get(pair, since.copy()) for pair in pairs}
            for (a, b), start in both_since.items():
                assert abs((since[a] - start[a]) - (since[b] - start[b])) <= 2 * BAND


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 1_000))
def test_backlogs_share_by_weight(first: int, second: int, order: int) -> None:
    queue = Queue({"first": first, "second": second})
    for tenant in ("first", "second") if order % 2 else ("second", "first"):
        queue.flood(tenant, 6_000)
    taken = queue.take(4_000)
    expected = 4_000 * first / (first + second)
    assert abs(taken["first"] - expected) <= BAND * (first + second)


@given(st.lists(st.lists(st.integers(0, 4), max_size=100), min_size=10, max_size=40))
def test_nobody_starves(batches: list[list[int]]) -> None:
    """However the others come, a run that waits is taken after no more than a band of each, and what was there."""
    queue = Queue()
    queue.fire(*["slow"] * BAND * 2)
    left, others = BAND * 2, Counter[Tenant]()
    for batch in batches:
        queue.fire(*(f"tenant {n}" for n in batch), "tenant 5")
        taken = queue.take(len(batch) + 1)
        left -= taken.pop("slow", 0)
        others += taken
    # Each of the six others has had no more than `slow`, but for the bands in which they began.
    if left:
        assert max(others.values(), default=0) <= 2 * BAND - left + 2 * BAND


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1, 500), st.integers(0, 10**9)), max_size=3),
    st.dictionaries(st.sampled_from(["a", "b", EACH]), st.floats(0, 100)),
)
def test_prices_are_bounded(found: list[tuple[str, int, int]], weights: dict[str, float]) -> None:
    known, usual = prices(weights, [Sample(*one) for one in found])
    for price in (*known.values(), usual):
        assert 1 / MOST_COST / 100 <= price <= MOST_COST * 1_000


def test_long_runs_cost_more() -> None:
    known, _ = prices({}, [Sample("long", 500, 5_000 * SECOND), Sample("short", 500, 500 * SECOND)])
    assert known["long"] / known["short"] == pytest.approx(10, rel=0.1)


def test_one_odd_run_says_little() -> None:
    known, _ = prices({}, [Sample("odd", 1, 10 * SECOND), Sample("short", 999, 999 * SECOND)])
    assert known["odd"] < 3
    assert prices({}, [Sample("quick", 9, 0)]).known == {}


def test_the_weight_of_each_is_that_of_those_who_have_none() -> None:
    shares = FairShares()
    shares.learn(0, {EACH: 4.0, "large": 8.0}, [])
    assert [shares.price(tenant) for tenant in ("small", "large", None)] == [0.25, 0.125, 1.0]


def test_a_store_without_tenants_is_known_by_having_had_none_for_a_while() -> None:
    shares = FairShares()
    assert not shares.is_used(0, [None, None])
    assert shares.is_used(SECOND, [None, "acme"])
    assert shares.is_used(SECOND + IN_USE_FOR - 1)
    assert not shares.is_used(SECOND + IN_USE_FOR)


def test_weights_are_read_anew_once_in_a_second_also_when_the_clock_went_back() -> None:
    shares = FairShares()
    assert shares.is_to_learn(0)
    shares.learn(LEARN_EVERY, {}, [])
    assert [shares.is_to_learn(now) for now in (LEARN_EVERY, 2 * LEARN_EVERY - 1, 2 * LEARN_EVERY, 0)] == [
        False,
        False,
        True,
        True,
    ]


def view(tenant: Tenant, waiting: int, running: int, weight: float = 1.0) -> TenantView:
    return TenantView(tenant, waiting, running, None, weight)


def test_slots_are_shared_by_weight_and_what_one_does_not_want_is_the_others() -> None:
    views = [view("flood", 1_000, 90), view("small", 0, 2), view("other", 50, 8, weight=2.0)]
    assert fair_slots(views) == pytest.approx({"small": 2.0, "flood": 40.0, "other": 58.0}, abs=1e-9)


def test_who_has_more_than_its_share_is_told_while_others_wait() -> None:
    views = [view("flood", 1_000, 90), view("other", 50, 10)]
    slots = fair_slots(views)
    assert takes_more(views[0], slots, others_wait=True)
    assert not takes_more(views[0], slots, others_wait=False)
    assert not takes_more(views[1], slots, others_wait=True)
