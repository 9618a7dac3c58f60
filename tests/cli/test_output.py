"""Tables, words, and finding a place in a long list."""

from __future__ import annotations

import pytest
from rich.console import Console

from foliot.cli import output
from foliot.cli.output import Column, _layout, _row, say_indented
from foliot.cli.words import headline, lateness, length, one_line, relative
from foliot.domain.instant import DAY, HOUR, MILLISECOND, MINUTE, SECOND

COLUMNS = (Column("run"), Column("late", rank=2, right=True), Column("job", rank=1), Column("reason", shrinks=True))
ROWS = [["class:7#1", "+3 ms", "send_reminder", "because of something that is rather long to say"]]


def table(width: int) -> list[str]:
    shown, widths = _layout(COLUMNS, ROWS, width)
    return [line.plain for row in ROWS for line in _row(COLUMNS, row, shown, widths)]


def test_where_there_is_room_everything_is_shown():
    assert table(200) == ["class:7#1  +3 ms  send_reminder  because of something that is rather long to say"]


def test_where_there_is_none_the_last_column_is_cut_and_the_least_important_go():
    assert table(60) == ["class:7#1  +3 ms  send_reminder  because of something that …"]
    assert table(40) == ["class:7#1  send_reminder  because of so…"]
    assert table(25) == ["class:7#1  because of so…"[:24] + "…"]


def test_a_column_that_wraps_goes_on_below_itself():
    columns = (Column("check"), Column("found", wraps=True))
    shown, widths = _layout(columns, [["clock", "a b c d e f g h i j k l m n o p"]], 30)
    lines = [line.plain for line in _row(columns, ["clock", "a b c d e f g h i j k l m n o p"], shown, widths)]
    assert lines == ["clock  a b c d e f g h i j k l", "       m n o p"]


def test_indented_text_goes_on_below_itself(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(output, "console", lambda: Console(width=32))
    say_indented("It may have caused an external effect.", 2)
    assert capsys.readouterr().out == "  It may have caused an external\n  effect.\n"


def test_a_column_keeps_its_least_width_before_a_less_important_one():
    columns = (Column("run"), Column("owner", rank=1), Column("reason", wraps=True, least=16))
    rows = [["a", "registry", "it is long enough"]]
    assert _layout(columns, rows, 31)[0] == [0, 1, 2]
    assert _layout(columns, rows, 30)[0] == [0, 2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "-"),
        (0, "0 ms"),
        (400, "<1 ms"),
        (12 * MILLISECOND, "12 ms"),
        (999_999, "999 ms"),
        (1_250 * MILLISECOND, "1.2 s"),
        (59_990 * MILLISECOND, "59.9 s"),
        (90 * SECOND, "1 min"),
        (90 * MINUTE, "1.5 h"),
        (36 * HOUR, "36.0 h"),
        (5 * DAY, "5 d"),
        (-3 * SECOND, "-3.0 s"),
    ],
)
def test_lengths_are_short_and_never_rounded_up(given: int | None, said: str):
    assert length(given) == said
    assert len(said) <= 7


def test_lateness_is_signed_and_early_is_shouted():
    assert [lateness(late) for late in (None, 0, 3_000, -3_000)] == ["-", "+0 ms", "+3 ms", "EARLY 3 ms"]


def test_relative_times():
    assert [relative(when, DAY) for when in (None, DAY, DAY + HOUR, DAY - MINUTE)] == [
        "-",
        "now",
        "in 1.0 h",
        "1 min ago",
    ]


def test_an_error_is_known_by_its_name():
    assert headline("shop.errors.CardError: no\nTraceback") == "CardError: no"
    assert headline("www.example.org is away") == "www.example.org is away"
    assert headline("") == ""


def test_one_line_is_one_line():
    assert one_line("a\n  b\tc\x1b[0m") == "a b c?[0m"
    assert one_line("x" * 20, 10) == "x" * 9 + "…"
