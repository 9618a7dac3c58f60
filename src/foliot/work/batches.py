"""Batches: a loop over items that remembers, across attempts, which of them are done.

An item is done when the loop asks for the next one. The body can call `ctx.item_failed(reason)` and go on; one that
raises leaves its item failed, and so does the attempt. After the last item, any that failed make the loop raise
ItemsFailed, so that the run is tried again, and does only the rest.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, Protocol

from foliot.domain.identity import checked_name
from foliot.domain.ledger import Item, ItemState
from foliot.errors import InvalidInput, ItemsFailed
from foliot.portal import finished
from foliot.work.describe import clean
from foliot.work.desk import Ask, Desk, blocking, refuse_to_block, waiting
from foliot.work.effects import checked_key_of

MOST_ERROR = 1_000
"""Bytes of what is kept of an item's error."""

Key = str | Callable[[Any], Any] | None

_END = object()


class Recorder(Protocol):
    """What the loops need of their context."""

    @property
    def desk(self) -> Desk: ...

    @property
    def has_past(self) -> bool:
        """Whether an earlier attempt, or another run of the lineage, may have done some of the items."""

    def refuse_if_over(self) -> None:
        """Raises Cancelled once the attempt is recorded as ended."""

    def moved_to(self, done: int, of: int | None, failed: int) -> None:
        """How far the outermost loop is."""

    def hidden(self, text: str) -> str:
        """Without secrets."""

    async def keep_now(self, ask: Ask, item: Item) -> None:
        """Durable when this returns."""


class _Tally:
    """One batch, in this attempt: several loops may share its name, such as one for each page."""

    __slots__ = ("before", "done", "failed", "first", "met", "name", "of")

    def __init__(self, name: str) -> None:
        self.name = name
        self.before: set[str] | None = None
        """What earlier attempts did; None until somebody has looked."""
        self.met: set[str] = set()
        self.of: int | None = None
        self.done = 0
        self.failed = 0
        self.first = ""

    def meet(self, key: str) -> None:
        if key in self.met:
            called = f"the batch {self.name}" if self.name else "the batch"
            raise InvalidInput(
                f"item key {key} occurs twice in {called}; give each item a unique key, and a second loop its own "
                "name: ctx.each(..., name=...)"
            )
        self.met.add(key)

    def raise_if_any_failed(self) -> None:
        if self.failed:
            total = self.done + self.failed if self.of is None else self.of
            raise ItemsFailed(f"{self.done:,} of {total:,} done, {self.failed:,} failed: first {self.first}")


class _Place:
    """Where a loop stands."""

    __slots__ = ("__weakref__", "key", "loop", "reason")

    def __init__(self) -> None:
        self.key: str | None = None
        """The item that its body is at."""
        self.reason: str | None = None
        """Why that item failed, once it has."""
        self.loop: weakref.ref[_Loop] | None = None
        """Gone when somebody broke out of it."""


