from __future__ import annotations

import dataclasses
import enum
import functools
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foliot.domain.ledger import Traits, traits_from_json
from foliot.domain.policy import Policy, policy_from_json
from foliot.errors import InvalidInput
from foliot.work.arguments import MOST_PAYLOAD
from foliot.work.context import Context
from foliot.work.handler import Handler

if TYPE_CHECKING:
    import foliot.work.context as elsewhere


class Colour(enum.StrEnum):
    RED = "red"


@dataclasses.dataclass
class Money:
    amount: Decimal
    currency: str = "EUR"


class Batch(msgspec.Struct):
    id: int
    items: list[Money] = []


class Unknown:
    pass


async def send_reminder(class_id: int) -> None: ...


def settle(ctx: Context, day: date, colour: Colour = Colour.RED, money: Money | None = None) -> None: ...


def anything(x, y=2): ...


def takes_more(a: int, **others: Any) -> None: ...


def test_a_payload_is_a_json_object_of_what_was_given():
    handler = Handler.of(settle)
    payload = handler.encode((), {"day": date(2026, 4, 3)})
    assert payload == b'{"day":"2026-04-03"}'
    assert handler.decode(payload) == {"day": date(2026, 4, 3)}


def test_types_come_back_as_they_went_in():
    handler = Handler.of(settle)
    given = {"day": date(2026, 4, 3), "colour": Colour.RED, "money": Money(Decimal("1.50"))}
    assert handler.decode(handler.encode((), given)) == given


def test_arguments_by_position_are_named():
    handler = Handler.of(settle)
    assert handler.encode((date(2026, 4, 3), Colour.RED), {}) == b'{"day":"2026-04-03","colour":"red"}'


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, "send_reminder: missing argument `class_id`"),
        ((), {"class_id": "seven"}, "class_id='seven' is invalid: Expected `int`, got `str`"),
        ((), {"class_id": True}, "class_id=True is invalid"),
        ((), {"class_id": math.nan}, "class_id=nan is invalid"),
        ((), {"klass_id": 7}, "has no argument 'klass_id'; did you mean class_id?"),
        ((), {"class_id": 7, "zzz": 1}, "has no argument 'zzz'; it takes: class_id"),
        ((), {"class_id": Unknown()}, "cannot be written as JSON"),
        ((1, 2), {}, "takes 1 arguments (class_id) and was given 2 by position"),
        ((1,), {"class_id": 1}, "class_id was given by position and by name"),
    ],
)
def test_a_wrong_call_is_refused_when_the_promise_is_made(args, kwargs, says):
    with pytest.raises(InvalidInput) as refused:
        Handler.of(send_reminder).encode(args, kwargs)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, [1, {"a": -math.inf}], "\ud800", b"bytes", datetime(2026, 1, 1, tzinfo=UTC), {1: 2}, {1, 2}],
)
def test_an_untyped_value_that_json_would_change_is_refused(value):
    with pytest.raises(InvalidInput):
        Handler.of(anything).encode((value,), {})
    with pytest.raises(InvalidInput):
        Handler.of(takes_more).encode((), {"a": 1, "extra": value})
    with pytest.raises(InvalidInput):
        Handler.of(anything).encode((1,), {"y": value})


def test_nan_is_refused_where_the_type_would_take_it_for_none():
    def measure(value: float | None) -> None: ...

    handler = Handler.of(measure)
    assert handler.encode((None,), {}) == b'{"value":null}'
    with pytest.raises(InvalidInput, match="NaN"):
        handler.encode((math.nan,), {})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_values)
def test_every_json_value_survives_untyped(value):
    handler = Handler.of(anything)
    assert handler.decode(handler.encode((), {"x": value})) == {"x": value}


def test_a_tuple_may_become_a_list():
    handler = Handler.of(anything)
    assert handler.decode(handler.encode(((1, (2,)),), {})) == {"x": [1, [2]]}


def test_a_payload_that_is_too_large_is_refused():
    handler = Handler.of(anything)
    handler.encode(("x" * (MOST_PAYLOAD - 20),), {})
    with pytest.raises(InvalidInput, match="store the data elsewhere"):
        handler.encode(("x" * MOST_PAYLOAD,), {})


def test_an_absent_argument_is_left_to_the_functions_own_default():
    assert Handler.of(anything).decode(b'{"x":1}') == {"x": 1}


def test_keywords_of_any_name_are_accepted_beside_typed_ones():
    handler = Handler.of(takes_more)
    assert handler.decode(handler.encode((1,), {"b": [2]})) == {"a": 1, "b": [2]}
    with pytest.raises(InvalidInput, match="a='x' is invalid"):
        handler.encode(("x",), {})


@pytest.mark.parametrize("payload", [b"", b"[]", b"{", b"\xff", b'{"class_id":"x"}', b"{}", b'{"class_id":1,"b":2}'])
def test_an_unreadable_payload_is_invalid_input(payload):
    with pytest.raises(InvalidInput, match="send_reminder"):
        Handler.of(send_reminder).decode(payload)


