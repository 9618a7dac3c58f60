"""Three identities, never blurred: schedule, run, attempt. How each is named, in one place.

schedule   daily-revenue
run        daily-revenue@2026-04-03T02:00:00Z     a tick of a schedule
           health@2026-04-03T02:00:00Z[acme]      the same for one member of those that a schedule goes over
           daily-revenue@2026-04-03T09:41:07Z#m   triggered by hand
           class:7#1, class:7[acme]#1             a delayed promise by key and generation, with its tenant
           0E5C3N8QZJ3RT                          a delayed promise without a key: its number, time-ordered
           class:7#1#r2                           the second rerun of class:7#1
attempt    class:7#1/2
"""

from __future__ import annotations

import re
import unicodedata

from foliot.domain.instant import MILLISECOND, Instant, rfc3339
from foliot.errors import InvalidInput

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUE = {letter: value for value, letter in enumerate(_ALPHABET)}
_LENGTH = 13
_KEY_EPOCH: Instant = 1_577_836_800_000_000  # 2020-01-01T00:00:00Z
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_PLACES = (50, 40, 30, 20, 10, 0)
"""Where pairs of digits begin, behind the first digit."""
_SPREAD_BITS = 22
SPREAD = 1 << _SPREAD_BITS
"""How many numbers one millisecond has."""

NAME_PATTERN = "[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}"
"""Names of jobs, schedules and queues."""
TENANT_PATTERN = "[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,99}"
MOST_PRIORITY = 1_000
_NAME = re.compile(NAME_PATTERN, re.ASCII)
_TENANT = re.compile(TENANT_PATTERN, re.ASCII)
_RERUN = re.compile(r"#r[0-9]+$", re.ASCII)
_NO_LETTERS = ("Cc", "Cs", "Zl", "Zp")
"""Unicode's control characters, halves of letters, and ends of lines and paragraphs."""


