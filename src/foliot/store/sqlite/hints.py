"""Hints between the processes of one host: a commit that other processes may wait for.

A process that listens has a datagram socket in a directory beside the file, `foliot.db-wake`. After a commit the writer
sends one byte to each socket. It never waits: where a socket is full, its owner has not read earlier hints, and will.
A socket without an owner was left by a process that was killed, and the writer removes it.

A lost hint costs time, and nothing else. Commits of other programs, and of releases before this one, send none. So a
process that listens looks once a second as well.

Only processes of the file's owner listen. The directory belongs to the owner alone, so a process of another user may be
unable to send hints. Where other users may write the file, or a socket cannot be made, no process listens: each reads
the file's version every few milliseconds instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import re
import secrets
import socket
import stat
import threading
import time
from collections.abc import Callable, Mapping

_LONGEST_PATH = 100
"""Bytes of a socket's path; the systems' limits are 104 and 108."""
_FRESH = 0.1
"""Seconds for which a change of the directory may share its time stamp with an earlier one."""
_ABSENT_FOR = 0.01
"""Seconds for which a sender that found no directory does not look again."""
_CHECK_EVERY = 1.0
"""Seconds between two looks whether our socket is still there."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

_QUIET_TABLES = (
    *("alert", "audit", "claim", "event", "instance", "seal", "sequence", "shard", "tallied", "tally", "unsealed"),
    *("watched", "attempt", "token", "session", "collected"),
)
"""No process waits for a write that changes these alone: leases, heartbeats, the memory of the watch, alerts."""
_QUIET_QUERIES = frozenset({"claim_runs", "shrink_chunk", "drop_chunk", "forget_stirs"})
"""No process waits for what a claim takes away, nor for a stir that was read."""
_WRITE = re.compile(r"\b(?:INSERT\s+(?:OR\s+\w+\s+)?INTO|UPDATE|DELETE\s+FROM|REPLACE\s+INTO)\s+(\w+)", re.IGNORECASE)

_log = logging.getLogger("foliot.store")


def news_of(queries: Mapping[str, str]) -> frozenset[str]:
    """The names of the queries after which others may find something to do."""
    return frozenset(
        name
        for name, text in queries.items()
        if name not in _QUIET_QUERIES and any(table not in _QUIET_TABLES for table in _written(text))
    )


def _written(text: str) -> list[str]:
    return [table for table in _WRITE.findall(text) if table != "SET"]  # ON CONFLICT ... DO UPDATE SET


def directory_of(path: str) -> str:
    """Beside the file itself: a symbolic link to it leads to the same directory."""
    return f"{os.path.realpath(path)}-wake"


class Sender:
    """Sends hints to all listeners. From any thread, one at a time."""

    def __init__(self, path: str) -> None:
        self._directory = directory_of(path)
        self._lock = threading.Lock()
        self._absent_until = 0.0 if hasattr(socket, "AF_UNIX") else math.inf
        self._socket: socket.socket | None = None
        self._handle = -1
        self._listed_at = 0.0
        self._changed_at = -1
        self._names: list[str] = []

    def send(self) -> None:
        """Never waits, and never fails."""
        now = time.monotonic()
        if now < self._absent_until:
            return
        if not os.access(self._directory, os.F_OK):
            self._absent_until = now + _ABSENT_FOR  # no process listens
            return
        with self._lock:
            try:
                names = self._listeners()
            except OSError:
                return  # the directory was removed just now, or this user may not read it
            for name in names:
                self._send(name)

    def close(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            self._forget_handle()

    def _forget_handle(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _listeners(self) -> list[str]:
        """Names of the sockets, listed again when the directory has changed."""
        changed_at = os.stat(self._directory).st_mtime_ns
        is_fresh = self._listed_at - changed_at / 1e9 < _FRESH
        if changed_at != self._changed_at or is_fresh:
            self._listed_at, self._changed_at = time.time(), changed_at
            self._forget_handle()  # it may be another directory of the same name
            self._names = os.listdir(self._directory)
        return self._names

    def _send(self, name: str) -> None:
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            self._socket.sendto(b"!", self._path(name))
        except ConnectionRefusedError:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._directory, name))
        except OSError:
            pass  # it is full, or gone, or belongs to another user

    def _path(self, name: str) -> str:
        path = os.path.join(self._directory, name)
        if len(os.fsencode(path)) <= _LONGEST_PATH:
            return path
        if self._handle < 0:
            self._handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._handle}/{name}"


