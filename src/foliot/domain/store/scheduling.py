"""Standing rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from foliot.domain.instant import Instant
from foliot.domain.run import Kept
from foliot.domain.schedule import NO_RELEASE, Applied, Declaration, Fingerprint, Release, ScheduleView, TickFacts

NOTHING_SETTLED: Mapping[str, str] = {}


class ScheduleStore(Protocol):
    """Standing rules."""

    async def apply(
        self,
        declarations: Sequence[Declaration],
        *,
        prune: bool,
        actor: str,
        source: str = "code",
        release: Release = NO_RELEASE,
        note: str = "",
        fresh: bool = False,
        standing: Sequence[Declaration] = (),
        settled: Mapping[str, str] = NOTHING_SETTLED,
    ) -> Applied:
        """Brings schedules to what is declared, where the declaration differs from the one last applied: by its
        fingerprint, or by content where that has another format. Fields that operators edited are not compared then.

        With `fresh` all of them are new, or are as they are stated: Conflict when one is another one's, or otherwise.

        What operators edited stays for as long as the declaration does; a changed one takes its place (`overwritten`).

        Each has exactly one pending run then: the one that was due already, or the one at `first` (none while one
        is busy, for a fixed delay). That is also made for an unchanged one that lost it. Of one that operators edited
        `standing` says so, as it is stored, with the ticks of that rule. Operators' pauses survive.
        Schedules that this `source` once declared and no longer does are reported; with `prune` they and their pending
        runs are removed (one that was due ends as skipped, `revised`). A schedule of another source is left as it is,
        and reported. TickTaken, and nothing is changed, when a `first` was
        made before: count on from there.

        `release` names all that an app declares. Releases are as old as their first `apply`. What a newer one declares
        (or has removed) that a live instance runs, an older one leaves as it is, and reports as outdated.

        `settled`: further declarations, each by its hash, that `settled()` has named. They are unchanged, and nothing
        is written for them. ScheduleChanged, and nothing is changed, when one of them is not settled any more.
        """

    async def settled(self, source: str = "code") -> dict[str, str]:
        """By schedule, the hash of the declaration that was applied last: of those with a hash in the present format,
        a pending run, no fault and no operator's edit. To apply one of these again changes nothing."""

    async def fingerprints(
        self, source: str = "code", *, after: str = "", limit: int = 1_000
    ) -> dict[str, Fingerprint]:
        """By schedule, the declaration that was applied last, which shows which ones to apply. A page in the order of
        ids, of schedules behind `after`."""

    async def declared_otherwise(self, schedule_id: str) -> list[str]:
        """The live instances whose code declares the schedule otherwise than it is stored, each in a few words.
        UnknownName if there is none."""

    async def schedules(self) -> list[ScheduleView]: ...

    async def schedule(self, schedule_id: str) -> ScheduleView:
        """UnknownName if there is none."""

    async def pause(self, schedule_id: str, *, until: Instant | None, actor: str, note: str) -> None:
        """The tick that falls due while it is paused is held, and no other is made, until it is resumed, or `until`."""

    async def resume(self, schedule_id: str, *, actor: str, note: str, catch_up: bool = False) -> None:
        """Ticks that fell due while it was paused end as `skipped: paused`, in one row; with `catch_up` they were
        missed, and the schedule's policy speaks."""

    async def edit(self, edited: Declaration, revision: int, *, fields: Sequence[str], actor: str, note: str) -> int:
        """Brings one schedule to what an operator says, and answers its new revision. Its source stays, and so does the
        fingerprint of what that declared last, unless operators made it: then it is what `edited` says.

        Conflict, which says who changed what, when `revision` is not the store's any more; UnknownName if there is
        none. TickTaken as with `apply`."""

    async def delete(self, schedule_id: str, *, actor: str, note: str, revision: int | None = None) -> None:
        """Removes a schedule and its pending run; one that was due ends as skipped, `revised`. History stays, and runs
        that were handed off go on. UnknownName if there is none; Conflict when it is not at the `revision` given."""

    async def trigger(
        self,
        schedule_id: str,
        *,
        since: Instant | None = None,
        actor: str,
        note: str,
        key: str | None = None,
        override: bool = False,
        check: Callable[[TickFacts], None] | None = None,
    ) -> Kept:
        """One run of the schedule's job, due now, beside its ticks, for the time since `since`. It obeys overlap when
        it fires; with `override` it is released as by `release_run`. Under a `key` that was said within a day, the run
        that was made then is answered (`kept`); Conflict when that was another schedule's. `check` gets the facts of
        a new run in the same transaction. If it raises, no run is made."""

    async def trigger_facts(self, schedule_id: str) -> TickFacts:
        """The facts that decide about a run that a person orders now. UnknownName if there is no such schedule."""
