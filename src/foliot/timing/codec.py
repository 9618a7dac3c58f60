"""Rules as text: the line of JSON that a store keeps, and the short form that a person types."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import Any

from foliot.domain.instant import duration, parse_rfc3339
from foliot.domain.rule import Rule
from foliot.errors import InvalidRule
from foliot.timing import ical
from foliot.timing.business import business_day, business_days, nearest_business_day, only_on
from foliot.timing.combine import Bounded, Composable, Exclusion, Intersection, Outside, Union, checked, refused_as_rule
from foliot.timing.cron import Cron, cron
from foliot.timing.dst import Dst, dst
from foliot.timing.elapsed import After, At, Every, after, every
from foliot.timing.pieces import Piece, pointing
from foliot.timing.recurrence import Recurrence, rrule
from foliot.timing.spoken import is_spoken, spoken
from foliot.timing.workdays import workdays
from foliot.timing.zones import zone

_CALENDAR = {"country", "subdivision", "market", "closed", "opened", "weekend"}
LONGEST = 20_000
"""Every honest rule fits in far less; the bound keeps hostile text away from the readers."""

DEEPEST = 100
"""Rules inside of rules: far beyond what anybody needs, and far from where Python gives up."""

_RRULE = re.compile(r"\s*(?:(?:RRULE|DTSTART|EXDATE|RDATE)[:;]|(?:[A-Z]+=[^;\s]*;)*FREQ=)", re.IGNORECASE)
_ELAPSED: dict[str, Callable[[str], Rule]] = {
    "every": every,
    "@every": every,
    "after": after,
    "at": lambda value: At(parse_rfc3339(value)),
}
_SHORT_FORMS = (
    'a cron expression such as "0 2 * * *", "every 15m", "after 10m", "at 2026-04-03T02:00:00Z", '
    'or calls such as cron("0 2 * * *") | every("6h")'
)


def decode(text: str) -> Rule:
    """Reads what `Rule.encode` wrote, and nothing else."""
    try:
        with refused_as_rule():
            return _rule(_load(text))
    except (TypeError, OverflowError) as problem:
        raise InvalidRule(f"{text!r:.80} is not a stored rule: {problem}") from None


def _rule(shape: Any) -> Composable:
    match shape:
        case {"cron": str(expression), "tz": str(tz), **rest} if (
            more := _texts(rest, "gap fold interval_like six id")
        ) is not None:
            return Cron(expression, tz, _dst(more), more.get("six"), more.get("id") or "")
        case {"rrule": str(rule), "tz": str(tz), "start": str(start), **rest} if (
            more := _texts(rest, "gap fold interval_like")
        ) is not None:
            return Recurrence(rule, start, tz, _dst(more))
        case {"every": str(interval), "start": str(start), **rest} if rest in ({}, {"spread": True}):
            return Every(duration(interval), parse_rfc3339(start), "spread" in rest)
        case {"after": str(delay), **rest} if not rest:
            return After(duration(delay))
        case {"at": str(when), **rest} if not rest:
            return At(parse_rfc3339(when))
        case {"business_day": int(n), "of": of, **rest} if (more := _arguments(rest)) is not None:
            return business_day(n, of=of, **more)
        case {"business_days": True, **rest} if (more := _arguments(rest)) is not None and "months" not in more:
            return business_days(**more)
        case {"nearest_business_day": int(day), "roll": roll, **rest} if (more := _arguments(rest)) is not None:
            return nearest_business_day(day, roll=roll, **more)
        case {"of": of, "only_on": dict(days), "tz": str(tz), **rest} if not rest and days.keys() <= _CALENDAR:
            return only_on(_rule(of), workdays(**days), tz=tz)
        case {"any": [_, _, *_] as parts, **rest} if not rest:
            return Union(tuple(map(_part, parts)))
        case {"all": [_, _, *_] as parts, **rest} if not rest:
            return Intersection(tuple(map(_part, parts)))
        case {"of": of, "without": other, **rest} if not rest:
            return Exclusion(_part(of), _part(other))
        case {"of": of, "outside": opening, "for": str(length), **rest} if not rest:
            return Outside(_part(of), _part(opening), duration(length))
        case {"of": of, **rest} if more := _texts(rest, "start end"):
            bounds = (parse_rfc3339(more[name]) if name in more else None for name in ("start", "end"))
            return Bounded(_part(of), *bounds)
    raise InvalidRule(
        f"{json.dumps(shape)!r:.80} is not a stored rule: no rule has exactly these "
        f"fields; a newer release may have written it"
    )


def _part(shape: Any) -> Composable:
    return checked(_rule(shape))


def _texts(rest: dict[object, object], allowed: str) -> dict[str, Any] | None:
    """What else a rule says, when all of it is text, and known; else None."""
    texts = {name: value for name, value in rest.items() if isinstance(name, str) and isinstance(value, str)}
    return texts if len(texts) == len(rest) and texts.keys() <= set(allowed.split()) else None


def _arguments(rest: dict[object, Any]) -> dict[str, Any] | None:
    """What a rule about business days says, when all of it is known; else None. Its values are read as a caller's."""
    named = {str(name): value for name, value in rest.items()}
    return named if {"at", "tz"} <= named.keys() <= _CALENDAR | {"at", "tz", "months", "gap", "fold"} else None


