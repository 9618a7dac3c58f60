"""`foliot next` and `foliot explain`: rules of time, before they are saved."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import typer
from rich.text import Text

from foliot import timing
from foliot.cli.options import JsonOption, legible
from foliot.cli.output import Column, complain, console, heading, print_items, print_json, print_table, say
from foliot.cli.words import relative
from foliot.clock import SystemClock
from foliot.domain.instant import DAY, MINUTE, SECOND, Instant, parse_rfc3339, rfc3339
from foliot.domain.rule import Rule
from foliot.errors import InvalidInput
from foliot.operate.rules import dst_policy, explained, explained_shape, local
from foliot.timing.surprises import offset_text, wall_rules
from foliot.timing.zones import zone

RuleArgument = Annotated[
    str,
    typer.Argument(
        help='"0 2 * * *", "every 15m", "after 10m", "at 2026-04-03T02:00:00Z", "FREQ=DAILY;BYHOUR=2", '
        """'business_day(-1, country="FR", at="18:00")'""",
        metavar="RULE",
        callback=legible,
    ),
]
ZoneOption = Annotated[str, typer.Option("--tz", help="Time zone of the rule and of the output.", metavar="ZONE")]
FromOption = Annotated[
    str | None, typer.Option("--from", help="Start of the printed times, exclusive. Default: now.", metavar="TIME")
]
CountOption = Annotated[int, typer.Option("-n", "--count", min=1, max=10_000, help="Number of times to print.")]
PresetOption = Annotated[
    str | None,
    typer.Option(
        "--preset", help="Clock change policy by name: vixie, rfc5545, systemd, quartz, temporal.", metavar="NAME"
    ),
]
GapOption = Annotated[
    str | None,
    typer.Option(
        "--gap", help="Policy for missing wall times: run_after, skip, shift_forward, shift_backward.", metavar="POLICY"
    ),
]
FoldOption = Annotated[
    str | None, typer.Option("--fold", help="Policy for repeated wall times: first, second, both.", metavar="POLICY")
]
IntervalOption = Annotated[
    str | None,
    typer.Option("--interval-like", help="Treat * in minute or hour as elapsed time: auto, never.", metavar="POLICY"),
]
SecondsOption = Annotated[bool, typer.Option("--seconds", help="The first of six cron fields is seconds.")]
YearOption = Annotated[bool, typer.Option("--year", help="The last of six cron fields is years.")]
IdOption = Annotated[
    str | None,
    typer.Option(
        "--id", help="Name of the schedule that H in cron is computed from.", metavar="SCHEDULE", callback=legible
    ),
]


def upcoming_times(
    rule: RuleArgument,
    tz: ZoneOption = "UTC",
    start: FromOption = None,
    count: CountOption = 5,
    preset: PresetOption = None,
    gap: GapOption = None,
    fold: FoldOption = None,
    interval_like: IntervalOption = None,
    seconds: SecondsOption = False,
    year: YearOption = False,
    schedule: IdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the next times of a rule, in UTC, strictly after --from. Exit 1 when there is none."""
    parsed = timing.parse(
        rule, tz, preset=preset, gap=gap, fold=fold, interval_like=interval_like, seconds=seconds, year=year
    )
    named = parsed if schedule is None else parsed.named(schedule)
    times = [rfc3339(moment) for moment in timing.upcoming(named, begin(start), count)]
    if as_json:
        print_json(times)
    else:
        for time in times:
            say(time)
    if not times:
        complain(why_none(named))  # programs read stdout
        raise typer.Exit(1)


def explain(
    rule: RuleArgument,
    tz: ZoneOption = "UTC",
    start: FromOption = None,
    count: CountOption = 5,
    preset: PresetOption = None,
    gap: GapOption = None,
    fold: FoldOption = None,
    interval_like: IntervalOption = None,
    seconds: SecondsOption = False,
    year: YearOption = False,
    schedule: IdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain a rule of time. Shows its next times, the effect of clock changes, and common mistakes."""
    parsed = timing.parse(
        rule, tz, preset=preset, gap=gap, fold=fold, interval_like=interval_like, seconds=seconds, year=year
    )
    named = parsed if schedule is None else parsed.named(schedule)
    after = begin(start)
    told = explained(rule, named, after, count, tz, is_named=schedule is not None)
    if as_json:
        print_json(explained_shape(told))
        return
    ticks, changes, warnings, shown = told.ticks, told.changes, told.warnings, told.tz
    tell(named.explain())
    say("")
    _print_ticks(named, ticks, shown, after if start is None else None)
    if changes:
        heading(f"clock changes ({_policy_words(named)})")
        print_items(changes)
    elif wall_rules(named) and zone(shown).changes(after // SECOND, (after + 366 * DAY) // SECOND):
        tell(f"\nclock changes of {shown} do not affect the times of the rule")
    if warnings:
        heading("notes")
        print_items(warnings)


def begin(given: str | None) -> Instant:
    """What --from says."""
    if given is None:
        return SystemClock().now()
    try:
        return parse_rfc3339(given)
    except InvalidInput:
        message = f"--from {given!r:.80} is not a time with an offset; write it as 2026-04-03T02:00:00Z"
        raise InvalidInput(message) from None


def tell(text: str) -> None:
    """A sentence; on a terminal it is wrapped between words."""
    console().print(Text(text))


def why_none(rule: Rule) -> str:
    """Why there is no next time."""
    return "no fixed times: each run's end determines the next" if rule.delay is not None else "no further times"


def _print_ticks(rule: Rule, ticks: list[Instant], tz: str, now: Instant | None) -> None:
    columns = [Column("day"), Column("UTC")] if tz == "UTC" else [Column(tz), Column("UTC", rank=1)]
    precision = "minutes" if all(tick % MINUTE == 0 for tick in ticks) else "auto"
    rows = []
    for tick in ticks:
        when = local(tick, tz)
        rows.append([f"{when:%a}" if tz == "UTC" else _local_text(when, precision), rfc3339(tick)])
    if now is not None:
        columns.append(Column("", rank=2, right=True))
        rows = [[*row, relative(tick, now)] for tick, row in zip(ticks, rows, strict=True)]
    print_table(columns, rows, nothing=why_none(rule))


def _local_text(when: datetime, precision: str) -> str:
    """`Sun 2026-03-08 03:00 -04:00`."""
    offset = (when.utcoffset() or timedelta()) // timedelta(seconds=1)
    return f"{when:%a} {when.replace(tzinfo=None).isoformat(' ', precision)} {offset_text(offset)}"


def _policy_words(rule: Rule) -> str:
    policy = dst_policy(rule)
    if policy is None:
        return "each rule has its own policy"
    if any(leaf.pace for leaf in wall_rules(rule)):
        return "elapsed time"
    if policy["elapsed"]:
        return "* in minute or hour means elapsed time"
    return f"gap={policy['gap']}, fold={policy['fold']}"
