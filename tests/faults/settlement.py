"""A settlement of 400 accounts whose process is killed in the middle of one payment.

The bank is a file outside of Foliot: a payment is one line, there even when the process is killed right after it. As an
app (`foliot worker --app tests/faults/settlement.py`) it kills its own process once, at account 312. SETTLEMENT_DIES
says at which moment of the payment.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from foliot import Context, Foliot

ACCOUNTS = 400

app = Foliot()


def pay(folder: Path, key: str) -> None:
    file = os.open(folder / "bank", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{key}\n".encode())
    finally:
        os.close(file)


def die_once(folder: Path, moment: str) -> None:
    if os.environ.get("SETTLEMENT_DIES") == moment and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)


@app.job(effects=("payout",), owner="treasury", runbook="https://runbooks.example/settlement", changes="bank transfers")
async def settle(ctx: Context, folder: str) -> None:
    place = Path(folder)
    async for account in ctx.each(range(ACCOUNTS), name="accounts"):
        async with ctx.effect("payout", account) as payout:
            if payout.needed:
                if account == 312:
                    die_once(place, "before the payment")
                pay(place, payout.key)
                if account == 312:
                    die_once(place, "after the payment")
