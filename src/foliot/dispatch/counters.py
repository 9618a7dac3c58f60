"""What a dispatcher counts, for metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from foliot.dispatch.wheel import Entry
from foliot.domain.instant import Duration
from foliot.domain.metrics import BATCH, LATENESS, Histogram
from foliot.domain.store import Fired


@dataclass(slots=True)
class DispatchCounters:
    """What happened since the start of this process, for metrics."""

    fired: int = 0
    early_refused: int = 0
    stale: int = 0
    skipped: int = 0
    skipped_for: Counter[str] = field(default_factory=Counter)
    """By reason."""
    held: int = 0
    held_for: Counter[str] = field(default_factory=Counter)
    created: int = 0
    faults: int = 0
    arrivals: int = 0
    takeovers: int = 0
    lost: int = 0
    failures: int = 0
    """Times the store could not do what was asked."""
    lateness: Histogram = field(default_factory=lambda: Histogram(LATENESS))
    """From due to fired, of everything that the store had reached by then, also what turned out to be stale."""
    batches: Histogram = field(default_factory=lambda: Histogram(BATCH))
    """How long each of them took."""

    def add(self, due: list[Entry], fired: Fired, took: Duration) -> None:
        """A batch at a time: nothing here is done for each run."""
        self.batches.add(took)
        is_all_reached = not due or due[-1][0] <= fired.at
        self.lateness.add_due(due if is_all_reached else [one for one in due if one[0] <= fired.at], fired.at)
        self.lateness.counts[0] += fired.ahead
        self.fired += fired.handed_off
        self.early_refused += fired.early
        self.stale += fired.stale
        if fired.skipped:
            self.skipped += fired.skipped
            self.skipped_for.update(fired.skipped_for)
        if fired.held:
            self.held += fired.held
            self.held_for.update(fired.held_for)
        self.created += fired.created
        self.faults += len(fired.faults)