def number_at(moment: Instant, spread: int) -> int:
    """The run number of a moment: 41 bits of milliseconds since 2020, then `spread` (22 bits).

    Numbers grow with time, so that the newest rows share the end of every B-tree, and a store that was made anew does
    not hand out the numbers of the one before it to systems outside that still remember them.
    """
    return (max(moment - _KEY_EPOCH, 0) // MILLISECOND << _SPREAD_BITS) + spread


def made_at(number: int) -> Instant:
    """When a run was promised, to the millisecond: its number says so."""
    return _KEY_EPOCH + (number >> _SPREAD_BITS) * MILLISECOND


def run_id(number: int, name: str | None) -> str:
    """What people and outside systems call the run: its name, or else its number in Crockford's base 32."""
    if name is not None:
        return name
    pairs = _PAIRS  # two digits at a time: a log has an id in every line
    return _ALPHABET[number >> 60 & 31] + "".join([pairs[number >> place & 1023] for place in _PLACES])


def run_number(identifier: str) -> int | None:
    """The number in an unnamed run's id; None when the id is a name."""
    if len(identifier) != _LENGTH or not all(letter in _VALUE for letter in identifier):
        return None
    number = 0
    for letter in identifier:
        number = number * 32 + _VALUE[letter]
    return number if number < 1 << 63 else None


def attempt_id(identifier: str, attempt: int) -> str:
    return f"{identifier}/{attempt}"


def tick_name(schedule: str, nominal: Instant) -> str:
    """Deterministic: two schedulers that both believe they own the tick make the same name."""
    return f"{schedule}@{rfc3339(nominal)}"


def trigger_name(schedule: str, moment: Instant) -> str:
    return f"{schedule}@{rfc3339(moment)}#m"


def series_name(schedule: str, member: str) -> str:
    """What the runs of one member belong to, among those of a schedule that goes over many."""
    return f"{schedule}[{member}]"


def schedule_of_series(series: str) -> str:
    """The schedule that a run belongs to, whether it is a member's or not."""
    return series.partition("[")[0]


def member_of_series(series: str) -> str | None:
    return series.partition("[")[2][:-1] if series.endswith("]") else None


def member_name(tick: str, member: str) -> str:
    """A member's run of a tick: as deterministic as the tick's own name."""
    return f"{tick}[{member}]"


def member_of_run(name: str) -> str:
    """Whom a member's run is for, or a rerun of it: `acme` of `health@T[acme]#r1`."""
    return name.partition("[")[2].partition("]")[0]


def members_range(tick: str) -> tuple[str, str]:
    """The names of all members' runs of a tick, and their reruns, lie between these two."""
    return f"{tick}[", f"{tick}\\"  # the character after the bracket


def promise_stem(key: str, tenant: str | None) -> str:
    """What the names of all generations of a keyed promise begin with."""
    return f"{key}[{tenant}]#" if tenant else f"{key}#"


def generation(name: str, stem: str) -> int | None:
    """Which generation of the promise `name` is; None when it belongs to another key that merely begins alike."""
    tail = name.removeprefix(stem)
    return int(tail) if name.startswith(stem) and tail.isascii() and tail.isdigit() else None


def rerun_stem(identifier: str) -> str:
    """What the names of all reruns in a run's lineage begin with, whether it is the first run or a rerun itself."""
    return f"{first_of_lineage(identifier)}#r"


def first_of_lineage(identifier: str) -> str:
    """The id of the run that all reruns of a lineage repeat."""
    return _RERUN.sub("", identifier)


def idempotency_key(first: str, effect: str, key: str) -> str:
    """What an outside system is given to tell a repetition from a new request: the same in every attempt and rerun."""
    return f"{first}/{effect}/{key}"


def checked_name(name: str, what: str) -> str:
    """The name of a job, schedule or queue, or a clear refusal."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r:.80} cannot name a {what}; use 1 to 200 letters, digits and . _ : / -, a letter or digit first"
        )
    return name


def checked_line(text: str, what: str) -> str:
    """What people write for people, in any script: an owner, a reason. One line, and nothing that cannot be stored."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(f"{what}={text!r:.80}: give a text on one line")
    if any(unicodedata.category(letter) in _NO_LETTERS for letter in text):
        raise InvalidInput(
            f"{what}={text!r:.80}: give one line of text, without line breaks, control characters or invalid characters"
        )
    return text


def checked_priority(priority: int) -> int:
    is_number = isinstance(priority, int) and not isinstance(priority, bool)
    if not is_number or not -MOST_PRIORITY <= priority <= MOST_PRIORITY:
        bounds = f"from -{MOST_PRIORITY} to {MOST_PRIORITY}"
        raise InvalidInput(f"priority={priority!r:.40}: give a whole number {bounds}; higher numbers start first")
    return priority


def checked_key(key: str) -> str:
    """A promise's key: any text on one line, so long as it can be told apart from a tenant's."""
    if not isinstance(key, str) or not 1 <= len(key) <= 300 or not key.isprintable():
        raise InvalidInput(f"{key!r:.80} cannot be a key; give 1 to 300 printable characters")
    if key.endswith("]"):
        raise InvalidInput(f'{key!r} cannot be a key: it must not end with "]", which marks a tenant')
    return key


def checked_member(member: str) -> str:
    """The name of a member of a set. A member is the tenant of its runs, so it is named like one."""
    if not isinstance(member, str) or not _TENANT.fullmatch(member):
        raise InvalidInput(
            f"{member!r:.80} cannot name a member; use 1 to 100 letters, digits and . _ : @ -, a letter or digit first"
        )
    return member


def checked_tenant(tenant: str) -> str:
    if not isinstance(tenant, str) or not _TENANT.fullmatch(tenant):
        raise InvalidInput(f"{tenant!r:.80} cannot name a tenant; use 1 to 100 letters, digits and . _ : @ -")
    return tenant
