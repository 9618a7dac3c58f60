"""A process and all that it started: found, and ended for certain.

A handler may start processes that leave its session, or outlive their parent. They are found by descent and by group,
and by a mark in the environment that each inherits. Where there is no /proc, the group must do.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "FOLIOT_ATTEMPT"
"""The environment variable that all processes of one attempt share."""
_ROUNDS = 20
"""How often those that were started meanwhile are looked for."""

_PROC = Path("/proc")


def end_with_kin(pid: int, mark: str) -> None:
    """Ends a process that has not been waited for, and all that it started.

    It is stopped first, so that it starts no others meanwhile, and ends last, so that its number stays its own.
    """
    _send(pid, signal.SIGSTOP)
    end_kin(mark, pid)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    _send(pid, signal.SIGKILL)


def end_kin(mark: str, *roots: int) -> None:
    """Ends all that bear the mark or descend from the roots, but not the roots themselves."""
    for _ in range(_ROUNDS):
        found = [one for one in kin(mark, *roots) if one not in roots and one != os.getpid()]
        if not found:
            return
        for one in found:
            _send(one, signal.SIGKILL)


def kin(mark: str, *roots: int) -> list[int]:
    """All living processes that bear the mark or are roots, that descend from these, or are in their group or session.

    A root must not have been waited for: afterwards its number may be anybody's.
    """
    marked = f"{MARK}={mark}".encode()
    rows = list(_processes())
    known = {*roots, *(one for one, *_ in rows if _bears(one, marked))}
    more = known
    while more:
        more = {one for one, *related in rows if one not in known and not known.isdisjoint(related)}
        known |= more
    return sorted(one for one, *_ in rows if one in known)


def _processes() -> Iterator[tuple[int, int, int, int]]:
    """Of each living process its id, its parent, its group and its session."""
    for entry in os.listdir(_PROC) if _PROC.exists() else ():
        if not entry.isdigit():
            continue
        try:
            stat = (_PROC / entry / "stat").read_text("ascii", errors="replace")
        except OSError:
            continue  # it ended while we looked
        state, parent, group, session = stat.rpartition(")")[2].split()[:4]
        if state not in "ZX":
            yield int(entry), int(parent), int(group), int(session)


def _bears(pid: int, marked: bytes) -> bool:
    try:
        return marked in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False  # somebody else's, or gone


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
