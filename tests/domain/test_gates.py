"""Limits, as pure decisions: who may go, who waits, and until when; the store is a board in a test's memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.gates import (
    GO,
    GRAIN,
    Gate,
    Need,
    Rate,
    Taken,
    Verdict,
    admit,
    admit_all,
    gate_names,
    held_until_its_end,
    kept,
    needs,
    rate_need,
    times_of,
)
from foliot.domain.instant import MILLISECOND, SECOND, Duration, Instant

NOTHING: frozenset[str] = frozenset()
NAME = "job:pay"

arrivals = some.lists(some.integers(0, 20 * SECOND), min_size=1, max_size=60).map(sorted)
spacings = some.one_of(some.integers(1, 3 * SECOND), some.integers(1, GRAIN))
bursts = some.integers(1, 8)


def at_once(every: Duration, burst: int) -> int:
    """A rate finer than the grain is kept on average over that."""
    return max(burst, GRAIN // every)


class Clockwork:
    """One rate, as the store keeps it: whoever has its time goes then, and sets the next one a time."""

    def __init__(self, every: Duration, burst: int, tat: Instant = 0) -> None:
        self.need = rate_need(NAME, every, burst)
        self.board = {self.need.name: Taken(tat=tat)}
        self.starts: list[Instant] = []

    def play(self, times: Sequence[Instant]) -> list[Instant]:
        """When each of those starts that come at these times, in their order."""
        timed: list[Instant] = []
        waiting = 0
        for now in times:
            waiting = self._until(now, timed, waiting)
            verdict = admit([self.need], NOTHING, self.board, now)
            if verdict.goes:
                self.starts.append(now)
            elif verdict.at is None:
                waiting += 1
            else:
                timed.append(verdict.at)
        assert self._until(max(times) + 2 * len(times) * (self.need.every or 0), timed, waiting) == 0
        return self.starts

    def _until(self, now: Instant, timed: list[Instant], waiting: int) -> int:
        """All that have their times up to now go; the slot that each of them sets free is another's."""
        while timed and timed[0] <= now:
            at = timed.pop(0)
            assert admit([self.need], frozenset({self.need.name}), self.board, at) == GO
            self.starts.append(at)
            taken = self.board[self.need.name]
            taken.used -= 1
            if waiting:
                waiting -= 1
                verdict = admit([self.need], NOTHING, self.board, at)
                timed.append(at if verdict.at is None else verdict.at)
        return waiting


@given(arrivals, spacings, bursts)
def test_no_window_of_any_length_has_more_starts_than_burst_and_rate_allow(
    times: list[Instant], every: Duration, burst: int
) -> None:
    clockwork = Clockwork(every, burst)
    starts = sorted(clockwork.play(times))
    for first, last in combinations(range(len(starts)), 2):
        assert (last - first) * every - clockwork.need.slack <= starts[last] - starts[first]


@given(arrivals, spacings, bursts)
def test_everybody_starts_and_nobody_later_than_the_rate_makes_him(
    times: list[Instant], every: Duration, burst: int
) -> None:
    starts = sorted(Clockwork(every, burst).play(times))
    assert len(starts) == len(times)
    # The n-th start is no later than it would be in one line, one in `every`, each after its arrival.
    free = 0
    for came, began in zip(times, starts, strict=True):
        free = max(free, came)
        assert came <= began <= free
        free += every


@given(arrivals, spacings, bursts, some.integers(0, 100 * SECOND))
def test_a_rate_that_was_not_used_allows_no_more_at_once_than_its_burst(
    times: list[Instant], every: Duration, burst: int, quiet: Duration
) -> None:
    clockwork = Clockwork(every, burst)
    clockwork.play(times)
    moment = max(clockwork.starts) + quiet + len(times) * every
    most = at_once(every, burst)
    started = sum(admit([clockwork.need], NOTHING, clockwork.board, moment).goes for _ in range(most + 5))
    assert started <= most


def test_a_full_burst_goes_at_once_and_the_rest_evenly() -> None:
    starts = Clockwork(SECOND, 3).play([0] * 6)
    assert starts == [0, 0, 0, SECOND, 2 * SECOND, 3 * SECOND]


@pytest.mark.parametrize(("every", "reserved"), [(SECOND, 1), (50 * MILLISECOND, 10), (MILLISECOND, 500)])
def test_no_more_have_a_time_of_their_own_than_start_within_half_a_second(every: Duration, reserved: int) -> None:
    need = rate_need(NAME, every)
    board = {need.name: Taken()}
    verdicts = [admit([need], NOTHING, board, 0) for _ in range(reserved + 10)]
    assert sum(verdict.at is not None for verdict in verdicts) == reserved
    assert verdicts[-1] == Verdict(need.name)


@given(spacings, bursts, some.integers(0, SECOND), some.integers(1, 300))
def test_times_that_a_batch_gets_together_are_those_that_its_runs_would_get_one_by_one(
    every: Duration, burst: int, tat: Instant, count: int
) -> None:
    need, together, alone, now = rate_need(NAME, every, burst), Taken(tat=tat), Taken(tat=tat), SECOND // 2
    assert times_of(need, together, count, now) == [times_of(need, alone, 1, now)[0] for _ in range(count)]
    assert together == alone


def test_starts_by_a_fine_rate_come_in_batches_of_a_few_milliseconds() -> None:
    times = times_of(rate_need(NAME, MILLISECOND), Taken(tat=SECOND), 40, SECOND)
    assert len(set(times[5:])) <= 10
    assert all(0 <= SECOND + place * MILLISECOND - at < GRAIN for place, at in enumerate(times))


