"""The herald: tells people of alerts, and that they are over. Through channels; beside the watch, never in its way.

What was told is written into the alert's row: at least once, and not again after a restart. Alerts of one kind that
open together are one message.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
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


class Herald:
    """Looks every two seconds for what nobody was told of."""

    def __init__(
        self, store: TellStore, clock: Clock, channels: Sequence[Channel], most_per_minute: int = MOST_PER_MINUTE
    ) -> None:
        self._store = store
        self._clock = clock
        self._channels = channels
        self._most = most_per_minute
        self._sent: deque[Instant] = deque()
        self._taken: set[tuple[str, int, bool]] = set()
        """By channel, alert, and whether it is over: what was taken, while other channels have not."""
        self._failures: dict[str, tuple[int, Instant]] = {}
        """By channel, how often in a row it failed, and until when it is left alone."""

    async def run_once(self, only: Kind | None = None) -> int:
        """Tells what is to be told; answers how many messages went out whole. `only`: of this kind alone."""
        if not self._channels:
            return 0
        untold = await self._store.untold_alerts(MOST_AT_ONCE)
        wanted = [alert for alert in untold if only is None or alert.kind is only]
        done = 0
        for message in messages(wanted, await self._store.now()):
            moment = self._clock.monotonic()
            while self._sent and moment - self._sent[0] > MINUTE:
                self._sent.popleft()
            if len(self._sent) >= self._most:
                break  # what waits meanwhile is told together
            if await self._deliver(message):
                self._sent.append(moment)
                numbers = [alert.number for alert in message.alerts]
                await self._store.alerts_told(*(([], numbers) if message.resolved else (numbers, [])))
                self._taken = {key for key in self._taken if key[1] not in numbers or key[2] != message.resolved}
                done += 1
        return done

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set."""
        await repeat(
            self.run_once, LOOK_EVERY, self._clock, stop, "people could not be told of alerts, and that is tried again"
        )

    async def _deliver(self, message: Message) -> bool:
        """Whether every channel has taken it, or will not."""
        all_taken = True
        for channel in self._channels:
            keys = {(channel.name, alert.number, message.resolved) for alert in message.alerts}
            if keys <= self._taken:
                continue
            failures, until = self._failures.get(channel.name, (0, 0))
            if self._clock.monotonic() < until:
                all_taken = False
            elif await self._send(channel, message, failures):
                self._taken |= keys
            else:
                all_taken = False
        return all_taken

    async def _send(self, channel: Channel, message: Message, failures: int) -> bool:
        try:
            await asyncio.wait_for(channel.send(message), TIMEOUT)
        except Exception as error:
            pause = min(FIRST_PAUSE << min(failures, 30), LONGEST_PAUSE)
            self._failures[channel.name] = failures + 1, self._clock.monotonic() + pause
            if failures == 0:
                _log.warning("%s did not take an alert, and is tried again: %s", channel.name, _said(error))
            if failures + 1 < TRIES:
                return False
            _log.error("%s did not take an alert for the %dth time; it does not get that", channel.name, TRIES)
        self._failures.pop(channel.name, None)
        return True


def _said(error: Exception) -> str:
    return "it takes too long" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
