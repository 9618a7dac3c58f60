"""What each class of work chooses, so that nothing is accidental. Settings inherit: app, job, schedule, run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from foliot.domain.alerts import KINDS
from foliot.domain.gates import Rate, Wants
from foliot.domain.instant import DAY, HOUR, LAST, MINUTE, SECOND, Duration, duration
from foliot.domain.labels import checked_labels
from foliot.errors import InvalidInput


class Overlap(StrEnum):
    """What happens to a live tick while an earlier run of its schedule is still busy."""

    SKIP = "skip"
    """It does not run."""
    QUEUE = "queue"
    """It waits its turn, behind those that wait already."""
    COALESCE = "coalesce"
    """It waits, and what waits already becomes one with it."""
    REPLACE = "replace"
    """The earlier run is stopped; this one starts when that has provably ended."""
    ALLOW = "allow"
    """It runs beside the others."""


class BlocksUntil(StrEnum):
    """For how long a run keeps its schedule, or its key, to itself."""

    ENDED = "ended"
    """Until it has ended, or waits for a person."""
    SUCCEEDED = "succeeded"
    """A run that is dead or ambiguous goes on blocking, until somebody has acted."""
    VERIFIED = "verified"
    """One that is unverified, too."""


class CatchUp(StrEnum):
    """What happens to ticks that were missed while nothing was there to fire them."""

    ONCE = "once"
    ALL = "all"
    SKIP = "skip"


class AtCutoff(StrEnum):
    """What happens to a run whose upstream has no useful result at the cutoff."""

    SKIP = "skip"
    RUN = "run"
    """It runs all the same."""


class OnLost(StrEnum):
    """What happens to a run whose worker vanished, when nothing tells how far it came."""

    RETRY = "retry"
    ASK = "ask"


class OnStall(StrEnum):
    """What happens to an attempt that lives and does not move."""

    ALERT = "alert"
    """People are told."""
    CANCEL = "cancel"
    """It is asked to stop, too."""
    KILL = "kill"
    """Its process is ended if it does not heed that."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that can be chosen. The defaults are those of a run that nobody said anything about."""

    attempts: int = 4
    """How many attempts a run may spend before it goes to the dead letters."""
    attempts_after_effect: int | None = None
    """The same, once one of its effects is done; None: as many as before. 0: then it is never tried again."""
    attempts_inside_effect: int | None = None
    """The same, while an effect is open that the next attempt can settle by itself."""
    retries_per_hour: int | None = None
    """Of all runs of the job together; what comes on top waits for the next hour."""
    poison_after: int = 3
    """How many processes may die that execute a run alone, until the run goes to the dead letters."""
    backoff: Duration = 5 * SECOND
    """The ceiling of the first delay; it doubles with every attempt spent."""
    backoff_cap: Duration = HOUR
    """The ceiling of every later delay."""
    give_up_after: Duration | None = None
    """Total age, counted from the first due time, after which a failing run is not tried again."""
    timeout: Duration = 15 * MINUTE
    stall_after: Duration | None = None
    """An attempt that says nothing of its progress for so long is stuck; `on_stall` says what happens then."""
    on_stall: OnStall = OnStall.CANCEL
    lease: Duration = 30 * SECOND
    on_lost: OnLost = OnLost.RETRY
    """What becomes of a run whose worker vanished, and of no other: after a timeout it is tried again while it has
    attempts left, and a drain gives it back, whatever this says."""
    overlap: Overlap = Overlap.SKIP
    queue_limit: int = 100
    """So many ticks may wait for one another under `overlap="queue"`; what comes on top is skipped."""
    blocks_until: BlocksUntil = BlocksUntil.ENDED
    concurrency_key: str | None = None
    """Runs with one key do not run at the same time, whatever schedule or caller they come from. Names of arguments
    stand in braces: "account:{account_id}"."""
    key_limit: int = 1
    """So many runs with one key may run at a time."""
    destination: str | None = None
    """What the work is sent to, such as "api.bank.example": limits and the circuit breaker go by it."""
    breaker_after: int | None = 5
    """So many failures in a row, of all work for the destination together, and it is held; None: never."""
    breaker_probe: Duration = 30 * SECOND
    """How long it is held before one run probes it; twice as long after each probe that fails, up to `backoff_cap`."""
    labels: tuple[str, ...] = ()
    """A run goes only to a worker that has all of these: `{"gpu", "region=eu"}`."""
    concurrency: int | None = None
    """So many runs of the job may run at a time, in the whole fleet."""
    rate: Rate | None = None
    """So many runs of the job may start in a time: "100/m"."""
    catch_up: CatchUp = CatchUp.ONCE
    catch_up_window: Duration | None = None
    """Ticks older than this are never caught up."""
    missed_after: Duration = MINUTE
    """A tick later than this was missed, and `catch_up` decides about it."""
    requires: str | None = None
    """A schedule whose useful result for the same time a tick waits for."""
    cutoff: Duration = DAY
    """How long after its nominal time it waits for that; `at_cutoff` says what happens then."""
    at_cutoff: AtCutoff = AtCutoff.SKIP
    complete: float | None = None
    """Of a schedule over many members: the share of them that a tick needs to count as verified ("99%"); None: it
    succeeds when all have come to an end, and says how many were done."""
    useful_until: Duration | None = None
    """How long after its nominal time a run is still worth starting."""
    jitter: Duration = 0
    expect_every: Duration | None = None
    """A useful result is expected at least so often; people are told when there was none for longer."""
    expect_within: Duration | None = None
    """A useful result of each tick is expected so long after its nominal time."""
    ping: str | None = None
    """Where an outside watcher is told that a run began and how it ended: "https://hc-ping.com/..."."""
    no_alerts: tuple[str, ...] = ()
    """Kinds of alerts that nobody wants to hear of here: `{"duration", "late"}`."""

    def merged(self, choices: Mapping[str, Any]) -> Policy:
        """This policy with some settings chosen otherwise."""
        return replace(self, **choices) if choices else self


