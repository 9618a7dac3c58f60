"""What a store's URL says, and what people are shown of it."""

from __future__ import annotations

import pytest

from foliot.errors import InvalidInput
from foliot.store.postgres import PostgresStore
from foliot.store.postgres.address import address


@pytest.mark.parametrize(
    ("url", "dsn", "shown"),
    [
        ("postgresql://ana:secret@db/school", "postgresql://ana:secret@db/school", "postgresql://ana@db/school"),
        ("postgres://db/school", "postgresql://db/school", "postgresql://db/school"),
        ("postgresql:///school", "postgresql:///school", "postgresql:///school"),
        ("postgresql://a:1,b:2/school", "postgresql://a:1,b:2/school", "postgresql://a:1,b:2/school"),
        ("postgresql:///s?host=/run/pg&pooler=none", "postgresql:///s?host=%2Frun%2Fpg", "postgresql:///s"),
    ],
)
def test_the_driver_gets_what_is_its_and_people_see_no_password(url: str, dsn: str, shown: str) -> None:
    found = address(url)
    assert (found.dsn, found.shown) == (dsn, shown)


def test_words_of_ours_say_how_the_server_is_used() -> None:
    found = address("postgresql://db/s?pooler=transaction&listen=postgresql://past/s&migrate=never&connections=4")
    assert (found.dsn, found.pooler, found.listen) == ("postgresql://db/s", True, "postgresql://past/s")
    assert (found.migrates, found.connections, found.session) == (False, 4, "read-write")


def test_a_pooler_cannot_be_listened_through_and_a_server_can() -> None:
    assert address("postgresql://db/s?pooler=transaction").listen is None
    assert address("postgresql://db/s").listen == "postgresql://db/s"


def test_which_of_several_hosts_will_do_is_said_as_to_libpq() -> None:
    found = address("postgresql://a,b/s?target_session_attrs=any")
    assert (found.dsn, found.session) == ("postgresql://a,b/s", "any")


@pytest.mark.parametrize("words", ["pooler=session", "migrate=maybe", "connections=1", "connections=many"])
def test_words_that_mean_nothing_are_refused_by_name(words: str) -> None:
    with pytest.raises(InvalidInput, match=words.partition("=")[0]):
        address(f"postgresql://db/s?{words}")


@pytest.mark.parametrize("word", ["no_such_setting=5", "work_mem=soon", "shared_buffers=1GB"])
async def test_a_setting_that_the_server_refuses_is_named(database: str, word: str) -> None:
    store = PostgresStore(f"{database}{'&' if '?' in database else '?'}{word}")
    with pytest.raises(InvalidInput, match=r"refuses a setting in the store's URL: .*" + word.partition("=")[0]):
        await store.open()
    await store.close()
