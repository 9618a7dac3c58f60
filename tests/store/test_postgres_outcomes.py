"""A connection is cut, and the question about the outcome is cut too: which error a caller gets, and when."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest

from foliot.domain.instant import HOUR
from foliot.domain.run import OnConflict, Promise
from foliot.domain.state import State
from foliot.errors import NotWritten, OutcomeUnknown, StoreAway, StoreFull
from tests.contract.stage import FAR
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Fault
from tests.store.lines import Line, line
from tests.tiers import only_in_full

INSERT = "INSERT INTO foliot.run"
KEYED = "foliot.make_promise("
MOVE = "SET fire_at = "
SETTLE = "pg_terminate_backend"
"""Ends the statement whose connection was lost."""
OUTCOME = "pg_xact_status"
WHICH = "SELECT number, name, job, payload FROM foliot.run WHERE number = ANY"
BARRIER = "pg_logical_emit_message"

TRIES = 5


def cut_questions(to: Line, *questions: str) -> list[Fault]:
    return [to.proxy.cut_before(one) for one in questions]


def missing(faults: list[Fault]) -> list[Fault]:
    return [fault for fault in faults if not fault.happened]


Act = Callable[[Line], Awaitable[object]]

PLAIN: Act = lambda to: to.store.promise([Promise("job", b"{}", to.stage.now + HOUR) for _ in range(2)])  # noqa: E731
KEY: Act = lambda to: to.stage.promise("class:8", after=HOUR)  # noqa: E731
MOVED: Act = lambda to: to.store.move("class:7", None, FAR)  # noqa: E731

VERBS: dict[str, tuple[Act, str, str, str]] = {
    "promise": (PLAIN, INSERT, WHICH, "SELECT count(*) = 3 FROM foliot.run"),
    "promise by key": (KEY, KEYED, WHICH, "SELECT count(*) = 2 FROM foliot.run"),
    "move": (MOVED, MOVE, OUTCOME, f"SELECT fire_at = {FAR} FROM foliot.run"),
}
"""By verb: the call, a part of its statement, a part of the question about its outcome, and whether it was written."""


@asynccontextmanager
async def full_disk(to: Line, table: str) -> AsyncIterator[None]:
    """While the block lasts, each change of the table fails as it does on a full disk."""
    await to.ask(
        "CREATE FUNCTION foliot.test_full() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
    )
    try:
        await to.ask(
            f"CREATE TRIGGER test_full BEFORE INSERT OR UPDATE ON foliot.{table} EXECUTE FUNCTION foliot.test_full()"
        )
        yield
    finally:
        await to.ask("DROP FUNCTION foliot.test_full() CASCADE")


# -------------------------------------------------------------------------------------------------- asking once more


@pytest.mark.parametrize(
    ("verb", "moment"),
    [
        ("promise", "after"),
        ("promise by key", "after"),
        ("move", "after"),
        only_in_full("promise", "before"),
        only_in_full("promise by key", "before"),
        only_in_full("move", "before"),
    ],
)
async def test_the_store_asks_again_when_the_question_about_an_outcome_is_cut(
    postgres: PostgresServer, verb: str, moment: str
) -> None:
    act, statement, question, written = VERBS[verb]
    async with line(postgres) as to:
        await to.stage.promise("class:7", after=HOUR)
        lost: Fault = getattr(to.proxy, f"cut_{moment}_commit")(statement)
        faults = [lost, *cut_questions(to, SETTLE, question, question)]
        faults += cut_questions(to, BARRIER) if moment == "after" else []
        await act(to)
        assert missing(faults) == []
        assert await to.ask(written) == [(True,)]


async def test_a_backend_that_ends_slowly_or_by_itself_is_asked_about_again(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers false for a backend that does not end in time, and for one that ended in that moment."""
    async with line(postgres) as to:
        await to.ask("CREATE SEQUENCE foliot.test_looks")
        try:
            answers = "SELECT nextval('foliot.test_looks') > 2 WHERE $1::integer[] IS NOT NULL AND $2::text IS NOT NULL"
            monkeypatch.setattr("foliot.store.postgres.connection._END", answers)
            lost = to.proxy.cut_before_commit(INSERT)
            await PLAIN(to)
            assert lost.happened
            assert await to.ask("SELECT last_value FROM foliot.test_looks") == [(3,)]
        finally:
            await to.ask("DROP SEQUENCE foliot.test_looks")


@pytest.mark.parametrize("verb", VERBS)
async def test_an_outcome_is_unknown_only_when_the_server_stays_away(postgres: PostgresServer, verb: str) -> None:
    act, statement, question, written = VERBS[verb]
    async with line(postgres, patience=0) as to:
        await to.stage.promise("class:7", after=HOUR)
        await to.store.schedules()  # both pools have a connection
        lost = to.proxy.cut_after_commit(statement)
        to.proxy.refuse()
        with pytest.raises(OutcomeUnknown, match="was lost during this request, so it is unknown whether it was"):
            await act(to)
        assert lost.happened
        assert not any(question in one for one in to.proxy.seen)
        assert await to.ask(written) == [(True,)]


# ---------------------------------------------------------------------------------------------- nothing was written


@pytest.mark.parametrize(
    ("verb", "tries", "position"),
    [
        ("promise", 4, "before the statement"),
        ("promise by key", 4, "before its commit"),
        ("move", TRIES, "before the statement"),
        ("move", TRIES, "before its commit"),
        only_in_full("promise", 4, "before its commit"),
        only_in_full("promise by key", 4, "before the statement"),
    ],
)
async def test_a_request_that_is_cut_each_time_before_its_commit_was_not_written(
    postgres: PostgresServer, verb: str, tries: int, position: str
) -> None:
    """The server is up: it says each time that nothing was written."""
    act, statement, _, written = VERBS[verb]
    async with line(postgres) as to:
        await to.stage.promise("class:7", after=HOUR)
        arm = to.proxy.cut_before if position == "before the statement" else to.proxy.cut_before_commit
        faults = [arm(statement) for _ in range(tries)]
        with pytest.raises(StoreAway, match="nothing of this request was written"):
            await act(to)
        assert missing(faults) == []
        assert await to.ask(written) == [(False,)]


