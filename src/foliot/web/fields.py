"""What requests are made of: the pieces that several of them share, each read once and strictly."""

from __future__ import annotations

import re
from datetime import date
from enum import Enum
from functools import cache
from typing import Annotated, Any, TypeVar, get_args
from urllib.parse import unquote

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from foliot.domain.identity import MOST_PRIORITY, NAME_PATTERN, TENANT_PATTERN
from foliot.domain.instant import Instant, parse_rfc3339
from foliot.web.routing import check_text

MOST_LISTED = 1_000
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


class Strict(BaseModel):
    """A JSON object whose values have exactly the types of the OpenAPI document: 1 and "yes" are no booleans."""

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        types = _types(cls)
        return {name: cls._value(types.get(name, ()), value) for name, value in given.items()}

    @classmethod
    def _value(cls, types: tuple[Any, ...], value: Any) -> Any:
        """JSON has one type of numbers: 5.0 is an integer, too."""
        return int(value) if int in types and isinstance(value, float) and value.is_integer() else value


class Body(Strict):
    """The body of a request. An unknown name is an error."""

    model_config = ConfigDict(extra="forbid")


class Asked(Body):
    """The query of a request: its texts are read as JSON where the document has a number or a boolean."""

    @classmethod
    def _value(cls, types: tuple[Any, ...], value: Any) -> Any:
        if bool in types:
            return _FLAGS.get(value, value)
        return int(value) if int in types and isinstance(value, str) and _INTEGER.fullmatch(value) else value


_FLAGS = {"true": True, "false": False}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,30})", re.ASCII)


@cache
def _types(model: type[BaseModel]) -> dict[str, tuple[Any, ...]]:
    """By the name that a request gives a field, the types that its value may have."""
    return {field.alias or name: _parts(field.annotation) for name, field in model.model_fields.items()}


def _parts(annotation: Any) -> tuple[Any, ...]:
    """The types in an annotation, such as `int` in `Annotated[int, ...] | None`."""
    return tuple(part for one in get_args(annotation) for part in _parts(one)) or (annotation,)


def _integer(given: Any) -> int:
    if not isinstance(given, str) or not _INTEGER.fullmatch(given):
        raise ValueError("give a whole number in digits")
    return int(given)


def _day(given: Any) -> date:
    try:
        return date.fromisoformat(given if isinstance(given, str) and _DAY.fullmatch(given) else "")
    except ValueError:
        raise ValueError("give a date, such as 2026-04-03") from None


def _decoded(given: str) -> str:
    """Ids come percent-encoded, so that they may hold any character, the slash too."""
    try:
        return check_text(unquote(given, errors="strict"))
    except UnicodeDecodeError:
        raise ValueError("write it as UTF-8, percent-encoded") from None


def _moment(given: Any) -> Instant:
    if not isinstance(given, str) or not _RFC3339.fullmatch(given):
        raise ValueError("give a date and time with its offset, such as 2026-04-03T02:00:00Z")
    return parse_rfc3339(given)


Moment = Annotated[
    int,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-04-03T02:00:00Z"]}),
]
"""An instant; read as microseconds."""
Line = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(check_text)]
Name = Annotated[str, Field(min_length=1, max_length=300), AfterValidator(check_text)]
Identifier = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
"""The name of a job, a schedule or a queue that a request makes."""
TenantName = Annotated[str, Field(pattern=f"^{TENANT_PATTERN}$")]
Priority = Annotated[int, Field(ge=-MOST_PRIORITY, le=MOST_PRIORITY, description="Higher priority starts first.")]
Length = Annotated[str, Field(min_length=1, max_length=100, examples=["90s", "10m", "1h30m"])]
Rate = Annotated[str, Field(min_length=1, max_length=50, examples=["10/s", "500/h"])]
Reason = Annotated[
    str,
    Field(
        min_length=1,
        max_length=2_000,
        description="Reason, recorded in the audit log with the token's name.",
        examples=["the bank confirmed it"],
    ),
    AfterValidator(check_text),
]
Key = Annotated[str, AfterValidator(_decoded)]
ReasonQuery = Annotated[
    str,
    Query(min_length=1, max_length=2_000, description="Reason, recorded in the audit log with the token's name."),
    AfterValidator(check_text),
]


def named(what: str, example: str) -> Any:
    """An id in a path."""
    return Path(
        min_length=1, max_length=600, description=f"{what}, percent-encoded: %2F for a slash.", examples=[example]
    )


ScheduleId = Annotated[Key, named("Id of the schedule", "daily-revenue")]
RunId = Annotated[Key, named("Id of the run", "daily-revenue@2026-04-03T02:00:00Z")]
JobName = Annotated[Key, named("Name of the job", "send_reminder")]
Number = Annotated[int, Path(ge=1, le=(1 << 31) - 1), BeforeValidator(_integer)]
Day = Annotated[date, BeforeValidator(_day)]
E = TypeVar("E", bound=Enum)
Choice = Annotated[E, Field(strict=False)]
"""One of the texts of an Enum: a strict model takes only its members."""


DryRun = Annotated[bool, Field(description="Return the plan and change nothing.")]


class Act(Body):
    """An action of an operator."""

    reason: Reason


class Paged(Asked):
    """What lists take."""

    cursor: Annotated[
        str | None,
        Field(max_length=700, description="The `cursor` of the previous page."),
        AfterValidator(lambda given: given if given is None else check_text(given)),
    ] = None
    limit: Annotated[int, Field(ge=1, le=MOST_LISTED)] = 50
