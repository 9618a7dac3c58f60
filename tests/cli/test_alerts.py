"""`foliot alerts`, on a store in which something is wrong."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from foliot import bootstrap
from foliot.cli.settings import resolve
from foliot.domain.alerts import AlertSettings, Finding, Kind
from foliot.domain.instant import MINUTE
from foliot.domain.survey import Conclusion
from foliot.errors import InvalidInput
from tests.cli.support import refused, run, run_json
from tests.watch.loopback import listening

WHY = ("--reason", "known", "--actor", "ana")
FOUND = [
    Finding(Kind.LATE, "job:mail", "mail: 3 runs are due", job="mail", count=3),
    Finding(
        Kind.MISSING, "schedule:books", "books: no pending run for its next tick", schedule="books", owner="finance"
    ),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("alerted") / "foliot.db"

    async def make() -> None:
        store = bootstrap.make_store(f"sqlite:///{file}")
        await store.open()
        await store.conclude(0, Conclusion(b"{}", FOUND))
        await store.close()

    asyncio.run(make())
    return file


@pytest.fixture
def alerted(made: Path, tmp_path: Path) -> str:
    shutil.copy(made, tmp_path / "alerted.db")
    return f"sqlite:///{tmp_path}/alerted.db"


def test_alerts_show_how_many_runs_they_count(alerted: str) -> None:
    lines = run("alerts", "list", "--store", alerted).stdout.splitlines()
    assert [line.split()[:4] for line in lines[:3]] == [
        ["alert", "severity", "kind", "runs"],
        ["2", "critical", "missing", "-"],
        ["1", "warning", "late", "3"],
    ]
    assert ["runs", "3"] in [
        line.split() for line in run("alerts", "show", "1", "--store", alerted).stdout.splitlines()
    ]


def test_the_public_url_comes_from_the_environment_and_else_from_the_file(tmp_path: Path) -> None:
    text = 'public_url = "https://one.example"\n[alerts]\nurls = ["json://one"]\n'
    assert _alerts(tmp_path, text).public_url == "https://one.example"
    two = {"FOLIOT_PUBLIC_URL": "https://two.example"}
    assert _alerts(tmp_path, text, two).public_url == "https://two.example"
    with pytest.raises(InvalidInput, match="give scheme and host"):
        _alerts(tmp_path, text, {"FOLIOT_PUBLIC_URL": "example.com"})


def test_the_most_urgent_is_listed_first_and_the_last_look_is_told(alerted: str) -> None:
    found = run_json("alerts", "list", "--store", alerted)
    assert [one["kind"] for one in found["alerts"]] == ["missing", "late"]
    assert (found["silent"], found["looked_at"] is not None) == (False, True)
    told = run("alerts", "list", "--kind", "missing", "--store", alerted).stdout
    assert "books: no pending run" in told
    assert "last watch round" in told
    assert "mail" not in told
    assert "give one of scheduler_silent" in refused(run("alerts", "list", "--kind", "no", "--store", alerted), 1)


def test_one_alert_is_shown_with_what_to_do(alerted: str) -> None:
    told = run("alerts", "show", "2", "--store", alerted).stdout
    assert "finance" in told
    assert "foliot schedules show" in told
    assert run_json("alerts", "show", "1", "--store", alerted)["count"] == 3
    assert "no alert 9" in refused(run("alerts", "show", "9", "--store", alerted), 1)


def test_an_alert_is_snoozed_with_a_reason_and_told_again_after(alerted: str) -> None:
    assert "--for" in refused(run("alerts", "snooze", "1", *WHY, "--store", alerted), 2)
    assert "--reason" in refused(run("alerts", "snooze", "1", "--for", "2h", "--store", alerted), 2)
    assert run_json("alerts", "snooze", "1", "--for", "2h", *WHY, "--store", alerted)["snoozed_until"] is not None
    assert "(snoozed)" in run("alerts", "list", "--store", alerted).stdout
    assert run_json("alerts", "unsnooze", "1", *WHY, "--store", alerted)["snoozed_until"] is None
    assert "not snoozed" in refused(run("alerts", "unsnooze", "1", *WHY, "--store", alerted), 1)
    done = run_json("audit", "list", "--subject", "alert:1", "--store", alerted)
    assert [row["action"] for row in done] == ["unsnooze", "snooze"]


def test_whoever_checks_from_outside_is_told_by_the_exit_code(alerted: str, tmp_path: Path) -> None:
    result = run("alerts", "check", "--store", alerted)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 2)
    run("alerts", "snooze", "2", "--for", "2h", *WHY, "--store", alerted)
    result = run("alerts", "check", "--severity", "critical", "--store", alerted)
    assert (result.exit_code, "no open alerts" in result.stdout) == (0, True)
    refused(run("alerts", "check", "--severity", "loud", "--store", alerted), 2)


def _alerts(folder: Path, text: str, environment: Mapping[str, str] | None = None) -> AlertSettings:
    (folder / "foliot.toml").write_text(text, "utf-8")
    return resolve(None, None, environment or {}, folder).alerts


def test_addresses_and_rules_come_from_the_file_and_the_environment(tmp_path: Path) -> None:
    text = '[alerts]\nurls = ["json://one"]\nping = "https://hc.example/1"\nsilent = ["ratio"]\n'
    text += '[alerts.grace]\nlate = "10m"'
    urls, ping, rules, _ = _alerts(tmp_path, text)
    assert (urls, ping, rules.silent) == (("json://one",), "https://hc.example/1", {"ratio"})
    assert rules.grace(Kind.LATE) == 10 * MINUTE
    urls, ping, *_ = _alerts(tmp_path, text, {"FOLIOT_ALERT_URLS": "json://two json://three"})
    assert urls == ("json://two", "json://three")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[alerts]\nurl = 1", "known keys: urls"),
        ('[alerts]\nurls = "json://one"', "must be a list"),
        ('[alerts]\nsilent = ["rato"]', "did you mean 'ratio'"),
        ('[alerts]\nping = "file:///etc/passwd"', "ping= is not an http(s) URL; give the ping URL of your"),
        ('[alerts.grace]\nfailing = "1m"', "has no grace"),
        ('[alerts.grace]\nlate = "soon"', "is not a duration"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told.replace("(", r"\(").replace(")", r"\)")):
        _alerts(tmp_path, text)


def test_an_address_that_cannot_be_reached_is_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOLIOT_ALERT_URLS", "nowhere://ana:hunter2@host")
    Path("app.py").write_text("from foliot import Foliot\napp = Foliot()\n", "utf-8")
    told = refused(run("up", "--app", "app.py", "--store", f"sqlite:///{tmp_path}/x.db"), 1)
    assert "nowhere://" in told
    assert "hunter2" not in told


def test_a_test_message_goes_through_every_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FOLIOT_ALERT_URLS", raising=False)
    assert "FOLIOT_ALERT_URLS" in refused(run("alerts", "test"), 1)
    with listening() as server:
        monkeypatch.setenv("FOLIOT_ALERT_URLS", server.url.replace("http://", "json://ana:hunter2@"))
        [sent] = run_json("alerts", "test")
        assert sent["error"] is None
        assert "hunter2" not in sent["address"]
        assert "This is a test of alert notifications" in server.requests[0][1]
