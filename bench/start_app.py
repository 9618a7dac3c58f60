"""The app of `bench.start`: as many schedules as START_SCHEDULES says, of one job that does nothing.

`python -m bench.start_app` applies it and prints, as JSON, how long that took.
"""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta

from foliot import Foliot
from foliot.timing import every

SCHEDULES, SPREAD = "START_SCHEDULES", "START_SPREAD"
MINUTE_US = 60_000_000
_EPOCH = datetime(2020, 1, 1, tzinfo=UTC)

app = Foliot()


@app.job(name="tick")
async def tick() -> None:
    pass


def name_of(place: int) -> str:
    return f"tick{place:06d}"


def offset_of(place: int, count: int, spread: str) -> int:
    """Microseconds after the full minute at which a schedule is due."""
    return place * MINUTE_US // count if spread == "minute" else 0


def declare(count: int, spread: str) -> float:
    """Seconds that it took."""
    began = time.perf_counter()
    for place in range(count):
        begin = _EPOCH + timedelta(microseconds=offset_of(place, count, spread))
        app.schedule(name_of(place), tick, every("1m", start=begin))
    return time.perf_counter() - began


_declared = declare(int(os.environ.get(SCHEDULES, 0)), os.environ.get(SPREAD, "minute"))


def main() -> None:
    began = time.perf_counter()
    applied = app.apply()
    seconds = time.perf_counter() - began
    counts = {"created": len(applied.created), "changed": len(applied.changed), "unchanged": len(applied.unchanged)}
    app.close()
    print(json.dumps({"declared_s": _declared, "applied_s": seconds, **counts}))


if __name__ == "__main__":
    from bench import start_app  # the app by the name that a scheduler knows

    start_app.main()
