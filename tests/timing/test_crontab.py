"""Crontabs are read as cron reads them, line by line, and say where a schedule would differ."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foliot.domain.instant import MINUTE, parse_rfc3339, rfc3339
from foliot.errors import InvalidRule
from foliot.timing import Cron
from foliot.timing.crontab import Command, Crontab, Problem, Setting, read_crontab

DEBIAN = """\
# /etc/crontab: system-wide crontab
SHELL=/bin/sh
#PATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin

# .---------------- minute (0 - 59)
# *  *  *  *  * user-name command to be executed
17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly
25 6\t* * *\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }
47 6\t* * 7\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.weekly; }
52 6\t1 * *\troot\ttest -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.monthly; }
#
"""


def read(*lines: str, system: bool = False, tz: str = "UTC") -> Crontab:
    return read_crontab("".join(f"{line}\n" for line in lines), system=system, tz=tz)


def command(*lines: str, system: bool = False, tz: str = "UTC") -> Command:
    """The last line, which must be a command."""
    what = read(*lines, system=system, tz=tz).entries[-1].what
    assert isinstance(what, Command), what
    return what


def setting(line: str) -> Setting:
    what = read(line).entries[0].what
    assert isinstance(what, Setting), what
    return what


def problem(*lines: str, system: bool = False) -> str:
    """The last line, which must be a problem."""
    what = read(*lines, system=system).entries[-1].what
    assert isinstance(what, Problem), what
    return what.text


def pointed_at(text: str) -> str:
    """What stands above the caret."""
    _, shown, caret = text.split("\n")
    return shown[caret.index("^") :]


def differs(*lines: str, system: bool = False, tz: str = "UTC") -> str:
    return "\n".join(command(*lines, system=system, tz=tz).differences)


# ---------------------------------------------------------------------------------------------------------- whole files


def test_debians_crontab_is_read_with_users_tabs_and_comments():
    table = read_crontab(DEBIAN, system=True, tz="Europe/Berlin")
    commands = table.commands()
    assert list(commands) == [7, 8, 9, 10]
    assert table.problems() == {}
    assert {made.user for made in commands.values()} == {"root"}
    assert [made.written for made in commands.values()] == ["17 * * * *", "25 6 * * *", "47 6 * * 7", "52 6 1 * *"]
    assert commands[7].command == "cd / && run-parts --report /etc/cron.hourly"
    assert commands[7].environment == {"SHELL": "/bin/sh"}
    assert commands[9].rule == Cron("47 6 * * 7", "Europe/Berlin")


def test_a_bad_line_does_not_stop_the_others():
    table = read("0 1 * * * one", "61 1 * * * two", "nonsense", "0 3 * * * three")
    assert [made.command for made in table.commands().values()] == ["one", "three"]
    assert list(table.problems()) == [2, 3]


def test_comments_and_blank_lines_say_nothing_wherever_they_begin():
    assert [entry.what for entry in read("# a", "", "   ", "\t# b", "#").entries] == [None] * 5


def test_leading_blanks_are_no_part_of_a_line():
    assert command("  \t0 2 * * * backup").command == "backup"


def test_an_empty_file_has_no_lines():
    assert read_crontab("", system=False, tz="UTC").entries == ()


def test_windows_line_ends_are_no_part_of_commands_and_values():
    table = read_crontab("A=b\r\n\r\n0 2 * * * backup\r\n", system=False, tz="UTC")
    assert table.entries[0].what == Setting("A", "b")
    assert table.entries[1].what is None
    assert table.commands()[3].command == "backup"


def test_a_last_line_without_a_line_break_counts_and_says_that_cron_ignores_it():
    [made] = read_crontab("0 2 * * * backup", system=False, tz="UTC").commands().values()
    assert made.command == "backup"
    assert "cron ignores a last line" in made.differences[-1]
    assert differs("0 2 * * * backup") == ""


def test_a_zone_of_the_host_that_does_not_exist_is_refused_at_once():
    with pytest.raises(InvalidRule, match="Europe/Paris"):
        read_crontab("", system=False, tz="Europe/Pari")


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\n"))
        | st.text("0123456789*/-,~@#%=\\ \t'\"ABHLWceaimnorst.:$\r", max_size=60)
        | st.sampled_from(DEBIAN.split("\n"))
    ),
    st.booleans(),
    st.booleans(),
)
@example(["0~" + "9" * 5_000 + " * * * * x"], False, False)
@example(["CRON_TZ=../../etc/passwd", "* * * * * x"], True, False)
def test_any_text_gives_entries_that_cover_every_line(lines: list[str], system: bool, is_ended: bool):
    text = "\n".join(lines) + ("\n" if is_ended else "")
    table = read_crontab(text, system=system, tz="Europe/Paris")
    assert "".join(f"{entry.text}\n" for entry in table.entries) == (
        text if text.endswith("\n") or not text else f"{text}\n"
    )
    assert [entry.number for entry in table.entries] == list(range(1, len(table.entries) + 1))
    for made in table.commands().values():
        assert made.rule.next(0) is not None
        assert made.command.strip()
        assert (made.user is not None) == system


# ------------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("SHELL=/bin/bash", "SHELL", "/bin/bash"),
        ("  SHELL  =  /bin/bash  ", "SHELL", "/bin/bash"),
        ("A=", "A", ""),
        ('A=""', "A", ""),
        ('A="  kept  "  ', "A", "  kept  "),
        ("A=' it is \"so\" '", "A", ' it is "so" '),
        ('A=it is "so"', "A", 'it is "so"'),
        ("'A b' = c", "A b", "c"),
        ("A=b=c", "A", "b=c"),
    ],
)
def test_a_setting_is_read_with_its_blanks_and_quotes(line: str, name: str, value: str):
    assert setting(line)[:2] == (name, value)


def test_a_setting_holds_for_the_lines_below_it():
    table = read("0 1 * * * one", "A=b", "0 2 * * * two", "A=c", "B=", "0 3 * * * three")
    assert [made.environment for made in table.commands().values()] == [{}, {"A": "b"}, {"A": "c", "B": ""}]


def test_a_setting_before_a_command_belongs_to_the_command():
    made = command("0 2 * * * A=b backup")
    assert (made.command, made.environment) == ("A=b backup", {})


def test_an_open_quote_and_text_behind_a_quote_are_pointed_at():
    assert pointed_at(problem('A="b')) == '"b'
    assert pointed_at(problem('A="b" # c')) == "# c"


def test_what_cron_does_not_do_with_a_value_is_noted():
    assert setting("PATH=$HOME/bin:/bin") == ("PATH", "$HOME/bin:/bin", setting("PATH=$HOME/bin:/bin").note)
    assert "used literally" in setting("PATH=$HOME/bin:/bin").note
    assert "part of the value" in setting("A=b # c").note
    assert setting("PATH=/bin").note == ""


def test_logname_is_crons_own():
    assert "cron sets this variable itself" in setting("LOGNAME=ada").note
    assert command("LOGNAME=ada", "USER=ada", "HOME=/srv", "0 2 * * * x").environment == {"HOME": "/srv"}


def test_no_mail_is_sent_and_each_line_that_had_some_says_so():
    assert "no mail" in setting("MAILTO=ops@example.org").note
    assert "not mailed to ops@example.org" in differs("MAILTO=ops@example.org", "0 2 * * * x")
    assert setting('MAILTO=""').note == ""
    assert differs('MAILTO=""', "0 2 * * * x") == ""
    assert "no mail" in setting("MAILFROM=cron@example.org").note


def test_cron_tz_is_the_zone_of_the_lines_below_it():
    lines = ("0 2 * * * one", "CRON_TZ=America/New_York", "0 2 * * * two")
    table = read(*lines, tz="Europe/Paris")
    assert [made.rule.tz for made in table.commands().values()] == ["Europe/Paris", "America/New_York"]
    assert "Debian's cron ignores CRON_TZ" in differs(*lines)


def test_a_bad_cron_tz_is_a_problem_of_the_lines_below_it_until_the_next():
    table = read("0 1 * * * a", "CRON_TZ=Europe/Pari", "0 2 * * * b", "0 3 * * * c", "CRON_TZ=UTC", "0 4 * * * d")
    assert list(table.commands()) == [1, 6]
    assert list(table.problems()) == [3, 4]
    assert "'Europe/Paris'" in table.problems()[3].text
    assert "CRON_TZ" in table.problems()[3].text
    assert "'Europe/Paris'" in setting("CRON_TZ=Europe/Pari").note


def test_tz_reaches_the_command_and_not_its_times():
    made = command("TZ=Asia/Tokyo", "0 2 * * * x", tz="Europe/Paris")
    assert made.environment == {"TZ": "Asia/Tokyo"}
    assert made.rule.tz == "Europe/Paris"
    assert "TZ=Asia/Tokyo applies only to the command; the times are in Europe/Paris" in made.differences


def test_random_delay_becomes_jitter():
    assert command("RANDOM_DELAY=45", "0 2 * * * x").jitter == 45 * MINUTE
    assert "up to 45m late" in differs("RANDOM_DELAY=45", "0 2 * * * x")
    assert command("RANDOM_DELAY=45", "RANDOM_DELAY=0", "0 2 * * * x").jitter == 0
    assert command("RANDOM_DELAY=soon", "0 2 * * * x").jitter == 0
    assert "not a number of minutes" in setting("RANDOM_DELAY=soon").note


def test_anacrons_setting_says_that_an_anacrontab_cannot_be_imported():
    assert "anacrontab" in setting("START_HOURS_RANGE=3-22").note
    assert isinstance(read("1 5 cron.daily nice run-parts /etc/cron.daily").entries[0].what, Problem)


# ---------------------------------------------------------------------------------------------------------------- times


@pytest.mark.parametrize(
    "written",
    ["*/15 * * * *", "0 2 * * mon-fri", "5,35 8-18/2 1,15 jan,JUL *", "0 0 * * 7", "@daily", "@hourly", "@annually"],
)
def test_times_are_those_of_the_cron_rule(written: str):
    made = command(f"{written} backup", tz="Europe/Paris")
    assert made.rule == Cron(written, "Europe/Paris")
    assert made.command == "backup"
    assert made.differences == ()


def test_a_bad_time_is_pointed_at():
    assert pointed_at(problem("0 24 * * * x")) == "24 * * *"
    assert "five fields" in problem("0 2 * *")


def test_what_looks_like_a_sixth_field_is_the_command():
    assert command("0 2 * * * 5 golden rings").command == "5 golden rings"


def test_a_star_is_no_command():
    assert pointed_at(problem("0 0 2 * * * backup")) == "* backup"
    assert "no seconds" in problem("0 0 2 * * * backup")


def test_reboot_cannot_be_imported_and_says_why():
    told = problem("@reboot /usr/bin/start")
    assert "is not a time" in told
    assert pointed_at(told) == "@reboot /usr/bin/start"


@pytest.mark.parametrize("word", ["@every 5m", "@every_minute"])
def test_every_is_not_crons(word: str):
    assert "is not a nickname of cron" in problem(f"{word} x")


def test_an_unknown_nickname_gets_the_nearest_one():
    assert "@daily?" in problem("@dayly x")


@pytest.mark.parametrize(
    ("written", "expression"),
    [
        ("0~59 3 * * *", "H(0-59) 3 * * *"),
        ("~ ~ * * *", "H(0-59) H(0-23) * * *"),
        ("~9 3~ ~ * ~", "H(0-9) H(3-23) H(1-31) * H(0-6)"),
        ("0~29,45 3 * * mon~fri", "H(0-29),45 3 * * H(mon-fri)"),
        ("0~59/10 * * * *", "H(0-59)/10 * * * *"),
    ],
)
def test_a_random_range_becomes_a_slot_spread_by_hash_and_says_so(written: str, expression: str):
    made = command(f"{written} x")
    assert made.rule.expression == expression
    assert any(written in told and expression in told for told in made.differences)


def test_a_random_range_that_makes_no_sense_is_pointed_at():
    assert pointed_at(problem("50~10 * * * * x")) == "50~10 * * * * x"
    assert pointed_at(problem("0 1,2~3~4 * * * x")) == "2~3~4 * * * x"


def test_what_cron_refuses_and_a_rule_knows_is_said():
    assert "Vixie cron refuses 0 0 L * *; Foliot accepts it" in differs("0 0 L * * x")
    assert "Vixie cron refuses" in differs("H 0 * * * x")


def test_a_dash_before_the_minute_is_left_out_and_said():
    made = command("-*/15 * * * * root true", system=True)
    assert made.rule == Cron("*/15 * * * *")
    assert any("cron's log" in told for told in made.differences)


# ------------------------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("written", "wanted", "stdin"),
    [
        ("true", "true", ""),
        (r"date +\%F", "date +%F", ""),
        ("mail joe%Hi,%%Bye", "mail joe", "Hi,\n\nBye\n"),
        (r"cat%100\% sure%", "cat", "100% sure\n"),
        ("cat%", "cat", ""),
        (r"echo \\%in", "echo \\\\", "in\n"),
        (r"echo a\b \%", r"echo a\b %", ""),
        ("echo 1 # note", "echo 1 # note", ""),
        ("echo  two   blanks ", "echo  two   blanks ", ""),
        ("echo back\\", "echo back\\", ""),
    ],
)
def test_a_bare_percent_ends_the_command_and_begins_its_input(written: str, wanted: str, stdin: str):
    made = command(f"0 2 * * * {written}")
    assert (made.command, made.stdin) == (wanted, stdin)


def test_a_missing_command_is_pointed_at():
    assert "the command is missing" in problem("0 2 * * *")
    assert "the command is missing" in problem("@daily")
    assert "before the %" in problem("0 2 * * * %input")


def test_flags_before_a_command_are_refused_because_nobody_would_heed_them():
    assert pointed_at(problem("0 2 * * * -n backup")) == "-n backup"


def test_bytes_that_are_no_text_are_a_problem_of_their_line():
    table = read("0 1 * * * one", "0 2 * * * caf\udce9", "0 3 * * * a\0b")
    assert list(table.problems()) == [2, 3]
    assert pointed_at(table.problems()[2].text) == " "


def test_a_line_without_end_is_refused_before_it_is_looked_at():
    assert "at most 100,000 characters" in problem("0 2 * * * " + "x" * 100_000)


# ---------------------------------------------------------------------------------------------------------------- users


def test_a_system_crontab_has_users_and_says_that_the_worker_runs_their_commands():
    made = command("*/5 * * * * www-data php -f /var/www/cron.php", system=True)
    assert (made.user, made.command) == ("www-data", "php -f /var/www/cron.php")
    assert made.differences == ("cron ran the command as user www-data; Foliot runs it as the user of the worker",)
    assert command("@daily _apt:adm true", system=True).user == "_apt:adm"


@pytest.mark.parametrize(
    "line", ["/usr/bin/backup", "cd / && true", "A=b backup", "backup.sh --full", "$HOME/x", "[ 1 ]"]
)
def test_a_command_in_the_place_of_a_user_is_pointed_at_with_the_way_out(line: str):
    told = problem(f"0 2 * * * {line}", system=True)
    assert pointed_at(told) == line
    assert "drop --system" in told


def test_a_user_without_a_command_may_be_a_command_without_a_user():
    assert "drop --system" in problem("0 2 * * * backup", system=True)
    assert "missing" in problem("0 2 * * *", system=True)


def test_a_command_that_begins_with_root_may_be_from_a_system_crontab():
    assert "--system" in differs("0 2 * * * root /usr/bin/backup")


# ------------------------------------------------------------------------------------------------------------ next time


def test_the_times_of_a_line_are_read_in_the_zone_of_the_host():
    made = command("30 2 * * * x", tz="Europe/Paris")
    start = parse_rfc3339("2026-03-28T12:00:00Z")
    ticks = [made.rule.next(start) or 0]
    ticks.append(made.rule.next(ticks[0]) or 0)
    # 29 March has no 02:30 in Paris: it runs at 03:00, as Vixie cron does it.
    assert [rfc3339(tick) for tick in ticks] == ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
