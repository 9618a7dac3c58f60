"""Canaries in every stored field, and nowhere that anybody looks: commands, accounts, logs; nor in a locked file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from foliot import Foliot
from foliot.store.keys import new_key
from tests.cli.support import process, run, run_json, until

VAULT = Path(__file__).with_name("vault.py")
CANARY = "c4nary"
ENDED = {"order#1": "verified", "failing#1": "dead", "apart#1": "dead"}
WHY = ("--reason", "a test", "--yes")
COMMANDS = (
    "runs list",
    "runs show order#1",
    "runs show failing#1",
    "runs show apart#1",
    "runs show later#1",
    "schedules list",
    "schedules show polling",
    "jobs list",
    "jobs show sell",
    "dead list",
    "dead replay --dry-run",
    "report sell",
    "report fail",
    "audit list",
    "members list",
    "limits list",
    "tenants",
    "load",
    "workers list",
    "queues list",
    "backfill list",
    "keys list",
    "keys rotate --dry-run --history",
    "doctor",
)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A store in which the vault has lived under `foliot up`, with a key; the key, and all that was printed."""
    folder, key = tmp_path_factory.mktemp("vault"), new_key()
    (folder / "foliot.toml").write_text(f'encryption_keys = "{key}"\nstore = "sqlite:///{folder}/foliot.db"\n')
    shutil.copy(VAULT, folder / "vault.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOLIOT_ENCRYPTION_KEYS", key)
        patch.setenv("FOLIOT_STORE", f"sqlite:///{folder}/foliot.db")
        patch.syspath_prepend(folder)
        import vault  # type: ignore[import-not-found]

        app: Foliot = vault.app
        vault.promise_all()
        app.close()
        with process(folder, "up", "--app", "vault.py") as up:
            until(lambda: _are_over(folder), "all of it has ended")
            assert up.end() == 0
            told = up.out.read_text() + up.err.read_text()
    assert "order#1" in told
    return folder, key, told


def _are_over(folder: Path) -> bool:
    found = {one["id"]: one["state"] for one in run_json("runs", "list", "--store", f"sqlite:///{folder}/foliot.db")}
    return found | ENDED == found


@pytest.fixture(params=["with the key", "without it"])
def store(lived: tuple[Path, str, str], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    folder, key, _ = lived
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("FOLIOT_STORE", "")
    monkeypatch.setenv("FOLIOT_ENCRYPTION_KEYS", key if request.param == "with the key" else "")
    return f"sqlite:///{folder}/foliot.db"


def test_what_processes_print_has_no_secret(lived: tuple[Path, str, str]) -> None:
    _, key, told = lived
    assert CANARY not in told
    assert key not in told


def test_no_command_shows_a_secret(store: str, lived: tuple[Path, str, str]) -> None:
    for command in COMMANDS:
        for form in ((), ("--json",)):
            result = run(*command.split(), "--store", store, *form)
            assert result.exit_code in (0, 1), (command, result.output)
            assert CANARY not in result.output, command
            assert lived[1] not in result.output, command
            assert isinstance(result.exception, SystemExit | None), command


def test_what_is_no_secret_is_still_told(lived: tuple[Path, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, key, _ = lived
    monkeypatch.setenv("FOLIOT_ENCRYPTION_KEYS", key)
    told = run_json("runs", "show", "order#1", "--store", f"sqlite:///{folder}/foliot.db")
    assert told["arguments"]["customer"] == {"name": "Ana", "note": "[redacted]", "pet-name": "[redacted]"}
    assert told["arguments"]["link"] == "https://ana:[redacted]@example.com/"
    assert told["result"] == {"receipt": "[redacted]", "access_token": "[redacted]", "note": "[redacted]"}
    assert told["detail"] == "1 of 1 order of [redacted]"
    assert told["attempts"][0]["error"].startswith("ValueError: {'name': 'Ana', 'note': '[redacted]'")
    monkeypatch.setenv("FOLIOT_ENCRYPTION_KEYS", "")
    told = run_json("runs", "show", "order#1", "--store", f"sqlite:///{folder}/foliot.db")
    assert (told["arguments"], told["result"]) == ("[encrypted]", "[encrypted]")


def test_the_files_of_a_store_with_locks_have_no_secret(lived: tuple[Path, str, str]) -> None:
    for file in lived[0].glob("foliot.db*"):
        assert CANARY.encode() not in file.read_bytes(), file.name


def test_the_doctor_says_whether_what_is_locked_can_be_read(store: str) -> None:
    checks = {one["name"]: one for one in run_json("doctor", "--store", store)["checks"]}
    assert checks["encryption"]["verdict"] in ("ok", "warning")


def test_rotation_is_written_down_and_the_old_key_is_no_longer_needed(
    lived: tuple[Path, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, old, _ = lived
    for file in folder.glob("foliot.db*"):
        shutil.copy(file, tmp_path)
    store, newer = f"sqlite:///{tmp_path}/foliot.db", new_key()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOLIOT_STORE", "")
    monkeypatch.setenv("FOLIOT_ENCRYPTION_KEYS", f"{newer},{old}")
    told = {one["place"]: one for one in run_json("keys", "rotate", "--history", *WHY, "--store", store)}
    assert told["history"]["relocked"] >= 1
    assert told["runs"]["relocked"] >= 3
    assert not any(one["left"] or one["shut"] for one in told.values())
    monkeypatch.setenv("FOLIOT_ENCRYPTION_KEYS", newer)
    shown = run_json("runs", "show", "order#1", "--store", store)
    assert shown["arguments"]["customer"]["name"] == "Ana"
    [row] = [one for one in run_json("audit", "list", "--store", store) if one["action"] == "rotate_keys"]
    assert row["note"] == "a test"
