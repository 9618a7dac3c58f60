"""How runs are executed that were lost with their workers again and again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.state import Outcome
from foliot.domain.suspicion import APART_FROM, is_tried_apart, losses_in, may_begin, most_together

slots_of_a_worker = some.integers(1, 10_000)


def test_each_loss_halves_how_many_suspected_runs_a_worker_executes_together() -> None:
    assert [most_together(100, losses) for losses in range(1, 9)] == [100, 50, 25, 12, 6, 3, 1, 1]
    assert [most_together(1, losses) for losses in range(1, 4)] == [1, 1, 1]


def test_a_run_gets_a_process_of_its_own_when_it_would_be_the_only_suspected_one() -> None:
    def first(slots: int) -> int:
        return next(losses for losses in range(100) if is_tried_apart(slots, losses))

    assert {slots: first(slots) for slots in (1, 2, 3, 4, 8, 20, 100, 1_000)} == {
        1: 3,
        2: 3,
        3: 3,
        4: 3,
        8: 4,
        20: 5,
        100: 7,
        1_000: 10,
    }


@given(slots_of_a_worker)
def test_a_run_that_kills_its_workers_kills_at_most_as_many_as_the_docs_say(slots: int) -> None:
    """That is also how often it makes an innocent run begin again that is always beside it."""
    killed = next(losses for losses in range(100) if is_tried_apart(slots, losses))
    assert killed == max(APART_FROM, slots.bit_length())


@given(slots_of_a_worker, some.lists(some.integers(2, 20), max_size=300))
def test_no_worker_executes_more_suspected_runs_together_than_it_may(slots: int, wanted: list[int]) -> None:
    executing: list[int] = []
    for losses in wanted:
        if may_begin(slots, executing, losses):
            executing.append(losses)
    assert bool(executing) == bool(wanted), "one may always be executed"
    for losses in set(executing):
        assert sum(other >= losses for other in executing) <= most_together(slots, losses)


def test_runs_of_few_losses_do_not_wait_for_one_of_many() -> None:
    assert may_begin(100, [6, 6, 6], 2)
    assert not may_begin(100, [6, 6, 6], 6)
    assert not may_begin(100, [2] * 50, 6), "it counts among those of fewer losses, too"


def test_losses_are_counted_since_an_attempt_ended_in_another_way() -> None:
    lost, failed = Outcome.LOST, Outcome.FAILED
    assert losses_in([]) == 0
    assert losses_in([lost, lost]) == 2
    assert losses_in([lost, failed, lost]) == 1
    assert losses_in([lost, Outcome.INTERRUPTED, lost, Outcome.FENCED, None]) == 2
    assert losses_in([lost, Outcome.TIMED_OUT]) == 0
