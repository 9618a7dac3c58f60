"""Ticks over many members: runs made in chunks and none twice, turns by member, and a tick that waits for all."""

from __future__ import annotations

from typing import Any

import pytest

from foliot.dispatch import decide_ticks
from foliot.domain.instant import HOUR, MINUTE
from foliot.domain.ledger import EffectState, Settled
from foliot.domain.members import MemberSet
from foliot.domain.policy import Policy, choices
from foliot.domain.replay import Fate
from foliot.domain.run import Claimed
from foliot.domain.standing import Mark, standing
from foliot.domain.state import Event, Outcome, Reason, State
from foliot.errors import Conflict, UnknownName
from foliot.store.verbs.spreading import CHUNK, recount
from foliot.store.verbs.store import Verbs
from foliot.timing import every
from tests.contract.stage import Stage, declared

RULE = every("1h").encode()


async def hourly(stage: Stage, *members: str, **settings: Any) -> str:
    """A schedule over these, whose first tick is due. Answers its id."""
    policy = Policy().merged(choices(settings))
    await stage.store.change_members("tenants", add=members, actor="ann", note="new")
    await stage.apply(declared("hourly", stage.now, rule=RULE, policy=policy, over="tenants"))
    [tick] = await stage.waiting("hourly")
    return tick.id


async def fired(stage: Stage, limit: int = 10_000) -> list[Claimed]:
    """Everything that is due is fired, until nothing is; and claimed."""
    while (done := await stage.fire_by_policy()).created or done.handed_off or done.skipped:
        pass
    return await stage.claim(limit)


def members(runs: list[Claimed]) -> list[str]:
    return sorted(run.member or "" for run in runs)


async def test_a_tick_makes_a_run_for_each_member_and_is_not_run_itself(stage: Stage) -> None:
    tick = await hourly(stage, "acme", "globex")
    runs = await fired(stage)
    assert {run.id: run.schedule for run in runs} == {
        f"{tick}[acme]": "hourly[acme]",
        f"{tick}[globex]": "hourly[globex]",
    }
    assert await stage.state(tick) is State.VERIFYING


async def test_runs_of_many_members_are_made_in_chunks_and_none_twice(stage: Stage) -> None:
    keys = [f"tenant-{number:04}" for number in range(CHUNK + 3)]
    tick = await hourly(stage, *keys)
    first = await stage.fire_by_policy()
    assert first.created == CHUNK + 1  # and the next tick
    assert [entry[1] for entry in first.again] == [(await stage.run(tick)).number]
    # Another scheduler takes over: what was made is not made again.
    runs = await fired(stage)
    assert members(runs) == keys
    assert (await stage.run(tick)).state is State.VERIFYING


async def test_a_member_that_comes_while_runs_are_being_made_is_served_if_its_turn_is_still_to_come(
    stage: Stage,
) -> None:
    await hourly(stage, *(f"tenant-{number:04}" for number in range(CHUNK + 1)))
    await stage.fire_by_policy()
    await stage.store.change_members("tenants", add=["aaa", "zzz"], actor="ann", note="")
    served = members(await fired(stage))
    assert "zzz" in served
    assert "aaa" not in served


async def test_the_tick_ends_when_all_of_its_members_have(stage: Stage) -> None:
    tick = await hourly(stage, "acme", "globex")
    acme, globex = sorted(await fired(stage), key=lambda run: run.id)
    await stage.finish(stage.succeeded(acme))
    assert await stage.store.gather() == 0
    await stage.finish(stage.died(globex))
    assert await stage.store.gather() == 1
    ended = await stage.run(tick)
    assert (ended.state, ended.reason, ended.detail) == (State.SUCCEEDED, Reason.PARTIAL, "1 of 2; 1 dead")
    facts = await stage.store.schedule_facts("hourly")
    assert standing(facts, stage.now).strip == (Mark.PARTIAL,)
    assert await stage.store.gather() == 0


@pytest.mark.parametrize(("share", "state"), [(0.5, State.VERIFIED), (0.51, State.UNVERIFIED)])
async def test_a_tick_is_verified_by_how_complete_it_has_to_be(stage: Stage, share: float, state: State) -> None:
    tick = await hourly(stage, "acme", "globex", complete=share)
    acme, globex = sorted(await fired(stage), key=lambda run: run.id)
    await stage.finish(stage.succeeded(acme), stage.died(globex))
    await stage.store.gather()
    assert (await stage.run(tick)).state is state


