"""`foliot load`: the plot, the herds, the picture."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from foliot.cli.plots import axis, bars, columns, marks
from foliot.domain.instant import HOUR, MINUTE, SECOND, parse_rfc3339
from tests.cli.support import EXAMPLES, refused, run, run_json
from tests.docs import pages

JUNE = ("--from", "2026-06-01T00:00:00Z")
START = parse_rfc3339(JUNE[1])


@pytest.fixture
def crowded(tmp_path: Path) -> Path:
    """An app that nobody has started yet."""
    file = tmp_path / "crowded.py"
    file.write_text(
        "from foliot import Foliot, after, cron, every\n"
        "app = Foliot('sqlite:///not-there.db')\n"
        "@app.job\n"
        "def report(): ...\n"
        "for number in range(40):\n"
        "    app.schedule(f'night-{number}', report, cron('0 2 * * *'))\n"
        "for number in range(60):\n"
        "    app.schedule(f'poll-{number}', report, every('15m', spread=True))\n"
        "app.schedule('sweep', report, after('10m'))\n",
        "utf-8",
    )
    return file


def test_the_load_before_a_deploy_shows_the_herd_and_what_would_help(crowded: Path):
    told = run("load", "--app", crowded, *JUNE).stdout
    assert "Mon 2026-06-01 00:00 to Tue 2026-06-02 00:00 UTC\n100 schedules, 5,800 starts; " in told
    assert "starts per minute" in told
    assert re.search(r"^A  02:00 +4\d  4\d at 02:00:00  40 of 0 2 \* \* \*$", told, re.MULTILINE)
    assert "- A: H 2 * * * instead of 0 2 * * * for all 40 leaves a peak of " in told
    assert '- A: jitter="' in told
    assert "sweep has a fixed delay" in told
    assert not (crowded.parent / "not-there.db").exists(), "looking makes no store"


def test_the_herd_stands_out_of_the_plot_at_its_time(crowded: Path):
    lines = run("load", "--app", crowded, *JUNE).stdout.splitlines()
    letters = lines[lines.index("") + 2]
    place = letters.index("A")
    top, *rows = lines[lines.index("") + 3 : lines.index("") + 12]
    assert top[place] == "█"
    assert [row[place] for row in rows] == ["█"] * 8
    assert top[place:].rstrip() == "█", "no other column reaches the top"


def test_programs_are_told_every_bucket(crowded: Path):
    told = run_json("load", "--app", crowded, *JUNE, "--for", "6h", "--per", "5m")
    assert (told["per"], len(told["buckets"]), told["schedules"]) == (300.0, 72, 100)
    assert told["peak_at"] == "2026-06-01T02:00:00Z"
    assert sum(bucket["starts"] for bucket in told["buckets"]) == told["starts"] == 24 * 60 + 40
    assert told["herds"][0]["rules"][0]["schedules"] == 40
    assert told["delayed"] == ["sweep"]


def test_every_field_that_programs_are_told_is_documented(crowded: Path):
    told = run_json("load", "--app", crowded, *JUNE)
    documented = pages.rows(pages.section(pages.DOCS / "cli.md", "A load"))
    assert sorted(documented) == sorted(told)
    [herd] = told["herds"]
    for row, shapes in (("herds", [herd, *herd["rules"], *herd["relief"]]), ("buckets", told["buckets"][:1])):
        names = {name for shape in shapes for name in shape}
        assert [name for name in names if f"`{name}`" not in " ".join(documented[row])] == []


def test_the_span_can_be_given_by_its_end(crowded: Path):
    told = run_json("load", "--app", crowded, *JUNE, "--to", "2026-06-03T00:00:00Z", "--per", "hour")
    assert (told["to"], len(told["buckets"])) == ("2026-06-03T00:00:00Z", 48)


def test_only_some_schedules_are_looked_at_when_asked(crowded: Path):
    assert run_json("load", "--app", crowded, *JUNE, "--schedule", "night-1*")["schedules"] == 11
    assert run("load", "--app", crowded, *JUNE, "--schedule", "nobody").stdout == "no schedules\n"


def test_without_an_app_the_schedules_of_the_store_are_looked_at(store: str):
    hourly = ("--rule", "every 1h", "--revision", "1", "--reason", "busier", "--actor", "ana")
    assert run("schedules", "edit", "greetings", *hourly, "--store", store).exit_code == 0
    told = run_json("load", "--store", store)
    assert (told["schedules"], told["starts"], told["delayed"]) == (1, 24, ["sweep"])
    assert told["buckets"][0]["busy"] is not None
    plain = run("load", "--store", store).stdout
    assert "busy worker slots, on average" in plain
    assert "no load spikes" in plain


def test_what_an_app_declares_is_laid_over_what_the_store_has(store: str, crowded: Path):
    told = run_json("load", "--app", crowded, "--store", store, *JUNE)
    assert told["schedules"] == 101, "those of the app, and greetings"
    assert told["delayed"] == ["sweep"]


def test_the_example_has_a_load(tmp_path: Path):
    assert run_json("load", "--app", EXAMPLES / "learning_platform.py", *JUNE, "--for", "10m")["per"] == 1.0
    assert list(tmp_path.iterdir()) == [], "looking makes no store"


def test_the_picture_needs_nothing_else(crowded: Path, tmp_path: Path):
    run("load", "--app", crowded, *JUNE, "--svg", tmp_path / "load.svg")
    text = (tmp_path / "load.svg").read_text("utf-8")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in text
    assert re.findall(r"<script|<image|href=|url\(|@import", text) == []
    told = ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "Starts per minute, Mon 2026-06-01 00:00 to Tue 2026-06-02 00:00 UTC" in told
    assert "A  40 schedules fire at second 0 of 02:00: 40 of 0 2 * * *" in told
    [bar] = [one for one in root.iter("{http://www.w3.org/2000/svg}rect") if one.get("class") == "herd"]
    assert float(bar.get("x", "0")) == pytest.approx(64 + 916 * 120.5 / 1440 - 1.25, abs=0.1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--for", "1h", "--to", "2026-06-02T00:00:00Z"), "--for or --to, not both"),
        (("--to", "2026-05-01T00:00:00Z"), "--to must be after --from"),
        (("--for", "soon"), "--for: 'soon' is not a duration"),
        (("--to", "tomorrow"), "--to: 'tomorrow' is not a date and time"),
        (("--per", "fortnight"), "--per: 'fortnight' is not a duration"),
        (("--per", "1ms"), "give at least one second"),
    ],
)
def test_a_span_that_makes_no_sense_is_refused(crowded: Path, options: tuple[str, ...], told: str):
    assert told in refused(run("load", "--app", crowded, *JUNE, *options), 2)


def test_a_picture_that_cannot_be_written_is_said_in_one_line(crowded: Path):
    assert "cannot be written" in refused(run("load", "--app", crowded, *JUNE, "--svg", "no/such/folder.svg"), 1)


def test_there_must_be_a_store_where_no_app_is_given():
    assert "there is no store" in refused(run("load", "--store", "sqlite:///nowhere.db"), 1)


# ---------------------------------------------------------------------------------------------------------------- plots


def test_a_column_shows_its_fullest_bucket():
    shown = columns([0, 7, 0, 1, 2, 0], START, MINUTE, 3, high={1})
    assert (shown.values, shown.high, shown.width, shown.each) == ((7, 1, 2), {0}, 2 * MINUTE, 2)


def test_few_buckets_are_drawn_wide():
    shown = columns([3, 1], START, MINUTE, 9, high={1})
    assert shown.values == (3, 3, 3, 3, 1, 1, 1, 1)
    assert shown.high == {4, 5, 6, 7}
    assert shown.place(START + MINUTE) == 4


def test_whatever_is_not_nothing_is_seen():
    lines = [line.plain for line in bars(columns([1_000, 1, 0, 500], START, MINUTE, 4), 2, 6, "")]
    assert lines == ["1,000 █", "      █▁ █"]


def test_letters_stand_over_their_columns():
    shown = columns([1] * 10, START, MINUTE, 10)
    assert marks(shown, {START + 3 * MINUTE: "A", START + 30 * MINUTE: "B"}, 2).plain == "     A"


@pytest.mark.parametrize(
    ("count", "width", "most", "labels"),
    [
        (1_440, MINUTE, 72, "1 Jun    03:00    06:00    09:00    12:00    15:00    18:00    21:00"),
        (60, SECOND, 60, "00:00:00                      00:00:30"),
        (12, 6 * HOUR, 48, "1 Jun           2 Jun           3 Jun"),
    ],
)
def test_the_time_stands_below(count: int, width: int, most: int, labels: str):
    line, below = axis(columns([1] * count, START, width, most), 0)
    assert below.plain == labels
    assert all(line.plain[match.start()] == "┬" for match in re.finditer(r"(?<!\S)\S+(?: [A-Z]\w+)?", labels))
