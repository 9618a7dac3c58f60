"""`foliot next` and `foliot explain`: rules of time, before they are saved."""

from __future__ import annotations

from typing import Annotated

import typer

from foliot import timing
from foliot.cli.options import JsonOption
from foliot.cli.output import print_json, say
from foliot.clock import SystemClock
from foliot.domain.instant import Instant, parse_rfc3339, rfc3339
from foliot.domain.rule import Rule

RuleArgument = Annotated[
    str, typer.Argument(help='"0 2 * * *", "every 15m", "after 10m", "at 2026-04-03T02:00:00Z"', metavar="RULE")
]
ZoneOption = Annotated[str, typer.Option("--tz", help="The zone in which cron fields are read.", metavar="ZONE")]
FromOption = Annotated[
    str | None, typer.Option("--from", help="Times after this one; by default now.", metavar="RFC3339")
]
CountOption = Annotated[int, typer.Option("-n", "--count", min=1, max=10_000, help="How many.")]


def upcoming_times(
    rule: RuleArgument,
    tz: ZoneOption = "UTC",
    start: FromOption = None,
    count: CountOption = 5,
    as_json: JsonOption = False,
) -> None:
    """When a rule fires next: UTC instants strictly after --from."""
    parsed = timing.parse(rule, tz)
    times = [rfc3339(moment) for moment in timing.upcoming(parsed, _start(start), count)]
    if as_json:
        print_json(times)
        return
    for time in times:
        say(time)
    if not times:
        say(_why_none(parsed))


def explain(
    rule: RuleArgument,
    tz: ZoneOption = "UTC",
    start: FromOption = None,
    count: CountOption = 3,
    as_json: JsonOption = False,
) -> None:
    """A rule in words, and its next times."""
    parsed = timing.parse(rule, tz)
    times = [rfc3339(moment) for moment in timing.upcoming(parsed, _start(start), count)]
    if as_json:
        print_json({"rule": rule, "tz": tz, "words": parsed.explain(), "next": times})
        return
    say(parsed.explain())
    for time in times:
        say(f"  {time}")
    if not times:
        say(f"  {_why_none(parsed)}")


def _start(given: str | None) -> Instant:
    return SystemClock().now() if given is None else parse_rfc3339(given)


def _why_none(rule: Rule) -> str:
    return "no times to list: the end of each run makes the next" if rule.delay is not None else "never again"
