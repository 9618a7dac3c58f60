"""Rules as text: the line of JSON that a store keeps, and the short form that a person types."""

from __future__ import annotations

import json
from typing import Any

from foliot.domain.instant import duration, parse_rfc3339
from foliot.domain.rule import Rule
from foliot.errors import InvalidRule
from foliot.timing.expression import LONGEST
from foliot.timing.rules import After, At, Every, after, cron, every, refused_as_rule

_SHORT_FORMS = 'a cron expression such as "0 2 * * *", "every 15m", "after 10m", or "at 2026-04-03T02:00:00Z"'


def decode(text: str) -> Rule:
    """Reads what `Rule.encode` wrote, and nothing else."""
    fields = _load(text)
    with refused_as_rule():
        match fields:
            case {"cron": str(expression), "tz": str(tz), **rest} if not rest:
                return cron(expression, tz=tz)
            case {"every": str(interval), "start": str(start), **rest} if not rest:
                return Every(duration(interval), parse_rfc3339(start))
            case {"after": str(delay), **rest} if not rest:
                return After(duration(delay))
            case {"at": str(when), **rest} if not rest:
                return At(parse_rfc3339(when))
    raise InvalidRule(
        f'{text!r:.80} is not a stored rule; it must have exactly the fields "cron" and "tz", "every" and "start", '
        f'"after", or "at", each a text. A newer release may have written it'
    )


def parse(text: str, tz: str = "UTC") -> Rule:
    """Reads what a person types: cron text, `every 15m`, `after 10m`, `at 2026-04-03T02:00:00Z`.

    `tz` matters to cron alone: the other forms are elapsed time, or carry their own offset.
    """
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
        raise InvalidRule(f"{text!r:.80} is not a rule; write {_SHORT_FORMS}")
    word, *rest = text.split(maxsplit=1)
    value = "".join(rest).strip()
    match word.lower():
        case "every" | "@every":
            return every(value)
        case "after":
            return after(value)
        case "at":
            with refused_as_rule():
                return At(parse_rfc3339(value))
    return cron(text, tz=tz)


def _load(text: str) -> Any:
    # Every rule that can be made fits in far less; the bound keeps hostile text away from the JSON reader.
    if not isinstance(text, str) or len(text) > LONGEST + 200:
        raise InvalidRule(f"{text!r:.80} is not a stored rule: it must be one short line of JSON")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidRule(f"{text!r:.80} is not a stored rule: it is not JSON") from None
