"""Work that is done elsewhere, in any language: register, claim, beat, complete, fail, give back, leave.

Whoever comes over HTTP is a worker like any other: its attempts have fencing tokens, are lost when it falls silent, and
are fenced when they come late. What a worker here decides by itself is decided for it: when an attempt has taken too
long, and what follows one that failed.
"""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from foliot.domain.access import WorkBound
from foliot.domain.conditions import job_policy
from foliot.domain.decisions import Next, after_failure, contact, unless_in_doubt
from foliot.domain.elsewhere import (
    MOST_CHECKPOINT,
    MOST_ERROR,
    MOST_NOTE,
    MOST_RESULT,
    AttemptKey,
    Guest,
    GuestWorker,
    is_marked,
    opened_key,
    sealed_key,
)
from foliot.domain.identity import attempt_id, checked_name, run_id
from foliot.domain.instant import MINUTE, SECOND, Duration, Instant, duration, rfc3339, spell
from foliot.domain.labels import checked_labels
from foliot.domain.ledger import stage_of, traits_from_json
from foliot.domain.locking import DAMAGED, is_shut, why_shut
from foliot.domain.policy import Policy, choices, choices_from_json, policy_to_json
from foliot.domain.redaction import redacted_text, secret_values
from foliot.domain.run import Claimed, Ending, Progress, SilentAttempt
from foliot.domain.state import Event, Outcome, Reason
from foliot.domain.store import DEFAULT_QUEUE, JobCard, Store
from foliot.domain.suspicion import SUSPECTED_FROM, may_begin
from foliot.errors import InvalidInput, Locked, LostOwnership, NotAllowed, UnknownName
from foliot.operate.acting import Acting
from foliot.operate.advising import traits_of
from foliot.operate.shapes import Shape, moment
from foliot.timing.binding import binding_in

MOST_SLOTS = 10_000
MOST_JOBS = 1_000
BEAT_EVERY: Duration = 5 * SECOND
"""How often a worker elsewhere should be heard of: several times within the shortest usual lease."""


_FOR_A_KEY: Duration = 15 * SECOND
_LONGEST_FOR_A_KEY: Duration = 5 * MINUTE


class GuestJob(NamedTuple):
    """A job that a worker elsewhere can do. Its settings hold where no code of the fleet declares it."""

    name: str
    queue: str = DEFAULT_QUEUE
    settings: Mapping[str, Any] = {}


class Registered(NamedTuple):
    worker: int
    beat_every: Duration


class Taken(NamedTuple):
    """An attempt in a guest's hands."""

    claimed: Claimed
    attempt: str
    """The capability: who has it may say how the attempt went."""
    arguments: dict[str, Any]
    deadline: Instant


class Said(NamedTuple):
    """What a guest says of an attempt while it goes on."""

    attempt: str
    done: float | None = None
    of: float | None = None
    note: str | None = None
    checkpoint: Any = None


class Heard(NamedTuple):
    """What a guest hears in return."""

    stop: list[str]
    """Attempts that somebody wants stopped: say that they failed, or give them back."""
    lost: list[str]
    """Attempts that are its own no more, or whose time is over: whatever it says of them is refused."""


