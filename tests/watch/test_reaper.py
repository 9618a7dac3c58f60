"""Attempts of vanished workers, look by look, on a clock that moves only when told to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from foliot.clock import ManualClock
from foliot.domain.instant import HOUR, SECOND, Instant
from foliot.domain.ledger import Facts, Stage, Traits, traits_to_json
from foliot.domain.policy import OnLost, Policy, policy_to_json
from foliot.domain.run import Loss, Phase, SilentAttempt
from foliot.domain.state import Event, Outcome, Reason
from foliot.domain.store import JobCard
from foliot.errors import StoreError
from foliot.watch import Reaper

NOON: Instant = 1_800_000_000 * SECOND


@dataclass
class FakeStore:
    """Attempts that run, and what the reaper did to them."""

    clock: ManualClock
    attempts: list[SilentAttempt] = field(default_factory=list)
    cards: dict[str, JobCard] = field(default_factory=dict)
    lost: list[Loss] = field(default_factory=list)
    transactions: int = 0
    notes: list[tuple[str, str, str]] = field(default_factory=list)
    trouble: list[Exception] = field(default_factory=list)
    looks: int = 0

    def runs(self, number: int = 1, job: str = "send", **facts: Any) -> None:
        given: dict[str, Any] = {
            "number": number,
            "name": f"run-{number}",
            "job": job,
            "token": number * 10,
            "attempt": 1,
            "spent": 0,
            "nominal": NOON,
            "options": None,
            "claimed_at": NOON,
            "beat_at": NOON,
            "gone": False,
        }
        self.attempts.append(SilentAttempt(**{**given, **facts}))

    def knows(self, job: str, policy: Policy | bytes, traits: Traits = Traits()) -> None:  # noqa: B008 - frozen
        blob = policy if isinstance(policy, bytes) else policy_to_json(policy)
        self.cards[job] = JobCard(job, blob, "default", traits=traits_to_json(traits))

    async def silent(self, beat_before: Instant) -> list[SilentAttempt]:
        self.looks += 1
        if self.trouble:
            raise self.trouble.pop(0)
        return [attempt for attempt in self.attempts if attempt.gone or attempt.beat_at < beat_before]

    async def gather(self) -> int:
        return 0

    async def give_up(self) -> int:
        return 0

    async def lose(self, losses: Sequence[Loss]) -> int:
        self.transactions += 1
        self.lost += losses
        gone = {loss.token for loss in losses}
        self.attempts = [attempt for attempt in self.attempts if attempt.token not in gone]
        return len(losses)

    async def jobs(self) -> dict[str, JobCard]:
        return self.cards

    async def note(self, kind: str, subject: str, detail: str) -> None:
        self.notes.append((kind, subject, detail))


class Watch:
    def __init__(self) -> None:
        self.clock = ManualClock(NOON)
        self.store = FakeStore(self.clock)
        self.reaper = Reaper(self.store, self.clock, lambda: 0.5)

    async def look(self) -> list[int]:
        before = len(self.store.lost)
        assert await self.reaper.run_once() == self.clock.now() + SECOND
        return [loss.number for loss in self.store.lost[before:]]

    async def listen(self, length: int) -> list[int]:
        """Looks every second."""
        lost: list[int] = []
        for _ in range(length // SECOND):
            self.clock.advance(SECOND)
            lost += await self.look()
        return lost


def test_an_attempt_is_lost_when_its_lease_has_ended_and_not_before() -> None:
    async def story() -> None:
        watch = Watch()
        watch.store.runs()
        await watch.look()
        assert await watch.listen(30 * SECOND) == []
        assert await watch.listen(SECOND) == [1]
        (loss,) = watch.store.lost
        assert loss == Loss(
            1,
            10,
            1,
            Event.RETRY_GRANTED,
            watch.clock.now(),
            Reason.LOST,
            "no heartbeat of the worker for 31.0 s; the lease is 30s",
            Outcome.LOST,
            Stage.BEFORE_EFFECT,
            charged=False,
            deaths=None,
            facts=Facts(),
        )

    asyncio.run(story())


def test_the_first_look_gives_every_lease_one_full_period() -> None:
    async def story() -> None:
        watch = Watch()
        watch.store.runs(beat_at=NOON - HOUR, claimed_at=NOON - HOUR)
        assert await watch.look() == []
        assert await watch.listen(30 * SECOND) == []
        assert await watch.listen(SECOND) == [1]

    asyncio.run(story())


def test_a_process_that_is_gone_is_lost_at_the_first_look() -> None:
    async def story() -> None:
        watch = Watch()
        watch.store.runs(gone=True)
        watch.store.runs(2, beat_at=NOON - HOUR)
        assert await watch.look() == [1]
        assert watch.store.lost[0].error == "the worker process has ended"

    asyncio.run(story())


def test_after_an_absence_of_the_watch_nobody_is_lost_at_once() -> None:
    async def story() -> None:
        watch = Watch()
        await watch.look()
        watch.store.runs()
        watch.clock.advance(HOUR)
        assert await watch.look() == []
        assert await watch.listen(30 * SECOND) == []
        assert await watch.listen(SECOND) == [1]

    asyncio.run(story())


def test_a_gap_of_five_seconds_is_no_absence() -> None:
    async def story() -> None:
        watch = Watch()
        watch.store.runs()
        await watch.look()
        await watch.listen(27 * SECOND)
        watch.clock.advance(5 * SECOND)
        assert await watch.look() == [1]

    asyncio.run(story())


def test_looks_that_failed_are_an_absence_too() -> None:
    """Nobody could be heard while the store was away, the workers' beats included."""

    async def story() -> None:
        watch = Watch()
        watch.store.runs()
        await watch.look()
        await watch.listen(27 * SECOND)
        watch.store.trouble = [StoreError("away")] * 6
        for _ in range(6):
            watch.clock.advance(SECOND)
            with pytest.raises(StoreError):
                await watch.look()
        assert await watch.listen(31 * SECOND) == []
        assert await watch.listen(SECOND) == [1]

    asyncio.run(story())


