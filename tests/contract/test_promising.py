"""promise: durable, all or nothing, and one promise per key."""

from __future__ import annotations

import pytest

from foliot.domain.identity import made_at
from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND
from foliot.domain.run import Lane, OnConflict, Origin, Promise, Promised
from foliot.domain.state import State
from foliot.domain.store import DEFAULT_QUEUE
from foliot.errors import Conflict
from tests.contract.stage import START, Stage

KEEP, REPLACE, ERROR, RENEW = OnConflict.KEEP, OnConflict.REPLACE, OnConflict.ERROR, OnConflict.RENEW


async def test_a_promise_is_remembered_as_it_was_given(stage: Stage) -> None:
    wanted = Promise(
        "remind",
        b'{"class":7}',
        START + HOUR,
        key="class:7",
        tenant="acme",
        queue="mail",
        priority=5,
        useful_until=START + DAY,
        options=b'{"attempts":2}',
    )
    [kept] = await stage.store.promise([wanted])
    assert (kept.id, kept.outcome, kept.state, kept.fire_at) == (
        "class:7[acme]#1",
        "made",
        State.SCHEDULED,
        START + HOUR,
    )

    run = await stage.run(kept)
    assert (run.name, run.job, run.payload) == ("class:7[acme]#1", "remind", b'{"class":7}')
    assert (run.fire_at, run.nominal, run.tenant, run.queue, run.priority) == (
        START + HOUR,
        START + HOUR,
        "acme",
        "mail",
        5,
    )
    assert (run.state, run.origin, run.lane) == (State.SCHEDULED, Origin.DELAYED, Lane.LIVE)
    assert (run.attempt, run.spent, run.worker, run.schedule) == (0, 0, None, None)


async def test_what_nobody_chose_has_its_default(stage: Stage) -> None:
    run = await stage.run(await stage.promise())
    assert (run.queue, run.priority, run.tenant, run.lane) == (DEFAULT_QUEUE, 0, None, Lane.LIVE)


async def test_a_promise_without_a_key_is_named_by_its_number_and_tells_when_it_was_made(stage: Stage) -> None:
    kept = await stage.promise(after=HOUR)
    run = await stage.run(kept)
    assert run.name is None
    assert run.id == kept.id
    assert run.number == kept.number
    assert run.made_at == made_at(run.number) == START


async def test_answers_come_in_order_and_numbers_rise(stage: Stage) -> None:
    wanted = [
        Promise("job", b"%d" % place, START + place, key=f"k{place}" if place % 3 == 0 else None) for place in range(20)
    ]
    kept = await stage.store.promise(wanted)
    runs = [await stage.run(one) for one in kept]
    assert [run.payload for run in runs] == [b"%d" % place for place in range(20)]
    assert [one.fire_at for one in kept] == [START + place for place in range(20)]
    assert sorted({run.number for run in runs}) == [run.number for run in runs]


async def test_later_promises_have_higher_numbers_also_when_the_clock_steps_back(stage: Stage) -> None:
    first = await stage.promise()
    stage.clock.set(START - DAY)
    second = await stage.promise()
    assert (await stage.run(second)).number > (await stage.run(first)).number


async def test_no_promises_are_answered_by_no_answers(stage: Stage) -> None:
    assert await stage.store.promise([]) == []


async def test_one_refused_promise_refuses_the_whole_call(stage: Stage) -> None:
    await stage.promise("taken")
    with pytest.raises(Conflict):
        await stage.store.promise(
            [
                Promise("job", b"{}", START),
                Promise("job", b"{}", START, key="free"),
                Promise("job", b"{}", START, key="taken", on_conflict=ERROR),
                Promise("job", b"{}", START, key="after"),
            ]
        )
    assert [run.id for run in await stage.store.runs()] == ["taken#1"]


async def test_a_large_call_is_one_call(stage: Stage) -> None:
    kept = await stage.store.promise([Promise("job", b"{}", START + place) for place in range(2_000)])
    assert len({one.id for one in kept}) == 2_000
    assert (await stage.store.counts())["scheduled"] == 2_000


# ----------------------------------------------------------------------------------------------------------------- keep


async def test_keep_returns_the_promise_that_exists_and_changes_nothing(stage: Stage) -> None:
    first = await stage.promise("class:7", after=HOUR, payload=b"1")
    again = await stage.promise("class:7", after=DAY, payload=b"2", on_conflict=KEEP)
    assert (again.id, again.outcome, again.state, again.fire_at) == (first.id, "kept", State.SCHEDULED, START + HOUR)
    assert (await stage.run(first)).payload == b"1"
    assert len(await stage.store.runs()) == 1


async def test_keep_is_what_happens_when_nothing_is_said(stage: Stage) -> None:
    await stage.promise("class:7")
    assert (await stage.promise("class:7")).outcome == "kept"


