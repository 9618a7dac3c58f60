"""Outside watchers hear what becomes of runs, and nobody waits for them."""

from __future__ import annotations

import asyncio
import threading

import pytest

from foliot import Foliot, every
from foliot.bootstrap import make_store, scheduling, working
from foliot.bootstrap.scheduling import _Heartbeat
from foliot.clock import ManualClock
from foliot.domain.instant import MINUTE, SECOND
from foliot.errors import InvalidInput
from foliot.net import EVERYWHERE, AddressGuard, networks
from foliot.testing import virtual_time
from foliot.watch.pinging import FAIL, MOST_THREADS, MOST_WAITING, START, TIMEOUT, Pinger, address
from tests.waiting import HANG
from tests.watch.loopback import listening


def test_a_ping_is_sent_with_its_word_and_what_is_said() -> None:
    with listening() as server:
        pinger = Pinger(EVERYWHERE)
        pinger.ping(f"{server.url}/abc", START)
        pinger.ping(f"{server.url}/abc?create=1", FAIL, "no route")
        pinger.ping(f"{server.url}/abc")
        server.wait_for_requests(count=3)
        pinger.close()
        assert server.requests == [("/abc/start", ""), ("/abc/fail?create=1", "no route"), ("/abc", "")]


def test_a_ping_that_is_not_heard_is_sent_again_and_one_that_is_refused_is_not() -> None:
    with listening() as server:
        server.answers = [503, 200, 404, 302]
        pinger = Pinger(EVERYWHERE, sleep=lambda _: None)
        for word in ("again", "refused", "redirected", "last"):
            pinger.ping(f"{server.url}/{word}")
        server.wait_for_requests(count=5)
        pinger.close()
        assert [path for path, _ in server.requests] == ["/again", "/again", "/refused", "/redirected", "/last"]
        assert pinger.dropped == 2


def test_a_ping_to_a_private_address_is_not_sent_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    with listening() as server:
        pinger = Pinger(AddressGuard())
        pinger.ping(f"{server.url}/secret")
        pinger.close(HANG)
        assert (server.requests, pinger.dropped) == ([], 1)
    [line] = caplog.messages
    assert line.startswith("ping not sent: 127.0.0.1 resolves to 127.0.0.1, an address of this host, ")
    assert "FOLIOT_PRIVATE_NETWORKS" in line
    assert "secret" not in line


def test_scheduler_and_worker_ping_with_the_guard_of_their_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the address of the watch's own ping, a setting of the process, may be any."""
    guard, used = AddressGuard(networks("127.0.0.1")), list[AddressGuard]()

    def noted(guard: AddressGuard) -> Pinger:
        used.append(guard)
        return Pinger(guard)

    for module in (scheduling, working):
        monkeypatch.setattr(module, "Pinger", noted)

    async def begin_and_end() -> None:
        store, stop = make_store("sqlite:///:memory:"), asyncio.Event()
        await store.open()
        stop.set()
        await scheduling.run_scheduler(store, stop, guard=guard)
        await working.run_worker(store, {}, stop, grace=SECOND, queues=["default"], slots=1, guard=guard)
        await store.close()

    asyncio.run(begin_and_end())
    assert used == [guard, EVERYWHERE, guard]


def test_answers_that_are_not_http_and_hosts_that_cannot_be_read_end_no_thread() -> None:
    """More of them than there are threads, and then one that is heard."""
    heard = threading.Event()

    def send(url: str, body: bytes) -> int:
        if "ill" in url:
            raise OSError("the answer is not HTTP: BadStatusLine")
        heard.set()
        return 200

    pinger = Pinger(AddressGuard(), send=send, sleep=lambda _: None)
    for number in range(MOST_THREADS + 1):
        pinger.ping(f"http://ill-{number}.example/x")
    pinger.ping("http://[::1/x")
    pinger.ping("http://well.example/x")
    assert heard.wait(HANG)
    pinger.close(HANG)
    assert pinger.dropped == MOST_THREADS + 2


