"""The whole life of a run: one table, in which nothing is out of reach and nothing ended goes on."""

from __future__ import annotations

import itertools

import pytest

from foliot.domain.state import (
    OCCUPYING,
    PARKED,
    PENDING,
    TERMINAL,
    TRANSITIONS,
    UNCHARGED,
    Event,
    Outcome,
    Reason,
    State,
    after,
    read_state,
    stored_state,
)
from foliot.errors import IllegalTransition, Refused

STATES = """scheduled held ready running retrying verifying succeeded verified unverified dead ambiguous settled
    reconciled cancelled skipped""".split()
OUTCOMES = "succeeded failed permanent timed_out stalled lost cancelled interrupted fenced".split()
REASONS = "overlap misfire too_late paused coalesced replaced operator calendar".split()


def reachable(start: State) -> set[State]:
    found, edge = {start}, {start}
    while edge:
        edge = {to for (state, _), to in TRANSITIONS.items() if state in edge} - found
        found |= edge
    return found


def test_states_outcomes_and_reasons_have_the_names_of_our_language() -> None:
    assert {str(state) for state in State} == set(STATES)
    assert {str(outcome) for outcome in Outcome} == set(OUTCOMES)
    assert {str(reason) for reason in Reason} >= set(REASONS)


def test_the_stored_numbers_never_change_their_meaning() -> None:
    assert {state.name: int(state) for state in State} == {
        "SCHEDULED": 0,
        "RETRYING": 1,
        "HELD": 2,
        "READY": 3,
        "RUNNING": 4,
        "VERIFYING": 5,
        "SUCCEEDED": 10,
        "VERIFIED": 11,
        "RECONCILED": 12,
        "CANCELLED": 13,
        "SKIPPED": 14,
        "UNVERIFIED": 20,
        "DEAD": 21,
        "AMBIGUOUS": 22,
        "SETTLED": 23,
    }


def test_every_state_can_be_reached_from_the_first() -> None:
    assert reachable(State.SCHEDULED) == set(State)


@pytest.mark.parametrize("state", sorted(TERMINAL), ids=str)
def test_no_way_leads_out_of_a_terminal_state(state: State) -> None:
    assert reachable(state) == {state}


@pytest.mark.parametrize("state", sorted(set(State) - TERMINAL), ids=str)
def test_every_other_state_can_come_to_an_end(state: State) -> None:
    assert reachable(state) & TERMINAL


def test_every_event_is_used() -> None:
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_states_are_either_on_their_way_or_parked_or_terminal() -> None:
    assert not PARKED & TERMINAL
    assert not (PENDING | OCCUPYING) & (PARKED | TERMINAL)
    assert set(State) - PARKED - TERMINAL == PENDING | OCCUPYING | {State.HELD}


def test_what_the_wheel_fires_is_exactly_what_one_index_holds() -> None:
    assert {state for state in State if state <= 1} == PENDING
    assert {state for state in State if state >= 20} == PARKED


def test_what_is_pending_or_waits_for_its_check_can_be_fired_and_nothing_else_can() -> None:
    assert {state for state, event in TRANSITIONS if event is Event.FIRED} == PENDING | {State.VERIFYING}


def test_only_what_was_handed_off_can_be_claimed() -> None:
    assert [s for s, event in TRANSITIONS if event is Event.CLAIMED] == [State.READY, State.VERIFYING]


def test_only_an_attempt_can_complete_a_run() -> None:
    endings = {Event.COMPLETED, Event.EXHAUSTED, Event.GAVE_UP, Event.CHECK_DUE, Event.DOUBTED}
    assert {state for state, event in TRANSITIONS if event in endings} == {State.RUNNING}


def test_a_check_that_broke_leads_to_the_check_and_never_back_to_the_handler() -> None:
    assert after(State.VERIFYING, Event.RETRY_GRANTED) is after(State.VERIFYING, Event.GIVEN_BACK) is State.VERIFYING
    assert State.RUNNING not in {TRANSITIONS[s, e] for s, e in TRANSITIONS if s is State.VERIFYING}


def test_no_way_leads_from_doubt_to_another_try_but_through_a_person() -> None:
    ways = {event for state, event in TRANSITIONS if state is State.AMBIGUOUS}
    assert ways == {Event.RETRY_ORDERED, Event.RECHECK_ORDERED, Event.SETTLED, Event.RECONCILED}


def test_a_person_can_act_on_whatever_waits_for_one() -> None:
    for state in PARKED:
        assert after(state, Event.RETRY_ORDERED) in PENDING
        assert after(state, Event.RECONCILED) is State.RECONCILED


def test_settled_work_is_resumed_or_closed_and_nothing_else() -> None:
    ways = {event: to for (state, event), to in TRANSITIONS.items() if state is State.SETTLED}
    assert ways == {Event.RETRY_ORDERED: State.RETRYING, Event.RECONCILED: State.RECONCILED}
    assert {state for (state, event) in TRANSITIONS if event is Event.SETTLED} == PARKED - {State.SETTLED} | {
        State.VERIFYING
    }


def test_a_settled_run_is_stored_as_one_that_older_releases_can_read() -> None:
    known_before = set(State) - {State.SETTLED}
    for state in State:
        stored = stored_state(state)
        assert stored in known_before
        assert read_state(stored, Reason.SETTLED if state is State.SETTLED else None) is state
    assert read_state(23, None) is State.SETTLED, "a later release may store the number"


def test_whatever_waits_without_an_attempt_can_be_cancelled() -> None:
    for state in (State.SCHEDULED, State.HELD, State.READY, State.RETRYING):
        assert after(state, Event.CANCEL) is State.CANCELLED
        assert after(state, Event.SKIP) is State.SKIPPED


def test_the_table_is_all_there_is() -> None:
    for state, event in itertools.product(State, Event):
        if (state, event) in TRANSITIONS:
            assert after(state, event) is TRANSITIONS[state, event]
        else:
            with pytest.raises(IllegalTransition):
                after(state, event)


def test_an_impossible_step_is_refused_in_words() -> None:
    with pytest.raises(IllegalTransition, match="a run that is succeeded cannot be retry granted") as refusal:
        after(State.SUCCEEDED, Event.RETRY_GRANTED)
    assert isinstance(refusal.value, Refused)
    assert refusal.value.__cause__ is None


def test_a_deploy_and_a_refused_write_cost_a_run_nothing() -> None:
    assert {Outcome.INTERRUPTED, Outcome.FENCED} == UNCHARGED
