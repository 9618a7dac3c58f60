"""`foliot load`: forecast starts of all schedules per minute, and load spikes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.drawing import drawn
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
from foliot.cli.output import Column, console, heading, print_items, print_json, print_table, say
from foliot.cli.plots import axis, bars, columns, marks, number, scale_size
from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND, Duration, Instant, parse_rfc3339, to_datetime
from foliot.errors import InvalidInput
from foliot.operate.load import (
    Standings,
    again_words,
    left_out_words,
    load_shape,
    made_of,
    per_words,
    relief_words,
    standings,
    works_words,
)
from foliot.timing.herds import Herd, Herds, herds
from foliot.timing.load import Load, Standing, load, width_for

_WIDTHS = {"second": SECOND, "minute": MINUTE, "hour": HOUR, "day": DAY}
_ROWS, _BUSY_ROWS = 9, 4
_MOST_WIDE = 120
"""Columns, in a pipe; a terminal says its own."""
_MOST_HERDS = 8
_LETTERS = "ABCDEFGH"
_SLOW = 500
"""Schedules. Below that, no bar is needed to wait by."""

LengthOption = Annotated[
    str | None, typer.Option("--for", help="Length of the period. Default: 24h.", metavar="DURATION", callback=legible)
]
EndOption = Annotated[str | None, typer.Option("--to", help="End of the period.", metavar="TIME", callback=legible)]
PerOption = Annotated[
    str | None,
    typer.Option(
        "--per",
        help="Width of a bucket: second, minute, hour, day, 5m. Default: depends on the period.",
        metavar="LENGTH",
        callback=legible,
    ),
]
OnlyOption = Annotated[
    str | None,
    typer.Option(
        "--schedule", help="Only schedules whose name matches this: report-*.", metavar="PATTERN", callback=legible
    ),
]
PictureOption = Annotated[
    str | None, typer.Option("--svg", help="Write an SVG chart to this file.", metavar="FILE", callback=legible)
]


class Found(NamedTuple):
    """The forecast: its input, the load, and the spikes."""

    standing: Standings
    load: Load
    herds: Herds


def preview_load(
    start: FromOption = None,
    length: LengthOption = None,
    end: EndOption = None,
    per: PerOption = None,
    only: OnlyOption = None,
    picture: PictureOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forecast starts per minute and load spikes. Suggests changes that lower the spikes.

    With --app, the forecast includes the schedules that the app declares, before they are applied.
    """
    if length is not None and end is not None:
        raise WrongUsage("give --for or --to, not both")
    lasting = read_duration(length, "--for") if length is not None else DAY
    until = None if end is None else read_instant(end, "--to")
    begin = None if start is None else read_instant(start, "--from")
    width = None if per is None else _read_width(per)
    standing = _standings(app, store, only)
    first = standing.now if begin is None else begin
    span = lasting if until is None else until - first
    if span <= 0:
        raise WrongUsage("the period is empty: --to must be after --from, and --for longer than 0")
    wide = width or width_for(span)
    if begin is None:  # nobody asked for the very second: whole buckets are easier to read
        first -= first % wide
    counted = load(standing.taking_part, first, until or first + span, wide, _Bar(standing.taking_part).told)
    found = Found(standing, counted, herds(counted))
    if picture is not None:
        _write(picture, drawn(found.load, found.herds))
    if as_json:
        print_json(load_shape(*found))
    else:
        _print(found)


def _standings(app: str | None, store: str | None, only: str | None) -> Standings:
    """With an app, what it declares on top of what its store has, if there is one."""
    settings = settings_of(app, store)
    if app is None:
        loaded = settings.existing()
        return asyncio.run(_look(loaded, only, is_declared=False))
    loaded = settings.load()
    if has_store(loaded):
        return asyncio.run(_look(loaded, only, is_declared=True))
    return standings([], loaded.declarations(), {}, loaded.clock.now(), only)


async def _look(loaded: Foliot, only: str | None, *, is_declared: bool) -> Standings:
    try:
        declared = loaded.declarations() if is_declared else []
        return await loaded.operate.standings_async(declared, only)
    finally:
        await loaded.close_async()


def has_store(loaded: Foliot) -> bool:
    if loaded.store.is_server:
        return asyncio.run(loaded.store.schema()).current > 0
    return loaded.store.file is not None and Path(loaded.store.file).exists()


