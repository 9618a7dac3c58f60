"""The first mistakes of a new user: each refusal names what is wrong and what to write."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from foliot import Foliot, every
from foliot.bootstrap.stores import make_store
from foliot.errors import InvalidInput, StoreError
from foliot.store.postgres.address import address

NOBODY = 65_534


@dataclass
class Booking:
    starts: datetime
    others: dict[str, list[datetime]]


@pytest.fixture
def app() -> Foliot:
    return Foliot("sqlite:///:memory:")


# ----------------------------------------------------------------------------------------------------------- the store


@pytest.mark.parametrize("url", ["sqlite:///x.db?conections=5", "sqlite:///x.db?migrate=maybe"])
def test_a_word_in_the_url_of_a_file_is_refused_with_those_that_there_are(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"in the store's URL is unknown; a file takes \?migrate=auto or"):
        make_store(url)


@pytest.mark.parametrize(
    ("word", "meant"),
    [("conections", "connections"), ("pooller", "pooler"), ("sslmod", "sslmode"), ("listn", "listen")],
)
def test_a_misspelt_word_in_the_url_of_a_server_is_refused_with_the_right_one(word: str, meant: str) -> None:
    with pytest.raises(InvalidInput, match=f"{word}= in the store's URL is not known; did you mean {meant}=\\?"):
        make_store(f"postgresql://ada@localhost/shop?{word}=5")


def test_settings_of_the_server_reach_it() -> None:
    given = "application_name=shop&search_path=a&work_mem=64MB"
    assert address(f"postgresql://ada@localhost/shop?{given}").dsn.endswith(given)


@contextmanager
def as_another_user() -> Iterator[None]:
    """Root may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below pytest's own, which only their owner may enter."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o777)
        yield Path(made)
        Path(made).chmod(0o777)


async def opening(file: Path) -> str:
    store = make_store(f"sqlite:///{file}")
    with pytest.raises(StoreError) as refused:
        await store.open()
    return str(refused.value)


async def test_a_store_that_may_not_be_written_names_the_permission(folder: Path) -> None:
    file = folder / "store.db"
    with as_another_user():
        store = make_store(f"sqlite:///{file}")
        await store.open()
        await store.close()
        file.chmod(0o400)
        said = await opening(file)
        assert f"may not write to the file (-r--------, of user {os.geteuid()}); allow it with chmod u+w" in said
        file.chmod(0o600)
    os.chmod(folder, 0o555)
    with as_another_user():
        said = await opening(file)
    assert f"may not write to its directory {folder} (dr-xr-xr-x, of user {os.geteuid()})" in said


async def test_a_directory_that_is_made_for_a_store_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        store = make_store(f"sqlite:///{tmp_path}/shpo/store.db")
        await store.open()
        await store.close()
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(f"created directory {tmp_path}/shpo for the store")


# ------------------------------------------------------------------------------------------------------------ promises


def test_a_misspelt_option_is_refused_with_the_right_one(app: Foliot) -> None:
    @app.job
    def remind(class_id: int) -> None: ...

    for wrong, right in (("kee", "key"), ("tennant", "tenant"), ("prioritty", "priority"), ("atempts", "attempts")):
        with pytest.raises(InvalidInput, match=f"there is no setting {wrong!r}; did you mean {right!r}"):
            remind.using(**{wrong: "x"})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="there is no setting 'runbok'; did you mean 'runbook'"):
        app.job(runbok="x")(lambda: None)
    for wrong, right in (("arg", "args"), ("runbok", "runbook")):
        with pytest.raises(InvalidInput, match=f"did you mean {right!r}"):
            app.schedule("s", remind, every("1h"), **{wrong: "x"})  # type: ignore[arg-type]


def test_a_duration_is_no_rule(app: Foliot) -> None:
    @app.job
    def poll() -> None: ...

    with pytest.raises(InvalidInput, match=r"'7s' is not a rule; use every\('7s'\)"):
        app.schedule("poll", poll, "7s")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {"when": datetime(2030, 1, 1)},
        {"when": "2030-01-01T00:00:00"},
        {"times": [datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 1)]},
        {"booking": Booking(datetime(2030, 1, 1), {})},
        {"booking": Booking(datetime(2030, 1, 1, tzinfo=UTC), {"b": [datetime(2030, 1, 1)]})},
    ],
)
def test_a_datetime_without_a_zone_is_refused_inside_arguments_too(app: Foliot, given: dict[str, Any]) -> None:
    @app.job
    def book(
        when: datetime | None = None, times: list[datetime] | None = None, booking: Booking | None = None
    ) -> None: ...

    with pytest.raises(InvalidInput, match=r"has no time zone; add one: when\.replace"):
        book.handler.encode((), given)


def test_an_aware_datetime_is_an_argument(app: Foliot) -> None:
    @app.job
    def book(when: datetime, booking: Booking) -> None: ...

    aware = datetime(2030, 1, 1, tzinfo=UTC)
    book.handler.encode((), {"when": aware, "booking": Booking(aware, {"b": [aware]})})


def test_a_stored_payload_with_a_datetime_without_a_zone_still_runs(app: Foliot) -> None:
    @app.job
    def book(when: datetime) -> None: ...

    assert book.handler.given(b'{"when":"2030-01-01T00:00:00"}') == {"when": datetime(2030, 1, 1)}


def test_a_promise_says_what_became_of_it(app: Foliot) -> None:
    @app.job
    def remind(class_id: int) -> None: ...

    starts = datetime(2030, 1, 1, 9, tzinfo=UTC)
    promise = remind.using(key="class:7")
    assert str(promise.at(starts, class_id=7)) == "class:7#1 was made: scheduled, due at 2030-01-01T09:00:00Z"
    assert str(promise.at(starts, class_id=7)) == (
        "class:7#1 exists already and has this key: scheduled, due at 2030-01-01T09:00:00Z"
    )