class ExternalVerbs(Acting):
    """For workers elsewhere. `credential` is the caller's: a worker belongs to the one that registered it. `bound` is
    that of its token: NotAllowed for what lies outside."""

    async def register_guest_async(
        self,
        name: str,
        *,
        credential: int,
        bound: WorkBound,
        jobs: Sequence[GuestJob],
        queues: Sequence[str] = (),
        slots: int = 1,
        labels: Sequence[str] = (),
        version: str = "",
    ) -> Registered:
        """Enters one start of a worker. `queues`: those that it takes runs from; by default those of its jobs."""
        if not 1 <= len(jobs) <= MOST_JOBS:
            raise InvalidInput(f"jobs: name 1 to {MOST_JOBS:,} jobs that this worker can execute")
        if not isinstance(slots, int) or not 1 <= slots <= MOST_SLOTS:
            raise InvalidInput(f"slots={slots!r:.40}: give a whole number from 1 to {MOST_SLOTS:,}")
        bound.check([(job.name, job.queue, job.settings) for job in jobs], queues)
        self._check_addresses(job.settings for job in jobs)
        cards = [_card(job) for job in jobs]
        served = dict.fromkeys(checked_name(queue, "queue") for queue in queues or [card.queue for card in cards])
        guest = Guest(
            checked_name(name, "worker"),
            credential,
            secrets.token_bytes(32),
            tuple(served),
            tuple(card.name for card in cards),
            slots,
            checked_labels(labels),
            version,
        )
        entered = await (await self._opened()).register_guest(guest, cards)
        return Registered(entered.number, BEAT_EVERY)

    async def claim_guest_async(self, worker: int, *, credential: int, bound: WorkBound, limit: int = 1) -> list[Taken]:
        """Takes up to `limit` runs within the bound, and no more than the worker has slots. UnknownName when it is not,
        or no more, a worker of the caller."""
        store = await self._opened()
        guest = await _guest(store, worker, credential)
        held = await store.attempts_of(worker)
        room = min(limit, guest.slots - len(held))
        if room < 1:
            return []
        suspected = [max(one.losses, SUSPECTED_FROM) for one in held if one.deaths is not None]
        suspects = may_begin(guest.slots, suspected, SUSPECTED_FROM)
        found = await store.claim_within(worker, bound, guest.queues, guest.jobs, room, guest.labels, suspects)
        if not found:
            return []
        cards, now = await store.jobs(), await store.now()
        unfit = [one for one in found if not _is_for_guests(one, guest, suspected)]
        if unfit:
            await store.give_back(worker, unfit)
        readable, shut = _parted([one for one in found if one not in unfit])
        if shut:
            await store.finish(worker, [_put_off(one, why, now) for one, why in shut])
        if shut and not readable:
            raise Locked(f"{shut[0][1]}; the process that serves claims (foliot web, foliot up) also needs this key")
        return [_taken(one, guest, cards, now) for one in readable]

    async def beat_guest_async(self, worker: int, said: Sequence[Said], *, credential: int, bound: WorkBound) -> Heard:
        """The worker lives; keeps what its attempts say; tells what is to be stopped. An attempt that has taken longer
        than its timeout and a lease ends here, whatever its worker does. One outside the bound is answered as lost."""
        store = await self._opened()
        guest = await _guest(store, worker, credential)
        keys = {one.attempt: _key(one.attempt, guest) for one in said}
        held = {one.number: one for one in await store.attempts_of(worker) if _is_within(one, bound)}
        now = await store.now()
        mine = [one for one in said if _is_held(keys[one.attempt], held)]
        cards, progress = await store.jobs(), []
        for one in mine:
            key = keys[one.attempt]
            note = None if one.note is None else await self._told(one.note, held[key.number], cards)
            progress.append(_progress(one._replace(note=note), key, held[key.number], now))
        beat = await store.beat(worker, progress, patient=True)
        if not beat.known:
            raise UnknownName(f"worker {worker} was marked dead; register again")
        late = [one for one in held.values() if _deadline(one, cards) < now]
        gone = [one for one in late if _deadline(one, cards) + _policy(one, cards).lease < now]
        await store.finish(worker, [_timed_out(one, cards, now) for one in gone])
        over = {one.number for one in gone}
        stopping = {*beat.cancel, *(one.number for one in late)} - over
        named = {number: sealed_key(_key_of(worker, one), guest.secret) for number, one in held.items()}
        return Heard(
            [named[number] for number in sorted(stopping) if number in named],
            [one.attempt for one in said if one not in mine or keys[one.attempt].number in over],
        )

    async def complete_guest_async(self, attempt: str, result: Any = None, *, credential: int, bound: WorkBound) -> str:
        """The attempt succeeded. LostOwnership when it is the worker's no more. Answers the run's id."""
        encoded = None if result is None else _json(result, "result", MOST_RESULT)
        store = await self._opened()
        key, held = await _held(store, attempt, credential, bound)
        card = (await store.jobs()).get(held.job)
        event = Event.CHECK_DUE if traits_from_json(None if card is None else card.traits).checked else Event.COMPLETED
        now, policy = await store.now(), _merged(card, held.options)
        told = contact(policy, Outcome.SUCCEEDED)
        verdict = unless_in_doubt(Next(event), held.facts, traits_from_json(None if card is None else card.traits))
        return await _finish(
            store, key, held, _ending(held, verdict, Outcome.SUCCEEDED, now)._replace(result=encoded, contact=told)
        )

    async def fail_guest_async(
        self,
        attempt: str,
        error: str,
        *,
        credential: int,
        bound: WorkBound,
        permanent: bool = False,
        retry_after: str | float | None = None,
        cancelled: bool = False,
    ) -> str:
        """The attempt failed; the job's policy says what follows. `permanent`: trying again cannot help.
        `retry_after`: not before this time has passed. `cancelled`: it stopped because it was asked to."""
        store = await self._opened()
        now = await store.now()
        not_before = None if retry_after is None else now + duration(retry_after)
        key, held = await _held(store, attempt, credential, bound)
        cards = await store.jobs()
        card, text = cards.get(held.job), _clean(await self._told(error, held, cards), MOST_ERROR)
        if cancelled:
            ending = _ending(held, Next(Event.CANCEL, reason=Reason.REQUESTED), Outcome.CANCELLED, now)
        else:
            outcome = Outcome.PERMANENT if permanent else Outcome.FAILED
            ending = _failed(held, card, outcome, now, not_before)
        return await _finish(store, key, held, ending._replace(error=text))

    async def give_back_guest_async(self, attempt: str, *, credential: int, bound: WorkBound) -> str:
        """The worker cannot do it now: it is handed to somebody else at once, and costs no attempt."""
        store = await self._opened()
        key, held = await _held(store, attempt, credential, bound)
        ending = _ending(held, Next(Event.GIVEN_BACK), Outcome.INTERRUPTED, await store.now())
        return await _finish(store, key, held, ending)

    async def retire_guest_async(self, worker: int, *, credential: int) -> None:
        """The worker leaves; what it still had in hand is handed to somebody else at once."""
        store = await self._opened()
        await _guest(store, worker, credential)
        now = await store.now()
        held = await store.attempts_of(worker)
        await store.finish(worker, [_ending(one, Next(Event.GIVEN_BACK), Outcome.INTERRUPTED, now) for one in held])
        await store.retire(worker)

    async def _told(self, text: str, held: SilentAttempt, cards: Mapping[str, JobCard]) -> str:
        """A guest's words without the secrets of the run, as a worker here tells them: before they are cut to what is
        kept, which could cut a secret in two."""
        run = await (await self._stored()).run(run_id(held.number, held.name))
        return redacted_text(text, secret_values(run.payload, traits_of(cards.get(held.job)).secrets))


