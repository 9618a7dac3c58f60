from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foliot.domain.instant import SECOND
from foliot.domain.ledger import Item, ItemState
from foliot.domain.policy import Policy
from foliot.domain.state import Event, Outcome
from foliot.errors import ItemsFailed, StoreError
from foliot.work.attempt import Stop
from foliot.work.context import Context
from tests.tiers import by_tier
from tests.work.fakes import Bench, run, until
from tests.work.lives import Life

Body = Callable[[Context, Any], None]


def over(body: Body, items: Callable[[], Any] = lambda: [1, 2, 3], **choices: Any) -> list[Callable[..., Any]]:
    """The same loop twice: in a thread and in the loop."""

    def in_thread(ctx: Context) -> None:
        for item in ctx.each(items(), **choices):
            body(ctx, item)

    async def in_loop(ctx: Context) -> None:
        async for item in ctx.each(items(), **choices):
            body(ctx, item)

    return [in_thread, in_loop]


def both(test: Callable[..., None]) -> Any:
    return pytest.mark.parametrize("kind", [0, 1], ids=["thread", "loop"])(test)


def ignore(ctx: Context, item: Any) -> None: ...


def states(items: list[Item]) -> dict[str, str]:
    return {item.key: str(item.state) for item in items}


@both
def test_every_item_is_met_once_and_is_done_when_the_loop_asks_for_the_next(kind):
    seen = []

    def body(ctx: Context, item: int) -> None:
        told = [] if ctx._batches is None else [one.key for one in ctx._batches.unsaid]
        seen.append((item, told))

    life = Life(over(body)[kind])
    assert life.attempt().event is Event.COMPLETED
    assert seen == [(1, []), (2, ["1"]), (3, ["1", "2"])]
    assert life.said == [Item("", str(key), ItemState.DONE, None, 3) for key in (1, 2, 3)]


@both
def test_a_body_that_raises_leaves_its_item_failed_and_a_retry_does_only_the_rest(kind):
    seen = []

    def body(ctx: Context, item: int) -> None:
        seen.append(item)
        if item == 2 and ctx.attempt == 1:
            raise OSError("no line")

    life = Life(over(body)[kind])
    assert life.attempt().event is Event.RETRY_GRANTED
    assert states(life.said) == {"1": "done", "2": "failed"}
    assert life.said[1].error == "OSError: no line"
    life.told()
    assert life.attempt().event is Event.COMPLETED
    assert seen == [1, 2, 2, 3]


@both
def test_an_item_that_is_said_to_have_failed_does_not_stop_the_others_but_the_attempt_fails(kind):
    def body(ctx: Context, item: int) -> None:
        if item == 2 and ctx.attempt == 1:
            ctx.item_failed("no such account")

    life = Life(over(body)[kind])
    ending = life.attempt()
    assert (ending.event, ending.outcome) == (Event.RETRY_GRANTED, Outcome.FAILED)
    assert str(ending.error).startswith("foliot.errors.ItemsFailed: 2 of 3 done, 1 failed: first 2: no such account")
    assert states(life.said) == {"1": "done", "2": "failed", "3": "done"}
    life.told()
    assert life.attempt().event is Event.COMPLETED
    assert states(life.said) == {"2": "done"}


def test_items_that_failed_are_tried_again_whatever_retry_on_says():
    def body(ctx: Context, item: int) -> None:
        ctx.item_failed("no")

    assert Life(over(body)[0], retry_on=OSError).attempt().event is Event.RETRY_GRANTED
    assert Life(over(body)[0], give_up_on=ItemsFailed).attempt().event is Event.GAVE_UP


@pytest.mark.parametrize("stop", [Stop.DRAIN, Stop.TIMEOUT, Stop.CANCEL])
def test_an_item_that_was_interrupted_has_not_failed(stop):
    life: Any = None

    def body(ctx: Context, item: int) -> None:
        if item == 2:
            life.last.ask_to_stop(stop)
            ctx.check()

    life = Life(over(body)[0])
    life.attempt()
    assert states(life.said) == {"1": "done"}


@both
def test_an_item_that_the_loop_broke_off_at_is_neither_done_nor_failed(kind):
    def in_thread(ctx: Context) -> None:
        for item in ctx.each([1, 2, 3]):
            if item == 2:
                break

    async def in_loop(ctx: Context) -> None:
        async for item in ctx.each([1, 2, 3]):
            if item == 2:
                break

    life = Life([in_thread, in_loop][kind])
    life.attempt()
    assert states(life.said) == {"1": "done"}


@dataclass
class Order:
    number: int


