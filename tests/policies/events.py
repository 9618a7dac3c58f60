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


RUNNING = Event("The run before is still running", "Run 1 takes 15 s: tick 2 comes while it runs.", _running)
QUEUED = Event("Others wait already", "Run 1 takes 35 s: ticks 2, 3 and 4 come while it runs.", _queued)
STUBBORN = Event(
    "The run before does not heed that it is to stop",
    "Run 1 takes 25 s, whatever it is told: ticks 2 and 3 come while it runs.",
    _stubborn,
)
RETRYING = Event(
    "The run before is to be tried again", "Run 1 fails at once; its second attempt is due 15 s later.", _retrying
)
DEAD = Event(
    "The run before failed for good",
    "Run 1 is dead, and a person reconciles it after tick 3.",
    _dead,
)
TRIGGERED = Event(
    "Triggered by hand while a run is active",
    "Run 1 takes 15 s. Run `m` is triggered after 5 s of it. With `skip` the trigger is refused, and makes no run.",
    _triggered,
)
BEHIND_ONE_BY_HAND = Event(
    "A run that was triggered by hand is active",
    "Run `m` is triggered 5 s before tick 2, and takes 12 s.",
    _behind_one_by_hand,
)
RERUN = Event("A rerun is ordered while a run is active", "Run 2 takes 15 s. After 5 s of it, run 1 is rerun.", _rerun)
OUTAGE_1 = Event(
    "Nothing was there for one tick", "Every process is dead from 15 s to 26 s: over tick 2.", _outage(26, 35)
)
OUTAGE_3 = Event("Nothing was there for three ticks", "Every process is dead from 15 s to 46 s.", _outage(46, 55))
OUTAGE_1000 = Event(
    "Nothing was there for a thousand ticks",
    "Every process is dead over ticks 2 to 1001. Runs end at once.",
    _long_outage,
)
NO_SCHEDULERS = Event(
    "No scheduler was there for three ticks",
    "The schedulers are dead from 15 s to 43 s; workers are there.",
    _no_schedulers,
)
NO_WORKERS = Event(
    "No worker was there for a tick", "The workers are dead from 15 s to 27 s; schedulers are there.", _no_workers
)
LATE = Event(
    "A tick is late by less than `missed_after`",
    "Every process is dead from 15 s to 21 s: tick 2 is 1 s late.",
    _outage(21, 35),
)
PAUSED = Event("Paused, and resumed", "The schedule is paused from 15 s to 43 s.", _paused(catch_up=False))
PAUSED_CATCH_UP = Event(
    "Paused, and resumed with catch-up", "The same; whoever resumes it asks for the old ticks.", _paused(catch_up=True)
)
PAUSED_IN_LINE = Event(
    "Paused while a tick waits", "Run 1 takes 15 s; the schedule is paused from 22 s to 43 s.", _paused_in_line
)
TRIGGERED_IN_PAUSE = Event(
    "Triggered by hand in a pause",
    "The schedule is paused from 15 s to 33 s; run `m` is triggered at 25 s.",
    _triggered_in_pause,
)
BUSY = Event(
    "An outage of the schedulers ends while a run is active",
    "Run 1 takes 35 s. The schedulers are dead over ticks 2 and 3; tick 4 comes while run 1 is active.",
    _busy,
)
