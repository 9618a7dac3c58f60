"""Attempts in processes of their own. These are real, and take real time; nothing here waits longer than it must."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from foliot import Foliot
from foliot.clock import SystemClock
from foliot.domain.ledger import Item, ItemState
from foliot.domain.policy import Policy
from foliot.domain.run import Ending, Progress
from foliot.domain.state import Event, Outcome, Reason, State
from foliot.domain.store import Beat
from foliot.errors import InvalidInput
from foliot.testing import virtual_time
from foliot.work import wire
from foliot.work.confinement import checked_memory
from foliot.work.handler import Handler
from foliot.work.isolate import IsolatedAttempt
from foliot.work.kin import kin
from foliot.work.worker import Worker
from tests.work import cells
from tests.work.fakes import START, FakeStore, claimed, run, until


class Prison:
    """A worker in real time on a fake store, whose jobs have processes of their own."""

    def __init__(self, *handlers: Handler, **worker: Any) -> None:
        self.store = FakeStore()
        known = {handler.name: handler for handler in handlers or (job.handler for job in cells.app.jobs.values())}
        self.worker: Any = Worker(self.store, SystemClock(), known, isolates=True, **worker)

    async def ended(self, count: int = 1) -> list[Ending]:
        await until(lambda: len(self.store.finished) >= count)
        return self.store.finished

    def give(self, job: str, arguments: dict[str, Any] | None = None, policy: str | None = None, **more: Any) -> Any:
        options = None if policy is None else policy.encode()
        return self.store.hand_off(job, arguments or {}, options=options, **more)

    @property
    def cell(self) -> Any:
        (attempt,) = self.worker.running
        return attempt.cell


@asynccontextmanager
async def prison(*handlers: Handler, grace: int = 0, **worker: Any) -> AsyncIterator[Prison]:
    made = Prison(*handlers, **worker)
    await made.worker.start()
    working = asyncio.create_task(made.worker.run())
    try:
        yield made
    finally:
        await made.worker.drain(grace)
        await working
    assert made.worker.running == {}


def outcome(job: str, arguments: dict[str, Any] | None = None, **more: Any) -> Ending:
    """How one run ends, alone."""
    endings: list[Ending] = []

    async def scene():
        async with prison() as made:
            made.give(job, arguments, **more)
            endings.extend(await made.ended())

    run(scene())
    (ending,) = endings
    return ending


@pytest.mark.parametrize("job", ["add", "add_later"])
def test_a_result_comes_back_as_data(job: str):
    ending = outcome(job, {"x": 1, "y": 2})
    assert (ending.outcome, ending.event, ending.result) == (Outcome.SUCCEEDED, Event.COMPLETED, b"3")
    assert ending.started_at is not None
    assert ending.started_at <= ending.finished_at


def test_it_has_a_process_and_a_session_of_its_own():
    pid, session = json.loads(outcome("whoami").result or b"")
    assert pid == session != os.getpid()
    assert not Path(f"/proc/{pid}").exists()


def test_an_exception_comes_back_as_it_would_from_a_thread():
    ending = outcome("refuse", {"why": "closed"})
    assert (ending.outcome, ending.event, ending.reason) == (Outcome.PERMANENT, Event.GAVE_UP, Reason.PERMANENT)
    assert (ending.error or "").startswith("foliot.errors.Permanent: closed\nTraceback")


def test_arguments_that_do_not_fit_are_a_bad_payload():
    assert outcome("add", {"x": "one"}).reason is Reason.BAD_PAYLOAD


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("exit", "ended with exit code 3 and without a word"),
        ("segfault", "was killed by signal 11 (SIGSEGV)"),
        ("kill", "was killed by signal 9 (SIGKILL); perhaps it ran out of memory"),
    ],
)
def test_a_process_that_dies_by_itself_has_failed_and_says_how(how: str, words: str):
    ending = outcome("crash", {"how": how})
    assert (ending.outcome, ending.event) == (Outcome.FAILED, Event.RETRY_GRANTED)
    assert ending.error == f"the process of the handler {words}"
    assert ending.started_at is not None


def test_more_memory_than_allowed_is_an_ordinary_failure():
    ending = outcome("hoard")
    assert (ending.outcome, (ending.error or "").split("\n")[0]) == (Outcome.FAILED, "MemoryError")


def test_a_handler_that_forks_ends_once():
    assert outcome("fork").result == b'"this one"'


def test_what_cannot_be_imported_is_a_permanent_error_that_says_why():
    async def scene():
        hidden = cells.make_hidden()
        async with prison(hidden.jobs["unseen"].handler) as made:
            made.give("unseen")
            (ending,) = await made.ended()
            assert ending.outcome is Outcome.PERMANENT
            assert "at the top of a module, not inside a function" in (ending.error or "")

    run(scene())


def test_an_app_that_breaks_when_it_is_imported_fails_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "fickle.py").write_text(
        "import os\n"
        "from foliot import Foliot\n"
        "app = Foliot('sqlite:///:memory:')\n"
        "@app.job(isolation='process')\n"
        "def work() -> None: ...\n"
        "if 'FOLIOT_ATTEMPT' in os.environ: raise RuntimeError('not here')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import fickle  # type: ignore[import-not-found]

    async def scene():
        async with prison(fickle.work.handler) as made:
            made.give("work")
            (ending,) = await made.ended()
            assert (ending.outcome, ending.event) == (Outcome.FAILED, Event.RETRY_GRANTED)
            assert "RuntimeError: not here" in (ending.error or "")
            assert 'fickle.py", line 6' in (ending.error or "")

    run(scene())


def test_a_process_past_its_deadline_is_killed_and_has_provably_ended():
    async def scene():
        async with prison() as made:
            made.give("hang", policy='{"timeout": 3000000}')
            await until(lambda: made.worker.running and made.cell and made.cell._process)
            pid = made.cell._process.pid
            (ending,) = await made.ended()
            assert (ending.outcome, ending.event, ending.reason) == (
                Outcome.TIMED_OUT,
                Event.RETRY_GRANTED,
                Reason.TIMED_OUT,
            )
            assert "its process did not heed that, and was killed" in (ending.error or "")
            assert not is_alive(pid)

    run(scene())


def test_a_process_that_does_not_even_start_in_time_has_timed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "sluggish.py").write_text(
        "import os, time\n"
        "from foliot import Foliot\n"
        "app = Foliot('sqlite:///:memory:')\n"
        "@app.job(isolation='process', timeout='300ms')\n"
        "def work() -> None: ...\n"
        "if 'FOLIOT_ATTEMPT' in os.environ: time.sleep(600)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import sluggish  # type: ignore[import-not-found]

    async def scene():
        async with prison(sluggish.work.handler) as made:
            made.give("work")
            (ending,) = await made.ended()
            assert (ending.outcome, ending.event) == (Outcome.TIMED_OUT, Event.RETRY_GRANTED)

    run(scene())


def test_all_that_a_killed_process_started_is_ended_too(tmp_path: Path):
    async def scene():
        note = tmp_path / "note"
        async with prison() as made:
            made.give("raise_a_family", {"note": str(note)}, policy='{"timeout": 60000000}')
            await until(note.exists)
            mark, pid = made.cell._mark, made.cell._process.pid
            family = kin(mark, pid)
            assert len(family) == 3
            made.worker.heard(made.worker.number, Beat(True, [1]))
            (ending,) = await made.ended()
            assert ending.outcome is Outcome.CANCELLED
            assert kin(mark) == []
            assert [one for one in family if is_alive(one)] == []

    run(scene())


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("job", ["hang_politely", "hang_async"])
def test_a_process_that_heeds_ends_by_itself(job: str):
    async def scene():
        async with prison() as made:
            made.give(job)
            await until(lambda: [one for one in made.worker.running if one.started_at])
            made.worker.heard(made.worker.number, Beat(True, [1]))
            (ending,) = await made.ended()
            assert (ending.outcome, ending.event) == (Outcome.CANCELLED, Event.CANCEL)
            assert "killed" not in (ending.error or "")

    run(scene())


def test_one_that_stands_still_is_killed_if_its_job_says_so():
    async def scene():
        async with prison() as made:
            made.give("hang", policy='{"stall_after": 3000000, "on_stall": "kill"}')
            (ending,) = await made.ended()
            assert (ending.error or "").endswith("; its process did not heed that, and was killed")
            assert (ending.outcome, ending.reason) == (Outcome.STALLED, Reason.STALLED)
            assert [kind for kind, *_ in made.store.notes] == ["stuck"]

    run(scene())


def test_a_drain_interrupts_kills_what_does_not_heed_and_leaves_the_fleet():
    async def scene():
        async with prison() as made:
            made.give("hang")
            made.give("hang_politely")
            await until(lambda: len([one for one in made.worker.running if one.started_at]) == 2)
        assert made.store.outcomes == [Outcome.INTERRUPTED] * 2
        assert made.store.retired == [made.worker.number]

    run(scene())


def test_progress_and_checkpoint_reach_the_store():
    async def scene():
        async with prison() as made:
            made.give("tell")
            (ending,) = await made.ended()
            assert ending.result == b"1"
            said = [word for _, words in made.store.beats for word in words]
            assert [word.checkpoint for word in said if word.checkpoint] == [b'{"row":7}']
            assert [b'"begun"' in word.note for word in said if word.note] == [True]

    run(scene())


def test_an_effect_is_in_the_ledger_and_is_done_once():
    async def scene():
        async with prison() as made:
            made.give("pay", {"bill": 7})
            (ending,) = await made.ended()
            assert ending.result == b'"paid 7"'
            (line,) = made.store.effects[1].values()
            assert (line.name, line.key, line.state, line.result) == ("payout", "7", "done", b'"paid 7"')

    run(scene())


def test_a_process_that_dies_inside_an_effect_leaves_a_maybe():
    ending = outcome("pay_and_die", {"bill": 7})
    assert (ending.outcome, ending.event, ending.reason, ending.stage) == (
        Outcome.FAILED,
        Event.MAYBE_FOUND,
        Reason.EFFECT,
        "inside_effect",
    )


def test_eight_at_once_share_three_slots_and_all_end():
    async def scene():
        async with prison(slots=3) as made:
            for number in range(8):
                made.give("add", {"x": number, "y": 0})
            await until(lambda: made.store.finished)
            assert len(made.worker.running) <= 3
            async with asyncio.timeout(60):
                while len(made.store.finished) < 8:
                    assert len(made.worker.running) <= 3
                    await asyncio.sleep(0.01)
            results = sorted(int(ending.result or b"-1") for ending in made.store.finished)
            assert results == list(range(8))

    run(scene())


def test_no_more_processes_at_a_time_than_allowed():
    async def scene():
        async with prison(slots=10, processes=2) as made:
            for _ in range(4):
                made.give("hang_politely")
            await until(lambda: len(made.worker.running) == 2)
            assert len(made.store.ready) == 2

    run(scene())


def test_a_crowd_of_crashes_takes_nobody_down():
    async def scene():
        async with prison(slots=4) as made:
            for how in ("exit", "segfault", "kill", "exit"):
                made.give("crash", {"how": how})
            made.give("add", {"x": 1, "y": 1})
            endings = await made.ended(5)
            assert sorted(ending.outcome for ending in endings) == [Outcome.FAILED] * 4 + [Outcome.SUCCEEDED]

    run(scene())


def test_a_handler_that_is_interrupted_before_it_began_is_given_back():
    async def scene():
        async with prison() as made:
            claim = made.give("hang")
            await until(lambda: made.worker.running)
        assert (made.store.given_back, made.store.finished) == ([claim], [])

    run(scene())


def test_items_that_were_done_before_the_end_are_kept():
    async def scene():
        async with prison() as made:
            made.give("batch")
            (ending,) = await made.ended()
            assert ending.outcome is Outcome.FAILED
            said = [item.key for _, words in made.store.beats for word in words for item in word.items]
            assert said == ["1", "2"]

    run(scene())


def test_what_a_process_says_is_kept_until_the_store_was_told():
    one, two, three = (Item("", str(number), ItemState.DONE) for number in (1, 2, 3))
    attempt = IsolatedAttempt(claimed(), cells.add.handler, Policy())
    attempt.started_at = START
    began = attempt.news()
    assert began == Progress(1, 10, START, None, None)
    attempt.hear(wire.Said(Progress(1, 10, START, b"1", b"c", (one,)), moved_at=5))
    attempt.hear(wire.Said(Progress(1, 10, START, b"2", None, (two,)), moved_at=6))
    told = attempt.news()
    assert told == Progress(1, 10, START, b"2", b"c", (one, two))
    attempt.hear(wire.Said(Progress(1, 10, START, b"3", None, (three,)), moved_at=7))
    attempt.was_told(told, unheard=True)
    assert attempt.news() == Progress(1, 10, START, b"3", None, (one, two, three)), "items are said until heard"
    attempt.was_told(told)
    rest = Progress(1, 10, START, b"3", None, (three,))
    assert attempt.last_words() == rest
    attempt.was_told(rest)
    assert (attempt.news(), attempt.last_words(), attempt.moved_at()) == (None, None, 7)


def test_in_virtual_time_an_isolated_job_runs_here_like_any_other():
    app = Foliot("sqlite:///:memory:")
    seen = []

    @app.job(isolation="process")
    def look() -> None:
        seen.append(os.getpid())

    with virtual_time(app) as world:
        look.now()
        world.run_for("1m")
        assert world.states() == [State.SUCCEEDED]
    assert seen == [os.getpid()]


@pytest.mark.parametrize(
    ("given", "size"),
    [("512MB", 512_000_000), ("2GiB", 2 << 30), ("0.5 gb", 500_000_000), (100_000_000, 100_000_000), (None, None)],
)
def test_memory_is_given_in_bytes_or_as_people_write_it(given: object, size: int | None):
    assert checked_memory("job", given, "process") == size


@pytest.mark.parametrize("given", ["much", "512 bananas", "1MB", 0, True, -5, 1.5])
def test_memory_that_cannot_be_meant_is_refused(given: object):
    with pytest.raises(InvalidInput, match="512MB"):
        checked_memory("job", given, "process")


def test_a_limit_without_a_process_of_its_own_is_refused_with_the_fix():
    def work() -> None: ...

    with pytest.raises(InvalidInput, match='add isolation="process"'):
        Handler.of(work, memory="512MB")
    with pytest.raises(InvalidInput, match="choose 'none' or 'process'"):
        Handler.of(work, isolation="thread")


def test_a_process_does_not_outlive_the_loop_that_conducts_it():
    pids: list[int] = []

    async def scene():
        made = Prison()
        await made.worker.start()
        made.give("hang")
        await made.worker.run_once()
        await until(lambda: [one for one in made.worker.running if one.started_at])
        pids.append(made.cell._process.pid)
        # Leaves without a drain, as when the store is lost for good.

    run(scene())
    assert [is_alive(pid) for pid in pids] == [False]


def test_a_process_loads_nothing_that_an_attempt_does_not_need():
    heavy = ("typer", "rich", "holidays", "asyncpg", "foliot.cli", "foliot.testing")
    code = f"import sys, foliot.isolated; print([name for name in {heavy} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert told.stdout.strip() == "[]"


def test_a_transaction_needs_a_store_that_another_process_can_open():
    ending = outcome("settle")
    assert ending.outcome is Outcome.FAILED
    assert "a store in its worker's memory cannot be reached from a process of its own" in (ending.error or "")