def test_whoever_pings_never_waits() -> None:
    stuck = threading.Event()

    def hang(url: str, body: bytes) -> int:
        stuck.wait(HANG)
        return 200

    pinger = Pinger(AddressGuard(), send=hang)
    for _ in range(MOST_WAITING + 10):
        pinger.ping("http://127.0.0.1:9/x")
    assert pinger.dropped >= 9
    stuck.set()


def test_a_host_that_hangs_holds_up_no_other_and_is_not_asked_again() -> None:
    stuck, heard, elapsed = threading.Event(), threading.Event(), [0.0]
    asked: list[str] = []

    def hang(url: str, body: bytes) -> int:
        asked.append(url)
        if "slow" in url:
            stuck.wait(HANG)
            elapsed[0] += TIMEOUT
            raise TimeoutError
        heard.set()
        return 200

    pinger = Pinger(AddressGuard(), send=hang, sleep=lambda _: None, monotonic=lambda: elapsed[0])
    for _ in range(MOST_WAITING + 1):
        pinger.ping("https://slow.example/x")
    pinger.ping("https://quick.example/y")
    assert heard.wait(HANG)
    assert not stuck.is_set()
    assert asked.count("https://slow.example/x") == 1
    stuck.set()
    pinger.close(HANG)
    assert pinger.dropped == MOST_WAITING + 1
    assert asked.count("https://slow.example/x") <= MOST_WAITING + 1  # each of them once


def test_only_http_is_pinged_and_the_address_is_not_repeated() -> None:
    app = Foliot("sqlite:///:memory:")
    for given in ("file:///etc/passwd", "ftp://host/secret", "https://", "secret"):
        with pytest.raises(InvalidInput) as refused:
            app.job(ping=given)(lambda: None)
        assert "secret" not in str(refused.value)


def test_a_query_stays_behind_the_word() -> None:
    assert address("https://hc.example/ping/1?rid=2", "start") == "https://hc.example/ping/1/start?rid=2"


def test_the_watcher_of_a_schedule_hears_how_its_runs_begin_and_end() -> None:
    app = Foliot("sqlite:///:memory:")
    heard: list[tuple[str, str, str]] = []
    fails = [True, True, False]

    @app.job(attempts=2, backoff="1s")
    def feed() -> None:
        if fails.pop(0):
            raise ValueError("no route")

    @app.job
    def other() -> None: ...

    app.schedule("feed", feed, every("1h"), ping="https://hc.example/feed")
    app.schedule("other", other, every("1h"))
    with virtual_time(app) as world:
        world.workers[0]._ping = lambda *ping: heard.append(ping)
        world.run_for("2h1m")
    words = [(what, said.splitlines()[0].split("T")[1]) for _, what, said in heard]
    assert words == [
        ("start", "01:00:00Z/1"),
        ("log", "01:00:00Z/1: failed"),
        ("start", "01:00:00Z/2"),
        ("fail", "01:00:00Z/2: failed"),
        ("start", "02:00:00Z/1"),
        ("", "02:00:00Z/1: succeeded"),
    ]
    assert "no route" in heard[3][2]


def test_the_watcher_hears_of_a_worker_that_vanished() -> None:
    app = Foliot("sqlite:///:memory:")
    heard: list[tuple[str, str, str]] = []

    @app.job(ping="https://hc.example/slow", on_lost="ask")
    async def slow() -> None:
        await app.clock.sleep(10 * MINUTE)

    with virtual_time(app) as world:
        world._reaper._ping = lambda *ping: heard.append(ping)
        slow.now()
        world.run_for("5s")
        world.kill_worker()
        world.run_for("2m")
    assert [what for _, what, _ in heard] == ["fail"]


def test_the_watch_is_heard_once_a_minute_while_it_works() -> None:
    with listening() as server:
        clock, pinger = ManualClock(0), Pinger(EVERYWHERE)
        healthy = _Heartbeat(pinger, f"{server.url}/watch", clock)
        for _ in range(13):
            healthy()
            clock.advance(5 * SECOND)
        server.wait_for_requests(count=2)
        pinger.close()
        assert len(server.requests) == 2
