"""Labels of jobs, schedules and promises, in virtual time."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from foliot import Foliot, every
from foliot.domain.run import Kept
from foliot.domain.state import State
from foliot.errors import InvalidInput
from foliot.testing import World, virtual_time


class Models:
    """An app whose job needs a label."""

    def __init__(self) -> None:
        self.app = Foliot()

        @self.app.job(labels={"gpu"})
        async def train() -> None: ...

        @self.app.job
        async def tidy() -> None: ...

        self.train, self.tidy = train, tidy


def states(world: World, kept: Iterable[Kept]) -> list[State]:
    return [world.run(one.id).state for one in kept]


def test_a_job_says_what_its_runs_need_and_a_promise_may_say_otherwise() -> None:
    models = Models()
    with virtual_time(models.app, labels=["gpu"]) as world:
        made = [
            models.train.now(),
            models.train.using(labels={"gpu", "region=eu"}).now(),
            models.train.using(labels=()).now(),
            models.tidy.using(labels={"cold"}).now(),
            models.tidy.now(),
        ]
        world.run_for("1s")
        assert states(world, made) == [
            State.SUCCEEDED,
            State.READY,
            State.SUCCEEDED,
            State.READY,
            State.SUCCEEDED,
        ]


def test_a_schedule_may_say_otherwise_too() -> None:
    models = Models()
    models.app.schedule("usual", models.train, every("1h"))
    models.app.schedule("small", models.train, every("1h"), labels=())
    models.app.schedule("far", models.tidy, every("1h"), labels={"region=eu"})
    with virtual_time(models.app, labels=()) as world:
        world.run_for("65m")
        ended = {run.schedule for run in world.runs() if run.state is State.SUCCEEDED}
        waiting = {run.schedule for run in world.runs() if run.state is State.READY}
        assert (ended, waiting) == ({"small"}, {"usual", "far"})


def test_in_virtual_time_a_worker_has_all_labels_that_jobs_and_schedules_name() -> None:
    models = Models()
    models.app.schedule("far", models.tidy, every("1h"), labels={"region=eu"})
    with virtual_time(models.app) as world:
        kept = models.train.now()
        world.run_for("65m")
        assert world.run(kept.id).state is State.SUCCEEDED
        assert "far" in {run.schedule for run in world.runs() if run.state is State.SUCCEEDED}


def test_a_run_that_nobody_can_take_says_what_it_waits_for() -> None:
    models = Models()
    with virtual_time(models.app, labels=["cpu"]) as world:
        kept = models.train.now()
        world.run_for("1s")
        told = [line.text for line in models.app.operate.story(kept.id)]
        assert told[-1].endswith("; it needs a worker with the labels gpu")
        world.run_for("2m")
        world.call(world.store.tidy())
        told = [line.text for line in models.app.operate.story(kept.id)]
        assert any(text.startswith("missing labels: no live worker of job 'train' has the labels gpu") for text in told)
        [event] = world.call(models.app.operate.untaken_async())
        assert (event.kind, event.subject) == ("missing_labels", "train")


@pytest.mark.parametrize("given", ["gpu", {"g p u"}, 7])
def test_what_is_no_label_is_refused_where_it_is_written(given: object) -> None:
    models = Models()
    with pytest.raises(InvalidInput, match="label"):
        models.app.job(name="other", labels=given)(lambda: None)
    with pytest.raises(InvalidInput, match="label"):
        models.train.using(labels=given)
    with pytest.raises(InvalidInput, match="label"):
        models.app.schedule("wrong", models.train, every("1h"), labels=given)
