"""What the proxy understands of a conversation, where no server is needed to show it."""

from __future__ import annotations

import pytest

from tests.servers.wire import Conversation, verbs, writes


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("-- COMMIT;\nSELECT 1", ("SELECT",)),
        ("/* ; */ select 'a;b', \"c;d\", E'it\\';s'; commit", ("SELECT", "COMMIT")),
        ("CREATE FUNCTION f() AS $f$ BEGIN; COMMIT; END $f$; SELECT $1", ("CREATE", "SELECT")),
        ("CREATE FUNCTION f() BEGIN ATOMIC SELECT 1; END; ", ("CREATE", "END")),
        ("END", ("COMMIT",)),
        (
            "START TRANSACTION; ABORT; ROLLBACK TO x; ROLLBACK WORK TO x;",
            ("BEGIN", "ROLLBACK", "SAVEPOINT", "SAVEPOINT"),
        ),
        ("", ()),
    ],
)
def test_statements_are_told_apart_by_their_verbs(sql: str, expected: tuple[str, ...]) -> None:
    assert verbs(sql) == expected


def test_a_commit_sent_ahead_of_bad_news_is_no_commit() -> None:
    def message(kind: bytes, body: bytes) -> bytes:
        return kind + (len(body) + 4).to_bytes(4, "big") + body

    talk = Conversation()
    talk.client_says(message(b"Q", b"BEGIN; SELECT 1 / 0\0"))
    commit = talk.client_says(message(b"Q", b"COMMIT\0"))
    for answer in [(b"E", b"\0"), (b"Z", b"E"), (b"C", b"ROLLBACK\0"), (b"Z", b"I")]:
        talk.server_says(message(*answer))
    assert commit is not None
    assert commit.unit.done
    assert not commit.unit.succeeded


def test_a_text_that_only_speaks_of_writing_does_not_write() -> None:
    assert writes("WITH gone AS (DELETE FROM note RETURNING id) SELECT * FROM gone")
    assert not writes("SELECT 'INSERT INTO note' -- UPDATE")
