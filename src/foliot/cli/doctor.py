"""`foliot doctor`: checks the store, the clock, schedulers and workers."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import typer

from foliot import __version__
from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.options import AppOption, JsonOption, StoreOption, with_store
from foliot.cli.output import Column, print_json, print_table, say
from foliot.cli.server import server_checks
from foliot.clock import SystemClock, offset_in_words
from foliot.domain.alerts import Alert
from foliot.domain.instant import MINUTE, SECOND, Instant, parse_rfc3339, rfc3339
from foliot.domain.locking import SHOWN_DAMAGED, SHOWN_LOCKED, SHOWN_SHUT
from foliot.domain.run import RunView
from foliot.domain.schedule import ScheduleView
from foliot.domain.store import EventRow, Instance
from foliot.operate.alerting import MOST
from foliot.operate.shapes import instance_shape
from foliot.timing.tables import is_ahead, releases, stamps

STALE = 30 * SECOND
"""A heartbeat older than this is worth a warning: workers send one every second."""
OVERDUE = 10 * SECOND
"""Schedulers hand off due runs at once. A run that waits longer than this has no scheduler."""
_MANY = 10_000
"""The store does not count much further."""
_RELEASED: Instant = parse_rfc3339("2025-01-01T00:00:00Z")


_LOOKED_AT = 100
"""Number of the newest runs to check."""


_TITLES = {"tables": "zone data", "for a person": "needs attention", "due": "due runs", "untaken": "unserved jobs"}
"""Checks whose name in JSON is not the title in the table."""


class Check(NamedTuple):
    name: str
    verdict: str
    """`ok`, `warning` or `wrong`."""
    detail: str


class Findings(NamedTuple):
    """Everything that the checks judge, read once."""

    health: Mapping[str, Any]
    counts: Mapping[str, int]
    instances: Sequence[Instance]
    schedules: Sequence[ScheduleView]
    newest: Sequence[RunView]
    store_now: Instant
    now: Instant
    untaken: Sequence[EventRow] = ()
    """Events about jobs whose due runs no worker can take."""
    keys: Sequence[str] = ()
    """Names of the encryption keys of this process."""
    overdue: int = 0
    """Due runs that no scheduler has handed off, as far as the store counts."""
    overdue_since: Instant | None = None
    alerts: Sequence[Alert] = ()
    """Those that are open, the most urgent first."""


def doctor(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Check the store, the clock, schedulers and workers. Exit 1 when a check is wrong; warnings do not count."""
    findings = with_store(app, store, _look)
    checks = judge(findings)
    wrong = any(check.verdict == "wrong" for check in checks)
    if as_json:
        print_json(
            {
                "ok": not wrong,
                "checks": [check._asdict() for check in checks],
                "store": dict(findings.health),
                "counts": dict(findings.counts),
                "instances": [instance_shape(instance) for instance in findings.instances],
                "versions": {"foliot": __version__, "python": platform.python_version(), **releases()},
            }
        )
    else:
        columns = (Column("check"), Column("verdict", coloured=True), Column("finding", wraps=True))
        print_table(columns, [check._replace(name=_TITLES.get(check.name, check.name)) for check in checks], nothing="")
        if wrong:
            count = sum(check.verdict == "wrong" for check in checks)
            say(f"\n{words.counted(count, 'check')} wrong", "bold red")
    if wrong:
        raise typer.Exit(1)


async def _look(foliot: Foliot) -> Findings:
    operate = foliot.operate
    health = await operate.health_async()
    counts = await operate.counts_async()
    instances = await operate.instances_async()
    schedules = await operate.schedules_async()
    newest = await operate.runs_async(limit=_LOOKED_AT)
    store_now = await foliot.operate.now_async()
    untaken = await operate.untaken_async()
    now, keys = SystemClock().now(), await operate.keys_async()
    pulse, alerts = (await operate.overview_async()).pulse, (await operate.alerts_async(limit=MOST)).alerts
    due = (pulse.overdue, pulse.overdue_since)
    return Findings(health, counts, instances, schedules, newest, store_now, now, untaken, keys, *due, alerts)


def judge(findings: Findings) -> list[Check]:
    """Pure: the same findings always get the same verdicts."""
    return [
        *_store(findings.health),
        _clock(findings),
        *_clocks(findings.instances),
        _early(findings.counts),
        _fleet(findings, "scheduler", "no run becomes due: start `foliot up` or `foliot scheduler`"),
        _fleet(findings, "worker", "no run is executed: start `foliot up` or `foliot worker --app ...`"),
        _due(findings),
        *_untaken(findings),
        *_suspected(findings.counts),
        *_encryption(findings),
        _versions(findings.instances),
        _schedules(findings),
        *_required(findings.schedules),
        _tables(findings.schedules),
        _waiting(findings.counts),
        _alerts(findings),
    ]


