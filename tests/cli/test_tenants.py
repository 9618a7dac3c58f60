"""`foliot tenants`, while one of them floods."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from foliot import bootstrap
from foliot.clock import SystemClock
from foliot.domain.run import Promise
from tests.cli.support import run, run_json
from tests.contract.stage import Stage


@pytest.fixture
def flooded(tmp_path: Path) -> str:
    """The URL of a store in which `acme` has 300 runs waiting, and others a few."""
    url = f"sqlite:///{tmp_path}/flooded.db"
    asyncio.run(_flood(url))
    return url


async def _flood(url: str) -> None:
    store = bootstrap.make_store(url)
    await store.open()
    stage = Stage(store, SystemClock())  # type: ignore[arg-type]
    for tenant, count in (("acme", 300), ("globex", 3), (None, 2)):
        await store.promise([Promise("job", b"{}", stage.now, tenant=tenant) for _ in range(count)])
    lease = await stage.lease()
    due = await stage.loaded(lease)
    await store.fire([lease], due, lease.cursor, lambda facts, now: [])
    await stage.claim(5)
    await store.close()


def test_tenants_are_listed_by_what_waits_and_who_floods_is_marked(flooded: str) -> None:
    listed = run_json("tenants", "--store", flooded)
    assert listed[0]["tenant"] == "acme"
    assert {shape["tenant"]: shape["floods"] for shape in listed} == {"acme": True, "globex": False, None: False}
    assert sum(shape["waiting"] for shape in listed) == 300
    assert sum(shape["running"] for shape in listed) == 5
    shown = run("tenants", "--store", flooded).stdout
    assert "floods" in shown
    assert "(none)" in shown


def test_the_list_says_how_many_it_leaves_out(flooded: str) -> None:
    assert len(run_json("tenants", "--limit", "1", "--store", flooded)) == 1
    assert "2 tenants more" in run("tenants", "--limit", "1", "--store", flooded).stdout


def test_a_store_that_is_idle_has_nothing_to_tell(store: str) -> None:
    assert run_json("tenants", "--store", store) == []
    assert "no waiting or running runs" in run("tenants", "--store", store).stdout