def test_one_look_that_failed_gives_every_lease_one_full_period() -> None:
    """A lease may be shorter than the longest gap between two looks."""

    async def story() -> None:
        watch = Watch()
        watch.store.runs()
        await watch.look()
        await watch.listen(29 * SECOND)
        watch.store.trouble = [StoreError("away")]
        with pytest.raises(StoreError):
            await watch.look()
        watch.clock.advance(2 * SECOND)
        assert await watch.look() == []
        assert await watch.listen(30 * SECOND) == []
        assert await watch.listen(SECOND) == [1]

    asyncio.run(story())


def test_a_clock_that_went_back_begins_to_listen_anew() -> None:
    async def story() -> None:
        watch = Watch()
        await watch.look()
        watch.clock.set(NOON - HOUR)
        watch.store.runs(beat_at=NOON - 2 * HOUR, claimed_at=NOON - 2 * HOUR)
        assert await watch.look() == []
        assert await watch.listen(30 * SECOND) == []
        assert await watch.listen(SECOND) == [1]

    asyncio.run(story())


def test_a_claim_is_a_sign_of_life() -> None:
    async def story() -> None:
        watch = Watch()
        await watch.look()
        await watch.listen(40 * SECOND)
        watch.store.runs(beat_at=NOON, claimed_at=watch.clock.now())
        assert await watch.listen(30 * SECOND) == []
        assert await watch.listen(SECOND) == [1]

    asyncio.run(story())


def test_the_job_and_then_the_run_choose_the_lease_and_what_a_loss_means() -> None:
    async def story() -> None:
        watch = Watch()
        watch.store.knows("send", Policy(lease=5 * SECOND, on_lost=OnLost.ASK))
        watch.store.runs(1)
        watch.store.runs(2, options=b'{"lease": 10000000, "on_lost": "retry", "from_a_newer_release": 1}')
        await watch.look()
        assert await watch.listen(6 * SECOND) == [1]
        assert await watch.listen(5 * SECOND) == [2]
        asked, retried = watch.store.lost
        assert (asked.event, asked.retry_at, asked.reason) == (Event.MAYBE_FOUND, None, Reason.LOST)
        assert retried.event is Event.RETRY_GRANTED

    asyncio.run(story())


