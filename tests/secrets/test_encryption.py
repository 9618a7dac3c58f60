"""Keys, workers that lack them, and what was changed behind our back."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot import Context, Foliot, bootstrap
from foliot.domain import alerts, survey
from foliot.domain.ledger import Begun, EffectView
from foliot.domain.listing import RunPage
from foliot.domain.locking import DAMAGED, LOCKED, Place, is_shut, key_of
from foliot.domain.overview import ParkedRun
from foliot.domain.replay import DeadLetter
from foliot.domain.run import Claimed, Ending, Progress, Promise, RunView
from foliot.domain.schedule import Declaration, Schedule, ScheduleView
from foliot.domain.standing import ScheduleFacts, SchedulePage
from foliot.domain.state import Reason, State
from foliot.domain.store import OpenTransaction, Store
from foliot.errors import InvalidInput
from foliot.store.keyring import Keyring
from foliot.store.keys import PREFIX, new_key
from foliot.store.locked import LockedStore
from foliot.testing import World, virtual_time

KEY, OTHER = new_key(), new_key()
CANARY = "c4nary-4711"


# ---------------------------------------------------------------------------------------------------------------- keys


@given(some.binary(max_size=300), some.text(max_size=20))
def test_what_is_locked_opens_again_under_its_own_name_alone(data: bytes, about: str) -> None:
    ring = Keyring([KEY])
    shut = ring.lock(data, about)
    assert ring.unlock(shut, about) == data
    assert isinstance(json.loads(shut), str)  # whatever can hold a result can hold this
    assert ring.unlock(shut, about + "x").startswith(DAMAGED)
    assert ring.lock(data, about) != shut


@given(some.data())
def test_whatever_is_changed_in_it_is_found_out(data: some.DataObject) -> None:
    ring = Keyring([KEY])
    shut = ring.lock(b'{"a":1}', "x")
    at = data.draw(some.integers(len(LOCKED) + 9, len(shut) - 2))
    letter = data.draw(some.sampled_from(b"ABCabc019+/=!"))
    changed = shut[:at] + bytes([letter]) + shut[at + 1 :]
    assert ring.unlock(changed, "x") in (b'{"a":1}', DAMAGED + ring.names[0].encode() + b'"')
    assert (ring.unlock(changed, "x") == b'{"a":1}') == (changed == shut)
    assert ring.unlock(shut[: data.draw(some.integers(len(LOCKED) + 9, len(shut) - 3))], "x").startswith(DAMAGED)


def test_nor_is_there_a_second_way_to_write_it() -> None:
    """The last letter has bits over, which nothing would miss."""
    ring = Keyring([KEY])
    shut = ring.lock(b'{"a":1}', "x")
    assert shut.endswith(b'="'), "it is of a length that has bits over"
    others = {shut[:-3] + bytes([letter]) + shut[-2:] for letter in range(33, 127)} - {shut}
    assert [one for one in others if not ring.unlock(one, "x").startswith(DAMAGED)] == []


def test_a_key_that_is_not_here_leaves_the_value_as_it_is() -> None:
    shut = Keyring([KEY]).lock(b"1", "x")
    assert Keyring([OTHER]).unlock(shut, "x") == shut
    assert key_of(shut) == Keyring([KEY]).names[0]
    assert Keyring([OTHER, KEY]).unlock(shut, "x") == b"1"


WRONG: dict[str, Any] = {
    "empty": "",
    "a password": "hunter2",
    "only the beginning": PREFIX,
    "cut off": KEY[:-4],
    "too long": KEY + "AAAA",
    "no base64": PREFIX + "ä" * 43,
    "no text": 4711,
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_key_is_refused_and_not_repeated(wrong: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        Keyring([wrong])
    assert not (secret := str(wrong).removeprefix(PREFIX)) or secret not in str(refused.value)


def test_keys_come_from_the_app_or_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLIOT_ENCRYPTION_KEYS", f"{KEY}, {OTHER}")
    assert Foliot("sqlite:///:memory:").store.keys == Keyring([KEY, OTHER]).names
    assert Foliot("sqlite:///:memory:", encryption=OTHER).store.keys == Keyring([OTHER]).names
    assert Foliot("sqlite:///:memory:", encryption=[]).store.keys == ()


LOCKABLE = {Promise, Claimed, Ending, Progress, RunView, RunPage, DeadLetter, Declaration, ScheduleView, Begun}
LOCKABLE |= {EffectView, OpenTransaction, Schedule, ScheduleFacts, SchedulePage, ParkedRun}
WITHOUT = {"give_back"}
"""It names runs, and keeps nothing of what they carry."""


def _types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in typing.get_args(annotation):
        yield from _types(inner)


@pytest.mark.parametrize(("port", "around"), [(Store, LockedStore)])
def test_no_verb_that_carries_lockable_values_goes_around_the_locks(port: type, around: type) -> None:
    """A verb that is added to the port fails here until somebody has thought of it."""
    for name in dir(port):
        verb = inspect.getattr_static(port, name)
        if name.startswith("_") or not inspect.isfunction(verb) or name in WITHOUT:
            continue
        hints = typing.get_type_hints(verb, localns=vars(alerts) | vars(survey))
        carried = [
            kind for hint in hints.values() for kind in _types(hint) if isinstance(kind, type) and kind in LOCKABLE
        ]
        if carried:
            assert hasattr(around, name), f"{name} carries {carried[0].__name__}"


# ------------------------------------------------------------------------------------------------------ in a worker


class Shop:
    """An app whose handlers say what they were given."""

    def __init__(self, *keys: str) -> None:
        self.app = app = Foliot("sqlite:///:memory:", encryption=keys)
        self.seen: list[Any] = []

        @app.job(attempts=3)
        def charge(ctx: Context, card: str) -> dict[str, str]:
            self.seen.append((card, ctx.last_checkpoint))
            ctx.checkpoint({"card": card})
            with ctx.effect("pay", key=1, idempotent=True) as pay:
                if pay.needed:
                    pay.result = {"receipt": card}
                self.seen.append(pay.result)
            return {"receipt": card}

        self.charge = charge


@contextmanager
def world_of(shop: Shop) -> Iterator[World]:
    with virtual_time(shop.app) as world:
        yield world


def plain(world: World) -> Any:
    """The store itself, without its locks."""
    return cast(Any, world.store)._inner


def test_handlers_get_what_was_given_and_the_tables_have_none_of_it() -> None:
    shop = Shop(KEY)
    with world_of(shop) as world:
        shop.charge.using(key="a").now(card=CANARY)
        world.run_for("1m")
        assert shop.seen[0] == (CANARY, None)
        view = world.run("a#1")
        assert view.state is State.SUCCEEDED
        assert json.loads(view.result or b"") == {"receipt": CANARY}
        for place in (Place.HISTORY, Place.EFFECTS):
            [row] = world.call(plain(world).stored(place, 0, 10))
            assert all(is_shut(value) for value in (row.payload, row.result) if value is not None)


def test_a_worker_without_the_key_puts_runs_off_and_one_with_it_goes_on() -> None:
    shop = Shop(KEY)
    with world_of(shop) as world:
        shop.charge.using(key="a").now(card=CANARY)
        locked = world.store
        world.kill_worker()
        world.store = plain(world)
        world.add_worker()
        world.run_for("1h")
        view = world.call(locked.run("a#1"))
        assert (view.state, view.reason, view.spent) == (State.RETRYING, Reason.LOCKED, 0)
        assert "FOLIOT_ENCRYPTION_KEYS" in (view.detail or "")
        assert 4 < view.attempt < 20  # it waits longer each time, and is no loop
        assert shop.seen == []
        told = [line.text for line in world.call(shop.app.operate.story_async("a#1"))]
        assert any(
            "could not start" in text and "the run waits for a worker with the encryption key" in text for text in told
        )
        world.kill_worker()
        world.store = locked
        world.add_worker()
        world.run_for("10m")
        assert world.run("a#1").state is State.SUCCEEDED


def test_whoever_has_no_key_sees_that_it_is_encrypted() -> None:
    shop = Shop(KEY)
    with world_of(shop) as world:
        shop.charge.using(key="a").now(card=CANARY)
        world.run_for("1m")
        with shop.app.standing_on(plain(world), world.clock):
            view = world.call(shop.app.operate.run_async("a#1"))
        assert (view.payload, view.result) == (b'"[encrypted]"', b'"[encrypted]"')
        assert [one.result for one in view.effects] == [b'"[encrypted]"']


@pytest.mark.parametrize(
    "damage",
    [lambda value: value[:-9] + b'"', lambda value: value[:40] + b"AAAA" + value[44:]],
    ids=["cut off", "changed"],
)
def test_what_was_changed_behind_our_back_is_a_dead_letter_that_says_so(damage: Any) -> None:
    shop = Shop(KEY)
    with world_of(shop) as world:
        shop.charge.using(key="a").delay("1m", card=CANARY)
        [row] = world.call(plain(world).stored(Place.RUNS, 0, 10))
        world.call(plain(world).store_anew(Place.RUNS, [(row, row._replace(payload=damage(row.payload)))]))
        world.run_for("1h")
        view = world.run("a#1")
        assert (view.state, view.reason, view.attempt) == (State.DEAD, Reason.BAD_PAYLOAD, 1)
        assert "changed, truncated" in (view.detail or "")
        assert shop.seen == []


def test_keys_and_templates_read_arguments_before_they_are_locked() -> None:
    app = Foliot("sqlite:///:memory:", encryption=[KEY])

    @app.job(concurrency_key="account:{account}")
    def settle(account: int, note: str) -> None: ...

    with virtual_time(app) as world:
        kept = settle.now(account=7, note=CANARY)
        options = world.run(kept.id).options
        assert b"account:7" in (options or b"")


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "foliot.store.keyring")
    monkeypatch.delitem(sys.modules, "foliot.store.locked")
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(InvalidInput, match=r'pip install "foliot\[crypto\]"'):
        bootstrap.make_store("sqlite:///:memory:", keys=[KEY])