OF_SCHEDULES = (
    *("overlap", "queue_limit", "catch_up", "catch_up_window", "missed_after", "jitter"),
    *("requires", "cutoff", "at_cutoff", "complete", "expect_within"),
)
"""Settings that speak of ticks: a single promise has none."""

OF_JOBS = ("concurrency", "rate")
"""Settings that speak of all runs of a job together: a schedule or a promise cannot choose its own."""

PRESETS: dict[str, dict[str, Any]] = {
    "best_effort": {"overlap": Overlap.SKIP, "catch_up": CatchUp.SKIP, "on_lost": OnLost.RETRY, "attempts": 1},
    "latest_only": {"overlap": Overlap.COALESCE, "catch_up": CatchUp.ONCE, "on_lost": OnLost.RETRY, "attempts": 4},
    "every_interval": {"overlap": Overlap.QUEUE, "catch_up": CatchUp.ALL, "on_lost": OnLost.RETRY, "attempts": 4},
    "exactly_one_result": {
        "overlap": Overlap.QUEUE,
        "catch_up": CatchUp.ALL,
        "on_lost": OnLost.ASK,
        "attempts": 4,
        "attempts_inside_effect": 0,
    },
    "never_retry_after_effect": {
        "overlap": Overlap.SKIP,
        "catch_up": CatchUp.ONCE,
        "on_lost": OnLost.ASK,
        "attempts": 4,
        "attempts_after_effect": 0,
        "attempts_inside_effect": 0,
    },
}
"""Settings that go well together, by the class of work. What is said beside a preset has the last word."""

_DURATIONS = {field.name for field in fields(Policy) if "Duration" in str(field.type)}
_ENUMS: dict[str, type[StrEnum]] = {
    "overlap": Overlap,
    "blocks_until": BlocksUntil,
    "catch_up": CatchUp,
    "at_cutoff": AtCutoff,
    "on_lost": OnLost,
    "on_stall": OnStall,
}
_TEXTS = {"concurrency_key": 200, "destination": 200, "requires": 200, "ping": 500}
"""Texts, and the most characters of each."""
_COUNTS = {
    "attempts": 1,
    "attempts_after_effect": 0,
    "attempts_inside_effect": 0,
    "retries_per_hour": 0,
    "poison_after": 1,
    "queue_limit": 0,
    "key_limit": 1,
    "concurrency": 1,
    "breaker_after": 1,
}
"""Whole numbers, and the least of each."""
_MOST_COUNTED = 10_000
NO_WANTS = Wants()
_AT_LEAST = {
    "timeout": 1,
    "stall_after": SECOND,
    "lease": SECOND,
    "breaker_probe": SECOND,
    "backoff": 0,
    "missed_after": 0,
    "expect_every": SECOND,
    "expect_within": SECOND,
}


