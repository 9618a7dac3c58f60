"""Other cron engines, asked the same questions as ours. In what they are known to differ is in quirks.py."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, croniter
from cronsim import CronSim

from foliot.domain.instant import SECOND
from foliot.timing import cron, upcoming
from tests.timing.oracles import DAY, FIRST, LAST, WEEKDAYS, in_field, shifts, table
from tests.waiting import HANG

LONGEST = 60.0
"""Seconds of processor time that an engine may think about one question: some might think for ever."""

Answer = list[int]
"""Ticks, in seconds."""


@dataclass(frozen=True)
class Case:
    """A question: the first ticks of a line, strictly after an instant (in seconds)."""

    line: str
    zone: str
    start: int
    count: int = 3
    gap: str = "run_after"
    fold: str = "first"
    interval_like: str = "auto"

    def __str__(self) -> str:
        return f"{self.line!r} in {self.zone} after {local(self.zone, self.start)}"


def local(zone: str, second: int) -> datetime:
    return datetime.fromtimestamp(second, table(zone))


# ------------------------------------------------------------------------------------------------------------- engines


def ours(case: Case) -> Answer:
    rule = cron(case.line, tz=case.zone, gap=case.gap, fold=case.fold, interval_like=case.interval_like)
    return [tick // SECOND for tick in upcoming(rule, case.start * SECOND, case.count)]


def ask_cronsim(case: Case) -> Answer:
    with bounded():
        ticks = islice(CronSim(case.line, local(case.zone, case.start)), case.count)
        return [int(tick.timestamp()) for tick in ticks]


def ask_croniter(case: Case) -> Answer:
    found: Answer = []
    with bounded():
        # It reads the two day fields in its own way; this asks for Vixie's.
        ticks = croniter(case.line, local(case.zone, case.start), ret_type=datetime, implement_cron_bug=True)
        try:
            while len(found) < case.count:
                found.append(int(ticks.get_next().timestamp()))
        except CroniterBadDateError:
            pass
    return found


def ask_systemd(case: Case) -> Answer:
    """What `systemd-analyze calendar` says. The line must be one that `on_calendar` can translate."""
    base = datetime.fromtimestamp(case.start, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    said = subprocess.run(
        ["systemd-analyze", "calendar", f"--iterations={case.count}", f"--base-time={base}", on_calendar(case)],
        env={"TZ": "UTC", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    # It counts its steps, and says so when it gives up: that is an answer, if a short one.
    if said.returncode and "Resource deadlock avoided" not in said.stderr:
        raise RuntimeError(said.stderr)
    whens = re.findall(r"(?:Next elapse|Iter\. #[0-9]+): (... [0-9: -]+) UTC", said.stdout)
    return [int(datetime.strptime(f"{when}+0000", "%a %Y-%m-%d %H:%M:%S%z").timestamp()) for when in whens]


def is_for_systemd(line: str) -> bool:
    """Whether it needs both day fields: systemd knows no `or`."""
    return "*" in (line.split()[2][0], line.split()[4][0])


def on_calendar(case: Case) -> str:
    """A cron line as systemd writes it: `Mon,Fri *-*-1,15 2:30:00 Europe/Paris`."""
    minute, hour, day, month, weekday = case.line.split()
    named = [number for number in range(8) if in_field(weekday, number, 0, 7, " ".join(WEEKDAYS))]
    days = "" if len(named) == 8 else ",".join(dict.fromkeys(WEEKDAYS[number % 7].title() for number in named))
    date = f"*-{_listed(month, 1, 12)}-{_listed(day, 1, 31)}"
    return f"{days} {date} {_listed(hour, 0, 23)}:{_listed(minute, 0, 59)}:00 {case.zone}".strip()


def _listed(field: str, low: int, high: int) -> str:
    values = [str(value) for value in range(low, high + 1) if in_field(field, value, low, high)]
    return "*" if len(values) > high - low else ",".join(values)


@cache
def is_the_same_on_this_host(zone: str) -> bool:
    """Whether the host, whose tables systemd reads, has the zone as we have it, in the years that we ask about."""
    path = Path("/usr/share/zoneinfo", zone)
    if not path.is_file():
        return False
    with path.open("rb") as stored:
        host = ZoneInfo.from_file(stored, key=zone)
    looks = {*range(FIRST, LAST, 5 * DAY), *(shift.at - back for shift in shifts(zone) for back in (0, 1))}
    return all(datetime.fromtimestamp(second, host).utcoffset() == local(zone, second).utcoffset() for second in looks)


@contextmanager
def bounded() -> Iterator[None]:
    """Interrupts an engine that loops. It counts processor time, so that a busy machine changes nothing."""

    def interrupt(*_: object) -> None:
        raise RuntimeError("the engine has not answered within its time")

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
