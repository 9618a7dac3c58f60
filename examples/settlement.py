"""A settlement of 412 accounts that dies at 78 percent, goes on, pays nobody twice, and can say so.

    export BANK=.demo/bank FOLIOT_STORE=sqlite:///.demo/settlement.db
    foliot up --app examples/settlement.py
    foliot schedules trigger settlement --reason "to see it"

Kill it with -9 while it pays, start it again, and ask what became of the day:

    foliot report settlement
    foliot runs list --job settle

The bank is a file to which payments are appended. It asks no questions: who is paid twice is paid twice.
"""

import os
from datetime import date
from pathlib import Path
from time import sleep

from foliot import Context, Foliot, Verdict, cron

ACCOUNTS = [f"DE{number:04}" for number in range(1, 413)]
BANK = Path(os.environ.get("BANK", ".demo/bank"))

app = Foliot(lease="10s", backoff="2s")


@app.job(effects=("payout",), owner="treasury", changes="accounts at the bank", overlap="skip", catch_up="all")
def settle(ctx: Context, day: date) -> None:
    """Each account is an item, done or not done; each payment an effect, which the store knows of before it is made."""
    for account in ctx.each(ACCOUNTS):
        with ctx.effect("payout", key=account, probe=has_paid) as payout:
            if payout.needed:
                pay(day, account, reference=payout.key)


@settle.verify
def everybody_was_paid(day: date) -> Verdict:
    """Asked when the handler says that all is done, and when nobody knows whether it is. It looks at the bank."""
    paid = payments(day)
    once = [account for account in ACCOUNTS if paid.count(account) == 1]
    return Verdict(len(once) == len(ACCOUNTS), f"{len(once)} of {len(ACCOUNTS)} accounts")


app.schedule("settlement", settle, cron("0 22 * * *"), bind={"day": "tick.date"})


# The bank.


def pay(day: date, account: str, reference: str) -> None:
    sleep(0.005)  # it takes a moment
    BANK.parent.mkdir(parents=True, exist_ok=True)
    with BANK.open("a") as bank:
        bank.write(f"{day} {account} {reference}\n")


def statement() -> list[list[str]]:
    return [line.split() for line in BANK.read_text().splitlines()] if BANK.exists() else []


def payments(day: date) -> list[str]:
    """The accounts that were paid for a day, each as often as it was paid."""
    return [account for paid_for, account, _ in statement() if paid_for == str(day)]


def has_paid(reference: str) -> bool:
    """The probe: a worker that died while it paid did not live to say how that ended. The bank knows."""
    return any(known == reference for _, _, known in statement())