async def test_a_tick_that_fell_short_counts_its_members_anew_when_it_is_checked_again(stage: Stage) -> None:
    tick = await hourly(stage, "acme", complete=1)
    [acme] = await fired(stage)
    await stage.finish(stage.died(acme))
    await stage.store.gather()
    assert (await stage.run(tick)).reason == Reason.INCOMPLETE
    await stage.store.retry(acme.id, actor="ann", note="mended", override=False)
    await stage.finish(stage.succeeded((await fired(stage))[0]))
    await stage.store.recheck(tick, actor="ann", note="mended")
    await stage.store.gather()
    ended = await stage.run(tick)
    assert (ended.state, ended.detail) == (State.VERIFIED, "1 of 1")


async def partial_tick(stage: Stage, **settings: Any) -> tuple[str, list[Claimed]]:
    """A tick over 8 members that is over, with the runs of the two that are dead."""
    tick = await hourly(stage, *(f"tenant-{number}" for number in range(8)), **settings)
    *done, first, second = sorted(await fired(stage), key=lambda run: run.id)
    await stage.finish(*(stage.succeeded(run) for run in done), stage.died(first), stage.died(second))
    await stage.store.gather()
    return tick, [first, second]


async def row_of(stage: Stage, tick: str) -> tuple[State, str | None, str | None]:
    await stage.store.gather()
    row = await stage.run(tick)
    return row.state, row.reason, row.detail


async def test_a_tick_is_counted_again_when_dead_members_were_retried(stage: Stage) -> None:
    tick, [first, second] = await partial_tick(stage)
    partial = (State.SUCCEEDED, Reason.PARTIAL, "6 of 8; 2 dead")
    assert await row_of(stage, tick) == partial
    await stage.store.retry(first.id, actor="ann", note="mended", override=False)
    assert await row_of(stage, tick) == partial, "the retried run is under way"
    assert isinstance(stage.store, Verbs)
    assert await stage.store.write(lambda tx: recount(tx, [tick])) == 0, "it was revived after the watch read the marks"
    await stage.finish(stage.succeeded((await fired(stage))[0]))
    assert await row_of(stage, tick) == (State.SUCCEEDED, Reason.PARTIAL, "7 of 8; 1 dead")
    assert await stage.store.gather() == 0
    await stage.store.retry(second.id, actor="ann", note="mended", override=False)
    await stage.finish(stage.succeeded((await fired(stage))[0]))
    assert await row_of(stage, tick) == (State.SUCCEEDED, None, "8 of 8")
    facts = await stage.store.schedule_facts("hourly")
    assert standing(facts, stage.now).strip == (Mark.KEPT,)
    assert await stage.store.gather() == 0


async def test_a_tick_is_counted_again_when_a_member_was_rerun_or_replayed(stage: Stage) -> None:
    tick, [first, second] = await partial_tick(stage)
    await stage.store.rerun(first.id, repair=False, repeat=(), override=False, actor="ann", note="again")
    given: dict[str, Any] = {"due_at": stage.now, "every": 0, "override": False, "actor": "ann", "note": "again"}
    [replayed] = await stage.store.replay([second.number], **given)
    assert replayed.fate is Fate.REPLAYED
    one, other = sorted(await fired(stage), key=lambda run: run.id)
    await stage.finish(stage.succeeded(one))
    assert (await row_of(stage, tick))[2] == "6 of 8; 2 dead", "another changed run is under way"
    await stage.finish(stage.succeeded(other))
    assert await row_of(stage, tick) == (State.SUCCEEDED, None, "8 of 8")


async def test_a_tick_is_counted_again_when_a_member_was_reconciled(stage: Stage) -> None:
    tick, [first, _] = await partial_tick(stage, complete=0.5)
    assert await row_of(stage, tick) == (State.VERIFIED, Reason.PARTIAL, "6 of 8; 2 dead")
    await stage.store.reconcile(first.id, settled=(), actor="ann", evidence="statement 17")
    assert await row_of(stage, tick) == (State.VERIFIED, Reason.PARTIAL, "7 of 8; 1 dead")


