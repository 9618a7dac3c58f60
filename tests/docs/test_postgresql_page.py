"""The page about PostgreSQL leaves nothing out that can be said or is found."""

from __future__ import annotations

from foliot.cli.migrate import _shape
from foliot.cli.server import server_checks
from foliot.domain.store import Schema
from foliot.store.postgres import address
from tests.cli.test_postgres import HEALTH
from tests.docs import pages
from tests.docs.pages import DOCS

PAGE = DOCS / "postgresql.md"


def test_every_option_of_the_url_is_documented() -> None:
    told = pages.rows(pages.section(PAGE, "The URL"))
    assert {*address._OURS, address._FROM_LIBPQ} <= told.keys()
    for option, values in address._OURS.items():
        assert [value for value in values or () if f"`{value}`" not in " ".join(told[option])] == []


def test_every_check_of_a_server_is_documented() -> None:
    told = pages.rows(pages.section(PAGE, "The doctor"))
    assert [name for name, _, _ in server_checks(HEALTH) if name not in told] == []


def test_every_field_of_a_migration_is_documented() -> None:
    told = pages.rows(pages.section(DOCS / "cli.md", "What migrate did"))
    assert sorted(told) == sorted([*_shape(Schema(0, 1, 0, ()), "", done=True)])
