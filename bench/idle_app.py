"""The app of `python -m bench idle`: one job, and as many schedules as the environment says, all far in the future."""

import os

from foliot import Foliot, cron

SCHEDULES = "FOLIOT_BENCH_SCHEDULES"
"""Environment variable: how many schedules the app declares."""

app = Foliot()


@app.job
async def noop(place: int) -> None:
    pass


for _place in range(int(os.environ.get(SCHEDULES, "0"))):
    app.schedule(f"yearly{_place}", noop, cron("0 0 1 1 *"), args={"place": _place})
