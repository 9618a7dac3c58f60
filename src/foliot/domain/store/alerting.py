"""What must not be silent, told to people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from foliot.domain.instant import Duration, Instant

if TYPE_CHECKING:  # these speak of the store's values themselves
    from foliot.domain.alerts import Alert, AlertFilter
    from foliot.domain.survey import Asked, Conclusion, Memory, Survey, Tick


class AlertStore(Protocol):
    """Facts for the watch, and the alerts that it makes of them."""

    async def survey(self, asked: Asked) -> Survey:
        """One look, in one moment. Its work is bounded by what is asked, by what is at work and by what is open: it
        grows neither with history nor with what is pending."""

    async def ticks_without_rows(self, ticks: Sequence[Tick]) -> list[Tick]:
        """Those that have no run, live or ended, and lie in no row that stands for several."""

    async def durations_of(self, series: str, limit: int) -> list[Duration]:
        """How long the last useful runs of a schedule took, the newest first."""

    async def recall(self) -> Memory:
        """What the watch remembered at its last look, and when that was."""

    async def conclude(self, version: int, conclusion: Conclusion) -> bool:
        """Opens, changes and resolves alerts, and remembers, in one transaction. An alert that is open already is not
        opened again; one that is resolved, or that is not there, is not resolved. Each that opens or resolves leaves an
        event, `alert_opened` or `alert_resolved`. False when `version` is not the store's any more, because somebody
        else has looked: then nothing was done."""

    async def open_alert(self, conclusion: Conclusion) -> bool:
        """The same for whoever is not the watch: remembers nothing, and changes nothing of when it last looked."""

    async def alerts(self, wanted: AlertFilter, *, before: int | None = None, limit: int = 100) -> list[Alert]:
        """Newest first, by number; `before` continues after a page."""

    async def alert(self, number: int) -> Alert:
        """UnknownName if there is none."""

    async def snooze_alert(self, number: int, *, until: Instant, actor: str, note: str) -> Alert:
        """Nobody is told of it before `until`; it stays open, and is shown. Conflict when it is resolved; UnknownName
        if there is none."""

    async def unsnooze_alert(self, number: int, *, actor: str, note: str) -> Alert:
        """Conflict when it is not snoozed; UnknownName if there is none."""

    async def untold_alerts(self, limit: int) -> list[Alert]:
        """Alerts with a message that is due; see `Alert.stage`. An open alert that is not snoozed has a message when it
        opened. The message is repeated when a snooze has ended, when a count of runs has doubled since the last message
        and that is REPEATED_AFTER old, and when the last message is REMINDED_AFTER old, notices apart. A resolved alert
        has one if people know that it opened. The most severe first, then the oldest."""

    async def alerts_told(self, opened: Sequence[int], resolved: Sequence[int], again: Sequence[int] = ()) -> int:
        """Records which messages were sent, and the counts that they named. Returns how many are new."""
