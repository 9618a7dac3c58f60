"""The herald: tells people of alerts, and that they are over. Through channels; beside the watch, never in its way.

What was told is written into the alert's row: at least once, and not again after a restart. Alerts of one kind that
open together are one message. A channel that takes nothing holds up no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from foliot.clock import Clock
from foliot.domain.alerts import KINDS, Alert, Kind, Severity, urgency
from foliot.domain.instant import MINUTE, SECOND, Duration, Instant, rfc3339
from foliot.watch.duty import repeat

LOOK_EVERY: Duration = 2 * SECOND
GATHER: Duration = 5 * SECOND
"""An alert waits so long for others of its kind."""
MOST_PER_MINUTE = 10
MOST_AT_ONCE = 500
MOST_OWED = 500
"""Alerts that wait for a channel which takes none, while others do."""
MOST_NAMED = 10
FIRST_PAUSE: Duration = 5 * SECOND
LONGEST_PAUSE: Duration = 10 * MINUTE
TRIES = 12
"""A channel that has not taken a message by then, after an hour and a half or so, does not get it."""
TIMEOUT = 30.0
"""Seconds that a channel may take."""

_log = logging.getLogger("foliot.watch")


class Message(NamedTuple):
    """What people are told at once."""

    title: str
    body: str
    severity: Severity
    resolved: bool
    alerts: tuple[Alert, ...]


class Channel(Protocol):
    """A way to people."""

    @property
    def name(self) -> str:
        """Without secrets."""

    async def send(self, message: Message) -> None:
        """Raises when it was not taken."""


class TellStore(Protocol):
    """What is needed of a store."""

    async def untold_alerts(self, limit: int) -> list[Alert]: ...

    async def alerts_told(self, opened: Sequence[int], resolved: Sequence[int]) -> int: ...

    async def now(self) -> Instant: ...


def messages(alerts: Sequence[Alert], now: Instant, gather: Duration = GATHER) -> list[Message]:
    """One for each kind, of what opened and of what is over; what is fresh waits for others. The most urgent first."""
    groups: dict[tuple[bool, Kind], list[Alert]] = {}
    for alert in sorted(alerts, key=urgency):
        groups.setdefault((not alert.is_open, alert.kind), []).append(alert)
    return [
        message_of(group, resolved=resolved)
        for (resolved, _), group in groups.items()
        if any(now - (one.opened_at if one.resolved_at is None else one.resolved_at) >= gather for one in group)
    ]


def message_of(alerts: Sequence[Alert], *, resolved: bool = False) -> Message:
    first = alerts[0]
    what = "resolved" if resolved else str(first.severity)
    subject = first.subject if len(alerts) == 1 else f"{len(alerts)} alerts"
    lines = [KINDS[first.kind].means + "."] if not resolved else []
    for alert in alerts[:MOST_NAMED]:
        lines.append(f"- {alert.cause} (alert {alert.number}, since {rfc3339(alert.opened_at // SECOND * SECOND)})")
        if not resolved:
            lines += [f"  {word}: {said}" for word, said in _more(alert)]
    if len(alerts) > MOST_NAMED:
        lines.append(f"- and {len(alerts) - MOST_NAMED:,} more: foliot alerts list --kind {first.kind}")
    return Message(
        f"[foliot] {what}: {first.kind}: {subject}", "\n".join(lines), first.severity, resolved, tuple(alerts)
    )


def _more(alert: Alert) -> list[tuple[str, str]]:
    told = [("do", alert.action)]
    if alert.owner:
        told.append(("owner", alert.owner))
    if alert.runbook:
        told.append(("runbook", alert.runbook))
    return told


_Key = tuple[int, bool]
"""An alert's number, and whether it is told that it is over."""


