"""Limits that are changed while runs have them: nobody is counted twice, and nobody is forgotten."""

from __future__ import annotations

from collections import Counter

from foliot.domain.gates import Gate, GateView
from foliot.domain.instant import HOUR
from foliot.domain.policy import Policy, policy_to_json
from foliot.domain.run import Lane, Promise
from foliot.domain.store import JobCard
from tests.contract.stage import Stage


async def _promised(stage: Stage, count: int, tenant: str | None = None) -> None:
    for _ in range(count):
        await stage.promise(tenant=tenant)


async def _limits(stage: Stage) -> dict[str, GateView]:
    return {view.gate.name: view for view in await stage.store.limits()}


async def _register(stage: Stage, **settings: int) -> None:
    card = JobCard("job", policy_to_json(Policy(**settings)), "default")  # type: ignore[arg-type]
    await stage.store.register("worker", version="", queues=["default"], slots=1, jobs=[card])


async def test_a_limit_that_is_set_again_counts_those_that_had_a_slot_before(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=2), actor="ana")
    await _promised(stage, 2)
    await stage.fire()
    running = await stage.claim()
    await stage.store.drop_limit("job:job", actor="ana", note="")
    assert await _limits(stage) == {}
    await stage.store.set_limit(Gate("job:job", most=2), actor="ana")
    await _promised(stage, 4)
    await stage.fire()
    assert await stage.claim() == []
    for run in running:
        await stage.finish(stage.succeeded(run))
    await stage.fire()
    assert len(await stage.claim()) == 2
    assert (await _limits(stage))["job:job"][1:] == (2, 2)


async def test_a_limit_of_each_tenant_that_is_changed_leaves_a_tenants_own_alone(stage: Stage) -> None:
    await stage.store.set_limit(Gate("tenant:*", most=1), actor="ana")
    await stage.store.set_limit(Gate("tenant:acme", most=1), actor="ana")
    await _promised(stage, 3, "acme")
    await _promised(stage, 3, "bolt")
    await stage.fire()
    assert len(await stage.claim()) == 2
    await stage.store.set_limit(Gate("tenant:*", most=3), actor="ana")
    await stage.fire()
    assert [run.tenant for run in await stage.claim()] == ["bolt", "bolt"]
    await stage.store.drop_limit("tenant:*", actor="ana", note="")
    await stage.fire()
    assert await stage.claim() == []


async def test_each_tenant_may_be_limited_in_a_lane_and_is_listed_with_what_it_has(stage: Stage) -> None:
    await stage.store.set_limit(Gate("lane:catch-up/tenant:*", most=1), actor="ana")
    await stage.store.set_limit(Gate("lane:catch-up/tenant:acme", most=2), actor="ana")
    for tenant in ("acme", "bolt"):
        await stage.store.promise([Promise("job", b"{}", stage.now - HOUR, tenant=tenant) for _ in range(3)])
        await stage.promise(tenant=tenant)
    await stage.fire()
    claimed = await stage.claim()
    assert Counter((run.tenant, run.lane) for run in claimed) == {
        ("acme", Lane.LIVE): 1,
        ("bolt", Lane.LIVE): 1,
        ("acme", Lane.CATCH_UP): 2,
        ("bolt", Lane.CATCH_UP): 1,
    }
    view = (await _limits(stage))["lane:catch-up/tenant:bolt"]
    assert (view.gate.most, view.gate.source, view.used, view.waiting) == (1, "lane:catch-up/tenant:*", 1, 2)
    await stage.store.set_limit(Gate("lane:catch-up/tenant:*", most=3), actor="ana")
    await stage.fire()
    assert [run.tenant for run in await stage.claim()] == ["bolt", "bolt"]


async def test_a_tenant_of_which_only_the_weight_is_said_is_limited_like_each(stage: Stage) -> None:
    await stage.store.set_limit(Gate("tenant:*", most=1), actor="ana")
    await stage.store.set_limit(Gate("tenant:acme", weight=2.0), actor="ana")
    await _promised(stage, 3, "acme")
    await stage.fire()
    assert len(await stage.claim()) == 1


async def test_tenants_under_a_limit_of_each_are_listed_with_what_they_have(stage: Stage) -> None:
    await stage.store.set_limit(Gate("tenant:*", most=2), actor="ana")
    await _promised(stage, 3, "acme")
    await stage.fire()
    view = (await _limits(stage))["tenant:acme"]
    assert (view.gate.most, view.gate.source, view.used, view.waiting) == (2, "tenant:*", 2, 1)


async def test_what_an_app_says_of_a_job_outlives_a_start_of_a_worker_whose_job_says_nothing(stage: Stage) -> None:
    await stage.store.declare_limits([Gate("job:job", most=5, source="code")])
    await _register(stage)
    await _register(stage, concurrency=9)
    assert (await _limits(stage))["job:job"].gate.most == 5


async def test_what_a_job_says_of_itself_goes_when_it_no_longer_says_so(stage: Stage) -> None:
    await _register(stage, concurrency=9)
    gate = (await _limits(stage))["job:job"].gate
    assert (gate.most, gate.source) == (9, "job")
    await _register(stage)
    assert await _limits(stage) == {}


async def test_what_an_app_no_longer_says_stays_in_force_and_is_noted_until_it_is_said_again(stage: Stage) -> None:
    said = [Gate("job:job", most=1, source="code"), Gate("queue:default", most=9, source="code")]
    await stage.store.set_limit(Gate("tenant:acme", most=3, note="they asked"), actor="ana")

    async def notes() -> dict[str, str]:
        return {name: view.gate.note for name, view in (await _limits(stage)).items()}

    await stage.store.declare_limits(said)
    await stage.store.declare_limits(said[:1])
    assert await notes() == {"job:job": "", "queue:default": "no longer declared", "tenant:acme": "they asked"}
    await stage.store.declare_limits([])
    assert (await notes())["job:job"] == "no longer declared"
    await _promised(stage, 2)
    await stage.fire()
    assert len(await stage.claim()) == 1
    await stage.store.declare_limits(said)
    assert await notes() == {"job:job": "", "queue:default": "", "tenant:acme": "they asked"}


async def test_a_limit_of_a_job_that_no_live_worker_knows_is_noted(stage: Stage) -> None:
    await _register(stage, concurrency=9)
    assert (await _limits(stage))["job:job"].gate.note == ""
    for instance in await stage.store.instances():
        await stage.store.retire(instance.number)
    assert (await _limits(stage))["job:job"].gate.note == "", "there is nobody who could know it"
    await stage.register("worker", jobs=["other"])
    assert (await _limits(stage))["job:job"].gate.note == "no longer declared"


async def test_a_limit_of_nobody_holds_everybody(stage: Stage) -> None:
    await stage.store.set_limit(Gate("job:job", most=0), actor="ana")
    await _promised(stage, 2)
    await stage.fire()
    assert await stage.claim() == []
    await stage.store.set_limit(Gate("job:job", most=1), actor="ana")
    await stage.fire()
    assert len(await stage.claim()) == 1
