"""Alerts, for people: what is open, what was, and whether anybody watches at all."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from foliot.domain.alerts import KINDS, Alert, AlertFilter, Kind, action_of, silence, urgency
from foliot.domain.instant import Duration, Instant, duration
from foliot.errors import InvalidInput, UnknownName
from foliot.operate.acting import Acting, acting, stated
from foliot.operate.advising import Guidance, guidance, guidance_shape
from foliot.operate.shapes import Shape, moment, seconds

MOST = 10_000


class Alerts(NamedTuple):
    """What is told, and by whom."""

    alerts: list[Alert]
    """The most urgent first."""
    now: Instant
    looked_at: Instant | None
    """When the watch last looked; None: it never has."""
    silent: bool
    """Nobody watches: what is told here is no longer up to date, and what is not told may be so."""


class AlertVerbs(Acting):
    """What must not be silent."""

    async def alerts_async(
        self,
        *,
        everything: bool = False,
        kind: str | None = None,
        subject: str | None = None,
        tenant: str | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> Alerts:
        """Open ones, the most urgent first; with `everything`, those that are resolved too, the newest first. `subject`
        is as alerts have it: `schedule:X`, `job:X`, `queue:X`. `before`: the number that the last page ended
        with.

        Whoever asks is told when nobody watches: that is derived here from the time of the last look, and needs no
        scheduler."""
        store = await self._opened()
        if kind is not None and kind not in KINDS:
            raise InvalidInput(f"there is no kind of alert {kind!r:.40}; give one of {', '.join(KINDS)}")
        if not isinstance(limit, int) or not 1 <= limit <= MOST:
            raise InvalidInput(f"limit={limit!r:.40}: give a whole number from 1 to {MOST:,}")
        wanted = AlertFilter(kind, subject, tenant, everything)
        found = await store.alerts(wanted, before=before, limit=limit)
        now, looked_at = await store.now(), (await store.recall()).looked_at
        derived = silence(looked_at, now)
        is_told = any(alert.kind is Kind.WATCH_SILENT and alert.is_open for alert in found)
        asked = kind in (None, Kind.WATCH_SILENT) and subject is None and tenant is None and before is None
        if derived is not None and asked and not is_told:
            since = now if derived.since is None else derived.since
            severity = KINDS[derived.kind].severity
            told = Alert(0, derived.kind, derived.subject, severity, derived.cause, action_of(derived), since, now)
            found = [told, *found]
        shown = found if everything else sorted(found, key=urgency)
        return Alerts(shown, now, looked_at, derived is not None)

    def alerts(
        self,
        *,
        everything: bool = False,
        kind: str | None = None,
        subject: str | None = None,
        tenant: str | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> Alerts:
        filters = {"kind": kind, "subject": subject, "tenant": tenant, "limit": limit, "before": before}
        return self._call(lambda: self.alerts_async(everything=everything, **filters), "alerts_async")  # type: ignore[arg-type]

    async def alert_async(self, number: int) -> Alert:
        """One of them. UnknownName if there is none."""
        return await (await self._opened()).alert(number)

    def alert(self, number: int) -> Alert:
        return self._call(lambda: self.alert_async(number), "alert_async")

    async def alert_advice_async(self, number: int) -> Guidance | None:
        """What is safe to do about the run that an alert is about; None for one that is about something else, or where
        nothing needs to be done any more."""
        store = await self._opened()
        alert = await store.alert(number)
        if alert.run is None:
            return None
        try:
            view = await store.run(alert.run)
        except UnknownName:  # history has forgotten it
            return None
        return guidance(view, (await store.jobs()).get(view.job), await store.now())

    async def snooze_async(
        self, number: int, length: str | float | timedelta | Duration, *, reason: str, actor: str
    ) -> Alert:
        """Nobody is told of an open alert for so long; it is still shown. What it is about goes on as before."""
        store, who, why = await self._opened(), acting(actor), stated(reason)
        span = duration(length)
        if span <= 0:
            raise InvalidInput("a snooze needs a length: 30m, 2h, 1d")
        return await store.snooze_alert(number, until=await store.now() + span, actor=who, note=why)

    def snooze(self, number: int, length: str | float | timedelta, *, reason: str, actor: str) -> Alert:
        return self._call(lambda: self.snooze_async(number, length, reason=reason, actor=actor), "snooze_async")

    async def unsnooze_async(self, number: int, *, reason: str, actor: str) -> Alert:
        """Ends a snooze: people are told, if it is still the case."""
        store, who, why = await self._opened(), acting(actor), stated(reason)
        return await store.unsnooze_alert(number, actor=who, note=why)

    def unsnooze(self, number: int, *, reason: str, actor: str) -> Alert:
        return self._call(lambda: self.unsnooze_async(number, reason=reason, actor=actor), "unsnooze_async")


def alert_shape(alert: Alert, now: Instant) -> Shape:
    return {
        "number": alert.number,
        "kind": str(alert.kind),
        "subject": alert.subject,
        "severity": str(alert.severity),
        "cause": alert.cause,
        "action": alert.action,
        "opened_at": moment(alert.opened_at),
        "open_for": seconds((now if alert.resolved_at is None else alert.resolved_at) - alert.opened_at),
        "seen_at": moment(alert.seen_at),
        "resolved_at": moment(alert.resolved_at),
        "snoozed_until": moment(alert.snoozed_until) if alert.snoozed(now) else None,
        "count": alert.count,
        "schedule": alert.schedule,
        "job": alert.job,
        "run": alert.run,
        "tenant": alert.tenant,
        "owner": alert.owner,
        "runbook": alert.runbook,
        "told_at": moment(alert.told_at),
        "repeated_at": moment(alert.repeated_at),
    }


def alert_story_shape(alert: Alert, told: Guidance | None, now: Instant) -> Shape:
    """One alert, with what is safe to do."""
    return alert_shape(alert, now) | {"advice": guidance_shape(told)}


def alerts_shape(found: Alerts) -> Shape:
    return {
        "looked_at": moment(found.looked_at),
        "silent": found.silent,
        "alerts": [alert_shape(alert, found.now) for alert in found.alerts],
    }
