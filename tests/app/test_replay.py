"""Dead letters and reruns in bulk, from an operator's word to when their runs start, in virtual time."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from foliot import Context, Foliot, every
from foliot.domain.instant import SECOND, instant
from foliot.domain.replay import Fate
from foliot.domain.run import Lane, RunView
from foliot.domain.state import State
from foliot.errors import InvalidInput, StoreError
from foliot.operate import replaying
from foliot.operate.replaying import Outcome, outcomes_shape, replay_preview_shape
from foliot.testing import World, virtual_time

START = datetime(2026, 4, 10, 0, 30, tzinfo=UTC)
BY: dict[str, Any] = {"reason": "the bank is back", "actor": "ana"}


class Bank:
    """An app whose payments fail while the bank is closed."""

    def __init__(self, **settings: Any) -> None:
        self.app = Foliot("sqlite:///:memory:", attempts=1, **settings)
        self.closed = True
        self.paid: list[int] = []
        self.world: World

        @self.app.job(on_lost="retry")
        async def pay(number: int) -> None:
            if self.closed:
                raise OSError("no answer")
            self.paid.append(number)

        @self.app.job(effects=("wire",))
        async def wire(ctx: Context, number: int) -> None:
            async with ctx.effect("wire", key=str(number), idempotent=True):
                if self.closed:
                    raise OSError("no answer")

        @self.app.job(on_lost="ask")
        async def ask(number: int) -> None:
            raise OSError("no answer")

        self.pay, self.wire, self.ask = pay, wire, ask

    def fail(self, count: int, **settings: Any) -> None:
        """So many payments die."""
        for number in range(count):
            self.pay.using(**settings).at(START + timedelta(milliseconds=number), number=number)
        self.world.run_for("1s")

    def states(self) -> Counter[State]:
        return Counter(run.state for run in self.world.runs())

    def replay(self, **more: Any) -> list[Outcome]:
        return self.app.operate.replay_dead(**BY, **more)


def seconds(run: RunView, since: datetime) -> float:
    assert run.started_at is not None
    return (run.started_at - instant(since)) / SECOND


def test_dead_letters_come_back_at_the_rate_and_live_work_does_not_notice() -> None:
    bank = Bank()
    with virtual_time(bank.app, start=START) as bank.world:
        bank.fail(100)
        bank.closed = False
        began = bank.world.now
        told = bank.replay(rate="10/s")
        assert Counter(one.fate for one in told) == {Fate.REPLAYED: 100}
        for _ in range(9):
            fresh = bank.pay.now(number=-1)
            bank.world.run_for("1s")
            assert bank.world.run(fresh.id).late_by == 0
        again = [run for run in bank.world.runs() if run.lane is Lane.BACKFILL and run.state is State.SUCCEEDED]
        assert sorted(seconds(run, began) for run in again) == pytest.approx([n / 10 for n in range(91)], abs=0.001)
        bank.world.run_for("1s")
        assert bank.states() == {State.SUCCEEDED: 109}
        [line] = [line for line in bank.world.call(bank.app.operate.story_async(told[0].run)) if "ana" in line.text]
        assert line.text == "ana replayed the run with others: the bank is back"


def test_the_rate_of_the_lane_bounds_what_was_replayed_all_at_once() -> None:
    bank = Bank()
    bank.app.limit("lane:backfill", rate="2/s")
    with virtual_time(bank.app, start=START) as bank.world:
        bank.fail(30)
        bank.closed = False
        bank.replay()
        bank.world.run_for("5s")
        assert len(bank.paid) == pytest.approx(10, abs=1)
        bank.world.run_for("1m")
        assert len(bank.paid) == 30


def test_a_preview_counts_exactly_what_a_replay_then_does() -> None:
    bank = Bank()
    with virtual_time(bank.app, start=START) as bank.world:
        bank.fail(15)
        bank.pay.using(useful_until="1m").now(number=100)
        bank.wire.using(attempts_inside_effect=0).now(number=7)
        lost = bank.ask.now(number=9)
        bank.world.run_for("2m")
        assert bank.states()[State.DEAD] == 17
        assert bank.states()[State.AMBIGUOUS] == 1, "what may have happened is no dead letter"
        seen = bank.app.operate.preview_replay(rate="1/s")
        assert (seen.total, seen.would, len(seen.sample), seen.lasting) == (17, 15, 10, 14 * SECOND)
        shape = replay_preview_shape(seen)
        assert [(one["outcome"], one["count"]) for one in shape["refused"]] == [("refused", 1), ("too_late", 1)]
        assert shape["refused"][0]["example"] == lost.id
        assert bank.states()[State.DEAD] == 17, "nothing was done"
        told = bank.replay(rate="1/s")
        assert Counter(one.fate for one in told) == {Fate.REPLAYED: 15, Fate.REFUSED: 1, Fate.TOO_LATE: 1}
        assert outcomes_shape(told)["replayed"] == 15
        assert [one.fate for one in bank.replay(override=True)] == [Fate.TOO_LATE, Fate.REPLAYED]
        audit = bank.world.call(bank.world.store.audit_of(lost.id))
        assert [row.note for row in audit] == ["override: the bank is back"]


def test_whoever_was_interrupted_says_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = Bank()
    monkeypatch.setattr(replaying, "CHUNK", 10)
    with virtual_time(bank.app, start=START) as bank.world:
        bank.fail(45)
        bank.closed = False
        real, calls = bank.world.store.replay, []

        async def breaks_down(runs: Any, **more: Any) -> Any:
            calls.append(len(runs))
            if len(calls) > 2:
                raise StoreError("the server is gone")
            return await real(runs, **more)

        with monkeypatch.context() as broken:
            broken.setattr(bank.world.store, "replay", breaks_down)
            with pytest.raises(StoreError, match="gone"):
                bank.replay()
        assert bank.states()[State.DEAD] == 25
        assert len(bank.replay()) == 25
        bank.world.run_for("1s")
        assert sorted(bank.paid) == list(range(45)), "each of them once"


def test_one_bad_row_never_stops_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = Bank()
    monkeypatch.setattr(replaying, "CHUNK", 4)
    with virtual_time(bank.app, start=START) as bank.world:
        bank.fail(10)
        bank.closed = False
        real = bank.world.store.replay
        bad = bank.world.runs()[5].number

        async def chokes(runs: Any, **more: Any) -> Any:
            if bad in runs:
                raise ValueError("malformed JSON")
            return await real(runs, **more)

        monkeypatch.setattr(bank.world.store, "replay", chokes)
        told = bank.replay(rate="1/s")
        assert [(one.fate, one.problem) for one in told if not one.is_done] == [
            (Fate.FAILED, "ValueError: malformed JSON")
        ]
        due = sorted(one.due_at for one in told if one.due_at is not None)
        assert [at - due[0] for at in due] == [place * SECOND for place in range(9)]


def test_what_dies_again_is_not_replayed_again_in_the_same_breath() -> None:
    bank = Bank()
    with virtual_time(bank.app, start=START) as bank.world:
        bank.fail(3)
        assert len(bank.replay()) == 3
        bank.world.run_for("1s")
        assert bank.states() == {State.DEAD: 3}
        assert {run.attempt for run in bank.world.runs()} == {2}


def test_dead_letters_are_chosen_by_job_reason_and_time() -> None:
    bank = Bank()
    with virtual_time(bank.app, start=START) as bank.world:
        bank.fail(3, tenant="acme")
        bank.world.run_for("1h")
        late = bank.pay.now(number=9)
        bank.world.run_for("1s")
        operate = bank.app.operate
        assert len(operate.dead()) == 4
        assert [one.letter.view.id for one in operate.dead(since=START + timedelta(minutes=1))] == [late.id]
        assert len(operate.dead(tenant="acme", why="attempts", job="pay", until=START + timedelta(minutes=1))) == 3
        assert len(operate.dead(limit=2)) == 2
        assert operate.dead(why="poison") == []
        assert len(bank.replay(tenant="acme", limit=2)) == 2


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"why": "bad luck"}, "not a reason of dead runs; give one of"),
        ({"since": START, "until": START}, "until is before since; swap them"),
        ({"since": datetime(2026, 4, 1)}, "time zone|naive|tzinfo"),
        ({"limit": 0}, "from 1 to"),
        ({"rate": "fast"}, "write a count and a unit of time"),
        ({"reason": " "}, "reason is missing"),
    ],
)
def test_what_cannot_be_meant_is_refused(wanted: dict[str, Any], told: str) -> None:
    bank = Bank()
    with virtual_time(bank.app, start=START) as bank.world, pytest.raises(InvalidInput, match=told):
        bank.app.operate.replay_dead(**BY | wanted)


# --------------------------------------------------------------------------------------------------------------- reruns


def test_many_reruns_ride_the_lane_backfill_at_the_rate_and_one_stays_live() -> None:
    bank = Bank()
    bank.closed = False
    bank.app.schedule("hourly", bank.pay, every("1h"), args={"number": 1}, overlap="allow")
    with virtual_time(bank.app, start=START) as bank.world:
        bank.world.run_for("4h")
        operate = bank.app.operate
        found = bank.world.call(operate.ended_between_async("hourly", START, START + timedelta(hours=4)))
        assert len(found) == 4
        ids = [view.id for view in found]
        seen = operate.rerun_many([*ids, "nobody"], rate="1/m", dry_run=True, reason="", actor="ana")
        assert [one.fate for one in seen] == [Fate.WOULD] * 4 + [Fate.REFUSED]
        told = operate.rerun_many([*ids, "nobody", ids[0]], rate="1/m", **BY)
        assert [one.fate for one in told] == [Fate.RERUN] * 4 + [Fate.REFUSED]
        bank.world.run_for("10m")
        again = [bank.world.run(one.made) for one in told if one.made is not None]
        assert {run.lane for run in again} == {Lane.BACKFILL}
        starts = [run.started_at or 0 for run in again]
        assert [at - starts[0] for at in starts] == [place * 60 * SECOND for place in range(4)]
        single = operate.rerun(ids[0], **BY)
        assert bank.world.run(single.id).lane is Lane.LIVE
