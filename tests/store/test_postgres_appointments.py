"""Calls for work that is there or to come: who goes, when by the server's clock, and for which chunks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from foliot.domain.instant import MILLISECOND, SECOND, Instant
from foliot.store.postgres.calls import COVERED_AFTER, DRIFT, KNOWN_FOR, MOST_KNOWN, Calls, Message, ServerTime

NOON: Instant = 1_800_000_000 * SECOND


class Timer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self._when = when
        self.callback = callback
        self.is_cancelled = False

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """An event loop whose clock is moved by hand."""

    def __init__(self) -> None:
        self.now = 5.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(when, callback))
        return self.timers[-1]

    def pending(self) -> list[Timer]:
        return [timer for timer in self.timers if not timer.is_cancelled]

    def go_to(self, moment: float) -> None:
        while due := [timer for timer in self.pending() if timer.when() <= moment]:
            first = min(due, key=Timer.when)
            self.timers.remove(first)
            self.now = max(self.now, first.when())
            first.callback()
        self.now = moment


class Post:
    def __init__(self) -> None:
        self.loop = Loop()
        self.went: list[tuple[float, bool]] = []
        """When somebody here went, and whether nobody else was called."""
        self.calls = Calls(self.loop, lambda alone: self.went.append((self.loop.now, alone)))


def test_a_message_says_when_it_was_said_and_calls_each_to_a_chunk_or_to_whatever_is_there() -> None:
    calls = [(0, "17", 0), (1800, "18", 55), (1900, "", 0)]
    assert Message.read("1700 0:17 1800:18:55 1900:") == (1700, 0, 0, calls)
    assert Message.read("1700/1690/40 0:17 1800:18:55 1900:") == (1700, 1690, 40, calls)


@pytest.mark.parametrize("text", ["", "17", "soon", "1700/then 0:17", "1700 now:17", "1700 1800:17:first"])
def test_a_message_of_another_kind_is_for_anybody(text: str) -> None:
    assert Message.read(text) is None


def test_who_is_called_for_chunks_that_are_to_come_goes_at_once_and_names_them() -> None:
    post = Post()
    post.calls.chunk(55, 5.03)
    post.calls.chunk(56, 5.03)
    assert post.went == [(5.0, False), (5.0, False)]
    assert post.calls.answered() == ({55: 5.03, 56: 5.03}, False)
    assert post.calls.answered() == ({}, True), "who goes uncalled looks for anything"
    post.loop.go_to(6.0)
    assert len(post.went) == 2


def test_a_chunk_that_nobody_went_for_before_its_time_is_anybody_s_at_it() -> None:
    """Because there was no room: should there still be none, others are called."""
    post = Post()
    post.calls.chunk(55, 5.03)
    post.went.clear()
    post.loop.go_to(6.0)
    assert post.went == [(5.03, True)]
    assert post.calls.answered() == ({}, True)


def test_a_call_for_all_at_the_same_moment_is_still_to_be_answered() -> None:
    """There were more chunks than one message could name."""
    post = Post()
    post.calls.chunk(55, 5.03)
    post.calls.at(5.03)
    post.calls.answered()
    post.went.clear()
    post.loop.go_to(6.0)
    assert post.went == [(5.03, False)]


def test_who_is_called_for_a_chunk_and_for_whatever_is_there_does_both() -> None:
    post = Post()
    post.calls.chunk(55, 5.03)
    post.calls.now(alone=True)
    assert post.went == [(5.0, False), (5.0, True)]
    assert post.calls.answered() == ({55: 5.03}, True)


def test_who_goes_for_another_reason_too_looks_for_anything() -> None:
    post = Post()
    post.calls.chunk(55, 5.03)
    post.calls.mark()
    assert post.calls.answered() == ({55: 5.03}, True)
    assert post.went == [(5.0, False)]


def test_each_moment_is_gone_to_once_however_many_calls_there_are() -> None:
    post = Post()
    for when in (5.03, 5.01, 5.02, 5.02):
        post.calls.at(when)
    post.loop.go_to(6.0)
    assert [when for when, _ in post.went] == [5.01, 5.02, 5.03]
    assert len(post.loop.pending()) == 0


def test_going_for_another_reason_leaves_later_moments_as_they_are() -> None:
    post = Post()
    post.calls.at(5.1)
    post.calls.at(5.5)
    post.loop.now = 5.2
    post.calls.answered()
    post.loop.go_to(6.0)
    assert post.went == [(5.5, False)]


def test_a_call_for_somebody_else_is_covered_a_little_later_unless_we_went_meanwhile() -> None:
    post = Post()
    post.calls.others(5.1, NOON, 1)
    post.loop.go_to(5.1)
    assert post.went == []
    post.loop.go_to(6.0)
    assert post.went == [(pytest.approx(5.1 + COVERED_AFTER), False)]
    post.calls.others(6.1, NOON, 1)
    post.loop.now = 6.1 + COVERED_AFTER
    post.calls.answered()
    post.loop.go_to(7.0)
    assert len(post.went) == 1


def test_a_call_for_somebody_else_who_came_is_not_covered() -> None:
    post = Post()
    for when in (5.1, 5.11, 5.12):
        post.calls.others(when, NOON + round(when * SECOND), 1)
    post.calls.expect(5.105)
    post.calls.at(5.1)
    post.loop.go_to(5.13)
    assert post.went == [(5.1, False)], "this one is ours too"
    post.calls.taken(NOON + round(5.11 * SECOND), 5.11, 0)
    post.loop.go_to(6.0)
    assert post.went[1:] == [(pytest.approx(5.12 + COVERED_AFTER), False)]


@pytest.mark.parametrize("why", ["by the server's clock it was not ready", "it is too old to be looked at", "unseen"])
def test_a_call_for_somebody_else_who_may_not_have_come_is_covered(why: str) -> None:
    """However the two clocks are compared; and whoever said that all was taken may have looked before it was there."""
    post = Post()
    post.loop.now = 5.2 if why == "unseen" else 5.0
    post.calls.others(5.1, NOON, 55)
    until = NOON - 1 if why == "by the server's clock it was not ready" else NOON
    post.calls.taken(until, 5.15, 55 if why == "it is too old to be looked at" else 54)
    post.loop.go_to(6.0)
    assert post.went == [(pytest.approx((5.2 if why == "unseen" else 5.1) + COVERED_AFTER), False)]


def test_looking_before_its_moment_does_not_cover_a_call_for_somebody_else() -> None:
    post = Post()
    post.calls.others(5.1, NOON, 1)
    post.loop.go_to(5.05)
    post.calls.answered()
    post.loop.go_to(6.0)
    assert len(post.went) == 1


def test_of_what_is_expected_the_last_word_counts() -> None:
    post = Post()
    for when in (5.3, 5.2, 5.4):
        post.calls.expect(when)
    post.loop.go_to(6.0)
    assert post.went == [(pytest.approx(5.4 + COVERED_AFTER), False)]


def test_nobody_goes_once_the_bell_is_closed() -> None:
    post = Post()
    post.calls.chunk(55, 5.1)
    post.went.clear()
    post.calls.close()
    post.loop.go_to(6.0)
    assert post.went == []


def test_a_moment_of_the_server_is_taken_from_the_swiftest_message() -> None:
    loop = Loop()
    time = ServerTime(loop)
    for delay in (0.004, 0.0002, 0.3):
        loop.now += KNOWN_FOR / 10 + delay
        time.note(NOON + round((loop.now - delay) * SECOND))
    assert time.here(NOON + 60 * SECOND) == pytest.approx(60.0002, abs=2 * DRIFT)


def test_a_moment_is_never_taken_for_earlier_than_it_is_though_clocks_drift() -> None:
    loop = Loop()
    time = ServerTime(loop)
    time.note(NOON + round(loop.now * SECOND))
    loop.now += KNOWN_FOR / 2
    assert time.here(NOON + 60 * SECOND) == pytest.approx(60 + KNOWN_FOR / 2 * DRIFT, abs=1e-6)


def test_how_long_ago_a_statement_looked_at_the_clock_is_known_from_messages() -> None:
    loop = Loop()
    time = ServerTime(loop)
    assert time.ago(NOON, asked=loop.now) == 0, "nothing is known: it may have been just now"
    time.note(NOON + round((loop.now - 0.0003) * SECOND))
    asked, looked = loop.now, NOON + round((loop.now + 0.002) * SECOND)
    loop.now += 0.012
    assert time.ago(looked, asked) == pytest.approx(10 * MILLISECOND - 300, abs=10)


def test_a_clock_that_was_set_back_does_not_make_a_moment_seem_past() -> None:
    loop = Loop()
    time = ServerTime(loop)
    time.note(NOON + round(loop.now * SECOND))
    asked, looked = loop.now, NOON + round((loop.now - 1) * SECOND)
    loop.now += 0.012
    assert time.ago(looked, asked) == 0
    assert time.here(NOON) == float("inf"), "what was known is forgotten"


def test_a_clock_that_was_set_forward_is_believed_at_once() -> None:
    loop = Loop()
    time = ServerTime(loop)
    time.note(NOON + round(loop.now * SECOND))
    time.note(NOON + round((loop.now + 60) * SECOND))
    assert time.here(NOON + 70 * SECOND) == pytest.approx(10, abs=1e-5)


def test_a_clock_that_was_set_back_is_believed_after_some_messages_or_some_time() -> None:
    for pause, count in ((0.0, MOST_KNOWN), (KNOWN_FOR + 1, 1)):
        loop = Loop()
        time = ServerTime(loop)
        time.note(NOON + 5 * SECOND)
        loop.now += pause
        for _ in range(count):
            time.note(NOON + round((loop.now - 1) * SECOND))
        assert time.here(NOON + 10 * SECOND) == pytest.approx(11.0, abs=1e-5)
