"""`foliot doctor`: is the store to be trusted, is the clock, and is anybody there to do the work?"""

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
"""A beat older than this is worth a warning: workers beat every second."""
OVERDUE = 10 * SECOND
"""What is due is handed off at once: what is not, after this long, waits for somebody who does not come."""
_MANY = 10_000
"""The store does not count much further."""
_RELEASED: Instant = parse_rfc3339("2025-01-01T00:00:00Z")


_LOOKED_AT = 100
"""So many of the newest runs."""


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
    """What was said of jobs whose due runs nobody takes."""
    keys: Sequence[str] = ()
    """The names of those that are here."""
    overdue: int = 0
    """Runs that are due, and that nobody has handed off; no more than are looked at."""
    overdue_since: Instant | None = None
    alerts: Sequence[Alert] = ()
    """Those that are open, the most urgent first."""


def doctor(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Checks store, clock and fleet. Exit 1 when something is wrong; warnings do not count."""
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
        columns = (Column("check"), Column("verdict", coloured=True), Column("what was found", wraps=True))
        print_table(columns, checks, nothing="")
        if wrong:
            say("\nsomething is wrong: see above", "bold red")
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
        _fleet(findings, "scheduler", "nothing fires: start `foliot up`, or `foliot scheduler`"),
        _fleet(findings, "worker", "nothing runs: start `foliot up`, or `foliot worker --app ...`"),
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
    damaged = f"{health.get('integrity')}: stop everything, keep a copy, restore a backup"
    checks.append(Check("integrity", "ok" if sound else "wrong", "ok" if sound else damaged))
    return checks


def _durable(health: Mapping[str, Any]) -> Check:
    durable = health.get("journal_mode") == "wal" and health.get("synchronous") in ("full", "extra")
    settings = f"journal {health.get('journal_mode')}, synchronous {health.get('synchronous')}"
    if durable:
        return Check("durability", "ok", settings)
    return Check("durability", "wrong", f"{settings}: a power cut could undo what was accepted")


def _file_access(health: Mapping[str, Any]) -> Check:
    files = health.get("shared_files", ())
    if not files:
        return Check("file access", "ok", "only the owner can read the file")
    detail = "users other than the owner can read arguments and results"
    return Check("file access", "warning", f"{detail}: chmod 600 {shlex.join(files)}")


def _schema(health: Mapping[str, Any]) -> Check:
    step, known = health["schema"], health["schema_known"]
    told = f"step {step}, {health.get('bytes', 0) / 1e6:,.1f} MB"
    if step > known:
        return Check("schema", "warning", f"{told}; made by a newer release, this one knows {known}: upgrade it soon")
    if step < known:
        return Check("schema", "wrong", f"{told}; this release needs {known}: run `foliot migrate`")
    return Check("schema", "ok", told)


def _clock(findings: Findings) -> Check:
    apart = abs(findings.store_now - findings.now)
    if findings.now < _RELEASED:
        return Check("clock", "wrong", f"this host believes that it is {rfc3339(findings.now)}")
    if apart > SECOND:
        return Check("clock", "wrong", f"this host and the store are {words.length(apart)} apart")
    ahead = max([run.made_at for run in findings.newest] + [0]) - findings.now
    if ahead > SECOND:
        return Check(
            "clock", "warning", f"the newest run was made {words.length(ahead)} in the future: a clock went back"
        )
    return Check("clock", "ok", f"{rfc3339(findings.now - findings.now % SECOND)}, with the store")


def _clocks(instances: Sequence[Instance]) -> list[Check]:
    """What the processes measured themselves; nothing where the store's clock is the host's."""
    told: dict[str, bool] = {}
    for one in instances:
        if one.offset_low is not None and one.offset_high is not None:
            where = f"{one.role} {one.number} on {one.host.partition(' ')[0]}"
            told[f"{where}: {offset_in_words(one.offset_low, one.offset_high)}"] = one.fenced
    fenced = [words for words, is_fenced in told.items() if is_fenced]
    if fenced:
        advice = "they take nothing new: see to the time synchronisation of these hosts"
        return [Check("clocks", "wrong", f"{'; '.join(fenced)}; {advice}")]
    return [Check("clocks", "ok", "; ".join(told))] if told else []


def _early(counts: Mapping[str, int]) -> Check:
    early = counts.get("early", 0)
    if early:
        return Check("early starts", "wrong", f"{words.counted(early, 'run')} began before their time; there must be 0")
    return Check("early starts", "ok", "0")


def _fleet(findings: Findings, role: str, missing: str) -> Check:
    there = [instance for instance in findings.instances if instance.role == role]
    if not there:
        return Check(role, "warning", f"none is there; {missing}")
    freshest = max(instance.beat_at for instance in there)
    told = f"{len(there)} there, heard of {words.relative(freshest, findings.now)}"
    if findings.now - freshest > STALE:
        return Check(role, "warning", f"{told}; it may hang, or have been cut off")
    slots = sum(instance.slots for instance in there)
    return Check(role, "ok", told + (f", {words.counted(slots, 'slot')}" if slots else ""))


def _due(findings: Findings) -> Check:
    """Whoever beats may still fire nothing: this looks at what is left lying."""
    since = findings.overdue_since
    if since is None or findings.store_now - since <= OVERDUE:
        return Check("due", "ok", "nothing waits to be handed off")
    count = ("at least " if findings.overdue >= _MANY else "") + words.counted(findings.overdue, "run")
    told = f"{count} due and not handed off, the first since {rfc3339(since - since % SECOND)}"
    advice = "is a scheduler running (`foliot up`, or `foliot scheduler`)? If so, see its log"
    return Check("due", "warning", f"{told} ({words.relative(since, findings.store_now)}): {advice}")


def _untaken(findings: Findings) -> list[Check]:
    """Told by whoever watches, about once an hour: by now somebody may be there."""
    told = [f"{one.detail} ({words.relative(one.at, findings.store_now)})" for one in findings.untaken]
    return [Check("untaken", "warning", "; ".join(told))] if told else []


def _suspected(counts: Mapping[str, int]) -> list[Check]:
    if not (count := counts.get("suspected", 0)):
        return []
    detail = (
        f"{words.counted(count, 'run')} under suspicion wait: lost with their workers at least twice in a row, so a "
        "worker executes only some of them together; foliot runs show says how many"
    )
    return [Check("suspicion", "warning", detail)]


def _encryption(findings: Findings) -> list[Check]:
    """Whether arguments of the newest runs, and of schedules, can be read here; nothing where nothing is locked."""
    stored = [run.payload for run in findings.newest] + [view.schedule.payload for view in findings.schedules]
    counts = {shown: stored.count(shown) for shown in SHOWN_SHUT}
    if damaged := counts[SHOWN_DAMAGED]:
        told = f"{damaged:,} of {len(stored):,} values do not open with their key: changed or cut off; restore a backup"
        return [Check("encryption", "wrong", told)]
    if shut := counts[SHOWN_LOCKED]:
        told = f"{shut:,} of {len(stored):,} values are locked with a key that is not here: FOLIOT_ENCRYPTION_KEYS"
        return [Check("encryption", "warning", told)]
    if not findings.keys:
        return []
    older = f", and {words.counted(len(findings.keys) - 1, 'older key')} to unlock" if len(findings.keys) > 1 else ""
    return [Check("encryption", "ok", f"locks with key {findings.keys[0]}{older}")]


def _versions(instances: Sequence[Instance]) -> Check:
    others = sorted({instance.version for instance in instances} - {__version__, ""})
    here = f"foliot {__version__}, Python {platform.python_version()}"
    if others:
        return Check("versions", "warning", f"{here}; processes of other releases are running: {', '.join(others)}")
    return Check("versions", "ok", here)


def _schedules(findings: Findings) -> Check:
    faulty = [view.schedule.id for view in findings.schedules if view.schedule.fault is not None]
    if faulty:
        return Check("schedules", "wrong", f"set aside, because they cannot be evaluated: {', '.join(faulty)}")
    overdue = [
        view.schedule.id
        for view in findings.schedules
        if view.next_fire_at is not None and findings.now - view.next_fire_at > MINUTE
    ]
    if overdue:
        return Check("schedules", "warning", f"{len(findings.schedules)}; overdue: {', '.join(overdue)}")
    return Check("schedules", "ok", str(len(findings.schedules)))


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
    text = f"{words.listed(lacking)}; no such schedule exists, so their ticks wait until their cutoff: declare it"
    return [Check("requires", "warning", text)]


def _tables(schedules: Sequence[ScheduleView]) -> Check:
    """A scheduler looks at ticks that were computed with older tables when it starts; ones with newer tables than ours
    mean that this machine is behind."""
    here = " ".join(f"{name} {release}" for name, release in releases().items())
    waiting = {view.schedule.tables for view in schedules if view.schedule.tables and view.next_id is not None}
    others = sorted(waiting - set(stamps()))
    newer = [stamp for stamp in others if is_ahead(stamp)]
    if newer:
        return Check("tables", "warning", f"{here}; older than some schedules' ({', '.join(newer)}): upgrade tzdata")
    if others:
        told = f"{here}; some next ticks were computed with {', '.join(others)}"
        return Check("tables", "warning", f"{told}: restart the scheduler, and it looks at them anew")
    return Check("tables", "ok", here)


def _waiting(counts: Mapping[str, int]) -> Check:
    parked = {state: counts.get(state, 0) for state in ("dead", "ambiguous", "unverified", "settled")}
    if any(parked.values()):
        told = ", ".join(f"{count:,} {state}" for state, count in parked.items() if count)
        return Check("for a person", "warning", f"{told}: foliot needs")
    return Check("for a person", "ok", "nothing waits")


def _alerts(findings: Findings) -> Check:
    if not findings.alerts:
        return Check("alerts", "ok", "none is open")
    first, count = findings.alerts[0], len(findings.alerts)
    told = f"{'at least ' if count >= MOST else ''}{count:,} open, first {first.kind} of {first.subject}: {first.cause}"
    return Check("alerts", "warning", f"{told}; foliot alerts list")
