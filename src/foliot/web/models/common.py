"""What all answers share."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class ProblemShape(Shape):
    """A problem report (RFC 9457)."""

    model_config = ConfigDict(extra="forbid", title="Problem")
    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[FieldProblem] | None = Field(default=None, description="One entry per invalid field.")


class FieldProblem(Shape):
    where: str
    problem: str


class Page(Shape, Generic[T]):
    items: list[T]
    cursor: str | None = Field(description="Cursor of the next page; null on the last page.")


class Me(Shape):
    name: str
    scope: str
    tenant: str | None


class Done(Shape):
    """A subject and the action's outcome."""

    id: str
    outcome: str


ProblemShape.model_rebuild()
