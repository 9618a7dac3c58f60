"""When work for a destination is held, and when it is tried again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.breaker import CLOSED, Breaker, Contact, after_contact
from foliot.domain.instant import MINUTE, SECOND

FAILED = Contact("bank", False, 3, 30 * SECOND, 10 * MINUTE)
ANSWERED = FAILED._replace(answered=True)


def after(*contacts: Contact, breaker: Breaker = CLOSED, at: int = 0) -> Breaker:
    for contact in contacts:
        breaker = after_contact(breaker, contact, at)
    return breaker


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    assert not after(FAILED, FAILED).is_open
    opened = after(FAILED, FAILED, FAILED, at=7)
    assert (opened.opened_at, opened.every) == (7, 30 * SECOND)


def test_one_answer_in_between_begins_the_count_anew() -> None:
    assert not after(FAILED, FAILED, ANSWERED, FAILED, FAILED).is_open


def test_one_answer_closes_it() -> None:
    assert after(FAILED, FAILED, FAILED, ANSWERED) == CLOSED


def test_attempts_that_were_under_way_when_it_opened_change_nothing_but_the_count() -> None:
    opened = after(FAILED, FAILED, FAILED)
    later = after(FAILED, FAILED, breaker=opened, at=29 * SECOND)
    assert (later.every, later.opened_at, later.failures) == (opened.every, opened.opened_at, 5)


def test_each_probe_that_fails_makes_probes_rarer_up_to_the_cap() -> None:
    breaker, now, waits = after(FAILED, FAILED, FAILED), 0, []
    for _ in range(7):
        assert breaker.every is not None
        waits.append(breaker.every // SECOND)
        now += breaker.every
        breaker = after(FAILED, breaker=breaker, at=now)
    assert waits == [30, 60, 120, 240, 480, 600, 600]


@given(some.lists(some.tuples(some.booleans(), some.integers(0, MINUTE)), max_size=50))
def test_it_is_open_exactly_when_the_last_three_or_more_failed(told: list[tuple[bool, int]]) -> None:
    breaker, now, in_a_row = CLOSED, 0, 0
    for answered, later in told:
        now += later
        breaker = after_contact(breaker, FAILED._replace(answered=answered), now)
        in_a_row = 0 if answered else in_a_row + 1
        assert breaker.is_open == (in_a_row >= 3)
        assert (breaker.every is not None) == breaker.is_open
        assert breaker.failures == in_a_row
