"""`foliot simulate`: plays an app's schedules in virtual time, before a deployment."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer

from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.load import has_store, read_instant
from foliot.cli.options import (
    AppOption,
    FromOption,
    JsonOption,
    StoreOption,
    WrongUsage,
    legible,
    read_duration,
    settings_of,
)
from foliot.cli.output import Column, heading, print_items, print_json, print_table, say
from foliot.domain.instant import DAY, SECOND, Duration, Instant
from foliot.operate.jobs import durations
from foliot.operate.load import standings
from foliot.operate.shapes import moment, seconds
from foliot.testing.simulating import Outage, Played, play
from foliot.timing import decode
from foliot.timing.load import load
from foliot.timing.surprises import dst_surprises

_MOST_RUNS = 100_000
_LOOKED_AT = 1_000
_OTHERWISE: Duration = SECOND
"""Assumed duration of a run without history."""

LengthOption = Annotated[
    str, typer.Option("--for", help="Length of the period: 36h or 7d.", metavar="DURATION", callback=legible)
]
OutageOption = Annotated[
    list[str] | None,
    typer.Option("--outage", help="Simulate an outage: 2h@2026-04-01T02:00:00Z. Repeatable.", metavar="DURATION@TIME"),
]
TakingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--taking",
        help="Duration of runs: 30s, or of one job: report=5m. Default: median of its history, else 1s. Repeatable.",
        metavar="[JOB=]DURATION",
    ),
]


class Told(NamedTuple):
    """The result of a simulation."""

    start: Instant
    end: Instant
    played: list[Played]
    taking: dict[str, Duration]
    outages: list[Outage]
    notes: dict[str, list[str]]
    """By schedule, what clocks that change do to it in this time."""


def simulate(
    app: AppOption = None,
    length: LengthOption = "7d",
    start: FromOption = None,
    outage: OutageOption = None,
    taking: TakingOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate the app's schedules in virtual time. Shows which ticks run, wait, overlap or are skipped, and why.
    The real scheduler runs on a store in memory. No job of the app is called.
    """
    settings = settings_of(app, store)
    if settings.app is None:
        raise WrongUsage(
            "simulate needs the app with its schedules: give --app module:app, --app app.py, or FOLIOT_APP"
        )
    span = read_duration(length, "--for")
    begin = None if start is None else read_instant(start, "--from")
    stated = _read_taking(taking or [])
    loaded = settings.load()
    first = loaded.clock.now() // SECOND * SECOND if begin is None else begin
    outages = sorted(_read_outage(one, first, first + span) for one in outage or [])
    _refuse_too_many(loaded, first, span)
    lasting = _lasting(loaded, stated)
    played = play(loaded, first, span, lambda job: lasting[job], outages)
    told = Told(first, first + span, played, lasting, outages, _notes(loaded, first, first + span))
    if as_json:
        print_json(_shape(told))
    else:
        _print(told)


def _read_taking(given: Sequence[str]) -> dict[str, Duration]:
    """By job; that of all others under the empty name."""
    found: dict[str, Duration] = {}
    for text in given:
        job, _, lasting = text.rpartition("=")
        found[job] = read_duration(lasting, "--taking")
    return found


def _read_outage(text: str, first: Instant, last: Instant) -> Outage:
    lasting, separator, at = text.partition("@")
    if not separator:
        raise WrongUsage(f"--outage {text!r:.80}: give a duration and a start, as in 2h@2026-04-01T02:00:00Z")
    outage = Outage(read_instant(at, "--outage"), read_duration(lasting, "--outage"))
    if not first <= outage.at < last:
        raise WrongUsage(f"--outage {text!r:.80} starts outside of the simulated period; see --from and --for")
    return outage


def _lasting(loaded: Foliot, stated: dict[str, Duration]) -> dict[str, Duration]:
    for job in stated:
        if job:
            loaded.job_named(job)
    if "" in stated or not has_store(loaded):
        return {job: stated.get(job, stated.get("", _OTHERWISE)) for job in loaded.jobs}

    async def look() -> dict[str, Duration]:
        try:
            found = {}
            for job in loaded.jobs:
                known = durations(await (await loaded.opened()).durations(job, _LOOKED_AT)).p50
                found[job] = stated.get(job, _OTHERWISE if known is None else known)
            return found
        finally:
            await loaded.close_async()

    return asyncio.run(look())


def _refuse_too_many(loaded: Foliot, first: Instant, span: Duration) -> None:
    """Each is really played, and a person waits for it. Judged by the first days: counting all takes long, too."""
    looked_at = min(span, 3 * DAY)
    standing = standings([], loaded.declarations(), {}, first)
    found = load(standing.taking_part, first, first + looked_at, max(looked_at // 1_000, SECOND))
    expected = sum(found.starts) * span / looked_at
    if expected > _MOST_RUNS:
        raise WrongUsage(
            f"the period has about {expected:,.0f} runs, and at most {_MOST_RUNS:,} can be simulated: give a shorter "
            f"--for, or use `foliot load` for a forecast"
        )


def _notes(loaded: Foliot, first: Instant, last: Instant) -> dict[str, list[str]]:
    found = {one.id: dst_surprises(decode(one.rule), first, last) for one in loaded.declarations()}
    return {name: [one.text for one in surprises] for name, surprises in found.items() if surprises}


def _shape(told: Told) -> dict[str, Any]:
    return {
        "from": moment(told.start),
        "to": moment(told.end),
        "outages": [{"at": moment(one.at), "seconds": seconds(one.length)} for one in told.outages],
        "schedules": [
            {
                "id": one.schedule,
                "job": one.job,
                "taking": seconds(told.taking[one.job]),
                "states": dict(one.states),
                "skipped": dict(one.skipped),
                "overlapping": one.overlapping,
                "latest": seconds(one.latest),
                "waiting": one.waiting,
                "notes": told.notes.get(one.schedule, []),
            }
            for one in told.played
        ],
    }


def _print(told: Told) -> None:
    say(f"{words.date_time(told.start)} to {words.date_time(told.end)} UTC, simulated: no job was called")
    for one in told.outages:
        say(f"outage from {words.date_time(one.at)}, for {words.length(one.length)}")
    say("")
    columns = (
        Column("schedule"),
        Column("runs", right=True),
        Column("failed", right=True, coloured=True),
        Column("max lateness", right=True),
        Column("duration", rank=2, right=True),
        Column("overlaps", rank=1, right=True),
        Column("waiting", rank=1, right=True),
        Column("skipped", shrinks=True),
    )
    print_table(columns, [_row(one, told.taking) for one in told.played], nothing="the app declares no schedules")
    if told.notes:
        heading("clock changes")
        print_items([f"{name}: {text}" for name, texts in sorted(told.notes.items()) for text in texts])


def _row(one: Played, taking: dict[str, Duration]) -> tuple[str, ...]:
    ran = sum(count for state, count in one.states.items() if state not in _NOT_RUN | _FAILED)
    failed = sum(count for state, count in one.states.items() if state in _FAILED)
    return (
        one.schedule,
        f"{ran:,}",
        f"{failed:,}",
        words.length(one.latest),
        words.length(taking[one.job]),
        f"{one.overlapping:,}",
        f"{one.waiting:,}",
        _counted(one.skipped),
    )


_NOT_RUN = {"skipped", "scheduled", "held", "ready", "cancelled"}
_FAILED = {"dead", "ambiguous", "unverified"}


def _counted(reasons: Counter[str]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common()) or "-"
