"""Backfills from the operator's word to their rows, in virtual time."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from foliot import Context, Foliot, after, cron, every
from foliot.domain.backfill import Backfill, BackfillState
from foliot.domain.instant import MINUTE, SECOND, instant, parse_rfc3339, rfc3339
from foliot.domain.run import Lane, Origin, RunView
from foliot.domain.state import Reason, State
from foliot.errors import Conflict, InvalidInput, UnknownName
from foliot.testing import World, virtual_time
from foliot.watch.backfilling import Backfiller

START = datetime(2026, 4, 10, 0, 30, tzinfo=UTC)
BY: dict[str, Any] = {"reason": "the disk was full", "actor": "ada"}
FIRST, LAST = date(2026, 4, 1), date(2026, 4, 9)
"""Eight nights."""


class Bakery:
    """An app whose one job takes a few seconds, or fails on the nights that are named."""

    def __init__(self, rule: Any = None, seconds: int = 6, **settings: Any) -> None:
        self.app = Foliot("sqlite:///:memory:")
        self.seen: list[tuple[datetime, Any, Any]] = []
        self.stale: set[int] = set()
        self.active = self.most = 0
        self.world: World

        @self.app.job(attempts=1, timeout="5m")
        async def bake(ctx: Context, day: str, oven: int = 1) -> None:
            self.active += 1
            self.most = max(self.most, self.active)
            try:
                self.seen.append((ctx.nominal, ctx.interval, (day, oven)))
                await self.world.clock.sleep(seconds * SECOND)
                if ctx.nominal.day in self.stale:
                    raise ValueError("stale")
            finally:
                self.active -= 1

        self.app.schedule(
            "bake", bake, rule or cron("0 2 * * *"), args={"oven": 7}, bind={"day": "tick.date"}, **settings
        )

    def start(self, begin: date | datetime = FIRST, end: date | datetime = LAST, **more: Any) -> Backfill:
        return self.app.operate.backfill("bake", begin, end, **BY, **more)

    def now(self, backfill: Backfill) -> Backfill:
        return self.app.operate.backfill_progress(backfill.number).backfill

    def runs(self) -> list[RunView]:
        return [run for run in self.world.runs(schedule="bake") if run.origin is Origin.BACKFILL]

    def nights(self) -> list[int]:
        return [nominal.day for nominal, _, _ in self.seen]


def _seconds_after_start(run: RunView) -> float:
    assert run.started_at is not None
    return (run.started_at - instant(START)) / SECOND


# ------------------------------------------------------------------------------------------------------ what is made


def test_every_tick_becomes_a_run_oldest_first_one_at_a_time() -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world:
        backfill = bakery.start()
        bakery.world.run_for("1h")
        assert bakery.nights() == list(range(1, 9))
        assert bakery.most == 1
        runs = bakery.runs()
        assert [run.id for run in runs] == [f"bake@2026-04-0{day}T02:00:00Z" for day in range(1, 9)]
        assert {run.lane for run in runs} == {Lane.BACKFILL}
        assert bakery.now(backfill).state is BackfillState.DONE
        assert bakery.world.schedule("bake").next_id == "bake@2026-04-10T02:00:00Z"


def test_a_run_has_its_ticks_interval_arguments_and_bound_day() -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world:
        bakery.start()
        bakery.world.run_for("1h")
    first = datetime(2026, 4, 1, 2, tzinfo=UTC)
    assert bakery.seen[0] == (first, (first - timedelta(days=1), first), ("2026-04-01", 7))


def test_newest_first_is_made_the_other_way_round() -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world:
        backfill = bakery.start(newest_first=True)
        bakery.world.run_for("1h")
        assert bakery.nights() == list(range(8, 0, -1))
        assert bakery.seen[0][1] == (datetime(2026, 4, 7, 2, tzinfo=UTC), datetime(2026, 4, 8, 2, tzinfo=UTC))
        assert bakery.now(backfill).state is BackfillState.DONE


def test_a_tick_that_exists_is_passed_over_and_shown_with_its_state() -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=datetime(2026, 4, 3, tzinfo=UTC)) as bakery.world:
        bakery.world.run_for("2d")  # the 3rd and the 4th ran by themselves
        bakery.stale = {2}
        bakery.start(FIRST, date(2026, 4, 3))
        bakery.world.run_for("1h")
        seen = bakery.app.operate.preview_backfill("bake", FIRST, date(2026, 4, 5))
        assert [(one.nominal, str(one.state)) for one in seen.taken] == [
            (parse_rfc3339(f"2026-04-0{day}T02:00:00Z"), state)
            for day, state in ((1, "succeeded"), (2, "dead"), (3, "succeeded"), (4, "succeeded"))
        ]
        assert (seen.total, seen.new) == (4, 0)
        backfill = bakery.start(FIRST, date(2026, 4, 5))
        bakery.world.run_for("1h")
        done = bakery.now(backfill)
        assert (done.state, done.made, done.existed) == (BackfillState.DONE, 0, 4)
        assert [run.nominal for run in bakery.runs()] == [parse_rfc3339(f"2026-04-0{day}T02:00:00Z") for day in (1, 2)]


def test_hundreds_of_ticks_that_exist_do_not_hold_up_the_few_that_do_not() -> None:
    bakery = Bakery(every("1m"), seconds=0, overlap="allow")
    with virtual_time(bakery.app, start=START) as bakery.world:
        bakery.world.run_for("3h")
        begin = START - timedelta(minutes=3)
        backfill = bakery.start(begin, START + timedelta(hours=3))
        bakery.world.run_for("1s")
        done = bakery.now(backfill)
        assert (done.state, done.made, done.existed) == (BackfillState.DONE, 4, 179)


def test_what_an_outage_merged_into_one_run_is_not_made_again() -> None:
    bakery = Bakery(every("1h"), catch_up="once")
    with virtual_time(bakery.app, start=START) as bakery.world:
        bakery.world.run_for("1h")
        bakery.world.outage("5h")
        bakery.world.run_for("1h")
        seen = bakery.app.operate.preview_backfill("bake", START, bakery.world.now)
        assert (seen.total, seen.new) == (7, 0)
        assert [str(one.state) for one in seen.taken] == ["succeeded"] + ["skipped"] * 4 + ["succeeded"] * 2


# ------------------------------------------------------------------------------------------------------------- the pace


def test_a_rate_is_kept_to_the_second() -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world:
        bakery.start(rate="10/h", at_once=5)
        bakery.world.run_for("1h")
        assert [_seconds_after_start(run) for run in bakery.runs()] == [360 * night for night in range(8)]


def test_so_many_at_once_and_no_more_where_runs_may_overlap() -> None:
    bakery = Bakery(overlap="allow")
    with virtual_time(bakery.app, start=START) as bakery.world:
        bakery.start(at_once=3)
        bakery.world.run_for("15s")
        assert bakery.most == 3
        assert [_seconds_after_start(run) for run in bakery.runs()] == [0, 0, 0, 6, 6, 6, 12, 12]


def test_where_runs_may_not_overlap_they_are_held_and_never_skipped() -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world:
        backfill = bakery.start(at_once=4)
        bakery.world.run_for("1s")
        assert sorted(str(run.state) for run in bakery.runs()) == ["held"] * 3 + ["running"]
        bakery.world.run_for("1m")
        assert bakery.most == 1
        assert {run.state for run in bakery.runs()} == {State.SUCCEEDED}
        assert bakery.nights() == list(range(1, 9))
        assert bakery.now(backfill).state is BackfillState.DONE


def test_outside_of_its_window_it_rests() -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world:
        backfill = bakery.start(window="22:00-06:00", tz="Asia/Tokyo")  # 13:00 to 21:00 UTC
        bakery.world.run_until(datetime(2026, 4, 10, 12, 59, tzinfo=UTC))
        assert bakery.runs() == []
        bakery.world.run_for("2m")
        first, second = (rfc3339(run.started_at or 0) for run in bakery.runs()[:2])
        assert (first, second) == ("2026-04-10T13:00:00Z", "2026-04-10T13:00:06Z")
        assert bakery.now(backfill).state is BackfillState.DONE


def test_a_window_that_closes_stops_what_is_not_made_yet() -> None:
    bakery = Bakery(seconds=25)
    with virtual_time(bakery.app, start=START) as bakery.world:
        backfill = bakery.start(window="00:00-00:31", tz="UTC")
        bakery.world.run_for("12h")
        assert bakery.now(backfill).made == 3
        bakery.world.run_for("1d")
        assert bakery.now(backfill).state is BackfillState.DONE
        assert [night for night in bakery.nights() if night < 10] == list(range(1, 9))


def test_another_rate_holds_from_now_on() -> None:
    bakery = Bakery(seconds=0)
    with virtual_time(bakery.app, start=START) as bakery.world:
        backfill = bakery.start(rate="1/h", at_once=5)
        bakery.world.run_for("10m")
        bakery.app.operate.pace_backfill(backfill.number, rate="1/m", **BY)
        bakery.world.run_for("20m")
        assert [_seconds_after_start(run) for run in bakery.runs()] == [0, *(60 * m for m in range(11, 18))]


# ------------------------------------------------------------------------------------------------------ what people do


def test_a_paused_one_makes_nothing_and_goes_on_where_it_stopped() -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world:
        backfill = bakery.start()
        bakery.world.run_for("15s")
        bakery.app.operate.pause_backfill(backfill.number, **BY)
        bakery.world.run_for("1h")
        assert bakery.nights() == [1, 2, 3]
        bakery.app.operate.resume_backfill(backfill.number, **BY)
        bakery.world.run_for("1h")
        assert [night for night in bakery.nights() if night != 10] == list(range(1, 9))
        assert bakery.now(backfill).state is BackfillState.DONE


def test_a_cancelled_one_ends_what_was_not_begun() -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world:
        backfill = bakery.start(at_once=4)
        bakery.world.run_for("3s")
        ended = bakery.app.operate.cancel_backfill(backfill.number, **BY)
        bakery.world.run_for("1h")
        states = [(run.state, run.reason) for run in bakery.runs()]
        assert states == [(State.SUCCEEDED, None), *[(State.CANCELLED, Reason.OPERATOR)] * 3]
        assert (ended.state, ended.left) == (BackfillState.CANCELLED, 4)
        with pytest.raises(Conflict, match="is cancelled"):
            bakery.app.operate.resume_backfill(backfill.number, **BY)


def test_an_action_needs_a_reason() -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world, pytest.raises(InvalidInput, match="reason is missing"):
        bakery.app.operate.backfill("bake", FIRST, LAST, reason=" ", actor="ada")


# ------------------------------------------------------------------------------------------------------ what goes wrong


def test_an_outage_in_the_middle_loses_nothing_and_repeats_nothing() -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world:
        backfill = bakery.start()
        bakery.world.run_for("15s")
        bakery.world.outage("10m")
        bakery.world.run_for("5m")
        assert bakery.now(backfill).state is BackfillState.DONE
        assert [run.nominal for run in bakery.runs()] == sorted({run.nominal for run in bakery.runs()})
        assert [run.state for run in bakery.runs()].count(State.SUCCEEDED) == 8, "also the one that was lost once"


def test_two_makers_that_race_make_each_tick_once() -> None:
    """As after a lease that was lost without anybody's noticing."""
    bakery = Bakery(overlap="allow")
    with virtual_time(bakery.app, start=START) as bakery.world:
        bakery.start(at_once=3)
        store, clock = bakery.world.store, bakery.world.clock
        stale, fresh = Backfiller(_Remembering(store), clock), Backfiller(store, clock)
        for _ in range(3):
            bakery.world.call(stale.run_once())
            bakery.world.call(fresh.run_once())
        assert len(bakery.runs()) == 3
        bakery.world.run_for("1h")
        assert sorted(bakery.nights()) == list(range(1, 9))


