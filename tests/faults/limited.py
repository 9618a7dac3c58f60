"""The app of `test_limits_killed`: handlers under a limit and under keys write to a log outside of Foliot.

Run as a module, it promises as many runs as its argument says."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from foliot import Context, Foliot

LIMIT = 3
ACCOUNTS = 5
"""Each is a key, and one handler at a time may run with it."""

app = Foliot()
_log = os.open(os.environ.get("CAMPUS_LOG", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def tell(what: str, **more: object) -> None:
    os.write(_log, json.dumps({"what": what, "pid": os.getpid()} | more).encode() + b"\n")


# A worker that is killed is known to be gone at once. One that is only slow does not lose its runs.
@app.job(lease="10m", attempts=1_000, backoff="10ms", concurrency=LIMIT, concurrency_key="account:{account}")
async def limited(ctx: Context, account: int, n: int) -> None:
    told = {"run": ctx.run_id, "attempt": ctx.attempt, "account": account}
    tell("start", **told)
    await asyncio.sleep(0.001 * (n % 7))
    if n % 5 == 0 and ctx.attempt == 1:
        tell("end", **told)
        raise RuntimeError("the first attempt fails")
    if n % 3 == 0:
        async with ctx.transaction():  # the run ends with it
            tell("end", **told)
    else:
        tell("end", **told)


if __name__ == "__main__":
    app.promise_many([limited.promise_delay(0, account=n % ACCOUNTS, n=n) for n in range(int(sys.argv[1]))])
