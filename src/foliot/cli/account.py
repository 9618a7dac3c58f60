"""The live activity of `foliot up`: fired, running and ended runs, with their lateness. Pure: `now` is an argument.

Line       one event; `ended`, `parked`, `retrying`, `running`, `noticed` and `note` make them
rendered   a line as text; a narrow terminal shows the explanation below it
Account    selects the lines to print: all of them at a readable rate, else a summary each second
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from foliot.cli.output import STYLES
from foliot.cli.words import clock_time, counted, headline, lateness, length, one_line, relative
from foliot.domain.details import brief
from foliot.domain.instant import SECOND, Duration, Instant
from foliot.domain.run import AttemptView, RunView
from foliot.domain.state import State
from foliot.domain.store import EventRow
from foliot.operate.shapes import Shape, attempt_took, event_shape, moment, run_shape, seconds, took
from foliot.operate.story import how_far

MOST_LINES = 20
"""Lines per second that a person can read."""
MOST_UNUSUAL = 5
"""Unusual lines that a crowded second still shows."""

_MARKS = {
    "succeeded": "✓",
    "verified": "✓",
    "reconciled": "✓",
    "skipped": "–",  # noqa: RUF001 - a dash, on purpose
    "cancelled": "×",  # noqa: RUF001 - a cross, on purpose
    "retrying": "↻",
    "running": "▸",
    "verifying": "▸",
    "stuck": "⧗",
    "stalled": "⧗",
    "dead": "✗",
    "unverified": "✗",
    "ambiguous": "?",
    "settled": "?",
}
_PARKED = {
    "attempts": "gave up after {tries}",
    "too_old": "too old for another retry, after {tries}",
    "permanent": "permanent error, not retried",
    "lost": "its worker stopped sending heartbeats",
    "poison": "poison: a worker process that executed only this run crashed {deaths}",
    "effect": "an effect started and has no recorded outcome",
    "check": "its check rejected the result",
    "check_failed": "its check raised an error",
    "bad_payload": "its arguments are invalid",
    "settled": "its effects are settled, the remaining work is not done",
}
_AGAIN = {
    "budget": " (the job has used up this hour's retries)",
    "asked_to_wait": " (the destination asked to wait)",
    "locked": " (waits for a worker with the encryption key)",
}
_NOTE = "·"
_INDENT = 9


@dataclass(frozen=True, slots=True)
class Line:
    """One event."""

    at: Instant
    verdict: str
    shape: Callable[[], Shape]
    """The same for programs; made only when it is asked for, because a crowd of lines is never printed."""
    run: str = ""
    job: str = ""
    why: str = ""
    late: Duration | None = None
    took: Duration | None = None
    ordinary: bool = False

    @property
    def mark(self) -> str:
        return _MARKS.get(self.verdict, "!" if self.run else _NOTE)


def ended(view: RunView) -> Line:
    """A run that ended."""
    state = str(view.state)
    tries = view.attempt - (view.state is State.VERIFIED)  # its check is an attempt of its own
    again = f"attempt {tries}" if tries > 1 else ""
    reason = ": ".join(text for text in (view.reason, headline(view.detail or "")) if text)
    ticks = f"{view.span_count:,} ticks" if view.span_count > 1 else ""
    return Line(
        at=view.finished_at or view.fire_at,
        verdict=state,
        shape=lambda: {"kind": "ended", **run_shape(view)},
        run=view.id,
        job=view.job,
        why=one_line(", ".join(filter(None, (again, reason, ticks)))) if again or reason or ticks else "",
        late=view.late_by,
        took=took(view),
        ordinary=state in ("succeeded", "verified") and not again,
    )


def parked(view: RunView, now: Instant) -> Line:
    """A run that waits for a person; `view` has its attempts."""
    last = _last(view)
    known = _PARKED.get(view.reason or "", view.reason or "given up").format(
        tries=counted(view.attempt, "attempt"), deaths=counted(view.deaths or 0, "time")
    )
    why = ": ".join(filter(None, (known, brief(_error(view, last)))))
    return _attempted(view, last, "parked", one_line(why), now)


def retrying(view: RunView, now: Instant) -> Line:
    """A run whose attempt did not succeed and that the scheduler retries; `view` has its attempts."""
    last = _last(view)
    outcome = "failed" if last is None or last.outcome is None else str(last.outcome).replace("_", " ")
    why = f"attempt {view.attempt} {outcome}: {_error(view, last)}"
    suspected = " (suspected of crashing its worker)" if view.deaths is not None else ""
    again = f"retry {relative(view.fire_at, now)}{suspected or _AGAIN.get(view.reason or '', '')}"
    return _attempted(view, last, "retrying", f"{one_line(why, 300)}; {again}", now)


def _attempted(view: RunView, last: AttemptView | None, kind: str, why: str, now: Instant) -> Line:
    began = None if last is None else last.started_at
    # The fire time of a run that is tried again is that of its next try already.
    due = view.fire_at if kind == "parked" else view.nominal if view.attempt == 1 else None
    late = None if began is None or due is None else began - due
    lasted = None if last is None else attempt_took(last)
    return Line(
        at=now if last is None or last.finished_at is None else last.finished_at,
        verdict=str(view.state),
        shape=lambda: {"kind": kind, **run_shape(view), "late": seconds(late), "took": seconds(lasted)},
        run=view.id,
        job=view.job,
        why=why,
        late=late,
        took=lasted,
    )


def running(view: RunView, now: Instant) -> Line:
    """A run that takes longer than a second, with the time so far."""
    begun = view.started_at or view.claimed_at or now
    return Line(
        at=now,
        verdict="running",
        shape=lambda: {"kind": "running", **run_shape(view)},
        run=view.id,
        job=view.job,
        why=", ".join(filter(None, (f"attempt {view.attempt}" if view.attempt > 1 else "", how_far(view.progress)))),
        late=view.late_by,
        took=now - begun,
    )


def noticed(event: EventRow) -> Line:
    """An unusual event."""
    kind = event.kind.replace("_", " ")
    return Line(
        at=event.at,
        verdict=kind,
        shape=lambda: {**event_shape(event), "kind": "event", "event": event.kind},
        run=event.subject,
        why=one_line(event.detail),
    )


def note(at: Instant, text: str, **shape: object) -> Line:
    """A message of the supervisor."""
    return Line(at, "", lambda: {"kind": "note", "at": moment(at), "text": text} | shape, why=text)


def _last(view: RunView) -> AttemptView | None:
    return view.attempts[-1] if view.attempts else None


def _error(view: RunView, last: AttemptView | None) -> str:
    error = (last.error if last is not None else None) or view.detail or "no error recorded"
    return headline(error)


def header() -> Text:
    """The names of the columns."""
    return Text(f"{'UTC':<8}   {'':<10} {'late':>7} {'took':>7}  run, job", style="dim")


def rendered(line: Line, width: int | None) -> list[Text]:
    """A line as text. Without a width (in a pipe) always one; else what does not fit goes below it, indented."""
    if not line.run:
        return _note_rendered(line, width)
    text = Text(f"{clock_time(line.at)} ", no_wrap=True)
    text.append(f"{line.mark} {line.verdict:<10}", style=STYLES.get(line.verdict, "bold yellow"))
    late_style = "bold red" if line.late is not None and line.late < 0 else ""
    text.append(f" {lateness(line.late) if line.late is not None else '':>7}", style=late_style)
    text.append(f" {length(line.took) if line.took is not None else '':>7}")
    text.append(f"  {line.run}", style="bold" if not line.ordinary else "")
    room = (width or 100_000) - len(text)
    if line.job and len(line.job) + 2 <= room:
        text.append(f"  {line.job}", style="dim")
        room -= len(line.job) + 2
    if line.why and len(line.why) + 2 <= room:
        text.append(f"  {line.why}")
    elif line.why and width is not None:
        return [text, *_below(line.why, width)]
    return [text]


def _note_rendered(line: Line, width: int | None) -> list[Text]:
    text = f"{clock_time(line.at)} {_NOTE} {line.why}"
    if width is None or len(text) <= width:
        return [Text(text, style="dim")]
    first, *rest = textwrap.wrap(text, width, subsequent_indent=" " * (_INDENT + 2))
    return [Text(first, style="dim"), *(Text(part, style="dim") for part in rest)]


def _below(why: str, width: int) -> list[Text]:
    indent = " " * (_INDENT + 2)
    parts = textwrap.wrap(why, max(width, 40), initial_indent=indent, subsequent_indent=indent, max_lines=3)
    return [Text(part) for part in parts]


@dataclass(slots=True)
class _Second:
    """The events of one second that were not printed."""

    began: Instant
    seen: int = 0
    unusual: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    late: list[Duration] = field(default_factory=list)

    def add(self, line: Line) -> None:
        self.verdicts[line.verdict] += 1
        if line.late is not None:
            self.late.append(line.late)


class Account:
    """Decides what is printed. A second with more than MOST_LINES is crowded, and so is the one after it."""

    def __init__(self, most: int = MOST_LINES) -> None:
        self._most = most
        self._second: _Second | None = None
        self._crowded = False

    def tell(self, lines: Sequence[Line], now: Instant) -> list[Line]:
        """Takes the lines since the last call; answers the lines to print now."""
        told: list[Line] = []
        if self._second is not None and now - self._second.began >= SECOND:
            told += self._close(now)
        if lines and self._second is None:
            self._second = _Second(now)
        for line in lines:
            told += self._take(line)
        return told

    def _take(self, line: Line) -> list[Line]:
        second = self._second
        assert second is not None
        if not line.run:
            return [line]
        second.seen += 1
        if not self._crowded and second.seen <= self._most:
            return [line]
        if not line.ordinary and second.unusual < MOST_UNUSUAL:
            second.unusual += 1
            return [line]
        second.add(line)
        return []

    def _close(self, now: Instant) -> list[Line]:
        second, self._second = self._second, None
        assert second is not None
        self._crowded = second.seen > self._most
        return [summary(second.verdicts, second.late, now - second.began, now)] if second.verdicts else []


def summary(verdicts: Counter[str], late: Sequence[Duration], span: Duration, now: Instant) -> Line:
    """`1,204 succeeded in the last second, late median 3 ms, p99 9 ms, 0 early; 3 skipped`."""
    succeeded = verdicts["succeeded"] + verdicts["verified"]
    period = "last second" if span < 3 * SECOND // 2 else f"last {length(span)}"
    text = f"{succeeded:,} succeeded in the {period}"
    shape: Shape = {"verdicts": dict(verdicts), "seconds": seconds(span)}
    if late:
        ordered = sorted(late)
        middle, high = _percentile(ordered, 0.50), _percentile(ordered, 0.99)
        early = sum(1 for lag in ordered if lag < 0)
        text += f", late median {length(middle)}, p99 {length(high)}, {early:,} early"
        shape |= {"late_p50": seconds(middle), "late_p99": seconds(high), "early": early}
    others = [f"{count:,} {verdict}" for verdict, count in verdicts.most_common() if _MARKS.get(verdict) != "✓"]
    return note(now, text + (f"; {', '.join(others)}" if others else ""), **{**shape, "kind": "summary"})


def _percentile(ordered: Sequence[Duration], share: float) -> Duration:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