@dataclass(slots=True)
class _Line:
    """What one channel has taken, and what it is still to get."""

    channel: Channel
    done: set[_Key] = field(default_factory=set)
    """What it took, or does not get, while the store still has that as untold."""
    owed: dict[_Key, Alert] = field(default_factory=dict)
    """What others have taken and it has not: the store knows that as told, and only we know that it waits."""
    sent: deque[Instant] = field(default_factory=deque)
    failures: int = 0
    """In a row."""
    until: Instant = 0
    """It is left alone until then."""

    def due(self, untold: Mapping[_Key, Alert]) -> list[Alert]:
        for number, resolved in untold:
            if resolved and self.owed.pop((number, False), None) is not None:
                self.done.add((number, True))  # it never heard of it, and need not hear that it is over
        return list({key: one for key, one in (self.owed | dict(untold)).items() if key not in self.done}.values())

    def owe(self, alerts: Iterable[Alert]) -> None:
        """Of what is too much for it, the most urgent stays."""
        self.owed |= {key: one for one in alerts if (key := _key(one)) not in self.done}
        if len(self.owed) > MOST_OWED:
            kept = sorted(self.owed.items(), key=lambda item: urgency(item[1]))[:MOST_OWED]
            _log.error("%s has not taken %d alerts; it does not get all of them", self.channel.name, len(self.owed))
            self.owed = dict(kept)

    def settle(self, keys: Collection[_Key]) -> None:
        self.done.update(keys)
        for key in keys:
            self.owed.pop(key, None)

    def is_free(self, moment: Instant, most: int) -> bool:
        """Whether it may be sent something now. What waits meanwhile is told together."""
        while self.sent and moment - self.sent[0] > MINUTE:
            self.sent.popleft()
        return moment >= self.until and len(self.sent) < most


def _key(alert: Alert) -> _Key:
    return alert.number, not alert.is_open


class Herald:
    """Looks every two seconds for what nobody was told of.

    An alert is told once one channel has taken it, or none will. Channels that have not yet get it later: each has a
    line of its own, which is lost when the process ends, and none waits for another.
    """

    def __init__(
        self, store: TellStore, clock: Clock, channels: Sequence[Channel], most_per_minute: int = MOST_PER_MINUTE
    ) -> None:
        """`most_per_minute`: messages to one channel."""
        self._store = store
        self._clock = clock
        self._lines = [_Line(channel) for channel in channels]
        self._most = most_per_minute
        self._told: set[_Key] = set()
        """What is told, and perhaps not written down yet."""

    async def run_once(self, only: Kind | None = None) -> int:
        """Tells what is to be told; answers how many messages channels took. `only`: of this kind alone."""
        if not self._lines:
            return 0
        await self._write_told()
        listed = await self._store.untold_alerts(MOST_AT_ONCE)
        now = await self._store.now()
        wanted = {_key(one): one for one in listed if only is None or one.kind is only}
        served = [self._serve(line, messages(line.due(wanted), now)) for line in self._lines]
        answers = await asyncio.gather(*served, return_exceptions=True)
        if len(listed) < MOST_AT_ONCE:
            for line in self._lines:
                line.done &= {_key(one) for one in listed}
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return sum(answer for answer in answers if isinstance(answer, int))

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set."""
        await repeat(
            self.run_once, LOOK_EVERY, self._clock, stop, "people could not be told of alerts, and that is tried again"
        )

    async def _serve(self, line: _Line, waiting: Sequence[Message]) -> int:
        """How many it took."""
        taken = 0
        for message in waiting:
            if not line.is_free(self._clock.monotonic(), self._most):
                break
            keys = {_key(alert) for alert in message.alerts}
            if await self._send(line, message):
                taken += 1
                line.settle(keys)
                # In the same breath as it is told: what another channel misses is known to its line from here on.
                for other in self._lines:
                    other.owe(message.alerts)
                self._told |= keys
            elif line.failures >= TRIES:
                _log.error("%s did not take an alert for the %dth time; it does not get that", line.channel.name, TRIES)
                line.failures = 0
                line.settle(keys)
                self._told |= {key for key in keys if all(key in one.done for one in self._lines)}
            await self._write_told()
        return taken

    async def _write_told(self) -> None:
        told = frozenset(self._told)
        if told:
            opened = sorted(number for number, resolved in told if not resolved)
            await self._store.alerts_told(opened, sorted(number for number, resolved in told if resolved))
            self._told -= told

    async def _send(self, line: _Line, message: Message) -> bool:
        line.sent.append(self._clock.monotonic())
        try:
            await asyncio.wait_for(line.channel.send(message), TIMEOUT)
        except Exception as error:
            line.sent.pop()
            if line.failures == 0:
                _log.warning("%s did not take an alert, and is tried again: %s", line.channel.name, _said(error))
            line.until = self._clock.monotonic() + min(FIRST_PAUSE << min(line.failures, 30), LONGEST_PAUSE)
            line.failures += 1
            return False
        line.failures = 0
        return True


def _said(error: Exception) -> str:
    return "it takes too long" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