def test_a_run_that_was_lost_again_and_again_in_a_process_of_its_own_spends_attempts() -> None:
    async def story() -> None:
        watch = Watch()
        watch.store.knows("send", Policy(attempts=2))
        watch.store.runs(1, spent=0, gone=True, worker=1, slots=8, losses=4, deaths=0)
        watch.store.runs(2, spent=1, gone=True, worker=2, slots=8, losses=4, deaths=0)
        watch.store.runs(3, spent=1, gone=True, worker=3, slots=8, losses=3, deaths=0)
        await watch.look()
        assert [(one.event, one.reason, one.charged, one.deaths) for one in watch.store.lost] == [
            (Event.RETRY_GRANTED, Reason.LOST, True, 0),
            (Event.EXHAUSTED, Reason.ATTEMPTS, True, 0),
            (Event.RETRY_GRANTED, Reason.LOST, False, 0),
        ]

    asyncio.run(story())


@pytest.mark.parametrize("company", [1, 2])
@pytest.mark.parametrize(("losses", "deaths"), [(0, None), (1, 0)])
def test_a_loss_with_the_worker_costs_nothing_and_is_suspicious_from_the_second_in_a_row_on(
    company: int, losses: int, deaths: int | None
) -> None:
    async def story() -> None:
        watch = Watch()
        watch.store.knows("send", Policy(attempts=1))
        for number in range(1, company + 1):
            watch.store.runs(number, gone=True, worker=1, losses=losses, slots=100)
        await watch.look()
        assert [(one.event, one.charged, one.deaths, one.retry_at) for one in watch.store.lost] == [
            (Event.RETRY_GRANTED, False, deaths, watch.clock.now())
        ] * company

    asyncio.run(story())


def test_an_interrupted_attempt_costs_nothing_and_raises_no_suspicion() -> None:
    async def story() -> None:
        watch = Watch()
        watch.store.knows("send", Policy(attempts=1))
        for number, deaths in ((1, None), (2, 2)):
            watch.store.runs(number, gone=True, worker=number, deaths=deaths, ending=Outcome.INTERRUPTED)
        watch.store.runs(3, gone=True, worker=3, phase=Phase.CHECK, deaths=2, ending=Outcome.INTERRUPTED)
        await watch.look()
        assert [(one.event, one.outcome, one.charged, one.retry_at, one.deaths) for one in watch.store.lost] == [
            (Event.GIVEN_BACK, Outcome.INTERRUPTED, False, None, deaths) for deaths in (None, 2, 2)
        ]
        assert watch.store.lost[0].error == "the worker was shut down before the attempt ended"

    asyncio.run(story())


def test_an_interrupted_attempt_whose_effect_may_have_escaped_is_left_to_a_person() -> None:
    async def story() -> None:
        watch = Watch()
        watch.store.knows("careful", Policy(on_lost=OnLost.ASK))
        watch.store.runs(1, gone=True, ending=Outcome.INTERRUPTED, facts=Facts(maybe=1))
        watch.store.runs(2, job="careful", gone=True, ending=Outcome.INTERRUPTED)
        await watch.look()
        assert [one.event for one in watch.store.lost] == [Event.MAYBE_FOUND, Event.MAYBE_FOUND]

    asyncio.run(story())


def test_an_attempt_whose_cancellation_was_forced_is_no_loss_and_its_outside_watcher_hears_of_it() -> None:
    async def story() -> None:
        watch, pings = Watch(), list[str]()
        watch.store.knows("send", Policy(attempts=1, ping="https://hc.example/send"))
        watch.store.runs(1, gone=True, ending=Outcome.CANCELLED)
        watch.store.runs(2, gone=True, ending=Outcome.INTERRUPTED)
        reaper = Reaper(watch.store, watch.clock, ping=lambda url, what, text: pings.append(f"{what} {text}"))
        await reaper.run_once()
        assert [(one.event, one.outcome, one.charged, one.deaths) for one in watch.store.lost] == [
            (Event.GIVEN_BACK, outcome, False, None) for outcome in (Outcome.CANCELLED, Outcome.INTERRUPTED)
        ]
        assert reaper.lost == 0
        (ping,) = pings
        assert ping.startswith("log ")
        assert "an operator forced the cancellation" in ping

    asyncio.run(story())


