"""What comes between a schedule and its ticks, each acted out on a stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from foliot.domain.policy import Overlap
from foliot.errors import Conflict
from tests.policies.stage import Part, Stage


@dataclass(frozen=True)
class Event:
    """Something that happens around some of the ticks."""

    title: str
    happens: str
    """For the documentation: what happens, and when."""
    act: Callable[[Stage], None]


def _running(stage: Stage) -> None:
    stage.script["1"] = Part(takes=15)
    stage.until(35)


def _queued(stage: Stage) -> None:
    stage.script["1"] = Part(takes=35)
    stage.until(55)


def _stubborn(stage: Stage) -> None:
    stage.script["1"] = Part(takes=25, stubborn=True)
    stage.until(45)


def _retrying(stage: Stage) -> None:
    stage.script["1"] = Part(retry_after=15)
    stage.until(35)


def _dead(stage: Stage) -> None:
    stage.script["1"] = Part(fails=True)
    stage.until(35)
    stage.reconcile(1)
    stage.until(45)


def _triggered(stage: Stage) -> None:
    stage.script["1"] = Part(takes=15)
    stage.until(15)
    if stage.overlap is Overlap.SKIP:
        with pytest.raises(Conflict, match="the run would be skipped"):
            stage.trigger()
    else:
        stage.trigger()
    stage.until(35)


def _behind_one_by_hand(stage: Stage) -> None:
    stage.script["m"] = Part(takes=12)
    stage.until(15)
    stage.trigger()
    stage.until(35)


def _rerun(stage: Stage) -> None:
    stage.script["2"] = Part(takes=15)
    stage.until(25)
    stage.rerun(1)
    stage.until(45)


def _outage(end: float, until: float) -> Callable[[Stage], None]:
    def act(stage: Stage) -> None:
        stage.outage(15, end)
        stage.until(until)

    return act


def _long_outage(stage: Stage) -> None:
    stage.otherwise = Part(takes=0)
    stage.outage(15, 10_013)
    stage.until(10_025)


def _no_schedulers(stage: Stage) -> None:
    stage.without_schedulers(15, 43)
    stage.until(55)


def _no_workers(stage: Stage) -> None:
    stage.without_workers(15, 27)
    stage.until(35)


def _paused(*, catch_up: bool) -> Callable[[Stage], None]:
    def act(stage: Stage) -> None:
        stage.pause(15, 43, catch_up=catch_up)
        stage.until(55)

    return act


def _paused_in_line(stage: Stage) -> None:
    stage.script["1"] = Part(takes=15)
    stage.pause(22, 43)
    stage.until(55)


def _triggered_in_pause(stage: Stage) -> None:
    stage.pause(15, 33, trigger_at=25)
    stage.until(45)


def _busy(stage: Stage) -> None:
    stage.script["1"] = Part(takes=35)
    stage.without_schedulers(15, 36)
    stage.until(55)


RUNNING = Event("The previous run is still running", "Run 1 takes 15 s. Tick 2 falls due while it runs.", _running)
QUEUED = Event(
    "Several ticks fall due during one run", "Run 1 takes 35 s. Ticks 2, 3 and 4 fall due while it runs.", _queued
)
STUBBORN = Event(
    "The previous run ignores the request to stop",
    "Run 1 takes 25 s and ignores cancellation. Ticks 2 and 3 fall due while it runs.",
    _stubborn,
)
RETRYING = Event(
    "The previous run waits for a retry", "Run 1 fails at once. Its second attempt is due 15 s later.", _retrying
)
DEAD = Event(
    "The previous run is dead",
    "Run 1 is dead. An operator reconciles it after tick 3.",
    _dead,
)
TRIGGERED = Event(
    "An operator triggers a run while another is active",
    "Run 1 takes 15 s. An operator triggers run `m` 5 s after run 1 started. Under `skip` Foliot refuses the trigger.",
    _triggered,
)
BEHIND_ONE_BY_HAND = Event(
    "A tick falls due while a triggered run is active",
    "An operator triggers run `m` 5 s before tick 2. It takes 12 s.",
    _behind_one_by_hand,
)
RERUN = Event(
    "An operator reruns a run while another is active",
    "Run 2 takes 15 s. An operator reruns run 1 while run 2 is active, 5 s after it started.",
    _rerun,
)
OUTAGE_1 = Event(
    "Outage of all processes: one tick missed",
    "All processes are down from 15 s to 26 s, so tick 2 is missed.",
    _outage(26, 35),
)
OUTAGE_3 = Event(
    "Outage of all processes: three ticks missed", "All processes are down from 15 s to 46 s.", _outage(46, 55)
)
OUTAGE_1000 = Event(
    "Outage of all processes: a thousand ticks missed",
    "All processes are down during ticks 2 to 1001. Runs end at once.",
    _long_outage,
)
NO_SCHEDULERS = Event(
    "Outage of the schedulers: three ticks missed",
    "All schedulers are down from 15 s to 43 s. The workers are up.",
    _no_schedulers,
)
NO_WORKERS = Event(
    "Outage of the workers", "All workers are down from 15 s to 27 s. The schedulers are up.", _no_workers
)
LATE = Event(
    "A tick is late by less than `missed_after`",
    "All processes are down from 15 s to 21 s. Tick 2 is 1 s late.",
    _outage(21, 35),
)
PAUSED = Event("Pause and resume", "The schedule is paused from 15 s to 43 s.", _paused(catch_up=False))
PAUSED_CATCH_UP = Event(
    "Pause and resume with catch-up",
    "As above. The operator resumes the schedule with `--catch-up`.",
    _paused(catch_up=True),
)
PAUSED_IN_LINE = Event(
    "Pause while a tick waits", "Run 1 takes 15 s. The schedule is paused from 22 s to 43 s.", _paused_in_line
)
TRIGGERED_IN_PAUSE = Event(
    "An operator triggers a run during a pause",
    "The schedule is paused from 15 s to 33 s. An operator triggers run `m` at 25 s.",
    _triggered_in_pause,
)
BUSY = Event(
    "An outage of the schedulers ends while a run is active",
    "Run 1 takes 35 s. All schedulers are down during ticks 2 and 3. Tick 4 falls due while run 1 is active.",
    _busy,
)
