"""The connection is cut exactly before and exactly after the server commits: once is once, whatever a caller hears."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import product
from typing import Any

import pytest

from foliot.domain.instant import HOUR, MINUTE
from foliot.domain.run import Claimed, OnConflict, Progress, Promise
from foliot.errors import Conflict, LostOwnership, OutcomeUnknown, StoreAway, StoreError
from tests.contract.stage import FAR, TTL, deciding, declared, fires_hourly
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Fault
from tests.store.lines import Line, line
from tests.tiers import full_only, only_in_full
from tests.waiting import until_async

INSERT = "INSERT INTO foliot.run"
KEYED = "foliot.make_promise("

WAYS = {"direct": "", "as through a pooler": "?pooler=transaction"}
"""For verbs that are one statement, and a block around it where a pooler stands between; others are always a block."""

both = pytest.mark.parametrize("moment", ["before", "after"])


def _case(moment: str, way: str, *more: object, short: bool) -> Any:
    name = "-".join([moment, way, *map(str, more)])
    return pytest.param(moment, WAYS[way], *more, id=name, marks=() if short else full_only)


def each_moment(*, after: str) -> Any:
    """Both moments, directly and as through a pooler. The short form cuts after the commit on the way that is named,
    and before it on the other one."""
    return pytest.mark.parametrize(
        ("moment", "options"),
        [
            _case(moment, way, short=(moment == "after") == (way == after))
            for moment in ("before", "after")
            for way in WAYS
        ],
    )


def each_moment_with(name: str, short: set[tuple[str, str, Any]], values: Iterable[Any]) -> Any:
    """As `each_moment`, with each of these values of a parameter. The short form runs these combinations."""
    return pytest.mark.parametrize(
        ("moment", "options", name),
        [
            _case(moment, way, value, short=(moment, way, value) in short)
            for moment, way, value in product(("before", "after"), WAYS, values)
        ],
    )


def cut(line: Line, moment: str, where: str | None = None) -> Fault:
    arm: Callable[[str | None], Fault] = getattr(line.proxy, f"cut_{moment}_commit")
    return arm(where)


# ------------------------------------------------------------------------------------------------------------- promises


@each_moment(after="as through a pooler")
async def test_a_promise_is_made_once(postgres: PostgresServer, options: str, moment: str) -> None:
    async with line(postgres, options) as to:
        fault = cut(to, moment, INSERT)
        kept = await to.stage.promise(after=HOUR)
        assert fault.happened
        assert kept.outcome == "made"
        assert await to.runs() == [kept.number]


@pytest.mark.parametrize(
    ("moment", "count", "key"),
    [
        ("before", 1, None),
        ("before", 2, "class:7"),
        ("after", 1, "class:7"),
        ("after", 2, None),
        only_in_full("before", 1, "class:7"),
        only_in_full("before", 2, None),
        only_in_full("after", 1, None),
        only_in_full("after", 2, "class:7"),
    ],
)
async def test_who_cannot_be_told_what_became_of_promises_hears_so(
    postgres: PostgresServer, moment: str, count: int, key: str | None
) -> None:
    """The server goes away in that very moment, and stays away."""
    async with line(postgres, patience=0) as to:
        promises = [Promise("job", b"{}", to.stage.now + HOUR, key and f"{key}{n}") for n in range(count)]
        await to.store.promise([one._replace(key=key and "first") for one in promises])
        fault = cut(to, moment, INSERT if key is None else KEYED)
        to.proxy.refuse()
        with pytest.raises(OutcomeUnknown, match="was lost during this request, so it is unknown whether it was"):
            await to.store.promise(promises)
        assert fault.happened


async def test_who_cannot_reach_the_server_hears_that_nothing_was_written(postgres: PostgresServer) -> None:
    async with line(postgres, patience=0) as to:
        to.proxy.cut_all()
        to.proxy.refuse()
        for key in (None, "class:7"):
            with pytest.raises(StoreAway, match="nothing of this request was written"):
                await to.store.promise([Promise("job", b"{}", to.stage.now + HOUR, key)])


@each_moment(after="direct")
async def test_a_thousand_promises_are_made_once(postgres: PostgresServer, options: str, moment: str) -> None:
    async with line(postgres, options) as to:
        fault = cut(to, moment, INSERT)
        kept = await to.store.promise([Promise("job", b"{}", to.stage.now + HOUR) for _ in range(1_000)])
        assert fault.happened
        assert await to.runs() == sorted(one.number for one in kept)


@each_moment_with(
    "mode",
    {
        ("before", "direct", OnConflict.KEEP),
        ("before", "as through a pooler", OnConflict.RENEW),
        ("after", "direct", OnConflict.REPLACE),
        ("after", "as through a pooler", OnConflict.ERROR),
    },
    list(OnConflict),
)
async def test_the_first_promise_of_a_key_is_made_once(
    postgres: PostgresServer, options: str, moment: str, mode: OnConflict
) -> None:
    async with line(postgres, options) as to:
        fault = cut(to, moment, KEYED)
        kept = await to.stage.promise("class:7", after=HOUR, on_conflict=mode)
        assert fault.happened
        assert (kept.name, kept.outcome) == ("class:7#1", "made")
        assert await to.runs() == [kept.number]
        assert await to.count("named") == 1


@each_moment(after="as through a pooler")
async def test_a_key_that_exists_is_kept(postgres: PostgresServer, options: str, moment: str) -> None:
    async with line(postgres, options) as to:
        first = await to.stage.promise("class:7", after=HOUR)
        fault = cut(to, moment, KEYED)
        assert await to.stage.promise("class:7", after=MINUTE) == first._replace(outcome="kept")
        assert fault.happened
        assert await to.runs() == [first.number]


@each_moment(after="direct")
async def test_a_promise_is_replaced_once(postgres: PostgresServer, options: str, moment: str) -> None:
    async with line(postgres, options) as to:
        first = await to.stage.promise("class:7", after=HOUR)
        fault = cut(to, moment, KEYED)
        kept = await to.stage.promise("class:7", after=MINUTE, on_conflict=OnConflict.REPLACE)
        assert fault.happened
        assert (kept.number, kept.outcome) == (first.number, "replaced")
        assert await to.runs() == [first.number]


@each_moment(after="as through a pooler")
async def test_a_promise_is_renewed_once(postgres: PostgresServer, options: str, moment: str) -> None:
    async with line(postgres, options) as to:
        run = await to.stage.running("class:7")
        await to.stage.finish(to.stage.succeeded(run))
        fault = cut(to, moment, KEYED)
        kept = await to.stage.promise("class:7", after=MINUTE, on_conflict=OnConflict.RENEW)
        assert fault.happened
        assert (kept.name, kept.outcome) == ("class:7#2", "renewed")
        assert await to.runs() == [run.number, kept.number]


@each_moment(after="direct")
async def test_a_key_that_is_refused_stays_refused(postgres: PostgresServer, options: str, moment: str) -> None:
    async with line(postgres, options) as to:
        first = await to.stage.promise("class:7", after=HOUR)
        fault = cut(to, moment, KEYED)
        with pytest.raises(Conflict, match="has a promise already"):
            await to.stage.promise("class:7", after=MINUTE, on_conflict=OnConflict.ERROR)
        assert fault.happened
        assert await to.runs() == [first.number]


@both
async def test_promises_with_and_without_keys_are_made_together_once(postgres: PostgresServer, moment: str) -> None:
    async with line(postgres) as to:
        wanted = [Promise("job", b"{}", to.stage.now + HOUR, key=f"k:{n}" if n % 2 else None) for n in range(10)]
        fault = cut(to, moment, INSERT)
        kept = await to.store.promise(wanted)
        assert fault.happened
        assert await to.runs() == sorted(one.number for one in kept)


# ------------------------------------------------------------------------------------------- changes in explicit blocks

Act = Callable[[Line], Awaitable[object]]

CHANGES: dict[str, tuple[Act, str, list[tuple[object, ...]]]] = {
    "move": (
        lambda to: to.store.move("class:7", None, FAR),
        "SELECT count(*) FROM foliot.run WHERE fire_at > 2000000000000000 OR name = 'class:7#1' AND state <> 0",
        [(1,)],
    ),
    "cancel": (
        lambda to: to.store.cancel_promise("class:7", None, actor="me", note=""),
        "SELECT action, (SELECT count(*) FROM foliot.history) FROM foliot.audit WHERE action = 'cancel'",
        [("cancel", 1)],
    ),
    "trigger": (
        lambda to: to.store.trigger("hourly", actor="me", note=""),
        "SELECT origin FROM foliot.run WHERE schedule = 'hourly' ORDER BY origin",
        [(0,), (2,)],
    ),
    "apply": (
        lambda to: to.stage.apply(declared("daily", to.stage.now + HOUR)),
        "SELECT id, revision FROM foliot.schedule ORDER BY id",
        [("daily", 1), ("hourly", 1)],
    ),
    "apply again": (
        lambda to: to.stage.apply(declared("hourly", to.stage.now + HOUR, fingerprint="v2")),
        "SELECT id, revision, (SELECT count(*) FROM foliot.run WHERE schedule = id) FROM foliot.schedule",
        [("hourly", 2, 1)],
    ),
    "pause": (
        lambda to: to.store.pause("hourly", until=None, actor="me", note="holidays"),
        "SELECT action, paused_note FROM foliot.audit, foliot.schedule WHERE action = 'pause'",
        [("pause", "holidays")],
    ),
}


@both
@pytest.mark.parametrize("verb", CHANGES)
async def test_a_change_is_made_once(postgres: PostgresServer, moment: str, verb: str) -> None:
    act, question, answer = CHANGES[verb]
    async with line(postgres) as to:
        await to.stage.apply(declared("hourly", to.stage.now + HOUR))
        await to.stage.promise("class:7", after=HOUR)
        fault = cut(to, moment)
        await act(to)
        assert fault.happened
        assert [tuple(row) for row in await to.ask(question)] == answer


# ---------------------------------------------------------------------------------------------------- dispatch and work


async def chunks(to: Line) -> list[int]:
    """The numbers of all runs in chunks."""
    return [row[0] for row in await to.ask("SELECT unnest(numbers) FROM foliot.handoff ORDER BY 1")]


@each_moment(after="as through a pooler")
async def test_what_was_fired_is_not_fired_again_by_the_next_owner(
    postgres: PostgresServer, options: str, moment: str
) -> None:
    async with line(postgres, options) as to:
        kept = [await to.stage.promise() for _ in range(3)]
        await to.stage.scheduler()
        fault = cut(to, moment, "foliot.fire_runs(")
        with pytest.raises(LostOwnership):  # nobody knows whether it was fired; the store does
            await to.stage.fire()
        assert fault.happened
        assert len(await chunks(to)) == (3 if moment == "after" else 0)
        fired = await to.stage.fire()
        assert fired.handed_off == (0 if moment == "after" else 3)
        assert await chunks(to) == [one.number for one in kept]


async def test_a_firing_that_the_server_refuses_says_why(postgres: PostgresServer) -> None:
    """Nothing was fired, and nobody lost anything: it would be tried again and again, and nobody would hear of it."""
    async with line(postgres) as to:
        lease = await to.stage.lease()
        kept = await to.stage.promise()
        await to.ask("ALTER TABLE foliot.handoff RENAME TO mislaid")
        try:
            with pytest.raises(StoreError, match="handoff") as refused:
                await to.store.fire([lease], [(kept.fire_at, kept.number)], lease.cursor, lambda facts, now: [])
        finally:
            await to.ask("ALTER TABLE foliot.mislaid RENAME TO handoff")
        assert not isinstance(refused.value, LostOwnership)


@both
async def test_ticks_are_fired_once_and_have_one_successor(postgres: PostgresServer, moment: str) -> None:
    async with line(postgres) as to:
        await to.stage.apply(declared("hourly", to.stage.now), declared("daily", to.stage.now))
        lease = await to.stage.lease()
        due = await to.stage.loaded(lease)
        fault = cut(to, moment, "SET fired_at = t.fired_at")
        fired = await to.store.fire([lease], due, lease.cursor, deciding(fires_hourly))
        assert fault.happened
        assert (fired.handed_off, fired.created) == (2, 2)
        assert await chunks(to) == sorted(number for _, number in due)
        assert await to.count("run") == 4


@each_moment(after="direct")
async def test_a_worker_gets_its_runs_although_the_answer_to_its_claim_was_lost(
    postgres: PostgresServer, options: str, moment: str
) -> None:
    async with line(postgres, options) as to:
        kept = [await to.stage.promise() for _ in range(5)]
        await to.stage.fire()
        worker = await to.stage.worker()
        fault = cut(to, moment, "foliot.claim_runs(")
        with pytest.raises(StoreError):
            await to.stage.claim()
        assert fault.happened
        claimed: list[Claimed] = []

        async def are_claimed() -> bool:
            claimed.extend(await to.stage.claim())
            return len(claimed) >= 5

        await until_async(are_claimed, "the server has ended the claim that was cut, and all runs are claimed")
        assert sorted(run.number for run in claimed) == sorted(one.number for one in kept)
        assert {run.attempt for run in claimed} == {1}
        assert await to.stage.claim() == []
        assert await to.store.finish(worker, [to.stage.succeeded(run) for run in claimed]) == []
        assert await to.count("claim") == 0


async def test_a_suspected_run_is_found_with_its_losses_although_the_answer_to_its_claim_was_lost(
    postgres: PostgresServer,
) -> None:
    async with line(postgres) as to:
        await to.stage.running()  # so that the worker itself is not given up
        await to.stage.promise()
        run = None
        for _ in range(3):
            await to.stage.fire()
            [run] = await to.stage.claim()
            await to.store.lose([to.stage.lost(run, retry_at=to.stage.now, charged=False, deaths=0)])
        await to.stage.fire()
        fault = cut(to, "after", "foliot.claim_runs(")
        with pytest.raises(StoreError):
            await to.stage.claim()
        assert fault.happened
        [again] = await to.stage.claim()
        assert run is not None
        assert (again.number, again.deaths, again.losses) == (run.number, 0, 3)


@each_moment(after="as through a pooler")
async def test_a_claim_whose_answer_was_lost_is_finished_by_somebody_else_when_its_worker_dies(
    postgres: PostgresServer, options: str, moment: str
) -> None:
    async with line(postgres, options) as to:
        kept = await to.stage.promise()
        await to.stage.fire()
        victim = await to.stage.worker()
        cut(to, moment, "foliot.claim_runs(")
        with pytest.raises(StoreError):
            await to.stage.claim(worker=victim)
        # It says no more. The reaper sees its claim, if it has one, and takes it away.
        silent = await to.store.silent(to.stage.now + MINUTE)
        assert [one.number for one in silent] == ([kept.number] if moment == "after" else [])
        for one in silent:
            run = Claimed(*[None] * 19)._replace(number=one.number, token=one.token, attempt=one.attempt)  # type: ignore[arg-type]
            assert await to.store.lose([to.stage.lost(run, retry_at=to.stage.now)]) == 1
        await to.stage.fire()
        other = await to.stage.register()
        [again] = await to.store.claim(other, ["default"], ["job"], 5)
        assert again.number == kept.number
        assert await to.store.finish(other, [to.stage.succeeded(again)]) == []
        assert await to.runs() == [kept.number]


@each_moment_with(
    "how",
    {
        ("before", "direct", "succeeded"),
        ("after", "as through a pooler", "succeeded"),
        ("before", "as through a pooler", "failed"),
        ("after", "direct", "failed"),
        ("before", "direct", "died"),
        ("after", "direct", "interrupted"),
    },
    ["succeeded", "failed", "died", "interrupted"],
)
async def test_an_ending_that_is_said_again_is_neither_fenced_nor_told_twice(
    postgres: PostgresServer, options: str, moment: str, how: str
) -> None:
    async with line(postgres, options) as to:
        run = await to.stage.running()
        ending = getattr(to.stage, how)(run)
        fault = cut(to, moment, "foliot.finish_runs(" if how == "succeeded" else "INSERT INTO foliot.attempt")
        try:
            assert await to.stage.finish(ending) == []
        except StoreError:
            assert how == "succeeded"  # one statement, whose answer was lost: the worker says it again
        assert fault.happened
        assert await to.stage.finish(ending) == []
        assert await to.count("claim") == 0
        assert await to.count("history") == (how == "succeeded")
        assert await to.count("attempt") == (how != "succeeded")
        assert await to.stage.events("fenced") == []
        assert await to.runs() == [run.number]


@both
async def test_a_tick_that_ends_gives_its_fixed_delay_one_next_run(postgres: PostgresServer, moment: str) -> None:
    async with line(postgres) as to:
        await to.stage.apply(declared("after", None, delay=1))
        await to.stage.fire()
        [run] = await to.stage.claim()
        fault = cut(to, moment, "FROM jsonb_array_elements(")
        assert await to.stage.finish(to.stage.succeeded(run)) == []
        assert fault.happened
        assert await to.stage.finish(to.stage.succeeded(run)) == []
        assert await to.count("run") == 1
        assert await to.count("history") == 1


@both
async def test_runs_are_given_back_once(postgres: PostgresServer, moment: str) -> None:
    async with line(postgres) as to:
        run = await to.stage.running()
        fault = cut(to, moment)
        assert await to.store.give_back(await to.stage.worker(), [run]) == 1
        assert fault.happened
        assert await chunks(to) == [run.number]
        assert await to.count("claim") == 0
        [again] = await to.stage.claim()
        assert again.attempt == 1


@both
async def test_a_beat_is_heard_with_what_it_tells(postgres: PostgresServer, moment: str) -> None:
    async with line(postgres) as to:
        run = await to.stage.running()
        fault = cut(to, moment)
        told = Progress(run.number, run.token, to.stage.now, b'{"done": 1}', b'"here"')
        assert (await to.store.beat(await to.stage.worker(), [told])).known
        assert fault.happened
        assert (await to.stage.run(run)).progress == b'{"done": 1}'


@both
async def test_a_shard_is_taken_and_renewed_once(postgres: PostgresServer, moment: str) -> None:
    async with line(postgres) as to:
        owner = await to.stage.scheduler()
        await to.stage.promise()
        fault = cut(to, moment)
        lease = await to.store.take(0, owner, TTL)
        assert fault.happened
        assert lease is not None
        assert [tuple(row) for row in await to.ask("SELECT owner, epoch FROM foliot.shard")] == [(owner, lease.epoch)]
        fault = cut(to, moment)
        [renewed] = await to.store.renew([lease], TTL, FAR)
        assert fault.happened
        assert renewed.epoch == lease.epoch
        fired = await to.store.fire([renewed], await to.stage.loaded(renewed), renewed.cursor, deciding(fires_hourly))
        assert fired.handed_off == 1