def test_an_effect_that_may_have_escaped_is_left_to_a_person_or_to_the_jobs_check() -> None:
    async def story() -> None:
        watch = Watch()
        watch.store.knows("checked", Policy(), Traits(effects=("pay",), checked=True))
        watch.store.runs(1, gone=True, facts=Facts(maybe=1))
        watch.store.runs(2, job="checked", gone=True, facts=Facts(maybe=1))
        await watch.look()
        assert [(one.event, one.reason, one.stage) for one in watch.store.lost] == [
            (Event.MAYBE_FOUND, Reason.EFFECT, Stage.INSIDE_EFFECT),
            (Event.DOUBTED, Reason.EFFECT, Stage.INSIDE_EFFECT),
        ]

    asyncio.run(story())


def test_a_lost_check_is_made_again_and_ends_as_poison_when_it_kills_its_workers() -> None:
    async def story() -> None:
        watch = Watch()
        watch.store.runs(1, gone=True, worker=1, phase=Phase.CHECK)
        watch.store.runs(2, gone=True, worker=2, phase=Phase.CHECK, losses=5, deaths=2)
        watch.store.runs(3, gone=True, worker=3, phase=Phase.DOUBT, losses=5, deaths=2)
        await watch.look()
        assert [(one.event, one.reason, one.stage, one.charged) for one in watch.store.lost] == [
            (Event.RETRY_GRANTED, Reason.LOST, Stage.CHECK, False),
            (Event.CHECK_REFUSED, Reason.POISON, Stage.CHECK, True),
            (Event.MAYBE_FOUND, Reason.POISON, Stage.CHECK, True),
        ]

    asyncio.run(story())


def test_an_attempt_that_did_not_heed_its_end_is_told_as_what_ended_it() -> None:
    async def story() -> None:
        watch = Watch()
        watch.store.runs(1, gone=True, worker=1, ending=Outcome.TIMED_OUT)
        await watch.look()
        [loss] = watch.store.lost
        assert (loss.outcome, loss.reason, loss.deaths) == (Outcome.TIMED_OUT, Reason.TIMED_OUT, None)
        assert loss.error == "the attempt timed out and did not stop; its worker process was ended"

    asyncio.run(story())


@pytest.mark.parametrize("blob", [b"{", b"[]", b"\xff", b'{"lease": "long"}', b'{"overlap": "someday"}'])
def test_a_policy_that_cannot_be_read_stops_nobody_and_is_told_once(blob: bytes) -> None:
    async def story() -> None:
        watch = Watch()
        watch.store.knows("broken", blob)
        watch.store.knows("send", Policy(lease=5 * SECOND))
        watch.store.runs(1, job="broken")
        watch.store.runs(2, options=blob)
        watch.store.runs(3)
        watch.store.runs(4, job="nobody-knows-it")
        await watch.look()
        assert await watch.listen(6 * SECOND) == [2, 3]  # a bad option leaves what the job says
        assert await watch.listen(25 * SECOND) == [1, 4]  # otherwise the defaults hold
        assert [(kind, subject) for kind, subject, _ in watch.store.notes] == [
            ("bad_policy", "broken"),
            ("bad_policy", "run-2"),
        ]

    asyncio.run(story())


def test_all_losses_of_a_look_are_one_transaction_and_a_quiet_look_is_none() -> None:
    async def story() -> None:
        watch = Watch()
        await watch.listen(3 * SECOND)
        assert watch.store.transactions == 0
        for number in range(1, 101):
            watch.store.runs(number, gone=True)
        assert len(await watch.look()) == 100
        assert watch.store.transactions == 1

    asyncio.run(story())


async def turn(clock: ManualClock, length: int) -> None:
    end = clock.now() + length
    while True:
        for _ in range(20):
            await asyncio.sleep(0)
        wake = clock.next_sleeper()
        if wake is None or wake > end:
            break
        clock.set(wake)
    clock.set(end)


def test_the_loop_looks_every_second_outlives_trouble_and_notes_it_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        watch = Watch()
        watch.store.trouble = [StoreError("away"), RuntimeError("odd")]
        stop = asyncio.Event()
        loop = asyncio.create_task(watch.reaper.run(stop))
        with caplog.at_level(logging.WARNING, "foliot.watch"):
            await turn(watch.clock, 10 * SECOND)
        assert watch.store.looks == 11
        assert len(caplog.records) == 1
        stop.set()
        await turn(watch.clock, SECOND)
        await loop

    asyncio.run(story())
