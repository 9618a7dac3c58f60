"""The journal: what became of every attempt, counted for metrics, and written to the log as one line for each start,
end and loss.

A worker only puts attempts on a heap. While there is any, a thread takes the heap ten times a second, counts its
attempts, and writes their lines in one go. A reader that is too slow (a pipe that is full) delays that thread alone:
lines that do not fit are left out, and the log says how many.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from foliot.domain.identity import run_id, schedule_of_series
from foliot.domain.instant import SECOND, Instant, rfc3339
from foliot.domain.metrics import MOST_SERIES, RUN_TIME, START_DELAY, Histogram, Names
from foliot.domain.run import Claimed, Ending, Lane, Loss, SilentAttempt
from foliot.domain.signals import Begun
from foliot.domain.state import Event, Outcome
from foliot.domain.store import DEFAULT_QUEUE

WRITE_EVERY = 0.1
"""Seconds."""
MOST_LINES = 100_000
"""So many wait for a reader that is too slow; what comes on top is left out."""
MOST_HEAPED = 20_000
MOST_ERROR = 500
"""Letters of an error; the whole of it is in the store."""

INFO, WARNING = 20, 30
_FINE = frozenset({Outcome.SUCCEEDED, Outcome.CANCELLED, Outcome.INTERRUPTED})
_USEFUL = frozenset({Event.COMPLETED, Event.CHECK_PASSED})

Style = Callable[[str], str]
"""What becomes of a line, which is JSON."""
_encode = msgspec.json.Encoder().encode


class Tally:
    """What metrics are made of. Labels have so many values at the most."""

    def __init__(self, most: int = MOST_SERIES) -> None:
        self._jobs, self._queues = Names(most), Names(most)
        self.claimed: Counter[str] = Counter()
        """By lane."""
        self.attempts: Counter[tuple[str, str, str]] = Counter()
        """By job, queue and outcome."""
        self.useful: Counter[str] = Counter()
        self.retries: Counter[str] = Counter()
        self.delays: dict[str, Histogram] = {}
        """By lane."""
        self.times: dict[str, Histogram] = {}
        """By job."""

    def add(self, claimed: Claimed, ending: Ending) -> None:
        job = self._jobs.of(claimed.job)
        self.attempts[job, self._queues.of(claimed.queue or DEFAULT_QUEUE), ending.outcome] += 1
        if ending.event in _USEFUL:
            self.useful[job] += 1
        elif ending.event is Event.RETRY_GRANTED:
            self.retries[job] += 1
        if ending.started_at is None:
            return
        lane = _LANES[claimed.lane]
        delays, times = self.delays.get(lane), self.times.get(job)
        if delays is None:
            delays = self.delays[lane] = Histogram(START_DELAY)
        if times is None:
            times = self.times[job] = Histogram(RUN_TIME)
        delays.add(ending.started_at - claimed.fire_at)
        times.add(max(ending.finished_at - ending.started_at, 0))


_LANES = tuple(str(lane) for lane in Lane)


class Journal:
    """Its verbs may be called from one event loop, and it is read from any thread."""

    def __init__(
        self,
        write: Callable[[bytes], object] | None = None,
        *,
        style: Style | None = None,
        level: int = INFO,
        clean_text: Callable[[str], str] = str,
        clock: Callable[[], Instant] | None = None,
    ) -> None:
        """`write`: where lines go, many at once; None: nothing is written, only counted. `level`: what matters less
        is left out. `clean_text`: what errors pass through before anybody reads them."""
        self.tally = Tally()
        self.dropped = 0
        """Lines that were left out because nobody took them."""
        self._write = write
        self._style = style
        self._level = level
        self._clean_text = clean_text
        self._clock = clock
        self._worker = 0
        self._claimed: deque[Sequence[Begun]] = deque()
        self._ended: deque[tuple[Begun, Ending | None]] = deque()
        self._lost: deque[tuple[SilentAttempt, Loss]] = deque()
        self._unbegun: dict[Begun, None] = {}
        """Claimed, and still waiting for a thread: their starts are yet to be told."""
        self._about: dict[Begun, str] = {}
        """Begun, and not ended: what their lines have in common."""
        self._lines: deque[str] = deque()
        self._told_dropped = 0
        self._taking = threading.Lock()
        self._stopping = threading.Event()
        self._told = threading.Event()
        """Set while the thread has something to take."""
        self._thread: threading.Thread | None = None

    # Telling: a few steps for each attempt, and nothing that waits.

    def claimed(self, worker: int, attempts: Sequence[Begun]) -> None:
        self._worker = worker
        self._claimed.append(attempts)
        self._told.set()

    def ended(self, attempt: Begun, ending: Ending | None) -> None:
        self._ended.append((attempt, ending))
        if not self._told.is_set():
            self._told.set()
        if len(self._ended) > MOST_HEAPED:
            self.take()  # the thread is kept waiting by whoever reads the log

    def lost(self, losses: Sequence[tuple[SilentAttempt, Loss]]) -> None:
        self._lost.extend(losses)
        self._told.set()

    # Its own life

    def start(self) -> None:
        self._thread = threading.Thread(target=self._main, name="foliot-journal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Everything that was told is written, if somebody takes it within a second."""
        self._stopping.set()
        self._told.set()
        if self._thread is not None:
            self._thread.join(1.0)
        else:
            self.run_once()

    def _main(self) -> None:
        while self._told.wait() and not self._stopping.wait(WRITE_EVERY):
            self._told.clear()
            self.run_once()
            if self._unbegun:  # no event says when it begins
                self._told.set()
        self.run_once()

    def run_once(self) -> None:
        """Takes what was told, and writes what came of it. Only writing may take long, and nobody waits for that."""
        self.take()
        lines = self._lines
        while lines:
            piece = [lines.popleft() for _ in range(min(len(lines), 1_000))]
            if self.dropped > self._told_dropped:
                piece.append(self._dropped_line())
            if self._style is not None:
                piece = [self._style(line) for line in piece]
            self._put("".join(piece).encode("utf-8", "replace"))

    def _put(self, data: bytes) -> None:
        try:
            if self._write is not None:
                self._write(data)
        except OSError:  # whoever read it has gone; work goes on, and is told by the store
            self.dropped += data.count(b"\n")

    def take(self) -> None:
        """Counts what was told, and makes its lines. Also for whoever reads the tally, from any thread."""
        with self._taking:
            ended = _all_of(self._ended)  # first: what ended was claimed before
            fresh = [one for attempts in _all_of(self._claimed) for one in attempts]
            for attempt, ending in ended:
                if ending is not None:
                    self.tally.add(attempt.claimed, ending)
            for one in fresh:
                self.tally.claimed[_LANES[one.claimed.lane]] += 1
            if self._write is None:
                self._lost.clear()
                return
            self._tell(fresh, ended)

    def _tell(self, fresh: Iterable[Begun], ended: Sequence[tuple[Begun, Ending | None]]) -> None:
        """In the order in which it happened: what came of one claim after what came of the claim before it."""
        unbegun, found = self._unbegun, []
        unbegun.update(dict.fromkeys(fresh))
        for attempt in list(unbegun):
            at, claimed = attempt.started_at, attempt.claimed
            if at is not None:
                del unbegun[attempt]
                if self._level <= INFO:
                    about = self._about[attempt] = self._of(claimed)
                    late = (at - claimed.fire_at) / SECOND
                    line = f'{{"at":"{_moment(at)}","level":"info","event":"started",{about},"late":{late}}}\n'
                    found.append((at, claimed.token, claimed.number, 0, line))
        for attempt, ending in ended:
            unbegun.pop(attempt, None)
            common = self._about.pop(attempt, None)
            if ending is not None and (self._level <= INFO or ending.outcome not in _FINE):
                claimed = attempt.claimed
                line = self._ended_line(common or self._of(claimed), ending)
                found.append((ending.finished_at, claimed.token, claimed.number, 1, line))
        found.sort()
        lines = [one[4] for one in found]
        lines += [self._lost_line(silent, loss) for silent, loss in _all_of(self._lost)]
        room = max(MOST_LINES - len(self._lines), 0)
        self._lines.extend(lines[:room])
        self.dropped += max(len(lines) - room, 0)

    # Lines. As text at once, and what most of them have as it stands: this is done for every run.

    def _of(self, claimed: Claimed) -> str:
        """The three ids, and what else an operator looks for. What a run has none of is left out."""
        fields: dict[str, Any] = {"run": claimed.id, "attempt": claimed.attempt, "job": claimed.job}
        if claimed.schedule is not None:
            fields["schedule"] = schedule_of_series(claimed.schedule)
            if claimed.member is not None:
                fields["member"] = claimed.member
        if claimed.tenant is not None:
            fields["tenant"] = claimed.tenant
        if claimed.phase is not None:
            fields["check"] = True
        fields["queue"], fields["lane"] = claimed.queue or DEFAULT_QUEUE, _LANES[claimed.lane]
        fields["worker"] = self._worker
        return _within(fields)

    def _ended_line(self, about: str, ending: Ending) -> str:
        level = "info" if ending.outcome in _FINE else "warning"
        begin = f'{{"at":"{_moment(ending.finished_at)}","level":"{level}","event":"ended",{about},'
        begin += f'"outcome":"{ending.outcome}","then":"{ending.event}"'
        if ending.started_at is not None:
            begin += f',"duration":{max(ending.finished_at - ending.started_at, 0) / SECOND}'
        if ending.reason is None and ending.error is None and ending.retry_at is None:
            return begin + "}\n"
        fields: dict[str, Any] = {}
        if ending.retry_at is not None:
            fields["retry_at"] = _moment(ending.retry_at)
        if ending.reason is not None:
            fields["reason"] = ending.reason
        if ending.error is not None:
            fields["error"] = self._error(ending.error)
        return f"{begin},{_within(fields)}}}\n"

    def _lost_line(self, silent: SilentAttempt, loss: Loss) -> str:
        fields: dict[str, Any] = {"at": self._now(), "level": "warning", "event": "lost"}
        fields |= {"run": run_id(silent.number, silent.name), "attempt": silent.attempt, "job": silent.job}
        fields |= {"worker": silent.worker, "outcome": loss.outcome, "then": loss.event}
        fields["error"] = self._error(loss.error)
        return f"{{{_within(fields)}}}\n"

    def _dropped_line(self) -> str:
        count, self._told_dropped = self.dropped - self._told_dropped, self.dropped
        fields = {"at": self._now(), "level": "warning", "event": "dropped", "lines": count}
        return f"{{{_within(fields)}}}\n"

    def _error(self, error: str) -> str:
        return self._clean_text(error.partition("\n")[0])[:MOST_ERROR]

    def _now(self) -> str:
        return _moment(0 if self._clock is None else self._clock())


def _within(fields: dict[str, Any]) -> str:
    """A JSON object without its braces."""
    return _encode(fields)[1:-1].decode()


def _all_of(heap: deque[Any]) -> list[Any]:
    """Taken one by one from the front, so that whoever adds behind never waits."""
    return [heap.popleft() for _ in range(len(heap))]


_seconds: tuple[int, str] = (-1, "")


def _moment(at: Instant) -> str:
    """RFC 3339, to the microsecond. Many lines share a second, and the calendar is asked once for it."""
    global _seconds
    second, rest = divmod(at, SECOND)
    known, text = _seconds
    if known != second:
        text = rfc3339(second * SECOND)[:19]
        _seconds = (second, text)
    return f"{text}.{rest:06d}Z"


def as_text(line: str) -> str:
    """The same line for people: `2026-04-03T06:00:00.000213Z started april#1/1 job=pay late=0.000213`."""
    fields = msgspec.json.decode(line)
    rest = {name: value for name, value in fields.items() if name not in ("at", "level", "event", "run", "attempt")}
    about = f" {fields['run']}/{fields['attempt']}" if "run" in fields else ""
    told = " ".join(f"{name}={value}" for name, value in rest.items())
    return f"{fields['at']} {fields['event']}{about} {told}\n"
