"""The revenue example, killed before one statement after another of its transaction, each on a day of its own.

    python -m tests.examples.revenue_killed STORE STRIDE

Of the 150 rows it is killed before every STRIDE-th, and of the other statements before each. Tells the days as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import count

from examples.revenue import REGIONS, aggregate, app
from foliot import bootstrap
from tests.faults.killing import Lives


def main(url: str, stride: int) -> None:
    lives, days = Lives(app, url), []
    for number in _statements(stride):
        day = date(2026, 1, 1) + timedelta(days=number)
        days.append(str(day))

        async def promise(number: int = number, day: date = day) -> None:
            store = bootstrap.make_store(url)
            await store.open()
            with app.standing_on(store, app.clock):
                await aggregate.using(queue=f"night-{number}", backoff="0s").now_async(day=day)
            await store.close()

        assert lives.elsewhere(promise)
        if lives.once([f"night-{number}"], dies_at=number):
            break
    assert lives.once([f"night-{number}" for number in _statements(stride, up_to=1_000)] + ["default"])
    print(json.dumps(days))


def _statements(stride: int, up_to: int | None = None) -> Iterator[int]:
    begin, end = 5, REGIONS
    for number in count(1) if up_to is None else range(1, up_to):
        if not begin < number < end or number % stride == 0:
            yield number


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
