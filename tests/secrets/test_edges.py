"""What comes in is bounded: in size, in depth, and in the letters that no store can hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot import Context, Foliot
from foliot.domain.depth import MOST_DEPTH, is_too_deep
from foliot.domain.redaction import REDACTED, redacted_json
from foliot.domain.state import State
from foliot.errors import InvalidInput
from foliot.testing import virtual_time


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


JSON = some.recursive(
    some.text('[]{}"\\a', max_size=6) | some.none(),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text('[{"\\', max_size=3), inner, max_size=3),
)


@given(JSON, some.integers(MOST_DEPTH - 6, MOST_DEPTH + 3))
def test_depth_is_counted_in_brackets_that_are_no_letters(value: Any, around: int) -> None:
    for _ in range(around):
        value = [value, "[[{"]
    assert is_too_deep(json.dumps(value).encode()) == (depth(value) > MOST_DEPTH)


BAD_ARGUMENTS = {
    "deep": nested(MOST_DEPTH + 1),
    "deeper": nested(5_000),
    "half a letter": "\ud800",
    "large": "x" * (1 << 20),
    "not a number": float("nan"),
}


@pytest.mark.parametrize("value", BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
def test_arguments_that_cannot_be_kept_are_refused_where_they_come_in(value: Any) -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    def keep(value: Any) -> None: ...

    with virtual_time(app) as world:
        with pytest.raises(InvalidInput):
            keep.now(value=value)
        with pytest.raises(InvalidInput):
            keep.handler.encode((), {"value": value}, {})
        assert world.runs() == []


@pytest.mark.parametrize("value", ["\0", "a\0b", nested(MOST_DEPTH - 1), {"\0": "\0"}])
def test_what_looks_odd_and_can_be_kept_comes_through(value: Any) -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    def echo(value: Any) -> Any:
        return value

    with virtual_time(app) as world:
        echo.using(key="a").now(value=value)
        world.run_for("1m")
        assert json.loads(world.run("a#1").result or b"") == value
        assert json.loads(world.call(app.operate.run_async("a#1")).result or b"") == value


@pytest.mark.parametrize("value", BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
def test_a_result_that_cannot_be_kept_is_a_note_and_no_failure(value: Any) -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    def make() -> Any:
        return value

    with virtual_time(app) as world:
        make.using(key="a").now()
        world.run_for("1m")
        view = world.run("a#1")
        assert view.state is State.SUCCEEDED
        assert view.result in (None, b"null")


@pytest.mark.parametrize("said", [("x" * 1_000_000,), ([],), (1, "many"), (None,)])
def test_progress_is_told_in_numbers(said: tuple[Any, ...]) -> None:
    app = Foliot("sqlite:///:memory:", attempts=1)

    @app.job
    def work(ctx: Context) -> None:
        ctx.progress(*said)

    with virtual_time(app) as world:
        work.using(key="a").now()
        world.run_for("1m")
        view = world.run("a#1")
        assert view.state is State.DEAD
        assert "progress takes numbers, as in progress(3, of=10); not" in (view.detail or "")
        assert len(view.detail or "") < 300


def test_what_is_too_deep_to_be_looked_through_is_not_shown() -> None:
    """Nothing lets such a thing in; somebody may have written it past us."""
    deep = b"[" * 600 + b'{"password": "c4nary"}' + b"]" * 600
    assert redacted_json(deep) == json.dumps(REDACTED).encode()
