"""Slots and limits: who may go, and who waits for what. See `foliot.domain.gates` for the decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import msgspec

from foliot.domain.breaker import BREAKER, Breaker, breaker_slot
from foliot.domain.gates import (
    GO,
    KEY,
    RATE,
    Gate,
    GateView,
    Need,
    Taken,
    Verdict,
    admit,
    admit_all,
    each_of,
    gate_names,
    held_until_its_end,
    in_words,
    kept,
    key_slot,
    needs,
    rate_need,
    slotted,
    waiting_for,
)
from foliot.domain.identity import made_at
from foliot.domain.instant import Duration, Instant, rfc3339
from foliot.domain.pauses import SLOT as PAUSE
from foliot.domain.pauses import Pause, What, holding
from foliot.domain.policy import Policy, choices_from_json, policy_from_json, wants_of
from foliot.domain.run import Kept, Lane
from foliot.domain.state import Event, Reason, State, after
from foliot.domain.store import ALIVE, DEFAULT_QUEUE
from foliot.errors import Conflict, InvalidInput, UnknownName
from foliot.store.verbs import breakers, pausing
from foliot.store.verbs.promises import by_id
from foliot.store.verbs.transaction import Row, Transaction, as_json

_PROBE = breaker_slot("")

UNDECLARED = "no longer declared"


class Candidate(NamedTuple):
    """A run that is due, and may go as far as its schedule is concerned."""

    number: int
    job: str
    tenant: str | None
    queue: str | None
    schedule: str | None
    lane: Lane
    options: bytes | None
    slots: str | None
    forced: bool
    due_at: Instant
    """When it was first due."""
    tried: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """The slots that a run needs, in the order in which they are locked. Runs that are alike share one of these."""

    needs: Sequence[Need] = ()
    held: str | None = None
    """Those that it has until it ends, as they are stored."""
    is_probe: bool | None = None

    @classmethod
    def of(cls, needed: Iterable[Need]) -> Asked:
        ordered = sorted(needed)
        is_probe = any(need.name.startswith(_PROBE) for need in ordered)
        return cls(ordered, _stored(held_until_its_end(ordered)), is_probe or None)


_NOTHING = Asked()


@lru_cache(maxsize=10_000)
def _by_key(key: str, limit: int, tenant: str | None) -> Asked:
    return Asked.of([Need(key_slot(key, tenant), limit)])


def gate_of(row: Row) -> Gate:
    return Gate(*row)


class Gatekeeper:
    """Lets runs of one firing transaction through, or has them wait."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._gates: dict[str, Gate] | None = None
        self._lanes: frozenset[Lane] = frozenset()
        self._breakers: dict[str, Breaker] = {}
        self._known: dict[tuple[object, ...], Asked] = {}
        """By the fields that decide: the runs of a batch are much alike."""
        self._pauses: list[Pause] | None = None
        self._holding: list[Pause] = []
        self.held_for: Counter[str] = Counter()
        """By reason, how many have to wait."""
        self.busy: set[int] = set()
        """Runs of which another transaction has locked a slot: neither handed off nor held, and to be tried again."""

    async def pauses(self) -> list[Pause]:
        """All that are, read once."""
        if self._pauses is None:
            self._pauses = await pausing.in_the_way(self._tx)
            self._holding = [one for one in self._pauses if one.what is not What.CREATION]
        return self._pauses

    async def limits(self) -> frozenset[Lane]:
        """The lanes in which anything is limited but by the runs' own keys."""
        await self.pauses()
        if self._gates is None:
            found = [slotted(gate_of(row)) for row in await self._tx.all("gates_now")]
            self._gates = {gate.name: gate for gate in found if gate.limits}
            self._lanes = _limited_lanes(self._gates)
            self._breakers = await breakers.open_breakers(self._tx)
            self._lanes |= frozenset(Lane) if self._holding else frozenset()
        return self._lanes

    async def let_through(self, candidates: Sequence[Candidate]) -> set[int]:
        """The numbers of those that may be handed off. The others are held from now on, or have a later time."""
        await self.limits()
        paused = self._paused(candidates)
        pairs = [(one, _NOTHING if one.number in paused else self._asked(one)) for one in candidates]
        limited = [pair for pair in pairs if pair[1].needs or pair[0].slots is not None or pair[0].number in paused]
        through = {one.number for one in candidates}.difference(one.number for one, _ in limited)
        limited, needed = await self._free(limited)
        if not limited:
            return through
        board = await self._tx.lock_needed(needed)
        before = {name: taken.used for name, taken in board.items()}
        if not paused and self._admit_all(limited, board):
            verdicts = [GO] * len(limited)
        else:
            given_up: Counter[str] = Counter()
            verdicts = [
                paused.get(one.number) or self._judge_with(given_up, one, asked.needs, board) for one, asked in limited
            ]
        await self._tx.run_each(
            "slot_taken", [(taken.used - before[name], taken.tat, name) for name, taken in board.items()]
        )
        await self._write(limited, verdicts)
        had = {name for one, _ in limited if one.slots is not None for name in _names(one.slots)}
        await self._tx.let_in(board.keys() | had)
        return through.union(one.number for (one, _), verdict in zip(limited, verdicts, strict=True) if verdict.goes)

    async def is_any_paused(self) -> bool:
        """Whether a pause may hold runs."""
        await self.pauses()
        return bool(self._holding)

    async def has_all(self, one: Candidate) -> bool:
        """Whether a run has all slots that it needs, by the limits and breakers of now."""
        await self.limits()
        has = _names(one.slots)
        return all(need.name in has for need in self._asked(one).needs)

    async def needs_only(self, one: Candidate, slot: str) -> bool:
        """Whether this slot is all that a run needs."""
        await self.limits()
        return [need.name for need in self._asked(one).needs] == [slot]

    def _admit_all(self, limited: Sequence[tuple[Candidate, Asked]], board: dict[str, Taken]) -> bool:
        """Takes the slots of all of these, if there is room for all."""
        if any(one.forced for one, _ in limited):
            return False
        wanted: list[tuple[Need, int]] = []
        for asked, count in Counter(asked for one, asked in limited if one.slots is None).items():
            wanted += [(need, count) for need in asked.needs]
        for one, asked in limited:
            if one.slots is not None:
                has = _names(one.slots)
                wanted += [(need, 1) for need in asked.needs if need.name not in has]
        return admit_all(wanted, board, self._tx.now)

    def _paused(self, candidates: Sequence[Candidate]) -> dict[int, Verdict]:
        """What a pause holds takes no slot, and gives up those that it has but for its key."""
        found = {}
        for one in candidates if self._holding else ():
            names = gate_names(
                job=one.job,
                tenant=one.tenant,
                queue=one.queue or DEFAULT_QUEUE,
                schedule=one.schedule,
                destination=None,
                lane="live",
            )
            pause = None if one.forced else holding(self._holding, names, one.tried, self._tx.now)
            if pause is not None:
                found[one.number] = Verdict(pause.slot, pause.until, pause.words)
        return found

    async def _free(
        self, limited: list[tuple[Candidate, Asked]]
    ) -> tuple[list[tuple[Candidate, Asked]], Sequence[Need]]:
        """Without those whose slots another transaction has locked: firing does not wait for that. And what the others
        need."""
        needed = _distinct(limited)
        locked = set(await self._tx.lock_free_slots([need.name for need in needed])) if needed else set()
        if not locked:
            return limited, needed
        self.busy |= {one.number for one, asked in limited if any(need.name in locked for need in asked.needs)}
        free = [pair for pair in limited if pair[0].number not in self.busy]
        return free, _distinct(free)

    def _asked(self, one: Candidate) -> Asked:
        wants = wants_of(one.options)
        about = (one.job, one.tenant, one.queue, one.schedule, one.lane, wants.destination)
        limits = self._known.get(about)
        if limits is None:
            limits = self._known[about] = Asked.of(self._limits_of(one, wants.destination))
        if wants.key is None:
            return limits
        by_key = _by_key(wants.key, wants.key_limit, one.tenant)
        return by_key if not limits.needs else Asked.of([*limits.needs, *by_key.needs])

    def _limits_of(self, one: Candidate, destination: str | None) -> list[Need]:
        """The slots of limits and breakers, without the run's own key."""
        assert self._gates is not None
        broken = None if destination is None else self._breakers.get(destination)
        probe = [] if destination is None or broken is None else [breakers.probe_need(destination, broken)]
        if not self._gates:
            return probe
        names = gate_names(
            job=one.job,
            tenant=one.tenant,
            queue=one.queue or DEFAULT_QUEUE,
            schedule=one.schedule,
            destination=destination,
            lane=str(one.lane),
        )
        return needs(self._gates, names) + probe

    def _judge_with(
        self, given_up: Counter[str], one: Candidate, wanted: Sequence[Need], board: dict[str, Taken]
    ) -> Verdict:
        """Judges a run. One that was let in may take slots that others of the batch, which were let in, give up.

        Otherwise two runs that need the same two slots, and were let in at one each, would swap these for ever."""
        if one.slots is None:
            return self._judge(one, frozenset(), wanted, board)
        has = frozenset(_names(one.slots))
        spare = {name: count for name, count in given_up.items() if name in board}
        for name, count in spare.items():
            board[name].used -= count
        verdict = self._judge(one, has, wanted, board)
        for name, count in spare.items():
            board[name].used += count
        after = set(_slots_after(one, verdict, wanted))
        given_up -= Counter(after & spare.keys() - has)
        given_up += Counter(name for name in has - after if not name.startswith(RATE))
        return verdict

    def _judge(self, one: Candidate, has: frozenset[str], wanted: Sequence[Need], board: dict[str, Taken]) -> Verdict:
        if not one.forced:
            return admit(wanted, has, board, self._tx.now)
        for need in wanted:
            board[need.name].used += need.every is None and need.name not in has
        return GO

    async def _write(self, limited: Sequence[tuple[Candidate, Asked]], verdicts: Sequence[Verdict]) -> None:
        """Slots that a run gives up with this are set free by the store, for those that wait."""
        goes: list[Row] = []
        waits: list[Row] = []
        later: list[Row] = []
        hopeful: list[Candidate] = []
        words: dict[str, str] = {}
        for (one, asked), verdict in zip(limited, verdicts, strict=True):
            slot = verdict.waits_for
            if slot is None:
                goes.append((asked.held, asked.is_probe, one.number))
                continue
            if slot not in words:
                words[slot] = f"waits for {waiting_for(slot)}"
            if slot.startswith(_PROBE):
                hopeful.append(one)
            slots = _stored(_slots_after(one, verdict, asked.needs))
            if verdict.at is None:
                detail = verdict.detail or words[slot]
                waits.append((slots, slot, _reason(slot), detail, one.lane, one.number))
            else:
                detail = verdict.detail or f"{words[slot]}: {rfc3339(verdict.at)}"
                later.append((slots, slot, _reason(slot), detail, one.lane, one.number, verdict.at))
        await self._tx.run_each("run_goes", goes)
        await self._tx.run_each("run_waits", waits)
        await self._tx.run_each("run_goes_later", later)
        await self._tx.stir([row[5] for row in later])
        await self._set_deadlines(hopeful)
        self.held_for.update(str(one[2]) for one in (*waits, *later))

    async def _set_deadlines(self, held: Sequence[Candidate]) -> None:
        """A run that waits for its destination to answer gives up when it is too old, as one would that is tried."""
        if not held:
            return
        jobs = {row[0]: row[1] for row in await self._tx.all("all_jobs")}
        deadlines = []
        for one in held:
            patience = _patience(jobs.get(one.job), one.options)
            if patience is not None:
                # What repeats or makes up for an old tick is as old as itself.
                deadlines.append((max(one.due_at, made_at(one.number)) + patience, one.number))
        await self._tx.run_each("set_give_up", deadlines)


