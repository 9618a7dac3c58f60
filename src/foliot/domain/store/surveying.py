"""What operators see of all of it at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from foliot.domain.overview import ParkedGroup, ParkedRun, Pulse, Tally
from foliot.domain.schedule import Schedule
from foliot.domain.standing import STRIP, ScheduleFacts, ScheduleFilter, SchedulePage


class SurveyStore(Protocol):
    """Reads that stay short with ten thousand schedules and a million ended runs, and the one count that is kept for
    them."""

    async def templates(self, names: Sequence[str] | None = None) -> list[Schedule]:
        """All schedules by name, or those that exist among `names`, without what their runs say of them."""

    async def schedule_page(
        self, wanted: ScheduleFilter, *, cursor: str | None = None, limit: int = 50, recent: int = STRIP
    ) -> SchedulePage:
        """A page of schedules, each with what is on record about it: up to `recent` ended runs, and as many that wait
        for a person. Where only their runs know whether they are wanted, the search ends after some 250, and the page
        says that it is not complete. InvalidInput for a filter, cursor or limit that makes no sense."""

    async def schedule_facts(self, schedule: str, *, recent: int = STRIP) -> ScheduleFacts:
        """One of them, with failures by tenant and what backfills have before them. UnknownName if there is none."""

    async def failing(self, limit: int, tenant: str | None = None) -> list[ScheduleFacts]:
        """Schedules of which three runs or more wait for a person, so that they may have failed three times in a row,
        and those that were set aside. `tenant`: only those that are this tenant's."""

    async def count_endings(self) -> None:
        """Adds what ended since it was last asked to the count of kept promises; after a long time, a part of it. Each
        ending is counted once, whoever asks, and however often: the count and how far it has come are one
        transaction."""

    async def kept_by_minute(self, minutes: int) -> list[tuple[int, Tally]]:
        """The same count by the minutes in which runs ended, the oldest first. What failed is in the
        minute of its last attempt: the last 60 minutes add up to the hour of `pulse`."""

    async def pulse(self) -> Pulse:
        """How everything stands, in one moment."""

    async def parked_groups(self, limit: int) -> list[ParkedGroup]:
        """All runs that wait for a person, counted by group; the groups with the newest runs first."""

    async def parked(self, numbers: Sequence[int]) -> list[ParkedRun]:
        """Those of these runs that wait for a person, or run, with what the ledger knows of them; in this order."""
