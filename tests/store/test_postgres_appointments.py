"""Calls for work that is to come: who goes, when by the server's clock, and for how long he waits there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from foliot.domain.instant import MILLISECOND, SECOND, Instant
from foliot.store.postgres.calls import COVERED_AFTER, EARLY, KNOWN_FOR, MOST_KNOWN, Calls, Message, ServerTime

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


def test_a_message_says_when_it_was_said_and_calls_each_to_a_moment() -> None:
    assert Message.read("1700 0:17 1800:18 1900:") == (1700, [(0, "17"), (1800, "18"), (1900, "")])


@pytest.mark.parametrize("text", ["", "17", "soon", "1700 now:17"])
def test_a_message_of_another_kind_is_for_anybody(text: str) -> None:
    assert Message.read(text) is None


def test_who_is_called_to_a_moment_goes_a_little_before_it_and_waits_at_the_server() -> None:
    post = Post()
    post.calls.ours(5.01)
    post.loop.go_to(5.01 - EARLY - 1e-6)
    assert post.went == []
    post.loop.go_to(5.01)
    assert post.went == [(pytest.approx(5.01 - EARLY), True)]
    post.loop.now = 5.01 - EARLY
    assert post.calls.answered() == pytest.approx(EARLY * SECOND + MILLISECOND, abs=1)


def test_who_comes_late_does_not_wait() -> None:
    post = Post()
    post.calls.ours(5.01)
    post.loop.go_to(5.02)
    assert post.calls.answered() == 0


def test_each_call_is_answered_once_however_many_there_are() -> None:
    post = Post()
    for when in (5.03, 5.01, 5.02, 5.02):
        post.calls.ours(when)
    post.loop.go_to(6.0)
    assert [round(when + EARLY, 6) for when, _ in post.went] == [5.01, 5.02, 5.03]
    assert len(post.loop.pending()) == 0


def test_a_call_for_this_moment_is_answered_at_once() -> None:
    post = Post()
    post.calls.ours(post.loop.now)
    post.calls.all(post.loop.now)
    assert post.went == [(5.0, True), (5.0, False)]


def test_going_for_another_reason_answers_what_is_called_for_in_that_moment_and_nothing_later() -> None:
    post = Post()
    post.calls.ours(5.0 + EARLY)
    post.went.clear()
    post.calls.all(5.5)
    assert post.calls.answered() > 0
    post.loop.go_to(5.4)
    assert post.went == []
    post.loop.go_to(5.5)
    assert [alone for _, alone in post.went] == [False]


def test_a_call_for_somebody_else_is_covered_a_little_later_unless_we_went_meanwhile() -> None:
    post = Post()
    post.calls.others(5.1)
    post.loop.go_to(5.1)
    assert post.went == []
    post.loop.go_to(6.0)
    assert post.went == [(pytest.approx(5.1 + COVERED_AFTER), False)]
    post.calls.others(6.1)
    post.loop.go_to(6.1)
    post.calls.answered()
    post.loop.go_to(7.0)
    assert len(post.went) == 1


def test_looking_before_its_moment_does_not_cover_a_call_for_somebody_else() -> None:
    post = Post()
    post.calls.others(5.1)
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
    post.calls.ours(5.1)
    post.calls.close()
    post.loop.go_to(6.0)
    assert post.went == []


def test_a_moment_of_the_server_is_taken_from_the_swiftest_message() -> None:
    loop = Loop()
    time = ServerTime(loop)
    for delay in (0.004, 0.0002, 0.3):
        loop.now += 1.0 + delay
        time.note(NOON + round((loop.now - delay) * SECOND))
    assert time.here(NOON + 60 * SECOND) == pytest.approx(60.0002, abs=1e-5)


def test_a_clock_that_goes_otherwise_is_believed_after_some_messages_or_some_time() -> None:
    """The server's was set back by a second: until then calls are answered too soon, and the claim says so."""
    for pause, count in ((0.0, MOST_KNOWN), (KNOWN_FOR + 1, 1)):
        loop = Loop()
        time = ServerTime(loop)
        time.note(NOON + 5 * SECOND)
        loop.now += pause
        for _ in range(count):
            time.note(NOON + round((loop.now - 1) * SECOND))
        assert time.here(NOON + 10 * SECOND) == pytest.approx(11.0, abs=1e-5)