async def orders() -> AsyncIterator[Order]:
    for number in (1, 2):
        yield Order(number)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("items", "key"),
    [
        (lambda: [Order(1), Order(2)], "number"),
        (lambda: [{"number": 1}, {"number": 2}], "number"),
        (lambda: [Order(1), Order(2)], lambda order: order.number),
        (lambda: (Order(number) for number in (1, 2)), "number"),
        (lambda: {"1": None, "2": None}, None),
        (lambda: range(1, 3), None),
        (orders, "number"),
    ],
)
def test_items_are_called_by_an_attribute_an_entry_a_function_or_themselves(items, key):
    life = Life(over(ignore, items, key=key)[1])
    assert life.attempt().event is Event.COMPLETED
    assert states(life.said) == {"1": "done", "2": "done"}


def test_how_many_there_are_is_known_where_the_items_have_a_length():
    life = Life(over(ignore, lambda: iter([1, 2]))[0])
    life.attempt()
    assert [item.of for item in life.said] == [None, None]


def progress(life: Life) -> Any:
    return msgspec.json.decode(life.last.context._note)


def test_a_loop_says_how_far_it_is_and_counts_what_was_done_before():
    def body(ctx: Context, item: int) -> None:
        if item == 2 and ctx.attempt == 1:
            ctx.item_failed("no")

    life = Life(over(body)[0])
    life.attempt()
    assert progress(life) | {"at": 0} == {"done": 2, "of": 3, "note": "1 failed", "at": 0}
    life.told()
    life.attempt()
    assert progress(life)["done"] == 3


def test_a_handler_that_says_itself_how_far_it_is_has_the_word():
    def body(ctx: Context, item: int) -> None:
        ctx.progress(item * 10, of=30)

    life = Life(over(body)[0])
    life.attempt()
    assert progress(life)["done"] == 30


def test_every_item_shows_that_the_attempt_moves():
    life: Any = None
    moved = []

    def body(ctx: Context, item: int) -> None:
        moved.append(life.last.moved_at())
        life.clock.advance(SECOND)

    life = Life(over(body)[0])
    life.attempt()
    assert moved == [0, SECOND, 2 * SECOND]


@both
def test_loops_nest_and_a_failure_is_that_of_the_innermost_that_is_still_gone_over(kind):
    def in_thread(ctx: Context) -> None:
        for account in ctx.each(["a", "b"]):
            for page in ctx.each([1, 2, 3], key=lambda page: f"{account}{page}", name="pages"):
                if (account, page) == ("a", 2):
                    ctx.item_failed("torn")
                if (account, page) == ("b", 2):
                    break
            if account == "b":
                ctx.item_failed("incomplete")

    async def in_loop(ctx: Context) -> None:
        async for account in ctx.each(["a", "b"]):
            try:
                async for page in ctx.each([1, 2, 3], key=lambda page: f"{account}{page}", name="pages"):
                    if (account, page) == ("a", 2):
                        ctx.item_failed("torn")
                    if (account, page) == ("b", 2):
                        break
            except ItemsFailed:
                pass
            if account == "b":
                ctx.item_failed("incomplete")

    life = Life([in_thread, in_loop][kind])
    life.attempt()
    said = {(item.batch, item.key): item.error for item in life.said}
    assert said["pages", "a2"] == "torn"
    if kind == 0:
        assert "ItemsFailed" in str(said["", "a"])
    else:
        assert said["", "a"] is None
        assert said["", "b"] == "incomplete"
        assert said["pages", "b1"] is None
        assert ("pages", "b2") not in said


# ---------------------------------------------------------------------------------------------------- what is told when


def test_items_are_told_once_with_the_heartbeat_and_the_rest_with_the_ending():
    async def scene() -> None:
        go = asyncio.Event()

        async def job(ctx: Context) -> None:
            async for item in ctx.each([1, 2, 3]):
                if item == 3:
                    await go.wait()

        bench = Bench(job)
        bench.store.hand_off("job")
        await bench.worker.start()
        await bench.worker.run_once()
        [attempt] = bench.worker.running
        await until(lambda: attempt.news() is not None and len(attempt.news().items) == 2)
        await bench.worker.heartbeat.run_once()
        assert attempt.news() is None
        go.set()
        await bench.work()
        told = [[item.key for item in word.items] for _, words in bench.store.beats for word in words]
        assert told == [["1", "2"]]
        assert [item.key for report in bench.store.reports for item in report.items] == ["3"]
        assert bench.store.outcomes == [Outcome.SUCCEEDED]

    run(scene())


def test_items_that_the_store_did_not_hear_are_said_again():
    life = Life(over(ignore)[0])
    life.attempt()
    words = life.last.report()
    life.last.was_told(words, unheard=True)
    assert life.last.report().items == words.items
    life.last.was_told(words)
    assert life.last.report() is None