def _dst(rest: dict[str, Any]) -> Dst:
    return dst(None, rest.get("gap"), rest.get("fold"), rest.get("interval_like"))


def parse(
    text: str,
    tz: str = "UTC",
    *,
    preset: str | None = None,
    gap: str | None = None,
    fold: str | None = None,
    interval_like: str | None = None,
    seconds: bool = False,
    year: bool = False,
) -> Rule:
    """Reads what a person types: cron text, `every 15m`, `after 10m`, `at 2026-04-03T02:00:00Z`, an RRULE, a rule as
    it is written in Python (`cron("0 9 * * *") | every("6h")`), or the JSON of a stored one.

    `tz` and the others are for cron text and RRULEs; elapsed time has no zone, and a call or stored rule says its own.
    """
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
        raise InvalidRule(f"{text!r:.80} is not a rule; write {_SHORT_FORMS}")
    settings = {"preset": preset, "gap": gap, "fold": fold, "interval_like": interval_like}
    flags = {"seconds": seconds, "year": year}
    given = {name: value for name, value in (settings | flags).items() if value not in (None, False)}
    if text.lstrip().startswith("{") or is_spoken(text):
        _refuse(given if tz == "UTC" else {"tz": tz} | given, "this rule sets them itself")
        if is_spoken(text):
            return spoken(text)
        with pointing(Piece(text, 0, text)):
            return decode(text)
    if _RRULE.match(text):
        _refuse((name for name, value in flags.items() if value), "an RRULE sets seconds and years itself")
        _check_beside(tz, settings)
        with pointing(Piece(text, 0, text)):
            return rrule(text, tz=tz, **settings)
    word, *rest = text.split(maxsplit=1)
    value = "".join(rest).strip()
    word = word.lower()
    if word in _ELAPSED:
        _refuse(given, f"they do not apply to {'one instant' if word == 'at' else 'elapsed time'}")
        with pointing(Piece(text, text.rindex(value) if value else len(text.rstrip()), value)), refused_as_rule():
            return _ELAPSED[word](value)
    _check_beside(tz, settings)
    with pointing(Piece(text, 0, text)):
        return cron(text, tz=tz, seconds=seconds, year=year, **settings)


def takes_policy(text: str) -> bool:
    """Whether `parse` takes gap, fold and interval_like beside a text: cron text, or an RRULE."""
    is_whole = text.lstrip().startswith("{") or is_spoken(text)
    return not is_whole and text.split(maxsplit=1)[0].lower() not in _ELAPSED


def takes_zone(text: str) -> bool:
    """Whether a text that `parse` reads leaves its zone to `tz`: cron text, or an RRULE without TZID and UTC start."""
    if not takes_policy(text):
        return False
    given = ical.read(text) if _RRULE.match(text) else None
    return given is None or (given.tz is None and (given.start is None or given.start.form != "utc"))


def _check_beside(tz: str, settings: Mapping[str, str | None]) -> None:
    """Refuses what is wrong beside the text, which no character of it is to blame for."""
    zone(tz)
    dst(settings["preset"], settings["gap"], settings["fold"], settings["interval_like"])


def _refuse(given: Iterable[str], why: str) -> None:
    if names := " and ".join(given):
        raise InvalidRule(f"{names} cannot be given here: {why}")


def _load(text: str) -> Any:
    # Every rule that can be made fits in far less; the bound keeps hostile text away from the JSON reader.
    if not isinstance(text, str) or len(text) > LONGEST:
        raise InvalidRule(f"{text!r:.80} is not a stored rule: it must be one short line of JSON")
    if text.count("{") > DEEPEST and max(accumulate((one == "{") - (one == "}") for one in text)) > DEEPEST:
        raise InvalidRule(f"{text!r:.80} is not a stored rule: it is nested more than {DEEPEST} deep")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidRule(f"{text!r:.80} is not a stored rule: it is not JSON") from None