def _distinct(limited: Iterable[tuple[Candidate, Asked]]) -> list[Need]:
    """In the order in which they are locked, one for each slot. Of two limits of one key, the higher one counts."""
    kinds = {asked for _, asked in limited}
    return list({need.name: need for need in sorted({need for asked in kinds for need in asked.needs})}.values())


def _limited_lanes(names: Iterable[str]) -> frozenset[Lane]:
    """A lane's limits are no other lane's business: most runs are live, and looked at closely only if need be."""
    stems = {name.partition("/")[0] if name.startswith("lane:") else "" for name in names}
    return frozenset(lane for lane in Lane if "" in stems or f"lane:{lane}" in stems)


def _patience(job: bytes | None, options: bytes | None) -> Duration | None:
    try:
        return policy_from_json(job).merged(choices_from_json(options)).give_up_after
    except InvalidInput:
        return None


def _slots_after(one: Candidate, verdict: Verdict, wanted: Sequence[Need]) -> list[str]:
    """The slots that a run has once its verdict is written. One that waits keeps its key, and its time by a rate."""
    if verdict.waits_for is None:
        return held_until_its_end(wanted)
    keeps = kept(_names(one.slots))
    return keeps if verdict.at is None or verdict.detail else [*keeps, verdict.waits_for]