class Batches:
    """All loops of one attempt."""

    __slots__ = ("_places", "_recorder", "_sizes", "_tallies", "unsaid")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._tallies: dict[str, _Tally] = {}
        self._places: list[tuple[_Place, _Tally]] = []
        """Of the loops that are under way, the outermost first."""
        self._sizes: dict[str, int] = {}
        """By batch, the size that effects wrote."""
        self.unsaid: list[Item] = []
        """What the store is yet to hear with the next heartbeat. The handler adds; the heart takes from the front."""

    @property
    def done(self) -> int:
        return sum(tally.done for tally in self._tallies.values())

    @property
    def item(self) -> tuple[str, str] | None:
        """Batch and key of the item that the innermost loop is at."""
        for place, tally in reversed(self._places):
            if place.key is not None and place.loop is not None and place.loop() is not None:
                return tally.name, place.key
        return None

    @property
    def sizes_to_write(self) -> tuple[tuple[str, int], ...]:
        """Batches whose size no effect has written yet."""
        return tuple(
            (tally.name, tally.of)
            for tally in self._tallies.values()
            if tally.of is not None and self._sizes.get(tally.name) != tally.of
        )

    def wrote_sizes(self, sizes: tuple[tuple[str, int], ...]) -> None:
        """The store has these."""
        self._sizes.update(sizes)

    def each(self, items: Any, key: Key, name: str, durable: bool) -> Batch:
        if name != "":
            checked_name(name, "batch")
        if not isinstance(items, Iterable | AsyncIterable) or isinstance(items, str | bytes):
            raise InvalidInput(f"ctx.each needs an iterable of items, not {items!r:.80}")
        if not (key is None or isinstance(key, str) or callable(key)):
            raise InvalidInput(f"key={key!r:.80}: give the name of an attribute, or a function of the item")
        return Batch(self, items, key, name, durable)

    def item_failed(self, reason: object) -> None:
        for place, _ in reversed(self._places):
            if place.key is not None and place.loop is not None and place.loop() is not None:
                place.reason = clean(self._recorder.hidden(str(reason)), MOST_ERROR) or "failed"
                return
        raise InvalidInput(
            "item_failed reports on the current item of a loop over ctx.each; call it inside such a loop"
        )

    def broke(self, error: str) -> None:
        """The attempt failed with an error: what its loops were at has failed with it."""
        for place, tally in self._places:
            if place.key is not None:
                text = clean(place.reason or error, MOST_ERROR)
                self.unsaid.append(Item(tally.name, place.key, ItemState.FAILED, text, tally.of))
        self._places.clear()

    # What loops say

    async def begin(self, ask: Ask, place: _Place, name: str, size: int | None) -> _Tally:
        tally = self._tallies.setdefault(name, _Tally(name))
        if tally.before is None:
            recorder = self._recorder
            tally.before = await ask(recorder.desk.done_items(name)) if recorder.has_past else set()
        tally.of = None if size is None else (tally.of or 0) + size
        self._places.append((place, tally))
        return tally

    async def ended(self, ask: Ask, place: _Place, tally: _Tally, durable: bool) -> None:
        """The item that the loop was at; whatever stood inside its body was left."""
        depth = self._depth(place)
        del self._places[depth + 1 :]
        if place.key is None:
            return
        state = ItemState.DONE if place.reason is None else ItemState.FAILED
        item = Item(tally.name, place.key, state, place.reason, tally.of)
        place.key, place.reason = None, None
        if state is ItemState.DONE:
            tally.done += 1
        else:
            tally.failed += 1
            tally.first = tally.first or f"{item.key}: {item.error}"
        await self._keep(ask, item, durable)
        self._tell(depth, tally)

    def _tell(self, depth: int, tally: _Tally) -> None:
        if depth == 0:
            self._recorder.moved_to(tally.done, tally.of, tally.failed)

    async def _keep(self, ask: Ask, item: Item, durable: bool) -> None:
        if not durable:
            self.unsaid.append(item)
            self._recorder.refuse_if_over()
            return
        try:
            await self._recorder.keep_now(ask, item)
        except BaseException:
            self.unsaid.append(item)  # it is true all the same, and is said again at the attempt's end
            raise

    def over(self, place: _Place, tally: _Tally) -> None:
        """There are no more; the last ones may have been passed over."""
        self._tell(self._depth(place), tally)
        self._places = [pair for pair in self._places if pair[0] is not place]

    def _depth(self, place: _Place) -> int:
        return next((depth for depth, (other, _) in enumerate(self._places) if other is place), 0)

    @property
    def desk(self) -> Desk:
        return self._recorder.desk


