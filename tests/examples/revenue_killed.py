"""The revenue example, killed before one statement after another of its transaction, each on a day of its own.

    python -m tests.examples.revenue_killed STORE STRIDE RESULT

Of the 150 rows it is killed before every STRIDE-th, and of the other statements before each. The file
RESULT is then a JSON list of the days.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import count
from pathlib import Path

from examples.revenue import REGIONS, aggregate, app
from foliot.domain.store import Store
from tests.faults.killing import Lives


def main(url: str, stride: int, result: str) -> None:
    lives, days = Lives(app, url), []
    for number in _statements(stride):
        day = date(2026, 1, 1) + timedelta(days=number)
        days.append(str(day))

        async def promise(_store: Store, number: int = number, day: date = day) -> None:
            await aggregate.using(queue=f"night-{number}", backoff="0s").now_async(day=day)

        if lives.once([f"night-{number}"], dies_at=number, before=promise):
            break
    assert lives.once([f"night-{number}" for number in _statements(stride, up_to=1_000)] + ["default"])
    Path(result).write_text(json.dumps(days))


def _statements(stride: int, up_to: int | None = None) -> Iterator[int]:
    begin, end = 5, REGIONS
    for number in count(1) if up_to is None else range(1, up_to):
        if not begin < number < end or number % stride == 0:
            yield number


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
