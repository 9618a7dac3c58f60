"""The herald: sends messages when alerts open, again where they grow or last, and when they are resolved.

Each message is written into the alert's row: it is sent at least once, and not again after a restart. Alerts of one
kind that open together are one message. A channel that takes nothing holds up no other, and none delays the watch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from foliot.clock import Clock
from foliot.domain.alerts import KINDS, Alert, Kind, Severity, Stage, page_of, urgency
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

    async def alerts_told(self, opened: Sequence[int], resolved: Sequence[int], again: Sequence[int] = ()) -> int: ...

    async def now(self) -> Instant: ...


def messages(
    alerts: Sequence[Alert], now: Instant, gather: Duration = GATHER, public_url: str | None = None
) -> list[Message]:
    """One for each kind and stage. An alert that is fresh waits for others. The most urgent first."""
    groups: dict[tuple[Stage, Kind], list[Alert]] = {}
    for alert in sorted(alerts, key=urgency):
        groups.setdefault((alert.stage, alert.kind), []).append(alert)
    return [
        message_of(group, public_url)
        for group in groups.values()
        if any(now - (one.opened_at if one.resolved_at is None else one.resolved_at) >= gather for one in group)
    ]


def message_of(alerts: Sequence[Alert], public_url: str | None = None) -> Message:
    """Of alerts of one kind and stage. `public_url`: of the dashboard, which the message links to."""
    first = alerts[0]
    stage = first.stage
    what = {Stage.OPENED: first.severity, Stage.AGAIN: f"{first.severity} again", Stage.RESOLVED: stage}[stage]
    subject = first.subject if len(alerts) == 1 else f"{len(alerts)} alerts"
    runs = sum(alert.runs or 0 for alert in alerts)
    if runs > 1 and stage is not Stage.RESOLVED:
        subject += f", {runs:,} runs"
    lines = [KINDS[first.kind].means + "."] if stage is not Stage.RESOLVED else []
    for alert in alerts[:MOST_NAMED]:
        lines.append(f"- {alert.cause} (alert {alert.number}, since {_moment(alert.opened_at)})")
        lines += [f"  {word}: {said}" for word, said in _more(alert, public_url)]
    if len(alerts) > MOST_NAMED:
        lines.append(f"- and {len(alerts) - MOST_NAMED:,} more: foliot alerts list --kind {first.kind}")
    return Message(
        f"[foliot] {what}: {first.kind}: {subject}",
        "\n".join(lines),
        first.severity,
        stage is Stage.RESOLVED,
        tuple(alerts),
    )


def _more(alert: Alert, public_url: str | None) -> list[tuple[str, str]]:
    more: list[tuple[str, str | None]] = []
    if alert.stage is Stage.AGAIN:
        last = _moment(alert.repeated_at or alert.told_at or alert.opened_at)
        count = f"{alert.runs:,} runs, {alert.told_count:,} before" if alert.runs and alert.told_count else "open"
        more.append(("now", f"{count} (last message {last})"))
    if alert.is_open:
        more += [("do", alert.action), ("owner", alert.owner), ("runbook", alert.runbook)]
    if public_url is not None:
        more.append(("link", f"{public_url.rstrip('/')}{page_of(alert) or '/alerts'}"))
    return [(word, said) for word, said in more if said]


def _moment(at: Instant) -> str:
    return rfc3339(at // SECOND * SECOND)


_Key = tuple[int, Stage]
"""An alert's number, and which message about it."""


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
        for (number, stage), alert in untold.items():
            opened = number, Stage.OPENED
            if stage is Stage.RESOLVED:
                self.owed.pop((number, Stage.AGAIN), None)
                if self.owed.pop(opened, None) is not None:
                    self.done.add((number, stage))  # it never heard of it, and need not hear that it is over
            elif stage is Stage.AGAIN and opened in self.owed:
                self.done.add((number, stage))  # its first message names what is known now
                self.owed[opened] = replace(alert, told_at=None)
        return list({key: one for key, one in (self.owed | dict(untold)).items() if key not in self.done}.values())

    def owe(self, alerts: Iterable[Alert]) -> None:
        """Of what is too much for it, the most urgent stays."""
        self.owed |= {key: one for one in alerts if (key := _key(one)) not in self.done}
        if len(self.owed) > MOST_OWED:
            kept = sorted(self.owed.items(), key=lambda item: urgency(item[1]))[:MOST_OWED]
            _log.error("%s has %d undelivered alerts, dropping the least urgent", self.channel.name, len(self.owed))
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
    return alert.number, alert.stage


class Herald:
    """Looks every two seconds for what nobody was told of.

    An alert is told once one channel has taken it, or none will. Channels that have not yet get it later: each has a
    line of its own, which is lost when the process ends, and none waits for another.
    """

    def __init__(
        self,
        store: TellStore,
        clock: Clock,
        channels: Sequence[Channel],
        most_per_minute: int = MOST_PER_MINUTE,
        public_url: str | None = None,
    ) -> None:
        """`most_per_minute`: messages to one channel. `public_url`: of the dashboard."""
        self._store = store
        self._clock = clock
        self._lines = [_Line(channel) for channel in channels]
        self._most = most_per_minute
        self._public_url = public_url
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
        served = [self._serve(line, messages(line.due(wanted), now, GATHER, self._public_url)) for line in self._lines]
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
        await repeat(self.run_once, LOOK_EVERY, self._clock, stop, "notifying alerts failed, retrying")

    async def _serve(self, line: _Line, waiting: Sequence[Message]) -> int:
        """How many it took."""
        taken = 0
        for message in waiting:
            if not line.is_free(self._clock.monotonic(), self._most):
                break
            keys = {_key(alert) for alert in message.alerts}
            # What another channel took before was owed to all that had missed it, at that time.
            fresh = [alert for alert in message.alerts if _key(alert) not in line.owed]
            if await self._send(line, message):
                taken += 1
                line.settle(keys)
                # In the same breath as it is told: what another channel misses is known to its line from here on.
                for other in self._lines:
                    other.owe(fresh)
                self._told |= keys
            elif line.failures >= TRIES:
                _log.error("%s did not accept an alert after %d attempts, dropping it", line.channel.name, TRIES)
                line.failures = 0
                line.settle(keys)
                self._told |= {key for key in keys if all(key in one.done for one in self._lines)}
            await self._write_told()
        return taken

    async def _write_told(self) -> None:
        told = frozenset(self._told)
        if told:
            opened, again, resolved = (sorted(number for number, stage in told if stage is wanted) for wanted in Stage)
            await self._store.alerts_told(opened, resolved, again)
            self._told -= told

    async def _send(self, line: _Line, message: Message) -> bool:
        line.sent.append(self._clock.monotonic())
        try:
            await asyncio.wait_for(line.channel.send(message), TIMEOUT)
        except Exception as error:
            line.sent.pop()
            if line.failures == 0:
                _log.warning("%s did not accept an alert, retrying: %s", line.channel.name, _said(error))
            line.until = self._clock.monotonic() + min(FIRST_PAUSE << min(line.failures, 30), LONGEST_PAUSE)
            line.failures += 1
            return False
        line.failures = 0
        return True


def _said(error: Exception) -> str:
    return "timeout" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
