"""The three sizes of the test suite. `FOLIOT_TESTS` chooses one: `short` (the default), `full` or `torture`.

`make test` runs the short tests. `make test-full` runs whole matrices and long properties. `make torture` runs hours of
faults. Each size includes the smaller ones.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

TIERS = ("short", "full", "torture")
TIER = os.environ.get("FOLIOT_TESTS", "short")
if TIER not in TIERS:
    raise SystemExit(f"FOLIOT_TESTS={TIER!r} is not a size of the test suite; choose one of: {', '.join(TIERS)}")

FULL = TIER != "short"
"""Whether whole matrices and long properties run."""
TORTURE = TIER == "torture"

full_only = pytest.mark.full_only
"""Marks a test, or a `pytest.param`, that `make test` leaves out and `make test-full` runs."""


def by_tier(short: T, full: T, torture: T | None = None) -> T:
    """The value for this size of the suite; torture takes the full one where it has no own."""
    if TORTURE and torture is not None:
        return torture
    return full if FULL else short


def only_in_full(*values: Any, id: str | None = None) -> Any:
    """A `pytest.param` that only `make test-full` runs."""
    return pytest.param(*values, id=id, marks=full_only)
