"""One round: one workload, on one store, with the code of one side.

    python round_program.py OPTIONS        OPTIONS is the JSON form of `Options`

The comparison starts it as a program. The scheduler and the worker of that round load it as their app. It imports only
public names of `foliot`, and it starts `foliot scheduler` and `foliot worker`. So it also runs with commits whose
modules have other names. It works on Linux only, because it reads the CPU clocks of other processes.
"""

from __future__ import annotations

import asyncio
import json
import math
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any, NamedTuple, Self

import apsw
import psycopg

import foliot
from foliot import Context, Foliot, every

SOURCE = Path(os.environ["AGAINST_SOURCE"])
"""The folder that holds the package `foliot` of this side."""
if not Path(foliot.__file__).is_relative_to(SOURCE):
    raise ImportError(f"foliot was imported from {foliot.__file__}, which is not below {SOURCE}")

STARTS_FILE = Path("starts")
"""In the working directory, which is the round's own."""
SCHEDULES = "AGAINST_SCHEDULES"
"""Environment variable: how many schedules the app declares. Only the scheduler and the worker have it."""
PERIOD = "AGAINST_PERIOD"
"""Environment variable: seconds in which each schedule ticks once, evenly spread. Without it all tick every second."""
CONCURRENCY = "AGAINST_CONCURRENCY"
"""Environment variable: the limit of the job, if it has one. Only the scheduler and the worker have it."""
LOOSE, TIGHT = 10_000, 50
"""Limits of the job in `limits` and in `waiters`."""
NOTE = "sixty bytes of payload, no more"
SLOTS = 1_000
BATCH = 1_000
WARM_RUNS = 100
SETTLE = 0.5
"""Seconds that the processes get before the first due time."""
AFTER_OUTCOMES = 0.2
"""Seconds after the last outcome was written, before CPU time is read."""
STEADY_RATE = 500
TICKING = 3
"""Seconds for which schedules tick while they are measured."""
TICK_GRACE = 2.0
"""Seconds after the last tick in which its runs may start."""
MISSING_TICK = TICKING + TICK_GRACE
SECOND = 1_000_000
"""Times are in microseconds since 1970, by the clock of this host, unless a name or a comment gives another unit."""
STARTING = 10
"""Seconds in which each schedule of `start` ticks once, and for which ticks are measured after the first start."""
IDLE_PENDING = 20_000
IDLE_SETTLE, IDLE = 10.0, 15.0
"""Seconds after the start of the processes, and seconds for which they are measured then."""
IDLE_GAP = 0.05
"""Average seconds between two promises for now."""
FAR = 30 * 86_400 * SECOND
TRIES = 3
STDIN, STDOUT = 0, 1
WAIT_TIMEOUT = 60.0
STOP_TIMEOUT = 30.0


# ------------------------------------------------------------------------------------------------------------- the app


class Starts:
    """A file that worker and round share: the number of starts, then a label and a time for each start.

    One event loop of one process writes it, because handlers are async and there is one worker.
    """

    def __init__(self, file: Path) -> None:
        with file.open("r+b") as opened:
            self._cells = memoryview(mmap.mmap(opened.fileno(), 0)).cast("q")

    @classmethod
    def make(cls, file: Path, capacity: int) -> Starts:
        file.write_bytes(bytes(8 * (1 + 2 * capacity)))
        return cls(file)

    def add(self, label: int, started: int) -> None:
        count = self._cells[0]
        self._cells[2 * count + 1] = label
        self._cells[2 * count + 2] = started
        self._cells[0] = count + 1

    def count(self) -> int:
        return self._cells[0]

    def read(self, first: int = 0) -> list[tuple[int, int]]:
        """Label and time of each start from number `first` on."""
        cells = self._cells[2 * first + 1 : 2 * self.count() + 1].tolist()
        return list(zip(cells[::2], cells[1::2], strict=True))


def now() -> int:
    return time.time_ns() // 1_000


def moment(time: int) -> datetime:
    return datetime.fromtimestamp(time / SECOND, UTC)


def sleep_until(seconds: float) -> None:
    """Until a time in seconds since 1970."""
    time.sleep(max(0.0, seconds - time.time()))


app = Foliot()
starts: Starts | None = None
"""Only the scheduler and the worker have it."""


@app.job(name="noop", concurrency=int(os.environ[CONCURRENCY]) if CONCURRENCY in os.environ else None)
async def noop(number: int, note: str) -> None:
    started = now()
    if starts is not None:
        starts.add(number, started)