def _store(health: Mapping[str, Any]) -> list[Check]:
    checks = [Check("store", "ok", f"{health['engine']} {health['version']}, {health.get('path', '')}")]
    is_server = health["engine"] == "postgresql"
    checks += map(Check._make, server_checks(health)) if is_server else [_durable(health), _file_access(health)]
    checks.append(_schema(health))
    sound = health.get("integrity") == "ok"
    damaged = f"{health.get('integrity')}: stop all processes, copy the store, restore a backup"
    checks.append(Check("integrity", "ok" if sound else "wrong", "no damage found" if sound else damaged))
    return checks


def _durable(health: Mapping[str, Any]) -> Check:
    durable = health.get("journal_mode") == "wal" and health.get("synchronous") in ("full", "extra")
    settings = f"journal {health.get('journal_mode')}, synchronous {health.get('synchronous')}"
    if durable:
        return Check("durability", "ok", settings)
    return Check("durability", "wrong", f"{settings}: a power failure could undo committed promises")


def _file_access(health: Mapping[str, Any]) -> Check:
    files = health.get("shared_files", ())
    if not files:
        return Check("file access", "ok", "only the owner can read the file")
    detail = "users other than the owner can read arguments and results"
    return Check("file access", "warning", f"{detail}: chmod 600 {shlex.join(files)}")


def _schema(health: Mapping[str, Any]) -> Check:
    step, known = health["schema"], health["schema_known"]
    detail = f"step {step}, size {words.size(health.get('bytes', 0))}"
    if step > known:
        return Check(
            "schema", "warning", f"{detail}; from a newer release, this one supports step {known}: upgrade soon"
        )
    if step < known:
        return Check("schema", "wrong", f"{detail}; this release needs step {known}: run `foliot migrate`")
    return Check("schema", "ok", detail)


def _clock(findings: Findings) -> Check:
    apart = abs(findings.store_now - findings.now)
    if findings.now < _RELEASED:
        return Check("clock", "wrong", f"this host's clock is at {rfc3339(findings.now)}: set it")
    if apart > SECOND:
        return Check("clock", "wrong", f"the clocks of this host and of the store differ by {words.length(apart)}")
    ahead = max([run.made_at for run in findings.newest] + [0]) - findings.now
    if ahead > SECOND:
        return Check(
            "clock", "warning", f"the newest run was created {words.length(ahead)} in the future: a clock was set back"
        )
    return Check("clock", "ok", f"{rfc3339(findings.now - findings.now % SECOND)}, in sync with the store")


def _clocks(instances: Sequence[Instance]) -> list[Check]:
    """What the processes measured themselves; nothing where the store's clock is the host's."""
    told: dict[str, bool] = {}
    for one in instances:
        if one.offset_low is not None and one.offset_high is not None:
            where = f"{one.role} {one.number} on {one.host.partition(' ')[0]}"
            told[f"{where}: {offset_in_words(one.offset_low, one.offset_high)}"] = one.fenced
    fenced = [words for words, is_fenced in told.items() if is_fenced]
    if fenced:
        advice = "they start no new work: fix the time synchronisation of these hosts"
        return [Check("clocks", "wrong", f"{'; '.join(fenced)}; {advice}")]
    return [Check("clocks", "ok", "; ".join(told))] if told else []


def _early(counts: Mapping[str, int]) -> Check:
    early = counts.get("early", 0)
    if early:
        return Check("early starts", "wrong", f"{words.counted(early, 'run')} started early; there must be none")
    return Check("early starts", "ok", "no run started early")


def _fleet(findings: Findings, role: str, missing: str) -> Check:
    there = [instance for instance in findings.instances if instance.role == role]
    if not there:
        return Check(role, "warning", f"none is running; {missing}")
    freshest = max(instance.beat_at for instance in there)
    found = f"{len(there)} running, last heartbeat {words.relative(freshest, findings.now)}"
    if findings.now - freshest > STALE:
        return Check(role, "warning", f"{found}; it may hang or be disconnected")
    slots = sum(instance.slots for instance in there)
    return Check(role, "ok", found + (f", {words.counted(slots, 'slot')}" if slots else ""))


def _due(findings: Findings) -> Check:
    """A scheduler that sends heartbeats may still fire nothing: this checks for overdue runs."""
    since = findings.overdue_since
    if since is None or findings.store_now - since <= OVERDUE:
        return Check("due", "ok", "no run waits to be handed off")
    count = ("at least " if findings.overdue >= _MANY else "") + words.counted(findings.overdue, "run")
    found = f"{count} due and not handed off, the oldest since {rfc3339(since - since % SECOND)}"
    advice = "start a scheduler (`foliot up` or `foliot scheduler`), or read the log of a running one"
    return Check("due", "warning", f"{found} ({words.relative(since, findings.store_now)}): {advice}")