# Who speaks, and of what


async def _guest(store: Store, worker: int, credential: int) -> GuestWorker:
    found = await store.guest(worker) if 0 < worker < 1 << 31 else None
    if found is None or found.credential != credential:
        raise UnknownName(
            f"worker {worker} does not exist, belongs to another token, or was marked dead; register again"
        )
    return found


async def _held(store: Store, attempt: str, credential: int, bound: WorkBound) -> tuple[AttemptKey, SilentAttempt]:
    """The attempt as it stands. LostOwnership when it is not the worker's any more; NotAllowed outside the bound."""
    read = opened_key(attempt)
    if read is None:
        raise InvalidInput(f"attempt={attempt!r:.80}: not an attempt; give the attempt that the claim returned")
    guest = await _guest(store, read[0].worker, credential)
    key = _key(attempt, guest)
    held = {one.number: one for one in await store.attempts_of(guest.number)}
    if not _is_held(key, held):
        raise await _fenced(store, key)
    if not _is_within(held[key.number], bound):
        raise NotAllowed(f"this attempt is outside of the token's restriction ({bound.words}); discard its work")
    return key, held[key.number]


def _is_within(held: SilentAttempt, bound: WorkBound) -> bool:
    return bound.covers(held.job, held.queue or DEFAULT_QUEUE, held.tenant)


