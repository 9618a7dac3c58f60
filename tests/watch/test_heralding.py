"""People are told once, together, and again when it is over; what cannot be sent is tried again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from foliot import Foliot, every
from foliot.bootstrap import make_channels, make_herald, make_sentry, send_test
from foliot.clock import ManualClock
from foliot.domain.alerts import Alert, AlertSettings, Kind, Severity
from foliot.domain.instant import MINUTE, SECOND, Instant
from foliot.errors import InvalidInput
from foliot.testing import virtual_time
from foliot.watch import heralding
from foliot.watch.channels import Hooked
from foliot.watch.heralding import GATHER, MOST_NAMED, TRIES, Herald, Message, message_of
from tests.waiting import HANG
from tests.watch.loopback import listening

ALERT = Alert(1, Kind.MISSING, "schedule:books", Severity.CRITICAL, "books: no run waits", "restart it", 0, 0)


class Rows:
    """Alerts that nobody was told of, as a store has them."""

    def __init__(self, clock: ManualClock, *alerts: Alert) -> None:
        self._clock = clock
        self.alerts = {alert.number: alert for alert in alerts}
        self.due: set[int] = set()
        """Open ones whose message is to be repeated."""

    async def untold_alerts(self, limit: int) -> list[Alert]:
        return [
            one
            for one in self.alerts.values()
            if one.number in self.due
            or (one.told_at if one.is_open else one.told_at is None or one.told_resolved_at) is None
        ]

    async def alerts_told(self, opened: Sequence[int], resolved: Sequence[int], again: Sequence[int] = ()) -> int:
        self.due -= set(again)
        for number in opened:
            self.alerts[number] = replace(self.alerts[number], told_at=self._clock.now())
        for number in resolved:
            self.alerts[number] = replace(self.alerts[number], told_resolved_at=self._clock.now())
        return len(opened) + len(resolved)

    async def now(self) -> Instant:
        return self._clock.now()


class Pager:
    """A channel that can fail."""

    name = "pager"

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.taken: list[Message] = []

    async def send(self, message: Message) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("nobody answers")
        self.taken.append(message)


async def test_people_are_told_once_and_again_when_it_is_over() -> None:
    clock, pager = ManualClock(GATHER), Pager()
    rows = Rows(clock, ALERT)
    herald = Herald(rows, clock, [pager])
    assert await herald.run_once() == 1
    assert await Herald(rows, clock, [pager]).run_once() == 0  # also not after a restart
    rows.alerts[1] = replace(rows.alerts[1], resolved_at=clock.now())
    clock.advance(GATHER)
    assert await herald.run_once() == 1
    assert [message.title for message in pager.taken] == [
        "[foliot] critical: missing: schedule:books",
        "[foliot] resolved: missing: schedule:books",
    ]
    assert "restart it" in pager.taken[0].body


async def test_alerts_of_one_kind_that_open_together_are_one_message() -> None:
    clock, pager = ManualClock(0), Pager()
    many = [replace(ALERT, number=number, subject=f"schedule:{number}") for number in range(1, 41)]
    herald = Herald(Rows(clock, *many), clock, [pager])
    assert await herald.run_once() == 0  # more may come
    clock.advance(GATHER)
    assert await herald.run_once() == 1
    assert f"and {40 - MOST_NAMED} more" in pager.taken[0].body
    assert len(pager.taken[0].alerts) == 40


async def test_no_more_is_sent_in_a_minute_than_people_can_read() -> None:
    clock, pager = ManualClock(GATHER), Pager()
    alerts = [replace(ALERT, number=number, kind=kind) for number, kind in enumerate(list(Kind)[:5], 1)]
    herald = Herald(Rows(clock, *alerts), clock, [pager], most_per_minute=2)
    assert [await herald.run_once(), await herald.run_once()] == [2, 0]
    clock.advance(MINUTE + SECOND)
    assert await herald.run_once() == 2


async def test_a_channel_that_fails_is_tried_again_later_and_later_and_holds_up_no_other() -> None:
    clock, broken, pager = ManualClock(GATHER), Pager(failures=2), Pager()
    rows = Rows(clock, ALERT)
    herald = Herald(rows, clock, [broken, pager])
    assert await herald.run_once() == 1
    assert (len(broken.taken), len(pager.taken)) == (0, 1)
    assert rows.alerts[1].told_at is not None
    assert await herald.run_once() == 0  # it is left alone for a while
    assert broken.failures == 1
    for _ in range(2):
        clock.advance(MINUTE)
        await herald.run_once()
    assert (len(broken.taken), len(pager.taken)) == (1, 1)


async def test_beside_a_dead_channel_people_hear_of_each_alert_once_and_that_it_is_over() -> None:
    clock, dead, pager = ManualClock(0), Pager(failures=3), Pager()
    rows = Rows(clock)
    herald = Herald(rows, clock, [dead, pager])
    for number in (1, 2):
        rows.alerts[number] = replace(ALERT, number=number, opened_at=clock.now())
        clock.advance(GATHER)
        await herald.run_once()
    rows.alerts[1] = replace(rows.alerts[1], resolved_at=clock.now())
    clock.advance(GATHER)
    await herald.run_once()

    def heard(channel: Pager) -> list[tuple[bool, list[int]]]:
        return [(message.resolved, [one.number for one in message.alerts]) for message in channel.taken]

    assert heard(pager) == [(False, [1]), (False, [2]), (True, [1])]
    clock.advance(MINUTE)
    for _ in range(2):
        await herald.run_once()
        clock.advance(MINUTE)
    assert heard(dead) == [(False, [2])]  # the first one was over before it could hear of it
    assert len(heard(pager)) == 3


DEAD = replace(
    ALERT, kind=Kind.DEAD, subject="schedule:a/b", severity=Severity.WARNING, schedule="a/b", run="a/b@t", count=46
)


def test_a_message_names_the_count_and_links_to_the_runs_or_the_run() -> None:
    opened = message_of([DEAD], "https://jobs.example.com/")
    assert opened.title == "[foliot] warning: dead: schedule:a/b, 46 runs"
    assert "  link: https://jobs.example.com/runs?state=dead&schedule=a%2Fb" in opened.body.splitlines()
    again = message_of([replace(DEAD, told_at=0, told_count=23)], "https://jobs.example.com")
    assert again.title == "[foliot] warning again: dead: schedule:a/b, 46 runs"
    assert "  now: 46 runs, 23 before (last message 1970-01-01T00:00:00Z)" in again.body.splitlines()
    alone = message_of([replace(DEAD, count=1)], "https://jobs.example.com")
    assert alone.title == "[foliot] warning: dead: schedule:a/b"
    assert "  link: https://jobs.example.com/runs/a%2Fb%40t" in alone.body.splitlines()
    resolved = message_of([replace(DEAD, resolved_at=9)], "https://jobs.example.com")
    assert resolved.title == "[foliot] resolved: dead: schedule:a/b"
    assert "link: https://jobs.example.com/alerts" in message_of([QUEUE], "https://jobs.example.com").body
    assert "link:" not in message_of([DEAD]).body


QUEUE = replace(ALERT, kind=Kind.QUEUE_AGE, subject="queue:mail")


async def test_a_repetition_is_sent_once_and_a_channel_that_missed_the_first_message_gets_that_one_alone() -> None:
    clock, dead, pager = ManualClock(GATHER), Pager(failures=2), Pager()
    rows = Rows(clock, replace(DEAD, count=1))
    herald = Herald(rows, clock, [dead, pager])
    await herald.run_once()
    rows.alerts[1], rows.due = replace(DEAD, told_at=rows.alerts[1].told_at, told_count=1), {1}
    await herald.run_once()
    assert (rows.due, [message.title for message in pager.taken]) == (
        set(),
        ["[foliot] warning: dead: schedule:a/b", "[foliot] warning again: dead: schedule:a/b, 46 runs"],
    )
    for _ in range(3):
        clock.advance(MINUTE)
        await herald.run_once()
    assert [message.title for message in dead.taken] == ["[foliot] warning: dead: schedule:a/b, 46 runs"]
    rows.due = {1}
    await herald.run_once()
    assert len(dead.taken) == 2, "the next repetition is one for all"
    rows.alerts[1] = replace(rows.alerts[1], resolved_at=clock.now())
    rows.due = set()
    clock.advance(GATHER)
    await herald.run_once()
    assert [len(pager.taken), len(dead.taken)] == [4, 3]
    assert [channel.taken[-1].title for channel in (pager, dead)] == ["[foliot] resolved: dead: schedule:a/b"] * 2


async def test_what_a_dead_channel_is_to_get_stays_bounded_and_the_most_urgent_remains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heralding, "MOST_OWED", 1)
    clock, dead, pager = ManualClock(GATHER), Pager(failures=1), Pager()
    notice = replace(ALERT, number=2, kind=Kind.RATIO, severity=Severity.NOTICE)
    herald = Herald(Rows(clock, notice, ALERT), clock, [dead, pager])
    await herald.run_once()
    clock.advance(MINUTE)
    await herald.run_once()
    assert (len(pager.taken), [message.alerts[0].number for message in dead.taken]) == (2, [1])


async def test_a_channel_that_never_takes_it_is_given_up_in_the_end() -> None:
    clock, broken = ManualClock(GATHER), Pager(failures=1_000)
    rows = Rows(clock, ALERT)
    herald = Herald(rows, clock, [broken])
    for _ in range(TRIES):
        assert rows.alerts[1].told_at is None
        await herald.run_once()
        clock.advance(60 * MINUTE)
    assert rows.alerts[1].told_at is not None


async def test_apprise_brings_it_to_a_real_server_and_shows_no_secrets() -> None:
    with listening() as server:
        address = server.url.replace("http://", "json://ana:hunter2@")
        [channel] = make_channels(AlertSettings((address,)))
        assert "hunter2" not in channel.name
        await channel.send(message_of([ALERT]))
        server.wait_for_requests(count=1)
        assert "books: no run waits" in server.requests[0][1]
        server.answers = [500]
        [(name, problem)] = (await send_test(AlertSettings((address,)))).items()
        assert problem is not None
        assert "hunter2" not in name + problem


def test_an_address_that_is_none_is_refused_without_repeating_it() -> None:
    with pytest.raises(InvalidInput) as refused:
        make_channels(AlertSettings(("nowhere://ana:hunter2@host",)))
    assert "hunter2" not in str(refused.value)


def test_hooks_of_the_app_are_called_when_an_alert_opens_and_when_it_is_over() -> None:
    app = Foliot("sqlite:///:memory:")
    heard: list[tuple[str, bool]] = []

    @app.job(attempts=1)
    def pay() -> None:
        raise ValueError("closed")

    @app.on_alert
    def page(alert: Alert) -> None:
        heard.append((alert.subject, alert.is_open))

    @app.on_alert
    async def note(alert: Alert) -> None:
        heard.append((str(alert.kind), alert.is_open))

    with virtual_time(app) as world:
        world.watch()
        herald = make_herald(world.store, make_channels(AlertSettings(), app.alert_hooks), clock=world.clock)
        kept = pay.now()
        world.run_for("20s")
        world.call(herald.run_once())
        app.operate.reconcile(kept.id, evidence="paid by hand", actor="ana")
        world.run_for("20s")
        world.call(herald.run_once())
    assert sorted(heard[:2]) == sorted([("job:pay", True), ("dead", True)])
    assert sorted(heard[2:]) == sorted([("job:pay", False), ("dead", False)])


async def test_a_hook_that_hangs_has_one_thread_of_its_own_and_is_not_called_again_meanwhile() -> None:
    loop, begun, gate = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def hang(alert: Alert) -> None:
        threads.append(threading.current_thread())
        loop.call_soon_threadsafe(begun.set)
        gate.wait(HANG)

    hook = Hooked(hang)
    sending = asyncio.create_task(hook.send(message_of([ALERT])))
    await begun.wait()
    sending.cancel()  # as when timeout
    with pytest.raises(asyncio.CancelledError):
        await sending
    with pytest.raises(OSError, match="the last message is still being sent"):
        await hook.send(message_of([ALERT]))
    assert [thread.daemon for thread in threads] == [True]  # one of the loop's own threads is none
    gate.set()
    threads[0].join()
    await hook.send(message_of([ALERT]))
    assert len(threads) == 2


def test_when_every_scheduler_is_gone_a_worker_notices_and_tells_and_the_next_watch_resolves_it() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    def work() -> None: ...

    app.schedule("hourly", work, every("1h"))
    pager = Pager()
    with virtual_time(app) as world:
        world.watch()
        world.run_for("10m")
        sentry = make_sentry(world.store, make_herald(world.store, [pager], clock=world.clock), clock=world.clock)
        assert not world.call(sentry.run_once())
        world.kill_scheduler()
        world.run_for("50s")
        assert not world.call(sentry.run_once())
        world.run_for("30s")
        assert world.call(sentry.run_once())
        found = app.operate.alerts()
        assert found.silent
        assert [alert.kind for alert in found.alerts] == [Kind.WATCH_SILENT]
        world.run_for("1m")
        world.call(sentry.run_once())
        assert [message.title for message in pager.taken] == ["[foliot] critical: watch_silent: fleet"]
        world.add_scheduler()
        world.run_for("1m")
        found = app.operate.alerts()
        assert (found.silent, found.alerts) == (False, [])
        assert [alert.resolved_at is not None for alert in world.alerts(everything=True)] == [True]


def test_whoever_lists_alerts_learns_that_nobody_watches_also_without_a_worker() -> None:
    app = Foliot("sqlite:///:memory:")
    with virtual_time(app) as world:
        world.watch()
        world.run_for("1m")
        world.kill_scheduler()
        world.kill_worker()
        world.run_for("3m")
        found = app.operate.alerts()
        assert [(alert.number, alert.kind) for alert in found.alerts] == [(0, Kind.WATCH_SILENT)]
