"""`foliot audit`, on a store in which people have acted."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from tests.cli.support import make_app, refused, run, run_json

WHY = ("--reason", "the bank asked", "--actor", "ana")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which somebody limited, paused and resumed something."""
    file = tmp_path_factory.mktemp("acted") / "foliot.db"
    with make_app(f"sqlite:///{file}") as app:
        app.apply()
        app.operate.limit("job:pay", concurrency=5, reason="the bank asked", actor="ana")
        app.operate.pause("greetings", reason="the bank asked", actor="ana")
        app.operate.resume("greetings", reason="done", actor="bob")
    return file


@pytest.fixture
def acted(done: Path, tmp_path: Path) -> str:
    shutil.copy(done, tmp_path / "acted.db")
    return f"sqlite:///{tmp_path}/acted.db"


def _tamper(store: str, statement: str) -> None:
    connection = apsw.Connection(store.removeprefix("sqlite:///"))
    for name in ("audit_stays", "audit_remains", "seal_stays", "seal_remains"):
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(statement)
    connection.close()


def test_the_log_is_listed_newest_first_by_filters_and_page_by_page(acted: str) -> None:
    [row] = run_json("audit", "list", "--actor", "bob", "--store", acted)
    assert (row["action"], row["subject"], row["note"], row["position"]) == ("resume", "greetings", "done", None)
    assert [one["action"] for one in run_json("audit", "list", "--text", "BANK", "--store", acted)] == [
        "pause",
        "limit",
    ]
    [first] = run_json("audit", "list", "--subject", "greetings", "--limit", "1", "--store", acted)
    rest = run_json("audit", "list", "--subject", "greetings", "--before", first["cursor"], "--store", acted)
    assert [one["action"] for one in rest] == ["pause", "apply"]
    told = run("audit", "list", "--action", "limit", "--store", acted).stdout.splitlines()
    assert told[0].split() == ["row", "time", "actor", "action", "subject", "reason", "seal"]
    assert "job:pay" in told[1]


def test_a_log_that_nobody_touched_is_sound(acted: str) -> None:
    report = run_json("audit", "verify", "--store", acted)
    assert (report["ok"], report["problem"], report["anchors"], report["rows"]) == (True, None, 0, 5)
    told = run("audit", "verify", "--store", acted).stdout
    assert "no anchor given" in told


def test_a_row_that_was_changed_is_named_and_the_command_fails(acted: str) -> None:
    run_json("audit", "verify", "--store", acted)
    _tamper(acted, "UPDATE audit SET actor = 'bob' WHERE action = 'limit'")
    told = run("audit", "verify", "--store", acted)
    assert told.exit_code == 1
    assert "edited at seal 3: row 3 does not match its seal" in told.stdout


def test_anchors_prove_what_was_before_them_and_find_what_was_written_anew(acted: str, tmp_path: Path) -> None:
    file = tmp_path / "anchors.txt"
    first = run_json("audit", "anchor", file, "--store", acted)
    assert file.read_text("utf-8") == f"{first['at']} {first['position']} {first['hash']}\n"
    run("limits", "drop", "job:pay", *WHY, "--store", acted)
    assert "appended the anchor of seal" in run("audit", "anchor", file, "--store", acted).stdout
    assert len(file.read_text("utf-8").splitlines()) == 2
    report = run_json("audit", "verify", "--anchor", file, "--store", acted)
    assert (report["anchors"], report["proven"]["position"]) == (2, first["position"] + 1)
    # Whoever has the whole store in his hands makes a sound chain of what he likes better.
    _tamper(acted, "UPDATE audit SET actor = 'bob' WHERE action = 'limit'; INSERT INTO unsealed SELECT audit FROM seal")
    _reseal(acted)
    assert run_json("audit", "verify", "--store", acted)["ok"]
    told = run("audit", "verify", "--anchor", file, "--store", acted)
    assert told.exit_code == 1
    assert "history up to there was rewritten" in told.stdout


def _reseal(store: str) -> None:
    connection = apsw.Connection(store.removeprefix("sqlite:///"))
    connection.execute("DELETE FROM seal")
    connection.close()


