"""Actions on many runs or schedules: preview with a count, confirmation, then one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import typer

from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.dead import Place, bar, refuse_blind
from foliot.cli.options import WrongUsage
from foliot.cli.output import Column, print_facts, print_json, print_table, say
from foliot.domain.listing import RunFilter
from foliot.operate.bulk import MOST_RUNS, BulkPreview, Handled, bulk_preview_shape, told_shape
from foliot.operate.pausing import ScheduleWanted, Steered

_SHOWN = 20
_DONE = {"pause": "paused", "resume": "resumed", "cancel": "cancelled", "skip": "skipped"}


class Bulk(NamedTuple):
    """One action on many, as requested."""

    verb: str
    dry_run: bool
    yes: bool
    as_json: bool
    place: Place

    def of_schedules(
        self, wanted: ScheduleWanted, act: Callable[[Foliot, Callable[[int], None]], Awaitable[list[Steered]]]
    ) -> None:
        refuse_blind(dry_run=self.dry_run, yes=self.yes, as_json=self.as_json)
        meant = self.place.call(lambda foliot: foliot.operate.schedules_meant_async(**wanted))
        names = [view.schedule.id for view in meant]
        if self.dry_run and self.as_json:
            print_json({"would": len(names), "schedules": names})
        elif not self.as_json:
            print_facts(
                {"schedules": f"{len(names):,}", "examples": _listed(names)} if names else {"schedules": "none"}
            )
        if not self._goes(len(names), "schedule"):
            return
        with bar(is_shown=not self.as_json, title=_DONE[self.verb], total=len(names)) as shown:
            told = self.place.call(lambda foliot: act(foliot, shown))
        self._tell(told, "schedule")

    def of_runs(self, wanted: RunFilter, limit: int, reason: str, actor: str) -> None:
        refuse_blind(dry_run=self.dry_run, yes=self.yes, as_json=self.as_json)
        if self.dry_run or not self.as_json:
            seen = self.place.call(lambda foliot: foliot.operate.preview_bulk_async(self.verb, wanted, limit=limit))
            self._show(seen)
            if not self._goes(seen.would, "run"):
                return

        async def act(foliot: Foliot, shown: Callable[[int], None]) -> list[Handled]:
            return await foliot.operate.bulk_async(
                self.verb, wanted, reason=reason, actor=actor, limit=limit, progress=shown
            )

        with bar(is_shown=not self.as_json, title=_DONE[self.verb], total=min(limit, MOST_RUNS)) as shown:
            told = self.place.call(lambda foliot: act(foliot, shown))
        self._tell(told, "run")

    def _goes(self, count: int, noun: str) -> bool:
        if self.dry_run or not count:
            return False
        return self.yes or typer.confirm(f"{self.verb} {words.counted(count, noun)}?")

    def _show(self, seen: BulkPreview) -> None:
        if self.as_json:
            print_json(bulk_preview_shape(seen))
            return
        facts = {f"to {self.verb}": f"{seen.would:,}"}
        if seen.states:
            facts["states"] = ", ".join(f"{count:,} {state}" for state, count in seen.states.most_common())
        if seen.refused:
            facts["refused"] = "; ".join(f"{count:,}: {why}" for why, count in seen.refused.most_common())
        if seen.sample:
            facts["examples"] = _listed([view.id for view in seen.sample], seen.would)
        print_facts(facts)

    def _tell(self, told: Sequence[tuple[str, str, str | None]], noun: str) -> None:
        """An exit of 1 when one of them was refused, or could not be done."""
        bad = [one for one in told if one[1] in ("refused", "failed")]
        if self.as_json:
            print_json(told_shape(told))
        else:
            counts = Counter(outcome for _, outcome, _ in told)
            say(
                "; ".join(f"{outcome} {words.counted(count, noun)}" for outcome, count in counts.most_common())
                or "none"
            )
            columns = (Column(noun), Column("outcome", coloured=True), Column("reason", shrinks=True))
            if bad:
                print_table(columns, [(name, how, why or "") for name, how, why in bad[:_SHOWN]], nothing="")
        if bad:
            raise typer.Exit(1)


def are_many(one: str | None, noun: str, dry_run: bool, *, said: bool) -> bool:
    """Whether filters were `said` (many), or one name was given. WrongUsage for both or neither."""
    if (one is None) is not said:
        raise WrongUsage(f"give either the name of one {noun}, or filters: --job, --tenant, --queue, --prefix, …")
    if one is not None and dry_run:
        raise WrongUsage(f"--dry-run works with filters; to inspect one {noun}: foliot {noun}s show NAME")
    return one is None


def _listed(names: Sequence[str], total: int | None = None) -> str:
    more = (total or len(names)) - min(len(names), 10)
    return ", ".join(names[:10]) + (f", and {more:,} more" if more else "")
