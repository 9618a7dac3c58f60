"""An attempt in a process of its own, seen from its worker.

    spawn      a fresh interpreter in a session of its own; see child.py
    converse   it is told what to do, says how far it is, asks the store through us, and says how it ended
    reap       nothing is concluded before the process has ended and was waited for

A process that ends without a word has failed. Where it executed a run that may be poison, the run was lost alone.
One that was asked to stop and does not is killed, with all that it started; the request then decides its outcome.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
import threading
from contextlib import suppress

import msgspec

from foliot.clock import Clock, SystemClock
from foliot.domain.instant import Instant
from foliot.domain.policy import Policy, policy_to_json
from foliot.domain.run import Claimed, Ending, Progress
from foliot.domain.state import Outcome
from foliot.errors import FoliotError, InvalidInput
from foliot.work import wire
from foliot.work.attempt import Attempt, Stop
from foliot.work.describe import clean
from foliot.work.desk import Desk, Desks
from foliot.work.endings import Finding, concluded, hider, stopped, uninterrupted
from foliot.work.execute import Chance, unbegun
from foliot.work.handler import Handler
from foliot.work.kin import MARK, end_kin, end_with_kin
from foliot.work.place import place_of

LAST_WORDS = 1.0
"""Seconds: how long a process may take to end after it said how its attempt did, or to be heard after it ended."""


class NotIsolable(Exception):
    """A job whose attempts usually share their worker's process cannot have one of its own; the message says why."""


class IsolatedAttempt(Attempt):
    """What its process said is kept here until the store was told. The heartbeat's thread reads while the worker's
    loop writes, and both take away and add: so there is a lock."""

    isolated = True

    __slots__ = ("_lock", "_new", "cell", "conducting", "moved", "on_trial")

    def __init__(self, claimed: Claimed, handler: Handler, policy: Policy, *, on_trial: bool = False) -> None:
        super().__init__(claimed, handler, policy)
        self.on_trial = on_trial
        self.cell: Cell | None = None
        self.conducting: asyncio.Task[None] | None = None
        self.moved: Instant | None = None
        self._new: Progress | None = None
        self._lock = threading.Lock()

    def moved_at(self) -> Instant | None:
        return self.begun_at if self.moved is None else self.moved

    def ask_to_stop(self, reason: Stop) -> None:
        first = self.stop is None
        super().ask_to_stop(reason)
        if first and self.cell is not None:
            self.cell.pass_on(reason)

    def kill(self) -> None:
        if self.cell is not None:
            self.cell.kill()

    def hear(self, said: wire.Said) -> None:
        self.moved = said.moved_at
        if said.progress is None:
            return
        with self._lock:
            before, new = self._new, said.progress
            if before is not None:
                new = new._replace(
                    note=new.note or before.note,
                    checkpoint=new.checkpoint or before.checkpoint,
                    items=before.items + new.items,
                )
            self._new = new

    def news(self) -> Progress | None:
        if self.started_at is None:
            return None
        new = self._new
        if new is None and self.told is None:
            return Progress(self.claimed.number, self.claimed.token, self.started_at, None, None)
        return new

    def report(self) -> Progress | None:
        return self._new

    def was_told(self, progress: Progress, *, unheard: bool = False) -> None:
        if unheard:
            return
        self.told = (None, None)
        with self._lock:
            new = self._new
            if new is None:
                return
            rest = new._replace(
                note=None if new.note is progress.note else new.note,
                checkpoint=None if new.checkpoint is progress.checkpoint else new.checkpoint,
                items=new.items[len(progress.items) :],
            )
            self._new = rest if rest.note or rest.checkpoint or rest.items else None


async def execute_isolated(
    attempt: IsolatedAttempt, clock: Clock, chance: Chance, desks: Desks, store: str | None
) -> Ending | None:
    """One attempt, in a process that has ended when this returns. None for an attempt that never began. `store`: the
    URL by which that process can open it. NotIsolable: the handler did not begin, and its job did not ask for a process
    of its own."""
    if attempt.asked():
        return await unbegun(attempt, clock, chance, desks, uninterrupted)
    cell = Cell(attempt, clock, desks(attempt.claimed))
    try:
        await cell.spawn(store)
        said = await cell.converse()
    except (InvalidInput, OSError) as error:  # its job cannot be found; or no memory or no process is left, for now
        said = wire.Broken(f"{type(error).__name__}: {error}", isinstance(error, InvalidInput))
    finally:
        await cell.reap()
    if isinstance(said, wire.Ended) and said.ending is not None:
        return said.ending
    if attempt.started_at is None and attempt.stop in (Stop.DRAIN, Stop.LOST, Stop.CANCEL):
        return await unbegun(attempt, clock, chance, desks, uninterrupted)
    if attempt.on_trial and attempt.started_at is None and isinstance(said, wire.Broken):
        raise NotIsolable(said.error)
    attempt.started_at = attempt.started_at or cell.spawned_at
    finding = _found(attempt, said, cell, clock)
    return await concluded(attempt, finding, clock, chance, desks, uninterrupted)


def _found(attempt: IsolatedAttempt, said: wire.Ended | wire.Broken | None, cell: Cell, clock: Clock) -> Finding:
    """What is found of an attempt whose process could not say it."""
    if isinstance(said, wire.Broken):
        return Finding(Outcome.PERMANENT if said.permanent else Outcome.FAILED, clean(hider(attempt)(said.error)))
    how = cell.how_it_died() if said is None else "the process of the attempt was still starting"
    if attempt.stop is None:
        return Finding(Outcome.LOST if attempt.on_trial else Outcome.FAILED, how)
    finding = stopped(attempt, attempt.stop, None, clock)
    return finding._replace(error=f"{finding.error}; {how}" if finding.error else how)