async def test_a_busy_member_skips_its_run_and_the_others_have_theirs(stage: Stage) -> None:
    await hourly(stage, "acme", "globex")
    acme, globex = sorted(await fired(stage), key=lambda run: run.id)
    await stage.finish(stage.succeeded(globex))
    stage.clock.advance(HOUR)
    assert members(await fired(stage)) == ["globex"]
    [skipped] = await stage.store.runs(job="job", states=[State.SKIPPED])
    assert (skipped.member, skipped.reason) == ("acme", Reason.OVERLAP)
    assert acme.id in (skipped.detail or "")


async def test_the_next_run_of_a_member_has_its_turn_when_the_one_before_ends(stage: Stage) -> None:
    await hourly(stage, "acme", "globex", overlap="queue")
    acme, globex = sorted(await fired(stage), key=lambda run: run.id)
    stage.clock.advance(HOUR)
    assert await fired(stage) == []
    await stage.finish(stage.succeeded(acme))
    assert members(await fired(stage)) == ["acme"]
    await stage.finish(stage.succeeded(globex))
    assert members(await fired(stage)) == ["globex"]


async def test_ticks_over_many_members_do_not_wait_for_one_another(stage: Stage) -> None:
    await hourly(stage, "acme", overlap="queue")
    await fired(stage)
    stage.clock.advance(HOUR)
    await fired(stage)
    found = [run.state for run in await stage.store.runs(schedule="hourly") if run.member is None]
    assert found.count(State.VERIFYING) == 2


async def test_the_last_useful_completion_of_a_member_is_remembered(stage: Stage) -> None:
    await hourly(stage, "acme", "globex")
    acme, globex = sorted(await fired(stage), key=lambda run: run.id)
    await stage.finish(stage.succeeded(acme), stage.died(globex))
    one, other = await stage.store.standings("hourly")
    assert (one.member, one.useful_tick, one.useful_at) == ("acme", acme.nominal, stage.now)
    assert (other.member, other.useful_tick, other.useful_at) == ("globex", None, None)
    stage.clock.advance(HOUR)
    assert [s.member for s in await stage.store.standings("hourly", stale_before=stage.now)] == ["acme", "globex"]
    assert [s.member for s in await stage.store.standings("hourly", stale_before=stage.now - HOUR)] == []
    assert [s.member for s in await stage.store.standings("hourly", after="acme")] == ["globex"]


async def test_who_was_served_longest_ago_comes_first_also_who_never_was(stage: Stage) -> None:
    await hourly(stage, "acme", "globex", "initech")
    acme, globex, initech = sorted(await fired(stage), key=lambda run: run.id)
    await stage.finish(stage.succeeded(initech))
    stage.clock.advance(MINUTE)
    await stage.finish(stage.succeeded(acme), stage.died(globex))
    found = await stage.store.worst_served("hourly", limit=10)
    assert [(one.member, one.useful_at) for one in found] == [
        ("globex", None),
        ("initech", stage.now - MINUTE),
        ("acme", stage.now),
    ]
    assert await stage.store.worst_served("hourly", limit=1) == found[:1]


async def test_a_verified_run_is_a_useful_completion_too(stage: Stage) -> None:
    await hourly(stage, "acme")
    [acme] = await fired(stage)
    await stage.finish(stage.checkable(acme))
    [check] = await stage.claim()
    await stage.finish(stage.ending(check, Event.CHECK_PASSED, Outcome.SUCCEEDED))
    [standing] = await stage.store.standings("hourly")
    assert standing.useful_tick == acme.nominal


async def test_a_set_is_changed_and_what_is_so_already_stays_so(stage: Stage) -> None:
    store = stage.store
    assert tuple(await store.change_members("tenants", add=["b", "a", "b"], actor="ann", note="")) == (2, 0, 0)
    assert tuple(await store.change_members("tenants", add=["a"], remove=["c"], actor="ann", note="")) == (0, 0, 0)
    assert tuple(await store.set_members("tenants", ["a", "c"], actor="ann", note="")) == (1, 1, 0)
    assert [one.key for one in await store.members("tenants")] == ["a", "c"]
    assert [one.key for one in await store.members("tenants", after="a", limit=1)] == ["c"]
    assert [row.action for row in await store.audit_of("tenants")] == ["members", "members"]


