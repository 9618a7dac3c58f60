"""Opening the file: which SQLite, with which settings, and what is refused."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable

import apsw

from foliot.clock import Clock, SystemClock
from foliot.errors import SchemaMismatch, StoreError, StoreTooOld

SAFE_VERSION = 3_051_003
"""Earlier releases can corrupt a database when its write-ahead log is reset while another connection reads."""

APPLICATION = int.from_bytes(b"Foli")
"""What the file says it is, in its header."""

BUSY_LIMIT = 30.0
"""How many seconds to wait for another process's write transaction before giving up."""

FILE_MODE = 0o600
"""Mode of a new file. SQLite gives `-wal` and `-shm` the mode of the file that they belong to."""

SHARED = stat.S_IRGRP | stat.S_IROTH

_creating = threading.Lock()


def connect(path: str, clock: Clock | None = None) -> apsw.Connection:
    """A connection with the settings that our promises need; StoreError when the file cannot have them.

    `clock` is what triggers take the time from."""
    if apsw.SQLITE_VERSION_NUMBER < SAFE_VERSION:
        raise StoreTooOld(
            f"SQLite {apsw.sqlite_lib_version()} can corrupt a write-ahead log; 3.51.3 or newer is needed: "
            f"pip install --upgrade apsw"
        )
    try:
        if path != ":memory:":
            create_private(path)
            _refuse_read_only(path)
        connection = apsw.Connection(path)
        connection.set_busy_handler(_wait_for_writer())
        now = (clock or SystemClock()).now
        connection.create_scalar_function("foliot_now", lambda *_: now(), 0)
        connection.create_scalar_function("foliot_lower", _lower, 1)
        refuse_foreign(connection, path)
        mode = _write_ahead(connection)
        if path != ":memory:" and mode != "wal":
            raise StoreError(
                f"{path}: the file system has no write-ahead log support (journal mode {mode!r}); use a local disk"
            )
        connection.pragma("synchronous", "full")
        connection.pragma("cache_size", -65_536)
        connection.pragma("temp_store", "memory")
        # The log is folded back a little later than the default, so that fewer commits pay for it.
        connection.pragma("wal_autocheckpoint", 4_000)
        connection.pragma("journal_size_limit", 64 << 20)
    except apsw.Error as error:
        folder = os.path.dirname(os.path.realpath(path))
        if isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError) and not _may_write(folder):
            raise StoreError(
                f"{path}: cannot be opened: {_user()} may not write to its directory {folder} ({_rights(folder)}), "
                "which must hold the store's write-ahead log; allow it, or run as its owner"
            ) from error
        raise StoreError(f"{path}: cannot be opened as a store: {error}") from error
    return connection


def _refuse_read_only(path: str) -> None:
    target = os.path.realpath(path)
    if not _may_write(target):
        raise StoreError(
            f"{path}: cannot be opened: {_user()} may not write to the file ({_rights(target)}); "
            f"allow it with chmod u+w or chown, or run as its owner"
        )


def _may_write(path: str) -> bool:
    return os.access(path, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _user() -> str:
    return f"the user with id {os.geteuid()}"


def _rights(path: str) -> str:
    """`-r--r--r--, of user 0`."""
    found = os.stat(path)
    return f"{stat.filemode(found.st_mode)}, of user {found.st_uid}"


def create_private(path: str) -> None:
    """Creates an empty file that only its owner can read and write. A file that exists keeps its mode."""
    # SQLite would create the target of a symbolic link with a mode of its own choice.
    target = os.path.realpath(path)
    # Closing a descriptor drops the locks that this process holds on the file. The lock lets no thread of this process
    # open the new file through SQLite before this descriptor is closed.
    with _creating:
        if os.path.exists(target):
            return
        try:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        except FileExistsError:
            pass  # another process created it first
        except OSError as error:
            raise StoreError(
                f"{path}: the file cannot be created: {error.strerror or error}; "
                f"give a path in a folder that this user may write to"
            ) from error


def shared_files(path: str) -> list[str]:
    """Lists the files of a store that users other than their owner can read."""
    return [file for file in (path, f"{path}-wal", f"{path}-shm") if _mode(file) & SHARED]


def _mode(file: str) -> int:
    try:
        return os.stat(file).st_mode
    except FileNotFoundError:
        return 0  # there is no log while no process has the store open


def _lower(*texts: apsw.SQLiteValue) -> str:
    """The engine's own knows the letters of English alone."""
    return str(texts[0]).lower()


def refuse_foreign(connection: apsw.Connection, path: str) -> None:
    """Before anything is changed: a file with tables that are not ours belongs to somebody else."""
    # Tables first: another process may be making ours, and they come with the id in one transaction.
    has_tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    if has_tables and connection.pragma("application_id") != APPLICATION:
        raise SchemaMismatch(f"{path} is an SQLite file of another program; give Foliot its own file")


def _write_ahead(connection: apsw.Connection) -> str:
    """Turns the write-ahead log on. SQLite does not ask the busy handler here, so we wait ourselves."""
    until = time.monotonic() + BUSY_LIMIT
    while True:
        try:
            return str(connection.pragma("journal_mode", "wal"))
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(0.005)


def _wait_for_writer() -> Callable[[int], bool]:
    """Short steps at first: a write transaction lasts about a millisecond, and lateness is counted from the first try.
    One that lasts longer waits for a slow disk, and need not be asked so often."""
    began = 0.0

    def wait(tries: int) -> bool:
        nonlocal began
        if tries == 0:
            began = time.monotonic()
        time.sleep(0.000_3 if tries < 10 else 0.001 if tries < 20 else 0.003)
        return time.monotonic() - began < BUSY_LIMIT

    return wait
