"""What an adapter is told, and what it answers. Runs inside the environment of a peer: standard library only.

    python adapter.py DSN VERB OPTIONS      OPTIONS is JSON; answers are JSON lines on standard output

    setup                                   makes the peer's tables
    promise   count, due, rate, seconds     delayed jobs in the peer's largest batches; all due at `due` (milliseconds
                                            since 1970), or `rate` of them in each second from there; stops early when
                                            `seconds` have passed. Answers {"count", "seconds"}
    single    due, seconds, callers         so many callers, each of them one by one, each awaited. The same answer
    work      place, out, schedules         a worker process; says {"ready": true} when it is about to ask for work.
                                            On SIGUSR2 it writes what was recorded to `out`, and goes on. It ends at
                                            the end of its standard input: nothing outlives a bench that was killed

A handler does nothing but call `record(due)`: two appends, the same for everybody. Times are of this host's clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

NOTE = "sixty bytes of payload"
"""With a due time in milliseconds and their names, the arguments of a job are about sixty bytes of JSON."""

_dues: list[Any] = []
_starts: list[int] = []


def record(due: Any, _now: Any = time.time_ns) -> None:
    """`due`: when the job was due, in milliseconds or as a datetime."""
    _starts.append(_now())
    _dues.append(due)


def record_into(out: str) -> None:
    """From now on SIGUSR2 writes what was recorded: due and start, in milliseconds. Call it in the main thread."""

    def write(number: int, frame: FrameType | None) -> None:
        dues = [due.timestamp() * 1_000 if isinstance(due, datetime) else due for due in _dues]
        text = json.dumps({"due": dues, "start": [start / 1e6 for start in _starts[: len(dues)]]})
        Path(f"{out}.part").write_text(text, "utf-8")
        os.replace(f"{out}.part", out)

    signal.signal(signal.SIGUSR2, write)


def say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


def moment(due: int) -> datetime:
    return datetime.fromtimestamp(due / 1_000, UTC)


class Adapter(ABC):
    """One peer. Every call may take its time; only `promise` and `promise_many` are measured."""

    BATCH = 1_000
    """As many as one call of `promise_many` should get: where the peer is fastest."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    @abstractmethod
    async def setup(self) -> None: ...

    @abstractmethod
    async def open(self) -> None:
        """For promising."""

    @abstractmethod
    async def promise(self, due: int) -> None:
        """Durable when it returns."""

    @abstractmethod
    async def promise_many(self, dues: list[int]) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def work(self, place: int, schedules: int) -> None:
        """Works until the process is ended. With `schedules`, that many tick every second, and `place` counts workers.

        Calls `say(ready=True)` when it is about to ask for work."""


def dues_of(count: int, due: int, rate: int) -> Iterator[int]:
    return (due + place * 1_000 // rate if rate else due for place in range(count))


def main(kind: type[Adapter], run: Any = asyncio.run) -> None:
    """`run` runs a coroutine: with the event loop that the peer itself would choose."""
    _, dsn, verb, text = sys.argv
    options = json.loads(text)
    adapter = kind(dsn)
    if verb == "work":
        record_into(options["out"])
        threading.Thread(target=_end_with_input, daemon=True).start()
        run(adapter.work(options["place"], options["schedules"]))
    else:
        verbs: dict[str, Any] = {"setup": _setup, "promise": _promise, "single": _single}
        run(verbs[verb](adapter, **options))


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


async def _setup(adapter: Adapter) -> None:
    await adapter.setup()
    say(done=True)


async def _promise(adapter: Adapter, count: int, due: int, rate: int, seconds: float) -> None:
    await adapter.open()
    dues = list(dues_of(count, due, rate))
    done, began = 0, time.perf_counter()
    while done < count and time.perf_counter() - began < seconds:
        batch = dues[done : done + adapter.BATCH]
        await adapter.promise_many(batch)
        done += len(batch)
    say(count=done, seconds=time.perf_counter() - began)
    await adapter.close()


async def _single(adapter: Adapter, due: int, seconds: float, callers: int) -> None:
    await adapter.open()
    await asyncio.gather(*(adapter.promise(due) for _ in range(callers)))  # connections and caches
    done, began = 0, time.perf_counter()

    async def call() -> None:
        nonlocal done
        while time.perf_counter() - began < seconds:
            await adapter.promise(due)
            done += 1

    await asyncio.gather(*(call() for _ in range(callers)))
    say(count=done, seconds=time.perf_counter() - began)
    await adapter.close()


def begin_of(schedules: int) -> int:
    """For peers whose schedules are added one by one: ticks begin when all are there, so that no backlog is made."""
    return (int(time.time()) + 5 + schedules // 40) * 1_000


async def until(due: int) -> None:
    await asyncio.sleep(max(0.0, due / 1_000 - time.time()))


def in_order(one_by_one: Iterator[Coroutine[Any, Any, Any]], callers: int) -> Coroutine[Any, Any, Any]:
    """For peers that take no batch: so many callers share the work."""

    async def call() -> None:
        for waiting in one_by_one:
            await waiting

    async def together() -> None:
        await asyncio.gather(*(call() for _ in range(callers)))

    return together()