@app.job(name="tick")
async def tick(context: Context) -> None:
    started = now()
    if starts is not None and context.nominal is not None:
        starts.add(round(context.nominal.timestamp() * SECOND), started)


def declare(count: int, period: int | None) -> None:
    """Declares schedules with a tick each second, or with one tick each `period` seconds, spread evenly."""
    for place in range(count):
        rule = every("1s")
        if period is not None:
            rule = every(f"{period}s", start=moment(period * place * SECOND // count))
        app.schedule(f"tick{place}", tick, rule)


if SCHEDULES in os.environ:
    starts = Starts(STARTS_FILE)
    declare(int(os.environ[SCHEDULES]), int(os.environ[PERIOD]) if PERIOD in os.environ else None)


# ----------------------------------------------------------------------------------------------------------- the round


@dataclass(frozen=True)
class Options:
    workload: str
    runs: int
    turns: int
    """Of `bulk` and `single`; 0 for other workloads."""
    server: int | None
    """Process id of the PostgreSQL server, where the store is one."""
    answer: str
    """The file to which the round writes its answer."""


@dataclass(frozen=True)
class Answer:
    measures: dict[str, float]
    """By their names in `bench.against.workloads.MEASURES`."""
    early: int
    """Runs that started before their due time."""


class RoundError(Exception):
    """The round could not be measured."""


def cpu_seconds(pid: int) -> float:
    """CPU time of a process with all its threads, without its children. The clock id is Linux's CPUCLOCK_SCHED."""
    return time.clock_gettime((~pid << 3) | 2)


def server_cpu_seconds(postmaster: int) -> float:
    """CPU time of the server: of its living processes, and of those that have ended."""
    children_file = Path(f"/proc/{postmaster}/task/{postmaster}/children")
    while True:
        children = children_file.read_text()
        fields = Path(f"/proc/{postmaster}/stat").read_text().rpartition(")")[2].split()
        seconds = sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK") + cpu_seconds(postmaster)
        try:
            seconds += sum(cpu_seconds(int(child)) for child in children.split())
        except OSError:
            continue  # a child ended meanwhile: its time is in the postmaster's fields next time
        if children_file.read_text() == children:
            return seconds


def switches(pid: int) -> int:
    """Voluntary context switches of a process, by all its threads."""
    count = 0
    for folder in Path(f"/proc/{pid}/task").iterdir():
        try:
            status = (folder / "status").read_text()
        except OSError:
            continue  # the thread ended meanwhile
        count += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return count


class Meter:
    """CPU time of processes, and of the server, and wake-ups of processes, between each start and stop."""

    def __init__(self, pids: list[int], server: int | None) -> None:
        self._pids = pids
        self._server = server
        self._processes_seconds = self._server_seconds = 0.0
        self.wakeups = 0

    def start(self) -> None:
        self._add(-1)

    def stop(self) -> None:
        self._add(1)

    def _add(self, sign: int) -> None:
        self._processes_seconds += sign * sum(map(cpu_seconds, self._pids))
        if self._server is not None:
            self._server_seconds += sign * server_cpu_seconds(self._server)
        self.wakeups += sign * sum(map(switches, self._pids))

    def per_run(self, runs: int) -> dict[str, float]:
        """Microseconds for each run: of all, and of the server alone."""
        measures = {"cpu_us": (self._processes_seconds + self._server_seconds) * SECOND / runs}
        if self._server is not None:
            measures["server_cpu_us"] = self._server_seconds * SECOND / runs
        return measures


class Processes:
    """One scheduler and one worker, as a user starts them."""

    def __init__(self, schedules: int = 0, concurrency: int | None = None, period: int | None = None) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        environment = {**os.environ, SCHEDULES: str(schedules)}
        if concurrency is not None:
            environment[CONCURRENCY] = str(concurrency)
        if period is not None:
            environment[PERIOD] = str(period)
        try:
            for role, options in {"scheduler": [], "worker": ["--slots", str(SLOTS)]}.items():
                command = [sys.executable, "-m", "foliot", role, "--app", __file__, "--log-format", "off"]
                command += ["--log-level", "warning", "--store", os.environ["FOLIOT_STORE"], *options]
                # What they write is shown if the round fails.
                self._processes[role] = subprocess.Popen(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr
                )
        except BaseException:
            self.stop()
            raise

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    def check(self) -> None:
        for role, process in self._processes.items():
            if process.poll() is not None:
                raise RoundError(f"the {role} ended with exit code {process.returncode} while it was measured")

    def wait_for(self, condition: Callable[[], bool], status: Callable[[], str]) -> None:
        """`status` is text for the error if the condition does not come true in time."""
        deadline = time.monotonic() + WAIT_TIMEOUT
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise RoundError(f"after {WAIT_TIMEOUT:g} s: {status()}")
            time.sleep(0.02)

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def check_stopped(self) -> None:
        for role, process in self._processes.items():
            if process.returncode:
                raise RoundError(f"the {role} was asked to end and ended with exit code {process.returncode}")


@contextmanager
def fleet(schedules: int = 0, concurrency: int | None = None, period: int | None = None) -> Iterator[Processes]:
    """Scheduler and worker, stopped at the end whatever happens."""
    processes = Processes(schedules, concurrency, period)
    try:
        yield processes
    finally:
        processes.stop()
    processes.check_stopped()


def promise(dues: list[int]) -> None:
    """Promises a run for each due time. A run's number is its place in the list."""
    for first in range(0, len(dues), BATCH):
        app.promise_many(
            noop.promise_at(moment(due), number=number, note=NOTE)
            for number, due in enumerate(dues[first : first + BATCH], first)
        )


class Pending:
    """Runs that have not ended. It reads the table of runs, which has the same name in all commits."""

    def __enter__(self) -> Self:
        url = os.environ["FOLIOT_STORE"]
        self._connection: Any
        if url.startswith("sqlite:///"):
            self._table = "run"
            self._connection = apsw.Connection(url.removeprefix("sqlite:///"), flags=apsw.SQLITE_OPEN_READONLY)
        else:
            self._table = "foliot.run"
            self._connection = psycopg.connect(url, autocommit=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def wait_for_none(self, processes: Processes) -> None:
        processes.wait_for(lambda: not self._exist(), lambda: "some runs have not ended")

    def _exist(self) -> bool:
        return bool(self._connection.execute(f"SELECT EXISTS (SELECT 1 FROM {self._table})").fetchone()[0])


class Executed(NamedTuple):
    """Runs that were promised before they were due, and that have all started once."""

    lateness: list[float]
    """Milliseconds from due to start, in the order of the starts."""
    seconds: float
    """From the first due time to the last start."""
    seconds_to_end: float
    """From the first due time to the last outcome."""
    cpu: dict[str, float]

    @property
    def early(self) -> int:
        return sum(ms < 0 for ms in self.lateness)


def execute(options: Options, spread: Callable[[int], list[int]], concurrency: int | None = None) -> Executed:
    """Starts scheduler and worker, promises runs, and waits for their starts. `spread` gives the due times.

    1. Execute some runs, so that both processes are ready. 2. Promise all runs, due so late that this leaves SETTLE.
    If it took longer, let those runs end and do it again with twice the time. 3. Wait for all starts, then
    for all outcomes.
    """
    lead = SETTLE + 0.25 + options.runs / 20_000
    starts_seen = Starts.make(STARTS_FILE, WARM_RUNS + TRIES * options.runs)
    promise([now()] * WARM_RUNS)
    with fleet(concurrency=concurrency) as processes, Pending() as pending:
        wait_for_starts(processes, starts_seen, WARM_RUNS)
        time.sleep(SETTLE)
        for _ in range(TRIES):
            first, meter = starts_seen.count(), Meter(processes.pids, options.server)
            meter.start()
            dues = spread(now() + round(lead * SECOND))
            promise(dues)
            was_ready = now() < dues[0] - SETTLE * SECOND
            sleep_until(dues[-1] / SECOND)
            wait_for_starts(processes, starts_seen, first + len(dues))
            pending.wait_for_none(processes)
            ended = now()
            time.sleep(AFTER_OUTCOMES)
            meter.stop()
            if was_ready:
                break
            lead *= 2
        else:
            raise RoundError(f"{len(dues)} promises took longer than {lead / 2:.0f} s, and the runs were due by then")
        cpu = meter.per_run(len(dues))
        executed = starts_seen.read(first)
    numbers = sorted(number for number, _ in executed)
    if numbers != list(range(len(dues))):
        raise RoundError(f"{len(dues)} runs were promised: {len(set(numbers))} started, {len(numbers)} times in all")
    lateness = [(started - dues[number]) / 1_000 for number, started in executed]
    last_start = max(started for _, started in executed)
    return Executed(lateness, (last_start - dues[0]) / SECOND, (max(ended, last_start) - dues[0]) / SECOND, cpu)


def wait_for_starts(processes: Processes, starts_seen: Starts, count: int) -> None:
    processes.wait_for(lambda: starts_seen.count() >= count, lambda: f"{starts_seen.count()} of {count} runs started")


def p50_and_p99(milliseconds: list[float]) -> dict[str, float]:
    ordered = sorted(milliseconds)
    return {"p50_ms": ordered[len(ordered) // 2], "p99_ms": ordered[len(ordered) * 99 // 100]}


def burst(options: Options, concurrency: int | None = None) -> Answer:
    """All runs are due at one moment. The rates are from that moment to the last start, and to the last outcome."""
    executed = execute(options, lambda due: [due] * options.runs, concurrency)
    rates = {"rate": options.runs / executed.seconds, "end_rate": options.runs / executed.seconds_to_end}
    return Answer({**rates, **executed.cpu}, executed.early)


def limits(options: Options) -> Answer:
    """A burst under a limit that never makes a run wait."""
    return burst(options, LOOSE)


def waiters(options: Options) -> Answer:
    """A burst of which nearly all runs wait for a slot."""
    return burst(options, TIGHT)


def steady(options: Options) -> Answer:
    """500 runs are due in each second, evenly. Lateness is the time from due to start."""
    executed = execute(options, lambda due: [due + number * SECOND // STEADY_RATE for number in range(options.runs)])
    return Answer({**p50_and_p99(executed.lateness), **executed.cpu}, executed.early)


def schedules(options: Options) -> Answer:
    """Each schedule has one run a second. A tick without a run counts as 5 s late, unless half of them have none."""
    count, runs = options.runs, options.runs * TICKING
    starts_seen = Starts.make(STARTS_FILE, 120 * count)
    with fleet(count) as processes:
        # Ready: every schedule has started for the same tick. Late ticks of the start-up are over then.
        processes.wait_for(
            lambda: count in Counter(due for due, _ in starts_seen.read()).values(),
            lambda: f"the {count} schedules have never all started for the same tick",
        )
        begin = math.ceil(time.time() + SETTLE)
        end = begin + TICKING
        # CPU time: a period of whole seconds holds the preparation of as many ticks as it has starts.
        sleep_until(begin - SETTLE)
        first, meter = starts_seen.count(), Meter(processes.pids, options.server)
        meter.start()
        sleep_until(end - SETTLE)
        meter.stop()
        dues = range(begin * SECOND, end * SECOND)
        while time.time() < end - 1 + TICK_GRACE and sum(due in dues for due, _ in starts_seen.read(first)) < runs:
            processes.check()
            time.sleep(0.05)
        executed = [(due, started) for due, started in starts_seen.read(first) if due in dues]
    answer = answer_of_ticks(executed, runs)
    return Answer({**answer.measures, **meter.per_run(runs)}, answer.early)


def answer_of_ticks(executed: list[tuple[int, int]], runs: int) -> Answer:
    """Lateness of ticks by due time and start. A tick without a run counts as 5 s late, unless half of them have
    none."""
    missing = runs - len(executed)
    if missing < 0 or 2 * missing >= runs:
        raise RoundError(f"{runs} ticks were due, and {len(executed)} runs started for them")
    late = [(started - due) / 1_000 for due, started in executed]
    measures = {**p50_and_p99(late + [MISSING_TICK * 1_000] * missing), "missing_ticks": missing}
    return Answer(measures, early=sum(ms < 0 for ms in late))


def start(options: Options) -> Answer:
    """Scheduler and worker start with schedules that are stored already. Each ticks once in ten seconds, evenly spread.
    The first start is counted from the start of the processes, and lateness from that first start on."""
    count = options.runs
    declare(count, STARTING)
    app.apply()
    starts_seen = Starts.make(STARTS_FILE, 60 * count)
    began = now()
    with fleet(count, period=STARTING) as processes:
        meter = Meter(processes.pids, options.server)
        meter.start()
        processes.wait_for(lambda: starts_seen.count() > 0, lambda: "no run started")
        begin = starts_seen.read()[0][1]
        dues = range(begin, begin + STARTING * SECOND)
        # Executed ticks are counted once all were due, because counting takes time from the processes.
        while now() < dues.stop or (
            now() < dues.stop + TICK_GRACE * SECOND and sum(due in dues for due, _ in starts_seen.read()) < count
        ):
            processes.check()
            time.sleep(0.2)
        meter.stop()
        executed = [(due, started) for due, started in starts_seen.read() if due in dues]
    answer = answer_of_ticks(executed, count)
    first = {"first_ms": (begin - began) / 1_000}
    return Answer({**first, **answer.measures, **meter.per_run(count)}, answer.early)


def idle(options: Options) -> Answer:
    """Scheduler and worker have nothing to do: all runs are due on a day that is far away. Then runs are promised for
    now, one at a time, with random gaps between them."""
    starts_seen = Starts.make(STARTS_FILE, WARM_RUNS + options.runs)
    far = now() + FAR
    promise([far + place for place in range(IDLE_PENDING)])
    promise([now()] * WARM_RUNS)
    chance = random.Random(1)
    with fleet() as processes:
        wait_for_starts(processes, starts_seen, WARM_RUNS)
        time.sleep(IDLE_SETTLE)
        meter = Meter(processes.pids, options.server)
        meter.start()
        time.sleep(IDLE)
        meter.stop()
        called: list[int] = []
        for _ in range(options.runs):
            time.sleep(chance.uniform(0, 2 * IDLE_GAP))
            called.append(now())
            promise([called[-1]])
        wait_for_starts(processes, starts_seen, WARM_RUNS + options.runs)
        started = sorted(at for _, at in starts_seen.read(WARM_RUNS))
    late = [(at - due) / 1_000 for at, due in zip(started, called, strict=True)]
    used = {"wakeups": meter.wakeups / IDLE, "idle_cpu_us": meter.per_run(1)["cpu_us"] / IDLE}
    return Answer({**used, **p50_and_p99(late)}, early=sum(ms < 0 for ms in late))


def alternate(options: Options, promise_turn: Callable[[int, int], object]) -> dict[str, float]:
    """Promises by turns with the round of the other side. `promise_turn` takes the first number and how many.

    The comparison sends a byte for each turn. It gets one when the round is ready, and one after each turn.
    """
    size = max(1, options.runs // options.turns)
    meter = Meter([os.getpid()], options.server)
    rates: list[float] = []
    os.write(STDOUT, b".")
    for place in range(options.turns):
        if not os.read(STDIN, 1):
            raise RoundError("the comparison is gone")
        meter.start()
        began = time.perf_counter()
        promise_turn(place * size, size)
        rates.append(size / (time.perf_counter() - began))
        meter.stop()
        os.write(STDOUT, b".")
    return {"rate": median(rates), **meter.per_run(size * options.turns)}


def bulk(options: Options) -> Answer:
    """Promises in batches of 1,000, due at random times of a day that is far away."""
    chance = random.Random(1)
    base = now() + FAR
    dues = [base + chance.randrange(86_400 * SECOND) for _ in range(options.runs)]
    promise(dues[:BATCH])  # opens the store
    return Answer(alternate(options, lambda first, size: promise(dues[first : first + size])), early=0)


def single(options: Options) -> Answer:
    """One asynchronous caller makes one promise after another, each of them durable."""
    milliseconds: list[float] = []
    far = moment(now() + FAR)

    async def call(first: int, size: int) -> None:
        for number in range(first, first + size):
            began = time.perf_counter()
            await noop.at_async(far, number=number, note=NOTE)
            milliseconds.append((time.perf_counter() - began) * 1_000)

    with asyncio.Runner() as runner:
        runner.run(call(0, WARM_RUNS))
        milliseconds.clear()
        measures = alternate(options, lambda first, size: runner.run(call(first, size)))
        runner.run(app.close_async())
    return Answer({**measures, **p50_and_p99(milliseconds)}, early=0)


PROGRAMS: dict[str, Callable[[Options], Answer]] = {
    "burst": burst,
    "limits": limits,
    "waiters": waiters,
    "steady": steady,
    "schedules": schedules,
    "start": start,
    "idle": idle,
    "bulk": bulk,
    "single": single,
}


def end_with_comparison() -> None:
    """Ends this round with all its processes when the comparison is gone: its end of our standard input closes."""
    os.read(STDIN, 1)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


def exit_in_order(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def main() -> None:
    signal.signal(signal.SIGTERM, exit_in_order)
    values: dict[str, Any] = json.loads(sys.argv[1])
    options = Options(**values)
    if not options.turns:
        threading.Thread(target=end_with_comparison, daemon=True).start()
    try:
        answer = PROGRAMS[options.workload](options)
    except RoundError as error:
        sys.exit(f"round failed: {error}")
    finally:
        app.close()
    Path(options.answer).write_text(json.dumps(asdict(answer)))


if __name__ == "__main__":
    main()
