"""The circuit breaker of a destination: whether work is sent there, or held until a probe says that it answers. Pure.

closed      work goes there; failures in a row are counted, those of the whole fleet together
open        so many failed that work is held: it is not tried, and spends no attempts
half open   from time to time one run goes as a probe; if it succeeds all is well, if not, probes become rarer
"""

from __future__ import annotations

from typing import NamedTuple

from foliot.domain.gates import RATE
from foliot.domain.instant import SECOND, Duration, Instant

BREAKER = "breaker:"

SPREAD: Duration = 10 * SECOND
"""What was held comes back within so much time, and not all at once: the destination has just recovered."""


class Contact(NamedTuple):
    """What an attempt found out about its destination."""

    destination: str
    answered: bool
    after: int
    """So many failures in a row open the breaker."""
    probe: Duration
    """How long it stays open before the first probe."""
    cap: Duration
    """The longest time between two probes."""


class Breaker(NamedTuple):
    """How a destination stands; this one is closed, and nothing is known against it."""

    failures: int = 0
    opened_at: Instant | None = None
    every: Duration | None = None
    """While it is open: the time between two probes."""
    changed_at: Instant = 0

    @property
    def is_open(self) -> bool:
        return self.opened_at is not None


CLOSED = Breaker()


def after_contact(breaker: Breaker, contact: Contact, now: Instant) -> Breaker:
    """One answer closes it. A failed probe makes probes half as frequent; but attempts that were under way when it
    opened, and fail now, say nothing new."""
    if contact.answered:
        return CLOSED
    failures = breaker.failures + 1
    if breaker.every is not None:
        if now - breaker.changed_at < breaker.every:
            return breaker._replace(failures=failures)
        return Breaker(failures, breaker.opened_at, min(2 * breaker.every, max(contact.cap, contact.probe)), now)
    if failures >= contact.after:
        return Breaker(failures, now, contact.probe, now)
    return Breaker(failures, changed_at=now)


def breaker_slot(destination: str) -> str:
    """The slot that runs wait for while it is open: the next probe."""
    return f"{RATE}{BREAKER}{destination}"