class Cell:
    """The process, the line to it, and what is known of both."""

    def __init__(self, attempt: IsolatedAttempt, clock: Clock, desk: Desk) -> None:
        self.spawned_at = clock.now()
        self._attempt = attempt
        self._clock = clock
        self._desk = desk
        self._mark = secrets.token_hex(8)
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._killing: asyncio.Task[None] | None = None

    # ----------------------------------------------------------------------------------------------- life

    async def spawn(self, store: str | None) -> None:
        """Starts the process and tells it everything. InvalidInput when its job cannot be found by it."""
        attempt = self._attempt
        place = place_of(attempt.handler)
        here, there = socket.socketpair()
        try:
            # A session of its own: neither Ctrl-C nor the end of a terminal is its business, and its group is its own.
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "foliot.isolated", str(there.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(there.fileno(),),
                start_new_session=True,
                env={**os.environ, MARK: self._mark},
            )
            self._reader, self._writer = await asyncio.open_connection(sock=here)
        except BaseException:
            here.close()
            raise
        finally:
            there.close()
        attempt.begun_at = self._clock.monotonic()  # its start is part of its time; it says when the handler begins
        attempt.cell = self
        start = wire.Start(
            place=place,
            path=sys.path,
            claimed=attempt.claimed,
            policy=policy_to_json(attempt.policy),
            ahead=self._clock.now() - SystemClock().now(),
            worker=self._desk.worker_number(),
            store=store,
        )
        wire.send(self._writer, start)
        if attempt.stop is not None:
            self.pass_on(attempt.stop)

    async def converse(self) -> wire.Ended | wire.Broken | None:
        """Listens until the attempt has ended, one way or another; None when its process ended without a word."""
        assert self._process is not None
        listening = asyncio.ensure_future(self._listen())
        waiting = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait({listening, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not listening.done():
                # What it said before it ended is still in the line. Others that it started may hold the line open.
                await asyncio.wait({listening}, timeout=LAST_WORDS)
            return listening.result() if listening.done() else None
        finally:
            listening.cancel()
            waiting.cancel()

    async def reap(self) -> None:
        """Sees to it that nothing is left of it, and that it was waited for."""
        process, ended = self._process, False
        if process is None:
            return
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), LAST_WORDS if self._killing is None else None)
                ended = True
        finally:
            if not ended:
                self.kill()
                await process.wait()
            if process.returncode != 0:
                await asyncio.to_thread(end_kin, self._mark)
            for answering in self._answering:
                answering.cancel()
            if self._writer is not None:
                self._writer.close()
            self._attempt.cell = None

    def kill(self) -> None:
        """At once, with everything that it started. `reap` tells when it has ended."""
        process = self._process
        if process is not None and process.returncode is None and self._killing is None:
            killing = asyncio.to_thread(end_with_kin, process.pid, self._mark)
            self._killing = asyncio.get_running_loop().create_task(killing)

    def how_it_died(self) -> str:
        """For people, who want to know whom to blame."""
        code = None if self._process is None else self._process.returncode
        if code is None or code >= 0:
            return f"the handler's process exited with code {code} without a result"
        try:
            name = f" ({signal.Signals(-code).name})"
        except ValueError:
            name = ""
        if self._killing is not None:
            return "the process of the attempt did not stop and was killed"
        hint = "; it may have run out of memory" if -code == signal.SIGKILL else ""
        return f"the handler's process was killed by signal {-code}{name}{hint}"

    # ----------------------------------------------------------------------------------------- conversation

    def pass_on(self, reason: Stop) -> None:
        """That the attempt is to stop."""
        if self._writer is not None and not self._writer.is_closing():
            wire.send(self._writer, wire.Stopping(reason))

    async def _listen(self) -> wire.Ended | wire.Broken | None:
        assert self._reader is not None
        attempt = self._attempt
        while True:
            try:
                message = await wire.from_child(self._reader)
            except (ValueError, msgspec.MsgspecError) as error:
                return wire.Broken(f"the handler's process sent an invalid message: {error}", False)
            match message:
                case wire.Began():
                    attempt.started_at, attempt.begun_at = message.started_at, message.begun_at
                case wire.Said():
                    attempt.hear(message)
                case wire.Asked():
                    answering = asyncio.ensure_future(self._answer(message))
                    self._answering.add(answering)
                    answering.add_done_callback(self._answering.discard)
                case wire.Ended() | wire.Broken() | None:
                    return message

    async def _answer(self, asked: wire.Asked) -> None:
        try:
            given, _ = wire.QUESTIONS[asked.verb]
            arguments = msgspec.msgpack.decode(asked.arguments, type=given, strict=False)
            value = await getattr(self._desk, asked.verb)(*arguments)
            answer = wire.Answer(asked.question, msgspec.msgpack.encode(value))
        except Exception as error:  # whatever it is, it belongs to who asked
            kind = type(error).__name__ if isinstance(error, FoliotError) else "StoreError"
            answer = wire.Answer(asked.question, error=(kind, str(error)))
        if self._writer is not None and not self._writer.is_closing():
            wire.send(self._writer, answer)
