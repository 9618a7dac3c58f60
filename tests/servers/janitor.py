"""Ends a server and removes its directory once the process that started it is gone, however that one ended.

Run as `python janitor.py DIRECTORY`, with a pipe as standard input. The owner writes the id of each process that it
starts for that directory, one to a line. When the owner closes the pipe, or dies (kill -9 included), the pipe ends and
the cleaning begins. This is also how an owner cleans up in ordinary life: a path that is only taken after a disaster
would not be known to work. Only the standard library is used, so that it starts in milliseconds.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

PATIENCE = 300.0
"""Seconds that a process gets to end by itself: then PostgreSQL has removed its shared memory too. Only a hang takes as
long. This program imports nothing of the tests: it must start in milliseconds."""


def family(pid: int) -> list[int]:
    """A process and its children. Not its process group: each backend of PostgreSQL leads one of its own."""
    found = [pid]
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # gone between listing and reading
            if _state_and_parent(stat)[1] == str(pid):
                found.append(int(stat.parent.name))
    return found


def is_frozen(pid: int) -> bool:
    """Whether a process is stopped, or gone."""
    try:
        return _state_and_parent(Path(f"/proc/{pid}/stat"))[0] in "TZX"
    except OSError:
        return True


def _state_and_parent(stat: Path) -> list[str]:
    return stat.read_text().rpartition(")")[2].split()[:2]  # the name, in brackets before them, may hold anything


def tell(pids: list[int], what: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)


def _lives_here(pid: int, directory: str) -> bool:
    """Whether this is still the process that was started: ids are used again, but nobody else was given this directory.

    A dead one that nobody has reaped yet has an empty command line.
    """
    with suppress(OSError):
        return directory.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def clean(directory: str, pids: list[int]) -> None:
    for pid in (pid for pid in pids if _lives_here(pid, directory)):
        tell([pid], signal.SIGQUIT)  # PostgreSQL calls it an immediate shutdown
        tell(family(pid), signal.SIGCONT)  # a test may have left it frozen
    deadline = time.monotonic() + PATIENCE
    while living := [pid for pid in pids if _lives_here(pid, directory)]:
        if time.monotonic() > deadline:
            for pid in living:
                tell(family(pid), signal.SIGKILL)
            break
        time.sleep(0.01)
    while True:  # an orphaned backend may be writing its last
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.exists(directory) or time.monotonic() > deadline + PATIENCE:
            break
        time.sleep(0.01)


if __name__ == "__main__":
    clean(sys.argv[1], [int(line) for line in sys.stdin])
