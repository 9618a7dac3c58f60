"""The reaper: takes attempts away from workers that are not heard of any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import random
from typing import Any

from foliot.clock import Clock
from foliot.domain.decisions import after_loss, after_lost_check, is_lost
from foliot.domain.identity import run_id
from foliot.domain.instant import MILLISECOND, SECOND, Duration, Instant, spell
from foliot.domain.ledger import Stage, Traits, stage_of, traits_from_json
from foliot.domain.policy import Policy, choices_from_json, policy_from_json
from foliot.domain.run import Loss, Phase, SilentAttempt
from foliot.domain.signals import Recorder
from foliot.domain.state import Event, Outcome
from foliot.domain.store import JobCard, WatchStore
from foliot.domain.suspicion import Suspicion
from foliot.errors import InvalidInput
from foliot.watch.duty import rest

LOOK_EVERY: Duration = SECOND
LONGEST_GAP: Duration = 5 * SECOND
"""Between two looks. After a longer one nobody can say who was silent and who was only not heard."""
SILENT_AFTER: Duration = 1_500 * MILLISECOND
"""Workers beat once a second at least: whoever was heard of within this is not looked at any closer."""

_NOTES_KEPT = 1_000

_log = logging.getLogger("foliot.watch")


class Reaper:
    """Looks once per second for attempts whose lease has ended.

    It remembers since when it has been listening without a gap. An absence of the watch, or of the store (a look that
    fails is no look), starts that anew: workers could not be heard then, and every lease gets one full period first.
    """

    def __init__(
        self,
        store: WatchStore,
        clock: Clock,
        chance: Callable[[], float] = random,
        recorder: Recorder | None = None,
        ping: Callable[[str, str, str], None] | None = None,
    ) -> None:
        """`recorder`: is told of every lost attempt. `ping`: tells the outside watcher of a run that has one."""
        self.lost = 0
        """Attempts that it took away, but for interrupted and cancelled ones."""
        self._recorder = recorder
        self._ping = ping
        self._store = store
        self._clock = clock
        self._chance = chance
        self._looked_at: Instant | None = None
        self._watched_since: Instant = 0
        self._noted: set[tuple[str, str]] = set()
        self._failing = False

    async def run_once(self) -> Instant:
        """One look; returns when the next one is wanted.

        1. Ask who is silent.
        2. After a gap since the last look that succeeded, begin to listen anew.
        3. Decide about each, by its job's policy and its own options. What cannot be read counts as not said.
        4. Take all lost ones away in one transaction; one that finished meanwhile keeps its verdict.
        5. Tell which policies could not be read, once each.
        """
        now = self._clock.now()
        # A look counts once everything in it succeeded: a store that can be read but not written hears no beat either.
        looked_at, self._looked_at = self._looked_at, None
        # Together: a store in a file reads for all of them at once.
        silent, given_up, gathered = await asyncio.gather(
            self._store.silent(now - SILENT_AFTER),
            self._store.give_up(),
            self._store.gather(),
            return_exceptions=True,
        )
        if isinstance(silent, BaseException):
            raise silent
        if looked_at is None or not 0 <= now - looked_at <= LONGEST_GAP:
            self._watched_since = now
        if silent:
            policies = _Policies(await self._store.jobs())
            losses = [
                (attempt, loss) for attempt in silent if (loss := self._judge(attempt, policies, now)) is not None
            ]
            if losses:
                await self._lose(losses)
                self._tell_outside(losses, policies)
            await self._tell(policies.unreadable)
        if isinstance(given_up, BaseException):
            raise given_up
        self._looked_at = now
        if isinstance(gathered, BaseException):  # whatever becomes of this, the look is done
            raise gathered
        return now + LOOK_EVERY

    async def _lose(self, losses: Sequence[tuple[SilentAttempt, Loss]]) -> None:
        lost = await self._store.lose([loss for _, loss in losses])
        expected = sum(loss.outcome in (Outcome.INTERRUPTED, Outcome.CANCELLED) for _, loss in losses)
        self.lost += max(lost - expected, 0)
        # Where one finished meanwhile, nobody can say which: that is told by their events alone.
        if self._recorder is not None and lost == len(losses):
            self._recorder.lost(losses)

    async def run(self, stop: asyncio.Event) -> None:
        """Looks until `stop` is set. An error of the store never ends the loop."""
        while not stop.is_set():
            try:
                await self.run_once()
                self._failing = False
            except Exception:
                if not self._failing:
                    _log.warning("searching for lost attempts failed, retrying", exc_info=True)
                self._failing = True
            await rest(self._clock, LOOK_EVERY, stop)

    def _judge(self, attempt: SilentAttempt, policies: _Policies, now: Instant) -> Loss | None:
        policy, traits = policies.of(attempt), policies.traits_of(attempt)
        suspicion = Suspicion(attempt.losses, attempt.deaths)
        # A claim is a sign of life too: the worker spoke to the store when it took it.
        heard_at = max(attempt.beat_at, attempt.claimed_at)
        if not is_lost(
            beat_at=heard_at, watched_since=self._watched_since, lease=policy.lease, gone=attempt.gone, now=now
        ):
            return None
        if attempt.gone:
            error = "the worker process has ended"
        else:
            error = f"no heartbeat of the worker for {_seconds(now - heard_at)}; the lease is {spell(policy.lease)}"
        # The worker recorded the outcome before its process ended: then the attempt is not lost.
        outcome = attempt.ending or Outcome.LOST
        error = _ENDED.get(outcome, error)
        if attempt.phase is None:
            # `spent` is what earlier attempts cost; this one is charged now.
            following = after_loss(
                policy,
                spent=attempt.spent + 1,
                due_at=attempt.nominal,
                now=now,
                chance=self._chance(),
                facts=attempt.facts,
                traits=traits,
                outcome=outcome,
                suspicion=suspicion,
                slots=attempt.slots,
            )
            stage = stage_of(attempt.facts)
        else:
            in_doubt = attempt.phase == Phase.DOUBT
            following = after_lost_check(
                policy, in_doubt=in_doubt, now=now, outcome=outcome, suspicion=suspicion, slots=attempt.slots
            )
            stage = Stage.CHECK
        return Loss(
            attempt.number,
            attempt.token,
            attempt.attempt,
            following.event,
            following.retry_at,
            following.reason,
            error,
            outcome,
            stage,
            following.charged,
            following.deaths,
            attempt.facts if attempt.phase is None else None,
        )

    def _tell_outside(self, losses: Sequence[tuple[SilentAttempt, Loss]], policies: _Policies) -> None:
        """Sends the pings of lost attempts, whose workers cannot. An interrupted attempt is no news, as in a worker."""
        if self._ping is None:
            return
        for attempt, loss in losses:
            is_news = loss.event is not Event.GIVEN_BACK or loss.outcome is Outcome.CANCELLED
            if is_news and (url := policies.of(attempt).ping) is not None:
                goes_on = loss.event in (Event.RETRY_GRANTED, Event.DOUBTED, Event.GIVEN_BACK)
                what = "log" if goes_on else "fail"
                cause = f"{run_id(loss.number, attempt.name)}/{loss.attempt}: {loss.outcome}: {loss.error}"
                self._ping(url, what, cause)

    async def _tell(self, unreadable: dict[str, str]) -> None:
        for subject, detail in unreadable.items():
            if (subject, detail) in self._noted:
                continue
            if len(self._noted) >= _NOTES_KEPT:
                self._noted.clear()
            await self._store.note("bad_policy", subject, detail)
            self._noted.add((subject, detail))


_ENDED = {
    Outcome.TIMED_OUT: "the attempt timed out and did not stop; its worker process was ended",
    Outcome.STALLED: "the attempt stalled and did not stop; its worker process was ended",
    Outcome.INTERRUPTED: "the worker was shut down before the attempt ended",
    Outcome.CANCELLED: "an operator forced the cancellation, and the worker ended or sent no heartbeats",
}


class _Policies:
    """The policies of one look: each blob is read once, however many attempts carry it.

    What cannot be read is set aside and remembered: the settings below it hold then, and at the bottom the defaults.
    """

    def __init__(self, cards: dict[str, JobCard]) -> None:
        self.unreadable: dict[str, str] = {}
        self._cards = cards
        self._jobs: dict[str, Policy] = {}
        self._choices: dict[bytes | None, dict[str, Any]] = {}

    def of(self, attempt: SilentAttempt) -> Policy:
        if attempt.job not in self._jobs:
            self._jobs[attempt.job] = self._of_job(attempt.job)
        return self._jobs[attempt.job].merged(self._of_run(attempt))

    def traits_of(self, attempt: SilentAttempt) -> Traits:
        card = self._cards.get(attempt.job)
        return traits_from_json(None if card is None else card.traits)

    def _of_job(self, name: str) -> Policy:
        card = self._cards.get(name)
        try:
            return policy_from_json(None if card is None else card.policy)
        except InvalidInput as problem:
            self.unreadable[name] = str(problem)
            return Policy()

    def _of_run(self, attempt: SilentAttempt) -> dict[str, Any]:
        if attempt.options not in self._choices:
            try:
                self._choices[attempt.options] = choices_from_json(attempt.options)
            except InvalidInput as problem:
                self.unreadable[run_id(attempt.number, attempt.name)] = str(problem)
                self._choices[attempt.options] = {}
        return self._choices[attempt.options]


def _seconds(length: Duration) -> str:
    return f"{length / SECOND:.1f} s"