def _key(attempt: str, guest: GuestWorker) -> AttemptKey:
    read = opened_key(attempt)
    if read is None or read[0].worker != guest.number or not is_marked(*read, guest.secret):
        raise InvalidInput(
            f"attempt={attempt!r:.80}: not an attempt of worker {guest.number}; give one that its claim returned"
        )
    return read[0]


def _is_held(key: AttemptKey, held: Mapping[int, SilentAttempt]) -> bool:
    return key.number in held and held[key.number].token == key.token


def _key_of(worker: int, one: SilentAttempt) -> AttemptKey:
    return AttemptKey(worker, one.number, one.token, one.attempt)


async def _finish(store: Store, key: AttemptKey, held: SilentAttempt, ending: Ending) -> str:
    if await store.finish(key.worker, [ending]):  # lost between the look and the word: it is written down as fenced
        raise _too_late(key)
    return run_id(held.number, held.name)


async def _fenced(store: Store, key: AttemptKey) -> LostOwnership:
    """Has the store write down that a late word was refused."""
    now = await store.now()
    ending = Ending(key.number, key.token, key.attempt, Event.COMPLETED, Outcome.SUCCEEDED, None, now)
    await store.finish(key.worker, [ending])
    return _too_late(key)


def _too_late(key: AttemptKey) -> LostOwnership:
    return LostOwnership(
        f"attempt {key.attempt} no longer belongs to worker {key.worker}: it has ended, or its lease expired "
        "without a heartbeat; discard its work"
    )


# What follows


def _ending(held: SilentAttempt, verdict: Next, outcome: Outcome, now: Instant) -> Ending:
    begun = Event.GIVEN_BACK is not verdict.event
    return Ending(
        held.number,
        held.token,
        held.attempt,
        verdict.event,
        outcome,
        held.claimed_at if begun else None,
        now,
        verdict.retry_at,
        verdict.reason,
    )


def _failed(
    held: SilentAttempt, card: JobCard | None, outcome: Outcome, now: Instant, not_before: Instant | None = None
) -> Ending:
    policy, traits = _merged(card, held.options), traits_from_json(None if card is None else card.traits)
    verdict = after_failure(
        policy,
        outcome,
        spent=held.spent + 1,
        due_at=held.nominal,
        now=now,
        chance=random.random(),
        not_before=not_before,
        facts=held.facts,
    )
    verdict = unless_in_doubt(verdict, held.facts, traits)
    granted = verdict.event is Event.RETRY_GRANTED
    return _ending(held, verdict, outcome, now)._replace(
        stage=stage_of(held.facts) if traits.tracked else None,
        retries_per_hour=policy.retries_per_hour if granted else None,
        contact=contact(policy, outcome),
    )


def _timed_out(held: SilentAttempt, cards: Mapping[str, JobCard], now: Instant) -> Ending:
    card = cards.get(held.job)
    detail = f"timed out after {spell(_merged(card, held.options).timeout)}; its remote worker did not report it"
    return _failed(held, card, Outcome.TIMED_OUT, now)._replace(error=detail)


def _policy(held: SilentAttempt, cards: Mapping[str, JobCard]) -> Policy:
    return _merged(cards.get(held.job), held.options)


def _merged(card: JobCard | None, options: bytes | None) -> Policy:
    policy = job_policy(card)
    try:
        return policy.merged(choices_from_json(options))
    except InvalidInput:  # what cannot be read has the settings below it, as in the rest of the house
        return policy


def _deadline(held: SilentAttempt, cards: Mapping[str, JobCard]) -> Instant:
    return held.claimed_at + _policy(held, cards).timeout


# What goes to and fro


def _card(job: GuestJob) -> JobCard:
    policy = Policy().merged(choices(dict(job.settings)))
    return JobCard(checked_name(job.name, "job"), policy_to_json(policy), checked_name(job.queue, "queue"))


def _is_for_guests(claimed: Claimed, guest: GuestWorker, suspected: Sequence[int]) -> bool:
    """Whether a worker elsewhere may execute it. A check is made by calling a function, which is not there.
    `suspected`: the losses of those runs under suspicion that the worker executes."""
    return claimed.phase is None and (
        claimed.deaths is None or may_begin(guest.slots, suspected, max(claimed.losses, SUSPECTED_FROM))
    )


