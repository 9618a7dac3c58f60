"""An app that puts a canary into every field that is stored. Whatever says `c4nary` anywhere else has told a secret."""

from __future__ import annotations

from typing import Any

from foliot import Context, Foliot, Permanent, Verdict, every

app = Foliot(secret=("pet_name",), backoff="0s", attempts=2)

CUSTOMER = {"name": "Ana", "note": "c4nary-by-path", "pet-name": "c4nary-by-app"}
ORDER: dict[str, Any] = {
    "customer": CUSTOMER,
    "password": "c4nary-by-key",
    "link": "https://ana:c4nary-in-url@example.com/",
    "log": "sent Bearer c4nary0123456789abc",
}


@app.job(secret=("customer.note", "result.receipt"), effects=("pay", "mail"))
def sell(ctx: Context, customer: dict[str, str], password: str, link: str, log: str) -> dict[str, Any]:
    ctx.progress(1, of=2, note=f"for {customer['note']}, api_key=c4nary-in-note")
    ctx.checkpoint({"password": "c4nary-in-checkpoint"})
    with ctx.effect("mail", key=1, idempotent=True) as mail:
        mail.not_done(f"no mail to {customer['note']}")
    with ctx.effect("pay", key=1, idempotent=True) as pay:
        if pay.needed:
            pay.result = {"token": "c4nary-in-effect", "to": customer["note"]}
    if ctx.attempt == 1:
        raise ValueError(f"{customer!r} said {password!r} at {link}; secret=c4nary-in-error")
    return {"receipt": "c4nary-in-result", "access_token": "c4nary-in-result", "note": customer["note"]}


@sell.verify
def is_sold(customer: dict[str, str]) -> Verdict:
    return Verdict(True, f"1 of 1 order of {customer['note']}")


@app.job(secret=("pin",))
def fail(ctx: Context, pin: str) -> None:
    for item in ctx.each([1, 2]):
        if item == 1:
            ctx.item_failed(f"the pin {pin} was wrong")
            continue
        raise Permanent(f"gave up with {pin}, card 4111 1111 1111 1111")


@app.job
def poll(password: str) -> None: ...


@app.job(secret=("who",), isolation="process")
def apart(who: str) -> str:
    raise Permanent(f"{who} is not here")


app.schedule("polling", poll, every("1h"), args={"password": "c4nary-of-schedule"})


def promise_all() -> None:
    sell.using(key="order").now(**ORDER)
    fail.using(key="failing").now(pin="c4nary-pin")
    apart.using(key="apart").now(who="c4nary-apart")
    poll.using(key="later").delay("9h", password="c4nary-later")
