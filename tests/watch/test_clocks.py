"""A host's clock beside the store's: what is known of their distance, and when a host is no longer trusted."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.clock import DRIFT, TRUSTED, DisciplinedClock, ManualClock, offset_in_words
from foliot.domain.instant import HOUR, MILLISECOND, MINUTE, SECOND, Duration, Instant
from foliot.errors import StoreError
from foliot.watch.clocks import REPORT_EVERY, ClockWatch

NOON: Instant = 1_800_000_000 * SECOND


@dataclass
class Pair:
    """A host and a store with clocks of their own; a question takes `there` and the answer `back`."""

    ahead: Duration = 0
    """How far the store's clock is ahead of the host's at first."""
    drift: int = 0
    """How much faster it goes, in microseconds per second."""
    base: ManualClock = field(default_factory=lambda: ManualClock(NOON))

    def __post_init__(self) -> None:
        self.clock = DisciplinedClock(self.base)

    @property
    def store(self) -> Instant:
        return NOON + self.ahead + self.base.monotonic() * (SECOND + self.drift) // SECOND

    @property
    def offset(self) -> Duration:
        return self.store - self.base.now()

    def ask(self, there: Duration = 0, back: Duration = 0) -> None:
        before = self.base.now()
        self.base.advance(there)
        store = self.store
        self.base.advance(back)
        self.clock.observe(before, store, self.base.now())


# What is known


def test_before_the_first_observation_the_hosts_clock_is_all_there_is() -> None:
    pair = Pair(HOUR)
    assert (pair.clock.now(), pair.clock.offset, pair.clock.fenced) == (NOON, None, False)


def test_an_answer_tells_the_offset_up_to_how_long_it_took() -> None:
    pair = Pair(7 * SECOND)
    pair.ask(there=3 * MILLISECOND, back=5 * MILLISECOND)
    drifted = 8 * MILLISECOND * DRIFT // SECOND  # while it was asked
    assert pair.clock.offset == (7 * SECOND - 5 * MILLISECOND - drifted, 7 * SECOND + 3 * MILLISECOND + drifted)
    assert abs(pair.clock.now() - pair.store) <= 4 * MILLISECOND


def test_the_quickest_of_the_last_answers_counts_until_it_is_too_old() -> None:
    pair = Pair(SECOND)
    pair.ask(there=20, back=20)
    for _ in range(9):
        pair.base.advance(SECOND)
        pair.ask(there=40 * MILLISECOND)
        low, high = pair.clock.offset or (0, 0)
        assert high - low < 5 * MILLISECOND
    pair.base.advance(SECOND)
    pair.ask(there=40 * MILLISECOND)
    low, high = pair.clock.offset or (0, 0)
    assert high - low >= 40 * MILLISECOND


@given(
    ahead=some.integers(-HOUR, HOUR),
    drift=some.integers(-DRIFT, DRIFT),
    asked=some.lists(some.tuples(*[some.integers(0, 2 * SECOND)] * 3), min_size=1, max_size=30),
)
def test_the_offset_lies_within_what_is_known_of_it(ahead: int, drift: int, asked: list[tuple[int, int, int]]) -> None:
    pair = Pair(ahead, drift)
    for wait, there, back in asked:
        pair.base.advance(wait)
        pair.ask(there, back)
        low, high = pair.clock.offset or (0, 0)
        assert low - 1 <= pair.offset <= high + 1  # whole microseconds are rounded
        assert abs(pair.clock.now() - pair.store) <= (high - low) // 2 + 2


@pytest.mark.parametrize("length", [HOUR, 5 * SECOND, 30 * MILLISECOND, -30 * MILLISECOND, -HOUR])
def test_when_the_hosts_clock_was_set_what_was_known_is_forgotten(length: Duration) -> None:
    pair = Pair()
    pair.ask(there=20, back=20)
    pair.base.step(length)
    pair.ask(there=50 * MILLISECOND, back=50 * MILLISECOND)  # wide enough not to contradict a small step
    low, high = pair.clock.offset or (0, 0)
    assert low <= -length <= high


@pytest.mark.parametrize("length", [HOUR, -HOUR])
def test_when_the_stores_clock_was_set_what_was_known_is_forgotten(length: Duration) -> None:
    pair = Pair()
    pair.ask()
    pair.ahead = length
    pair.ask()
    assert pair.clock.offset == (length, length)
    assert pair.clock.now() == pair.store


def test_a_clock_that_is_set_back_during_the_question_says_nothing() -> None:
    pair = Pair()
    pair.ask()
    pair.clock.observe(NOON, NOON, NOON - 1)
    assert pair.clock.offset == (0, 0)


def test_waiting_and_measuring_time_is_left_to_the_hosts_clock() -> None:
    pair = Pair(HOUR)
    pair.ask()
    pair.base.advance(5)
    assert pair.clock.monotonic() == pair.base.monotonic() == 5


# Who is trusted


@pytest.mark.parametrize(
    ("ahead", "there", "back", "fenced"),
    [
        (0, 0, 0, False),
        (TRUSTED, 0, 0, False),
        (-TRUSTED, 0, 0, False),
        (TRUSTED + 1, 0, 0, True),
        (-TRUSTED - 1, 0, 0, True),
        (3 * SECOND, 0, 2 * SECOND, True),
        (3 * SECOND, 0, 3 * SECOND, False),
        (-3 * SECOND, 2 * SECOND, 0, True),
        (-3 * SECOND, 3 * SECOND, 0, False),
        (0, 10 * SECOND, 10 * SECOND, False),
    ],
)
def test_a_host_is_fenced_when_no_possible_offset_could_be_trusted(
    ahead: Duration, there: Duration, back: Duration, fenced: bool
) -> None:
    pair = Pair(ahead)
    pair.ask(there, back)
    assert pair.clock.fenced is fenced


class FakeStore:
    """Tells its clock, and remembers what it was told."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.notes: list[tuple[str, str, str]] = []
        self.reports: list[tuple[int, Duration, Duration, bool]] = []
        self.trouble: dict[str, Exception] = {}

    async def now(self) -> Instant:
        self._fail("now")
        return self.pair.store

    async def note(self, kind: str, subject: str, detail: str) -> None:
        self._fail("note")
        self.notes.append((kind, subject, detail))

    async def report_clock(self, instance: int, low: Duration, high: Duration, fenced: bool) -> None:
        self.reports.append((instance, low, high, fenced))

    def _fail(self, verb: str) -> None:
        if verb in self.trouble:
            raise self.trouble[verb]