def _names(slots: str | None) -> list[str]:
    return [] if slots is None else msgspec.json.decode(slots, type=list[str])


def _stored(names: Sequence[str]) -> str | None:
    return as_json(list(names)) if names else None


def _reason(slot: str) -> Reason:
    if slot.startswith(KEY):
        return Reason.KEY
    if slot.startswith(_PROBE):
        return Reason.DESTINATION_DOWN
    if slot.startswith(PAUSE):
        return Reason.PAUSED
    return Reason.RATE if slot.startswith(RATE) else Reason.LIMIT


# ------------------------------------------------------------------------------------------------------ what is allowed


async def gates(tx: Transaction) -> list[Gate]:
    return [gate_of(row) for row in await tx.all("all_gates")]


async def set_gate(tx: Transaction, gate: Gate, actor: str) -> None:
    """Sets a limit for runs that are fired from now on, and lets in waiters for which it has room."""
    values = (gate.name, gate.most, gate.every, gate.burst, gate.weight, gate.source, tx.now, gate.note)
    await tx.run_each("put_gate", [values])
    await tx.audit(actor, "limit", gate.name, in_words(gate) + (f": {gate.note}" if gate.note else ""))
    await _open(tx, slotted(gate))


async def drop_gate(tx: Transaction, name: str, actor: str, note: str) -> None:
    if name.startswith(BREAKER):
        if not await breakers.close(tx, name.removeprefix(BREAKER)):
            raise UnknownName(f"there is no breaker of {name.removeprefix(BREAKER)!r}")
        await tx.audit(actor, "close", name, note)
        return
    if not await tx.run("drop_gate", name=name):
        raise UnknownName(f"there is no limit for {name!r}")
    await tx.audit(actor, "unlimit", name, note)
    await _open(tx, Gate(name))


