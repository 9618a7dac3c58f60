"""The operator's verbs. Each states who acts and why; the store writes both beside the action, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from foliot.domain.access import checked_request_key
from foliot.domain.identity import series_name
from foliot.domain.instant import Instant
from foliot.domain.run import Kept, RunView
from foliot.domain.schedule import Schedule, ScheduleView
from foliot.domain.state import State
from foliot.domain.store import EventRow, Instance, JobCard, Ticking
from foliot.errors import InvalidInput
from foliot.operate.acting import acting, as_instant, stated
from foliot.operate.alerting import AlertVerbs
from foliot.operate.auditing import AuditVerbs
from foliot.operate.backfilling import BackfillVerbs
from foliot.operate.bulk import BulkVerbs
from foliot.operate.cancelling import CancelVerbs
from foliot.operate.external import ExternalVerbs
from foliot.operate.fleet import FleetVerbs
from foliot.operate.keeping import KeepVerbs
from foliot.operate.limits import LimitVerbs
from foliot.operate.load import LoadVerbs
from foliot.operate.locking import KeyVerbs
from foliot.operate.measuring import MetricVerbs
from foliot.operate.members import MemberVerbs
from foliot.operate.pausing import PauseVerbs
from foliot.operate.promising import PromiseVerbs
from foliot.operate.recovering import RecoveryVerbs
from foliot.operate.replaying import ReplayVerbs
from foliot.operate.scheduling import ScheduleVerbs
from foliot.operate.shapes import last_tick
from foliot.operate.surveying import SurveyVerbs
from foliot.operate.telling import TellingVerbs
from foliot.operate.tenants import TenantVerbs
from foliot.operate.tokens import TokenVerbs
from foliot.operate.triggering import ForeseenTrigger, foreseen_trigger, refuse_skipped


class Operator(
    CancelVerbs,
    RecoveryVerbs,
    ReplayVerbs,
    TellingVerbs,
    LoadVerbs,
    BackfillVerbs,
    LimitVerbs,
    TenantVerbs,
    MemberVerbs,
    FleetVerbs,
    AuditVerbs,
    SurveyVerbs,
    PauseVerbs,
    ScheduleVerbs,
    PromiseVerbs,
    BulkVerbs,
    MetricVerbs,
    KeyVerbs,
    AlertVerbs,
    TokenVerbs,
    ExternalVerbs,
    KeepVerbs,
):
    """Acts on a store on behalf of a person. The plain verbs run their `_async` twins."""

    # Acting

    async def pause_async(
        self, schedule: str, *, reason: str, actor: str, until: datetime | Instant | None = None
    ) -> None:
        """No tick runs from now on, until it is resumed or `until` has come."""
        store = await self._opened()
        end = None if until is None else as_instant(until)
        if end is not None and end <= await store.now():
            raise InvalidInput("the pause would end in the past; give a later time")
        await store.pause(schedule, until=end, actor=acting(actor), note=stated(reason))

    def pause(self, schedule: str, *, reason: str, actor: str, until: datetime | Instant | None = None) -> None:
        self._call(lambda: self.pause_async(schedule, reason=reason, actor=actor, until=until), "pause_async")

    async def resume_async(self, schedule: str, *, reason: str, actor: str, catch_up: bool = False) -> None:
        """The next tick runs. Ticks that passed during the pause are skipped, in one row; with `catch_up` they were
        missed, and the schedule's policy says what becomes of them."""
        store = await self._opened()
        await store.resume(schedule, actor=acting(actor), note=stated(reason), catch_up=catch_up)

    def resume(self, schedule: str, *, reason: str, actor: str, catch_up: bool = False) -> None:
        self._call(lambda: self.resume_async(schedule, reason=reason, actor=actor, catch_up=catch_up), "resume_async")

    async def trigger_async(
        self, schedule: str, *, reason: str, actor: str, key: str | None = None, override_overlap: bool = False
    ) -> Kept:
        """Makes one run now, beside the schedule's ticks, for the time since the last of them. It obeys overlap.
        Conflict when overlap would skip it.

        `override_overlap` releases it as `release` does: neither overlap, limits nor pauses hold it.
        Said twice it is two runs, unless both say the same `key` within a day."""
        store, who, note = await self._opened(), acting(actor), stated(reason)
        once = None if key is None else checked_request_key(key)
        since = last_tick(await store.schedule(schedule), await store.now())
        check = None if override_overlap else refuse_skipped
        return await store.trigger(
            schedule, since=since, actor=who, note=note, key=once, override=override_overlap, check=check
        )

    def trigger(
        self, schedule: str, *, reason: str, actor: str, key: str | None = None, override_overlap: bool = False
    ) -> Kept:
        return self._call(
            lambda: self.trigger_async(
                schedule, reason=reason, actor=actor, key=key, override_overlap=override_overlap
            ),
            "trigger_async",
        )

    async def preview_trigger_async(self, schedule: str, *, override_overlap: bool = False) -> ForeseenTrigger:
        """What `trigger` would do now. Nothing is changed."""
        return foreseen_trigger(await (await self._opened()).trigger_facts(schedule), override=override_overlap)

    def preview_trigger(self, schedule: str, *, override_overlap: bool = False) -> ForeseenTrigger:
        return self._call(
            lambda: self.preview_trigger_async(schedule, override_overlap=override_overlap), "preview_trigger_async"
        )

    async def skip_async(self, run: str, *, reason: str, actor: str) -> Kept:
        """Ends a run that nobody has begun, whether it is still to come, held or ready. A schedule's next tick is
        skipped when it is due. What was begun is cancelled instead."""
        return await (await self._opened()).skip(run, actor=acting(actor), note=stated(reason))

    def skip(self, run: str, *, reason: str, actor: str) -> Kept:
        return self._call(lambda: self.skip_async(run, reason=reason, actor=actor), "skip_async")

    # Seeing

    async def schedules_async(self) -> list[ScheduleView]:
        return await (await self._opened()).schedules()

    async def schedule_async(self, schedule: str) -> ScheduleView:
        return await (await self._opened()).schedule(schedule)

    async def lacks_required_async(self, schedule: Schedule) -> bool:
        """Whether it requires a schedule that does not exist."""
        requires = schedule.policy.requires
        return requires is not None and not await (await self._opened()).templates([requires])

    async def declared_otherwise_async(self, schedule: str) -> list[str]:
        """The processes whose code declares it otherwise than it is stored."""
        return await (await self._opened()).declared_otherwise(schedule)

    async def runs_async(
        self,
        *,
        states: Sequence[State] = (),
        schedule: str | None = None,
        member: str | None = None,
        job: str | None = None,
        tenant: str | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> list[RunView]:
        """Newest first. Of a schedule over many members these are its ticks; with `member`, the runs of that one."""
        store = await self._opened()
        series = schedule if schedule is None or member is None else series_name(schedule, member)
        return await store.runs(states=states, schedule=series, job=job, tenant=tenant, limit=limit, before=before)

    async def run_async(self, run: str) -> RunView:
        return await (await self._opened()).run(run)

    async def ended_since_async(self, position: int, limit: int = 500) -> list[RunView]:
        return await (await self._opened()).ended_since(position, limit)

    async def events_since_async(self, position: int, limit: int = 500) -> list[EventRow]:
        return await (await self._opened()).events_since(position, limit)

    async def events_of_async(self, subject: str) -> list[EventRow]:
        return await (await self._opened()).events_of(subject)

    async def last_positions_async(self) -> tuple[int, int]:
        return await (await self._opened()).last_positions()

    async def next_pending_async(self) -> RunView | None:
        return await (await self._opened()).next_pending()

    async def now_async(self) -> Instant:
        return await (await self._opened()).now()

    async def jobs_async(self) -> dict[str, JobCard]:
        return await (await self._opened()).jobs()

    async def ticking_async(self) -> Ticking:
        """Whether schedulers fire what is due."""
        return await (await self._opened()).ticking()

    async def counts_async(self) -> Mapping[str, int]:
        return await (await self._opened()).counts()

    async def instances_async(self) -> list[Instance]:
        return await (await self._opened()).instances()

    async def health_async(self) -> Mapping[str, Any]:
        return await (await self._opened()).health()