def test_the_context_is_found_by_annotation_also_as_text():
    def optional(day: date, ctx: Context | None = None) -> None: ...

    def quoted(context: Context, day: date) -> None: ...

    def imported_for_the_type_checker_only(c: elsewhere.Context) -> None: ...

    assert Handler.of(settle).wants_context == "ctx"
    assert Handler.of(optional).wants_context == "ctx"
    assert Handler.of(quoted).wants_context == "context"
    assert Handler.of(imported_for_the_type_checker_only).wants_context == "c"
    assert Handler.of(send_reminder).wants_context is None


def test_the_context_cannot_be_given():
    with pytest.raises(InvalidInput, match="ctx is the Context, which the worker provides"):
        Handler.of(settle).encode((), {"ctx": 1, "day": date(2026, 4, 3)})


def test_functions_that_cannot_be_jobs_are_refused_with_the_reason():
    def star(*numbers: int) -> None: ...

    def by_place(a: int, /) -> None: ...

    def custom(thing: Unknown) -> None: ...

    def nested(things: list[dict[str, Unknown]]) -> None: ...

    def ambiguous(when: date | str) -> None: ...

    def unresolved(thing: NotAnywhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def yields():
        yield 1

    async def yields_async():
        yield 1

    for function, says in [
        (star, r"\*numbers can only be given by position"),
        (by_place, "a can only be given by position"),
        (custom, "thing: Unknown cannot be an argument"),
        (nested, r"things: list\[dict\[str, .*Unknown has no JSON form"),
        (ambiguous, "when: .*cannot be an argument"),
        (unresolved, "annotation of thing cannot be resolved"),
        (yields, "is a generator"),
        (yields_async, "is a generator"),
        (lambda: None, "cannot name a job"),
        (3, "is not a function"),
    ]:
        with pytest.raises(InvalidInput, match=says):
            Handler.of(function)  # type: ignore[arg-type]


def test_methods_partials_wrapped_functions_and_objects_can_be_jobs():
    class Mailer:
        async def send(self, to: str) -> None: ...

        async def __call__(self, to: str) -> None: ...

    @functools.wraps(send_reminder)
    async def wrapped(*args: Any, **kwargs: Any) -> None: ...

    assert Handler.of(Mailer().send).encode(("a",), {}) == b'{"to":"a"}'
    called = Handler.of(Mailer(), name="mail")
    assert called.is_async
    assert called.encode(("a",), {}) == b'{"to":"a"}'
    assert Handler.of(wrapped).encode((7,), {}) == b'{"class_id":7}'
    partial = Handler.of(functools.partial(anything, y=3), name="partial")
    assert partial.decode(b'{"x":1}') == {"x": 1}


def test_constraints_in_annotations_hold():
    def limited(count: Annotated[int, msgspec.Meta(gt=0)]) -> None: ...

    with pytest.raises(InvalidInput, match="count=0 is invalid"):
        Handler.of(limited).encode((0,), {})


def test_nested_values_are_named_by_their_argument():
    def store(batch: Batch) -> None: ...

    with pytest.raises(InvalidInput, match=r"batch=.* is invalid: Expected `int`, got `str`"):
        Handler.of(store).encode(({"id": "x"},), {})


def test_retry_on_and_give_up_on_take_exception_classes():
    assert Handler.of(send_reminder, retry_on=ValueError).retry_on == (ValueError,)
    assert Handler.of(send_reminder, give_up_on=[KeyError, OSError]).give_up_on == (KeyError, OSError)
    with pytest.raises(InvalidInput, match="retry_on takes exception classes"):
        Handler.of(send_reminder, retry_on=["ValueError"])  # type: ignore[list-item]


def test_the_job_card_carries_the_policy():
    card = Handler.of(send_reminder, policy=Policy(attempts=7), queue="mail", owner="edu").card()
    assert (card.name, card.queue, card.owner) == ("send_reminder", "mail", "edu")
    assert policy_from_json(card.policy) == Policy(attempts=7)


def test_what_a_job_says_of_itself_is_on_its_card():
    assert Handler.of(send_reminder).card().traits is None
    handler = Handler.of(send_reminder, effects=["mail", "mail"], idempotent=True, rewritable=True, isolation="process")
    said = Traits(effects=("mail",), idempotent=True, rewritable=True, isolated=True)
    assert handler.traits() == traits_from_json(handler.card().traits) == said
    assert Handler.of(send_reminder, effects=()).traits().tracked


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"effects": "mail"}, r"""effects=\("payout",\)"""),
        ({"effects": 3}, "name all its effects"),
        ({"effects": ["two words"]}, "cannot name a effect"),
        ({"idempotent": "yes"}, "idempotent='yes'; give True or False"),
        ({"rewritable": 1}, "rewritable=1; give True or False"),
    ],
)
def test_a_job_that_misdescribes_itself_is_told(settings, says):
    with pytest.raises(InvalidInput, match=says):
        Handler.of(send_reminder, **settings)
