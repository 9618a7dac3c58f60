"""Whether the cancellation of a run can be forced: one rule, for the store that decides and for the preview."""

from __future__ import annotations

from foliot.domain.state import State
from foliot.errors import Conflict


def check_can_be_forced(run: str, state: State, worker: int | None, *, recycles: bool | None) -> None:
    """Raises Conflict where force is no answer. `recycles`: whether the worker ends its process when an operator forces
    a cancellation; None when the worker has ended already: then nothing is left to end, and the watch ends the run."""
    if state is not State.RUNNING:
        raise Conflict(f"{run} is {state}: force applies only to a run that a worker executes; cancel it without force")
    if recycles is False:
        raise Conflict(
            f"{run}: its worker {worker} does not end its process for a forced cancellation (it works over HTTP, is of "
            f"an earlier release, or part of another program); cancel the run without force, and end that process "
            f"yourself: foliot workers list names its host"
        )