async def test_what_code_declares_is_added_and_goes_only_when_pruned(stage: Stage) -> None:
    store = stage.store
    await store.declare_members("tenants", ["a", "b"], prune=False, actor="code")
    await store.change_members("tenants", add=["x"], actor="ann", note="")
    await store.declare_members("tenants", ["a"], prune=False, actor="code")
    assert [one.key for one in await store.members("tenants")] == ["a", "b", "x"]
    await store.declare_members("tenants", ["a"], prune=True, actor="code")
    assert [one.key for one in await store.members("tenants")] == ["a", "x"]


async def test_sets_are_listed_with_the_schedules_that_go_over_them(stage: Stage) -> None:
    await hourly(stage, "acme")
    await stage.store.change_members("regions", add=["eu", "us"], actor="ann", note="")
    assert await stage.store.member_sets() == [MemberSet("regions", 2), MemberSet("tenants", 1, ("hourly",))]


async def test_runs_of_a_removed_member_end_unless_somebody_has_begun_them(stage: Stage) -> None:
    tick = await hourly(stage, "acme", "globex", overlap="queue")
    acme, _ = sorted(await fired(stage), key=lambda run: run.id)
    stage.clock.advance(HOUR)
    await fired(stage)
    changed = await stage.store.change_members("tenants", remove=["acme"], actor="ann", note="left")
    assert (changed.removed, changed.skipped) == (1, 1)
    assert await stage.state(acme) is State.RUNNING
    [skipped] = await stage.store.runs(job="job", states=[State.SKIPPED])
    assert (skipped.member, skipped.reason) == ("acme", Reason.REVISED)
    assert tick != skipped.id


async def test_a_tick_that_is_cancelled_ends_with_its_members(stage: Stage) -> None:
    tick = await hourly(stage, "acme", "globex", overlap="queue")
    acme = sorted(await fired(stage, 1), key=lambda run: run.id)[0]
    await stage.store.cancel(tick, actor="ann", note="enough")
    assert await stage.state(tick) is State.CANCELLED
    states = {run.member: run.state for run in await stage.store.runs(job="job") if run.member}
    assert states.pop(acme.member or "") is State.RUNNING  # asked to stop
    assert list(states.values()) == [State.CANCELLED]
    beat = await stage.store.beat(await stage.worker(), [])
    assert beat.cancel == [acme.number]


async def test_a_set_without_members_leaves_a_row_that_says_so(stage: Stage) -> None:
    tick = await hourly(stage)
    await fired(stage)
    ended = await stage.run(tick)
    assert (ended.state, ended.reason) == (State.SKIPPED, Reason.NO_MEMBERS)
    assert len(await stage.waiting("hourly")) == 1  # and goes on


async def test_a_pause_holds_runs_of_members_too(stage: Stage) -> None:
    await hourly(stage, "acme", overlap="queue")
    [acme] = await fired(stage)
    stage.clock.advance(HOUR)
    await fired(stage)
    await stage.store.pause("hourly", until=None, actor="ann", note="quiet")
    await stage.finish(stage.succeeded(acme))
    assert await fired(stage) == []
    await stage.store.resume("hourly", actor="ann", note="")
    assert members(await fired(stage)) == ["acme"]


async def test_an_interval_tells_who_is_not_done_those_that_wait_for_a_person_first(stage: Stage) -> None:
    tick = await hourly(stage, "acme", "globex", "initech")
    acme, globex, initech = sorted(await fired(stage), key=lambda run: run.id)
    await stage.finish(stage.succeeded(acme), stage.died(initech))
    interval = (await stage.run(tick)).interval
    assert interval is not None
    assert (interval.done, interval.members, interval.made) == (1, 3, True)
    assert [(one.member, one.run, one.state) for one in interval.lacking] == [
        ("initech", initech.id, State.DEAD),
        ("globex", globex.id, State.RUNNING),
    ]


