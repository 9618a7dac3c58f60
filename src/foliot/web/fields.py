"""What requests are made of: the pieces that several of them share, each read once and strictly."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from foliot.domain.instant import Instant, parse_rfc3339
from foliot.web.routing import check_text

MOST_LISTED = 1_000
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


class Body(BaseModel):
    """What is sent. A name that is not known is a mistake, and told."""

    model_config = ConfigDict(extra="forbid")


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
Length = Annotated[str, Field(min_length=1, max_length=100, examples=["90s", "10m", "1h30m"])]
Rate = Annotated[str, Field(min_length=1, max_length=50, examples=["10/s", "500/h"])]
Reason = Annotated[
    str,
    Field(
        min_length=1,
        max_length=2_000,
        description="Why; the audit log keeps it, with the token's name.",
        examples=["the bank confirmed it"],
    ),
    AfterValidator(check_text),
]
Key = Annotated[str, AfterValidator(_decoded)]
ReasonQuery = Annotated[
    str,
    Query(min_length=1, max_length=2_000, description="Why; the audit log keeps it, with the token's name."),
    AfterValidator(check_text),
]


def named(what: str, example: str) -> Any:
    """An id in a path."""
    return Path(
        min_length=1, max_length=600, description=f"{what}, percent-encoded: %2F for a slash.", examples=[example]
    )


ScheduleId = Annotated[Key, named("The schedule's id", "daily-revenue")]
RunId = Annotated[Key, named("The run's id", "daily-revenue@2026-04-03T02:00:00Z")]
JobName = Annotated[Key, named("The job's name", "send_reminder")]
Number = Annotated[int, Path(ge=1, le=(1 << 31) - 1)]


DryRun = Annotated[bool, Field(description="Change nothing; tell what would be done.")]


class Act(Body):
    """An action of an operator."""

    reason: Reason


class Paged(Body):
    """What lists take."""

    cursor: Annotated[
        str | None,
        Field(max_length=700, description="Where the last page ended: its `cursor`."),
        AfterValidator(lambda given: given if given is None else check_text(given)),
    ] = None
    limit: Annotated[int, Field(ge=1, le=MOST_LISTED)] = 50
