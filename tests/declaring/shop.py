"""An app with a schedule of each kind, as stores that older releases made hold it. Public names only.

`recorded.py` runs this module under the code of an older release too. A change that renames a public setting renames
it here, and the recorded stores stay as they are.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from foliot import Foliot
from foliot.clock import ManualClock
from foliot.domain.instant import parse_rfc3339
from foliot.timing import (
    after,
    at,
    business_day,
    business_days,
    cron,
    every,
    last_weekday,
    month_end,
    nearest_business_day,
    nth_weekday,
    only_on,
    rrule,
    workdays,
)
from foliot.timing.crontab import read_crontab

NOW = parse_rfc3339("2026-04-03T02:00:00Z")
FILE = "file:shop.toml"
CRONTAB = r"""RANDOM_DELAY=5
A=b
0 2 * * * /usr/bin/backup --full
*/10 * * * * cd /srv && ./sync.sh%input
~ 3 * * 1 clean é
"""


def shop(store: Any, *, nightly: str = "0 2 * * *", region: str = "west") -> Foliot:
    """`nightly` and `region`: what another release of the app declares otherwise."""
    app = Foliot(store, clock=ManualClock(NOW), attempts=3, backoff="10s", encryption=())

    @app.job
    def report(day: str = "", region: str = "", options: dict[str, Any] | None = None) -> None: ...

    @app.job(
        name="bill",
        queue="money",
        owner="payments",
        runbook="https://example.com/bill",
        timeout="2h",
        lease="1m",
        rate="10/m",
        concurrency=5,
        attempts=9,
        concurrency_key="account:{account}",
        destination="api.{bank}.example",
        labels=["gpu", "region=eu"],
        no_alerts=["late", "duration"],
        breaker_after=None,
        on_lost="ask",
        effects=("charge",),
        overlap="queue",
        catch_up="all",
    )
    def bill(account: int, bank: str = "first", day: str = "") -> None: ...

    @app.job(name="sync", preset="latest_only", attempts_after_effect=1, stall_after="10m", on_stall="kill")
    def sync(tenant: str, since: str = "") -> None: ...

    app.members("tenants", ["acme", "globex"])
    app.schedule(
        "nightly",
        report,
        cron(nightly, tz="Europe/Paris"),
        args={"region": region, "options": {"b": 1, "a": [1.5, None]}},
    )
    app.schedule(
        "quarterly",
        report,
        every("15m", start=datetime(2026, 1, 1, tzinfo=UTC)),
        jitter="1m",
        priority=7,
        owner="ops",
        changes="https://example.com/c",
    )
    app.schedule("spread", report, every("6h", spread=True), tenant="acme")
    app.schedule("poll", report, after("10m"), queue="slow")
    app.schedule("once", report, at(datetime(2027, 1, 1, tzinfo=UTC)), args={"day": "été ✓ \"quoted\" 'single'"})
    app.schedule("hashed", report, cron("H H * * 1-5", tz="America/New_York", gap="skip", fold="second"))
    app.schedule("weekly", report, rrule("FREQ=WEEKLY;BYDAY=MO", tz="UTC", start="2026-01-05T09:00:00"))
    app.schedule(
        "close", report, business_day(-1, at="17:00", tz="Europe/Paris", country="FR"), bind={"day": "tick.date"}
    )
    app.schedule("working", report, business_days(at="09:00", tz="UTC", weekend=["fri", "sat"]))
    app.schedule("payday", report, nearest_business_day(25, roll="before", at="08:00", tz="UTC", country="GB"))
    app.schedule("either", report, cron("0 9 * * *") | every("6h"))
    app.schedule("both", report, cron("0 9 * * *") & cron("0 * * * 1"))
    app.schedule("without", report, cron("0 * * * *") - cron("0 12 * * *"))
    app.schedule(
        "bounded", report, cron("0 * * * *").between(datetime(2026, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC))
    )
    app.schedule("outside", report, cron("0 * * * *").outside(cron("0 12 * * *"), "2h"))
    app.schedule("month", report, month_end(at="06:00"))
    app.schedule("lasts", report, last_weekday("fri", at="06:00") | nth_weekday(2, "mon"))
    app.schedule("market", report, only_on(cron("0 15 * * *", tz="America/New_York"), workdays(market="XNYS")))
    app.schedule(
        "bill-7",
        bill,
        cron("0 4 1 * *"),
        args={"account": 7, "bank": "first"},
        bind={"day": "tick.at"},
        attempts=2,
        ping="https://hc.example/x",
    )
    app.schedule(
        "bill-8", bill, cron("0 4 2 * *"), args={"bank": "second", "account": 8}, overlap="skip", useful_until="1d"
    )
    app.schedule(
        "sync",
        sync,
        every("1h"),
        over="tenants",
        bind={"tenant": "member", "since": "tick.start"},
        complete="99%",
        preset="exactly_one_result",
        catch_up_window="2d",
        requires="nightly",
        cutoff="6h",
        at_cutoff="run",
        expect_within="30m",
        blocks_until="verified",
    )
    app.schedule("plain", report, every("1h"), attempts=4)
    return app


STATED: list[dict[str, Any]] = [
    {"name": "f-plain", "job": "report", "rule": "every 15m"},
    {
        "name": "f-nightly",
        "job": "report",
        "rule": "0 2 * * *",
        "tz": "Europe/Paris",
        "args": {"region": "été", "options": {"b": 1, "a": 2.5}},
        "attempts": 7,
        "timeout": "1h",
        "labels": ["b", "a"],
        "jitter": "1m",
        "preset": "every_interval",
        "queue": "slow",
        "priority": 3,
        "tenant": "acme",
        "owner": "ops",
    },
    {
        "name": "f-bill",
        "job": "bill",
        "rule": "0 4 * * *",
        "args": {"account": 9, "bank": "b"},
        "bind": {"day": "tick.date"},
        "overlap": "allow",
    },
    {
        "name": "f-over",
        "job": "sync",
        "rule": "every 1h",
        "over": "tenants",
        "bind": {"tenant": "member"},
        "complete": 0.5,
        "paused": "not yet",
    },
]
"""What a file states."""
MADE: dict[str, Any] = {
    "name": "o-made",
    "job": "bill",
    "rule": "0 5 * * *",
    "args": {"account": 10, "bank": "b"},
    "runbook": "https://example.com/r",
}
"""What an operator made."""


def crontab() -> list[Any]:
    from foliot.operate.crontab import declarations, schedule_ids

    table = read_crontab(CRONTAB, system=False, tz="Europe/Paris")
    return declarations(table, schedule_ids(table, "cron-"))


EDITS: dict[str, dict[str, Any]] = {
    "nightly": {"rule": "30 3 * * *", "tz": "Europe/Paris"},
    "quarterly": {"jitter": "5m", "attempts": 8},
    "poll": {"rule": "after 20m", "queue": "fast"},
    "close": {"bind": {}, "args": {"day": "2026-01-01"}},
    "bill-7": {"args": {"account": 70, "bank": "third"}, "priority": 5},
    "sync": {"overlap": "skip", "owner": "ada"},
    "f-nightly": {"rule": "every 20m", "timeout": "3h"},
    "f-bill": {"args": {"account": 90, "bank": "b"}},
    "cron-backup-full": {"rule": "15 2 * * *", "attempts": 2},
    "o-made": {"args": {"account": 11, "bank": "b"}, "attempts": 2},
}
"""What operators edited, by schedule. One that an operator made has no declaration beside the edit."""
PAUSED = ("spread", "weekly", "nightly", "f-plain")
