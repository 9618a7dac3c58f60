"""Who is there, who owns what, what waits where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foliot.domain.instant import Duration, Instant
from foliot.domain.overview import Holding
from foliot.domain.store import ALIVE, Duty, Instance
from foliot.operate.fleet import queue_shape
from foliot.operate.limits import limit_shape
from foliot.operate.shapes import instance_shape
from foliot.operate.tenants import tenant_shape
from foliot.operate.words import counted
from foliot.web.caller import Caller


async def fleet_page(caller: Caller) -> dict[str, Any]:
    operate = caller.operate
    seen = await operate.overview_async()
    pauses = {one.name for one in await operate.pauses_async()}
    return {
        "heading": "Fleet",
        "shards_words": seen.scheduling.what,
        "schedulers": [_instance(one, seen.pulse.now, seen.pulse.holdings) for one in seen.schedulers],
        "workers": [_instance(one, seen.pulse.now) | {"acts": _worker_acts(one)} for one in seen.workers],
        "queues": [
            queue_shape(one) | {"paused": f"queue:{one.queue}" in pauses} for one in await operate.queues_async()
        ],
        "tenants": [tenant_shape(one) for one in (await operate.tenants_async())[:20]],
        "limits": [limit_shape(one) | {"allows": _allows(limit_shape(one))} for one in await operate.limits_async()],
    }


def _instance(one: Instance, now: Instant, holdings: Sequence[Holding] = ()) -> dict[str, Any]:
    low, high = one.offset_low, one.offset_high
    clock = "store clock" if low is None or high is None else f"{_offset(low)} to {_offset(high)}"
    return instance_shape(one) | {
        "host": one.host.split(" ")[0],
        "alive": now - one.beat_at < ALIVE,
        "fenced": one.fenced,
        "clock": clock,
        "wish": getattr(one, "wish", None),
        "holds": _holds([each for each in holdings if each.owner == one.number]),
    }


def _offset(of: Duration) -> str:
    return f"{of / 1000:+.1f} ms"


def _holds(holdings: Sequence[Holding]) -> str:
    shards = [one.shard for one in holdings if one.shard >= 0]
    duties = [Duty(one.shard).name.lower() for one in holdings if one.shard < 0]
    said = [counted(len(shards), "shard")] if shards else []
    return ", ".join(said + ([f"duties: {', '.join(duties)}"] if duties else [])) or "none"


def _worker_acts(one: Instance) -> list[dict[str, str]]:
    at = f"/act/workers/{one.number}"
    if getattr(one, "wish", None):
        return [{"href": f"{at}/resume", "text": "Resume…", "kind": "safe"}]
    return [
        {"href": f"{at}/drain", "text": "Drain…", "kind": ""},
        {"href": f"{at}/quarantine", "text": "Quarantine…", "kind": ""},
    ]


def _allows(shape: dict[str, Any]) -> str:
    said = [] if shape["concurrency"] is None else [f"{shape['concurrency']:,} concurrent"]
    said += [] if shape["rate"] is None else [str(shape["rate"])]
    said += [] if shape["weight"] in (None, 1) else [f"weight {shape['weight']:g}"]
    return ", ".join(said) or "no limit"