async def test_keep_also_answers_for_a_promise_that_runs(stage: Stage) -> None:
    await stage.running("class:7")
    again = await stage.promise("class:7")
    assert (again.outcome, again.state) == ("kept", State.RUNNING)


@pytest.mark.parametrize("unique_for", [None, 2 * DAY])
async def test_keep_also_answers_after_it_ended(stage: Stage, unique_for: int | None) -> None:
    run = await stage.running("class:7")
    await stage.finish(stage.succeeded(run))
    stage.clock.advance(DAY)
    again = await stage.promise("class:7", unique_for=unique_for)
    assert (again.id, again.outcome, again.state) == ("class:7#1", "kept", State.SUCCEEDED)


async def test_a_key_is_free_again_once_unique_for_has_passed_since_the_promise_was_made(stage: Stage) -> None:
    run = await stage.running("class:7")
    stage.clock.advance(HOUR)
    await stage.finish(stage.succeeded(run))
    assert (await stage.promise("class:7", unique_for=HOUR)).outcome == "kept"
    stage.clock.advance(SECOND)
    again = await stage.promise("class:7", unique_for=HOUR)
    assert (again.id, again.outcome) == ("class:7#2", "made")


async def test_unique_for_does_not_forget_a_promise_that_has_not_ended(stage: Stage) -> None:
    await stage.promise("class:7", after=DAY)
    stage.clock.advance(HOUR)
    assert (await stage.promise("class:7", unique_for=MINUTE)).outcome == "kept"


@pytest.mark.parametrize("on_conflict", [KEEP, REPLACE, ERROR])
async def test_a_forgotten_key_conflicts_with_nothing(stage: Stage, on_conflict: OnConflict) -> None:
    run = await stage.running("class:7")
    await stage.finish(stage.succeeded(run))
    stage.clock.advance(DAY)
    assert (await stage.promise("class:7", unique_for=HOUR, on_conflict=on_conflict)).outcome == "made"


# -------------------------------------------------------------------------------------------------------------- replace


async def test_replace_changes_one_that_waits(stage: Stage) -> None:
    first = await stage.promise("class:7", after=HOUR, payload=b"1")
    again = await stage.promise(
        "class:7",
        after=DAY,
        job="other",
        payload=b"2",
        priority=3,
        queue="mail",
        on_conflict=REPLACE,
        useful_until=START + 2 * DAY,
    )
    assert (again.id, again.outcome, again.state, again.fire_at) == (
        first.id,
        "replaced",
        State.SCHEDULED,
        START + DAY,
    )
    run = await stage.run(first)
    assert (run.job, run.payload, run.priority, run.queue, run.fire_at, run.nominal) == (
        "other",
        b"2",
        3,
        "mail",
        START + DAY,
        START + DAY,
    )
    assert len(await stage.store.runs()) == 1


async def test_replace_makes_the_first_one_too(stage: Stage) -> None:
    assert (await stage.promise("class:7", on_conflict=REPLACE)).outcome == "made"


async def test_replace_changes_one_that_was_handed_off_and_it_waits_again(stage: Stage) -> None:
    first = await stage.promise("class:7")
    await stage.fire()
    assert await stage.state(first) is State.READY
    await stage.promise("class:7", after=HOUR, payload=b"new", on_conflict=REPLACE)
    assert await stage.state(first) is State.SCHEDULED
    assert await stage.claim() == []
    stage.clock.advance(HOUR)
    await stage.fire()
    [run] = await stage.claim()
    assert run.payload == b"new"


async def test_replace_refuses_one_that_was_claimed(stage: Stage) -> None:
    await stage.running("class:7", payload=b"1")
    with pytest.raises(Conflict, match=r"class:7#1 is running"):
        await stage.promise("class:7", payload=b"2", on_conflict=REPLACE)
    assert (await stage.run("class:7#1")).payload == b"1"


async def test_replace_refuses_one_that_failed_and_waits_to_try_again(stage: Stage) -> None:
    await stage.finish(stage.failed(await stage.running("class:7")))
    with pytest.raises(Conflict, match=r"class:7#1 is retrying"):
        await stage.promise("class:7", on_conflict=REPLACE)


async def test_replace_refuses_one_that_ended(stage: Stage) -> None:
    await stage.finish(stage.succeeded(await stage.running("class:7")))
    with pytest.raises(Conflict, match=r"class:7#1 is succeeded"):
        await stage.promise("class:7", on_conflict=REPLACE)


# ------------------------------------------------------------------------------------------------------ error and renew


async def test_error_refuses_a_key_that_exists_and_says_what_stands_there(stage: Stage) -> None:
    await stage.promise("class:7", payload=b"1")
    with pytest.raises(Conflict, match=r"class:7#1 is scheduled"):
        await stage.promise("class:7", payload=b"2", on_conflict=ERROR)
    assert (await stage.run("class:7#1")).payload == b"1"


