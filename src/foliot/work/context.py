"""What a job sees of its run, and how it says how far it is. Given by annotation: `def settle(ctx: Context, ...)`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from foliot.clock import Clock
from foliot.domain.depth import MOST_DEPTH, is_too_deep
from foliot.domain.identity import first_of_lineage, schedule_of_series
from foliot.domain.instant import Instant, to_datetime
from foliot.domain.ledger import Item
from foliot.domain.redaction import redacted_text
from foliot.domain.run import Claimed, Progress
from foliot.errors import Cancelled, InvalidInput
from foliot.work.batches import Batch, Batches, Key
from foliot.work.desk import Ask, Desk, Desks
from foliot.work.effects import Book, EffectBlock, Failures, Probe, checked_failures, declared
from foliot.work.hiding import Hide
from foliot.work.transaction import Completion, TransactionBlock

MOST_CHECKPOINT = 1 << 20
MOST_NOTE = 1_000
"""Characters of a progress note."""

_encode = msgspec.json.Encoder().encode


class Context:
    """One attempt, seen from inside the handler.

    A handler in a thread writes here while the event loop and the heartbeat's thread read. Every write is one
    assignment of a finished value, so a reader sees the old one or the new one, never half of one. What begins with
    an underscore is between the context and its attempt.
    """

    __slots__ = (
        "_batches",
        "_book",
        "_checkpoint",
        "_claimed",
        "_clock",
        "_completion",
        "_deadline",
        "_desk",
        "_desks",
        "_effects",
        "_ends_at",
        "_hide",
        "_in_transaction",
        "_is_checked",
        "_may_complete",
        "_moved_at",
        "_note",
        "_over",
        "_reports",
        "_saw_stop",
        "_started_at",
        "_stopping",
    )

    def __init__(
        self,
        claimed: Claimed,
        clock: Clock,
        deadline: Instant,
        ends_at: Instant,
        desks: Desks | None = None,
        effects: tuple[str, ...] | None = None,
        started_at: Instant | None = None,
        is_checked: bool = False,
        hide: Hide = redacted_text,
    ) -> None:
        """`ends_at` is the deadline by the monotonic clock; `effects` are the names that the job declares;
        `is_checked`: it has a check; `hide` takes secrets out of texts that are kept for people."""
        self._claimed = claimed
        self._clock = clock
        self._deadline = deadline
        self._ends_at = ends_at
        self._started_at = clock.now() if started_at is None else started_at
        self._desks = desks
        self._desk: Desk | None = None
        self._effects = effects
        self._is_checked = is_checked
        self._hide = hide
        self._book: Book | None = None
        self._batches: Batches | None = None
        self._in_transaction = False
        self._may_complete = False
        """Whether the handler can end the run itself: it has the token, or began a transaction."""
        self._completion: Completion | None = None
        self._note: bytes | None = None
        self._reports = False
        """Whether the handler says itself how far it is, so that its loops need not."""
        self._moved_at: Instant | None = None
        """When it last showed that it gets on, by the monotonic clock; None until it has."""
        self._checkpoint = claimed.checkpoint
        self._stopping = False
        self._saw_stop = False
        self._over = False
        """Whether the attempt is recorded as ended although its handler goes on: see `_refuse_if_over`."""

    @property
    def run_id(self) -> str:
        """The name of the run: the same in every attempt, so the right idempotency key for outside systems."""
        return self._claimed.id

    @property
    def lineage(self) -> str:
        """The name of the first run of the lineage: the same in every rerun of it."""
        return first_of_lineage(self._claimed.id)

    @property
    def dedupe_key(self) -> str:
        """The lineage's name, as the key by which outside systems tell a repetition from a new request."""
        return self.lineage

    @property
    def repair(self) -> bool:
        """Whether an operator wants written again what an earlier run of the lineage wrote. `each` passes nothing over
        then; effects that are done stay done."""
        return bool(self._claimed.repair)

    @property
    def number(self) -> int:
        """The number of the run: what `foliot.complete` asks for, with the token."""
        return self._claimed.number

    @property
    def attempt(self) -> int:
        """Which attempt at the run this is, counted from 1."""
        return self._claimed.attempt

    @property
    def nominal(self) -> datetime:
        """The time that the run stands for, in UTC; for a delayed job the time it was promised for."""
        claimed = self._claimed
        return to_datetime(claimed.fire_at if claimed.nominal is None else claimed.nominal)

    @property
    def interval(self) -> tuple[datetime, datetime] | None:
        """`[previous nominal, nominal)`: the time that a scheduled run answers for; None for delayed work."""
        claimed = self._claimed
        if claimed.since is None or claimed.nominal is None:
            return None
        return to_datetime(claimed.since), to_datetime(claimed.nominal)

    @property
    def schedule(self) -> str | None:
        """The schedule that made the run; None for delayed work."""
        series = self._claimed.schedule
        return None if series is None else schedule_of_series(series)

    @property
    def member(self) -> str | None:
        """Whom the run is for, where its schedule goes over many members; None where it does not."""
        return self._claimed.member

    @property
    def tenant(self) -> str | None:
        return self._claimed.tenant

    @property
    def token(self) -> int:
        """The fencing token: pass it on to outside systems that can refuse an older one."""
        self._may_complete = True
        return self._claimed.token

    @property
    def deadline(self) -> datetime:
        """When this attempt times out, in UTC, by the host's clock as it was when the attempt began."""
        return to_datetime(self._deadline)

    @property
    def time_left(self) -> timedelta:
        """Until the deadline; never negative. Right also when the host's clock was set meanwhile."""
        return timedelta(microseconds=max(self._ends_at - self._clock.monotonic(), 0))

    @property
    def cancelled(self) -> bool:
        """Whether this attempt should stop: cancelled by somebody, out of time, or its worker is shutting down.

        A handler that sees this may return or raise; either way the attempt counts as stopped, not as done.
        """
        if self._stopping:
            self._saw_stop = True
        return self._stopping

    def check(self) -> None:
        """Raises Cancelled when this attempt should stop. Call it where stopping is safe."""
        self._refuse_if_over()
        if self.cancelled:
            raise Cancelled(f"{self.run_id} was cancelled")

    def progress(self, done: float, of: float | None = None, note: str | None = None) -> None:
        """Says how far the attempt is. Cheap: told to the store with the next heartbeat, the latest word only."""
        self._reports = True
        self._say(done, of, note)

    def _say(self, done: float, of: float | None, note: str | None) -> None:
        if note is not None:
            note = _legible(note, self._hide)
        if not (_is_number(done) and (of is None or _is_number(of))):
            raise InvalidInput(f"progress takes numbers, as in progress(3, of=10); not {done!r:.40}, {of!r:.40}")
        self._note = _as_json({"done": done, "of": of, "note": note, "at": self._clock.now()}, "progress")
        self._move()
        self._refuse_if_over()

    def _refuse_if_over(self) -> None:
        """Raises Cancelled once the attempt is recorded as ended. After a write, not before it: the record contains
        every write that did not raise."""
        if self._over:
            self._saw_stop = True
            raise Cancelled(f"{self._claimed.id}/{self.attempt} was interrupted: its worker is shutting down")

    def _move(self) -> None:
        self._moved_at = self._clock.monotonic()

    def checkpoint(self, value: Any) -> None:
        """Remembers a JSON value for the next attempt. Durable with the next heartbeat or the attempt's end."""
        self._refuse_in_check("a checkpoint")
        encoded = _as_json(value, "a checkpoint")
        if len(encoded) > MOST_CHECKPOINT:
            raise InvalidInput(
                f"a checkpoint of {len(encoded):,} bytes is too large; at most {MOST_CHECKPOINT:,} are allowed: "
                "store the data elsewhere and checkpoint a reference"
            )
        self._checkpoint = encoded
        self._move()
        self._refuse_if_over()

    @property
    def last_checkpoint(self) -> Any:
        """The latest value given to `checkpoint`, by this attempt or one before it; None when there is none."""
        return None if self._checkpoint is None else msgspec.json.decode(self._checkpoint)

    def effect(
        self,
        name: str,
        key: str | int,
        *,
        idempotent: bool = False,
        probe: Probe | None = None,
        safe_errors: Failures | Iterable[type[BaseException]] = (),
        undo: Any = None,
    ) -> EffectBlock:
        """Something that is done to the world outside, once for this name and key, whatever becomes of the attempts.

            with ctx.effect("payout", key=batch.id) as payout:      # async with, in async handlers
                if payout.needed:
                    payout.result = bank.pay(batch, idempotency_key=payout.key)

        The store knows that it began before the block is entered, and that it is done before the block is left. An
        exception leaves it open, unless its class is in `safe_errors` (nothing happened then) or `payout.not_done(...)`
        was called. An attempt that finds it open does it again with the same key if it is `idempotent`, or asks
        `probe(key)`; else Maybe is raised, and the run waits for a person. `undo` names what takes it back.
        """
        self._refuse_in_check("an effect")
        self._refuse_if_over()
        if self._in_transaction:
            raise InvalidInput(
                "a transaction is open, and its rollback cannot undo an effect outside of the database: do the "
                "effect before the transaction. For rows of the transaction, use tx.effect(...)"
            )
        effect = declared(name, key, idempotent=idempotent, probe=probe, undo=undo, among=self._effects)
        if self._book is None:
            self._book = Book(self._at_desk(), self._claimed.token, self._move, self._hide, lambda: self._batches)
        return EffectBlock(self._book, effect, self.lineage, probe, checked_failures(safe_errors))

    def each(self, items: Any, key: Key = None, *, name: str = "", durable: bool = False) -> Batch:
        """Goes over items, and passes over what earlier attempts have done: `for order in ctx.each(orders, "id")`.

        `key` says what an item is called: the name of an attribute or of an entry, or a function; without it the items
        are keys themselves. An item is done when the loop asks for the next one. If any failed, the loop ends with
        ItemsFailed, and the next attempt does only the rest. A second loop needs a `name`. What was done is durable
        with the next heartbeat; with `durable` before the next item.
        """
        self._refuse_in_check("a batch")
        self._refuse_if_over()
        if self._batches is None:
            self._batches = Batches(_Recorder(self))
        return self._batches.each(items, key, name, durable)

    def item_failed(self, reason: object) -> None:
        """Says that the item which the innermost loop over `each` is at has failed; the loop goes on."""
        self._refuse_if_over()
        if self._batches is None:
            raise InvalidInput(
                "item_failed reports on the current item of a loop over ctx.each; call it inside such a loop"
            )
        self._batches.item_failed(reason)

    def transaction(self, connection: Any = None) -> TransactionBlock:
        """A block whose rows, promises and effects are committed together with the run's completion, or not at all.

            with ctx.transaction() as tx:                           # async with, in async handlers
                tx.connection.execute("INSERT INTO revenue ...")    # the database that the store is in
                tx.result = 150

        It begins and commits a transaction of the store's own. With `connection`, one of yours to the store's
        PostgreSQL, it adds the completion to the transaction that you have begun there, and you commit. After the block
        the run is completed: there is nothing left to do but to return. If the run is another attempt's by now,
        LostOwnership is raised, and nothing is kept.
        """
        self._refuse_in_check("a transaction")
        self._refuse_if_over()
        self._refuse_second_transaction()
        return TransactionBlock(_Completer(self), connection)

    def _refuse_second_transaction(self) -> None:
        if self._completion is not None:
            raise InvalidInput("a transaction has completed this run already; use one ctx.transaction() in a handler")
        if self._in_transaction:
            raise InvalidInput(
                "a transaction of this handler is open already, and a second one would block; write in "
                "the block of the open one"
            )

    def _refuse_in_check(self, what: str) -> None:
        if self._claimed.phase is not None:
            raise InvalidInput(f"a check must not change anything: use {what} in the job itself")

    def _at_desk(self) -> Desk:
        if self._desks is None:
            raise InvalidInput(
                "this context has no store, because it was not created by a worker; run the job in a worker"
            )
        if self._desk is None:
            self._desk = self._desks(self._claimed)
        return self._desk


