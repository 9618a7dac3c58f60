"""Scopes, and the bounds of tokens that take runs."""

from __future__ import annotations

import re

import pytest

from foliot.domain.access import WORK_PREFIX, Scope, Token, WorkBound, allows, check_bound, is_token
from foliot.errors import InvalidInput, NotAllowed


def test_no_scope_but_work_includes_work() -> None:
    assert [scope for scope in Scope if allows(scope, Scope.WORK)] == [Scope.WORK]
    assert not any(allows(Scope.WORK, scope) for scope in (Scope.READ, Scope.OPERATE, Scope.ADMIN))


@pytest.mark.parametrize(
    ("bound", "covered"),
    [
        (WorkBound(jobs=("resize",)), {("resize", "default", None), ("resize", "gpu", None)}),
        (WorkBound(queues=("gpu",)), {("resize", "gpu", None), ("crop", "gpu", None)}),
        (WorkBound(("resize",), ("gpu",)), {("resize", "gpu", None)}),
        (WorkBound(("resize",), ("gpu",), "acme"), {("resize", "gpu", "acme")}),
        (WorkBound(("resize",), ("gpu",), all_tenants=True), {("resize", "gpu", None), ("resize", "gpu", "acme")}),
    ],
)
def test_a_bound_covers_its_jobs_queues_and_tenant(bound: WorkBound, covered: set[object]) -> None:
    runs = [
        (job, queue, tenant) for job in ("resize", "crop") for queue in ("default", "gpu") for tenant in (None, "acme")
    ]
    assert {run for run in runs if bound.covers(*run)} == covered


@pytest.mark.parametrize(
    ("bound", "told"),
    [
        (WorkBound(), "a token of scope work needs jobs or queues; name them"),
        (WorkBound(tenant="acme"), "a token of scope work needs jobs or queues; name them"),
        (WorkBound(("resize",), tenant="acme", all_tenants=True), "give one of them"),
        (WorkBound(tuple(map(str, range(101)))), "at most 100"),
    ],
)
def test_a_bound_that_says_too_little_or_too_much_is_refused(bound: WorkBound, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        check_bound(Scope.WORK, bound)


def test_only_a_token_of_scope_work_has_a_bound() -> None:
    with pytest.raises(InvalidInput, match="this one has operate"):
        check_bound(Scope.OPERATE, WorkBound(jobs=("resize",)))
    check_bound(Scope.OPERATE, WorkBound(tenant="acme"))
    named = {"made_at": 0, "made_by": "ana", "jobs": ("resize",)}
    assert Token(1, "ci", Scope.OPERATE, None, **named).bound is None  # type: ignore[arg-type]
    assert Token(1, "ci", Scope.WORK, "acme", **named).bound == WorkBound(("resize",), tenant="acme")  # type: ignore[arg-type]
    assert Token(1, "ci", Scope.WORK, None, 0, "ana").bound is None, "older releases made such tokens"


@pytest.mark.parametrize(
    ("job", "queues", "told"),
    [
        (("crop", "gpu", {}), (), "job 'crop'"),
        (("resize", "default", {}), (), "job 'resize' has the queue 'default'"),
        (("resize", "gpu", {}), ("gpu", "cpu"), "queue 'cpu'"),
        (("resize", "gpu", {"ping": "http://10.0.0.1", "attempts": 3}), (), "settings ping"),
    ],
)
def test_a_worker_registers_nothing_outside_its_bound(job: tuple[str, str, object], queues: object, told: str) -> None:
    bound = WorkBound(("resize",), ("gpu",), "acme")
    bound.check([("resize", "gpu", {"attempts": 3})], ["gpu"])
    with pytest.raises(NotAllowed, match=told):
        bound.check([job], queues)  # type: ignore[list-item, arg-type]


@pytest.mark.parametrize(
    ("bound", "told"),
    [
        (
            WorkBound(("resize",)),
            "settings labels, ping: they affect other tenants, the token is restricted to runs without a tenant",
        ),
        (
            WorkBound(("resize",), tenant="acme"),
            "settings labels, ping: they affect other tenants, the token is restricted to tenant 'acme'",
        ),
    ],
)
def test_only_a_token_for_all_tenants_sets_what_reaches_beyond_one(bound: WorkBound, told: str) -> None:
    job = ("resize", "default", {"ping": "https://example.com", "labels": ["gpu"], "attempts": 3})
    with pytest.raises(NotAllowed, match=told):
        bound.check([job], ())
    WorkBound(("resize",), all_tenants=True).check([job], ())


def test_a_release_that_knows_no_bounds_does_not_take_a_workers_token_for_one() -> None:
    text = WORK_PREFIX + "a" * 43
    assert is_token(text)
    assert is_token("foliot_" + "a" * 43)
    assert not re.fullmatch("foliot_[A-Za-z0-9_-]{43}", text)