async def declare_jobs(tx: Transaction, policies: Mapping[str, Policy]) -> None:
    """The limits that jobs state themselves, unless their app or an operator said otherwise; what a job no longer says
    goes."""
    stored = {gate.name: gate for gate in await gates(tx)}
    declared: list[Gate] = []
    for job, policy in policies.items():
        gate = Gate(f"job:{job}", policy.concurrency, policy.rate and policy.rate.every, source="job")
        if gate.name in stored and stored[gate.name].source != "job":
            continue
        if gate.limits:
            declared.append(gate)
        elif gate.name in stored:
            await drop_gate(tx, gate.name, "code", "no longer declared")
    await _declare(tx, declared, stored)


async def declare_gates(tx: Transaction, declared: Sequence[Gate]) -> None:
    """What code says, unless an operator said otherwise. What it said once and says no more stays in force, because
    another release may count on it, and is marked."""
    stored = {gate.name: gate for gate in await gates(tx)}
    await _declare(tx, declared, stored)
    for name in stored.keys() - {gate.name for gate in declared}:
        if stored[name].source == "code" and stored[name].note != UNDECLARED:
            await tx.run("note_gate", name=name, note=UNDECLARED)


async def _declare(tx: Transaction, declared: Sequence[Gate], stored: Mapping[str, Gate]) -> None:
    for gate in declared:
        known = stored.get(gate.name)
        if known is not None and known.source == "operator":
            continue
        if known is None or _same(known) != _same(gate):
            await set_gate(tx, gate, "code")
        elif known.note == UNDECLARED:
            await tx.run("note_gate", name=gate.name, note=gate.note)


