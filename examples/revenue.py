"""The revenue table that doubled after a reboot, and does not here.

Every night a job appends what 150 regions earned to a table. Nothing in that table keeps a row from being there twice:
one night the host was rebooted in the middle, the job was started again, and the board was shown 230 regions. Here the
rows, the note that the day was appended, and the end of the run are one transaction. Kill it at any moment:

    foliot up --app examples/revenue.py --store sqlite:///.demo/revenue.db
    foliot schedules trigger revenue --reason "to see it" --store sqlite:///.demo/revenue.db
    python examples/revenue.py sqlite:///.demo/revenue.db        # how many rows each day has: 150
"""

import sys
from collections.abc import Iterator
from datetime import date
from random import Random

from foliot import Context, Foliot, cron

REGIONS = 150

app = Foliot()


@app.job(effects=("append",), owner="finance", changes="the table revenue", overlap="skip", catch_up="all")
def aggregate(ctx: Context, day: date) -> None:
    with ctx.transaction() as tx:
        tx.connection.execute("CREATE TABLE IF NOT EXISTS revenue (day TEXT, region TEXT, cents INTEGER)")
        with tx.effect("append", key=day.isoformat()) as append:
            if append.needed:  # not again in a rerun, which somebody may order years later
                for region, cents in earned(day):
                    tx.connection.execute("INSERT INTO revenue VALUES (?, ?, ?)", (day.isoformat(), region, cents))
        tell_the_board.using(connection=tx.connection).now(day=day)
        tx.result = {"regions": REGIONS}
    # Here all of it is committed: the rows, the effect, the promise to tell the board, and the end of this run.


@app.job
def tell_the_board(day: date) -> str:
    return f"the revenue of {day} is in"


def earned(day: date) -> Iterator[tuple[str, int]]:
    """Stands for a query that takes its time."""
    chance = Random(day.toordinal())
    for number in range(REGIONS):
        yield f"region {number}", chance.randrange(1_000_000)


app.schedule("revenue", aggregate, cron("0 2 * * *", tz="Europe/Berlin"), bind={"day": "tick.date"})


def rows_by_day(store: str) -> dict[str, int]:
    """Looks into the table, in a process that has nothing else to do with the store."""
    import apsw

    file = apsw.Connection(store.removeprefix("sqlite:///"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found = file.execute("SELECT day, count(*) FROM revenue GROUP BY day ORDER BY day")
        return {str(day): int(str(rows)) for day, rows in found}
    finally:
        file.close()


if __name__ == "__main__":
    for day, rows in rows_by_day(sys.argv[1]).items():
        print(day, rows)
