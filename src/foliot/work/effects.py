"""Effects: what a handler does to the world outside, written down before it begins and after it has ended.

needed      not done yet: the handler does it, inside the block
done        an earlier attempt did it, or an earlier run of the lineage; its result is recalled
maybe       it began and nobody wrote down how it ended. Declared idempotent, it is done again with the same key;
            a probe can find out; otherwise only a person can, and the handler is stopped by Maybe
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import msgspec

from foliot.domain.depth import MOST_DEPTH, is_too_deep
from foliot.domain.identity import checked_name, idempotency_key
from foliot.domain.ledger import Begun, Effect, EffectState, EffectView, Facts, Settles
from foliot.domain.locking import is_shut, why_shut
from foliot.errors import InvalidInput, Locked, Maybe
from foliot.portal import finished
from foliot.work.describe import clean, headline
from foliot.work.desk import Ask, LedgerDesk, blocking, in_place, refuse_to_block, waiting
from foliot.work.hiding import Hide, as_it_is

MOST_RESULT = 64 * 1024
"""Bytes of JSON that an effect may leave as its result."""
_MOST_KEY = 300
_MOST_NOTE = 1_000

Probe = Callable[[str], Any]
"""Given the idempotency key, it says whether the effect happened: None or False if not; True, or else its result."""
Failures = type[BaseException] | tuple[type[BaseException], ...]

_Line = tuple[str, str]
"""Name and key of an effect."""
_encode = msgspec.json.Encoder().encode


class _End(NamedTuple):
    """How an effect ended, which the store is yet to hear."""

    effect: Effect
    state: EffectState
    result: bytes | None
    note: str | None


class Loops(Protocol):
    """The loops of an attempt over items, as its effects see them."""

    @property
    def item(self) -> tuple[str, str] | None:
        """Batch and key of the item that the innermost loop is at."""

    @property
    def sizes_to_write(self) -> tuple[tuple[str, int], ...]:
        """Batches whose size no effect has written yet."""

    def wrote_sizes(self, sizes: tuple[tuple[str, int], ...]) -> None:
        """The store has these."""


class Book:
    """What one attempt knows of its effects. The ledger itself is the store's; this is what a failing store, or a
    handler that is cancelled while it writes, would otherwise make us forget."""

    __slots__ = ("_known", "_loops", "_moved", "_token", "_unbegun", "_under_way", "_unsaid", "desk", "hide", "touched")

    def __init__(
        self,
        desk: LedgerDesk,
        token: int,
        moved: Callable[[], None] = lambda: None,
        hide: Hide = as_it_is,
        loops: Callable[[], Loops | None] = lambda: None,
    ) -> None:
        """`moved` is called whenever something was written; `hide` takes secrets out of texts; `loops` gives the
        attempt's loops over items, if it has any."""
        self._loops = loops
        self.hide = hide
        self.desk = desk
        self._token = token
        self._moved = moved
        self.touched = False
        """Whether this attempt may have written anything into the ledger."""
        self._known: dict[_Line, tuple[EffectState, Settles | None]] = {}
        self._under_way: dict[_Line, EffectBlock] = {}
        self._unbegun: set[_Line] = set()
        """Nobody knows whether the store wrote these down as begun; they were not."""
        self._unsaid: dict[_Line, _End] = {}

    def enter(self, block: EffectBlock, line: _Line) -> None:
        """Two at once with one key could not be told apart afterwards."""
        if self._under_way.setdefault(line, block) is not block:
            raise InvalidInput(
                f"effect {line[0]} {line[1]} is already in progress in this attempt; give each effect its own key"
            )

    def blocking(self) -> Ask:
        """For code in a thread."""
        return in_place if self.desk.is_in_place else blocking(self.desk.loop)

    def leave(self, line: _Line) -> None:
        self._under_way.pop(line, None)

    async def begin(self, ask: Ask, effect: Effect) -> Begun:
        line = effect.name, effect.key
        self.touched = True
        loops = self._loops()
        if loops is not None:
            effect = effect._replace(item=loops.item, sizes=loops.sizes_to_write)
        try:
            begun = await ask(self.desk.begin_effect(effect))
        except BaseException:
            # Perhaps it was written down all the same, and it will not happen now. A maybe of an earlier attempt that
            # is idempotent would have been begun anew, and that one may have happened: no word about those.
            if line not in self._known and effect.settles is not Settles.IDEMPOTENT:
                self._unbegun.add(line)
            raise
        self._moved()
        if loops is not None:
            loops.wrote_sizes(effect.sizes)
        before = begun.before
        if line in self._unbegun and before is not None and before.token == self._token:
            begun = begun._replace(before=None)  # what was not known for certain a moment ago: this attempt began it
        self._unbegun.discard(line)
        self._known[line] = (
            EffectState.DONE if before is not None and before.state is EffectState.DONE else EffectState.STARTED,
            effect.settles,
        )
        return begun

    async def begin_anew(self, ask: Ask, effect: Effect) -> None:
        """A probe found that it had not happened."""
        await ask(self.desk.end_effect(effect, EffectState.STARTED, None, None))
        self._moved()

    async def end(
        self, ask: Ask, effect: Effect, state: EffectState, result: bytes | None = None, note: str | None = None
    ) -> None:
        """Remembered until the store has it: see `closed`."""
        line = effect.name, effect.key
        self._known[line] = state, effect.settles
        self._unsaid[line] = _End(effect, state, result, note)
        await ask(self.desk.end_effect(effect, state, result, note))
        self._unsaid.pop(line, None)
        self._moved()

    async def closed(self) -> list[EffectView]:
        """The ledger at the end of the attempt, after the store has heard what it could not be told before."""
        for line, end in list(self._unsaid.items()):
            await self.desk.end_effect(*end)
            self._unsaid.pop(line, None)
        return [await self._not_begun(one) for one in await self.desk.ledger()]

    async def _not_begun(self, view: EffectView) -> EffectView:
        is_stray = (view.name, view.key) in self._unbegun and view.token == self._token
        if not is_stray or view.state is not EffectState.STARTED:
            return view
        effect = Effect(view.name, view.key, view.settles, view.undo)
        await self.desk.end_effect(effect, EffectState.NOT_DONE, None, "the effect did not start")
        return view._replace(state=EffectState.NOT_DONE)

    def facts(self, *, is_first: bool) -> Facts:
        """What this attempt knows by itself. Of earlier ones it assumes that they did something; and what the store
        could not be told is open, because whoever comes next will find it so."""
        states = [
            (EffectState.STARTED if line in self._unsaid else state, settles)
            for line, (state, settles) in self._known.items()
        ]
        maybe = sum(state is EffectState.STARTED and settles is None for state, settles in states)
        begun = sum(state is EffectState.STARTED for state, _ in states)
        done = sum(state is EffectState.DONE for state, _ in states)
        return Facts(done if is_first else max(done, 1), begun - maybe, maybe)


