"""What a job calls secret is known before any worker has been there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foliot import Foliot, every
from foliot.errors import InvalidInput
from foliot.store.keys import new_key
from foliot.testing import virtual_time


def test_a_promise_to_a_job_that_no_worker_knows_shows_no_secret() -> None:
    app = Foliot("sqlite:///:memory:", secret=("pet",))

    @app.job
    def first() -> None: ...

    with virtual_time(app) as world:
        first.using(key="first").now()
        assert (
            len(world.call(app.operate.runs_async())) == 1
        )  # what jobs call secret is known from here on, for a while

        # Registered after the workers were: they have no card of it.
        @app.job(secret=("who.name",))
        def greet(who: dict[str, str], pet: str) -> None: ...

        greet.using(key="a").delay("1h", who={"name": "c4nary", "town": "Lyon"}, pet="c4nary")
        view = world.call(app.operate.run_async("a#1"))
        assert view.payload == b'{"who":{"name":"[redacted]","town":"Lyon"},"pet":"[redacted]"}'


def test_arguments_of_a_schedule_are_hidden_before_anybody_works() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job(secret=("who",))
    def greet(who: str) -> None: ...

    app.schedule("greeting", greet, every("1h"), args={"who": "c4nary"})
    with app:
        app.apply()
        shown = app.portal.call(lambda: app.operate.schedule_async("greeting"), "schedule_async")
    assert shown.schedule.payload == b'{"who":"[redacted]"}'


@pytest.mark.parametrize("keys", [(), (new_key(),)], ids=["plain", "locked"])
def test_an_edit_keeps_the_secrets_that_it_does_not_show(keys: tuple[str, ...]) -> None:
    app = Foliot("sqlite:///:memory:", encryption=keys)

    @app.job
    def sign_in(password: str, day: str) -> None: ...

    app.schedule("hourly", sign_in, every("1h"), args={"password": "c4nary", "day": "monday"})
    with virtual_time(app) as world:
        world.run_for("1m")

        def edit(revision: int, **given: Any) -> Any:
            made = app.operate.edit_schedule_async("hourly", given, revision=revision, reason="why", actor="ana")
            return world.call(made)

        edit(1, owner="ben")
        told = edit(2, args={"password": "c4nary", "day": "friday"})
        assert "c4nary" not in repr(told)
        assert [change.field for change in told.fields] == ["args"]
        stored = world.call(world.store.schedule("hourly")).schedule
        assert json.loads(stored.payload) == {"password": "c4nary", "day": "friday"}
        assert "c4nary" not in repr(world.call(app.operate.standing_async("hourly")))
        assert "c4nary" not in repr(world.call(app.operate.schedule_page_async()))
        with pytest.raises(InvalidInput, match="redacted"):
            edit(3, args={"password": "[redacted]", "day": "sunday"})