def _same(gate: Gate) -> tuple[object, ...]:
    return gate.most, gate.every, gate.burst, gate.weight


async def _open(tx: Transaction, gate: Gate) -> None:
    """Brings the slots of a gate to what it allows now, and lets in waiters for which there is room. Where nothing is
    limited any more, all of them go."""
    await _open_slots(tx, gate.name, None if gate.most is None else Need(gate.name, gate.most))
    rate = None if gate.every is None else rate_need(gate.name, gate.every, gate.burst or 1)
    await _open_slots(tx, f"{RATE}{gate.name}", rate)


async def _open_slots(tx: Transaction, name: str, need: Need | None) -> None:
    if name.removeprefix(RATE) == each_of(name.removeprefix(RATE)):
        stem = name.removesuffix("*")
        apart = {gate.name for gate in await gates(tx) if gate.limits}
        for (one,) in await tx.all("slots_below", stem=stem, stem_end=stem[:-1] + ";"):
            if one.removeprefix(RATE) not in apart:
                await _open_slots(tx, one, None if need is None else need._replace(name=one))
        return
    if need is None:
        await tx.run("drop_slot", name=name)
        await tx.stir([row[0] for row in await tx.all("release_waiting", slot=name, now=tx.now)])
        return
    await tx.run_each("put_slot", [tuple(need)])
    if need.every is not None:
        await tx.run("restart_slot", name=name, now=tx.now)
        await tx.stir([row[0] for row in await tx.all("retime_waiting", slot=name, now=tx.now)])
    await tx.let_in([name])


async def views(tx: Transaction) -> list[GateView]:
    """Limits, the keys that runs have or wait for, and the tenants under a limit of each."""
    taken = {name: (used, waiting) for name, used, waiting in await tx.all("slots_in_use")}
    known = {gate.name: gate for gate in await _as_declared(tx)}
    for destination, breaker in (await breakers.open_breakers(tx)).items():
        known[f"{BREAKER}{destination}"] = breakers.shown(destination, breaker)
    for name, (used, _) in taken.items():
        source = "runs" if name.startswith(KEY) else each_of(name)
        if name not in known and source is not None and (source == "runs" or source in known):
            most = await tx.value("slot_most", name=name) if used else None
            known[name] = Gate(name, source=source, most=most)
    return [
        GateView(known[name], taken.get(name, (0, 0))[0], sum(taken.get(one, (0, 0))[1] for one in (name, RATE + name)))
        for name in sorted(known)
    ]


async def _as_declared(tx: Transaction) -> list[Gate]:
    """Limits of jobs that no live worker knows are marked; not while there is no worker that could."""
    found = await gates(tx)
    known = {f"job:{row[0]}" for row in await tx.all("known_jobs", since=tx.now - ALIVE)}
    return [
        replace(gate, note=UNDECLARED) if known and gate.source == "job" and gate.name not in known else gate
        for gate in found
    ]


async def release(tx: Transaction, identifier: str, actor: str, note: str) -> Kept:
    found = await by_id(tx, identifier)
    if found.schedule is not None:
        await tx.lock([found.schedule])
    found = await by_id(tx, identifier, locked=True)
    if not (found.live and await tx.run("force_run", number=found.number, now=tx.now)):
        raise Conflict(f"{found.id} is {found.state}; only held runs can be released")
    await tx.audit(actor, "release", found.id, note)
    await tx.stir([found.number])
    tried = (await by_id(tx, identifier)).state is State.RETRYING
    state = after(State.HELD, Event.RETRY_RELEASED if tried else Event.RELEASED)
    return Kept(found.number, found.name, "released", state, tx.now)