class EffectBlock:
    """One effect, as the block around it sees it: `with ctx.effect(...) as payout:`, or `async with`."""

    __slots__ = (
        "_book",
        "_effect",
        "_is_inside",
        "_is_repeated",
        "_needed",
        "_not_done",
        "_probe",
        "_result",
        "_safe_errors",
        "_state",
        "key",
    )

    def __init__(self, book: Book, effect: Effect, lineage: str, probe: Probe | None, safe_errors: Failures) -> None:
        self._book = book
        self._effect = effect
        self._probe = probe
        self._safe_errors = safe_errors
        self.key = idempotency_key(lineage, effect.name, effect.key)
        """What to give to the outside system: the same in every attempt and rerun."""
        self._state: EffectState | None = None
        self._needed = False
        self._is_repeated = False
        """Whether it is done again, because nobody knows how it ended before."""
        self._is_inside = False
        self._not_done: str | None = None
        self._result: Any = None

    def __repr__(self) -> str:
        return f"<effect {self}: {self._state or 'not started'}>"

    def __str__(self) -> str:
        return f"{self._effect.name} {self._effect.key}"

    @property
    def needed(self) -> bool:
        """Whether it is still to be done."""
        return self._needed

    @property
    def state(self) -> str | None:
        """`started`, `done` or `not_done`; None before the block is entered."""
        return self._state

    @property
    def result(self) -> Any:
        """What the effect left, as a JSON value: set it inside the block, and every later attempt can read it."""
        return self._result

    @result.setter
    def result(self, value: Any) -> None:
        if not (self._is_inside and self._needed):
            why = (
                "its block has ended"
                if self._needed
                else "an earlier attempt completed it: check `effect.needed` first"
            )
            raise InvalidInput(f"{self}: its result cannot be set; {why}")
        self._result = value

    def not_done(self, reason: str) -> None:
        """Says for certain that the effect did not happen, whatever becomes of the block. The next attempt does it.

        One that is done again, because nobody knows how it ended before, stays open: this speaks of this time only."""
        if not (self._is_inside and self._needed):
            raise InvalidInput(f"{self}: not_done() works only inside its block, and only if the effect is needed")
        self._not_done = clean(self._book.hide(str(reason)), _MOST_NOTE) or "reported by the handler"

    # Around the block

    def __enter__(self) -> EffectBlock:
        refuse_to_block(self._book.desk.loop, f'async with ctx.effect("{self._effect.name}", ...)')
        finished(self._enter(self._book.blocking()))
        return self

    async def __aenter__(self) -> EffectBlock:
        await self._enter(waiting(self._book.desk.loop))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finished(self._exit(self._book.blocking(), error))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit(waiting(self._book.desk.loop), error)

    async def _enter(self, ask: Ask) -> None:
        line = self._effect.name, self._effect.key
        self._book.enter(self, line)
        try:
            await self._begin(ask)
        except BaseException:
            self._book.leave(line)
            raise
        self._is_inside = True

    async def _begin(self, ask: Ask) -> None:
        begun = await self._book.begin(ask, self._effect)
        self.key = idempotency_key(begun.lineage, self._effect.name, self._effect.key)
        self._state, self._needed, self._is_repeated = EffectState.STARTED, True, False
        self._not_done, self._result = None, None
        before = begun.before
        if before is None or before.state is EffectState.NOT_DONE:
            return
        if before.state is EffectState.DONE:
            self._recall(before.result)
        else:
            await self._settle(ask, before)

    def _recall(self, result: bytes | None) -> None:
        if result is not None and is_shut(result):
            raise Locked(why_shut(result, f"the result of {self}"))
        self._state, self._needed = EffectState.DONE, False
        self._result = None if result is None else msgspec.json.decode(result)

    async def _settle(self, ask: Ask, before: EffectView) -> None:
        """It began before, in an earlier attempt or in this one, and has no recorded end."""
        if before.settles is self._effect.settles is Settles.IDEMPOTENT:
            self._is_repeated = True  # both said that doing it twice does it once
            return
        if self._probe is None:
            raise Maybe(
                f"{self} started in attempt {before.attempt} and has no recorded outcome: it may have happened. "
                "Declare it idempotent=True to repeat it, or give a probe= to ask whether it happened"
            )
        found = await self._asked(ask, self._probe)
        if found is None or found is False:
            await self._book.begin_anew(ask, self._effect)
            return
        result, fault = _kept(None if found is True else found)
        note = "the probe reported that the effect happened" + (f"; {fault}" if fault else "")
        await self._book.end(ask, self._effect, EffectState.DONE, result, note)
        self._recall(result)

    async def _asked(self, ask: Ask, probe: Probe) -> Any:
        found = probe(self.key)
        if not inspect.isawaitable(found):
            return found
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # a sync handler has no loop of its own
            return await ask(_awaited(found))
        return await found

    async def _exit(self, ask: Ask, error: BaseException | None) -> None:
        effect = self._effect
        self._book.leave((effect.name, effect.key))
        self._is_inside = False
        if not self._needed:
            return
        if self._not_done is None and error is not None and isinstance(error, self._safe_errors):
            self._not_done = clean(headline(error, self._book.hide), _MOST_NOTE)
        if self._not_done is not None and self._is_repeated:
            return
        if self._not_done is not None:
            self._state = EffectState.NOT_DONE
            await self._book.end(ask, effect, EffectState.NOT_DONE, None, self._not_done)
        elif error is None:
            await self._done(ask)

    async def _done(self, ask: Ask) -> None:
        """A result that cannot be kept is a mistake to be told, but what happened has happened."""
        self._state = EffectState.DONE
        result, fault = _kept(self._result)
        await self._book.end(ask, self._effect, EffectState.DONE, result, fault)
        if fault is not None:
            raise InvalidInput(f"{self} is done, but {fault}")