class Batch:
    """What `ctx.each` gives: to be gone over with `for`, or with `async for` in async handlers."""

    __slots__ = ("_batches", "_durable", "_items", "_key", "_name")

    def __init__(self, batches: Batches, items: Any, key: Key, name: str, durable: bool) -> None:
        self._batches = batches
        self._items = items
        self._key = key
        self._name = name
        self._durable = durable

    def __iter__(self) -> _Loop:
        loop = self._batches.desk.loop
        refuse_to_block(loop, "async for item in ctx.each(...)")
        if not isinstance(self._items, Iterable):
            raise InvalidInput("these items are an async iterable: write async for item in ctx.each(...)")
        return self._loop(blocking(loop))

    def __aiter__(self) -> _Loop:
        return self._loop(waiting(self._batches.desk.loop))

    def _loop(self, ask: Ask) -> _Loop:
        return _Loop(self._batches, ask, self._items, self._key, self._name, self._durable)


class _Loop:
    """One going-over."""

    __slots__ = (
        "__weakref__",
        "_ask",
        "_batches",
        "_durable",
        "_following",
        "_items",
        "_key",
        "_name",
        "_place",
        "_tally",
    )

    def __init__(self, batches: Batches, ask: Ask, items: Any, key: Key, name: str, durable: bool) -> None:
        self._batches = batches
        self._ask = ask
        self._items = items
        self._key = key
        self._name = name
        self._durable = durable
        self._tally: _Tally | None = None
        self._place = _Place()
        self._following: Any = None

    def __iter__(self) -> _Loop:
        return self

    def __aiter__(self) -> _Loop:
        return self

    def __next__(self) -> Any:
        item = finished(self._step())
        if item is _END:
            raise StopIteration
        return item

    async def __anext__(self) -> Any:
        item = await self._step()
        if item is _END:
            raise StopAsyncIteration
        return item

    async def _step(self) -> Any:
        """1. The item before this one is done. 2. Pass over what earlier attempts did. 3. At the end, tell the rest."""
        tally = self._tally or await self._begin()
        await self._batches.ended(self._ask, self._place, tally, self._durable)
        while True:
            key, item = await self._next()
            if item is _END:
                self._batches.over(self._place, tally)
                tally.raise_if_any_failed()
                return _END
            tally.meet(key)
            if key not in (tally.before or ()):
                self._place.key = key
                return item
            tally.done += 1

    async def _begin(self) -> _Tally:
        """A collection is looked at as a whole first: a mistake in its keys is told before anything is done."""
        size = len(self._items) if isinstance(self._items, Sized) else None
        if not isinstance(self._items, Iterable):
            self._following = aiter(self._items)
        elif size is not None:
            self._following = iter(self._looked_through())
        else:
            self._following = ((key_of(item, self._key), item) for item in self._items)
        self._place.loop = weakref.ref(self)
        self._tally = await self._batches.begin(self._ask, self._place, self._name, size)
        return self._tally

    def _looked_through(self) -> list[tuple[str, Any]]:
        pairs = [(key_of(item, self._key), item) for item in self._items]
        whole = _Tally(self._name)
        for key, _ in pairs:
            whole.meet(key)
        return pairs

    async def _next(self) -> tuple[str, Any]:
        if isinstance(self._following, Iterator):
            found: tuple[str, Any] = next(self._following, ("", _END))
            return found
        try:
            item = await anext(self._following)
        except StopAsyncIteration:
            return "", _END
        return key_of(item, self._key), item


def key_of(item: Any, key: Key) -> str:
    """What an item is called in the store."""
    if callable(key):
        found = key(item)
    elif key is None:
        found = item
    elif isinstance(item, Mapping):
        found = item.get(key)
    else:
        found = getattr(item, key, None)
    if key is None and not isinstance(found, str | int):
        raise InvalidInput(
            f'{item!r:.80} cannot be a key; name the key attribute of the items: ctx.each(items, key="id"), or '
            "give a function"
        )
    if found is None and isinstance(key, str):
        raise InvalidInput(f"{item!r:.80} has no {key}, the key attribute of ctx.each; name another attribute")
    return checked_key_of(found, "an item")
