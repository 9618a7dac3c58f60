"""What a job says about the process that its attempts run in."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from foliot.errors import InvalidInput

NONE, PROCESS = "none", "process"
LEAST_MEMORY = 64 * 10**6
"""An interpreter with an app in it holds that much before it does anything."""

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")


def checked_isolation(job: str, given: object) -> str:
    if given not in (NONE, PROCESS):
        raise InvalidInput(f"{job}: isolation={given!r:.80}; choose {NONE!r} or {PROCESS!r}")
    return str(given)


def checked_memory(job: str, given: object, isolation: str) -> int | None:
    """Bytes. A limit holds for a whole process, so only a job that has one of its own can be given one."""
    if given is None:
        return None
    if isolation != PROCESS:
        raise InvalidInput(
            f"{job}: memory={given!r:.80} limits a process, and this job runs in the process of its worker; "
            'add isolation="process"'
        )
    size = _bytes(given)
    if size is None or size < LEAST_MEMORY:
        raise InvalidInput(
            f'{job}: memory={given!r:.80}; give bytes or a text such as "512MB" or "2GiB", at least '
            f"{LEAST_MEMORY // 10**6}MB, the minimum for an interpreter with an app"
        )
    return size


def _bytes(given: object) -> int | None:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    found = _SIZE.fullmatch(given.strip()) if isinstance(given, str) else None
    unit = None if found is None else _UNITS.get(found[2].upper())
    return None if found is None or unit is None else int(float(found[1]) * unit)


@contextmanager
def memory_limited(limit: int | None) -> Iterator[None]:
    """While it lasts, this process gets no more than so many bytes of data, and MemoryError beyond.

    Only while the handler runs: the app's imports come before it, and how it ended must be told after it.
    """
    if limit is None:
        yield
        return
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))
