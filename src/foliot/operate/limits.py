"""Limits: how many at a time, and how many in a time. Who changes one says why; runs that wait for it go at once."""

from __future__ import annotations

from dataclasses import replace

from foliot.domain.gates import Gate, GateView, Rate, stated_gate
from foliot.domain.identity import checked_line
from foliot.domain.run import Kept, RunView
from foliot.domain.state import Reason, State
from foliot.operate.acting import Acting, acting, stated
from foliot.operate.advising import told_detail
from foliot.operate.shapes import Shape, moment


class LimitVerbs(Acting):
    """Limit, unlimit, release: what is held back, and who is let go all the same."""

    async def limit_async(
        self,
        name: str,
        *,
        reason: str,
        actor: str,
        concurrency: int | None = None,
        rate: str | None = None,
        burst: int | None = None,
        weight: float | None = None,
    ) -> Gate:
        """Says what is allowed of a job, tenant, queue, schedule, destination or lane (see `foliot.app.Foliot.limit`).

        What is not given stays as it is. From then on an operator's word holds, whatever code says, until `unlimit`.
        """
        store, who, why = await self._opened(), acting(actor), stated(reason)
        given = stated_gate(name, concurrency=concurrency, rate=rate, burst=burst, weight=weight, note=why)
        known = next((view.gate for view in await store.limits() if view.gate.name == name), Gate(name))
        gate = replace(
            given,
            most=known.most if given.most is None else given.most,
            every=known.every if given.every is None else given.every,
            burst=known.burst if given.every is None else given.burst,
            weight=known.weight if given.weight is None else given.weight,
        )
        await store.set_limit(gate, actor=who)
        return gate

    def limit(
        self,
        name: str,
        *,
        reason: str,
        actor: str,
        concurrency: int | None = None,
        rate: str | None = None,
        burst: int | None = None,
        weight: float | None = None,
    ) -> Gate:
        return self._call(
            lambda: self.limit_async(
                name, reason=reason, actor=actor, concurrency=concurrency, rate=rate, burst=burst, weight=weight
            ),
            "limit_async",
        )

    async def unlimit_async(self, name: str, *, reason: str, actor: str) -> None:
        """Lifts a limit; whoever waits for it goes. What code declares comes back when a process of it starts.
        `breaker:X` closes the circuit breaker of a destination."""
        store, who, why = await self._opened(), acting(actor), stated(reason)
        await store.drop_limit(checked_line(name, "name"), actor=who, note=why)

    def unlimit(self, name: str, *, reason: str, actor: str) -> None:
        self._call(lambda: self.unlimit_async(name, reason=reason, actor=actor), "unlimit_async")

    async def limits_async(self) -> list[GateView]:
        """All limits by name, with who has and who waits; and keys that runs have or wait for."""
        return await (await self._opened()).limits()

    def limits(self) -> list[GateView]:
        return self._call(self.limits_async, "limits_async")

    async def release_async(self, run: str, *, reason: str, actor: str) -> Kept:
        """Lets one run go that is held, against overlap, key and limits."""
        return await (await self._opened()).release_run(run, actor=acting(actor), note=stated(reason))

    def release(self, run: str, *, reason: str, actor: str) -> Kept:
        return self._call(lambda: self.release_async(run, reason=reason, actor=actor), "release_async")


def gate_shape(gate: Gate) -> Shape:
    return {
        "name": gate.name,
        "concurrency": gate.most,
        "rate": None if gate.every is None else str(Rate(gate.every)),
        "burst": gate.burst,
        "weight": gate.weight,
        "source": gate.source,
        "note": gate.note or None,
    }


def limit_shape(view: GateView) -> Shape:
    """A limit, and how it stands."""
    changed = moment(view.gate.changed_at) if view.gate.changed_at else None
    return gate_shape(view.gate) | {"used": view.used, "waiting": view.waiting, "changed_at": changed}


def held_words(view: RunView) -> str | None:
    """What a run that is held waits for, in words; None for one that is not."""
    if view.state is not State.HELD:
        return None
    told = told_detail(view.detail)
    if told.startswith("waits "):
        return told
    until = " until it is resumed" if view.reason == Reason.PAUSED and " until " not in told else ""
    return f"waits{until}: {told or view.reason}"