async def test_an_interval_names_members_whose_runs_are_settled_and_not_done(stage: Stage) -> None:
    tick = await hourly(stage, "acme", "globex")
    acme, globex = sorted(await fired(stage), key=lambda run: run.id)
    await stage.begin(globex)
    await stage.finish(stage.succeeded(acme), stage.puzzled(globex))
    answers = [Settled("pay", "7", EffectState.NOT_DONE)]
    await stage.store.reconcile(globex.id, settled=answers, actor="ada", evidence="statement 17")
    interval = (await stage.run(tick)).interval
    assert interval is not None
    assert interval.states == {State.SUCCEEDED: 1, State.SETTLED: 1}
    assert [(one.member, one.state) for one in interval.lacking] == [("globex", State.SETTLED)]


async def test_a_rerun_of_a_member_is_counted_once(stage: Stage) -> None:
    tick = await hourly(stage, "acme")
    [acme] = await fired(stage)
    await stage.finish(stage.died(acme))
    await stage.store.rerun(acme.id, repair=False, repeat=(), override=False, actor="ann", note="again")
    assert await stage.store.gather() == 0  # what answers for it is under way
    await stage.finish(stage.succeeded((await fired(stage))[0]))
    await stage.store.gather()
    assert (await stage.run(tick)).detail == "1 of 1"


async def test_who_asks_for_members_of_what_has_none_is_told_so(stage: Stage) -> None:
    await stage.apply(declared("plain", stage.now))
    with pytest.raises(Conflict, match=r"has no member set; set one with app\.schedule\(\.\.\., over=\.\.\.\)"):
        await stage.store.standings("plain")
    with pytest.raises(UnknownName):
        await stage.store.standings("nothing")
    assert await stage.store.members("nobody") == []


async def test_whoever_holds_the_shard_hears_of_the_runs_of_members(stage: Stage) -> None:
    tick = await hourly(stage, "acme", "globex")
    lease = await stage.lease()
    due = [entry for entry in await stage.loaded(lease) if entry[0] <= stage.now]
    await stage.store.fire([lease], due, lease.cursor, decide_ticks)
    told = {number for _, number in await stage.told(lease.cursor)}
    made = {(await stage.run(f"{tick}[{member}]")).number for member in ("acme", "globex")}
    assert made <= told