def _parted(found: Sequence[Claimed]) -> tuple[list[Claimed], list[tuple[Claimed, str]]]:
    """What can be handed on; and what is locked with a key that is not here, with why."""
    readable, shut = [], []
    for one in found:
        values = ((one.payload, "its arguments"), (one.checkpoint, "its checkpoint"))
        why = next((why_shut(data, what) for data, what in values if data is not None and is_shut(data)), None)
        readable.extend([one] if why is None else [])
        shut.extend([] if why is None else [(one, why)])
    return readable, shut


def _put_off(one: Claimed, why: str, now: Instant) -> Ending:
    """As a worker here does: it costs no attempt, and waits for somebody who has the key, each time twice as long."""
    if any(data is not None and data.startswith(DAMAGED) for data in (one.payload, one.checkpoint)):
        verdict, outcome = Next(Event.GAVE_UP, reason=Reason.BAD_PAYLOAD), Outcome.PERMANENT
    else:
        wait = min(_FOR_A_KEY << min(one.attempt - 1, 10), _LONGEST_FOR_A_KEY)
        verdict, outcome = Next(Event.RETRY_GRANTED, now + wait, Reason.LOCKED), Outcome.INTERRUPTED
    ending = Ending(one.number, one.token, one.attempt, verdict.event, outcome, None, now)
    return ending._replace(retry_at=verdict.retry_at, reason=verdict.reason, error=why)


def _taken(one: Claimed, guest: GuestWorker, cards: Mapping[str, JobCard], now: Instant) -> Taken:
    key = AttemptKey(guest.number, one.number, one.token, one.attempt)
    policy = _merged(cards.get(one.job), one.options)
    return Taken(one, sealed_key(key, guest.secret), _arguments(one), now + policy.timeout)


def _arguments(one: Claimed) -> dict[str, Any]:
    """What was stated, and what its tick gives. What cannot be read is left out: the run's own words stay."""
    given: dict[str, Any] = json.loads(one.payload)
    try:
        bound = binding_in(one.options)
        more = {} if bound is None else bound.values(one.id, one.nominal or one.fire_at, one.since, one.member)
    except InvalidInput:
        more = {}
    return given | more


def _progress(said: Said, key: AttemptKey, held: SilentAttempt, now: Instant) -> Progress:
    note = None
    if said.done is not None:
        told = None if said.note is None else _clean(said.note, MOST_NOTE)
        note = _json({"done": said.done, "of": said.of, "note": told, "at": now}, "progress", 2 * MOST_NOTE)
    kept = None if said.checkpoint is None else _json(said.checkpoint, "checkpoint", MOST_CHECKPOINT)
    return Progress(key.number, key.token, held.claimed_at, note, kept)


def _json(value: Any, what: str, most: int) -> bytes:
    encoded = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    if len(encoded) > most:
        raise InvalidInput(
            f"the {what} takes {len(encoded):,} bytes as JSON, and at most {most:,} are allowed; store the data "
            "elsewhere and pass a reference"
        )
    return encoded


def _clean(text: str, most: int) -> str:
    """What any store can hold."""
    return (
        text.replace("\0", "").encode("utf-8", "replace")[:most].decode("utf-8", "ignore").strip() or "no reason given"
    )


def taken_shape(taken: Taken) -> Shape:
    one = taken.claimed
    return {
        "run": one.id,
        "attempt": one.attempt,
        "attempt_id": attempt_id(one.id, one.attempt),
        "attempt_token": taken.attempt,
        "job": one.job,
        "arguments": taken.arguments,
        "schedule": one.schedule,
        "tenant": one.tenant,
        "queue": one.queue or DEFAULT_QUEUE,
        "nominal": moment(one.nominal if one.nominal is not None else one.fire_at),
        "since": moment(one.since),
        "deadline": rfc3339(taken.deadline),
        "checkpoint": None if one.checkpoint is None else json.loads(one.checkpoint),
        "repair": one.repair,
    }