class _Completer:
    """What a transaction needs of its context."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def claimed(self) -> Claimed:
        return self._context._claimed

    @property
    def effects(self) -> tuple[str, ...] | None:
        return self._context._effects

    @property
    def is_checked(self) -> bool:
        return self._context._is_checked

    @property
    def started_at(self) -> Instant:
        return self._context._started_at

    def hidden(self, text: str) -> str:
        return self._context._hide(text)

    def report(self) -> Progress | None:
        context = self._context
        items = () if context._batches is None else tuple(context._batches.unsaid)
        # A run that is completed needs no checkpoint. One that its check refuses can be tried again.
        checkpoint = context._checkpoint if context._is_checked else None
        if context._note is None and checkpoint is None and not items:
            return None
        claimed = context._claimed
        return Progress(claimed.number, claimed.token, context._started_at, context._note, checkpoint, items)

    @property
    def desk(self) -> Desk:
        return self._context._at_desk()

    @property
    def lineage(self) -> str:
        return self._context.lineage

    def now(self) -> Instant:
        return self._context._clock.now()

    def opened(self, is_open: bool) -> None:
        if is_open:
            self._context._refuse_second_transaction()
        self._context._in_transaction = is_open
        self._context._may_complete = True
        self._context._move()

    def completed(self, completion: Completion) -> None:
        self._context._completion = completion


class _Recorder:
    """What the loops of an attempt need of its context."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def desk(self) -> Desk:
        return self._context._at_desk()

    @property
    def has_past(self) -> bool:
        claimed = self._context._claimed
        return not claimed.repair and (claimed.attempt > 1 or claimed.lineage is not None)

    def hidden(self, text: str) -> str:
        return self._context._hide(text)

    def refuse_if_over(self) -> None:
        self._context._refuse_if_over()

    def moved_to(self, done: int, of: int | None, failed: int) -> None:
        context = self._context
        if context._reports:
            context._move()
        else:
            context._say(done, of, f"{failed:,} failed" if failed else None)

    async def keep_now(self, ask: Ask, item: Item) -> None:
        claimed, context = self._context._claimed, self._context
        progress = Progress(claimed.number, claimed.token, context._started_at, None, None, (item,))
        await ask(context._at_desk().say(progress))


def _legible(note: object, hide: Hide) -> str:
    """A note as people are shown it."""
    if not isinstance(note, str):
        raise InvalidInput(f"the note of progress must be a text, not {note!r:.80}")
    text = hide(note)
    return text if len(text) <= MOST_NOTE else text[: MOST_NOTE - 1] + "…"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _as_json(value: Any, what: str) -> bytes:
    try:
        encoded = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{what} must be a JSON value; {value!r:.80} is not: {error}") from None
    if is_too_deep(encoded):
        raise InvalidInput(f"{what} is nested more than {MOST_DEPTH} levels deep; flatten it")
    return encoded
