"""Whether another process of this host still lives: what lets SQLite replace a dead owner at once.

A process is named by host (with its PID namespace, because two containers may share a file), pid and birth. Where any
of that cannot be known the answer is "it may live", and the lease has to run out.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path


@cache
def this_host() -> str:
    """The host, its PID namespace and its boot: two processes can look for one another only if they agree on all.

    Two machines may have one name, and the first namespace has the same number everywhere; a boot's id is its own.
    """
    try:
        namespace = os.readlink("/proc/self/ns/pid")
        boot = _boot()
    except OSError:
        namespace = boot = ""
    return f"{socket.gethostname()} {namespace} {boot}".strip()


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def birth_of(pid: int) -> str:
    """When the process began, in the kernel's own words; "" where the system does not tell."""
    found = _birth(pid)
    return found or ""


def _birth(pid: int) -> str | None:
    """As `birth_of`; None when there is certainly no such process, or only what is left of one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace")
        boot = _boot()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else ""
    except OSError:
        return ""
    # The command's name may hold spaces and brackets; the 20th field after its closing bracket is the start time.
    fields = stat.rpartition(")")[2].split()
    return f"{boot} {fields[19]}" if fields[0] not in ("Z", "X") else None


def is_gone(host: str, pid: int, birth: str) -> bool:
    """Whether that process has certainly ended. What cannot be known counts as living: its lease will tell."""
    if host != this_host():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    # The pid is in use. Only a birth that is known and differs proves that it is somebody else's now.
    found = _birth(pid)
    return found is None or (birth != "" and found != "" and found != birth)