def test_the_file_that_schedulers_write_to_is_looked_at_by_itself(
    acted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foliot.toml").write_text('audit_anchor = "vault.txt"\n', "utf-8")
    run("audit", "anchor", "vault.txt", "--store", acted)
    assert run_json("audit", "verify", "--store", acted)["anchors"] == 1
    monkeypatch.setenv("FOLIOT_AUDIT_ANCHOR", "elsewhere.txt")
    assert run_json("audit", "verify", "--store", acted)["anchors"] == 0


def test_an_anchor_is_printed_where_no_file_is_wanted(acted: str) -> None:
    at, position, digest = run("audit", "anchor", "-", "--store", acted).stdout.split()
    assert (at[-1], int(position) > 0, len(digest)) == ("Z", True, 64)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("list", "--since", "yesterday"), 2, "--since"),
        (("list", "--before", "x"), 2, "is not a cursor"),
        (("verify", "--anchor", "nowhere.txt"), 1, "nowhere.txt cannot be read"),
        (("anchor", "no/such/folder/file"), 1, "cannot be written"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(acted: str, words: tuple[str, ...], code: int, told: str) -> None:
    assert told in refused(run("audit", *words, "--store", acted), code)


def test_a_file_that_holds_no_anchors_is_refused_with_its_line(acted: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("# mine\nremember the milk\n", "utf-8")
    told = refused(run("audit", "verify", "--anchor", "notes.txt", "--store", acted), 1)
    assert "notes.txt: line 2, 'remember the milk', is not an anchor" in told


def test_verify_reports_a_row_that_was_inserted_without_the_key(acted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key = run("keys", "new").stdout.strip()
    monkeypatch.setenv("FOLIOT_AUDIT_KEYS", key)
    run("schedules", "pause", "greetings", *WHY, "--store", acted)
    assert run_json("audit", "list", "--limit", "1", "--store", acted)[0]["signed"] == "yes"
    report = run_json("audit", "verify", "--store", acted)
    assert (report["ok"], report["signed"], report["unsigned"], report["signed_from"]) == (True, 1, 0, 6)
    assert report["warning"].startswith("rows before seal 6 are not signed with a key of this process")
    _tamper(acted, "INSERT INTO audit (at, actor, action, subject, note) VALUES (1, 'ana', 'limit', 'job:z', 'agreed')")
    found = run("audit", "verify", "--json", "--store", acted)
    assert found.exit_code == 1
    assert '"problem": "unsigned"' in found.stdout
    monkeypatch.delenv("FOLIOT_AUDIT_KEYS")
    told = refused(run("schedules", "resume", "greetings", *WHY, "--store", acted), 1)
    assert "set FOLIOT_AUDIT_KEYS" in told


def test_a_wrong_audit_key_is_refused_and_not_repeated(acted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLIOT_AUDIT_KEYS", "foliot_key_short")
    told = refused(run("audit", "verify", "--store", acted), 1)
    assert "an audit key has 32 bytes" in told
    assert "short" not in told


def test_verify_says_that_rows_without_signatures_are_not_authenticated(
    acted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anyone who can write to the store can add such rows, and no check finds them."""
    _tamper(acted, "INSERT INTO audit (at, actor, action, subject, note) VALUES (1, 'ana', 'limit', 'job:z', 'agreed')")
    shown = run("audit", "verify", "--store", acted)
    assert shown.exit_code == 0
    assert "rows are not signed: a user who can insert into the tables can" in " ".join(shown.stdout.split())
    assert "set FOLIOT_AUDIT_KEYS" in " ".join(shown.stdout.split())
    assert "set FOLIOT_AUDIT_KEYS" in run_json("audit", "verify", "--store", acted)["warning"]
    monkeypatch.setenv("FOLIOT_AUDIT_KEYS", run("keys", "new").stdout.strip())
    unsigned = run("audit", "verify", "--json", "--store", acted)
    assert unsigned.exit_code == 1
    assert "no row is signed" in unsigned.stdout
