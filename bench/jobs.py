"""The app under load: one job that does nothing, so that everything that is measured is the scheduler's own."""

from foliot import Foliot

app = Foliot()

NOTE = "sixty bytes of payload, no more"
"""With a class of six digits, the payload is sixty bytes of JSON."""


@app.job
async def noop(class_id: int, note: str) -> None:
    pass


def class_id(place: int) -> int:
    return 100_000 + place % 900_000
