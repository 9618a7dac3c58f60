"""Schedules that are made of a crontab: their ids, and how close to cron they are."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foliot.domain.identity import checked_name
from foliot.domain.instant import MINUTE
from foliot.domain.policy import choices_from_json
from foliot.domain.schedule import Declaration
from foliot.errors import InvalidInput
from foliot.operate.crontab import declarations, line_shapes, notes, schedule_ids
from foliot.timing import Cron, decode
from foliot.timing.crontab import Crontab, read_crontab

NOW = 1_775_000_000_000_000


def read(*lines: str, system: bool = False) -> Crontab:
    return read_crontab("".join(f"{line}\n" for line in lines), system=system, tz="Europe/Paris")


def ids(*lines: str, system: bool = False) -> list[str]:
    return list(schedule_ids(read(*lines, system=system), "cron-").values())


def declared(*lines: str, system: bool = False) -> list[Declaration]:
    table = read(*lines, system=system)
    return declarations(table, schedule_ids(table, "cron-"))


# ------------------------------------------------------------------------------------------------------------------ ids


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/local/bin/backup.sh --full > /dev/null 2>&1", "cron-backup-sh-full"),
        ("cd / && run-parts --report /etc/cron.hourly", "cron-run-parts-report-cron-hourly"),
        (
            "test -x /sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }",
            "cron-run-parts-report-cron-daily",
        ),
        ("cd /srv/app && /usr/bin/php artisan schedule:run >> /dev/null 2>&1", "cron-php-artisan-schedule-run"),
        ("[ -x /x/clean ] && if [ ! -d /run/systemd ]; then /x/clean; fi", "cron-clean"),
        ("test -e /run/systemd || SERVICE_MODE=1 /sbin/e2scrub_all -A -r", "cron-e2scrub_all-a-r"),
        ("cd /srv", "cron-cd-srv"),
        ("ежедневно", "cron-job"),
        ("x" * 300, "cron-" + "x" * 40),
        ("1" * 90_000, "cron-" + "1" * 40),
    ],
)
def test_an_id_says_what_the_command_does(command: str, name: str):
    assert ids(f"0 2 * * * {command}") == [name]


def test_an_id_names_the_user_of_a_system_crontab():
    assert ids("0 2 * * * www-data backup", system=True) == ["cron-www-data-backup"]


def test_an_id_stays_when_other_lines_move_or_its_own_times_are_edited():
    before = schedule_ids(read("0 1 * * * one", "0 2 * * * two", "0 3 * * * two"), "cron-")
    after = schedule_ids(read("0 2 * * * two", "A=b", "30 5 * * * one", "0 4 * * * other", "0 3 * * * two"), "cron-")
    assert (before[1], before[2], before[3]) == (after[3], after[1], after[5])
    assert before[1] == "cron-one"


def test_commands_that_read_alike_are_told_apart_by_what_they_are_not_by_where():
    there = ids("0 1 * * * /a/backup", "0 1 * * * /b/backup")
    assert len(set(there)) == 2
    assert ids("0 1 * * * /b/backup", "0 1 * * * /a/backup") == there[::-1]
    assert ids("0 9 * * * /a/backup", "0 1 * * * /b/backup") == there


def test_the_same_line_twice_is_two_schedules_as_cron_runs_it_twice():
    first, second = ids("0 1 * * * backup", "0 1 * * * backup")
    assert second == f"{first}-2"


def test_a_prefix_that_cannot_begin_a_name_is_refused():
    with pytest.raises(InvalidInput):
        schedule_ids(read("0 1 * * * backup"), "cron jobs ")


@given(st.lists(st.sampled_from(["", "a", "b/a", "a; b", "-2", "a-2", "A", "é", "a>b"]), max_size=8), st.booleans())
def test_ids_are_distinct_and_can_be_names(commands: list[str], system: bool):
    made = schedule_ids(read(*(f"0 {hour} * * * root x{one}" for hour, one in enumerate(commands)), system=system), "")
    assert len(set(made.values())) == len(made) == len(commands)
    for name in made.values():
        checked_name(name, "schedule")


# --------------------------------------------------------------------------------------------------------- declarations


def test_a_command_becomes_a_paused_schedule_of_the_shell_job():
    [made] = declared("A=b", "0 2 * * * root mail joe%Hi", system=True)
    assert (made.id, made.job) == ("cron-root-mail-joe", "foliot.shell")
    assert decode(made.rule) == Cron("0 2 * * *", "Europe/Paris")
    assert json.loads(made.payload) == {"command": "mail joe", "stdin": "Hi\n", "env": {"A": "b"}, "user": "root"}
    assert made.paused is not None
    assert "foliot.shell" in made.paused


def test_a_schedule_does_what_cron_did_and_no_more():
    [made] = declared("RANDOM_DELAY=5", "0 2 * * * x")
    policy = made.policy
    assert (policy.attempts, policy.overlap, policy.catch_up, policy.on_lost) == (1, "allow", "skip", "ask")
    assert policy.jitter == 5 * MINUTE
    assert policy.merged(choices_from_json(made.options)) == policy


def test_what_is_spread_by_hash_is_settled_by_the_id():
    slots = {decode(made.rule).next(NOW) for made in declared("~ 3 * * * one", "~ 3 * * * two", "~ 3 * * * three")}
    assert len(slots) > 1


def test_a_declaration_changes_with_what_the_line_says_and_with_nothing_else():
    [before] = declared("0 2 * * * x")
    assert declared("# a comment", "", "0 2 * * *   x") == [before]
    for other in (("0 3 * * * x",), ("A=b", "0 2 * * * x"), ("RANDOM_DELAY=1", "0 2 * * * x")):
        [after] = declared(*other)
        assert (after.id, after.fingerprint == before.fingerprint) == (before.id, False)


# --------------------------------------------------------------------------------------------------------------- shapes


def test_fixed_times_say_what_changes_of_the_clocks_do_to_them():
    table = read("30 2 * * * fixed", "*/5 * * * * pace", "0 12 * * * noon")
    fixed, pace, noon = line_shapes(table, schedule_ids(table, "cron-"), NOW, 1)
    assert [text.partition(" in Europe/Paris")[0] for text in fixed["clock_changes"]] == [
        "on 25 October 2026 02:30 occurs twice",
        "on 28 March 2027 there is no 02:30",
    ]
    assert pace["clock_changes"] == noon["clock_changes"] == []


def test_windows_line_ends_are_noted_once_for_all():
    assert len(notes(read("0 2 * * * x\r", "0 3 * * * y\r"))) == len(notes(read("0 2 * * * x"))) + 1
