"""Fingerprints of format 0: how releases without a format number hash a declaration. Frozen, and pure.

Those releases hash `repr(...)` of their own objects, so each hash depends on the names that classes and settings had.
All names here are literal: a later rename must not change them. `tests/declaring` holds hashes of such a release.

The column `schedule.fingerprint` and the table `declared` keep this format, because those releases compare them by
equality while they share a store with newer ones. See `foliot.domain.fingerprint` for the present format.

Settings are given by their wire names, with their wire values (see `foliot.domain.fingerprint.wire`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

SETTINGS: Mapping[str, Any] = {
    "attempts": 4,
    "attempts_after_effect": None,
    "attempts_inside_effect": None,
    "retries_per_hour": None,
    "poison_after": 3,
    "backoff": 5_000_000,
    "backoff_cap": 3_600_000_000,
    "give_up_after": None,
    "timeout": 900_000_000,
    "stall_after": None,
    "on_stall": "cancel",
    "lease": 30_000_000,
    "on_lost": "retry",
    "overlap": "skip",
    "queue_limit": 100,
    "blocks_until": "ended",
    "concurrency_key": None,
    "key_limit": 1,
    "destination": None,
    "breaker_after": 5,
    "breaker_probe": 30_000_000,
    "labels": [],
    "concurrency": None,
    "rate": None,
    "catch_up": "once",
    "catch_up_window": None,
    "missed_after": 60_000_000,
    "requires": None,
    "cutoff": 86_400_000_000,
    "at_cutoff": "skip",
    "complete": None,
    "useful_until": None,
    "jitter": 0,
    "expect_every": None,
    "expect_within": None,
    "ping": None,
    "no_alerts": [],
}
"""The settings of that time, in their order, each with its default."""
_CLASSES = {
    "on_stall": "OnStall",
    "on_lost": "OnLost",
    "overlap": "Overlap",
    "blocks_until": "BlocksUntil",
    "catch_up": "CatchUp",
    "at_cutoff": "AtCutoff",
}
_RATES = (("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000))
_LENGTHS = (("w", 604_800_000_000), *reversed(_RATES), ("ms", 1_000), ("us", 1))


def of_code(
    *,
    name: str,
    job: str,
    rule: str,
    payload: bytes,
    described: Mapping[str, Any],
    chosen: Mapping[str, Any],
    policy: Mapping[str, Any],
    bound: Mapping[str, Any],
    carried: Mapping[str, Any],
) -> str:
    """Of a schedule that an app declares.

    `chosen`: settings of the schedule itself; `carried`: these with key and destination filled in; `policy`: settings
    of app, job and schedule that are not the defaults; `bound`: its binding, with the zone.
    """
    apart = [(setting, _value(setting, value)) for setting, value in _ordered(policy)]
    stated = sorted((field, value) for field, value in described.items() if field != "over" or value is not None)
    words: tuple[Any, ...] = (name, job, rule, payload, stated, _pairs(chosen), apart)
    words += (dict(bound),) if bound else ()
    words += (_pairs(carried),) if carried != chosen else ()
    return _digest(words)


def of_stated(
    *,
    name: str,
    job: str,
    rule: str,
    payload: bytes,
    described: Mapping[str, Any],
    over: str | None,
    policy: Mapping[str, Any],
    bound: Mapping[str, Any],
    carried: Mapping[str, Any],
) -> str:
    """Of a schedule that a file or an operator states."""
    apart = [(setting, _text(setting, value)) for setting, value in _ordered(policy)]
    options = _options({**carried, **bound})
    described_in_order = sorted(described.items(), key=lambda field: field[0])
    return _digest((name, job, rule, payload, options, described_in_order, over, apart))


def of_crontab(*, name: str, job: str, rule: str, payload: bytes, chosen: Mapping[str, Any]) -> str:
    """Of a line of a crontab."""
    return _digest((name, job, rule, payload, _options(chosen)))


def of_release(fingerprints: Mapping[str, str]) -> str:
    """Of all that an app declares, by schedule."""
    return blake2b(repr(sorted(fingerprints.items())).encode(), digest_size=8).hexdigest()


class _Written:
    """Stands for an object whose `repr` is known."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _digest(words: tuple[Any, ...]) -> str:
    return blake2b(repr(words).encode(), digest_size=16).hexdigest()


def _ordered(policy: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What was not the default then. A setting that those releases do not know follows, so that the hash differs."""
    known = [(setting, policy[setting]) for setting in SETTINGS if setting in policy]
    known = [(setting, value) for setting, value in known if value != SETTINGS[setting]]
    return known + sorted((setting, value) for setting, value in policy.items() if setting not in SETTINGS)


def _pairs(settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(setting, _value(setting, settings[setting])) for setting in sorted(settings)]


def _value(setting: str, value: Any) -> Any:
    """As those releases hold it in memory."""
    if setting in _CLASSES:
        return _Written(f"<{_CLASSES[setting]}.{value.upper()}: {value!r}>")
    if setting == "rate" and value is not None:
        return _Written(f"Rate(every={value!r})")
    return tuple(value) if isinstance(value, list) else value


def _text(setting: str, value: Any) -> str:
    """As `str(...)` writes it there."""
    if setting == "rate" and value is not None:
        return _rate(value)
    return str(tuple(value) if isinstance(value, list) else value)


def _options(settings: Mapping[str, Any]) -> bytes | None:
    return json.dumps(dict(settings), separators=(",", ":")).encode() if settings else None


def _rate(every: int) -> str:
    for unit, length in _RATES:
        if length % every == 0:
            return f"{length // every}/{unit}"
    if every < 1_000:
        return f"{round(1_000_000 / every)}/s"
    pieces, rest = "", every
    for unit, length in _LENGTHS:
        count, rest = divmod(rest, length)
        pieces += f"{count}{unit}" if count else ""
    return f"1/{pieces}"
