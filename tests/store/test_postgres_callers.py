"""Promises inside the caller's own transaction: there if and only if that commits, whatever it was begun with."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from foliot import Foliot
from foliot.domain.instant import HOUR, MINUTE, SECOND, to_datetime
from foliot.domain.run import Kept, Promise
from foliot.domain.state import State
from foliot.errors import Conflict, InvalidInput, StoreError, UnknownName
from foliot.store.postgres import PostgresStore
from tests.contract.stage import START, TTL, entries
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.store.callers import CALLERS, Caller, School, Undone, with_each_library
from tests.waiting import soon

# ------------------------------------------------------------------------------------------------- whatever the library


@with_each_library
async def test_a_promise_exists_once_the_transaction_commits_and_fires_when_due(school: School, caller: Caller) -> None:
    async with caller.transaction():
        kept = await caller.promise(school.job, "1h", key="class:7")
        with pytest.raises(UnknownName):
            await school.run(kept)
    assert (kept.id, kept.outcome, kept.fire_at) == ("class:7#1", "made", START + HOUR)
    assert await school.state(kept) is State.SCHEDULED
    school.clock.advance(HOUR)
    await school.fire()
    assert [run.id for run in await school.claim()] == ["class:7#1"]


async def test_a_promise_that_is_rolled_back_leaves_nothing_at_all(school: School, caller: Caller) -> None:
    async with caller.transaction():
        await caller.promise(school.job, "0s", key="class:7")
        await caller.promise(school.job, "0s")
        raise Undone
    assert await school.traces() == (0, 0, 0)


async def test_a_savepoint_that_is_rolled_back_takes_its_promises_along(school: School, caller: Caller) -> None:
    async with caller.transaction():
        async with caller.savepoint():
            await caller.promise(school.job, "0s", key="undone")
            raise Undone
        async with caller.savepoint():
            await caller.promise(school.job, "0s", key="kept")
    assert await school.traces() == (1, 1, 1)
    assert await school.state("kept#1") is State.SCHEDULED


async def test_a_conflict_is_told_and_the_transaction_goes_on(school: School, caller: Caller) -> None:
    async with caller.transaction():
        made = await caller.promise(school.job, "1h", key="class:7")
        kept = await caller.promise(school.job, "2h", key="class:7", on_conflict="keep")
        assert kept == made._replace(outcome="kept")
        replaced = await caller.promise(school.job, "3h", key="class:7", on_conflict="replace")
        assert replaced == made._replace(outcome="replaced", fire_at=START + 3 * HOUR)
        with pytest.raises(Conflict, match="'class:7' has a promise already: class:7#1 is scheduled"):
            await caller.promise(school.job, "4h", key="class:7", on_conflict="error")
        with pytest.raises(Conflict, match="cannot be renewed yet"):
            await caller.promise(school.job, "4h", key="class:7", on_conflict="renew")
        await caller.promise(school.job, "5h", key="class:8")
    assert (await school.run("class:7#1")).fire_at == START + 3 * HOUR
    assert await school.state("class:8#1") is State.SCHEDULED


async def test_what_has_ended_is_kept_refused_or_renewed(school: School, caller: Caller) -> None:
    await school.finish(school.succeeded(await school.running("class:7")))
    async with caller.transaction():
        assert (await caller.promise(school.job, key="class:7")).state is State.SUCCEEDED
        with pytest.raises(Conflict, match="can no longer be replaced"):
            await caller.promise(school.job, key="class:7", on_conflict="replace")
        renewed = await caller.promise(school.job, key="class:7", on_conflict="renew")
    assert (renewed.id, renewed.outcome) == ("class:7#2", "renewed")
    assert await school.state(renewed) is State.SCHEDULED


async def test_many_are_made_in_one_statement_and_answered_in_order(school: School, caller: Caller) -> None:
    async with caller.transaction():
        await caller.promise(school.job, key="b")
        keys = ["c", None, "b", "a", None, "c"]
        made = await caller.promise_many(school.app, [_wish(school, key) for key in keys])
    assert [one.name for one in made] == ["c#1", None, "b#1", "a#1", None, "c#1"]
    assert [one.outcome for one in made] == ["made", "made", "kept", "made", "made", "kept"]
    assert {await school.state(one) for one in made} == {State.SCHEDULED}
    assert made[3].number < made[0].number, "keys are taken in order, so that callers never wait for one another"


async def test_many_are_made_all_or_none_and_the_transaction_goes_on(school: School, caller: Caller) -> None:
    async with caller.transaction():
        await caller.promise(school.job, key="class:7")
        refused = school.job.using(key="class:7", on_conflict="error").promise_delay("1h")
        with pytest.raises(Conflict, match="class:7#1 is scheduled"):
            await caller.promise_many(school.app, [_wish(school), _wish(school, "class:8"), refused, _wish(school)])
        await caller.promise(school.job, key="class:9")
    assert await school.traces() == (2, 2, 0)


async def test_nothing_is_promised_by_an_empty_list(school: School, caller: Caller) -> None:
    assert await caller.promise_many(school.app, []) == []


async def test_the_wrong_verb_names_the_right_one(school: School, caller: Caller) -> None:
    right = "it is async" if caller.is_async else "use it with at, delay"
    with pytest.raises(InvalidInput, match=right):
        await caller.promise(school.job, wrongly=True)


@pytest.mark.parametrize("name", CALLERS)
async def test_a_database_without_our_schema_is_told_by_what_to_do(
    name: str, school: School, postgres: PostgresServer
) -> None:
    async with CALLERS[name](postgres.dsn()) as caller:
        with pytest.raises(StoreError, match="run `foliot migrate` on it, or give a connection to the store's own"):
            await caller.promise(school.job)


def _wish(school: School, key: str | None = None) -> Promise:
    return school.job.using(key=key).promise_delay("1h")


# ------------------------------------------------------------------------------------------------------------- faithful


async def test_a_promise_is_the_same_row_whichever_way_it_was_made(school: School) -> None:
    chosen = school.job.using(
        tenant="acme", queue="mail", priority=-3, useful_until="2h", unique_for="1d", attempts=2, timeout="90s"
    )
    word = "'\"\\ \N{SNOWMAN} \N{GRINNING FACE} %s :word $1 \n"
    own = school.app.promise_many_async([chosen.using(key="own").promise_delay("1h", word=word)])
    [own_kept] = await own
    async with CALLERS["psycopg"](school.dsn) as caller, caller.transaction():
        [theirs] = await caller.promise_many(school.app, [chosen.using(key="theirs").promise_delay("1h", word=word)])
    assert (await _row(school, theirs)) == (await _row(school, own_kept))
    assert (await school.run(theirs)).payload == (await school.run(own_kept)).payload


async def _row(school: School, kept: Kept) -> Any:
    """Everything but what is its own."""
    [[row]] = await school.rows(
        "SELECT to_jsonb(r) - ARRAY['number', 'name', 'xid'] FROM foliot.run r WHERE r.number = $1", kept.number
    )
    return row


async def test_a_thousand_promises_tell_each_owner_once(school: School) -> None:
    async with CALLERS["asyncpg"](school.dsn) as caller, caller.transaction():
        made = await caller.promise_many(school.app, [school.job.promise_delay("1m") for _ in range(1_000)])
    assert len({one.number for one in made}) == 1_000
    assert await school.traces() == (1_000, 0, 1)


async def test_a_promise_that_is_due_wakes_schedulers_when_it_commits(school: School) -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()
    listener = await asyncpg.connect(school.dsn)
    await listener.add_listener("foliot_arrivals", lambda *told: heard.put_nowait(told[3]))
    async with CALLERS["asyncpg"](school.dsn) as caller:
        async with caller.transaction():
            await caller.promise(school.job, "1m")
        async with caller.transaction():
            await caller.promise(school.job, "0s")
            raise Undone
        await listener.execute("NOTIFY foliot_arrivals, 'so far'")
        assert await soon(heard.get()) == "so far"
        async with caller.transaction():
            await caller.promise(school.job, "0s")
        assert await soon(heard.get()) == ""
    await listener.close()


# ---------------------------------------------------------------------------------------------------------------- races


@pytest.mark.parametrize("name", ["asyncpg", "psycopg", "django"])
async def test_the_second_with_a_key_waits_for_the_first_and_keeps_its_promise(name: str, school: School) -> None:
    async with CALLERS["asyncpg"](school.dsn) as first, CALLERS[name](school.dsn) as second:
        await first.execute("BEGIN")
        made = await first.promise(school.job, key="class:7")
        async with second.transaction():
            waiting = asyncio.create_task(second.promise(school.job, key="class:7"))
            await school.until_a_lock_is_waited_for()
            await first.execute("COMMIT")
            assert await waiting == made._replace(outcome="kept")
    assert await school.traces() == (1, 1, 0)


async def test_the_second_with_a_key_makes_the_promise_when_the_first_rolls_back(school: School) -> None:
    async with CALLERS["asyncpg"](school.dsn) as first, CALLERS["psycopg-async"](school.dsn) as second:
        async with first.transaction():
            await first.promise(school.job, key="class:7")
            waiting = asyncio.create_task(second.promise(school.job, "2h", key="class:7"))
            await school.until_a_lock_is_waited_for()
            raise Undone
        made = await waiting
        await second.connection.commit()
    assert made.outcome == "made"
    assert (await school.run("class:7#1")).fire_at == START + 2 * HOUR


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_stricter_transaction_promises_and_fails_as_its_driver_fails(school: School, level: str) -> None:
    """Which its caller knows, and begins anew."""
    async with CALLERS["asyncpg"](school.dsn) as first, CALLERS["psycopg-async"](school.dsn) as second:
        async with second.transaction():
            await second.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            await second.promise(school.job, key="class:8")
            await first.promise(school.job, key="class:7")
            with pytest.raises(psycopg.errors.SerializationFailure):
                await second.promise(school.job, key="class:7")
            raise Undone
        async with second.transaction():
            await second.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            await second.promise(school.job, key="class:8")
            assert (await second.promise(school.job, key="class:7")).outcome == "kept"
    assert await school.traces() == (2, 2, 0)


# --------------------------------------------------------------------------------------------------------- late commits


async def test_a_transaction_that_commits_long_after_the_due_time_is_still_told(school: School) -> None:
    lease = await school.lease(high_water=START + 6 * MINUTE)
    async with CALLERS["psycopg"](school.dsn) as caller:
        async with caller.transaction():
            kept = await caller.promise(school.job, "1m")
            assert await school.loaded(lease) == []
            cursor = lease.cursor
            for _ in range(21):
                school.clock.advance(MINUTE)
                [lease] = await school.store.renew([lease], TTL, school.now + 6 * MINUTE)
                arrivals = await school.store.arrivals([lease], cursor)
                assert entries(arrivals) == []
                await school.store.fire([lease], [], cursor, lambda facts, now: [])
                cursor = arrivals.cursor
        told = await school.store.arrivals([lease], cursor)
        assert entries(told) == [(START + MINUTE, kept.number)]
        assert entries(await school.store.arrivals([lease], told.cursor)) == []


async def test_a_promise_that_was_overtaken_by_its_window_is_still_told(school: School) -> None:
    """Made an hour before it is due, so that nobody was told; its window was loaded while the transaction was open."""
    mark = START + 6 * MINUTE
    lease = await school.lease(high_water=mark)
    cursor = lease.cursor
    async with CALLERS["psycopg"](school.dsn) as caller:
        async with caller.transaction():
            kept = await caller.promise(school.job, "1h")
            for _ in range(58):
                school.clock.advance(MINUTE)
                await school.store.renew([lease], TTL, mark)
                cursor = (await school.store.arrivals([lease], cursor)).cursor
            [raised] = await school.store.renew([lease], TTL, school.now + 6 * MINUTE)
            lease = raised._replace(cursor=cursor)
            assert await school.loaded(lease, (mark, -1)) == []
            cursor = (await school.store.arrivals([lease], cursor)).cursor
        told = await school.store.arrivals([lease], cursor)
        assert entries(told) == [(START + HOUR, kept.number)]
    school.clock.advance(2 * MINUTE)
    await school.store.fire([lease], entries(told), told.cursor, lambda facts, now: [])
    assert [run.number for run in await school.claim()] == [kept.number]


async def test_an_owner_that_comes_while_a_transaction_is_open_is_told_too(school: School) -> None:
    async with CALLERS["psycopg"](school.dsn) as caller:
        async with caller.transaction():
            kept = await caller.promise(school.job, "1h")
            school.clock.advance(58 * MINUTE)
            lease = await school.lease(high_water=school.now + 6 * MINUTE)
            assert await school.loaded(lease) == []
            assert await school.told(lease.cursor) == []
        assert await school.told(lease.cursor) == [(START + HOUR, kept.number)]


# ------------------------------------------------------------------------------------------------- where, and where not


def _remind() -> None: ...


async def test_nothing_of_ours_needs_to_be_open(school: School) -> None:
    app = Foliot(PostgresStore("postgresql://nobody@127.0.0.1:9/nothing"), clock=school.clock)
    job = app.job(_remind)
    async with CALLERS["psycopg"](school.dsn) as caller, caller.transaction():
        kept = await caller.promise(job)
    assert await school.state(kept) is State.SCHEDULED


async def test_outside_of_a_transaction_a_promise_is_durable_at_once(school: School) -> None:
    async with CALLERS["asyncpg"](school.dsn) as caller:
        kept = await caller.promise(school.job)
        assert await school.state(kept) is State.SCHEDULED
    with psycopg.connect(school.dsn, autocommit=True) as connection:
        kept = school.job.using(connection=connection).delay("1h")
        assert await school.state(kept) is State.SCHEDULED


async def test_plain_code_inside_of_an_async_session_promises_with_the_plain_verb(school: School) -> None:
    engine = create_async_engine(school.dsn.replace("postgresql:", "postgresql+asyncpg:", 1))
    async with AsyncSession(engine) as session, session.begin():
        kept = await session.run_sync(lambda plain: school.job.using(connection=plain).delay("1h"))
    await engine.dispose()
    assert await school.state(kept) is State.SCHEDULED


async def test_a_pooler_between_the_caller_and_the_server_changes_nothing(school: School, pgbouncer: PgBouncer) -> None:
    connection = await asyncpg.connect(pgbouncer.through(school.dsn), statement_cache_size=0)
    async with connection.transaction():
        kept = await school.job.using(connection=connection).at_async(to_datetime(START + HOUR))
    await connection.close()
    assert await school.state(kept) is State.SCHEDULED


async def test_every_verb_takes_the_connection(school: School) -> None:
    async with CALLERS["asyncpg"](school.dsn) as caller:
        job = school.job.using(connection=caller.connection)
        made = [await job.at_async(to_datetime(START + 1)), await job.delay_async("2s"), await job.now_async()]
    assert [one.fire_at for one in made] == [START + 1, START + 2 * SECOND, START]


def test_arguments_are_checked_before_anything_is_sent(school: School) -> None:
    with psycopg.connect(school.dsn) as connection:
        job = school.job.using(connection=connection)
        with pytest.raises(InvalidInput, match="word"):
            job.delay("1h", word=7)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="no time zone"):
            job.at(datetime(2026, 4, 3))
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_a_promise_for_later_does_not_forget_its_connection(school: School) -> None:
    with psycopg.connect(school.dsn) as connection:
        job = school.job.using(connection=connection)
        with pytest.raises(InvalidInput, match=r"app\.promise_many\(promises, connection=\.\.\.\)"):
            job.promise_delay("1h")
        with pytest.raises(InvalidInput, match=r"app\.promise_many\(promises, connection=\.\.\.\)"):
            job.promise_at(datetime.now(UTC))


@pytest.mark.parametrize(
    "given",
    [object(), "postgresql://localhost/school", sqlalchemy.create_mock_engine],
    ids=["an object", "a text", "a function"],
)
async def test_what_is_no_connection_is_refused_with_a_list_of_those(school: School, given: object) -> None:
    with pytest.raises(InvalidInput, match=r"psycopg 3 .*asyncpg .*SQLAlchemy 2 .*django\.db\.connection"):
        school.job.using(connection=given).delay("1h")
    with pytest.raises(InvalidInput, match=r"cannot be used for promises"):
        await school.job.using(connection=given).delay_async("1h")


def test_another_kind_of_database_is_refused_by_its_name(school: School) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with Session(engine) as session, pytest.raises(InvalidInput, match="is a connection to sqlite"):
        school.job.using(connection=session).delay("1h")
    engine.dispose()


async def test_an_embedded_store_says_what_to_do_instead() -> None:
    app = Foliot("sqlite:///:memory:")
    job = app.job(_remind)
    with pytest.raises(InvalidInput, match="connection= joins a promise to a transaction of the store's own"):
        job.using(connection=object()).delay("1h")
    with pytest.raises(InvalidInput, match="connection= joins a promise to a transaction of the store's own"):
        await app.promise_many_async([job.promise_delay("1h")], connection=object())


# ------------------------------------------------------------------------------------------------------------ plain SQL


async def test_plain_sql_makes_the_same_promise(school: School) -> None:
    due = to_datetime(START) + timedelta(hours=1, microseconds=1)
    call = (
        "SELECT number, name, outcome FROM foliot.promise('job', $1, '{\"word\": \"hi\"}', "
        "key => 'class:7', tenant => 'acme')"
    )
    [[number, name, outcome]] = await school.rows(call, due)
    assert (name, outcome) == ("class:7[acme]#1", "made")
    own = await school.job.using(key="class:8", tenant="acme").at_async(due, word="hi")
    stored = "SELECT job, fire_at, tenant, queue, priority, options, shard FROM foliot.run WHERE number = $1"
    assert await school.rows(stored, number) == await school.rows(stored, own.number)
    assert (await school.rows(call, due))[0][2] == "kept"


async def test_plain_sql_uses_the_queue_of_the_job_as_its_workers_know_it(school: School) -> None:
    await school.rows("INSERT INTO foliot.job (name, policy, queue, seen_at) VALUES ('mailing', '{}', 'mail', 0)")
    [[number]] = await school.rows("SELECT number FROM foliot.promise('mailing', now())")
    assert await school.rows("SELECT queue FROM foliot.run WHERE number = $1", number) == [("mail",)]


@pytest.mark.parametrize(
    "arguments",
    [
        "NULL, now()",
        "'job', NULL",
        "'job', now(), '[]'",
        "'job', '1969-01-01Z'",
        "'job', 'infinity'",
        "'job', now(), on_conflict => 'perhaps'",
        "'job', now(), useful_until => now() - interval '1 s'",
    ],
)
async def test_plain_sql_is_checked(school: School, arguments: str) -> None:
    with pytest.raises(asyncpg.DataError):
        await school.rows(f"SELECT foliot.promise({arguments})")
    assert await school.traces() == (0, 0, 0)
