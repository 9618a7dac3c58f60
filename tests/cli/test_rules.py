"""`foliot next`, `foliot explain`, `foliot preview`, and what any command does with a mistake."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from typer.main import get_group

from foliot import __version__
from foliot.cli.command import foliot, narrowed
from foliot.timing.zones import VERSION
from tests.cli.support import refused, run, run_json

NEW_YORK = ("--tz", "America/New_York")
BEFORE_SPRING = ("--from", "2025-03-08T17:00:00Z")

# ----------------------------------------------------------------------------------------------------------------- next


def test_next_lists_instants_strictly_after_the_start():
    listed = run_json("next", "0 2 * * *", "--from", "2025-03-08T17:00:00Z", "-n", "3")
    assert listed == ["2025-03-09T02:00:00Z", "2025-03-10T02:00:00Z", "2025-03-11T02:00:00Z"]
    assert run_json("next", "0 2 * * *", "--from", listed[0], "-n", "1") == [listed[1]]


def test_next_knows_the_clocks_of_a_zone():
    listed = run_json("next", "30 2 * * *", *NEW_YORK, *BEFORE_SPRING, "-n", "3")
    assert listed == ["2025-03-09T07:00:00Z", "2025-03-10T06:30:00Z", "2025-03-11T06:30:00Z"]


@pytest.mark.parametrize(
    ("options", "first"),
    [
        (("--gap", "skip"), "2025-03-10T06:30:00Z"),
        (("--gap", "shift_forward"), "2025-03-09T07:30:00Z"),
        (("--preset", "quartz", "--gap", "shift_backward"), "2025-03-09T06:30:00Z"),
    ],
)
def test_next_can_be_told_another_policy(options: tuple[str, ...], first: str):
    assert run_json("next", "30 2 * * *", *NEW_YORK, *BEFORE_SPRING, "-n", "1", *options) == [first]


def test_next_can_be_told_what_a_star_means():
    in_fold = ("next", "*/30 * * * *", *NEW_YORK, "--from", "2025-11-02T05:30:00Z", "-n", "1")
    assert run_json(*in_fold) == ["2025-11-02T06:00:00Z"]
    assert run_json(*in_fold, "--interval-like", "never") == ["2025-11-02T07:00:00Z"]


def test_six_fields_are_read_as_they_are_said_to_be():
    assert run_json("next", "30 0 2 * * *", "--seconds", *BEFORE_SPRING, "-n", "1") == ["2025-03-09T02:00:30Z"]
    assert run_json("next", "30 2 1 1 * 2031", "--year", *BEFORE_SPRING) == ["2031-01-01T02:30:00Z"]
    assert "--seconds or --year" in refused(run("next", "30 0 2 * * *"), 1)


def test_the_slot_of_a_schedule_is_shown_by_its_id():
    slots = {run_json("next", "H H * * *", *BEFORE_SPRING, "-n", "1", "--id", name)[0] for name in ("a", "b", "c")}
    assert len(slots) == 3


def test_rules_that_are_written_as_in_python_are_understood():
    listed = run_json("next", 'cron("0 9 * * *", tz="Europe/Paris") | every("12h")', *BEFORE_SPRING, "-n", "3")
    assert listed == ["2025-03-09T00:00:00Z", "2025-03-09T08:00:00Z", "2025-03-09T12:00:00Z"]
    assert run_json("next", "FREQ=DAILY;BYHOUR=2", *BEFORE_SPRING, "-n", "1") == ["2025-03-09T02:00:00Z"]


def test_next_without_json_prints_one_instant_per_line():
    result = run("next", "every 15m", "--from", "2025-03-08T17:00:00+01:00", "-n", "2")
    assert result.stdout == "2025-03-08T16:15:00Z\n2025-03-08T16:30:00Z\n"


def test_explain_says_that_a_rule_counts_elapsed_time():
    rule = 'rrule("FREQ=MINUTELY;INTERVAL=90", start="2026-10-24T23:00", tz="Europe/Paris")'
    told = run("explain", rule, "--from", "2026-10-24T00:00:00Z").stdout
    assert "clock changes (elapsed time)" in told
    assert "its local times are 1 hour earlier from then on" in told


def test_the_version_is_an_option_as_everywhere():
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"foliot {__version__}\n")
    assert run("version").stdout.startswith(f"foliot {__version__} ")


def test_next_begins_now_when_nothing_is_said():
    assert len(run_json("next", "* * * * *")) == 5


def test_a_rule_without_a_calendar_has_nothing_to_list():
    for command in ("explain", "preview"):
        assert "each run's end determines the next" in run(command, "after 10m").stdout


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("at 2020-01-01T00:00:00Z", "no further times"),
        ("after 10m", "no fixed times: each run's end determines the next"),
    ],
)
def test_programs_that_read_next_see_instants_alone(rule, reason):
    result = run("next", rule)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"foliot: {reason}\n")
    result = run("next", rule, "--json")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "[]\n", f"foliot: {reason}\n")


# -------------------------------------------------------------------------------------------------------------- explain


def test_explain_says_a_rule_in_words_and_when_it_comes():
    told = run_json("explain", "0 9 * * 1-5", "--from", "2025-03-07T10:00:00Z", "-n", "1")
    assert told["words"] == "at 09:00 UTC on Monday to Friday"
    assert told["next"] == ["2025-03-10T09:00:00Z"]
    assert run("explain", "every 15m").stdout.startswith("every 15 minutes\n\nday  UTC\n")


def test_explain_tells_all_of_it_to_programs():
    assert run_json("explain", "30 2 * * *", *NEW_YORK, *BEFORE_SPRING, "-n", "2") == {
        "rule": "30 2 * * *",
        "tz": "America/New_York",
        "words": "at 02:30 America/New_York every day",
        "next": ["2025-03-09T07:00:00Z", "2025-03-10T06:30:00Z"],
        "local": ["2025-03-09T03:00:00-04:00", "2025-03-10T02:30:00-04:00"],
        "dst": ["on 9 March 2025 there is no 02:30 in America/New_York; the rule fires at 03:00"],
        "warnings": [
            "when the clocks of America/New_York change, a time of this rule is missing or occurs twice; "
            "times outside 01:00 to 03:00 are not affected"
        ],
        "policy": {"gap": "run_after", "fold": "first", "interval_like": "auto", "elapsed": False},
        "tzdata": VERSION,
    }


def test_explain_shows_local_time_and_utc_what_the_clocks_do_and_what_is_easily_got_wrong():
    lines = run("explain", "30 2 * * *", *NEW_YORK, *BEFORE_SPRING, "-n", "1").stdout.splitlines()
    assert lines[:4] == [
        "at 02:30 America/New_York every day",
        "",
        "America/New_York             UTC",
        "Sun 2025-03-09 03:00 -04:00  2025-03-09T07:00:00Z",
    ]
    assert lines[5:8] == [
        "clock changes (gap=run_after, fold=first)",
        "- on 9 March 2025 there is no 02:30 in America/New_York; the rule fires at 03:00",
        "",
    ]
    assert lines[8] == "notes"


def test_explain_looks_into_the_next_year_when_this_one_has_nothing_left():
    told = run_json("explain", "30 2 * * *", *NEW_YORK, "--from", "2025-12-01T00:00:00Z")
    assert told["dst"] == ["on 8 March 2026 there is no 02:30 in America/New_York; the rule fires at 03:00"]
    told = run_json("explain", "30 2 * * *", *NEW_YORK, "--from", "2026-01-01T04:00:00Z", "--fold", "both")
    assert told["dst"] == ["on 8 March 2026 there is no 02:30 in America/New_York; the rule fires at 03:00"]


def test_explain_says_that_the_clocks_do_not_matter_where_they_change():
    quiet = "clock changes of America/New_York do not affect the times of the rule"
    assert quiet in run("explain", "5 12 * * *", *NEW_YORK).stdout
    assert "clocks" not in run("explain", "5 12 * * *", "--tz", "Asia/Tokyo").stdout
    assert "clocks" not in run("explain", "every 15m", *NEW_YORK).stdout


def test_explain_says_which_policy_is_in_force():
    assert "* in minute or hour means elapsed time" in run("explain", "*/15 * * * *", *NEW_YORK).stdout
    assert run_json("explain", "*/15 * * * *", *NEW_YORK)["policy"]["elapsed"] is True
    assert run_json("explain", "every 15m")["policy"] is None
    both = 'cron("30 2 * * *", tz="Europe/Paris") | cron("30 1 * * *", tz="America/New_York", fold="both")'
    assert "each rule has its own policy" in run("explain", both).stdout


def test_elapsed_time_is_shown_in_the_zone_that_is_asked_for():
    told = run_json("explain", "every 12h", "--tz", "Europe/Paris", *BEFORE_SPRING, "-n", "1")
    assert (told["tz"], told["local"]) == ("Europe/Paris", ["2025-03-09T01:00:00+01:00"])


def test_explain_says_that_a_slot_is_that_of_nobody_yet():
    assert "--id NAME" in run("explain", "H 4 * * *").stdout
    assert "--id NAME" not in run("explain", "H 4 * * *", "--id", "nightly").stdout
    assert "--id NAME" in run("explain", 'every("1h", spread=True)').stdout


@pytest.mark.parametrize("start", ["0001-01-01T00:00:00Z", "9999-12-31T23:00:00Z"])
@pytest.mark.parametrize("tz", ["Pacific/Apia", "America/New_York"])
def test_the_ends_of_the_calendar_are_no_trouble(start: str, tz: str):
    for command in ("explain", "preview"):
        assert run(command, "*/7 * * * *", "--tz", tz, "--from", start).exit_code == 0


# -------------------------------------------------------------------------------------------------------------- preview


def test_preview_is_a_calendar_of_times():
    result = run("preview", "30 2 * * *", *NEW_YORK, "--from", "2026-03-26T12:00:00Z", "--weeks", "1")
    assert result.stdout == (
        "at 02:30 America/New_York every day\n"
        "\n"
        "days and times in America/New_York\n"
        "Mon         Tue         Wed         Thu         Fri         Sat         Sun\n"
        "                                    26 Mar      27          28          29\n"
        "                                    02:30       02:30       02:30       02:30\n"
        "\n"
        "30          31          1 Apr\n"
        "02:30       02:30       02:30\n"
    )


def test_preview_marks_the_day_on_which_the_clocks_change():
    result = run("preview", "30 2 * * *", *NEW_YORK, "--from", "2026-03-07T12:00:00Z", "--weeks", "1")
    assert "7 Mar       8*\n" in result.stdout
    assert "02:30       03:00\n" in result.stdout
    assert (
        "* clock changes\n- on 8 March 2026 there is no 02:30 in America/New_York; the rule fires at 03:00\n"
        in result.stdout
    )


def test_preview_counts_many_times_and_shows_how_they_lie_in_the_day():
    shown = run("preview", "*/15 9-17 * * 1-5", "--from", "2026-03-09T00:00:00Z", "--weeks", "1").stdout
    assert "\n36x         36x         36x         36x         36x         -           -\n" in shown
    hours = re.search(r"times per hour, as on Mon 9 March\n(.*)\n(.*)\n", shown)
    assert hours is not None
    assert hours[1].split() == [f"{hour:02}" for hour in range(24)]
    assert hours[2].split() == ["."] * 9 + ["4"] * 9 + ["."] * 6


@pytest.mark.parametrize("width", [50, 80])
def test_a_terminal_is_never_too_narrow(monkeypatch: pytest.MonkeyPatch, width: int):
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": str(width)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    start = ("--from", "2026-03-07T12:00:00Z")
    for arguments in (
        ("preview", "* * * * * *", "--seconds", *NEW_YORK, *start),
        ("preview", "30 0 2 * * *", "--seconds", *NEW_YORK, *start),
        ("preview", "0,30 2,14 * * 1-5", *NEW_YORK, *start),
        ("explain", "30 0 2 13 * 5", "--seconds", *NEW_YORK, *start),
        ("explain", "*/7 * * * *", "--tz", "America/Argentina/ComodRivadavia", *start),
    ):
        shown = re.sub(r"\x1b\[[0-9;]*m", "", run(*arguments).stdout)
        assert shown.count("\n") > 5
        assert max(map(len, shown.splitlines())) <= width


def test_preview_says_when_a_rare_rule_comes():
    shown = run("preview", "0 0 29 2 *", "--from", "2026-03-09T00:00:00Z").stdout
    assert shown.endswith("no time in 4 weeks; the next time is 2028-02-29T00:00:00Z\n")


def test_preview_tells_days_to_programs():
    days = run_json("preview", "30 2 * * *", *NEW_YORK, "--from", "2026-03-07T12:00:00Z", "--weeks", "1")
    assert [day["date"] for day in days] == [f"2026-03-{number:02}" for number in range(7, 14)]
    assert days[1] == {
        "date": "2026-03-08",
        "count": 1,
        "capped": False,
        "times": ["2026-03-08T07:00:00Z"],
        "dst": "on 8 March 2026 there is no 02:30 in America/New_York; the rule fires at 03:00",
    }
    assert days[0]["dst"] is None
    assert {day["count"] for day in run_json("preview", "* * * * *", "--weeks", "1")} == {1_440}


# ------------------------------------------------------------------------------------------------------------- mistakes


def test_a_bad_rule_is_refused_in_one_line_that_points_at_the_character():
    told = refused(run("next", "0 0 * 13 *"), 1)
    assert "'0 0 * 13 *', character 7" in told
    told = refused(run("explain", 'every("1h") | evry("2h")'), 1)
    assert "character 15: did you mean every?" in told


def test_a_zone_that_does_not_exist_is_refused_with_the_nearest():
    assert "did you mean 'Europe/Paris'?" in refused(run("next", "0 2 * * *", "--tz", "Europe/Pari", "--json"), 1)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (("--gap", "nonsense"), "give one of run_after, skip"),
        (("--fold", "nonsense"), "give one of first, second, both"),
        (("--preset", "nonsense"), "give one of vixie, rfc5545, systemd"),
        (("--interval-like", "nonsense"), "give one of auto, never"),
        (("--from", "yesterday"), "write it as 2026-04-03T02:00:00Z"),
    ],
)
def test_a_bad_option_is_refused_with_what_there_is(option: tuple[str, ...], told: str):
    for command in ("next", "explain", "preview"):
        assert told in refused(run(command, "0 2 * * *", *option), 1)


def test_options_that_a_rule_cannot_use_are_refused():
    assert "gap cannot be given here" in refused(run("explain", "every 1h", "--gap", "skip"), 1)
    assert "tz cannot be given here" in refused(run("explain", 'every("1h")', *NEW_YORK), 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("next",),
        ("next", "0 2 * * *", "-n", "0"),
        ("next", "0 2 * * *", "--nonsense"),
        ("preview", "0 2 * * *", "--weeks", "0"),
        ("preview", "0 2 * * *", "--weeks", "54"),
        ("schedules", "nonsense"),
        ("runs", "list", "--limit", "many"),
        ("runs", "list", "--state", "nonsense"),
        ("runs", "list", "--before", "nonsense"),
        ("worker",),
        ("worker", "--app", "jobs.py", "--grace", "nonsense"),
        ("up",),
        ("schedules", "pause", "greetings", "--reason", "x", "--for", "nonsense"),
        ("schedules", "pause", "greetings", "--reason", "x", "--until", "nonsense"),
        ("schedules", "pause", "greetings", "--reason", "x", "--for", "1h", "--until", "2030-01-01T00:00:00Z"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(arguments: tuple[str, ...]):
    refused(run(*arguments), 2)


def test_the_version_is_told_in_both_forms():
    assert run("version").stdout.startswith("foliot ")
    assert set(json.loads(run("version", "--json").stdout)) == {"foliot", "python"}


def test_every_command_has_help():
    for arguments in ((), ("schedules",), ("runs",), ("runs", "list"), ("up",), ("worker",), ("doctor",), ("preview",)):
        result = run(*arguments, "--help")
        assert result.exit_code == 0
        assert "Usage:" in result.stdout
    assert "--supervised-by" not in run("worker", "--help").stdout


def test_a_process_describes_its_own_command_alone_and_as_among_all_others():
    everything = get_group(foliot).commands
    for name, command in everything.items():
        [(only, alone)] = get_group(narrowed([name])).commands.items()
        assert (only, options(alone)) == (name, options(command))
    for words in ([], ["--help"], ["nonsense"]):
        assert get_group(narrowed(words)).commands.keys() == everything.keys()


def options(command: Any) -> object:
    """Of a command, and of all below it."""
    below = {name: options(one) for name, one in getattr(command, "commands", {}).items()}
    return [(one.name, one.opts, one.required) for one in command.params], below