class _Remembering:
    """A store for somebody who looked once, and believes that nothing has changed since."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._seen: Any = None

    async def backfills_under_way(self) -> Any:
        self._seen = self._seen or await self._store.backfills_under_way()
        return self._seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_failures_in_a_row_pause_it_and_a_person_has_it_go_on() -> None:
    bakery = Bakery()
    bakery.stale = {2, 3, 4, 6, 7}
    with virtual_time(bakery.app, start=START) as bakery.world:
        backfill = bakery.start(stop_after=3)
        bakery.world.run_for("1h")
        paused = bakery.now(backfill)
        assert (paused.state, paused.made) == (BackfillState.PAUSED, 4)
        assert "3 runs in a row" in (paused.reason or "")
        assert [event.kind for event in bakery.world.events()] == ["backfill_paused"]
        bakery.app.operate.resume_backfill(backfill.number, **BY)
        bakery.world.run_for("1h")
        assert bakery.now(backfill).state is BackfillState.DONE
        assert [run.state for run in bakery.runs()].count(State.DEAD) == 5


def test_a_rule_that_has_no_answer_pauses_its_backfill_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world:
        broken = bakery.start(FIRST, date(2026, 4, 3))
        works = bakery.start(date(2026, 4, 3), LAST)
        rules: list[str] = []

        def reads_once(text: str) -> Any:
            from foliot.timing import decode

            rules.append(text)
            if len(rules) == 1:
                raise InvalidInput("no such zone")
            return decode(text)

        monkeypatch.setattr("foliot.watch.backfilling._rule", reads_once)
        bakery.world.run_for("1h")
        assert (bakery.now(broken).state, bakery.now(broken).reason) == (
            BackfillState.PAUSED,
            "evaluating the rule failed: InvalidInput: no such zone",
        )
        assert bakery.now(works).state is BackfillState.DONE


def test_it_goes_on_when_its_schedule_is_gone() -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world:
        backfill = bakery.start()
        bakery.world.run_for("3s")
        bakery.app.operate.delete("bake", **BY)
        bakery.world.run_for("1h")
        assert bakery.nights() == list(range(1, 9))
        assert {run.lane for run in bakery.runs()} == {Lane.BACKFILL}
        assert bakery.now(backfill).state is BackfillState.DONE


# ---------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("begin", "end", "told"),
    [
        (LAST, FIRST, "is empty"),
        (FIRST, FIRST, "is empty"),
        (datetime(2026, 4, 1, 3, tzinfo=UTC), datetime(2026, 4, 1, 4, tzinfo=UTC), "no tick from"),
        (FIRST, date(2026, 4, 11), "which is in the future: now is"),
        ("2026-04-01", LAST, "give an aware datetime, or a date"),
        (datetime(2026, 4, 1), LAST, "time zone"),
    ],
)
def test_an_interval_without_past_ticks_is_refused(begin: Any, end: Any, told: str) -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world, pytest.raises(InvalidInput, match=told):
        bakery.start(begin, end)


def test_a_tick_that_the_schedule_has_not_decided_upon_is_its_own() -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world:
        bakery.world.kill_scheduler()
        bakery.world.run_for("2h")  # 02:00 has come, and nobody fired it
        with pytest.raises(InvalidInput, match="2026-04-10T02:00:00Z, a tick that 'bake' has not fired yet"):
            bakery.start(FIRST, bakery.world.now)
        assert bakery.start(FIRST, datetime(2026, 4, 10, 2, tzinfo=UTC)).total == 9


def test_more_ticks_than_anybody_meant_are_refused() -> None:
    bakery = Bakery(every("1s"))
    with virtual_time(bakery.app, start=START) as bakery.world:
        with pytest.raises(InvalidInput, match="more than 100,000 ticks"):
            bakery.start()
        with pytest.raises(InvalidInput, match="more than 10 ticks"):
            bakery.start(FIRST, LAST, most=10)


def test_a_fixed_delay_has_no_ticks_in_the_past() -> None:
    bakery = Bakery()

    @bakery.app.job
    def sweep() -> None: ...

    bakery.app.schedule("sweep", sweep, after("1h"))
    with virtual_time(bakery.app, start=START) as bakery.world:
        with pytest.raises(InvalidInput, match="fixed delay"):
            bakery.app.operate.backfill("sweep", FIRST, LAST, **BY)
        with pytest.raises(UnknownName):
            bakery.app.operate.backfill("nobody", FIRST, LAST, **BY)


@pytest.mark.parametrize(
    "settings",
    [
        {"rate": "fast"},
        {"rate": "0/s"},
        {"at_once": 0},
        {"at_once": True},
        {"at_once": 1_001},
        {"window": "all night"},
        {"window": "22:00-06:00", "tz": "Europe/Pariss"},
        {"stop_after": 0},
    ],
)
def test_a_pace_that_cannot_be_read_is_refused(settings: dict[str, Any]) -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world:
        with pytest.raises(InvalidInput):
            bakery.start(**settings)
        assert bakery.world.call(bakery.world.store.backfills()) == []


# ---------------------------------------------------------------------------------------------------- how long it takes


def test_a_preview_says_how_long_it_takes_by_rate_work_and_window() -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world:
        operate = bakery.app.operate
        assert operate.preview_backfill("bake", FIRST, LAST).lasting is None
        assert operate.preview_backfill("bake", FIRST, LAST, rate="1/h").lasting == 8 * 60 * MINUTE
        bakery.world.run_for("3h")  # one run was timed
        assert operate.preview_backfill("bake", FIRST, LAST).lasting == 8 * 6 * SECOND
        seen = operate.preview_backfill("bake", FIRST, LAST, rate="2/h", window="04:00-06:00")
        assert rfc3339(seen.ends_at or 0) == "2026-04-11T06:00:00Z"


def test_progress_says_how_far_it_is_and_when_it_will_have_ended() -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world:
        backfill = bakery.start()
        bakery.world.run_for("12s")
        view = bakery.app.operate.backfill_progress(backfill.number)
        assert (view.progress.settled, view.progress.unfinished, view.backfill.left) == (2, 1, 5)
        assert view.ends_at == bakery.world.clock.now() + 6 * 6 * SECOND
        bakery.world.run_for("1h")
        view = bakery.app.operate.backfill_progress(backfill.number)
        assert (view.progress.settled, view.ends_at) == (8, view.backfill.ended_at)


def test_a_maker_looks_once_a_second_while_there_is_nothing_to_do() -> None:
    bakery = Bakery()
    with virtual_time(bakery.app, start=START) as bakery.world:
        maker, now = Backfiller(bakery.world.store, bakery.world.clock), bakery.world.clock.now()
        assert bakery.world.call(maker.run_once()) == now + SECOND
        assert (maker.is_busy, maker.next_event()) == (False, None)
        bakery.start(rate="1/m", at_once=9)
        assert bakery.world.call(maker.run_once()) == now + SECOND
        assert (maker.is_busy, maker.next_event()) == (True, now + MINUTE)
