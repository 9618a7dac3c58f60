"""`foliot simulate`: what an app's schedules would do, played without calling any of its jobs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from foliot.cli.simulate import _row
from foliot.testing.simulating import Played
from tests.cli.support import refused, run, run_json

SHOP = """
from pathlib import Path
from foliot import Foliot, cron, every, after

app = Foliot("sqlite:///none.db")

@app.job
def report() -> None:
    Path("CALLED").touch()

@app.job(isolation="process")
def feed() -> None:
    Path("CALLED").touch()

@feed.verify
def is_fed() -> bool:
    Path("CALLED").touch()
    return False

app.schedule("nightly", report, cron("30 2 * * *", tz="America/New_York"), catch_up="once")
app.schedule("feed", feed, every("1h"), overlap="skip")
app.schedule("sweep", report, after("6h"))
"""
FROM = ("--from", "2026-03-08T00:00:00Z")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path / "shop.py"


def test_ticks_that_run_wait_and_are_skipped_are_told_with_their_reasons(shop: Path) -> None:
    given = ("--for", "15h", "--taking", "feed=90m", "--taking", "2m", "--outage", "3h@2026-03-08T06:00:00Z")
    told = run_json("simulate", "--app", shop, *FROM, *given)
    found = {one["id"]: one for one in told["schedules"]}
    assert found["nightly"]["states"] == {"succeeded": 1}
    assert found["nightly"]["latest"] == 7200.0  # due at 07:00, in the outage
    assert found["nightly"]["notes"] == [
        "on 8 March 2026 there is no 02:30 in America/New_York; the rule fires at 03:00"
    ]
    assert found["feed"]["skipped"]["overlap"] >= 4
    assert found["feed"]["overlapping"] == 0
    assert found["sweep"]["states"]["succeeded"] == 1
    assert told["outages"] == [{"at": "2026-03-08T06:00:00Z", "seconds": 10800.0}]
    assert not Path("CALLED").exists()
    assert not Path("none.db").exists()


def test_people_read_a_table(shop: Path) -> None:
    told = run("simulate", "--app", shop, *FROM, "--for", "3h").stdout
    assert "no job was called" in told
    assert max(map(len, told.splitlines())) <= 80
    assert told.index("feed") < told.index("nightly")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--for", "9000d"), "can be simulated"),
        (("--outage", "2h"), "give a duration and a start"),
        (("--outage", "2h@2030-01-01T00:00:00Z"), "outside of the simulated period"),
        (("--taking", "soon"), "--taking"),
    ],
)
def test_what_cannot_be_played_is_refused(shop: Path, given: tuple[str, ...], said: str) -> None:
    assert said in refused(run("simulate", "--app", shop, *FROM, *given), 2)


def test_it_needs_an_app() -> None:
    assert "--app" in refused(run("simulate"), 2)


def test_a_run_that_fails_is_not_counted_as_one_that_ran() -> None:
    played = Played("feed", "feed", Counter({"succeeded": 3, "dead": 2, "skipped": 4}), Counter(), 0, 0, 0)
    assert _row(played, {"feed": 0})[:3] == ("feed", "3", "2")