class Listener:
    """One event loop's socket. Everything here happens in that loop."""

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop) -> None:
        """OSError where this process cannot listen."""
        self._directory = directory_of(path)
        self.loop = loop
        self._heard = 0
        self._callbacks: list[Callable[[], None]] = []
        self._checked_at = time.monotonic()
        self._socket, self._name = self._bound(path)
        self._late_look = self._start()

    def when_heard(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    @property
    def version(self) -> int:
        """Another number whenever something was heard in between."""
        now = time.monotonic()
        if now - self._checked_at >= _CHECK_EVERY:
            self._checked_at = now
            if not os.path.exists(self._name):
                self._listen_again()
        return self._heard

    def close(self) -> None:
        self._late_look.cancel()
        if not self.loop.is_closed():
            with contextlib.suppress(ValueError, OSError):
                self.loop.remove_reader(self._socket.fileno())
        self._socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self._name)
        with contextlib.suppress(OSError):
            os.rmdir(self._directory)  # unless others listen, too

    def _bound(self, path: str) -> tuple[socket.socket, str]:
        file = os.stat(path)
        if file.st_uid != os.geteuid() or file.st_mode & _OTHERS_WRITE:
            raise PermissionError("others may write the file")
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._directory, 0o700)
        directory = os.lstat(self._directory)
        if not stat.S_ISDIR(directory.st_mode) or directory.st_uid != os.geteuid():
            raise PermissionError(f"{self._directory} is not a directory of this user")
        if stat.S_IMODE(directory.st_mode) != 0o700:
            os.chmod(self._directory, 0o700)
        name = os.path.join(self._directory, f"{os.getpid()}-{secrets.token_hex(4)}")
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            made.setblocking(False)
            self._bind(made, name)
        except BaseException:
            made.close()
            raise
        return made, name

    def _start(self) -> asyncio.TimerHandle:
        self.loop.add_reader(self._socket.fileno(), self._hear)
        # A sender that saw no directory just before sends no hints until then, whichever process made it.
        return self.loop.call_later(2 * _ABSENT_FOR, self._hear)

    def _bind(self, made: socket.socket, name: str) -> None:
        if len(os.fsencode(name)) <= _LONGEST_PATH:
            made.bind(name)
            return
        handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            made.bind(f"/proc/self/fd/{handle}/{os.path.basename(name)}")
        finally:
            os.close(handle)

    def _listen_again(self) -> None:
        """Another process removed the socket: makes a new one."""
        path = self._directory.removesuffix("-wake")
        try:
            made, name = self._bound(path)
        except OSError as error:
            _log.debug("commit hints lost, polling the file until they work again: %s", error)
            return
        self._late_look.cancel()
        self.loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket, self._name = made, name
        self._heard += 1  # hints may have been lost meanwhile
        self._late_look = self._start()

    def _hear(self) -> None:
        with contextlib.suppress(OSError):
            while self._socket.recv(1):
                pass
        self._heard += 1
        for callback in self._callbacks:
            callback()


def listen(path: str, loop: asyncio.AbstractEventLoop) -> Listener | None:
    """None where the process has to poll the file instead."""
    if not hasattr(socket, "AF_UNIX"):
        return None
    try:
        return Listener(path, loop)
    except (OSError, NotImplementedError) as error:
        _log.info("commit hints unavailable, polling the file: %s", error)
        return None
