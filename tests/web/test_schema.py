"""Validation and the OpenAPI document agree about each field of each request, in both directions.

The document gives the fields and their constraints. Each constraint gives values on both sides of it. A validator of
JSON Schema judges each value, and the API must judge it alike: it names the field as wrong, or it does not.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import jsonschema_rs
import pytest

from foliot.web.application import inner_application
from foliot.web.openapi import description
from foliot.web.settings import WebSettings
from tests.tiers import FULL
from tests.web.stage import Caller, Stage, staged

DOCUMENT: dict[str, Any] = description(inner_application())
KEY = "Idempotency-Key"
"""It is checked before the fields are."""
JSON = {"content-type": "application/json"}
MOST_VALID_ITEMS = 100
"""A longer list is only sent when it is too long."""
WORDS = [
    "",
    "a",
    " ",
    "no such",
    "5",
    "+5",
    " 5",
    "1_0",
    "5.5",
    "true",
    "True",
    "1",
    "0",
    "yes",
    "on",
    "null",
    "é",
    "-1",
]
MOST_SHARED = 100
"""A longer value has a request of its own, because an address has a limit."""
OTHERS: list[Any] = [None, True, False, 0, 1, -1, 5.5, 5.0, "5", "true", "yes", [], {}]
"""Values of each type of JSON."""

Path = tuple[str | int, ...]


class Field(NamedTuple):
    """A place in a request, and its constraints. A place in a body begins with `body`."""

    place: Path
    schema: dict[str, Any]

    @property
    def is_in_body(self) -> bool:
        return self.place[0] == "body"


class Operation(NamedTuple):
    method: str
    path: str
    described: dict[str, Any]

    @property
    def parameters(self) -> list[dict[str, Any]]:
        return list(self.described.get("parameters", []))

    @property
    def body(self) -> dict[str, Any] | None:
        content = self.described.get("requestBody", {}).get("content", {})
        return resolved(content["application/json"]["schema"]) if content else None

    def fields(self) -> Iterator[Field]:
        for parameter in self.parameters:
            yield Field((parameter["in"], parameter["name"]), resolved(parameter["schema"]))
        if self.body is not None:
            yield from below(("body",), self.body)


OPERATIONS = [
    Operation(method.upper(), path, described)
    for path, methods in DOCUMENT["paths"].items()
    for method, described in methods.items()
    if path.startswith("/api/v1")
]


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        found: Any = DOCUMENT
        for name in schema["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        schema = found
    return schema


def branches(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    schema = resolved(schema)
    for one in schema.get("anyOf", [schema]):
        yield from branches(one) if "anyOf" in (one := resolved(one)) else [one]


def below(place: Path, schema: dict[str, Any]) -> Iterator[Field]:
    """The field and all fields inside it."""
    yield Field(place, schema)
    for branch in branches(schema):
        for name, inner in branch.get("properties", {}).items():
            yield from below((*place, name), resolved(inner))
        if "items" in branch:
            yield from below((*place, 0), resolved(branch["items"]))


def is_container(field: Field) -> bool:
    return any(branch.get("type") in ("object", "array") for branch in branches(field.schema))


def judge(schema: dict[str, Any]) -> Callable[[Any], bool]:
    """A function that says whether a schema allows a value."""
    return _judge(json.dumps(schema))


@cache
def _judge(schema: str) -> Callable[[Any], bool]:
    whole = {"allOf": [json.loads(schema)]} | ({"components": DOCUMENT["components"]} if "$ref" in schema else {})
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True).is_valid


def texts(schema: dict[str, Any]) -> Iterator[str]:
    """Texts on both sides of each constraint on a text."""
    for branch in branches(schema):
        for name in ("minLength", "maxLength"):
            if name in branch:
                yield from (letter * length for letter in "a5é" for length in (branch[name], branch[name] + 1))
                yield "a" * max(branch[name] - 1, 0)
        for one in branch.get("enum", []):
            yield from (one, one.upper(), one + " ", one + "\n")
        if "pattern" in branch:
            yield from ("1\n", "a b", "a_b-c", "!")
        if "format" in branch:
            yield from ("2026-04-03", "2026-04-03T02:00:00Z", "2026-04-03T00:00:00", "2026-04-31", "1712102400")
        yield from branch.get("examples", [])
    yield from WORDS


def numbers(schema: dict[str, Any]) -> Iterator[float]:
    for branch in branches(schema):
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if name in branch:
                yield from (int(branch[name]) + more for more in (-1, 0, 1))


def lists(schema: dict[str, Any]) -> Iterator[list[Any]]:
    for branch in branches(schema):
        if branch.get("type") == "array":
            item = sample(branch["items"])
            lengths = {branch.get("minItems", 0) - 1, branch.get("minItems", 0)}
            if "maxItems" in branch:
                lengths |= {branch["maxItems"] + 1, min(branch["maxItems"], MOST_VALID_ITEMS)}
            yield from ([item] * length for length in sorted(lengths) if length >= 0)


def sample(schema: dict[str, Any]) -> Any:
    """A value that the schema allows."""
    is_valid = judge(schema)
    for value in (*OTHERS, *texts(schema), *numbers(schema)):
        if value is not None and is_valid(value):
            return value
    for branch in branches(schema):
        if branch.get("type") == "object":
            return {name: sample(branch["properties"][name]) for name in branch["required"]}
        if branch.get("type") == "array":
            return [sample(branch["items"])]
    raise AssertionError(f"no sample of {schema}")


def is_text_valid(schema: dict[str, Any], text: str) -> bool:
    """Whether a text in a query or a path stands for a value that the schema allows."""
    given: list[Any] = []
    for branch in branches(schema):
        match branch.get("type"):
            case "integer" | "boolean" | "number":
                try:
                    value = json.loads(text)
                except ValueError:
                    continue
                if json.dumps(value) == text:
                    given.append(value)
            case "string":
                given.append(text)
    return any(judge(schema)(value) for value in given if value is not None)


def of_parameter(field: Field) -> Iterator[tuple[Any, bool]]:
    """Values of a query, a path or a header, each with whether it is allowed."""
    for branch in branches(field.schema):
        if branch.get("type") == "array":
            is_valid = judge(field.schema)
            for items in lists(field.schema):
                yield items, is_valid(items)
            for text in texts(branch["items"]):
                yield [text], is_text_valid(branch["items"], text)
            return
    for text in dict.fromkeys([*texts(field.schema), *map(str, numbers(field.schema))]):
        yield text, is_text_valid(field.schema, text)
    if field.place[0] == "query":
        yield [sample_text(field.schema)] * 2, False


def sample_text(schema: dict[str, Any]) -> str:
    return next(text for text in texts(schema) if is_text_valid(schema, text))


def of_body(field: Field) -> Iterator[tuple[Any, bool]]:
    is_valid = judge(field.schema)
    plain = [] if is_container(field) else [*texts(field.schema), *numbers(field.schema)]
    for value in (*OTHERS, *plain, *lists(field.schema)):
        yield value, is_valid(value)
    for branch in branches(field.schema):
        if branch.get("type") == "object" and branch.get("properties"):
            yield {"no_such_field": 1}, is_valid({"no_such_field": 1})
            whole = {name: sample(branch["properties"][name]) for name in branch.get("required", [])}
            for name in whole:
                less = {key: value for key, value in whole.items() if key != name}
                yield less, is_valid(less)


def is_repeated(case: Case) -> bool:
    """A parameter that is given twice and is no list: it is refused before the fields are read."""
    return isinstance(case.value, list) and not is_container(case.field)


class Case(NamedTuple):
    field: Field
    value: Any
    is_valid: bool


def cases(field: Field) -> list[Case]:
    if field.place[0] == "path":
        found = [one for one in of_parameter(field) if one[0] not in ("", ".", "..")]  # another address
    elif field.place[0] == "header":
        found = [one for one in of_parameter(field) if one[0].isascii() and one[0] == one[0].strip()]
    else:
        found = list((of_body if field.is_in_body else of_parameter)(field))
    return [Case(field, *one) for one in found]


SEEN: set[str] = set()


def is_new(field: Field) -> bool:
    """Whether it is the first of its kind: the short tier tries each kind once, on the first operation that has it."""
    kind = json.dumps([field.place[0], field.place[-1], field.schema])
    is_first = kind not in SEEN
    SEEN.add(kind)
    return is_first


def rounds(operation: Operation) -> Iterator[list[Case]]:
    """Cases of fields that do not contain one another share a request, because each wrong field is named."""
    fields = [field for field in operation.fields() if FULL or is_new(field)]
    apart = [field for field in fields if field.place[-1] == KEY or (field.is_in_body and is_container(field))]
    plain = [cases(field) for field in fields if field not in apart]
    for number in range(max(map(len, plain), default=0)):
        together = [one[number] for one in plain if number < len(one)]
        long = [case for case in together if len(str(case.value)) > MOST_SHARED or is_repeated(case)]
        yield [case for case in together if case not in long]
        yield from ([case] for case in long)
    for field in apart:
        yield from ([one] for one in cases(field))


def put(into: Any, place: Path, value: Any) -> Any:
    """The JSON `into` with a value at a place; lists have one item."""
    if not place:
        return value
    first, *rest = place
    if isinstance(first, int):
        return [put(into[0] if into else None, tuple(rest), value)]
    into = dict(into or {})
    return into | {first: put(into.get(first), tuple(rest), value)}


async def ask(caller: Caller, operation: Operation, together: list[Case]) -> httpx.Response:
    """The errors of the answer. An unknown field keeps valid requests from being executed."""
    path, query, headers, body = operation.path, {"no_such_field": "1"}, {}, {"no_such_field": 1}
    for (place, _), value, _ in together:
        match place:
            case ("path", name):
                path = path.replace(f"{{{name}}}", quote(value, safe=""))
            case ("query", str(name)):
                query[name] = value
            case ("header", str(name)):
                headers[name] = value
            case ("body", *inner):
                body = put(body, tuple(inner), value)
    for parameter in operation.parameters:
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", "1")
    more: dict[str, Any] = {} if operation.body is None else {"content": json.dumps(body)}
    return await caller.ask_async(operation.method, path, params=query, headers=JSON | headers, **more)


def is_named(answer: httpx.Response, place: Path) -> bool:
    """Whether an answer names a field as wrong, or something inside it."""
    if place[-1] == KEY:
        return "cannot be the key of a request" in answer.json()["detail"]
    names = [str(part) for part in place]
    return any(error["where"].split(".")[: len(names)] == names for error in answer.json().get("errors", []))


async def disagreements(caller: Caller, operation: Operation) -> AsyncIterator[str]:
    for together in rounds(operation):
        answer = await ask(caller, operation, together)
        for case in together:
            is_refused = answer.status_code == 414 or is_named(answer, case.field.place)
            is_only_too_long = answer.status_code == 414 and case.is_valid
            if is_refused is case.is_valid and not is_only_too_long:
                judged = "refused" if case.is_valid else f"accepted ({answer.status_code})"
                place = ".".join(map(str, case.field.place))
                yield f"{operation.method} {operation.path} {place}: {case.value!r:.60} is {judged}"
            if not case.is_valid:
                assert 400 <= answer.status_code < 500, answer.text
                assert answer.headers["content-type"] == "application/problem+json"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged(WebSettings(), lived=False) as made:
        yield made


def test_the_document_and_the_code_agree_about_each_field(stage: Stage) -> None:
    caller = stage.somebody()

    async def looked_for() -> list[str]:
        return [one for operation in OPERATIONS async for one in disagreements(caller, operation)]

    found = stage.world.call(looked_for())
    assert not found, "\n".join(found)