async def test_a_server_that_goes_away_before_a_commit_is_sent_has_written_nothing(postgres: PostgresServer) -> None:
    async with line(postgres, patience=0) as to:
        await to.stage.promise("class:7", after=HOUR)
        await to.store.schedules()  # its pool has a connection
        lost = to.proxy.cut_before(MOVE)
        to.proxy.refuse()
        with pytest.raises(StoreAway):
            await MOVED(to)
        assert lost.happened


async def test_a_replacement_whose_answers_are_all_lost_is_unknown(postgres: PostgresServer) -> None:
    """The number of the promise that it replaces does not show whether it did."""
    async with line(postgres) as to:
        await to.stage.promise("class:7", after=HOUR)
        faults = [to.proxy.cut_before(KEYED) for _ in range(4)]
        with pytest.raises(OutcomeUnknown):
            await to.stage.promise("class:7", after=2 * HOUR, on_conflict=OnConflict.REPLACE)
        assert missing(faults) == []


async def test_a_look_that_is_cut_each_time_has_written_nothing(postgres: PostgresServer) -> None:
    async with line(postgres) as to:
        faults = cut_questions(to, "FROM foliot.schedule", "FROM foliot.schedule")
        with pytest.raises(StoreAway):
            await to.store.schedules()
        assert missing(faults) == []


async def test_a_statement_that_the_server_refuses_has_written_nothing(postgres: PostgresServer) -> None:
    async with line(postgres) as to:
        await to.ask("ALTER TABLE foliot.run RENAME TO mislaid")
        try:
            with pytest.raises(NotWritten, match="nothing of this request was written") as refused:
                await PLAIN(to)
        finally:
            await to.ask("ALTER TABLE foliot.mislaid RENAME TO run")
        assert not isinstance(refused.value, StoreAway)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_server_without_disk_space_says_so(postgres: PostgresServer, verb: str) -> None:
    act, _, _, written = VERBS[verb]
    async with line(postgres) as to:
        await to.stage.promise("class:7", after=HOUR)
        async with full_disk(to, "run"):
            with pytest.raises(StoreFull, match=r"disk is full.*nothing of this request was written"):
                await act(to)
        assert await to.ask(written) == [(False,)]


async def test_a_firing_that_finds_no_disk_space_says_so_and_loses_nothing(postgres: PostgresServer) -> None:
    async with line(postgres) as to:
        await to.stage.promise()
        await to.stage.scheduler()
        async with full_disk(to, "handoff"):
            with pytest.raises(StoreFull):
                await to.stage.fire()
        assert (await to.stage.fire()).handed_off == 1


# ----------------------------------------------------------------------------------------- transactions of handlers


async def test_a_handlers_commit_is_asked_about_again_when_the_question_is_cut(postgres: PostgresServer) -> None:
    async with line(postgres) as to:
        run = await to.stage.running()
        transaction = to.store.transaction()
        await transaction.begin()
        assert await transaction.finish(await to.stage.worker(), to.stage.succeeded(run))
        faults = [to.proxy.cut_after_commit(), *cut_questions(to, OUTCOME, OUTCOME)]
        await transaction.commit()
        assert missing(faults) == []
        assert await to.stage.state(run) is State.SUCCEEDED


@pytest.mark.parametrize(
    ("moment", "stays", "error", "state"),
    [
        ("before", True, StoreAway, State.RUNNING),
        ("after", False, OutcomeUnknown, State.SUCCEEDED),
    ],
)
async def test_a_handler_gets_the_error_that_says_whether_its_transaction_was_written(
    postgres: PostgresServer, moment: str, stays: bool, error: type[Exception], state: State
) -> None:
    async with line(postgres, patience=0) as to:
        run = await to.stage.running()
        transaction = to.store.transaction()
        await transaction.begin()
        assert await transaction.finish(await to.stage.worker(), to.stage.succeeded(run))
        lost: Fault = getattr(to.proxy, f"cut_{moment}_commit")()
        if not stays:
            to.proxy.refuse()
            for pools in to.store.connections._loops.values():
                pools.plain.forget_idle()
        with pytest.raises(error):
            await transaction.commit()
        assert lost.happened
        to.proxy.allow()
        assert await to.stage.state(run) is state


async def test_a_handler_whose_transaction_cannot_begin_gets_an_error_of_ours(postgres: PostgresServer) -> None:
    async with line(postgres) as to:
        lost = to.proxy.cut_before("pg_current_xact_id()")
        with pytest.raises(StoreAway):
            await to.store.transaction().begin()
        assert lost.happened


async def test_a_handler_that_goes_on_after_a_failed_statement_is_answered_that_nothing_was_written(
    postgres: PostgresServer,
) -> None:
    async with line(postgres) as to:
        run = await to.stage.running()
        transaction = to.store.transaction()
        await transaction.begin()
        assert await transaction.finish(await to.stage.worker(), to.stage.succeeded(run))
        with pytest.raises(asyncpg.DivisionByZeroError):
            await transaction.connection.execute("SELECT 1 / 0")
        with pytest.raises(NotWritten, match="rolled the transaction back"):
            await transaction.commit()
        assert await to.stage.state(run) is State.RUNNING
