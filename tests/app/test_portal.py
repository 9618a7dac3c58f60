"""Plain verbs in many threads, across close and across a fork."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from foliot import Foliot, portal
from foliot.errors import StoreClosed
from foliot.portal import Portal
from tests.cli.support import environment
from tests.waiting import HANG


def _lived(folder: Path, body: str) -> str:
    """What a process says that forks: in a process of its own, because a fork of pytest is nobody's business."""
    begin = f"""
        import os, sys
        from foliot import Foliot
        from foliot.errors import StoreError

        app = Foliot("sqlite:///{folder}/foliot.db")

        @app.job
        def greet() -> None: ...

        def seen() -> int:
            return len(app.portal.call(app.operate.runs_async, "runs_async"))
    """
    script = textwrap.dedent(begin) + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_parent_and_child_both_go_on_after_a_fork(tmp_path: Path) -> None:
    said = _lived(
        tmp_path,
        """
        greet.now()
        child = os.fork()
        greet.now()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(seen())
        """,
    )
    assert said == "3\n"


def test_what_a_child_was_told_is_durable_survives_its_parents_close(tmp_path: Path) -> None:
    said = _lived(
        tmp_path,
        """
        greet.now()
        to_child, to_parent = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            greet.now()
            os.write(to_parent[1], b"x")
            os.read(to_child[0], 1)
            greet.now()  # with an inherited count of locks, this went into a log that the parent had deleted
            os._exit(0)
        os.read(to_parent[0], 1)
        greet.now()
        app.close()
        os.write(to_child[1], b"x")
        assert os.waitpid(child, 0)[1] == 0
        print(seen())
        """,
    )
    assert said == "4\n"


def test_a_child_is_refused_a_store_that_its_parent_was_using(tmp_path: Path) -> None:
    said = _lived(
        tmp_path,
        """
        import asyncio

        async def live() -> None:
            await greet.now_async()
            child = os.fork()
            if child == 0:
                try:
                    await greet.now_async()
                except StoreError as error:
                    print(error, flush=True)
                    os._exit(0)
                os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            await greet.now_async()

        asyncio.run(live())
        print(seen())
        """,
    )
    assert "close the app before the fork" in said
    assert said.endswith("\n2\n")


def test_a_fork_while_other_threads_call_leaves_nobody_waiting(tmp_path: Path) -> None:
    said = _lived(
        tmp_path,
        """
        import threading

        def many() -> None:
            for _ in range(30):
                greet.now()

        threads = [threading.Thread(target=many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                greet.now()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        for thread in threads:
            thread.join()
        print(len(app.portal.call(lambda: app.operate.runs_async(limit=1_000), "")))
        """,
    )
    assert said == "125\n"


def test_calls_under_way_end_before_the_app_is_closed_and_later_ones_open_it_again(tmp_path: Path) -> None:
    app = Foliot(f"sqlite:///{tmp_path}/foliot.db")

    @app.job
    def greet() -> None: ...

    kept: list[str] = []

    def many() -> None:
        kept.extend(greet.now().id for _ in range(40))

    threads = [threading.Thread(target=many, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        app.close()
    for thread in threads:
        thread.join(HANG)
    assert len(set(kept)) == 160
    assert len(app.portal.call(lambda: app.operate.runs_async(limit=1_000), "runs_async")) == 160
    app.close()
    app.close()


def test_a_call_that_does_not_end_is_cut_off_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portal, "PATIENCE", 0.05)
    door = Portal()
    begun = threading.Event()
    told: list[BaseException] = []

    async def endless() -> None:
        begun.set()
        await asyncio.sleep(3_600)

    def call() -> None:
        try:
            door.call(endless, "endless_async")
        except StoreClosed as error:
            told.append(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    begun.wait(HANG)
    assert not door.rest(cut_off=False)
    door.resume()
    assert caller.is_alive()
    assert door.rest(cut_off=True)
    door.resume()
    caller.join(HANG)
    assert not caller.is_alive()
    assert "was closed before the answer came" in str(told[0])


def test_inside_an_event_loop_close_names_its_async_twin() -> None:
    app = Foliot("sqlite:///:memory:")

    async def blocked() -> None:
        app.close()

    with pytest.raises(RuntimeError, match="await close_async"):
        asyncio.run(blocked())


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="the system does not list its threads")
def test_no_thread_of_a_portal_that_rests_is_left_for_a_fork() -> None:
    """A thread that still ends has locks of libraries, which a child would find locked for ever."""

    async def threads() -> list[int]:
        ids = (asyncio.to_thread(threading.get_native_id) for _ in range(4))
        return [threading.get_native_id(), *(await asyncio.gather(*ids))]

    for _ in range(20):
        portal = Portal()
        used = portal.call(threads, "threads")
        assert portal.rest(cut_off=False)
        assert [thread for thread in used if os.path.exists(f"/proc/self/task/{thread}")] == []
        portal.resume()
