"""A run that a person settled: an alert of its own, and no further failure of its schedule."""

from __future__ import annotations

from foliot.domain.alerts import Kind
from foliot.domain.state import Reason, State
from foliot.watch.runs import failing, parked
from tests.operate.values import view


def test_a_settled_run_has_an_alert_and_does_not_count_as_another_failure() -> None:
    failures: dict[str, tuple[int, int]] = {}
    broken = view(State.AMBIGUOUS, reason=Reason.EFFECT, spent=2)
    seen, new = parked([broken], [], [], {})
    assert [finding.kind for finding in seen.findings] == [Kind.AMBIGUOUS]
    failing(failures, [], new, [], {})
    assert failures == {"schedule:settlement": (2, broken.number)}
    answered = view(State.SETTLED, number=broken.number + 1, reason=Reason.SETTLED, detail="statement 17", spent=2)
    seen, new = parked([answered], [], [], {})
    [finding] = seen.findings
    assert (finding.kind, finding.run) == (Kind.SETTLED, answered.id)
    assert failing(failures, [], new, [], {}).findings == []
    assert failures == {"schedule:settlement": (2, broken.number)}
