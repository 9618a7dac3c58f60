"""Two releases of an app side by side: the older one takes nothing back, and a rollback settles by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foliot.domain.instant import HOUR, MINUTE
from foliot.domain.schedule import FORMAT, Applied, Declaration, Fingerprint, Release
from foliot.domain.store import DEFAULT_QUEUE, JobCard
from foliot.errors import UnknownName
from tests.contract.stage import START, Stage, declared

# ------------------------------------------------------------------------------------------------------------- releases


def says(fingerprint: str, name: str = "report") -> Declaration:
    return declared(name, START + HOUR, fingerprint=fingerprint, rule=f'{{"{fingerprint}":1}}')


async def deployed(
    stage: Stage, release: str | Release, *declarations: Declaration, prune: bool = False
) -> tuple[int, Applied]:
    """A scheduler of this release is started: it applies what its code declares."""
    known = release if isinstance(release, Release) else Release(release)
    applied = await stage.store.apply(declarations, prune=prune, actor="code", release=known)
    instance = await stage.store.register("scheduler", version="", queues=(), slots=0, jobs=(), release=known.name)
    return instance.number, applied


async def in_force(stage: Stage, name: str = "report") -> str | None:
    found = (await stage.store.fingerprints()).get(name)
    return found and found.hash


async def test_a_new_release_has_its_way_while_the_old_one_still_runs(stage: Stage) -> None:
    await deployed(stage, "old", says("v1"))
    _, applied = await deployed(stage, "new", says("v2"))
    assert (applied.changed, applied.outdated) == (["report"], [])
    assert await in_force(stage) == "v2"


async def test_an_old_release_that_starts_again_takes_nothing_back(stage: Stage) -> None:
    await deployed(stage, "old", says("v1"))
    await deployed(stage, "new", says("v2"))
    for _ in range(3):
        _, applied = await deployed(stage, "old", says("v1"))
        assert (applied.outdated, applied.changed, applied.unchanged) == (["report"], [], [])
    view = await stage.store.schedule("report")
    assert (view.schedule.fingerprint, view.schedule.revision, view.schedule.rule) == ("v2", 2, '{"v2":1}')


async def test_a_worker_of_the_new_release_is_enough_to_keep_it(stage: Stage) -> None:
    await deployed(stage, "old", says("v1"))
    scheduler, _ = await deployed(stage, "new", says("v2"))
    await stage.store.register("worker", version="", queues=(), slots=1, jobs=(), release="new")
    await stage.store.retire(scheduler)
    _, applied = await deployed(stage, "old", says("v1"))
    assert applied.outdated == ["report"]


async def test_a_rollback_has_its_way_once_the_new_release_has_ended(stage: Stage) -> None:
    await deployed(stage, "old", says("v1"))
    newer, _ = await deployed(stage, "new", says("v2"))
    await stage.store.retire(newer)
    _, applied = await deployed(stage, "old", says("v1"))
    assert applied.changed == ["report"]
    assert await in_force(stage) == "v1"


async def test_a_rollback_has_its_way_once_the_new_release_has_been_silent_for_a_minute(stage: Stage) -> None:
    await deployed(stage, "old", says("v1"))
    newer, _ = await deployed(stage, "new", says("v2"))
    stage.clock.advance(MINUTE)
    await stage.store.beat(newer, [])
    stage.clock.advance(MINUTE)
    assert (await deployed(stage, "old", says("v1")))[1].outdated == ["report"]
    stage.clock.advance(1)
    assert (await deployed(stage, "old", says("v1")))[1].changed == ["report"]


async def test_after_a_rollback_the_new_release_can_be_deployed_again(stage: Stage) -> None:
    await deployed(stage, "old", says("v1"))
    newer, _ = await deployed(stage, "new", says("v2"))
    await stage.store.retire(newer)
    await deployed(stage, "old", says("v1"))
    _, applied = await deployed(stage, "new", says("v2"))
    assert applied.changed == ["report"]
    assert (await deployed(stage, "old", says("v1")))[1].outdated == ["report"]


async def test_a_newer_release_that_says_the_same_keeps_it_too(stage: Stage) -> None:
    await deployed(stage, "one", says("v1"))
    second, _ = await deployed(stage, "two", says("v2"))
    await deployed(stage, "three", says("v2"), says("w1", "other"))
    await stage.store.retire(second)
    _, applied = await deployed(stage, "one", says("v1"))
    assert applied.outdated == ["report"]


async def test_a_new_release_may_go_back_to_an_old_declaration_at_once(stage: Stage) -> None:
    await deployed(stage, "one", says("v1"))
    await deployed(stage, "two", says("v2"))
    _, applied = await deployed(stage, "three", says("v1"), says("w1", "other"))
    assert (applied.changed, applied.created, applied.outdated) == (["report"], ["other"], [])
    assert (await deployed(stage, "two", says("v2")))[1].outdated == ["report"]


async def test_what_a_newer_release_does_not_declare_is_the_older_ones(stage: Stage) -> None:
    """Two apps may share a store: each has its own schedules."""
    shop, _ = await deployed(stage, "shop 1", says("v1"))
    await stage.store.retire(shop)
    shop, _ = await deployed(stage, "shop 2", says("v2"))
    await deployed(stage, "mail 1", says("w1", "other"))
    await stage.store.retire(shop)
    _, applied = await deployed(stage, "shop 1", says("v1"))
    assert applied.changed == ["report"]


async def test_an_old_release_leaves_the_pending_run_of_a_newer_one_alone(stage: Stage) -> None:
    await deployed(stage, "old", says("v1"))
    await deployed(stage, "new", declared("report", START + 2 * HOUR, fingerprint="v2"))
    await deployed(stage, "old", says("v1"))
    [run] = await stage.waiting("report")
    assert (run.nominal, run.revision) == (START + 2 * HOUR, 2)


async def test_an_old_release_does_not_bring_back_what_a_newer_one_removed(stage: Stage) -> None:
    await deployed(stage, "old", says("v1"), says("w1", "other"))
    newer, applied = await deployed(stage, "new", says("v1"), prune=True)
    assert applied.pruned == ["other"]
    _, applied = await deployed(stage, "old", says("v1"), says("w1", "other"))
    assert (applied.outdated, applied.created) == (["other"], [])
    await stage.store.retire(newer)
    assert (await deployed(stage, "old", says("v1"), says("w1", "other")))[1].created == ["other"]


async def test_an_old_release_does_not_remove_what_a_newer_one_added(stage: Stage) -> None:
    await deployed(stage, "old", says("v1"))
    newer, _ = await deployed(stage, "new", says("v1"), says("w1", "other"))
    _, applied = await deployed(stage, "old", says("v1"), prune=True)
    assert (applied.vanished, applied.pruned) == (["other"], [])
    await stage.store.retire(newer)
    assert (await deployed(stage, "old", says("v1"), prune=True))[1].pruned == ["other"]


async def test_what_an_operator_removed_comes_back_with_the_code(stage: Stage) -> None:
    await deployed(stage, "old", says("v1"))
    await deployed(stage, "new", says("v2"))
    await stage.store.delete("report", actor="ana", note="by mistake")
    assert (await deployed(stage, "new", says("v2")))[1].created == ["report"]


async def test_a_pause_survives_releases_that_come_and_go(stage: Stage) -> None:
    await deployed(stage, "old", says("v1"))
    await stage.store.pause("report", until=None, actor="ana", note="holidays")
    newer, _ = await deployed(stage, "new", says("v2"))
    await stage.store.retire(newer)
    await deployed(stage, "old", says("v1"))
    schedule = (await stage.store.schedule("report")).schedule
    assert (schedule.fingerprint, schedule.paused_note) == ("v1", "holidays")


async def test_whoever_names_no_release_is_applied_as_ever(stage: Stage) -> None:
    await deployed(stage, "new", says("v2"))
    assert (await stage.apply(says("v1"))).changed == ["report"]


async def test_what_is_declared_otherwise_is_told_with_the_processes_that_do(stage: Stage) -> None:
    older, _ = await deployed(stage, "old", says("v1"))
    assert await stage.store.declared_otherwise("report") == []
    await deployed(stage, "new", says("v2"))
    [told] = await stage.store.declared_otherwise("report")
    assert told.startswith(f"scheduler {older} on ")
    await stage.store.retire(older)
    assert await stage.store.declared_otherwise("report") == []
    with pytest.raises(UnknownName):
        await stage.store.declared_otherwise("nothing")


async def test_what_is_in_force_is_told_by_who_stated_it(stage: Stage) -> None:
    await stage.apply(says("v1"))
    await stage.store.apply([says("w1", "line")], prune=False, actor="ana", source="crontab")
    assert await stage.store.fingerprints() == {"report": Fingerprint("v1", FORMAT, "v1")}
    assert await stage.store.fingerprints("crontab") == {"line": Fingerprint("w1", FORMAT, "w1")}


# --------------------------------------------------------------------------------------------------- formats of hashes


def in_format_0(one: Declaration) -> Declaration:
    """As a release states it that has no number of a format."""
    return replace(one, format=0, former=one.fingerprint)


async def test_a_release_with_another_name_and_the_same_hash_is_as_old_as_the_first(stage: Stage) -> None:
    await deployed(stage, Release("old", "h1"), says("v1"))
    await deployed(stage, Release("new", "h2"), says("v2"))
    for name in ("old", "old, written otherwise"):
        _, applied = await deployed(stage, Release(name, "h1"), says("v1"))
        assert (applied.outdated, applied.changed) == (["report"], []), name
    assert await in_force(stage) == "v2"


async def test_a_release_of_an_older_format_is_known_again_by_all_that_it_declares(stage: Stage) -> None:
    await deployed(stage, Release("old", "", 0), in_format_0(says("v1")))
    await deployed(stage, Release("new", "", 0), in_format_0(says("v1")), in_format_0(says("w1", "other")))
    again = replace(says("v1"), fingerprint="present", former="written otherwise")
    _, applied = await deployed(stage, Release("old, written otherwise", "h1"), again, prune=True)
    assert (applied.unchanged, applied.vanished, applied.pruned) == (["report"], ["other"], [])
    _, applied = await deployed(stage, Release("old", "", 0), in_format_0(says("v1")))
    assert applied.unchanged == ["report"], "the older one finds its own fingerprint"


async def test_a_declaration_in_an_older_format_is_compared_by_content_and_takes_the_present_one(stage: Stage) -> None:
    await deployed(stage, "old", in_format_0(says("v1")), in_format_0(says("v1", "other")))
    present = [replace(says("v1", name), fingerprint="present", former="unknown") for name in ("report", "other")]
    _, applied = await deployed(stage, "new", present[0], replace(present[1], queue="q"))
    assert (applied.unchanged, applied.changed) == (["report"], ["other"])
    found = await stage.store.fingerprints()
    assert found == {"report": Fingerprint("present", FORMAT, "v1"), "other": Fingerprint("present", FORMAT, "unknown")}
    assert (await stage.store.schedule("report")).schedule.revision == 1
    _, applied = await deployed(stage, "new", *(replace(one, fingerprint="changed") for one in present))
    assert applied.changed == ["report", "other"], "in one format the hash decides"


async def test_an_edit_keeps_the_format_of_the_declaration_that_was_applied(stage: Stage) -> None:
    await deployed(stage, "old", in_format_0(says("v1")))
    edited = replace(says("edited"), former="edited too")
    await stage.store.edit(edited, 1, fields=["rule"], actor="ana", note="sooner")
    assert await stage.store.fingerprints() == {"report": Fingerprint("v1", 0, "v1")}
    again = replace(says("v1"), fingerprint="present", former="unknown")
    _, applied = await deployed(stage, "new", again)
    assert (applied.unchanged, applied.overwritten) == (["report"], [])
    view = await stage.store.schedule("report")
    assert (view.schedule.rule, view.schedule.revision) == (edited.rule, 2)
    assert view.edit is not None


async def test_a_release_that_writes_the_same_declaration_otherwise_keeps_it_and_is_no_drift(stage: Stage) -> None:
    await deployed(stage, Release("one", "h1"), replace(says("v1"), former="a,b"))
    same = replace(says("v1"), former="b,a")
    _, applied = await deployed(stage, Release("two", "h2"), same, says("w1", "other"))
    assert applied.unchanged == ["report"]
    assert await stage.store.declared_otherwise("report") == []
    _, applied = await deployed(stage, Release("one", "h1"), says("v0"))
    assert (applied.outdated, applied.changed) == (["report"], [])
    assert await in_force(stage) == "v1"


async def test_an_edit_of_what_a_newer_release_declares_is_not_adopted_by_an_older_one(stage: Stage) -> None:
    """The content cannot show it: the field that they declare otherwise is the one that was edited."""
    await deployed(stage, "old", in_format_0(says("v1")))
    newer, _ = await deployed(stage, "new", in_format_0(says("v2")))
    await stage.store.edit(says("edited"), 2, fields=["rule"], actor="ana", note="sooner")
    again = replace(says("v1"), fingerprint="present", former="unknown")
    _, applied = await deployed(stage, "old", again)
    assert (applied.outdated, applied.unchanged, applied.changed) == (["report"], [], [])
    assert await stage.store.fingerprints() == {"report": Fingerprint("v2", 0, "v2")}
    await stage.store.retire(newer)
    _, applied = await deployed(stage, "old", again)
    assert (applied.unchanged, applied.overwritten) == (["report"], [])


async def test_a_newer_format_is_left_as_it_is_where_the_declaration_is_the_same(stage: Stage) -> None:
    newer = replace(says("v1"), fingerprint="newer", format=FORMAT + 1, former="common")
    await deployed(stage, "new", newer)
    _, applied = await deployed(stage, "old", replace(says("v1"), fingerprint="present", former="common"))
    assert applied.unchanged == ["report"]
    assert await stage.store.fingerprints() == {"report": Fingerprint("newer", FORMAT + 1, "common")}


# ------------------------------------------------------------------------------------------------- jobs of one release


async def of_release(stage: Stage, *jobs: str) -> int:
    cards = [JobCard(name, b"{}", DEFAULT_QUEUE) for name in jobs]
    instance = await stage.store.register("worker", version="", queues=[DEFAULT_QUEUE], slots=10, jobs=cards)
    return instance.number


async def test_a_worker_of_the_old_release_never_gets_a_run_of_a_job_that_only_the_new_one_knows(stage: Stage) -> None:
    old = await of_release(stage, "greet")
    await stage.promise("new:1", job="thank")
    await stage.promise("old:1", job="greet")
    await stage.fire()
    for _ in range(3):
        claimed = await stage.claim(worker=old, jobs=["greet"])
        assert [run.id for run in claimed if run.job == "thank"] == []
    new = await of_release(stage, "greet", "thank")
    [run] = await stage.claim(worker=new, jobs=["greet", "thank"])
    assert (run.id, run.attempt) == ("new:1#1", 1)


async def test_a_run_that_waits_for_the_new_release_costs_nothing_and_is_reported(stage: Stage) -> None:
    old = await of_release(stage, "greet")
    kept = await stage.promise("new:1", job="thank")
    await stage.fire()
    stage.clock.advance(5 * MINUTE)
    await stage.store.beat(old, [])
    await stage.claim(worker=old, jobs=["greet"])
    assert [event.subject for event in await stage.events("unknown_job")] == ["thank"]
    view = await stage.run(kept)
    assert (view.attempt, list(view.attempts)) == (0, [])