async def _awaited(found: Awaitable[Any]) -> Any:
    return await found


def _kept(result: Any) -> tuple[bytes | None, str | None]:
    if result is None:
        return None, None
    try:
        encoded = _encode(result)
    except Exception as error:
        return None, clean(f"its result was not stored: {headline(error)}", _MOST_NOTE)
    if is_too_deep(encoded):
        return None, f"its result was not stored: it is nested more than {MOST_DEPTH} levels deep"
    if len(encoded) > MOST_RESULT:
        return None, f"its result was not stored: {len(encoded):,} bytes of JSON are more than {MOST_RESULT:,}"
    return encoded, None


# -------------------------------------------------------------------------------------------------- what a handler says


def declared(
    name: str, key: object, *, idempotent: bool, probe: Probe | None, undo: object, among: tuple[str, ...] | None
) -> Effect:
    """An effect as its handler wrote it, checked. `among`: the names that its job declares, if it declares any."""
    checked_name(name, "effect")
    if among is not None and name not in among:
        known = f"it declares {', '.join(among)}" if among else "it declares no effects"
        raise InvalidInput(f'the job has no effect {name!r}: {known}; add it: @app.job(effects=(..., "{name}"))')
    if probe is not None and not callable(probe):
        raise InvalidInput(f"probe={probe!r:.80}: give a function that takes the idempotency key")
    settles = Settles.IDEMPOTENT if idempotent else Settles.PROBE if probe is not None else None
    return Effect(name, checked_key_of(key, f"the effect {name}"), settles, _name_of(undo))


def checked_key_of(key: object, what: str) -> str:
    """A key as it is stored."""
    text = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
    if not isinstance(text, str) or not 1 <= len(text) <= _MOST_KEY or not text.isprintable():
        raise InvalidInput(
            f"{key!r:.80} cannot be a key of {what}; give a whole number, or 1 to {_MOST_KEY} printable characters"
        )
    return text


def checked_failures(given: Failures | Iterable[type[BaseException]]) -> tuple[type[BaseException], ...]:
    kinds = (given,) if isinstance(given, type) else tuple(given)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise InvalidInput(f"safe_errors takes exception classes, not {kind!r:.80}")
    return kinds


def _name_of(undo: object) -> str | None:
    if undo is None or isinstance(undo, str):
        return undo and clean(undo, _MOST_NOTE)
    name = getattr(undo, "name", None) or getattr(undo, "__qualname__", None)
    if not callable(undo) or not isinstance(name, str):
        raise InvalidInput(f"undo={undo!r:.80}: give the function that undoes the effect, or its name")
    return name
