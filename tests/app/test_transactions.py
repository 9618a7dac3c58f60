"""`ctx.transaction()`: what a handler writes, promises and completes is one, or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from foliot import Context, Foliot
from foliot.bootstrap import make_store
from foliot.clock import ManualClock
from foliot.domain.ledger import EffectState
from foliot.domain.state import Outcome, State
from foliot.errors import InvalidInput, LostOwnership
from foliot.testing import World
from tests.servers.emptied import emptied
from tests.tiers import full_only, only_in_full

START = datetime(2026, 4, 3, 2, tzinfo=UTC)


@pytest.fixture(
    params=[
        pytest.param("sqlite:///:memory:", id="sqlite-memory"),
        pytest.param("file", id="sqlite"),
        pytest.param("postgres", id="postgres", marks=pytest.mark.needs("postgres")),
    ]
)
def world(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[World]:
    url = request.param
    is_server = url == "postgres"
    if url == "file":
        url = f"sqlite:///{tmp_path / 'foliot.db'}"
    elif is_server:
        url = emptied(request.getfixturevalue("postgres"), by_socket=True)
    app, clock = Foliot(url), ManualClock(int(START.timestamp() * 1_000_000))
    store = request.getfixturevalue("warm").store(url, clock) if is_server else make_store(url, clock)
    runner: asyncio.Runner = request.getfixturevalue("lasting_runner" if is_server else "runner")
    runner.run(store.open())
    with app.standing_on(store, clock):
        world = World(app, store, clock)
        world._runner = runner
        world.call(_without_rows(world))
        yield world
        world.close()


TABLE = "CREATE TABLE IF NOT EXISTS revenue (day text, region integer)"
COUNT = "SELECT count(*) FROM revenue"


async def _without_rows(world: World) -> None:
    """The tests on PostgreSQL share one database, and with it this table."""
    opened = world.store.transaction()
    await opened.begin()
    for statement in (TABLE, "DELETE FROM revenue"):
        done: Any = opened.connection.execute(statement)
        if not opened.is_blocking:
            await done
    await opened.commit()


async def _rows(world: World) -> int:
    opened = world.store.transaction()
    await opened.begin()
    try:
        if opened.is_blocking:
            return int(opened.connection.execute(COUNT).get)
        return int(await opened.connection.fetchval(COUNT))
    finally:
        await opened.commit()


def rows(world: World) -> int:
    """From outside."""
    return world.call(_rows(world))


def written(tx: Any) -> None:
    for region in range(3):
        tx.connection.execute(f"INSERT INTO revenue VALUES ('2026-04-03', {region})")


async def written_async(tx: Any) -> None:
    for region in range(3):
        done = tx.connection.execute(f"INSERT INTO revenue VALUES ('2026-04-03', {region})")
        if hasattr(done, "__await__"):
            await done


class Books:
    """A job in either form, whose handler does what the test wants after its rows are written."""

    def __init__(self, world: World, is_async: bool) -> None:
        self.world, self.app = world, world.app
        self.then: Any = lambda ctx, tx: None
        self.after: Any = lambda ctx: None
        self.errors: list[BaseException] = []

        def close(ctx: Context) -> str:
            with ctx.transaction() as tx:
                written(tx)
                self.then(ctx, tx)
            self.after(ctx)
            return "not kept"

        async def close_async(ctx: Context) -> str:
            async with ctx.transaction() as tx:
                await written_async(tx)
                self.then(ctx, tx)
            self.after(ctx)
            return "not kept"

        self.job = self.app.job(name="close", effects=("row", "payout"), attempts=2, backoff="1s")(
            close_async if is_async else close
        )

        @self.app.job
        async def remind(n: int) -> None: ...

        self.remind = remind

    def run(self, length: str = "1m") -> Any:
        kept = self.job.using(key="books").now()
        if not self.world.workers:
            self.world.start()
        self.world.run_for(length)
        return self.world.run(kept.id)


@pytest.fixture
def books(world: World, is_async: bool) -> Books:
    return Books(world, is_async)


def _forms(*postgres: Any) -> pytest.MarkDecorator:
    """Both forms of a job on SQLite, and these on PostgreSQL. The full suite runs every form on every store."""
    sqlite = [pytest.param("file", False, id="sqlite-sync"), pytest.param("file", True, id="sqlite-async")]
    memory = [
        only_in_full("sqlite:///:memory:", False, id="sqlite-memory-sync"),
        only_in_full("sqlite:///:memory:", True, id="sqlite-memory-async"),
    ]
    return pytest.mark.parametrize(("world", "is_async"), [*sqlite, *memory, *postgres], indirect=["world"])


needs_postgres = pytest.mark.needs("postgres")
SYNC, ASYNC = (("postgres", is_async) for is_async in (False, True))
on_both_stores = _forms(
    pytest.param(*SYNC, id="postgres-sync", marks=[full_only, needs_postgres]),
    pytest.param(*ASYNC, id="postgres-async", marks=needs_postgres),
)
"""The other tests here run the sync form on PostgreSQL."""
before_any_store = _forms(
    pytest.param(*SYNC, id="postgres-sync", marks=[full_only, needs_postgres]),
    pytest.param(*ASYNC, id="postgres-async", marks=[full_only, needs_postgres]),
)
"""For what the context refuses without asking the store."""


@on_both_stores
def test_rows_result_and_completion_are_committed_together(books: Books, world: World) -> None:
    def then(_: Context, tx: Any) -> None:
        tx.result = {"regions": 3}

    books.then = then
    run = books.run()
    assert (run.state, run.result, run.reason) == (State.SUCCEEDED, b'{"regions":3}', "committed")
    assert [attempt.outcome for attempt in run.attempts] == [Outcome.SUCCEEDED]
    assert rows(world) == 3


@on_both_stores
def test_a_block_that_raises_leaves_nothing_and_the_next_attempt_does_all_of_it(books: Books, world: World) -> None:
    def then(ctx: Context, tx: Any) -> None:
        if ctx.attempt == 1:
            raise ValueError("the power went")

    books.then = then
    run = books.run()
    assert (run.state, run.attempt, rows(world)) == (State.SUCCEEDED, 2, 3)


@on_both_stores
def test_what_happens_after_the_block_cannot_undo_it(books: Books, world: World) -> None:
    def after(_: Context) -> None:
        raise ValueError("too late")

    books.after = after
    run = books.run()
    assert (run.state, run.attempt, rows(world)) == (State.SUCCEEDED, 1, 3)


@before_any_store
def test_a_second_transaction_is_refused(books: Books) -> None:
    def after(ctx: Context) -> None:
        with pytest.raises(InvalidInput, match="has completed this run already"):
            ctx.transaction()

    books.after = after
    assert books.run().state is State.SUCCEEDED


@on_both_stores
def test_a_transaction_inside_another_one_is_refused_at_once(world: World, is_async: bool) -> None:
    """Made before the first one is open, it would wait for that one, which waits for the handler."""

    def nest(ctx: Context) -> None:
        outer, inner = ctx.transaction(), ctx.transaction()
        with outer as tx:
            written(tx)
            for again in (inner, outer):
                with pytest.raises(InvalidInput, match="is open already"), again:
                    pass

    async def nest_async(ctx: Context) -> None:
        outer, inner = ctx.transaction(), ctx.transaction()
        async with outer as tx:
            await written_async(tx)
            for again in (inner, outer):
                with pytest.raises(InvalidInput, match="is open already"):
                    async with again:
                        pass

    kept = world.app.job(name="nest", attempts=1)(nest_async if is_async else nest).now()
    world.start()
    world.run_for("1m")
    run = world.run(kept.id)
    assert (run.state, rows(world)) == (State.SUCCEEDED, 3), run.detail


@before_any_store
def test_what_leaves_the_database_belongs_before_the_transaction(books: Books) -> None:
    def then(ctx: Context, _: Any) -> None:
        with pytest.raises(InvalidInput, match=r"tx\.effect"):
            ctx.effect("payout", 7)

    books.then = then
    assert books.run().state is State.SUCCEEDED


def test_a_promise_is_part_of_the_transaction(world: World) -> None:
    books = Books(world, is_async=False)

    def then(ctx: Context, tx: Any) -> None:
        books.remind.using(connection=tx.connection, key="r").at(START + timedelta(days=1), n=ctx.attempt)
        if ctx.attempt == 1:
            raise ValueError("the power went")

    books.then = then
    assert books.run().state is State.SUCCEEDED
    [reminder] = world.runs(job="remind")
    assert (reminder.id, reminder.payload, reminder.state) == ("r#1", b'{"n":2}', State.SCHEDULED)


def test_an_effect_of_the_transaction_is_done_if_and_only_if_it_commits(world: World) -> None:
    books = Books(world, is_async=False)
    seen = []

    def then(ctx: Context, tx: Any) -> None:
        with tx.effect("row", 7) as row:
            seen.append(row.needed)
            row.result = ctx.attempt
        if ctx.attempt == 1:
            raise ValueError("the power went")

    books.then = then
    run = books.run()
    assert (run.state, seen) == (State.SUCCEEDED, [True, True])
    [line] = run.effects
    assert (line.state, line.result, line.attempt) == (EffectState.DONE, b"2", 2)


def test_a_run_is_not_completed_around_an_open_effect(world: World) -> None:
    app, errors = world.app, []

    @app.job(effects=("payout",), attempts=1)
    def pay(ctx: Context) -> None:
        try:
            with ctx.effect("payout", 7), ctx.transaction() as tx:
                written(tx)
        except InvalidInput as error:
            errors.append(str(error))

    kept = pay.now()
    world.start()
    world.run_for("1m")
    assert (world.run(kept.id).state, rows(world)) == (State.AMBIGUOUS, 0)
    assert "payout 7 has not ended" in errors[0]


def test_an_attempt_that_lost_its_run_rolls_back(world: World) -> None:
    books = Books(world, is_async=True)
    caught: list[BaseException] = []
    app = books.app

    @app.job(attempts=3)
    async def slow(ctx: Context) -> None:
        if ctx.attempt > 1:
            return
        await world.clock.sleep(60_000_000)
        try:
            async with ctx.transaction() as tx:
                await written_async(tx)
        except LostOwnership as error:
            caught.append(error)
            raise

    kept = slow.now()
    world.start()
    world.run_for("1s")
    [stalled] = world.workers
    world.workers.clear()  # it is not heard of any more, and its handler sleeps on
    world._orphans = True
    world.add_worker()
    world.run_for("50s")
    assert world.run(kept.id).state is State.SUCCEEDED
    world.run_for("10s")
    world.call(stalled.settle())
    assert len(caught) == 1
    assert rows(world) == 0


@needs_postgres
@pytest.mark.parametrize("world", ["postgres"], indirect=True)
def test_virtual_time_stands_still_while_the_database_answers_a_handler(world: World) -> None:
    @world.app.job
    async def slow(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.connection.execute("SELECT pg_sleep(0.2)")

    kept = slow.now()
    world.start()
    world.run_for("1m")
    run = world.run(kept.id)
    assert run.state is State.SUCCEEDED
    assert run.finished_at == run.started_at


def test_a_checked_run_is_verified_after_its_transaction(world: World) -> None:
    books = Books(world, is_async=False)

    @books.job.verify
    def all_there() -> tuple[bool, str]:
        return True, "3 of 3 regions"

    run = books.run()
    assert (run.state, run.detail, rows(world)) == (State.VERIFIED, "3 of 3 regions", 3)


@on_both_stores
def test_a_result_that_is_no_json_rolls_back(books: Books, world: World) -> None:
    def then(_: Context, tx: Any) -> None:
        tx.result = object()

    books.then = then
    run = books.run()
    assert (run.state, rows(world)) == (State.DEAD, 0)
    assert "tx.result must be a JSON value" in run.attempts[0].error


def test_an_async_handler_that_would_block_is_told_how_to_write_it(world: World) -> None:
    app, errors = world.app, []

    @app.job(attempts=1)
    async def wrong(ctx: Context) -> None:
        try:
            with ctx.transaction():
                pass
        except InvalidInput as error:
            errors.append(str(error))

    wrong.now()
    world.start()
    world.run_for("1m")
    assert "async with ctx.transaction()" in errors[0]


def test_items_that_were_done_before_it_are_part_of_it(world: World) -> None:
    @world.app.job
    async def settle(ctx: Context) -> None:
        async for _ in ctx.each([1, 2], key=str):
            pass
        async with ctx.transaction():
            pass

    kept = settle.using(key="books").now()
    world.start()
    world.run_for("1m")
    run = world.run(kept.id)
    assert run.state is State.SUCCEEDED
    assert [(one.of, one.done, one.failed) for one in run.batches] == [(2, 2, 0)]


def test_a_checkpoint_before_it_is_part_of_it_if_a_check_can_refuse_the_run(world: World) -> None:
    seen = []

    @world.app.job
    async def settle(ctx: Context) -> None:
        seen.append(ctx.last_checkpoint)
        ctx.checkpoint("sent")
        async with ctx.transaction():
            pass

    @settle.verify
    def arrived() -> bool:
        return len(seen) > 1

    kept = settle.using(key="books").now()
    world.start()
    world.run_for("1m")
    assert world.run(kept.id).state is State.UNVERIFIED
    world.call(world.app.operate.retry_async(kept.id, reason="it was not sent", actor="ana", override=True))
    world.run_for("1m")
    assert (world.run(kept.id).state, seen) == (State.VERIFIED, [None, "sent"])


def test_more_transactions_than_the_loop_has_threads_go_one_after_another(world: World) -> None:
    """Each waits for the one before it in no thread that this one needs to commit."""

    @world.app.job
    async def book(ctx: Context, n: int) -> None:
        async with ctx.transaction() as tx:
            await written_async(tx)

    runs = [book.using(key=f"book-{n}").now(n=n) for n in range(40)]
    world.start()
    world.run_for("1m")
    ends = [(run.state, len(run.attempts), run.detail) for run in (world.run(kept.id) for kept in runs)]
    assert ends == [(State.SUCCEEDED, 1, None)] * 40
    assert rows(world) == 40 * 3