@both
def test_durable_items_are_in_the_store_before_the_next_one_begins(kind):
    life: Any = None
    known = []

    def body(ctx: Context, item: int) -> None:
        known.append([key for _, key in life.store.items.get(1, {})])

    life = Life(over(body, durable=True)[kind])
    life.attempt()
    assert known == [[], ["1"], ["1", "2"]]
    assert life.said == []


def test_a_durable_item_that_could_not_be_told_is_told_before_the_ending():
    life = Life(over(ignore, durable=True)[0])
    life.store.failing["beat"] = StoreError("away")
    assert life.attempt().event is Event.RETRY_GRANTED
    assert states(life.said) == {"1": "done"}


def test_a_repair_goes_over_everything_again():
    seen = []
    life = Life(over(lambda ctx, item: seen.append(item))[0], run={"repair": True, "lineage": 1})
    life.store.items[1] = {("", "1"): Item("", "1", ItemState.DONE)}
    life.attempt()
    assert seen == [1, 2, 3]
    assert life.last.context.repair


# ------------------------------------------------------------------------------------------------------ what is refused


def refusal(function: Callable[..., Any]) -> str:
    return str(Life(function).attempt().error)


def test_two_items_of_one_name_are_refused_before_anything_is_done():
    seen = []
    life = Life(over(lambda ctx, item: seen.append(item), lambda: [1, 2, 1])[0])
    assert "item key 1 occurs twice in the batch" in str(life.attempt().error)
    assert seen == []
    assert "item key 1 occurs twice" in refusal(over(ignore, lambda: iter([1, 2, 1]))[0])


def test_a_second_loop_over_the_same_items_needs_a_name():
    def job(ctx: Context) -> None:
        for _ in ctx.each([1]):
            pass
        for _ in ctx.each([1], name="letters"):
            pass
        for _ in ctx.each([1]):
            pytest.fail("it is not the same item")

    assert "give each item a unique key, and a second loop its own name" in refusal(job)


def test_pages_of_one_batch_may_come_in_several_loops():
    def job(ctx: Context) -> None:
        for page in ([1, 2], [3]):
            for _ in ctx.each(page):
                pass

    life = Life(job)
    assert life.attempt().event is Event.COMPLETED
    assert [item.of for item in life.said] == [2, 2, 3]


def test_the_wrong_kind_of_loop_names_the_right_one():
    async def plain(ctx: Context) -> None:
        for _ in ctx.each([1]):
            pytest.fail("it began")

    def late(ctx: Context) -> None:
        for _ in ctx.each(orders(), key="number"):
            pytest.fail("it began")

    assert "write async for item in ctx.each(...)" in refusal(plain)
    assert "write async for item in ctx.each(...)" in refusal(late)


@pytest.mark.parametrize(
    ("items", "key", "says"),
    [
        ([Order(1)], None, 'ctx.each(items, key="id")'),
        ([Order(1)], "name", "has no name, the key"),
        ([{"id": ""}], "id", "cannot be a key of an item"),
        ([Order(1)], 3, "give the name of an attribute"),
        ("abc", None, "needs an iterable of items"),
        (3, None, "needs an iterable of items"),
    ],
)
def test_items_that_cannot_be_told_apart_are_refused(items, key, says):
    assert says in refusal(over(ignore, lambda: items, key=key)[0])


def test_outside_a_loop_no_item_can_fail():
    def job(ctx: Context) -> None:
        ctx.item_failed("which?")

    def after(ctx: Context) -> None:
        for _ in ctx.each([1]):
            pass
        ctx.item_failed("which?")

    assert "call it inside such a loop" in refusal(job)
    assert "call it inside such a loop" in refusal(after)


# ----------------------------------------------------------------------------------------------------------- invariants


@settings(max_examples=by_tier(40, 150, 1_500))
@given(st.lists(st.lists(st.sampled_from(["ok", "fail", "raise"]), min_size=4, max_size=4), min_size=1, max_size=5))
def test_every_item_is_done_exactly_once_whatever_happens_to_the_attempts(attempts):
    done: list[int] = []
    plan: list[str] = []

    def body(ctx: Context, item: int) -> None:
        if plan[item] == "raise":
            raise OSError
        if plan[item] == "fail":
            ctx.item_failed("no")
        else:
            done.append(item)

    life = Life(over(body, lambda: range(4))[1], policy=Policy(attempts=100))
    for steps in attempts:
        plan[:] = steps
        ending = life.attempt()
        life.told()
        kept = {item.key for item in life.store.items.get(1, {}).values() if item.state is ItemState.DONE}
        assert sorted(map(str, done)) == sorted(kept)
        if ending.event is Event.COMPLETED:
            assert sorted(done) == [0, 1, 2, 3]
            break
    assert len(set(done)) == len(done)
