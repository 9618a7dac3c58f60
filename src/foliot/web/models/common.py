"""What all answers share."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class ProblemShape(Shape):
    """What went wrong, as RFC 9457 has it."""

    model_config = ConfigDict(extra="forbid", title="Problem")
    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[FieldProblem] | None = Field(default=None, description="One for each field that cannot be used.")


class FieldProblem(Shape):
    where: str
    problem: str


class Page(Shape, Generic[T]):
    items: list[T]
    cursor: str | None = Field(description="Where the next page begins; null when there is none.")


class Me(Shape):
    name: str
    scope: str
    tenant: str | None


class Done(Shape):
    """A thing, and what was done with it."""

    id: str
    outcome: str


ProblemShape.model_rebuild()