def choices(given: Mapping[str, Any], beside: Iterable[str] = ()) -> dict[str, Any]:
    """Checks what a user chose, by name and by value, and turns it into the forms that Policy holds.

    `beside`: names that the caller takes besides, and that a misspelt one may mean."""
    chosen = dict(given)
    preset = _preset(chosen.pop("preset")) if "preset" in chosen else {}
    for name in chosen:
        _check_name(name, beside)
    return {**preset, **{name: _choice(name, value) for name, value in chosen.items()}}


def refuse_of_jobs(what: str, settings: Iterable[str], because: str) -> None:
    """What a job says of all its runs together is not for one of them to say."""
    for name in OF_JOBS:
        if name in settings:
            raise InvalidInput(
                f"{what}: {name} applies to all runs of the job, and {because}; give it to @app.job, or change it "
                "at run time with foliot limits set job:..."
            )


def _preset(name: Any) -> dict[str, Any]:
    if name not in PRESETS:
        raise InvalidInput(f"preset={name!r}; give one of {', '.join(map(repr, PRESETS))}")
    return PRESETS[name]


def _check_name(name: str, beside: Iterable[str]) -> None:
    if name in Policy.__dataclass_fields__:
        return
    known = [*beside, *Policy.__dataclass_fields__]
    nearest = get_close_matches(name, known, n=1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"give one of {', '.join(known)}"
    raise InvalidInput(f"there is no setting {name!r}; {hint}")


def _choice(name: str, value: Any) -> Any:
    if name in _ENUMS:
        return _member(name, value)
    if value is None and "None" in str(Policy.__dataclass_fields__[name].type):
        return None
    if name in _COUNTS:
        least = _COUNTS[name]
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST_COUNTED:
            raise InvalidInput(f"{name}={value!r}: give a whole number from {least} to {_MOST_COUNTED}")
        return value
    if name in _TEXTS:
        return _text(name, value)
    if name == "rate":
        return value if isinstance(value, Rate) else Rate.parse(value)
    if name == "complete":
        return _share(value)
    if name == "labels":
        return checked_labels(value)
    if name == "no_alerts":
        return checked_kinds(value)
    length = duration(value)
    if length < _AT_LEAST.get(name, 0):
        raise InvalidInput(f"{name}={value!r} is too short; give at least {_AT_LEAST[name] / SECOND:g} s")
    return length


def _share(value: Any) -> float:
    """A share of a whole, as a number up to 1 or in percent."""
    try:
        share = float(value[:-1]) / 100 if isinstance(value, str) and value.endswith("%") else float(value)
    except (TypeError, ValueError):
        share = 0.0
    if isinstance(value, bool) or not 0 < share <= 1:
        raise InvalidInput(f'complete={value!r:.40}: give a share above 0 and up to 1, such as 1, 0.99 or "99%"')
    return share


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= _TEXTS[name] or not value.isprintable():
        raise InvalidInput(f"{name}={value!r:.80}: give a text of 1 to {_TEXTS[name]} printable characters")
    if name == "ping":
        return checked_ping(value)
    return value


def checked_ping(url: str) -> str:
    """An address that an outside watcher gave. What is behind its host may be secret, and is not repeated."""
    scheme, separator, rest = url.partition("://")
    if scheme.lower() not in ("http", "https") or not separator or not rest or rest.startswith("/") or " " in url:
        raise InvalidInput("ping= is not an http(s) URL; give the ping URL of your monitoring service: https://...")
    return url


def checked_public_url(url: str) -> str:
    """The address at which people open the dashboard: a scheme and a host."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/"):
        raise InvalidInput(f"public_url={url!r:.80}: give scheme and host, such as https://foliot.example.com")
    return url


def checked_kinds(given: Any) -> tuple[str, ...]:
    """Kinds of alerts, sorted."""
    if isinstance(given, bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidInput(f'no_alerts={given!r:.80}: give kinds of alerts, as in no_alerts=["duration", "late"]')
    listed = [given] if isinstance(given, str) else list(given)
    for one in listed:
        if not isinstance(one, str) or one not in KINDS:
            nearest = get_close_matches(str(one), KINDS, n=1)
            hint = f"; did you mean {str(nearest[0])!r}?" if nearest else f"; give one of {', '.join(KINDS)}"
            raise InvalidInput(f"there is no kind of alert {one!r:.40}{hint}")
    return tuple(sorted(set(map(str, listed))))


def _member(name: str, value: Any) -> StrEnum:
    kind = _ENUMS[name]
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(str(member)) for member in kind)
        raise InvalidInput(f"{name}={value!r}; give one of {known}") from None


def policy_to_json(policy: Policy) -> bytes:
    """A whole policy in its stored form: microseconds, the values of enums."""
    return _dumped({field.name: getattr(policy, field.name) for field in fields(policy)})


@lru_cache(maxsize=10_000)
def policy_from_json(data: bytes | None) -> Policy:
    """Reads what `policy_to_json` wrote; what it does not say has its default. InvalidInput when it cannot be read.

    A policy is a value, and thousands of schedules share a few: each is read once.
    """
    return Policy().merged(choices_from_json(data))


def choices_to_json(chosen: Mapping[str, Any]) -> bytes | None:
    """Settings as `choices` returns them, in their stored form; None when nothing was chosen, as most runs have it."""
    return _dumped(chosen) if chosen else None


def choices_from_json(data: bytes | None) -> dict[str, Any]:
    """Reads what `choices_to_json` wrote. InvalidInput when it cannot be read.

    Names that this release does not know are passed over: during a rolling deploy a newer one writes them. Values that
    it does not know are refused: nobody can say what was meant.
    """
    if not data:
        return {}
    try:
        stored = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidInput(f"{data!r:.80} is not a stored policy: it is not JSON") from None
    if not isinstance(stored, dict):
        raise InvalidInput(f"{data!r:.80} is not a stored policy: it must be a JSON object")
    return {name: _stored(name, value) for name, value in stored.items() if name in Policy.__dataclass_fields__}


@lru_cache(maxsize=10_000)
def wants_of(options: bytes | None) -> Wants:
    """What of a run's own settings decides which slots it needs. What cannot be read asks for nothing: whoever executes
    the run tells that."""
    if not options:
        return NO_WANTS
    try:
        chosen = choices_from_json(options)
    except InvalidInput:
        return NO_WANTS
    return Wants(chosen.get("concurrency_key"), chosen.get("key_limit", 1), chosen.get("destination"))


@lru_cache(maxsize=10_000)
def labels_of(options: bytes | None) -> tuple[str, ...]:
    """What a run needs of its worker, by its own settings. What cannot be read needs nothing, as above."""
    if not options or b'"labels"' not in options:
        return ()
    try:
        found: tuple[str, ...] = choices_from_json(options).get("labels", ())
    except InvalidInput:
        return ()
    return found


def _stored(name: str, value: Any) -> Any:
    """One stored setting, checked like a given one. Durations are microseconds here, and text is not read again."""
    if name == "labels":
        return checked_labels(value)
    if name == "no_alerts":
        return tuple(value) if isinstance(value, list) and all(isinstance(one, str) for one in value) else ()
    if isinstance(value, list | dict):
        raise InvalidInput(f"{name}={value!r:.80} is not a stored setting; it must be a number or a text")
    if name in _ENUMS or name in _COUNTS or name in _TEXTS or name == "complete" or value is None:
        return _choice(name, value)
    if not isinstance(value, int) or isinstance(value, bool) or not _AT_LEAST.get(name, 0) <= value <= LAST:
        raise InvalidInput(f"{name}={value!r:.80} is not a stored duration; it must be a number of microseconds")
    return Rate(max(value, 1)) if name == "rate" else value


def _dumped(settings: Mapping[str, Any]) -> bytes:
    plain = {name: value.every if isinstance(value, Rate) else value for name, value in settings.items()}
    return json.dumps(plain, separators=(",", ":")).encode()
