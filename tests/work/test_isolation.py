"""Attempts in processes of their own. The processes are real; deadlines come by a clock that the test moves on."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from foliot import Foliot
from foliot.clock import SystemClock
from foliot.domain.instant import HOUR, MINUTE, Duration, Instant
from foliot.domain.ledger import Item, ItemState
from foliot.domain.policy import Policy
from foliot.domain.run import Claimed, Ending, Progress
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
from tests.tiers import full_only
from tests.work import cells
from tests.work.fakes import START, FakeStore, claimed, run, until


class CallingStore(FakeStore):
    """Calls its worker when there is something to claim, as a server does. The worker need not look all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.call: Callable[[], None] = lambda: None

    def when_new(self, callback: Callable[[], None]) -> bool:
        self.call = callback
        return True

    def hand_off(self, job: str, arguments: Any = b"{}", **more: Any) -> Claimed:
        run = super().hand_off(job, arguments, **more)
        self.call()
        return run


class AdvancedClock(SystemClock):
    """The host's clock, and what the test adds to it."""

    added: Duration = 0
    stopped_at: Instant | None = None

    def stop(self) -> None:
        """No more time passes, so that nothing takes too long on a busy machine."""
        self.stopped_at = self.monotonic()

    def now(self) -> Instant:
        return super().now() + self.added

    def monotonic(self) -> Instant:
        return super().monotonic() + self.added if self.stopped_at is None else self.stopped_at


class Crowd:
    """How many attempts there were at a time."""

    def __init__(self) -> None:
        self.there = 0
        self.most = 0

    def claimed(self, worker: int, attempts: Sequence[object]) -> None:
        self.there += len(attempts)
        self.most = max(self.most, self.there)

    def ended(self, attempt: object, ending: Ending | None) -> None:
        self.there -= 1

    def lost(self, losses: Sequence[object]) -> None: ...


class Prison:
    """A worker on a fake store, whose jobs have processes of their own."""

    def __init__(self, *handlers: Handler, **worker: Any) -> None:
        self.store = CallingStore()
        self.clock = AdvancedClock()
        known = {handler.name: handler for handler in handlers or (job.handler for job in cells.app.jobs.values())}
        self.worker: Any = Worker(self.store, self.clock, known, isolates=True, **worker)

    async def begun(self, count: int = 1) -> None:
        await until(lambda: len([one for one in self.worker.running if one.started_at]) == count)

    async def spawned(self) -> int:
        """The number of the process, which has not begun with its handler."""
        await until(lambda: self.worker.running and self.cell and self.cell._process)
        pid: int = self.cell._process.pid
        return pid

    async def pass_time(self) -> None:
        """More than any timeout here; and then, the attempt having been asked to stop, more than it has for that."""
        self.clock.added += 2 * HOUR
        await self.pass_time_to_heed()

    async def pass_time_to_heed(self) -> None:
        (attempt,) = self.worker.running
        await until(lambda: attempt.asked_at is not None)
        self.clock.added += MINUTE

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


def test_a_result_comes_back_as_data():
    ending = outcome("add_later", {"x": 1, "y": 2})
    assert (ending.outcome, ending.event, ending.result) == (Outcome.SUCCEEDED, Event.COMPLETED, b"3")
    assert ending.started_at is not None
    assert ending.started_at <= ending.finished_at


def test_it_has_a_process_and_a_session_of_its_own_which_load_nothing_that_an_attempt_does_not_need():
    pid, session, heavy = json.loads(outcome("whoami").result or b"")
    assert pid == session != os.getpid()
    assert not Path(f"/proc/{pid}").exists()
    assert heavy == []


def test_an_exception_comes_back_as_it_would_from_a_thread():
    ending = outcome("refuse", {"why": "closed"})
    assert (ending.outcome, ending.event, ending.reason) == (Outcome.PERMANENT, Event.GAVE_UP, Reason.PERMANENT)
    assert (ending.error or "").startswith("foliot.errors.Permanent: closed\nTraceback")


CRASHES = {
    "exit": "exited with code 3 without a result",
    "segfault": "was killed by signal 11 (SIGSEGV)",
    "kill": "was killed by signal 9 (SIGKILL); it may have run out of memory",
}


def test_processes_that_die_have_failed_and_say_how_others_go_on_and_no_more_run_at_a_time_than_allowed():
    async def scene():
        crowd = Crowd()
        async with prison(slots=10, processes=2, recorder=crowd) as made:
            crashes = {made.give("crash", {"how": how}).number: words for how, words in CRASHES.items()}
            sum_ = made.give("add", {"x": 1, "y": 1}).number
            misfit = made.give("add", {"x": "one"}).number
            endings = {ending.number: ending for ending in await made.ended(5)}
            for number, words in crashes.items():
                ending = endings[number]
                assert (ending.outcome, ending.event) == (Outcome.FAILED, Event.RETRY_GRANTED)
                assert ending.error == f"the handler's process {words}"
                assert ending.started_at is not None
            assert (endings[sum_].outcome, endings[sum_].result) == (Outcome.SUCCEEDED, b"2")
            assert endings[misfit].reason is Reason.BAD_PAYLOAD
            assert crowd.most == 2

    run(scene())


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
            made.give("hang", policy='{"timeout": 3600000000}')
            await made.begun()
            pid = made.cell._process.pid
            await made.pass_time()
            (ending,) = await made.ended()
            assert (ending.outcome, ending.event, ending.reason) == (
                Outcome.TIMED_OUT,
                Event.RETRY_GRANTED,
                Reason.TIMED_OUT,
            )
            assert "the process of the attempt did not stop and was killed" in (ending.error or "")
            assert not is_alive(pid)

    run(scene())