class _Bar:
    """A progress bar on a terminal, while many schedules are counted; it is gone when they are."""

    def __init__(self, standing: Sequence[Standing]) -> None:
        screen = Console(stderr=True)
        self._progress = Progress(
            TextColumn("counting"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("schedules"),
            console=screen,
            transient=True,
            disable=not screen.is_terminal or len(standing) < _SLOW,
        )
        self._task = self._progress.add_task("", total=len(standing))

    def told(self, done: int, of: int) -> None:
        if done < of:
            self._progress.start()
            self._progress.update(self._task, completed=done)
        else:
            self._progress.stop()


def _write(picture: str, text: str) -> None:
    try:
        Path(picture).write_text(text, "utf-8")
    except OSError as error:
        raise InvalidInput(f"{picture} cannot be written: {error.strerror or error}; give another path") from None


def _print(found: Found) -> None:
    standing, counted, crowds = found
    per = per_words(counted.width)
    total = sum(counted.starts)
    if total:
        _print_summary(counted, per)
        _print_plot(counted, crowds)
    else:
        say("no schedule starts a run in this period" if counted.schedules else "no schedules")
    if crowds.found:
        _print_herds(counted, crowds, per)
        _print_advice(counted, crowds)
    elif total:
        say("\nno load spikes", "green")
    if left := left_out_words(standing, counted):
        heading("notes")
        print_items(left)


def _print_summary(counted: Load, per: str) -> None:
    fullest = counted.fullest
    begin, end = (f"{to_datetime(at):%a %Y-%m-%d %H:%M}" for at in (counted.start, counted.end))
    say(f"{begin} to {end} UTC", "bold")
    say(
        f"{words.counted(counted.schedules, 'schedule')}, {words.counted(sum(counted.starts), 'start')}; "
        f"{number(counted.expected)} per {per} on average, at most {counted.starts[fullest]:,} at "
        f"{_when(counted, counted.at(fullest))}"
    )


def _print_plot(counted: Load, crowds: Herds) -> None:
    screen = console()
    room = min(screen.width, _MOST_WIDE) if not screen.is_terminal else screen.width
    # One scale's width for both plots, so that what happens at one time stands in one line.
    indent = max(scale_size(max(values)) for values in (counted.starts, counted.busy or (0,)))
    shown = columns(
        counted.starts, counted.start, counted.width, room - indent - 1, crowds.above or _first(counted, crowds)
    )
    each = f", each column shows the highest of {shown.each}" if shown.each > 1 else ""
    heading(f"starts per {per_words(counted.width)}{each}")
    letters = [marks(shown, _letters(crowds), indent)] if crowds.found else []
    _print_lines([*letters, *bars(shown, _ROWS, indent, "cyan"), *axis(shown, indent)])
    if counted.busy is None:
        return
    busy = columns(counted.busy, counted.start, counted.width, room - indent - 1)
    heading(f"busy worker slots, on average (at most {number(max(counted.busy))})")
    _print_lines([*bars(busy, _BUSY_ROWS, indent, "green"), *axis(busy, indent)])


def _first(counted: Load, crowds: Herds) -> list[int]:
    """The buckets of spikes, which are marked although no bucket stands out."""
    return [where for herd in crowds.found if (where := counted.number(herd.at)) is not None]


def _letters(crowds: Herds) -> dict[Instant, str]:
    named = list(zip(_LETTERS, crowds.found, strict=False))
    again = {at: letter for letter, herd in named for at in herd.again}
    return {herd.at: letter for letter, herd in named} | again


def _print_lines(lines: Sequence[Text]) -> None:
    screen = console()
    for line in lines:
        screen.print(line, soft_wrap=True)


def _print_herds(counted: Load, crowds: Herds, per: str) -> None:
    heading("load spikes")
    titles = [
        Column(""),
        Column("UTC"),
        Column(f"per {per}", right=True),
        Column("peak second", right=True),
        Column("work", rank=1, right=True),
        Column("schedules", wraps=True),
    ]
    shown = crowds.found[:_MOST_HERDS]
    rows = [_row(counted, letter, herd) for letter, herd in zip(_LETTERS, shown, strict=False)]
    if not any(herd.works for herd in shown):
        titles, rows = [*titles[:4], *titles[5:]], [(*row[:4], *row[5:]) for row in rows]
    print_table(titles, rows, nothing="")
    named = sum(1 + len(herd.again) for herd in shown)
    if (left := len(crowds.above) - named) > 0:
        buckets = words.counted(left, per) if per.isalpha() else f"{left:,} periods of {per}"
        say(f"and {buckets} more with over {crowds.line:,} starts", "dim")


def _row(counted: Load, letter: str, herd: Herd) -> tuple[str, ...]:
    second = f"{herd.at_once:,} at {to_datetime(herd.sharpest):%H:%M:%S}"
    told = "; ".join(filter(None, (made_of(herd), again_words(herd))))
    return letter, _when(counted, herd.at), f"{herd.count:,}", second, works_words(herd), told


def _print_advice(counted: Load, crowds: Herds) -> None:
    told = [
        f"{letter}: {relief_words(herd, relief, counted.width)}"
        for letter, herd in zip(_LETTERS, crowds.found, strict=False)
        for relief in herd.relief
    ]
    if told:
        heading("advice")
        print_items(told)


def _when(counted: Load, at: Instant) -> str:
    """The time alone, where one day is looked at."""
    when = to_datetime(at)
    clock = f"{when:%H:%M:%S}" if counted.width < MINUTE else f"{when:%H:%M}"
    return clock if counted.end - counted.start <= DAY else f"{when:%a} {when.day} {when:%b} {clock}"


def _read_width(text: str) -> Duration:
    width = _WIDTHS.get(text) or read_duration(text, "--per")
    if width < SECOND:
        raise WrongUsage(f"--per {text!r:.40}: give at least one second")
    return width


def read_instant(text: str, option: str) -> Instant:
    try:
        return parse_rfc3339(text)
    except InvalidInput as error:
        raise WrongUsage(f"{option}: {error}") from None
