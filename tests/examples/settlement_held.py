"""The settlement example. After as many payments as the variable HELD_AT says, its worker stops before the next one."""

from __future__ import annotations

import os
import threading
from datetime import date

from examples import settlement

HELD_AT = int(os.environ.get("HELD_AT", "0"))
pay = settlement.pay


def pay_or_wait(day: date, account: str, reference: str) -> None:
    if HELD_AT and len(settlement.statement()) >= HELD_AT:
        threading.Event().wait()  # until the worker is killed
    pay(day, account, reference)


settlement.pay = pay_or_wait
app = settlement.app
