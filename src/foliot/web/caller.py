"""Who asks, and what exists for them. The tenant comes from the credential, and from nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import Request

from foliot.app import Foliot
from foliot.domain.access import SHARED, Scope
from foliot.domain.run import RunView
from foliot.domain.schedule import ScheduleView
from foliot.errors import UnknownName
from foliot.operate import Operator
from foliot.web.entrance import Principal
from foliot.web.gate import PRINCIPAL
from foliot.web.problems import Problem


@dataclass(frozen=True, slots=True)
class Caller:
    app: Foliot
    principal: Principal

    @property
    def operate(self) -> Operator:
        return self.app.operate

    @property
    def actor(self) -> str:
        return self.principal.name

    @property
    def tenant(self) -> str | None:
        """The only one that exists for them; None: all do."""
        return self.principal.tenant

    def narrowed(self, tenant: str | None) -> str | None:
        """The tenant that a list is about, of those that somebody asks for."""
        if self.tenant is None:
            return tenant
        if tenant not in (None, self.tenant):
            raise Problem("not-allowed", "the token is bound to another tenant; use a token of this tenant")
        return self.tenant

    async def run(self, run: str) -> RunView:
        """One that exists for them. Another tenant's is told as one that nobody has."""
        view = await self.operate.run_async(run)
        if self.tenant is not None and view.tenant != self.tenant:
            raise UnknownName(f"there is no run {run!r}")
        return view

    async def schedule(self, schedule: str) -> ScheduleView:
        view = await self.operate.schedule_async(schedule)
        if self.tenant is not None and view.schedule.tenant != self.tenant:
            raise UnknownName(f"there is no schedule {schedule!r}")
        return view

    async def is_taken(self, schedule: str) -> bool:
        """Whether any tenant has a schedule of that name."""
        try:
            await self.operate.schedule_async(schedule)
        except UnknownName:
            return False
        return True

    async def check_backfill(self, number: int) -> None:
        """One that exists for them: of a schedule that does."""
        if self.tenant is None:
            return
        try:
            await self.schedule((await self.operate.backfill_progress_async(number)).backfill.schedule)
        except UnknownName:
            raise UnknownName(f"there is no backfill {number}") from None

    def check_fields(self, given: Mapping[str, Any]) -> None:
        """What somebody who is bound to a tenant changes stays that tenant's."""
        if self.tenant is not None and given.get("tenant", self.tenant) != self.tenant:
            raise Problem(
                "not-allowed",
                "the token is bound to a tenant: the tenant of its schedules cannot change; use another token",
            )
        self._check_shared(given, {})

    async def check_stated(self, stated: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """What somebody who is bound to a tenant states, of each job, goes where the job says, in its turn. A setting
        that is null is a choice, too: no breaker, no key."""
        if self.tenant is None:
            return
        cards = await self.operate.jobs_async()
        for job, given in stated:
            own = {"priority": 0, "queue": cards[job].queue if job in cards else None}
            self._check_shared(given if given.get("queue") is not None else {**given, "queue": own["queue"]}, own)

    def _check_shared(self, given: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        if self.tenant is None or self.principal.scope is Scope.ADMIN:
            return
        chosen = sorted(name for name in SHARED & given.keys() if name not in own or own[name] != given[name])
        if chosen:
            raise Problem(
                "not-allowed",
                f"{', '.join(chosen)}: shared by all tenants, and the token is bound to a tenant; use a token of scope "
                f"admin, or keep the job's own value",
            )


def _caller(request: Request) -> Caller:
    return Caller(request.app.state.foliot, request.scope[PRINCIPAL])


Asking = Annotated[Caller, Depends(_caller)]
