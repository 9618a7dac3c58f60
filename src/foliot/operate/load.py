"""The load that the schedules will make: who takes part, what it looks like in JSON, and its herds in words."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND, Duration, Instant, rfc3339, spell, to_datetime
from foliot.domain.pauses import What, pauses_about
from foliot.domain.rule import Rule
from foliot.domain.schedule import Declaration, Schedule
from foliot.errors import InvalidInput
from foliot.operate.acting import Acting
from foliot.operate.jobs import LOOKED_AT
from foliot.operate.shapes import Shape, moment, seconds
from foliot.operate.words import counted, length, listed
from foliot.timing import decode
from foliot.timing.herds import Herd, Herds, Relief
from foliot.timing.load import Cut, Load, Standing

_NAMED = {SECOND: "second", MINUTE: "minute", HOUR: "hour", DAY: "day"}
_MOST_RULES = 3
"""So many rules of a herd are told one by one."""


@dataclass(frozen=True, slots=True)
class Standings:
    """The schedules whose load is asked for, and those that are left out."""

    taking_part: list[Standing] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    broken: list[tuple[str, str]] = field(default_factory=list)
    """Those that were set aside, or that cannot be read; and why."""
    now: Instant = 0


class LoadVerbs(Acting):
    """What the schedules will make of the time to come."""

    async def standings_async(self, declared: Sequence[Declaration] = (), only: str | None = None) -> Standings:
        """The schedules of the store, as they will be once `declared` is applied; `only`: a pattern of their ids."""
        store = await self._opened()
        # As they are stored: of ten thousand, no argument is looked at, so none has to be searched for secrets.
        stored, now = await (await self._stored()).templates(), await store.now()
        jobs = {one.job for one in stored} | {one.job for one in declared}
        taken = {job: await store.durations(job, LOOKED_AT) for job in sorted(jobs)}
        means = {job: sum(found) // len(found) for job, found in taken.items() if found}
        sizes = {one.name: one.members for one in await store.member_sets()}
        pauses = [one for one in await store.pauses() if one.what is What.CREATION]
        paused = frozenset(one.id for one in stored if pauses_about(one, pauses))
        # In a thread: reading thousands of rules takes a moment, in which others want their answers.
        return await asyncio.to_thread(standings, stored, declared, means, now, only, sizes, paused)


def standings(
    stored: Sequence[Schedule],
    declared: Sequence[Declaration],
    means: Mapping[str, Duration],
    now: Instant,
    only: str | None = None,
    sizes: Mapping[str, int] | None = None,
    paused_by_others: Collection[str] = (),
) -> Standings:
    """Who takes part. `means`: by job, how long a run takes; `sizes`: by set, how many members it has. What is declared
    replaces what the store has, by id; a pause that an operator ordered outlives that. `paused_by_others`: schedules
    whose job, queue or tenant is paused, so that no run is made."""
    stated: dict[str, Schedule | Declaration] = {one.id: one for one in stored}
    paused = {one.id for one in stored if one.paused(now)} | set(paused_by_others)
    paused |= {one.id for one in declared if one.paused is not None and one.id not in stated}
    stated |= {one.id: one for one in declared}
    found = Standings(now=now)
    rules: dict[str, Rule] = {}  # thousands share a few
    for name, one in sorted(stated.items()):
        if only is not None and not fnmatchcase(name, only):
            continue
        if name in paused:
            found.paused.append(name)
        elif one.fault is not None:
            found.broken.append((name, one.fault))
        else:
            try:
                rule = rules[one.rule] = rules.get(one.rule) or decode(one.rule)
            except InvalidInput as problem:
                found.broken.append((name, str(problem)))
            else:
                runs = 1 if one.over is None else (sizes or {}).get(one.over, 0)
                takes, over = means.get(one.job), one.over is not None
                found.taking_part.append(Standing(name, rule, one.policy.jitter, one.job, runs, takes, over))
    return found


# In JSON


def load_shape(standing: Standings, load: Load, herds: Herds) -> Shape:
    """All of it."""
    busy = load.busy or (None,) * len(load.starts)
    return {
        "from": moment(load.start),
        "to": moment(load.end),
        "per": seconds(load.width),
        "schedules": load.schedules,
        "starts": sum(load.starts),
        "expected": round(load.expected, 3),
        "peak": load.starts[load.fullest],
        "peak_at": moment(load.at(load.fullest)),
        "line": herds.line,
        "herds": [herd_shape(herd) for herd in herds.found],
        "buckets": [
            {"at": moment(load.at(number)), "starts": count, "busy": None if worked is None else round(worked, 3)}
            for number, (count, worked) in enumerate(zip(load.starts, busy, strict=True))
        ],
        "paused": standing.paused,
        "delayed": list(load.delayed),
        "broken": [{"id": name, "why": why} for name, why in (*standing.broken, *load.broken)],
        "cut": [_cut_shape(cut) for cut in load.cut],
        "evened": load.evened,
        "unknown": load.unknown,
    }


def herd_shape(herd: Herd) -> Shape:
    return {
        "at": moment(herd.at),
        "starts": herd.count,
        "sharpest": moment(herd.sharpest),
        "at_once": herd.at_once,
        "schedules": herd.schedules,
        "rules": [family._asdict() for family in herd.core],
        "others": sum(family.runs for family in herd.others),
        "again": [moment(at) for at in herd.again],
        "works": seconds(herd.works),
        "relief": [_relief_shape(one) for one in herd.relief],
    }


def _relief_shape(relief: Relief) -> Shape:
    return {
        "change": relief.change,
        "schedules": relief.schedules,
        "peak": relief.peak,
        "at_once": relief.at_once,
    }


def _cut_shape(cut: Cut) -> Shape:
    return {"rule": cut.rule, "schedules": list(cut.schedules), "until": moment(cut.until)}


# In words


def per_words(width: Duration) -> str:
    """`minute`, `5m`: what a bucket is."""
    return _NAMED.get(width) or spell(width)


def herd_words(herd: Herd) -> str:
    """`412 schedules fire at second 0 of 02:00: 380 of 0 2 * * *, 32 of every hour`."""
    when = to_datetime(herd.sharpest)
    is_sharp = herd.at_once >= herd.schedules / 2
    where = f"at second {when.second} of {when:%H:%M}" if is_sharp else f"from {to_datetime(herd.at):%H:%M} on"
    again = f"; {again_words(herd)}" if herd.again else ""
    return f"{counted(herd.schedules, 'schedule')} fire {where}: {made_of(herd)}{again}"


def made_of(herd: Herd) -> str:
    """`380 of 0 2 * * *, 32 of every hour`: schedules, and their rules."""
    shown = [f"{family.schedules:,} of {family.rule}" for family in herd.core[:_MOST_RULES]]
    if left := herd.core[_MOST_RULES:]:
        shown.append(f"{sum(family.schedules for family in left):,} of {counted(len(left), 'other rule')}")
    return ", ".join(shown)


def relief_words(herd: Herd, relief: Relief, width: Duration) -> str:
    """`jitter="15m" for all 412 leaves a peak of 31 a minute, at most 4 of them in one second`."""
    whom = f"all {herd.schedules:,}" if relief.schedules == herd.schedules else f"{relief.schedules:,} of them"
    a_bucket = f"a {per_words(width)}" if width in _NAMED else f"in {per_words(width)}"
    once = f", at most {relief.at_once:,} of them in one second" if relief.at_once > 1 else ""
    return f"{relief.change} for {whom} leaves a peak of {relief.peak:,} {a_bucket}{once}"


def again_words(herd: Herd) -> str:
    """How often the same herd comes within the span."""
    if not herd.again:
        return ""
    times = [f"{to_datetime(at):%H:%M}" for at in herd.again]
    return f"again at {listed(times)}"


def left_out_words(standing: Standings, load: Load) -> list[str]:
    """What the numbers leave out, or only estimate, a sentence each."""
    notes = [
        *_left_out(standing.paused, "is paused", "are paused"),
        *_left_out(load.delayed, "has a fixed delay, so no fixed times", "have a fixed delay, so no fixed times"),
    ]
    notes += [f"{name} is left out: {why}" for name, why in (*standing.broken, *load.broken)]
    for cut in load.cut:
        whom = counted(len(cut.schedules), "schedule")
        notes.append(f"{cut.rule} ({whom}) has too many ticks to count: it is left out from {rfc3339(cut.until)} on")
    if load.evened:
        notes.append(f"the jitter of {counted(load.evened, 'schedule')} is averaged, because there are too many ticks")
    if load.busy is not None and load.unknown:
        notes.append(f"busy slots: the duration of runs of {counted(load.unknown, 'schedule')} is unknown")
    return notes


def _left_out(names: Collection[str], one: str, several: str) -> list[str]:
    if not names:
        return []
    verb, left = (one, "is") if len(names) == 1 else (several, "are")
    return [f"{listed(list(names))} {verb}, and {left} left out"]


def works_words(herd: Herd) -> str:
    """What a herd costs, where that is known."""
    return "" if herd.works is None else f"{length(herd.works)} of work"
