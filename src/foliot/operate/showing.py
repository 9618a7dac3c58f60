"""The door through which what is stored comes to people: nothing passes it with its secrets. Names and keys do, since
they are what people act by.

Commands, the HTTP API, stories, reports and the account all look through the operator's verbs, and these see the store
through this door alone. It goes by what comes out, not by which verb was asked: a verb that is added tomorrow and
answers with runs has their secrets taken out, too. Workers and schedulers do not come through here.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from foliot.domain.ledger import BatchView, EffectView, traits_from_json
from foliot.domain.locking import is_shut, shown_shut
from foliot.domain.members import Interval
from foliot.domain.redaction import NO_SECRETS, Path, Secrets, is_harmless, redacted_json, redacted_text, secret_values
from foliot.domain.run import AttemptView, RunView
from foliot.domain.schedule import Schedule, ScheduleView
from foliot.domain.standing import ScheduleFacts
from foliot.domain.store import EventRow, Store

_FRESH = 5.0
"""Seconds for which it is known what jobs call secret."""


def shown(opened: Callable[[], Awaitable[Store]]) -> Callable[[], Awaitable[Store]]:
    """The same store, for people."""
    secrets_of = _SecretsOf()

    async def open_() -> Store:
        store = await opened()
        return cast(Store, _Shown(store, secrets_of))

    return open_


class _SecretsOf:
    """What each job calls secret, as its card says it: whoever looks need not have the job's code."""

    def __init__(self) -> None:
        self._known: dict[str, Secrets] = {}
        self._until = 0.0
        self.missed: set[str] = set()
        """Jobs that somebody asked for and that are not known here."""

    async def refresh(self, store: Store, *, at_once: bool = False) -> None:
        if at_once or time.monotonic() >= self._until:
            self._known = {name: traits_from_json(card.traits).secrets for name, card in (await store.jobs()).items()}
            self._until = time.monotonic() + _FRESH

    def __contains__(self, job: str) -> bool:
        return job in self._known

    def __getitem__(self, job: str) -> Secrets:
        found = self._known.get(job)
        if found is None:
            self.missed.add(job)
            return NO_SECRETS
        return found


class _Shown:
    """A store whose answers have no secrets."""

    def __init__(self, store: Store, secrets_of: _SecretsOf) -> None:
        self._store = store
        self._secrets_of = secrets_of

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not inspect.iscoroutinefunction(verb):
            return verb

        async def shown_verb(*given: Any, **named: Any) -> Any:
            answer = await verb(*given, **named)
            if not _may_have_secrets(answer):
                return answer
            known = self._secrets_of
            await known.refresh(self._store)
            known.missed = missed = set[str]()
            shown_answer = without_secrets(answer, known)
            if missed:  # by a job that is newer than what is known: its card was entered before its first run was
                await known.refresh(self._store, at_once=True)
                if any(job in known for job in missed):
                    shown_answer = without_secrets(answer, known)
            return shown_answer

        return shown_verb


_PLAIN = (int, str, float, bool, type(None))


def _may_have_secrets(answer: Any) -> bool:
    return not isinstance(answer, _PLAIN) and not (isinstance(answer, list | dict | tuple) and not answer)


def without_secrets(answer: Any, secrets_of: Any) -> Any:
    """Whatever a verb answered, with everything in it that tells of runs, schedules and events as people may see it."""
    if isinstance(answer, _PLAIN):
        return answer
    if isinstance(answer, RunView):
        return shown_run(answer, secrets_of[answer.job])
    if isinstance(answer, ScheduleView):
        return replace(answer, schedule=shown_schedule(answer.schedule, secrets_of[answer.schedule.job]))
    if isinstance(answer, Schedule):
        return shown_schedule(answer, secrets_of[answer.job])
    if isinstance(answer, ScheduleFacts):
        inner = without_secrets((answer.schedule, answer.live, answer.parked), secrets_of)
        return replace(answer, schedule=inner[0], live=inner[1], parked=inner[2])
    if isinstance(answer, EventRow):
        return answer._replace(detail=redacted_text(answer.detail))
    if isinstance(answer, EffectView):
        return _effect(answer, NO_SECRETS, ())
    if isinstance(answer, list):
        return [without_secrets(one, secrets_of) for one in answer]
    if isinstance(answer, tuple) and hasattr(answer, "_make"):
        return answer._make(without_secrets(one, secrets_of) for one in answer)
    if isinstance(answer, tuple):
        return tuple(without_secrets(one, secrets_of) for one in answer)
    if isinstance(answer, dict):
        return {key: without_secrets(one, secrets_of) for key, one in answer.items()}
    return answer


def shown_run(view: RunView, secrets: Secrets) -> RunView:
    """The values of secret arguments are hidden in all that is told of the run."""
    if _tells_nothing(view, secrets):
        return view
    known = secret_values(view.payload, secrets)
    return replace(
        view,
        payload=_json(view.payload, secrets.of_arguments, secrets, known) or b"",
        result=_json(view.result, secrets.of_result, secrets, known),
        progress=redacted_json(view.progress, (), secrets.keys, known),
        detail=_text(view.detail, known),
        attempts=[_attempt(one, secrets, known) for one in view.attempts],
        effects=[_effect(one, secrets, known) for one in view.effects],
        batches=[_batch(one, known) for one in view.batches],
        interval=None if view.interval is None else _interval(view.interval),
    )


def _tells_nothing(view: RunView, secrets: Secrets) -> bool:
    """Whether a quick look is enough, as it is for most of a long list."""
    if view.detail or view.attempts or view.effects or view.batches or view.interval or secrets != NO_SECRETS:
        return False
    stored = (view.payload, view.result, view.progress)
    return all(data is None or (not is_shut(data) and is_harmless(data)) for data in stored)


def shown_schedule(schedule: Schedule, secrets: Secrets) -> Schedule:
    payload = shown_arguments(schedule.payload, secrets)
    return schedule if payload == schedule.payload else replace(schedule, payload=payload)


def shown_arguments(payload: bytes, secrets: Secrets) -> bytes:
    return _json(payload, secrets.of_arguments, secrets, ()) or b""


def _attempt(view: AttemptView, secrets: Secrets, known: Sequence[str]) -> AttemptView:
    progress = redacted_json(view.progress, (), secrets.keys, known)
    return replace(view, error=_text(view.error, known), progress=progress)


def _effect(view: EffectView, secrets: Secrets, known: Sequence[str]) -> EffectView:
    return view._replace(
        result=_json(view.result, (), secrets, known),
        note=_text(view.note, known),
    )


def _interval(interval: Interval) -> Interval:
    lacking = [one._replace(detail=_text(one.detail, ())) for one in interval.lacking]
    return replace(interval, lacking=lacking)


def _batch(view: BatchView, known: Sequence[str]) -> BatchView:
    return view._replace(failures=[(key, redacted_text(error or "", known)) for key, error in view.failures])


def _json(data: bytes | None, paths: Sequence[Path], secrets: Secrets, known: Sequence[str]) -> bytes | None:
    """A value that can be locked: `[encrypted]` where its key is not here."""
    if data is not None and is_shut(data):
        return shown_shut(data)
    return redacted_json(data, paths, secrets.keys, known)


def _text(text: str | None, known: Sequence[str]) -> str | None:
    return None if text is None else redacted_text(text, known)
