"""The ledger: what a job did to the world outside, item by item and effect by effect, and what follows from it.

A *lineage* is a run with all its reruns. They share one ledger, which is named by the number of the first run: what
was done once for a business reason is done, whoever asks again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, NamedTuple

from foliot.domain.instant import Instant
from foliot.domain.redaction import Secrets


class EffectState(StrEnum):
    """What is known of one effect."""

    STARTED = "started"
    """It began, and nobody wrote down how it ended: a *maybe*, unless its attempt is still at it."""
    DONE = "done"
    NOT_DONE = "not_done"
    """It is known not to have happened: the handler said so, a probe did, or a person."""


class Settles(StrEnum):
    """What can settle an effect that has begun and has no recorded end, without a person."""

    IDEMPOTENT = "idempotent"
    """Doing it again with the same key does it once."""
    PROBE = "probe"
    """Its handler can ask whether it happened."""


class Effect(NamedTuple):
    """An effect as its handler declares it when it begins."""

    name: str
    key: str
    settles: Settles | None = None
    undo: str | None = None
    """The name of a function that takes it back, for people."""
    item: tuple[str, str] | None = None
    """Batch and key of the item that the innermost loop over `ctx.each` is at."""
    sizes: tuple[tuple[str, int], ...] = ()
    """Batches whose size the store may not know yet. Written with the effect: a process that dies inside it leaves on
    record how much was to be done."""


class EffectView(NamedTuple):
    """One line of the ledger."""

    name: str
    key: str
    state: EffectState
    settles: Settles | None
    run: int
    """The number of the run that wrote it last; reruns write into the ledger of their first run."""
    attempt: int
    token: int
    started_at: Instant
    ended_at: Instant | None
    result: bytes | None
    note: str | None
    """Who settled it, and how they knew."""
    undo: str | None

    @property
    def is_maybe(self) -> bool:
        """Whether only a person, or a check of the whole run, can say whether it happened."""
        return self.state is EffectState.STARTED and self.settles is None


class Begun(NamedTuple):
    """What the store answers to an attempt that is about to begin an effect."""

    before: EffectView | None
    """The line as it stood before. `done` or a maybe of an earlier attempt: then nothing was written."""
    lineage: str
    """The id of the lineage's first run, from which idempotency keys derive."""


class Settled(NamedTuple):
    """A person's word about one effect."""

    name: str
    key: str
    state: EffectState


class ItemState(StrEnum):
    """How one item of a batch ended."""

    DONE = "done"
    FAILED = "failed"


class Item(NamedTuple):
    """One item of a batch, as its handler left it."""

    batch: str
    key: str
    state: ItemState
    error: str | None = None
    of: int | None = None
    """How many there are in the batch, where that is known."""


class BatchView(NamedTuple):
    """How far a lineage came with one batch.

    An item counts as done when its loop recorded that. Without such a record it is in doubt while an effect of it is
    open, and done once it has an effect of each name that the batch has, all of them done.
    """

    name: str
    of: int | None
    done: int
    failed: int
    failures: list[tuple[str, str]]
    """The first of those that failed: key and error."""
    in_doubt: int = 0

    @property
    def left(self) -> int:
        """Items that are neither done nor failed nor in doubt; 0 where their number is not known."""
        return 0 if self.of is None else max(self.of - self.done - self.failed - self.in_doubt, 0)

    @property
    def is_short(self) -> bool:
        """Whether items are known not to be done."""
        return bool(self.failed or self.in_doubt or self.left)

    def __str__(self) -> str:
        """`397 of 412`."""
        return f"{self.done:,} of {self.done + self.failed if self.of is None else self.of:,}"


