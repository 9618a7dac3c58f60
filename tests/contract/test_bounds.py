"""Claims of workers whose tokens are bound to jobs, queues and a tenant."""

from __future__ import annotations

import pytest

from foliot.domain.access import NewToken, Scope, WorkBound, hashed
from foliot.domain.audit import AuditFilter
from foliot.domain.state import State
from foliot.store.verbs import working
from tests.contract.stage import Stage

ACME = WorkBound(("job",), tenant="acme")


async def _claimed(stage: Stage, bound: WorkBound, limit: int = 100, *jobs: str) -> list[str]:
    known = jobs or ["job", "other"]
    found = await stage.store.claim_within(await stage.worker(), bound, ["default", "gpu"], known, limit)
    return [run.id for run in found]


async def test_a_bound_claim_takes_the_runs_of_its_tenant_and_leaves_the_others_in_their_order(stage: Stage) -> None:
    for key, tenant in (("a", "acme"), ("b", "globex"), ("c", "acme"), ("d", None), ("e", "globex")):
        await stage.promise(key, tenant=tenant)
    await stage.fire()
    assert await _claimed(stage, ACME, 1) == ["a[acme]#1"]
    assert await _claimed(stage, ACME._replace(tenant="nobody")) == []
    assert await _claimed(stage, ACME) == ["c[acme]#1"]
    assert await _claimed(stage, ACME) == []
    assert await _claimed(stage, WorkBound(("job",))) == ["d#1"], "runs without a tenant"
    assert await _claimed(stage, WorkBound(("job",), all_tenants=True)) == ["b[globex]#1", "e[globex]#1"]


async def test_a_bound_claim_takes_its_jobs_and_queues_alone(stage: Stage) -> None:
    await stage.promise("a")
    await stage.promise("b", job="other")
    await stage.promise("c", queue="gpu")
    await stage.promise("d", job="other", queue="gpu")
    await stage.fire()
    assert await _claimed(stage, WorkBound(("other",), ("gpu",))) == ["d#1"]
    assert await _claimed(stage, WorkBound((), ("gpu",))) == ["c#1"]
    assert await _claimed(stage, WorkBound(("other",), all_tenants=True)) == ["b#1"]
    assert await _claimed(stage, WorkBound(("job",))) == ["a#1"]


async def test_a_bound_claim_reaches_its_runs_behind_any_number_of_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "_CHUNKS_AT_ONCE", 2)
    for number in range(4):  # a chunk each
        await stage.promise(f"other-{number}", tenant="globex")
        await stage.fire()
    await stage.promise("mine", tenant="acme")
    await stage.fire()
    assert await _claimed(stage, ACME, 1) == ["mine[acme]#1"]


async def test_a_bound_claim_passes_over_what_was_cancelled_and_what_its_worker_does_not_know(stage: Stage) -> None:
    await stage.promise("gone", tenant="acme")
    await stage.promise("strange", job="strange", tenant="acme")
    await stage.promise("mine", tenant="acme")
    await stage.fire()
    await stage.store.cancel("gone[acme]#1", actor="ana", note="why")
    assert await _claimed(stage, ACME) == ["mine[acme]#1"]
    assert await _claimed(stage, ACME) == []
    assert (await stage.state("gone[acme]#1"), await stage.state("strange[acme]#1")) == (State.CANCELLED, State.READY)
    assert await _claimed(stage, WorkBound((), ("default",), "acme"), 1, "strange") == ["strange[acme]#1"]


async def test_a_run_that_a_bound_claim_took_ends_as_others_do(stage: Stage) -> None:
    await stage.promise("a", tenant="acme")
    await stage.promise("b", tenant="globex")
    await stage.fire()
    [mine] = await stage.store.claim_within(await stage.worker(), ACME, ["default"], ["job"], 5)
    [held] = await stage.store.attempts_of(await stage.worker())
    assert (held.job, held.tenant, held.queue, held.token) == ("job", "acme", None, mine.token)
    assert await stage.finish(stage.succeeded(mine)) == []
    assert await stage.state(mine) is State.SUCCEEDED
    assert [run.id for run in await stage.claim()] == ["b[globex]#1"]


async def test_a_tokens_bound_is_stored_and_written_down(stage: Stage) -> None:
    store = stage.store
    wanted = NewToken("resizer", hashed("x"), Scope.WORK, "acme", None, ("resize", "crop"), ("gpu",), False)
    made = await store.add_token(wanted, actor="ana", note="why")
    assert made.bound == WorkBound(("resize", "crop"), ("gpu",), "acme")
    assert await store.token(hashed("x")) == made
    [row] = await store.audit(AuditFilter(subject="token:resizer"))
    assert row.row is not None
    assert row.row.note == "why (jobs resize, crop, queues gpu, tenant acme)"
    old = await store.add_token(NewToken("old", hashed("y"), Scope.WORK, None, None), actor="ana", note="why")
    assert old.bound is None, "older releases name no jobs"
