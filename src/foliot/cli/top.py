"""`foliot top`: a live overview on one screen."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.options import AppOption, JsonOption, StoreOption, WrongUsage, with_store
from foliot.cli.output import STYLES, Column, console, print_json, table_lines
from foliot.cli.runs import why
from foliot.domain.instant import Instant
from foliot.domain.overview import Tally
from foliot.domain.run import RunView
from foliot.domain.store import Instance
from foliot.operate.shapes import took
from foliot.operate.surveyed import duties, overview_shape
from foliot.operate.surveying import Overview, Signal, kind_words


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit.")] = False,
    every: Annotated[float, typer.Option("--every", help="Seconds between two updates.", metavar="SECONDS")] = 2.0,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a live overview of runs and workers. Includes runs on time, and runs that need attention."""
    if not 0.2 <= every <= 3_600:
        raise WrongUsage(f"--every {every:g}: give 0.2 to 3,600 seconds")
    if as_json:
        print_json(overview_shape(with_store(app, store, lambda foliot: foliot.operate.overview_async())))
        return
    screen = console()
    if once or not screen.is_terminal:
        view = with_store(app, store, lambda foliot: foliot.operate.overview_async())
        for line in frame(view, screen.width):
            screen.print(line, soft_wrap=True)
        return
    with_store(app, store, lambda foliot: _live(foliot, every))


async def _live(foliot: Foliot, every: float) -> None:
    stop, loop, screen = asyncio.Event(), asyncio.get_running_loop(), console()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    with Live(console=screen, screen=True, auto_refresh=False) as live:
        while not stop.is_set():
            lines = frame(await foliot.operate.overview_async(), screen.width)
            live.update(Group(*lines[: max(screen.height - 1, 5)]), refresh=True)
            try:
                async with asyncio.timeout(every):
                    await stop.wait()
            except TimeoutError:
                continue


def frame(view: Overview, width: int) -> list[Text]:
    """One screen, most urgent lines first; lines that do not fit are cut off."""
    now = view.pulse.now
    lines = [
        Text(f"{words.date_time(now - now % 1_000_000)} UTC", style="bold"),
        *_signals(view),
        *_needs(view),
        Text(),
        *_promises(view, width),
        Text(),
        *_waiting(view),
    ]
    for title, rows in (("upcoming runs", _next(view, width)), ("recently ended runs", _ended(view, width))):
        if rows:
            lines += [Text(), Text(title, style="bold"), *rows]
    if view.schedulers or view.workers:
        lines += [Text(), *_instances(view, width)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _signals(view: Overview) -> list[Text]:
    return [_signal("schedulers", view.scheduling), _signal("workers", view.working)]


def _signal(label: str, signal: Signal) -> Text:
    verdict = (signal.verdict, STYLES.get(signal.verdict, ""))
    return Text.assemble((f"{label:<16}", "dim"), verdict, f"  {words.one_line(signal.what)}")


def _needs(view: Overview) -> list[Text]:
    found = [f"{count:,} {kind_words(kind)}" for kind, count in view.needs.items() if count]
    line = Text.assemble(("needs attention ", "dim"), (", ".join(found) or "none", "bold red" if found else "green"))
    hint = [Text(f"{'':<16}for the safe next steps: foliot needs", style="dim")] if found else []
    return [line, *hint]


def _promises(view: Overview, width: int) -> list[Text]:
    columns = (
        Column("promises"),
        Column("on time", right=True),
        Column("late", right=True),
        Column("missed", right=True),
        Column("failed", right=True),
        Column("skipped", right=True, rank=1),
        Column("cancelled", right=True, rank=2),
        Column("reconciled", right=True, rank=3),
        Column("early", right=True, rank=1),
    )

    def row(label: str, one: Tally, early: str) -> tuple[str, ...]:
        counts = (one.on_time, one.late, one.missed, one.failed, one.skipped, one.cancelled, one.settled)
        return label, *(f"{count:,}" for count in counts), early

    rows = [row("last hour", view.pulse.hour, ""), row("last day", view.pulse.day, f"{view.pulse.early:,}")]
    return table_lines(columns, rows, width)


def _waiting(view: Overview) -> list[Text]:
    pulse = view.pulse
    busy = f"{pulse.running:,} running, {pulse.retrying:,} retrying, {pulse.held:,} held"
    delay = "queue empty" if view.queue_delay is None else f"oldest waits for {words.length(view.queue_delay)}"
    lanes = ", ".join(f"{one.waiting:,} {lane}" for lane, one in pulse.lanes.items())
    facts = [("runs", busy), ("waiting", f"{lanes}; {delay}")]
    if pulse.overdue:
        late = words.relative(pulse.overdue_since, pulse.now)
        facts.append(("not handed off", f"{pulse.overdue:,} due, the oldest {late}"))
    soon = [sum(count for minute, count in pulse.coming.items() if minute < most) for most in (1, 5, 15)]
    facts.append(("due soon", f"{soon[0]:,} in 1 min, {soon[1]:,} in 5 min, {soon[2]:,} in 15 min"))
    return [Text.assemble((f"{label:<16}", "dim"), fact) for label, fact in facts]


def _next(view: Overview, width: int) -> list[Text]:
    columns = (Column("due", right=True), Column("run"), Column("job", rank=1, shrinks=True))
    rows = [(words.relative(run.fire_at, view.pulse.now), run.id, run.job) for run in view.next]
    return table_lines(columns, rows, width, header=False) if rows else []


def _ended(view: Overview, width: int) -> list[Text]:
    columns = (
        Column("ended", right=True),
        Column("run"),
        Column("state", coloured=True),
        Column("duration", right=True, rank=2),
        Column("reason", rank=1, shrinks=True),
    )
    rows = [_ended_row(run, view.pulse.now) for run in view.ended]
    return table_lines(columns, rows, width, header=False) if rows else []


def _ended_row(run: RunView, now: Instant) -> tuple[str, ...]:
    return words.relative(run.finished_at, now), run.id, str(run.state), words.length(took(run)), why(run)


def _instances(view: Overview, width: int) -> list[Text]:
    columns = (
        Column("instance"),
        Column("host"),
        Column("heartbeat", right=True),
        Column("clock offset", right=True, rank=3),
        Column("busy slots", right=True, rank=1),
        Column("work", rank=2, shrinks=True),
    )
    rows = [_instance(one, view) for one in (*view.schedulers, *view.workers)]
    return table_lines(columns, rows, width)


def _instance(one: Instance, view: Overview) -> tuple[str, ...]:
    held = [holding for holding in view.pulse.holdings if holding.owner == one.number]
    shards = sum(holding.shard >= 0 for holding in held)
    holds: Sequence[str] = [words.counted(shards, "shard")] if shards else []
    busy = f"{view.pulse.at_work.get(one.number, 0):,} of {one.slots:,}" if one.role == "worker" else "-"
    return (
        f"{one.role} {one.number}",
        f"{one.host.partition(' ')[0]} ({one.pid})",
        words.relative(one.beat_at, view.pulse.now),
        _clock(one),
        busy,
        ", ".join([*holds, *duties(held), *one.queues]) or "-",
    )


def _clock(one: Instance) -> str:
    if one.fenced:
        return "fenced"
    if one.offset_low is None or one.offset_high is None:
        return "-"
    return words.length((one.offset_low + one.offset_high) // 2)
