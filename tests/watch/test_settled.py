"""Runs that wait for a person, as the watch meets them: which count as new failures."""

from __future__ import annotations

from foliot.domain.alerts import Kind
from foliot.domain.state import Reason, State
from foliot.domain.survey import ParkedSubject
from foliot.watch.runs import MOST_MET, failing, newly_parked, parked
from tests.operate.values import view


def test_a_settled_run_has_an_alert_and_does_not_count_as_another_failure() -> None:
    failures: dict[str, tuple[int, int]] = {}
    known: dict[str, list[int]] = {}
    broken = view(State.AMBIGUOUS, reason=Reason.EFFECT, spent=2)
    failing(failures, [], newly_parked([broken], known, [], {}, is_all=True), [], {}, ())
    assert failures == {"schedule:settlement": (2, broken.number)}
    answered = view(State.SETTLED, number=broken.number + 1, reason=Reason.SETTLED, detail="statement 17", spent=2)
    new = newly_parked([answered], known, [], {}, is_all=True)
    [finding] = parked([ParkedSubject(State.SETTLED, "settlement", None, None, 1, 0, answered)], {}).findings
    assert (finding.kind, finding.run) == (Kind.SETTLED, answered.id)
    assert failing(failures, [], new, [], {}, ()).findings == []
    assert failures == {"schedule:settlement": (2, broken.number)}


def test_each_parked_run_is_new_once_and_again_when_it_was_tried_and_is_parked_again() -> None:
    known: dict[str, list[int]] = {}
    runs = [view(State.DEAD, number=number, name=f"feed#{number}") for number in range(1, MOST_MET + 3)]

    def new(*views: int, is_all: bool = True) -> list[int]:
        met = [runs[number - 1] for number in views]
        return [one.number for one in newly_parked(met, known, [], {}, is_all=is_all)]

    assert new(2) == [2]
    assert new(1, 2) == [1], "an older run may be parked later"
    assert new(2) == []
    assert new(1, 2) == [1], "it was tried in between"
    every = range(1, MOST_MET + 3)
    assert new(*every) == [*every][2:]
    assert new(*every) == [], "of more than are remembered, the oldest count as met"
    assert len(known["schedule:settlement"]) == MOST_MET
    assert new(3, is_all=False) == []
    assert new(*every) == []
