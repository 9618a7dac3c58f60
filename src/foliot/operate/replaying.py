"""The verbs for dead letters: see them, see what a replay would do, and replay many at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypedDict, Unpack

from foliot.domain.conditions import policy_of
from foliot.domain.decisions import TOO_LATE, too_late
from foliot.domain.gates import Rate
from foliot.domain.identity import checked_line
from foliot.domain.instant import Duration, Instant
from foliot.domain.recovery import Action, Situation, advise
from foliot.domain.replay import DeadFilter, DeadLetter, Fate, Replayed
from foliot.domain.state import Reason
from foliot.domain.store import JobCard, Store
from foliot.errors import InvalidInput
from foliot.operate.acting import Acting, acting, as_instant, stated
from foliot.operate.advising import traits_of
from foliot.operate.report import OVERRIDE
from foliot.operate.shapes import Shape, moment, run_shape, seconds
from foliot.operate.words import listed

MOST_LETTERS = 1_000_000
CHUNK = 200
"""So many are replayed in one transaction: whoever waits for it waits for that long."""
SAMPLE = 10
_PAGE = 1_000

Progress = Callable[[int], None]
"""Told how many have been decided upon, whenever some were."""


class DeadWanted(TypedDict, total=False):
    """Which dead letters are meant, as a person says it."""

    job: str | None
    schedule: str | None
    member: str | None
    """With `schedule`: only of this member."""
    tenant: str | None
    why: str | None
    """What they died of: `attempts`, `permanent`, `too_old`, …"""
    since: datetime | Instant | None
    """Their nominal time lies in `[since, until)`."""
    until: datetime | Instant | None


class Judged(NamedTuple):
    """A dead letter, and what a replay would do about it."""

    letter: DeadLetter
    fate: Fate
    problem: str | None = None
    """Why it is not replayed; or, of one that is, what somebody has to answer for."""

    @property
    def goes(self) -> bool:
        return self.fate is Fate.WOULD


class ReplayPreview(NamedTuple):
    """What a replay would do, to the run."""

    would: int
    refused: Counter[tuple[Fate, str]]
    """What would not be replayed, and why."""
    sample: list[Judged]
    """The first ones that would be."""
    examples: dict[tuple[Fate, str], str]
    """A run of each kind that would not."""
    lasting: Duration
    """How long it takes until the last one is due."""

    @property
    def total(self) -> int:
        return self.would + self.refused.total()


class Outcome(NamedTuple):
    """What became of one run, when many are replayed or rerun at once."""

    run: str
    fate: Fate
    problem: str | None = None
    due_at: Instant | None = None
    made: str | None = None
    """The new run, where it was rerun."""

    @property
    def is_done(self) -> bool:
        return self.fate in (Fate.WOULD, Fate.REPLAYED, Fate.RERUN)

    @property
    def is_good(self) -> bool:
        return self.fate not in (Fate.REFUSED, Fate.FAILED)


class ReplayVerbs(Acting):
    """Dead letters in bulk: behind all that is live, at a rate, each judged by itself and written down by itself."""

    async def dead_async(self, *, limit: int = 50, after: int = 0, **wanted: Unpack[DeadWanted]) -> list[Judged]:
        """Dead letters, oldest first, each with what a replay would do about it. `after`: the number of the last one of
        the page before."""
        store = await self._opened()
        return [one async for one in _letters(store, _filter(wanted), checked_limit(limit), after=after)]

    def dead(self, *, limit: int = 50, **wanted: Unpack[DeadWanted]) -> list[Judged]:
        return self._call(lambda: self.dead_async(limit=limit, **wanted), "dead_async")

    async def preview_replay_async(
        self,
        *,
        rate: str | None = None,
        override: bool = False,
        limit: int = MOST_LETTERS,
        **wanted: Unpack[DeadWanted],
    ) -> ReplayPreview:
        """What `replay_dead` would do now. Nothing is changed."""
        store, every = await self._opened(), spacing(rate)
        return await _preview(_letters(store, _filter(wanted), checked_limit(limit), override=override), every)

    def preview_replay(
        self,
        *,
        rate: str | None = None,
        override: bool = False,
        limit: int = MOST_LETTERS,
        **wanted: Unpack[DeadWanted],
    ) -> ReplayPreview:
        return self._call(
            lambda: self.preview_replay_async(rate=rate, override=override, limit=limit, **wanted),
            "preview_replay_async",
        )

    async def replay_dead_async(
        self,
        *,
        reason: str,
        actor: str,
        rate: str | None = None,
        override: bool = False,
        limit: int = MOST_LETTERS,
        progress: Progress | None = None,
        **wanted: Unpack[DeadWanted],
    ) -> list[Outcome]:
        """Makes dead letters due again, with their attempts renewed, in the lane backfill, so many in a time as `rate`
        says ("50/s"; None: all at once).

        Each is judged by itself. What may do harm is refused without `override`; what is not useful any more is too
        late. One that cannot be replayed is reported, and never stops the rest. What was replayed is dead no more, so
        whoever was interrupted says the same again.
        """
        store, who, why, every = await self._opened(), acting(actor), stated(reason), spacing(rate)
        meant = _filter(wanted)
        # What dies while this is under way was not meant.
        meant = meant._replace(until=await store.now() + 1 if meant.until is None else meant.until)
        work = _Replay(store, who, why, every, progress)
        page: list[Judged] = []
        async for one in _letters(store, meant, checked_limit(limit), override=override):
            page.append(one)
            if len(page) == CHUNK:
                await work.replay(page)
                page = []
        await work.replay(page)
        return work.told

    def replay_dead(
        self,
        *,
        reason: str,
        actor: str,
        rate: str | None = None,
        override: bool = False,
        limit: int = MOST_LETTERS,
        progress: Progress | None = None,
        **wanted: Unpack[DeadWanted],
    ) -> list[Outcome]:
        return self._call(
            lambda: self.replay_dead_async(
                reason=reason,
                actor=actor,
                rate=rate,
                override=override,
                limit=limit,
                progress=progress,
                **wanted,
            ),
            "replay_dead_async",
        )


class _Replay:
    """One replay under way: whose word it is, when the next one is due, and what became of those before."""

    def __init__(self, store: Store, actor: str, note: str, every: Duration, progress: Progress | None) -> None:
        self._store = store
        self._actor = actor
        self._note = note
        self._every = every
        self._progress = progress
        self._due_at: Instant = 0
        self.told: list[Outcome] = []

    async def replay(self, page: Sequence[Judged]) -> None:
        """One transaction for those that are safe, and one for those that somebody answers for."""
        self.told += [Outcome(one.letter.view.id, one.fate, one.problem) for one in page if not one.goes]
        await self._send([one for one in page if one.goes and one.problem is None], override=False)
        await self._send([one for one in page if one.goes and one.problem is not None], override=True)
        if self._progress is not None and page:
            self._progress(len(self.told))

    async def _send(self, page: Sequence[Judged], *, override: bool) -> None:
        if not page:
            return
        try:
            self._note_all(page, await self._chunk(page, override))
        except Exception as problem:
            # One bad row never stops the rest. Where not even one of them can be replayed, the rows are not at fault.
            if not await self._one_by_one(page, override):
                raise problem

    async def _one_by_one(self, page: Sequence[Judged], override: bool) -> bool:
        failed: list[Outcome] = []
        for one in page:
            try:
                self._note_all([one], await self._chunk([one], override))
            except Exception as problem:
                failed.append(Outcome(one.letter.view.id, Fate.FAILED, f"{type(problem).__name__}: {problem}"))
        if len(failed) == len(page):
            return False
        self.told += failed
        return True

    async def _chunk(self, page: Sequence[Judged], override: bool) -> list[Replayed]:
        return await self._store.replay(
            [one.letter.view.number for one in page],
            due_at=self._due_at,
            every=self._every,
            override=override,
            actor=self._actor,
            note=f"{OVERRIDE}: {self._note}" if override else self._note,
        )

    def _note_all(self, page: Sequence[Judged], told: Iterable[Replayed]) -> None:
        for one, done in zip(page, told, strict=True):
            self.told.append(Outcome(one.letter.view.id, done.fate, done.problem, done.fire_at))
            if done.fire_at is not None:
                self._due_at = done.fire_at + self._every


async def _letters(
    store: Store, wanted: DeadFilter, limit: int, *, override: bool = False, after: int = 0
) -> AsyncIterator[Judged]:
    """Page by page: there may be very many."""
    cards, now = await store.jobs(), await store.now()
    while limit > 0:
        page = await store.dead(wanted, after=after, limit=min(limit, _PAGE))
        for letter in page:
            yield judged(letter, cards, now, override=override)
        if len(page) < min(limit, _PAGE):
            return
        limit -= len(page)
        after = page[-1].view.number


async def _preview(letters: AsyncIterator[Judged], every: Duration) -> ReplayPreview:
    would, refused, sample = 0, Counter[tuple[Fate, str]](), list[Judged]()
    examples: dict[tuple[Fate, str], str] = {}
    async for one in letters:
        if one.goes:
            would += 1
            sample += [one] if len(sample) < SAMPLE else []
        else:
            kind = one.fate, one.problem or ""
            refused[kind] += 1
            examples.setdefault(kind, one.letter.view.id)
    return ReplayPreview(would, refused, sample, examples, max(would - 1, 0) * every)


# ------------------------------------------------------------------------------------------------------------ decisions


def judged(letter: DeadLetter, cards: Mapping[str, JobCard], now: Instant, *, override: bool = False) -> Judged:
    """What advice says of it. The store looks again at what it can see, when it acts."""
    if too_late(letter.useful_until, now):
        return Judged(letter, Fate.TOO_LATE, TOO_LATE)
    view = letter.view
    card = cards.get(view.job)
    known = Situation(
        view.state, view.reason, letter.facts, traits_of(card), policy_of(view, card).on_lost, letter.begun
    )
    advice = advise(known)
    if advice is None or Action.RETRY not in advice.unsafe:
        return Judged(letter, Fate.WOULD)
    return Judged(letter, Fate.WOULD if override else Fate.REFUSED, advice.why)


def spacing(rate: str | None) -> Duration:
    """The time between two runs that are due by a rate."""
    return 0 if rate is None else Rate.parse(rate).every


def checked_limit(limit: int) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_LETTERS:
        raise InvalidInput(f"limit={limit!r:.40}: give a whole number from 1 to {MOST_LETTERS:,}")
    return limit


def _filter(wanted: DeadWanted) -> DeadFilter:
    since, until = (None if one is None else as_instant(one) for one in (wanted.get("since"), wanted.get("until")))
    if since is not None and until is not None and until <= since:
        raise InvalidInput("until is before since; swap them")
    why = wanted.get("why")
    if why is not None and why not in list(Reason):
        raise InvalidInput(f"why={why!r:.40}: not a reason of dead runs; give one of: {listed(sorted(Reason), 100)}")
    job, schedule, tenant = wanted.get("job"), wanted.get("schedule"), wanted.get("tenant")
    for what, name in (("job", job), ("schedule", schedule), ("tenant", tenant), ("member", wanted.get("member"))):
        if name is not None:
            checked_line(name, what)
    member = wanted.get("member")
    if member is not None and schedule is None:
        raise InvalidInput(f"member={member!r:.80} requires schedule=; give both")
    return DeadFilter(job, schedule, tenant, why, since, until, member)


# --------------------------------------------------------------------------------------------------------------- shapes


def dead_shape(one: Judged) -> Shape:
    """A dead letter, and what a replay would do about it."""
    return run_shape(one.letter.view) | {
        "useful_until": moment(one.letter.useful_until),
        "replay": str(one.fate),
        "problem": one.problem,
    }


def replay_preview_shape(seen: ReplayPreview) -> Shape:
    return {
        "total": seen.total,
        "would": seen.would,
        "takes": seconds(seen.lasting),
        "refused": [
            {"outcome": str(kind[0]), "problem": kind[1], "count": count, "example": seen.examples[kind]}
            for kind, count in sorted(seen.refused.items())
        ],
        "sample": [one.letter.view.id for one in seen.sample],
    }


def outcomes_shape(told: Sequence[Outcome]) -> Shape:
    """Counts, and each run."""
    counts = Counter(one.fate for one in told)
    return {str(fate): counts[fate] for fate in Fate} | {
        "total": len(told),
        "runs": [
            {
                "id": one.run,
                "outcome": str(one.fate),
                "problem": one.problem,
                "due_at": moment(one.due_at),
                "made": one.made,
            }
            for one in told
        ],
    }