class Facts(NamedTuple):
    """What the ledger says of a run when one of its attempts has ended."""

    done: int = 0
    open: int = 0
    """Effects that began, have no recorded end, and that the next attempt can settle by itself."""
    maybe: int = 0
    """The same, and nothing can settle them but a person or a check."""
    items: int = 0
    """Items that are done."""
    checkpoint: bool = False
    undone: int = 0
    """Effects that are known not to have happened."""

    @classmethod
    def of(cls, effects: Iterable[EffectView], items: int = 0, checkpoint: bool = False) -> Facts:
        done = unsettled = maybe = undone = 0
        for effect in effects:
            done += effect.state is EffectState.DONE
            undone += effect.state is EffectState.NOT_DONE
            maybe += effect.is_maybe
            unsettled += effect.state is EffectState.STARTED and not effect.is_maybe
        return cls(done, unsettled, maybe, items, checkpoint, undone)


class Then(StrEnum):
    """What a person wants of the work that is left once the effects of a run are settled."""

    RESUME = "resume"
    """Do it now."""
    CLOSE = "close"
    """It is not needed."""


def is_unfinished(effects: Iterable[EffectView], batches: Iterable[BatchView], *, returned: bool) -> bool:
    """Whether the ledger knows of work of a run that is left to do. `returned`: its handler returned, so that it went
    through batches of unknown size to their end."""
    undone = any(effect.state is EffectState.NOT_DONE for effect in effects)
    return undone or any(batch.is_short or (batch.of is None and not returned) for batch in batches)


class Stage(StrEnum):
    """Where in its life an attempt ended."""

    BEFORE_EFFECT = "before_effect"
    AFTER_EFFECT = "after_effect"
    INSIDE_EFFECT = "inside_effect"
    CHECK = "check"
    """In the check of a result that is committed."""


def stage_of(facts: Facts) -> Stage:
    if facts.open or facts.maybe:
        return Stage.INSIDE_EFFECT
    return Stage.AFTER_EFFECT if facts.done else Stage.BEFORE_EFFECT


@dataclass(frozen=True, slots=True)
class Traits:
    """What a job's code says of itself. The store keeps it, so that processes without the code can decide."""

    effects: tuple[str, ...] | None = None
    """The names of all its effects; None when it declares nothing, and the ledger is blind."""
    idempotent: bool = False
    """Doing all of it again does no harm."""
    rewritable: bool = False
    """Its output can be written again, and comes out the same."""
    checked: bool = False
    """It has a check of its business result."""
    isolated: bool = False
    """It has a process of its own, and cannot take its worker down."""
    secret: tuple[str, ...] = ()
    """Where secrets are in its arguments, and in what it returns; see `foliot.domain.redaction`."""
    secret_keys: tuple[str, ...] = ()
    """Further names of keys that its app calls secret."""

    @property
    def repeatable(self) -> bool:
        return self.idempotent or self.rewritable

    @property
    def tracked(self) -> bool:
        return self.effects is not None

    @property
    def secrets(self) -> Secrets:
        """What must not be shown of its runs."""
        paths = tuple(tuple(path.split(".")) for path in self.secret)
        return Secrets(paths, frozenset(self.secret_keys))


def traits_to_json(traits: Traits) -> bytes | None:
    """None for a job that says nothing of itself, as most do."""
    if traits == Traits():
        return None
    said = {field.name: getattr(traits, field.name) for field in fields(traits)}
    unsaid = {"secret": (), "secret_keys": ()}
    return json.dumps(
        {name: value for name, value in said.items() if value not in (None, False) and value != unsaid.get(name)}
    ).encode()


def traits_from_json(data: bytes | None) -> Traits:
    """Reads what `traits_to_json` wrote. What cannot be read counts as not said: nothing is assumed to be safe."""
    if not data:
        return Traits()
    try:
        stored: Any = json.loads(data)
    except (ValueError, RecursionError):
        return Traits()
    if not isinstance(stored, dict):
        return Traits()
    effects = stored.get("effects")
    flags: dict[str, Any] = {
        name: stored.get(name) is True for name in ("idempotent", "rewritable", "checked", "isolated")
    }
    return replace(
        Traits(effects=tuple(map(str, effects)) if isinstance(effects, list) else None, **flags),
        secret=_texts(stored.get("secret")),
        secret_keys=_texts(stored.get("secret_keys")),
    )


def _texts(stored: Any) -> tuple[str, ...]:
    return tuple(map(str, stored)) if isinstance(stored, list) else ()