@pytest.fixture
def sluggish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Handler:
    """Of a job whose module is never imported to its end by the process of an attempt."""
    (tmp_path / "sluggish.py").write_text(
        "import os, time\n"
        "from foliot import Foliot\n"
        "app = Foliot('sqlite:///:memory:')\n"
        "@app.job(isolation='process', timeout='1h')\n"
        "def work() -> None: ...\n"
        "if 'FOLIOT_ATTEMPT' in os.environ: time.sleep(600)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sluggish", raising=False)
    handler: Handler = importlib.import_module("sluggish").work.handler
    return handler


def test_a_process_that_does_not_even_start_in_time_has_timed_out(sluggish: Handler):
    async def scene():
        async with prison(sluggish) as made:
            made.give("work")
            await made.spawned()
            await made.pass_time()
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
            await made.pass_time_to_heed()
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


@pytest.mark.parametrize("job", ["hang_async", "hang_politely"])
def test_a_process_that_heeds_ends_by_itself(job: str):
    async def scene():
        async with prison() as made:
            made.clock.stop()
            made.give(job)
            await made.begun()
            made.worker.heard(made.worker.number, Beat(True, [1]))
            (ending,) = await made.ended()
            assert (ending.outcome, ending.event) == (Outcome.CANCELLED, Event.CANCEL)
            assert "killed" not in (ending.error or "")

    run(scene())


def test_one_that_stands_still_is_killed_if_its_job_says_so():
    async def scene():
        async with prison() as made:
            made.give("hang", policy='{"timeout": 36000000000, "stall_after": 3600000000, "on_stall": "kill"}')
            await made.begun()
            await made.pass_time()
            (ending,) = await made.ended()
            assert (ending.error or "").endswith("; the process of the attempt did not stop and was killed")
            assert (ending.outcome, ending.reason) == (Outcome.STALLED, Reason.STALLED)
            # On a busy machine the event loop, too, may be found to stand still: that is noted as "blocked".
            assert [kind for kind, *_ in made.store.notes if kind != "blocked"] == ["stuck"]

    run(scene())


def test_a_drain_interrupts_kills_what_does_not_heed_and_leaves_the_fleet():
    async def scene():
        async with prison() as made:
            made.give("hang")
            made.give("hang_politely")
            await made.begun(2)
        assert made.store.outcomes == [Outcome.INTERRUPTED] * 2
        assert made.store.retired == [made.worker.number]

    run(scene())


def test_progress_and_checkpoint_reach_the_store(tmp_path: Path):
    async def scene():
        heard = tmp_path / "heard"
        async with prison() as made:
            made.give("tell", {"heard": str(heard)})
            await until(lambda: [word for _, words in made.store.beats for word in words if word.checkpoint])
            heard.touch()
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


@full_only
def test_eight_at_once_share_three_slots_and_all_end():
    async def scene():
        crowd = Crowd()
        async with prison(slots=3, recorder=crowd) as made:
            for number in range(8):
                made.give("add", {"x": number, "y": 0})
            endings = await made.ended(8)
            assert crowd.most == 3
            assert sorted(int(ending.result or b"-1") for ending in endings) == list(range(8))

    run(scene())


def test_a_handler_that_is_interrupted_before_it_began_is_given_back(sluggish: Handler):
    async def scene():
        async with prison(sluggish) as made:
            claim = made.give("work")
            await made.spawned()
        assert (made.store.given_back, made.store.finished) == ([claim], [])

    run(scene())


def test_items_that_were_done_before_the_end_are_kept(tmp_path: Path):
    async def scene():
        heard = tmp_path / "heard"
        async with prison() as made:
            made.give("batch", {"heard": str(heard)})
            await until(lambda: [word for _, words in made.store.beats for word in words if word.items])
            heard.touch()
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
    assert attempt.news() == Progress(1, 10, START, b"3", b"c", (one, two, three)), "all is said until heard"
    attempt.was_told(told)
    rest = Progress(1, 10, START, b"3", None, (three,))
    assert attempt.report() == rest
    attempt.was_told(rest)
    assert (attempt.news(), attempt.report(), attempt.moved_at()) == (None, None, 7)


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
        await made.begun()
        pids.append(made.cell._process.pid)
        # Leaves without a drain, as when the store is lost for good.

    run(scene())
    assert [is_alive(pid) for pid in pids] == [False]


def test_a_transaction_needs_a_store_that_another_process_can_open():
    ending = outcome("settle")
    assert ending.outcome is Outcome.FAILED
    assert "ctx.transaction() cannot reach a store in the worker's memory" in (ending.error or "")
