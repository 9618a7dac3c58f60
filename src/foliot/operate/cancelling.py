"""Cancelling a run: asking it to stop, and ending the process of its worker when it does not."""

from __future__ import annotations

from typing import NamedTuple

from foliot.domain.forcing import check_can_be_forced
from foliot.domain.identity import run_id
from foliot.domain.instant import Duration, Instant
from foliot.domain.run import Kept, RunView
from foliot.domain.store import Instance
from foliot.operate.acting import Acting, acting, stated
from foliot.operate.shapes import Shape, kept_shape, moment
from foliot.operate.words import counted, length


class HeldRun(NamedTuple):
    """Another run that the worker holds."""

    run: str
    job: str
    claimed_at: Instant


class ForcedCancel(NamedTuple):
    """Preview of a forced cancellation: the process of a run's worker, and the other runs in it."""

    view: RunView
    worker: Instance | None
    """None when the worker has ended already."""
    others: list[HeldRun]
    at: Instant

    def age(self, held: HeldRun) -> Duration:
        return max(self.at - held.claimed_at, 0)


class CancelVerbs(Acting):
    """Ends runs before their time."""

    async def cancel_async(self, run: str, *, reason: str, actor: str, force: bool = False) -> Kept:
        """Ends a run that has not begun; asks a running one to stop. `force`: if it goes on, its worker ends the whole
        process a second later, and starts again. The other runs in it end as interrupted; `preview_force` lists them.

        Conflict if the run has ended. With `force` also unless a worker executes the run and can end its process."""
        return await (await self._opened()).cancel(run, actor=acting(actor), note=stated(reason), force=force)

    def cancel(self, run: str, *, reason: str, actor: str, force: bool = False) -> Kept:
        return self._call(lambda: self.cancel_async(run, reason=reason, actor=actor, force=force), "cancel_async")

    async def preview_force_async(self, run: str) -> ForcedCancel:
        """Lists the runs that `cancel` with `force` may end. Changes nothing; Conflict where it would be refused."""
        store = await self._opened()
        view = await store.run(run)
        worker = next((one for one in await store.instances() if one.number == view.worker), None)
        check_can_be_forced(view.id, view.state, view.worker, recycles=None if worker is None else worker.recycles)
        held = [] if worker is None else await store.attempts_of(worker.number)
        others = [HeldRun(run_id(one.number, one.name), one.job, one.claimed_at) for one in held]
        others = sorted((one for one in others if one.run != view.id), key=lambda one: one.claimed_at)
        return ForcedCancel(view, worker, others, await store.now())

    def preview_force(self, run: str) -> ForcedCancel:
        return self._call(lambda: self.preview_force_async(run), "preview_force_async")


def forced_words(seen: ForcedCancel) -> list[str]:
    """The preview for people, in sentences. The other runs are listed by the caller."""
    if seen.worker is None:
        return ["The worker of the run has ended already. The watch ends the run as cancelled."]
    worker = f"worker {seen.worker.number} (process {seen.worker.pid} on {seen.worker.host})"
    words = [
        f"The worker asks the handler to stop. If the handler is still running after a second, {worker} "
        "ends its process. Then the run ends as cancelled, or as ambiguous if one of its effects may have happened."
    ]
    if not seen.others:
        return [*words, "The worker holds no other run."]
    runs = f"{counted(len(seen.others), 'other run')} in this process"
    return [*words, f"{runs} would end as interrupted. They lose no attempt and restart at once."]


def held_words(seen: ForcedCancel) -> list[tuple[str, str]]:
    """Each other run with its job and how long the worker has held it."""
    return [(one.run, f"{one.job}, for {length(seen.age(one))}") for one in seen.others]


def process_shape(seen: ForcedCancel) -> Shape | None:
    if seen.worker is None:
        return None
    return {
        "worker": seen.worker.number,
        "host": seen.worker.host,
        "pid": seen.worker.pid,
        "others": [{"id": one.run, "job": one.job, "claimed_at": moment(one.claimed_at)} for one in seen.others],
    }


def forced_shape(seen: ForcedCancel, kept: Kept | None = None) -> Shape:
    """The run with the process that may end with it. `kept` is None for a preview."""
    view = seen.view
    kept = kept or Kept(view.number, view.name, "would", view.state, view.fire_at)
    return {**kept_shape(kept), "process": process_shape(seen)}
