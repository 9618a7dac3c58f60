"""What becomes of every tick, by policy and event. The tests hold both engines to it; the documentation shows it.

A cell is an event (events.py) under some settings, and the rows that are left in the end, in the words of `Stage.told`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.policies.events import (
    BEHIND_ONE_BY_HAND,
    BUSY,
    DEAD,
    LATE,
    NO_SCHEDULERS,
    NO_WORKERS,
    OUTAGE_1,
    OUTAGE_3,
    OUTAGE_1000,
    PAUSED,
    PAUSED_CATCH_UP,
    PAUSED_IN_LINE,
    QUEUED,
    RERUN,
    RETRYING,
    RUNNING,
    STUBBORN,
    TRIGGERED,
    TRIGGERED_IN_PAUSE,
    Event,
)


@dataclass(frozen=True)
class Cell:
    event: Event
    settings: dict[str, str | int]
    rows: str
    is_long: bool = False
    """A thousand runs: for the fastest engine alone."""

    @property
    def policy(self) -> str:
        """As one writes it."""
        return ", ".join(
            f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}"
            for name, value in self.settings.items()
        )


MISSED = "skipped: misfire (more than 2s late, and the catch-up policy skips missed ticks)"
TOO_LATE = "skipped: too_late (its useful time has passed)"
DEAD_1 = "1 is dead and needs attention"
IN_PAUSE = "skipped: paused (maintenance)"

CELLS = [
    # The run before is still running.
    Cell(RUNNING, {"overlap": "skip"}, "1 succeeded; 2 skipped: overlap (1 is still active); 3 succeeded"),
    Cell(RUNNING, {"overlap": "queue"}, "1 succeeded; 2 succeeded, 5 s late; 3 succeeded"),
    Cell(RUNNING, {"overlap": "coalesce"}, "1 succeeded; 2 succeeded, 5 s late; 3 succeeded"),
    Cell(RUNNING, {"overlap": "replace"}, "1 cancelled: replaced (by 2); 2 succeeded; 3 succeeded"),
    Cell(RUNNING, {"overlap": "allow"}, "1 succeeded; 2 succeeded, beside 1; 3 succeeded"),
    # Others wait already.
    Cell(
        QUEUED,
        {"overlap": "skip"},
        "1 succeeded; 2 skipped: overlap (1 is still active); 3 skipped: overlap (1 is still active); "
        "4 skipped: overlap (1 is still active); 5 succeeded",
    ),
    Cell(
        QUEUED,
        {"overlap": "queue"},
        "1 succeeded; 2 succeeded, 25 s late; 3 succeeded, 16 s late; 4 succeeded, 7 s late; 5 succeeded",
    ),
    Cell(
        QUEUED,
        {"overlap": "coalesce"},
        "1 succeeded; 2 skipped: coalesced (into 3); 3 skipped: coalesced (into 4), for 2-3; "
        "4 succeeded, 5 s late, for 2-4; 5 succeeded",
    ),
    Cell(
        QUEUED,
        {"overlap": "replace"},
        "1 cancelled: replaced (by 2); 2 succeeded; 3 succeeded; 4 succeeded; 5 succeeded",
    ),
    Cell(
        QUEUED,
        {"overlap": "allow"},
        "1 succeeded; 2 succeeded, beside 1; 3 succeeded, beside 1; 4 succeeded, beside 1; 5 succeeded",
    ),
    Cell(
        QUEUED,
        {"overlap": "queue", "queue_limit": 2},
        "1 succeeded; 2 succeeded, 25 s late; 3 succeeded, 16 s late; "
        "4 skipped: overlap (the overlap queue is full: 2 runs wait, and 1 is still active); 5 succeeded",
    ),
    Cell(
        QUEUED,
        {"overlap": "queue", "useful_until": "20s"},
        f"1 succeeded; 2 {TOO_LATE}; 3 succeeded, 15 s late; 4 succeeded, 6 s late; 5 succeeded",
    ),
    # The run before does not heed that it is to stop.
    Cell(
        STUBBORN,
        {"overlap": "replace"},
        "1 cancelled: replaced (by 3); 2 skipped: replaced (by 3); 3 succeeded, 5 s late; 4 succeeded",
    ),
    # The run before is to be retried.
    Cell(RETRYING, {"overlap": "skip"}, "1 succeeded; 2 skipped: overlap (1 is still active); 3 succeeded"),
    Cell(RETRYING, {"overlap": "queue"}, "1 succeeded; 2 succeeded, 7 s late; 3 succeeded"),
    Cell(RETRYING, {"overlap": "coalesce"}, "1 succeeded; 2 succeeded, 7 s late; 3 succeeded"),
    Cell(RETRYING, {"overlap": "replace"}, "1 cancelled: replaced (by 2); 2 succeeded; 3 succeeded"),
    Cell(RETRYING, {"overlap": "allow"}, "1 succeeded; 2 succeeded; 3 succeeded"),
    # The run before failed for good.
    Cell(DEAD, {"overlap": "skip"}, "1 reconciled; 2 succeeded; 3 succeeded; 4 succeeded"),
    Cell(DEAD, {"overlap": "queue"}, "1 reconciled; 2 succeeded; 3 succeeded; 4 succeeded"),
    Cell(DEAD, {"overlap": "coalesce"}, "1 reconciled; 2 succeeded; 3 succeeded; 4 succeeded"),
    Cell(DEAD, {"overlap": "replace"}, "1 reconciled; 2 succeeded; 3 succeeded; 4 succeeded"),
    Cell(DEAD, {"overlap": "allow"}, "1 reconciled; 2 succeeded; 3 succeeded; 4 succeeded"),
    Cell(
        DEAD,
        {"overlap": "skip", "blocks_until": "succeeded"},
        f"1 reconciled; 2 skipped: overlap ({DEAD_1}); 3 skipped: overlap ({DEAD_1}); 4 succeeded",
    ),
    Cell(
        DEAD,
        {"overlap": "queue", "blocks_until": "succeeded"},
        "1 reconciled; 2 succeeded, 15 s late; 3 succeeded, 6 s late; 4 succeeded",
    ),
    Cell(
        DEAD,
        {"overlap": "coalesce", "blocks_until": "succeeded"},
        "1 reconciled; 2 skipped: coalesced (into 3); 3 succeeded, 5 s late, for 2-3; 4 succeeded",
    ),
    Cell(
        DEAD,
        {"overlap": "replace", "blocks_until": "succeeded"},
        "1 reconciled; 2 skipped: replaced (by 3); 3 succeeded, 5 s late; 4 succeeded",
    ),
    Cell(
        DEAD, {"overlap": "allow", "blocks_until": "succeeded"}, "1 reconciled; 2 succeeded; 3 succeeded; 4 succeeded"
    ),
    # Triggered by hand while a run is active.
    Cell(
        TRIGGERED,
        {"overlap": "skip"},
        "1 succeeded; 2 skipped: overlap (1 is still active); 3 succeeded",
    ),
    Cell(TRIGGERED, {"overlap": "queue"}, "1 succeeded; m succeeded, 10 s late; 2 succeeded, 6 s late; 3 succeeded"),
    Cell(TRIGGERED, {"overlap": "coalesce"}, "1 succeeded; m succeeded, 10 s late; 2 succeeded, 6 s late; 3 succeeded"),
    Cell(
        TRIGGERED,
        {"overlap": "replace"},
        "1 cancelled: replaced (by m); m succeeded, 1 s late; 2 succeeded; 3 succeeded",
    ),
    Cell(TRIGGERED, {"overlap": "allow"}, "1 succeeded; m succeeded, beside 1; 2 succeeded, beside 1; 3 succeeded"),
    # A run that was triggered by hand is active.
    Cell(
        BEHIND_ONE_BY_HAND,
        {"overlap": "skip"},
        "1 succeeded; m succeeded; 2 skipped: overlap (m is still active); 3 succeeded",
    ),
    Cell(BEHIND_ONE_BY_HAND, {"overlap": "queue"}, "1 succeeded; m succeeded; 2 succeeded, 7 s late; 3 succeeded"),
    Cell(BEHIND_ONE_BY_HAND, {"overlap": "coalesce"}, "1 succeeded; m succeeded; 2 succeeded, 7 s late; 3 succeeded"),
    Cell(
        BEHIND_ONE_BY_HAND,
        {"overlap": "replace"},
        "1 succeeded; m cancelled: replaced (by 2); 2 succeeded; 3 succeeded",
    ),
    Cell(BEHIND_ONE_BY_HAND, {"overlap": "allow"}, "1 succeeded; m succeeded; 2 succeeded, beside m; 3 succeeded"),
    # A rerun is ordered while a run is active.
    Cell(
        RERUN,
        {"overlap": "skip"},
        "1 succeeded; 1#r1 succeeded, 25 s late; 2 succeeded; 3 skipped: overlap (2 is still active); 4 succeeded",
    ),
    Cell(
        RERUN,
        {"overlap": "queue"},
        "1 succeeded; 1#r1 succeeded, 25 s late; 2 succeeded; 3 succeeded, 6 s late; 4 succeeded",
    ),
    Cell(
        RERUN,
        {"overlap": "coalesce"},
        "1 succeeded; 1#r1 succeeded, 25 s late; 2 succeeded; 3 succeeded, 6 s late; 4 succeeded",
    ),
    Cell(
        RERUN,
        {"overlap": "replace"},
        "1 succeeded; 1#r1 succeeded, 20 s late; 2 cancelled: replaced (by 3); 3 succeeded, 1 s late; 4 succeeded",
    ),
    Cell(
        RERUN,
        {"overlap": "allow"},
        "1 succeeded; 1#r1 succeeded, 15 s late, beside 2; 2 succeeded; 3 succeeded, beside 2; 4 succeeded",
    ),
    # Nothing was there for one tick.
    Cell(OUTAGE_1, {"catch_up": "once"}, "1 succeeded; 2 succeeded, 6 s late; 3 succeeded"),
    Cell(OUTAGE_1, {"catch_up": "all"}, "1 succeeded; 2 succeeded, 6 s late; 3 succeeded"),
    Cell(OUTAGE_1, {"catch_up": "skip"}, f"1 succeeded; 2 {MISSED}; 3 succeeded"),
    # Nothing was there for three ticks.
    Cell(
        OUTAGE_3,
        {"catch_up": "once"},
        "1 succeeded; 2-3 skipped: coalesced (into 4); 4 succeeded, 6 s late, for 2-4; 5 succeeded",
    ),
    Cell(
        OUTAGE_3,
        {"catch_up": "all"},
        "1 succeeded; 2 succeeded, 26 s late; 3 succeeded, 17 s late; 4 succeeded, 8 s late; 5 succeeded",
    ),
    Cell(OUTAGE_3, {"catch_up": "skip"}, f"1 succeeded; 2-4 {MISSED}; 5 succeeded"),
    Cell(
        OUTAGE_3,
        {"catch_up": "once", "catch_up_window": "20s"},
        "1 succeeded; 2 skipped: misfire (older than the catch-up window of 20s); "
        "3 skipped: coalesced (into 4); 4 succeeded, 6 s late, for 3-4; 5 succeeded",
    ),
    Cell(
        OUTAGE_3,
        {"catch_up": "all", "catch_up_window": "20s"},
        "1 succeeded; 2 skipped: misfire (older than the catch-up window of 20s); 3 succeeded, 16 s late; "
        "4 succeeded, 7 s late; 5 succeeded",
    ),
    Cell(OUTAGE_3, {"catch_up": "skip", "catch_up_window": "20s"}, f"1 succeeded; 2-4 {MISSED}; 5 succeeded"),
    Cell(OUTAGE_3, {"catch_up": "once", "useful_until": "4s"}, f"1 succeeded; 2-4 {TOO_LATE}; 5 succeeded"),
    Cell(OUTAGE_3, {"catch_up": "all", "useful_until": "4s"}, f"1 succeeded; 2-4 {TOO_LATE}; 5 succeeded"),
    Cell(OUTAGE_3, {"catch_up": "skip", "useful_until": "4s"}, f"1 succeeded; 2-4 {MISSED}; 5 succeeded"),
    Cell(
        OUTAGE_3,
        {"catch_up": "all", "useful_until": "20s"},
        f"1 succeeded; 2 {TOO_LATE}; 3 succeeded, 16 s late; 4 succeeded, 7 s late; 5 succeeded",
    ),
    # Nothing was there for a thousand ticks.
    Cell(
        OUTAGE_1000,
        {"catch_up": "once"},
        "1 succeeded; 2-1000 skipped: coalesced (into 1001); 1001 succeeded, 3 s late, for 2-1001; 1002 succeeded",
    ),
    Cell(OUTAGE_1000, {"catch_up": "all"}, "1-1002 succeeded, one by one", is_long=True),
    Cell(OUTAGE_1000, {"catch_up": "skip"}, f"1 succeeded; 2-1001 {MISSED}; 1002 succeeded"),
    Cell(
        OUTAGE_1000,
        {"catch_up": "all", "catch_up_window": "30s"},
        "1 succeeded; 2-998 skipped: misfire (older than the catch-up window of 30s); "
        "999 succeeded, 23 s late; 1000 succeeded, 13 s late; 1001 succeeded, 3 s late; 1002 succeeded",
    ),
    # No scheduler was there for three ticks.
    Cell(
        NO_SCHEDULERS,
        {"catch_up": "once"},
        "1 succeeded; 2-3 skipped: coalesced (into 4); 4 succeeded, 3 s late, for 2-4; 5 succeeded",
    ),
    Cell(
        NO_SCHEDULERS,
        {"catch_up": "all"},
        "1 succeeded; 2 succeeded, 23 s late; 3 succeeded, 14 s late; 4 succeeded, 5 s late; 5 succeeded",
    ),
    Cell(NO_SCHEDULERS, {"catch_up": "skip"}, f"1 succeeded; 2-4 {MISSED}; 5 succeeded"),
    # No worker was there for a tick.
    Cell(NO_WORKERS, {}, "1 succeeded; 2 succeeded, 7 s late; 3 succeeded"),
    Cell(
        NO_WORKERS,
        {"useful_until": "4s"},
        "1 succeeded; 2 skipped: too_late (its useful time has passed, while it waited for a worker); 3 succeeded",
    ),
    # A tick is late by less than `missed_after`.
    Cell(LATE, {"catch_up": "once"}, "1 succeeded; 2 succeeded, 1 s late; 3 succeeded"),
    Cell(LATE, {"catch_up": "all"}, "1 succeeded; 2 succeeded, 1 s late; 3 succeeded"),
    Cell(LATE, {"catch_up": "skip"}, "1 succeeded; 2 succeeded, 1 s late; 3 succeeded"),
    Cell(LATE, {"useful_until": "500ms"}, f"1 succeeded; 2 {TOO_LATE}; 3 succeeded"),
    # Paused, and resumed.
    Cell(PAUSED, {"catch_up": "once"}, f"1 succeeded; 2-4 {IN_PAUSE}; 5 succeeded"),
    Cell(PAUSED, {"catch_up": "all"}, f"1 succeeded; 2-4 {IN_PAUSE}; 5 succeeded"),
    Cell(PAUSED, {"catch_up": "skip"}, f"1 succeeded; 2-4 {IN_PAUSE}; 5 succeeded"),
    # Paused, and resumed with catch-up.
    Cell(
        PAUSED_CATCH_UP,
        {"catch_up": "once"},
        "1 succeeded; 2-3 skipped: coalesced (into 4); 4 succeeded, 3 s late, for 2-4; 5 succeeded",
    ),
    Cell(
        PAUSED_CATCH_UP,
        {"catch_up": "all"},
        "1 succeeded; 2 succeeded, 23 s late; 3 succeeded, 14 s late; 4 succeeded, 5 s late; 5 succeeded",
    ),
    Cell(PAUSED_CATCH_UP, {"catch_up": "skip"}, f"1 succeeded; 2-4 {MISSED}; 5 succeeded"),
    # Paused while a tick waits.
    Cell(PAUSED_IN_LINE, {"overlap": "queue"}, f"1 succeeded; 2 succeeded, 23 s late; 3-4 {IN_PAUSE}; 5 succeeded"),
    Cell(PAUSED_IN_LINE, {"overlap": "coalesce"}, f"1 succeeded; 2 succeeded, 23 s late; 3-4 {IN_PAUSE}; 5 succeeded"),
    Cell(
        PAUSED_IN_LINE,
        {"overlap": "replace"},
        f"1 cancelled: replaced (by 2); 2 succeeded; 3-4 {IN_PAUSE}; 5 succeeded",
    ),
    # Triggered by hand in a pause.
    Cell(TRIGGERED_IN_PAUSE, {"overlap": "skip"}, f"1 succeeded; 2-3 {IN_PAUSE}; m succeeded; 4 succeeded"),
    Cell(TRIGGERED_IN_PAUSE, {"overlap": "queue"}, f"1 succeeded; 2-3 {IN_PAUSE}; m succeeded; 4 succeeded"),
    Cell(TRIGGERED_IN_PAUSE, {"overlap": "replace"}, f"1 succeeded; 2-3 {IN_PAUSE}; m succeeded; 4 succeeded"),
    # An outage of the schedulers ends while a run is active.
    Cell(
        BUSY,
        {"overlap": "skip", "catch_up": "once"},
        "1 succeeded; 2-3 skipped: coalesced (into 4); 4 succeeded, 5 s late, for 2-4; 5 succeeded",
    ),
    Cell(
        BUSY,
        {"overlap": "skip", "catch_up": "all"},
        "1 succeeded; 2 succeeded, 25 s late; 3 succeeded, 16 s late; 4 succeeded, 7 s late; 5 succeeded",
    ),
    Cell(
        BUSY,
        {"overlap": "skip", "catch_up": "skip"},
        f"1 succeeded; 2-3 {MISSED}; 4 skipped: overlap (1 is still active); 5 succeeded",
    ),
    Cell(
        BUSY,
        {"overlap": "queue", "catch_up": "once"},
        "1 succeeded; 2-3 skipped: coalesced (into 4); 4 succeeded, 5 s late, for 2-4; 5 succeeded",
    ),
    Cell(
        BUSY,
        {"overlap": "queue", "catch_up": "all"},
        "1 succeeded; 2 succeeded, 25 s late; 3 succeeded, 16 s late; 4 succeeded, 7 s late; 5 succeeded",
    ),
    Cell(
        BUSY, {"overlap": "queue", "catch_up": "skip"}, f"1 succeeded; 2-3 {MISSED}; 4 succeeded, 5 s late; 5 succeeded"
    ),
    Cell(
        BUSY,
        {"overlap": "coalesce", "catch_up": "once"},
        "1 succeeded; 2-3 skipped: coalesced (into 4); 4 succeeded, 5 s late, for 2-4; 5 succeeded",
    ),
    Cell(
        BUSY,
        {"overlap": "coalesce", "catch_up": "all"},
        "1 succeeded; 2 succeeded, 25 s late; 3 succeeded, 16 s late; 4 succeeded, 7 s late; 5 succeeded",
    ),
    Cell(
        BUSY,
        {"overlap": "coalesce", "catch_up": "skip"},
        f"1 succeeded; 2-3 {MISSED}; 4 succeeded, 5 s late; 5 succeeded",
    ),
    Cell(
        BUSY,
        {"overlap": "replace", "catch_up": "once"},
        "1 succeeded; 2-3 skipped: coalesced (into 4); 4 succeeded, 5 s late, for 2-4; 5 succeeded",
    ),
    Cell(
        BUSY,
        {"overlap": "replace", "catch_up": "all"},
        "1 succeeded; 2 succeeded, 25 s late; 3 succeeded, 16 s late; 4 succeeded, 7 s late; 5 succeeded",
    ),
    Cell(
        BUSY,
        {"overlap": "replace", "catch_up": "skip"},
        f"1 cancelled: replaced (by 4); 2-3 {MISSED}; 4 succeeded; 5 succeeded",
    ),
    Cell(
        BUSY,
        {"overlap": "allow", "catch_up": "once"},
        "1 succeeded; 2 skipped: coalesced (into 3); 3 succeeded, 6 s late, beside 1, for 2-3; "
        "4 succeeded, beside 1; 5 succeeded",
    ),
    Cell(
        BUSY,
        {"overlap": "allow", "catch_up": "all"},
        "1 succeeded; 2 succeeded, 25 s late; 3 succeeded, 16 s late; 4 succeeded, 7 s late; 5 succeeded",
    ),
    Cell(
        BUSY, {"overlap": "allow", "catch_up": "skip"}, f"1 succeeded; 2-3 {MISSED}; 4 succeeded, beside 1; 5 succeeded"
    ),
    Cell(
        BUSY,
        {"preset": "best_effort"},
        f"1 succeeded; 2-3 {MISSED}; 4 skipped: overlap (1 is still active); 5 succeeded",
    ),
    Cell(
        BUSY,
        {"preset": "latest_only"},
        "1 succeeded; 2-3 skipped: coalesced (into 4); 4 succeeded, 5 s late, for 2-4; 5 succeeded",
    ),
    Cell(
        BUSY,
        {"preset": "every_interval"},
        "1 succeeded; 2 succeeded, 25 s late; 3 succeeded, 16 s late; 4 succeeded, 7 s late; 5 succeeded",
    ),
    Cell(
        BUSY,
        {"preset": "exactly_one_result"},
        "1 succeeded; 2 succeeded, 25 s late; 3 succeeded, 16 s late; 4 succeeded, 7 s late; 5 succeeded",
    ),
    Cell(
        BUSY,
        {"preset": "never_retry_after_effect"},
        "1 succeeded; 2-3 skipped: coalesced (into 4); 4 succeeded, 5 s late, for 2-4; 5 succeeded",
    ),
]