def test_starts_by_a_slow_rate_are_exact() -> None:
    times = times_of(rate_need(NAME, SECOND // 3), Taken(tat=7), 3, 0)
    assert times == [7, 7 + SECOND // 3, 7 + 2 * (SECOND // 3)]


# ------------------------------------------------------------------------------------------------------- all or nothing


@given(some.integers(0, 12), some.integers(1, 20), spacings, bursts, some.integers(0, 20))
def test_a_batch_goes_as_one_if_and_only_if_each_of_its_runs_would_go(
    most: int, count: int, every: Duration, burst: int, used: int
) -> None:
    slot, rate = Need(NAME, most), rate_need(NAME, every, burst)
    boards = [{slot.name: Taken(used), rate.name: Taken(tat=used * every)} for _ in range(2)]
    each = [admit([slot, rate], NOTHING, boards[0], 5 * every).goes for _ in range(count)]
    before = {name: (taken.used, taken.tat) for name, taken in boards[1].items()}
    assert admit_all([(slot, count), (rate, count)], boards[1], 5 * every) == all(each)
    if all(each):
        assert boards[0] == boards[1]
    else:
        assert {name: (taken.used, taken.tat) for name, taken in boards[1].items()} == before


def test_two_limits_of_one_key_are_for_the_decision_about_each_run() -> None:
    board = {"key:a": Taken()}
    assert not admit_all([(Need("key:a", 1), 1), (Need("key:a", 2), 1)], board, 0)
    assert board["key:a"].used == 0


limits = some.lists(
    some.tuples(some.integers(0, 4), some.none() | spacings, some.integers(0, 5)), min_size=1, max_size=4
)


@given(limits, some.integers(0, 10 * SECOND))
def test_who_waits_for_one_slot_takes_nothing_of_another(
    given_limits: list[tuple[int, Duration | None, int]], now: Instant
) -> None:
    wanted: list[Need] = []
    board: dict[str, Taken] = {}
    for place, (most, every, used) in enumerate(given_limits):
        name = f"queue:{place}"
        need = Need(name, most) if every is None else rate_need(name, every)
        wanted.append(need)
        board[need.name] = Taken(used, now + used)
    before = {name: (taken.used, taken.tat) for name, taken in board.items()}
    verdict = admit(sorted(wanted), NOTHING, board, now)
    changed = {name for name, taken in board.items() if (taken.used, taken.tat) != before[name]}
    if verdict.goes:
        assert changed == set(board)
        assert all(board[need.name].used <= need.most for need in wanted if need.every is None)
    else:
        assert changed == ({verdict.waits_for} if verdict.at is not None else set())


@given(some.integers(1, 5), some.lists(some.booleans(), max_size=40))
def test_no_more_are_in_at_a_time_than_the_limit_says(most: int, comings_and_goings: list[bool]) -> None:
    board = {NAME: Taken()}
    inside = 0
    for comes in comings_and_goings:
        if comes:
            inside += admit([Need(NAME, most)], NOTHING, board, 0).goes
        elif inside:
            inside -= 1
            board[NAME].used -= 1
        assert inside == board[NAME].used <= most


def test_a_slot_that_a_run_has_already_is_not_asked_for_again() -> None:
    board = {NAME: Taken(used=1)}
    assert admit([Need(NAME, 1)], frozenset({NAME}), board, 0) == GO
    assert board[NAME].used == 1


# ------------------------------------------------------------------------------------------------------ who needs what


def test_a_run_needs_a_slot_of_all_that_it_is_about() -> None:
    gates = {name: Gate(name, most=1) for name in ("job:pay", "queue:default", "tenant:*", "job:other")}
    names = gate_names(job="pay", tenant="acme", queue="default", schedule=None, destination=None, lane="live")
    assert [need.name for need in needs(gates, names)] == ["job:pay", "queue:default", "tenant:acme"]


def test_a_limit_of_each_tenant_in_a_lane_is_for_those_without_one_of_their_own() -> None:
    gates = {name: Gate(name, most=1) for name in ("lane:backfill/tenant:*", "lane:backfill/tenant:acme", "tenant:*")}
    for tenant, lane, expected in (
        ("bolt", "backfill", ["lane:backfill/tenant:bolt", "tenant:bolt"]),
        ("bolt", "catch-up", ["tenant:bolt"]),
        ("lane:backfill/tenant:x", "live", ["tenant:lane:backfill/tenant:x"]),
    ):
        names = gate_names(job="pay", tenant=tenant, queue="q", schedule=None, destination=None, lane=lane)
        assert [need.name for need in needs(gates, names)] == expected


def test_between_two_attempts_a_run_keeps_its_key_alone() -> None:
    assert kept(["job:pay", "key:books", "lane:backfill"]) == ["key:books"]


def test_a_rate_is_used_up_with_the_start() -> None:
    assert held_until_its_end([Need("job:pay", 1), rate_need("job:pay", SECOND)]) == ["job:pay"]


@pytest.mark.parametrize(
    ("text", "every"), [("10/s", SECOND // 10), ("1/10s", 10 * SECOND), ("500/h", 7_200_000), ("2 / m", 30 * SECOND)]
)
def test_a_rate_is_a_count_and_a_time(text: str, every: Duration) -> None:
    assert Rate.parse(text).every == every
    assert Rate.parse(str(Rate.parse(text))) == Rate.parse(text)