async def test_error_refuses_also_after_it_ended(stage: Stage) -> None:
    await stage.finish(stage.succeeded(await stage.running("class:7")))
    with pytest.raises(Conflict):
        await stage.promise("class:7", on_conflict=ERROR)


async def test_renew_makes_the_next_generation_when_the_last_one_has_ended(stage: Stage) -> None:
    await stage.finish(stage.succeeded(await stage.running("class:7")))
    again = await stage.promise("class:7", after=HOUR, on_conflict=RENEW)
    assert (again.id, again.outcome) == ("class:7#2", "renewed")
    assert (await stage.run("class:7#1")).state is State.SUCCEEDED
    assert (await stage.promise("class:7")).id == "class:7#2"


async def test_renew_counts_generations_as_numbers_not_as_text(stage: Stage) -> None:
    for generation in range(1, 12):
        kept = await stage.promise("class:7", on_conflict=RENEW)
        assert kept.id == f"class:7#{generation}"
        await stage.store.cancel(kept.id, actor="test", note="next")
    assert (await stage.promise("class:7")).id == "class:7#11"


async def test_renew_refuses_while_the_last_one_waits(stage: Stage) -> None:
    await stage.promise("class:7", after=HOUR)
    with pytest.raises(Conflict, match=r"still scheduled"):
        await stage.promise("class:7", on_conflict=RENEW)
    assert len(await stage.store.runs()) == 1


async def test_renew_refuses_while_the_last_one_runs(stage: Stage) -> None:
    await stage.running("class:7")
    with pytest.raises(Conflict, match=r"still running"):
        await stage.promise("class:7", on_conflict=RENEW)


# ---------------------------------------------------------------------------------------------------- keys side by side


async def test_one_key_twice_in_one_call_counts_as_made_one_after_the_other(stage: Stage) -> None:
    first, second = await stage.store.promise(
        [Promise("job", b"1", START, key="class:7"), Promise("job", b"2", START, key="class:7")]
    )
    assert (first.outcome, second.outcome, second.id) == ("made", "kept", first.id)
    assert (await stage.run(first)).payload == b"1"


async def test_replacing_within_one_call_leaves_the_last_one(stage: Stage) -> None:
    answers = await stage.store.promise(
        [Promise("job", b"%d" % place, START + place, key="class:7", on_conflict=REPLACE) for place in range(3)]
    )
    assert [answer.outcome for answer in answers] == ["made", "replaced", "replaced"]
    assert (await stage.run("class:7#1")).payload == b"2"


async def test_renewing_within_one_call_is_refused_as_a_whole(stage: Stage) -> None:
    with pytest.raises(Conflict):
        await stage.store.promise([Promise("job", b"", START, key="class:7", on_conflict=RENEW)] * 2)
    assert await stage.store.runs() == []


async def test_keys_of_different_tenants_do_not_meet(stage: Stage) -> None:
    outcomes = [(await stage.promise("class:7", tenant=tenant)).outcome for tenant in (None, "acme", "zenith", "acme")]
    assert outcomes == ["made", "made", "made", "kept"]
    assert {run.id for run in await stage.store.runs()} == {"class:7#1", "class:7[acme]#1", "class:7[zenith]#1"}


async def test_keys_that_merely_begin_alike_do_not_meet(stage: Stage) -> None:
    keys = ["a", "a#1", "a#1#1", "a#", "a$", "a[", "a[b", "class:1", "class:10", "class:1#0"]
    assert [(await stage.promise(key)).outcome for key in keys] == ["made"] * len(keys)
    assert [(await stage.promise(key)).outcome for key in keys] == ["kept"] * len(keys)
    for key in keys:
        assert (await stage.store.move(key, None, START + HOUR)).id == f"{key}#1"
    await stage.store.cancel_promise("a", None, actor="test", note="")
    assert len(await stage.store.runs(states=[State.SCHEDULED])) == len(keys) - 1


async def test_any_printable_text_can_be_a_key_and_any_bytes_a_payload(stage: Stage) -> None:
    kept = await stage.promise("Grüße 'x\"; DROP TABLE run; -- 🙂%_", payload=bytes(range(256)))
    assert (await stage.run(kept)).payload == bytes(range(256))
    assert (await stage.promise("Grüße 'x\"; DROP TABLE run; -- 🙂%_")).outcome == "kept"


async def test_the_store_says_what_a_promise_was_made_with_also_after_it_ended(stage: Stage) -> None:
    ended = await stage.promise("class:6", payload=b'{"a":1}')
    live = await stage.promise("class:7", after=HOUR, payload=b'{"a":2}', job="job")
    await stage.store.cancel(ended.id, actor="ana", note="")
    found = await stage.store.promised([ended.number, live.number, 7])
    assert found == {
        ended.number: Promised("job", b'{"a":1}', ended.fire_at),
        live.number: Promised("job", b'{"a":2}', live.fire_at),
    }
