"""`foliot import crontab`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foliot.cli import foliot as command
from foliot.cli.imports import host_zone, kind_of
from tests.cli.support import refused, run, run_json

CRONTAB = """\
SHELL=/bin/sh
MAILTO=ops@example.org

*/15 * * * * /usr/local/bin/backup.sh --full
30 2 * * * mail joe%Hi
"""
BACKUP, MAIL = "cron-backup-sh-full", "cron-mail-joe"


@pytest.fixture
def crontab(tmp_path: Path) -> Path:
    file = tmp_path / "crontab"
    file.write_text(CRONTAB, "utf-8")
    return file


def test_a_dry_run_tells_each_line_needs_no_store_and_makes_none(crontab: Path, tmp_path: Path):
    result = run("import", "crontab", crontab, "--dry-run", "--tz", "Europe/Paris")
    assert result.exit_code == 0, result.output
    for told in (
        f"{crontab}: a user crontab (no --system), times in Europe/Paris (--tz)",
        "line 1: SHELL=/bin/sh",
        f"line 4: {BACKUP}",
        "meaning  every 15 minutes, Europe/Paris",
        "changes  the output is not mailed to ops@example.org",
        "input    Hi\\n",
        "there is no 02:30 in Europe/Paris; the rule fires at 03:00, as in Vixie cron",
        "The schedules are created paused: their commands need the job",
        "2 schedules, none created (dry run)",
    ):
        assert told in result.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["crontab"]


def test_lines_become_paused_schedules_and_code_does_not_lose_its_own(crontab: Path, store: str):
    done = run_json("import", "crontab", crontab, "--tz", "Europe/Paris", "--store", store)
    assert done["summary"] == {"schedules": 2, "problems": 0, "created": 2, "changed": 0, "unchanged": 0}
    shown = run_json("schedules", "show", BACKUP, "--store", store)
    assert (shown["job"], shown["state"]) == ("foliot.shell", "paused")
    assert "foliot.shell" in shown["paused_note"]
    assert shown["rule"] == {"cron": "*/15 * * * *", "tz": "Europe/Paris"}
    assert shown["arguments"]["command"] == "/usr/local/bin/backup.sh --full"
    assert shown["next_fire_at"] == shown["upcoming"][0]
    listed = {shape["id"] for shape in run_json("schedules", "list", "--store", store)}
    assert listed == {BACKUP, MAIL, "greetings", "sweep"}


def test_a_second_import_changes_nothing_and_an_edit_changes_its_own_line(crontab: Path, store: str):
    arguments = ("import", "crontab", crontab, "--tz", "UTC", "--store", store)
    run_json(*arguments)
    run_json("schedules", "resume", MAIL, "--reason", "tried", "--store", store)
    again = run_json(*arguments)
    assert [line["outcome"] for line in again["lines"] if line["kind"] == "schedule"] == ["unchanged", "unchanged"]
    crontab.write_text("# moved down\n" + CRONTAB.replace("30 2 *", "45 2 *"), "utf-8")
    edited = run_json(*arguments)
    assert {line["id"]: line["outcome"] for line in edited["lines"] if line["kind"] == "schedule"} == {
        BACKUP: "unchanged",
        MAIL: "changed",
    }
    shown = run_json("schedules", "show", MAIL, "--store", store)
    assert (shown["rule"]["cron"], shown["state"]) == ("45 2 * * *", "waiting")


def test_a_line_that_is_gone_is_reported_and_its_schedule_stays(crontab: Path, store: str):
    run_json("import", "crontab", crontab, "--store", store)
    crontab.write_text("30 2 * * * mail joe%Hi\n", "utf-8")
    assert run_json("import", "crontab", crontab, "--store", store)["gone"] == [BACKUP]
    assert f"not in this file\n{BACKUP}\n" in run("import", "crontab", crontab, "--store", store).stdout
    assert run_json("import", "crontab", crontab, "--prefix", "other-", "--store", store)["gone"] == []


def test_a_bad_line_is_shown_with_its_caret_and_the_others_are_imported(crontab: Path, store: str):
    crontab.write_text(CRONTAB + "0 24 * * * oops\n@reboot start\n", "utf-8")
    result = run("import", "crontab", crontab, "--store", store)
    assert result.exit_code == 1
    assert "line 6: cannot be imported\nhour 24 is out of range\n    0 24 * * *\n      ^ use 0 to 23\n" in result.stdout
    assert "2 created, 0 changed, 0 unchanged; 2 lines cannot be imported" in result.stdout
    assert run_json("schedules", "show", MAIL, "--store", store)["state"] == "paused"


def test_a_schedule_of_the_app_is_not_taken_over(crontab: Path, store: str):
    crontab.write_text("0 2 * * * greetings\n0 3 * * * other\n", "utf-8")
    told = refused(run("import", "crontab", crontab, "--prefix", "", "--store", store), 1)
    assert "greetings" in told
    assert len(run_json("schedules", "list", "--store", store)) == 2


def test_standard_input_is_read_and_a_byte_order_mark_is_no_text():
    given = "\ufeff0 2 * * * backup\r\n".encode()
    result = CliRunner().invoke(command, ["import", "crontab", "-", "--dry-run"], input=given)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("standard input: a user crontab")
    assert "line 1: cron-backup" in result.stdout
    assert "Windows line ends" in result.stdout


def test_nothing_in_a_crontab_can_command_the_terminal(crontab: Path):
    crontab.write_bytes(b"A=\x1b[2J\n0 2 * * * echo \x1b[2J\n@\x1b[2J x\n0 3 * * * caf\xe9\n")
    result = run("import", "crontab", crontab, "--dry-run")
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout
    assert "not valid UTF-8" in result.stdout
    shapes = json.loads(run("import", "crontab", crontab, "--dry-run", "--json").stdout)["lines"]
    assert [shape["text"] for shape in shapes][-1] == "0 3 * * * caf?"


def test_a_system_crontab_is_known_by_where_it_lies_or_because_it_is_said(crontab: Path):
    crontab.write_text("0 2 * * * root backup\n", "utf-8")
    [said] = run_json("import", "crontab", crontab, "--system", "--dry-run")["lines"]
    assert said["arguments"]["user"] == "root"
    assert run_json("import", "crontab", crontab, "--dry-run")["system"] is False
    assert kind_of("/etc/crontab", False)[0]
    assert kind_of("/etc/cron.d/php", False)[0]
    assert not kind_of("/etc/cron.daily/php", False)[0]
    assert not kind_of("-", False)[0]


def test_what_cannot_be_used_is_refused_in_one_line(crontab: Path, tmp_path: Path):
    assert "no such file" in refused(run("import", "crontab", tmp_path / "nowhere", "--dry-run"), 1).lower()
    assert "Europe/Paris" in refused(run("import", "crontab", crontab, "--dry-run", "--tz", "Europe/Pari"), 1)
    assert "--prefix" in refused(run("import", "crontab", crontab, "--dry-run", "--prefix", "a b"), 2)
    assert "no store" in refused(run("import", "crontab", crontab, "--store", "sqlite:///nowhere.db"), 1)


def test_the_zone_of_the_host_is_found_and_told(tmp_path: Path):
    (tmp_path / "etc").mkdir()
    assert host_zone({}, tmp_path)[0] == "UTC"
    os.symlink("/usr/share/zoneinfo/America/New_York", tmp_path / "etc/localtime")
    assert host_zone({}, tmp_path) == ("America/New_York", "from /etc/localtime")
    (tmp_path / "etc/timezone").write_text("Asia/Tokyo\n", "utf-8")
    assert host_zone({}, tmp_path) == ("Asia/Tokyo", "from /etc/timezone")
    assert host_zone({"TZ": ":Europe/Paris"}, tmp_path) == ("Europe/Paris", "from the variable TZ")
    assert host_zone({"TZ": "/usr/share/zoneinfo/Europe/Paris"}, tmp_path)[0] == "Europe/Paris"
    assert host_zone({"TZ": "CET-1CEST"}, tmp_path) == ("Asia/Tokyo", "from /etc/timezone")


def test_the_zone_of_the_host_is_used_when_none_is_said(crontab: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    found = run_json("import", "crontab", crontab, "--dry-run")
    assert (found["tz"], found["tz_from"]) == ("Pacific/Auckland", "from the variable TZ")
    assert {line["tz"] for line in found["lines"] if line["kind"] == "schedule"} == {"Pacific/Auckland"}


def test_the_json_form_is_stable(crontab: Path):
    found = run_json("import", "crontab", crontab, "--dry-run", "--tz", "UTC")
    assert set(found) == {
        *("file", "system", "system_because", "tz", "tz_from", "dry_run", "lines", "notes", "gone", "summary")
    }
    setting, _, line, _ = found["lines"]
    assert setting == {
        "line": 1,
        "text": "SHELL=/bin/sh",
        "kind": "setting",
        "name": "SHELL",
        "value": "/bin/sh",
        "note": None,
    }
    assert len(line.pop("next")) == 3
    assert line == {
        "line": 4,
        "text": "*/15 * * * * /usr/local/bin/backup.sh --full",
        "kind": "schedule",
        "id": BACKUP,
        "cron": "*/15 * * * *",
        "tz": "UTC",
        "words": "every 15 minutes, UTC",
        "arguments": {
            "command": "/usr/local/bin/backup.sh --full",
            "stdin": "",
            "env": {"SHELL": "/bin/sh", "MAILTO": "ops@example.org"},
            "user": None,
        },
        "jitter": 0,
        "differences": ["the output is not mailed to ops@example.org"],
        "clock_changes": [],
        "outcome": None,
    }
