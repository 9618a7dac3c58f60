"""Counts function calls: how much work an answer costs, whatever the speed of the machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

A_SHORT_SEARCH = 150_000
"""Calls. The longest search that must give up at once makes 80,000; a search without a bound makes millions."""
A_DIRECT_ANSWER = 2_000
"""Calls. The answers that need no search make 600 at most."""


@contextmanager
def at_most(most: int) -> Iterator[None]:
    """The block makes no more calls than that in this thread, of functions in Python and in C. It fails at the next."""
    made = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal made
        made += event in ("call", "c_call")
        assert made <= most, f"more than {most:,} calls"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)
