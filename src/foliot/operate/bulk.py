"""Many runs at once, by a filter: see how many are meant, then cancel or skip each by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from foliot.domain.listing import MOST, Order, RunFilter
from foliot.domain.run import RunView
from foliot.domain.state import State
from foliot.domain.store import Store
from foliot.errors import Conflict, FoliotError, InvalidInput, UnknownName
from foliot.operate.acting import Acting, acting, stated
from foliot.operate.shapes import Shape, run_shape

MOST_RUNS = 100_000
SAMPLE = 10
Progress = Callable[[int], None]
"""Told how many have been decided upon, whenever one was."""


class BulkAction(StrEnum):
    CANCEL = "cancel"
    SKIP = "skip"


_UNBEGUN = (State.SCHEDULED, State.HELD, State.READY)
_TAKES = {BulkAction.CANCEL: (*_UNBEGUN, State.RETRYING, State.RUNNING), BulkAction.SKIP: _UNBEGUN}


class BulkPreview(NamedTuple):
    """What would become of the runs that a filter means."""

    would: int
    states: Counter[str]
    """Of these, how many are in which state."""
    refused: Counter[str]
    """Why others would be refused, and how many of them."""
    sample: list[RunView]


class Handled(NamedTuple):
    """What became of one run."""

    run: str
    outcome: str
    """`cancelled`, `asked` (to stop), `withdrawn`, `skipped`, `parked`; `refused` or `failed`."""
    problem: str | None = None

    @property
    def is_good(self) -> bool:
        return self.outcome not in ("refused", "failed")


class BulkVerbs(Acting):
    """Each run is judged by itself, as it is then, and written down by itself: one bad one never stops the rest. Said
    again, it is about those that are left."""

    async def preview_bulk_async(self, action: str, wanted: RunFilter, *, limit: int = MOST_RUNS) -> BulkPreview:
        """What `bulk` would do now. Nothing is changed."""
        store, doing = await self._opened(), _action(action)
        preview = BulkPreview(0, Counter(), Counter(), [])
        would = 0
        async for view in _meant(store, doing, wanted, limit):
            problem = _refusal(doing, view)
            if problem is None:
                would += 1
                preview.states[str(view.state)] += 1
                preview.sample.extend([view] if len(preview.sample) < SAMPLE else [])
            else:
                preview.refused[problem] += 1
        return preview._replace(would=would)

    async def bulk_async(
        self,
        action: str,
        wanted: RunFilter,
        *,
        reason: str,
        actor: str,
        limit: int = MOST_RUNS,
        progress: Progress | None = None,
    ) -> list[Handled]:
        """Cancels or skips all runs that are meant, one after another."""
        store, who, why, doing = await self._opened(), acting(actor), stated(reason), _action(action)
        # All of them first: what is made while this is under way was not meant.
        meant = [view.id async for view in _meant(store, doing, wanted, limit)]
        results: list[Handled] = []
        for run in meant:
            try:
                verb = store.cancel if doing is BulkAction.CANCEL else store.skip
                results.append(Handled(run, (await verb(run, actor=who, note=why)).outcome))
            except (Conflict, UnknownName) as problem:  # it ended, or began, before its turn came
                results.append(Handled(run, "refused", str(problem)))
            except FoliotError as problem:
                results.append(Handled(run, "failed", str(problem)))
            if progress is not None:
                progress(len(results))
        return results

    def bulk(self, action: str, wanted: RunFilter, *, reason: str, actor: str, limit: int = MOST_RUNS) -> list[Handled]:
        return self._call(
            lambda: self.bulk_async(action, wanted, reason=reason, actor=actor, limit=limit), "bulk_async"
        )


def bulk_preview_shape(seen: BulkPreview) -> Shape:
    return {
        "would": seen.would,
        "states": dict(seen.states),
        "refused": dict(seen.refused),
        "sample": [run_shape(view) for view in seen.sample],
    }


def told_shape(told: Sequence[tuple[str, str, str | None]]) -> Shape:
    """Of each its name, what became of it, and why not."""
    return {
        "counts": dict(Counter(outcome for _, outcome, _ in told)),
        "handled": [{"id": name, "outcome": outcome, "problem": problem} for name, outcome, problem in told],
    }


def _action(given: str) -> BulkAction:
    if given not in set(BulkAction):
        raise InvalidInput(f"{given!r:.80} is not an action on many runs; give one of {', '.join(BulkAction)}")
    return BulkAction(given)


async def _meant(store: Store, doing: BulkAction, wanted: RunFilter, limit: int) -> AsyncIterator[RunView]:
    """Page by page, those that the action can be about."""
    if replace(wanted, order=Order.NEWEST) == RunFilter():
        raise InvalidInput("the filter is empty and would select every run; give at least one condition")
    if not 1 <= limit <= MOST_RUNS:
        raise InvalidInput(f"limit={limit!r:.40}: give a number from 1 to {MOST_RUNS:,}")
    states = tuple(one for one in _TAKES[doing] if not wanted.states or one in wanted.states)
    if not states:
        takes = ", ".join(map(str, _TAKES[doing]))
        raise InvalidInput(f"{doing} applies only to {takes} runs; leave out other states")
    asked, cursor = replace(wanted, states=states, order=Order.NEWEST), None
    while limit > 0:
        page = await store.list_runs(asked, cursor=cursor, limit=min(limit, MOST))
        for one in page.runs:
            yield one.view
        limit -= len(page.runs)
        cursor = page.cursor
        if cursor is None:
            return


def _refusal(doing: BulkAction, view: RunView) -> str | None:
    if doing is BulkAction.SKIP and view.attempt > 0:
        return "has started; cancel it instead"
    return None