def watch_of(pair: Pair) -> tuple[FakeStore, ClockWatch]:
    store = FakeStore(pair)
    return store, ClockWatch(store, pair.clock, "scheduler", "oslo", lambda: 7)


async def test_a_host_that_is_fenced_says_so_once_and_again_when_it_is_well(caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair()
    store, watch = watch_of(pair)
    with caplog.at_level(logging.WARNING, "foliot.watch"):
        await watch.run_once()
        assert store.notes == []
        pair.base.step(3 * SECOND)
        for _ in range(3):
            await watch.run_once()
        assert [(kind, subject) for kind, subject, _ in store.notes] == [("clock_fenced", "oslo")]
        assert "scheduler 7: the clock of this host is 3,000.0 to 3,000.0 ms ahead of the store's" in store.notes[0][2]
        assert store.reports[-1] == (7, -3 * SECOND, -3 * SECOND, True)
        pair.base.step(-3 * SECOND)
        for _ in range(3):
            await watch.run_once()
    assert [kind for kind, _, _ in store.notes] == ["clock_fenced", "clock_trusted"]
    assert store.reports[-1] == (7, 0, 0, False)
    assert len(caplog.records) == 2


async def test_what_is_measured_is_reported_now_and_then_and_at_once_for_a_new_instance() -> None:
    pair = Pair()
    store = FakeStore(pair)
    number: int | None = None
    watch = ClockWatch(store, pair.clock, "worker", "oslo", lambda: number)
    await watch.run_once()
    assert store.reports == []  # it is nobody yet
    number = 1
    for _ in range(2 * REPORT_EVERY // SECOND):
        await watch.run_once()
        pair.base.advance(SECOND)
    assert [report[0] for report in store.reports] == [1, 1]
    number = 2
    await watch.run_once()
    assert [report[0] for report in store.reports] == [1, 1, 2]


async def test_what_could_not_be_said_is_said_at_the_next_measurement() -> None:
    pair = Pair(HOUR)
    store, watch = watch_of(pair)
    store.trouble["note"] = StoreError("full")
    await watch.try_once()
    del store.trouble["note"]
    await watch.try_once()
    assert [kind for kind, _, _ in store.notes] == ["clock_fenced"]


async def test_a_store_that_cannot_be_asked_changes_no_verdict_and_is_noted_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pair = Pair(HOUR)
    store, watch = watch_of(pair)
    await watch.try_once()
    store.trouble["now"] = StoreError("gone")
    caplog.clear()
    for _ in range(5):
        pair.base.advance(MINUTE)
        await watch.try_once()
    assert pair.clock.fenced
    assert len(caplog.records) == 1


def test_an_offset_is_told_in_words() -> None:
    assert offset_in_words(100, 2_500) == "0.1 to 2.5 ms behind the store's"
    assert offset_in_words(-2_500, -100) == "0.1 to 2.5 ms ahead of the store's"
    assert offset_in_words(-200, 300) == "within 0.3 ms of the store's"