def _untaken(findings: Findings) -> list[Check]:
    """Events that the watch writes about once an hour; a worker may have started since."""
    told = [f"{one.detail} ({words.relative(one.at, findings.store_now)})" for one in findings.untaken]
    return [Check("untaken", "warning", "; ".join(told))] if told else []


def _suspected(counts: Mapping[str, int]) -> list[Check]:
    if not (count := counts.get("suspected", 0)):
        return []
    detail = (
        f"{words.counted(count, 'suspected run')} waiting: each was lost with its worker at least twice in a row, so "
        "workers execute only a few of them at a time; see foliot runs show"
    )
    return [Check("suspicion", "warning", detail)]


def _encryption(findings: Findings) -> list[Check]:
    """Whether this process can decrypt the arguments of the newest runs and of schedules; no check without keys."""
    stored = [run.payload for run in findings.newest] + [view.schedule.payload for view in findings.schedules]
    counts = {shown: stored.count(shown) for shown in SHOWN_SHUT}
    if damaged := counts[SHOWN_DAMAGED]:
        found = f"{damaged:,} of {len(stored):,} values are damaged: their key does not decrypt them; restore a backup"
        return [Check("encryption", "wrong", found)]
    if shut := counts[SHOWN_LOCKED]:
        found = f"{shut:,} of {len(stored):,} values need a key that is missing in FOLIOT_ENCRYPTION_KEYS"
        return [Check("encryption", "warning", found)]
    if not findings.keys:
        return []
    older = (
        f", decrypts also with {words.counted(len(findings.keys) - 1, 'older key')}" if len(findings.keys) > 1 else ""
    )
    return [Check("encryption", "ok", f"encrypts with key {findings.keys[0]}{older}")]


def _versions(instances: Sequence[Instance]) -> Check:
    others = sorted({instance.version for instance in instances} - {__version__, ""})
    here = f"foliot {__version__}, Python {platform.python_version()}"
    if others:
        return Check("versions", "warning", f"{here}; processes of other releases are running: {', '.join(others)}")
    return Check("versions", "ok", here)


def _schedules(findings: Findings) -> Check:
    faulty = [view.schedule.id for view in findings.schedules if view.schedule.fault is not None]
    if faulty:
        return Check("schedules", "wrong", f"set aside, because their rules fail: {', '.join(faulty)}")
    total = words.counted(len(findings.schedules), "schedule")
    overdue = [
        view.schedule.id
        for view in findings.schedules
        if view.next_fire_at is not None and findings.now - view.next_fire_at > MINUTE
    ]
    if overdue:
        return Check("schedules", "warning", f"{total}; overdue: {', '.join(overdue)}")
    return Check("schedules", "ok", f"{total}, none overdue")


def _required(schedules: Sequence[ScheduleView]) -> list[Check]:
    """Schedules whose ticks wait until their cutoff for a schedule that does not exist."""
    known = {view.schedule.id for view in schedules}
    lacking = [
        f"{view.schedule.id} requires {view.schedule.policy.requires}"
        for view in schedules
        if view.schedule.policy.requires is not None and view.schedule.policy.requires not in known
    ]
    if not lacking:
        return []
    text = (
        f"{words.listed(lacking)}; the required schedule does not exist, so ticks wait until their cutoff: declare it"
    )
    return [Check("requires", "warning", text)]


def _tables(schedules: Sequence[ScheduleView]) -> Check:
    """A scheduler recomputes ticks with older zone data when it starts; schedules with newer zone data mean that this
    machine is out of date."""
    here = ", ".join(f"{name} {release}" for name, release in releases().items())
    waiting = {view.schedule.tables for view in schedules if view.schedule.tables and view.next_id is not None}
    others = sorted(waiting - set(stamps()))
    newer = [stamp for stamp in others if is_ahead(stamp)]
    if newer:
        found = f"{here}; some next ticks were computed with newer zone data ({', '.join(newer)})"
        return Check("tables", "warning", f"{found}: upgrade tzdata")
    if others:
        found = f"{here}; some next ticks were computed with {', '.join(others)}"
        return Check("tables", "warning", f"{found}: restart the scheduler to recompute them")
    return Check("tables", "ok", here)


def _waiting(counts: Mapping[str, int]) -> Check:
    parked = {state: counts.get(state, 0) for state in ("dead", "ambiguous", "unverified", "settled")}
    if any(parked.values()):
        found = ", ".join(f"{count:,} {state}" for state, count in parked.items() if count)
        runs = "run" if sum(parked.values()) == 1 else "runs"
        return Check("for a person", "warning", f"{found} {runs}; see foliot needs")
    return Check("for a person", "ok", "no run needs attention")


def _alerts(findings: Findings) -> Check:
    if not findings.alerts:
        return Check("alerts", "ok", "none open")
    first, count = findings.alerts[0], len(findings.alerts)
    found = f"{'at least ' if count >= MOST else ''}{count:,} open; see foliot alerts list"
    return Check("alerts", "warning", f"{found}; most urgent: {first.kind}, {first.cause}")