async def test_a_tick_that_has_begun_with_its_members_goes_through_with_it_however_late(stage: Stage) -> None:
    tick = await hourly(stage, *(f"tenant-{number:04}" for number in range(CHUNK + 1)), useful_until="1m")
    await stage.fire_by_policy()
    stage.clock.advance(HOUR // 2)
    await fired(stage)
    await stage.store.gather()
    ended = await stage.run(tick)
    assert (ended.state, ended.detail) == (State.SUCCEEDED, f"0 of {CHUNK + 1}; {CHUNK + 1} skipped")


async def test_a_tick_that_has_begun_goes_on_without_its_schedule(stage: Stage) -> None:
    tick = await hourly(stage, *(f"tenant-{number:04}" for number in range(CHUNK + 1)))
    await stage.fire_by_policy()
    await stage.store.delete("hourly", actor="ann", note="no more")
    runs = await fired(stage)
    assert len(runs) == CHUNK + 1
    await stage.finish(*(stage.succeeded(run) for run in runs))
    await stage.store.gather()
    assert (await stage.run(tick)).detail == f"{CHUNK + 1} of {CHUNK + 1}"


async def test_a_rerun_answers_for_the_run_that_it_repeats(stage: Stage) -> None:
    tick = await hourly(stage, "acme", "globex", complete=1)
    acme, globex = sorted(await fired(stage), key=lambda run: run.id)
    await stage.finish(stage.succeeded(acme), stage.died(globex))
    kept = await stage.store.rerun(globex.id, repair=False, repeat=(), override=False, actor="ann", note="again")
    await stage.finish(stage.died((await fired(stage))[0]))
    await stage.store.gather()
    ended = await stage.run(tick)
    assert (ended.state, ended.detail) == (State.UNVERIFIED, "1 of 2; 1 dead")
    assert ended.interval is not None
    assert [(one.member, one.run) for one in ended.interval.lacking] == [("globex", kept.id)]


async def test_who_has_left_the_set_is_not_counted(stage: Stage) -> None:
    tick = await hourly(stage, "acme", "globex", complete=1)
    await stage.fire_by_policy()
    await stage.store.change_members("tenants", remove=["globex"], actor="ann", note="left")
    await stage.finish(stage.succeeded((await fired(stage))[0]))
    await stage.store.gather()
    ended = await stage.run(tick)
    assert (ended.state, ended.detail) == (State.VERIFIED, "1 of 1")


async def test_a_promise_whose_key_looks_like_a_member_is_none(stage: Stage) -> None:
    tick = await hourly(stage, "acme")
    bystander = await stage.promise(tick, after=HOUR, tenant="acme")
    assert bystander.id == f"{tick}[acme]#1"
    [acme] = [run for run in await fired(stage) if run.member]
    await stage.finish(stage.succeeded(acme))
    await stage.store.gather()
    assert (await stage.run(tick)).detail == "1 of 1"
    assert await stage.state(bystander) is State.SCHEDULED


async def test_a_tick_that_is_rerun_goes_over_whom_it_went_over(stage: Stage) -> None:
    tick = await hourly(stage, "acme")
    await stage.finish(stage.succeeded((await fired(stage))[0]))
    await stage.store.gather()
    await stage.store.delete("hourly", actor="ann", note="no more")
    kept = await stage.store.rerun(tick, repair=False, repeat=(), override=False, actor="ann", note="again")
    assert [run.id for run in await fired(stage)] == [f"{kept.id}[acme]"]


async def test_a_run_that_is_rerun_goes_over_nobody_if_it_did_not(stage: Stage) -> None:
    run = await stage.running_tick()
    await stage.finish(stage.succeeded(run))
    await stage.apply(declared("hourly", None, rule=RULE, over="tenants", fingerprint="v2"))
    await stage.store.change_members("tenants", add=["acme"], actor="ann", note="")
    kept = await stage.store.rerun(run.id, repair=False, repeat=(), override=False, actor="ann", note="again")
    assert [one.id for one in await fired(stage)] == [kept.id]


async def test_all_ticks_of_one_transaction_make_no_more_runs_than_one_does(stage: Stage) -> None:
    keys = [f"tenant-{number:04}" for number in range(CHUNK - 100)]
    await stage.store.change_members("tenants", add=keys, actor="ann", note="")
    names = [f"hourly-{number}" for number in range(3)]
    await stage.apply(*(declared(name, stage.now, rule=RULE, over="tenants") for name in names))
    first = await stage.fire_by_policy()
    assert first.created == CHUNK + len(names)  # and their next ticks
    assert len(first.again) == 2
    assert len(await fired(stage)) == len(names) * len(keys)


async def test_a_run_that_a_pause_holds_does_not_outlive_its_schedule_in_waiting(stage: Stage) -> None:
    await hourly(stage, "acme", overlap="queue")
    [acme] = await fired(stage)
    stage.clock.advance(HOUR)
    await fired(stage)
    await stage.store.pause("hourly", until=None, actor="ann", note="quiet")
    await stage.finish(stage.succeeded(acme))
    await fired(stage)
    await stage.store.delete("hourly", actor="ann", note="no more")
    assert members(await fired(stage)) == ["acme"]


async def test_a_tick_that_is_let_go_in_a_pause_takes_its_members_along(stage: Stage) -> None:
    tick = await hourly(stage, "acme")
    await stage.store.pause("hourly", until=None, actor="ann", note="quiet")
    await fired(stage)
    await stage.store.release_run(tick, actor="ann", note="this one")
    assert members(await fired(stage)) == ["acme"]


async def test_a_tick_that_came_to_nothing_is_no_success(stage: Stage) -> None:
    tick = await hourly(stage, "acme", "globex")
    await stage.finish(*(stage.died(run) for run in await fired(stage)))
    await stage.store.gather()
    ended = await stage.run(tick)
    assert (ended.state, ended.reason, ended.detail) == (State.UNVERIFIED, Reason.INCOMPLETE, "0 of 2; 2 dead")


async def test_by_hand_in_a_pause_a_run_goes_past_those_that_the_pause_holds(stage: Stage) -> None:
    await hourly(stage, "acme", overlap="queue")
    [acme] = await fired(stage)
    stage.clock.advance(HOUR)
    await fired(stage)
    await stage.store.pause("hourly", until=None, actor="ann", note="quiet")
    await stage.finish(stage.succeeded(acme))
    await fired(stage)
    kept = await stage.store.trigger("hourly", actor="ann", note="now")
    assert [run.id for run in await fired(stage)] == [f"{kept.id}[acme]"]
