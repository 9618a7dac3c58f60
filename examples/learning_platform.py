"""A learning platform on which a day lasts 20 seconds, so that a minute shows everything that can become of a promise.

    foliot up --app examples/learning_platform.py --store sqlite:///.demo/foliot.db

`campus` stands for the product itself: every 15 seconds it announces three classes, each with a reminder one (scaled)
day before it starts. One class is moved, and its reminder moves along; one is called off, and its reminder is
cancelled. Beside that there are a nightly report, an expiry sweep, a calendar feed so slow that ticks are skipped, a
receipt that fails once, and a certificate that cannot be made: a dead letter, which waits for a person. Every day is
payday, and every payday the bank hangs up in the middle: nobody is paid twice, and a check says that all were paid.
Each of its schools is looked after every half a day, by one schedule over all of them; one of them never answers.

Two schedules go by the clocks of New York: its campus is greeted every 20 seconds, and its books are settled on the
first business day of each month. Who cannot wait for that says:

    foliot schedules trigger books --reason "to see it" --store sqlite:///.demo/foliot.db
"""

import asyncio
from datetime import UTC, date, datetime, time, timedelta
from time import sleep

from foliot import Context, Foliot, Permanent, RetryAfter, Verdict, after, business_day, cron, every

DAY = timedelta(seconds=20)
HOUR = DAY / 24
NEW_YORK = "America/New_York"

app = Foliot(timeout="1m", lease="10s", backoff="2s")


# What the platform does for its people. Plain functions: they can be called, and tested, without Foliot.


@app.job(useful_until="10s")  # a reminder that comes too late helps nobody
async def send_reminder(class_id: int) -> None:
    await asyncio.sleep(0.02)  # the mail server takes a moment


@app.job(attempts=3)
async def send_receipt(ctx: Context, student: str) -> None:
    if ctx.attempt == 1:
        raise RetryAfter("1s", "the mail server is busy")  # and says when to come back
    await asyncio.sleep(0.01)


@app.job(owner="registry", runbook="https://wiki.example.org/certificates")
def make_certificate(student: str) -> None:
    raise Permanent(f"{student} has no legal name on file")  # permanent error


# What it does by the clock.


@app.job(attempts=2)
def report_to_instructors(ctx: Context) -> str:
    for done in range(1, 16):
        ctx.check()  # a good place to stop, if somebody asks
        ctx.progress(done, of=15)
        sleep(0.1)
    return "15 instructors"


@app.job
async def sweep_expired() -> int:
    await asyncio.sleep(0.05)
    return 3  # kept as the run's result


@app.job
async def greet(clock: time) -> str:
    part = "morning" if clock.hour < 12 else "afternoon" if clock.hour < 18 else "evening"
    return f"good {part}, New York: it is {clock}"


@app.job
async def settle_books(day: date) -> str:
    return f"settled up to {day}"


@app.job
async def refresh_calendar() -> None:
    await asyncio.sleep(12)  # slower than its schedule


@app.job(attempts=1, owner="support")
async def look_after(school: str) -> None:
    await asyncio.sleep(0.05)
    if school == "atlantis":
        raise ConnectionError(f"{school} does not answer")


INSTRUCTORS = [f"instructor-{number}" for number in range(1, 16)]
BANK: dict[str, str] = {}
"""The bank's own book, which Foliot never sees: by idempotency key, who was paid."""


@app.job(effects=("payout",), attempts=4, backoff="1s", owner="finance")
def pay_instructors(ctx: Context) -> None:
    """The bank hangs up after the ninth payout. The next attempt asks it what it has done, and pays only the rest."""
    for name in ctx.each(INSTRUCTORS):
        with ctx.effect("payout", name, probe=BANK.get) as payout:
            if payout.needed:
                BANK[payout.key] = payout.result = f"paid {name}"
                if ctx.attempt == 1 and name == INSTRUCTORS[8]:
                    raise ConnectionError("the bank hung up")


@pay_instructors.verify
def everyone_is_paid(ctx: Context) -> Verdict:
    paid = sum(key.startswith(f"{ctx.dedupe_key}/payout/") for key in BANK)
    return Verdict(paid == len(INSTRUCTORS), f"{paid} of {len(INSTRUCTORS)} instructors")


# The product: an ordinary caller of all this.


@app.job
async def campus(ctx: Context) -> None:
    """Announces three classes, moves one, calls one off."""
    now = datetime.now(UTC)
    kept, moved, called_off = (int(ctx.nominal.timestamp()) % 1_000_000 + n for n in range(3))
    for class_id in (kept, moved, called_off):
        starts = now + DAY + 4 * HOUR
        await send_reminder.using(key=f"class:{class_id}").at_async(starts - DAY, class_id=class_id)
    await app.move_async(f"class:{moved}", now + 10 * HOUR)
    await app.cancel_async(f"class:{called_off}", reason="the class was called off")
    print(f"campus: a day lasts {DAY.seconds} s; class {moved} was moved, {called_off} called off")

    await send_receipt.using(key=f"receipt:{kept}").delay_async("500ms", student="Ada")
    if ctx.nominal.second == 30:
        await make_certificate.using(key=f"certificate:{kept}").delay_async("1s", student="Grace")


app.schedule("campus", campus, every("15s"))
app.schedule("nightly-report", report_to_instructors, every(DAY), overlap="skip", catch_up="once")
app.schedule("payday", pay_instructors, every(DAY), overlap="skip", catch_up="all")
app.schedule("expiry-sweep", sweep_expired, after("7s"))
schools = app.members("schools", ["athens", "atlantis", "bologna", "cairo", "delhi", "lima", "oslo", "paris"])
app.schedule("schools", look_after, every(DAY / 2), over=schools, bind={"school": "member"}, jitter="2s")
app.schedule("calendar", refresh_calendar, every(DAY / 2), overlap="skip", catch_up="skip")

# By the clocks of a place. What a run is about comes from its tick, also when it is late or tried again.
app.schedule("greeting", greet, cron("*/20 * * * * *", seconds=True, tz=NEW_YORK), bind={"clock": "tick.time"})
books = business_day(1, country="US", at="06:00", tz=NEW_YORK)
app.schedule("books", settle_books, books, bind={"day": "tick.date"})
