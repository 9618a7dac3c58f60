"""Reads crontabs: what each line says, and where a schedule made of it differs from what cron did.

One bad line never stops the others: it becomes a problem, which says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from foliot.domain.instant import MINUTE, Duration, spell
from foliot.errors import InvalidRule
from foliot.timing.cron import Cron
from foliot.timing.pieces import Piece, words
from foliot.timing.zones import zone

LONGEST = 100_000
"""Characters in a line. Crons stop reading long before."""

_SETTING = re.compile(
    r"""\s*(?:(?P<quote>['"])(?P<quoted>[^=]*?)(?P=quote)|(?P<plain>[^\s='"][^\s=]*))\s*=\s*(?P<value>.*)""",
    re.ASCII | re.DOTALL,
)
_QUOTED = re.compile(r"""(?P<quote>['"])(?P<value>.*?)(?P=quote)\s*(?P<rest>.*)""", re.ASCII | re.DOTALL)
_MINUTES = re.compile(r"[0-9]{1,6}", re.ASCII)
_UNESCAPED = re.compile(r"(?:[^%\\]|\\.)*\\?", re.DOTALL)
_RANDOM = re.compile(r"(?P<first>[0-9]{1,9}|[A-Za-z]+)?~(?P<last>[0-9]{1,9}|[A-Za-z]+)?(?P<step>/[0-9]+)?", re.ASCII)
_WHOLE_FIELD = ("0-59", "0-23", "1-31", "1-12", "0-6")

_USER = re.compile(r"[A-Za-z0-9_][\w.@-]*\$?(?::[\w.-]+)?", re.ASCII)
_NO_USERS = frozenset("cd test echo sh bash env nice sleep find curl wget php python python3 perl sudo flock".split())
_SCRIPT = re.compile(r".+\.(?:sh|py|pl|php|rb)", re.ASCII | re.IGNORECASE)

_OWN = ("LOGNAME", "USER")
"""What cron sets itself, whatever the crontab says."""
_NOTES = {
    "LOGNAME": "cron sets this variable itself and ignores the line",
    "USER": "cron sets this variable itself and ignores the line",
    "MAILFROM": "no mail is sent",
    "TZ": "the setting applies only to the commands, not to the times, as in cron",
    "START_HOURS_RANGE": "cron ignores this setting of anacron; an anacrontab (period, delay, name, command) "
    "cannot be imported",
}


class Setting(NamedTuple):
    """`NAME=value`: it holds for the lines below it."""

    name: str
    value: str
    note: str = ""
    """What is worth knowing about it; empty for most."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command and its times."""

    rule: Cron
    """Without a name yet: `rule.named(schedule)` settles what is spread by hash."""
    written: str
    """The times as the crontab writes them."""
    command: str
    stdin: str
    """What follows the first `%`; empty when nothing does."""
    environment: Mapping[str, str]
    user: str | None
    """From the user column; None in a user crontab, which does not say whose it is."""
    jitter: Duration
    differences: tuple[str, ...]
    """Where a schedule made of it differs from what cron did."""


class Problem(NamedTuple):
    """Why a line cannot be imported; mostly with a caret below the place."""

    text: str


class Entry(NamedTuple):
    """One line."""

    number: int
    text: str
    what: Setting | Command | Problem | None
    """None for a comment, or a blank line."""


@dataclass(frozen=True, slots=True)
class Crontab:
    """All its lines, in order."""

    entries: tuple[Entry, ...]

    def commands(self) -> dict[int, Command]:
        """By number of line."""
        return {entry.number: entry.what for entry in self.entries if isinstance(entry.what, Command)}

    def problems(self) -> dict[int, Problem]:
        """By number of line."""
        return {entry.number: entry.what for entry in self.entries if isinstance(entry.what, Problem)}


def read_crontab(text: str, *, system: bool, tz: str) -> Crontab:
    """`system`: each command has a user before it, as in /etc/crontab and /etc/cron.d. `tz`: the zone of the host."""
    reader = _Reader(system, zone(tz).name)
    lines = text.split("\n")
    is_ended = lines[-1] == ""
    entries = [Entry(number, line, reader.read(line)) for number, line in enumerate(lines, 1)]
    last = entries[-1]
    if is_ended:
        entries.pop()
    elif isinstance(last.what, Command):
        told = (*last.what.differences, "cron ignores a last line without a line break; Foliot imports it")
        entries[-1] = last._replace(what=replace(last.what, differences=told))
    return Crontab(tuple(entries))


class _Reader:
    """Reads line by line; knows what the lines above have set."""

    def __init__(self, system: bool, tz: str) -> None:
        self._system = system
        self._tz = tz
        self._environment: dict[str, str] = {}

    def read(self, line: str) -> Setting | Command | Problem | None:
        content = line.removesuffix("\r")
        if not content.strip() or content.lstrip().startswith("#"):
            return None
        try:
            _check(content)
            match = _SETTING.match(content)
            if match is None:
                return self._command(content)
            setting = _setting(Piece(content, 0, content), match)
        except InvalidRule as refusal:
            return Problem(str(refusal))
        self._environment[setting.name] = setting.value
        return setting

    def _command(self, content: str) -> Command:
        pieces = words(content)
        is_quiet = len(pieces[0].text) > 1 and pieces[0].text.startswith("-")
        if is_quiet:
            pieces[0] = pieces[0].beyond(1)
        count = 1 if pieces[0].text.startswith("@") else 5
        times, rest = pieces[:count], pieces[count:]
        rule = self._rule(times)
        user = self._user(rest, content) if self._system else None
        if self._system:
            rest = rest[1:]
        if not rest:
            raise Piece(content, len(content), "").refusal("the command is missing", "write it after the time fields")
        command, stdin = _command_and_input(rest[0], content)
        written = " ".join(piece.text for piece in times)
        made = Command(
            rule=rule,
            written=written,
            command=command,
            stdin=stdin,
            environment={name: value for name, value in self._environment.items() if name not in _OWN},
            user=user,
            jitter=_random_delay(self._environment),
            differences=(),
        )
        return replace(made, differences=tuple(self._differences(made, is_quiet)))

    def _rule(self, times: list[Piece]) -> Cron:
        _refuse_what_is_no_time(times[0])
        tz = self._environment.get("CRON_TZ", self._tz)
        try:
            zone(tz)
        except InvalidRule as refusal:
            raise InvalidRule(f"CRON_TZ, above: {refusal}") from None
        if any("~" in piece.text for piece in times):
            fields = [_spread(piece, whole) for piece, whole in zip(times, _WHOLE_FIELD, strict=False)]
            return Cron(" ".join(fields), tz)
        return Cron(times[0].whole[times[0].start : times[-1].start + len(times[-1].text)], tz)

    def _user(self, rest: list[Piece], content: str) -> str:
        if not rest:
            raise Piece(content, len(content), "").refusal(
                "user and command are missing", "write them after the time fields"
            )
        word = rest[0].text
        if not _USER.fullmatch(word) or word in _NO_USERS or _SCRIPT.fullmatch(word):
            raise rest[0].refusal(
                f"a system crontab has a user before the command, and {word:.40} is not a user name",
                "write the user here; for a user crontab, drop --system",
            )
        if len(rest) == 1:
            raise Piece(content, len(content), "").refusal(
                f"the command is missing after the user {word:.40}",
                "write it here; for a user crontab, drop --system",
            )
        return word

    def _differences(self, made: Command, is_quiet: bool) -> Iterator[str]:
        environment, fields = self._environment, made.rule.fields
        if made.user is not None:
            yield f"cron ran the command as user {made.user}; Foliot runs it as the user of the worker"
        elif made.command.startswith("root "):
            yield "the command starts with root; if root is its user, this is a system crontab: add --system"
        if environment.get("MAILTO"):
            yield f"the output is not mailed to {environment['MAILTO']}"
        if "CRON_TZ" in environment:
            yield f"the times are in {made.rule.tz}, as in cronie; Debian's cron ignores CRON_TZ"
        if environment.get("TZ") and environment["TZ"] != made.rule.tz:
            yield f"TZ={environment['TZ']} applies only to the command; the times are in {made.rule.tz}"
        if made.jitter:
            yield (
                f"each run starts up to {spell(made.jitter)} late, with its own random delay; cronie uses one "
                f"random delay for all jobs"
            )
        if "~" in made.written:
            yield (
                f"cron replaces {made.written} with random times whenever it reads the file; Foliot computes "
                f"{made.rule.expression} once, from the schedule's name"
            )
        elif fields.is_spread or fields.day_marks or fields.weekday_marks or "?" in made.written:
            yield f"Vixie cron refuses {made.written}; Foliot accepts it"
        if is_quiet:
            yield "the - before the minute keeps the command out of cron's log; Foliot records every run"


def _check(content: str) -> None:
    if len(content) > LONGEST:
        raise InvalidRule(f"a line has at most {LONGEST:,} characters, and this one has {len(content):,}; use a script")
    for place, character in enumerate(content):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            what = "a zero byte" if character == "\0" else "a byte that is not valid UTF-8"
            raise Piece(content, place, character).refusal(f"the line has {what}", "convert the file: iconv -t UTF-8")


def _setting(line: Piece, match: re.Match[str]) -> Setting:
    name, value = match["quoted"] if match["plain"] is None else match["plain"], match["value"]
    note = _NOTES.get(name, "")
    if not name:
        raise line.group(match, "quote").refusal("the name is missing before the =", "write NAME=value")
    if value[:1] in ("'", '"'):
        quoted = _QUOTED.fullmatch(value)
        place = line.group(match, "value")
        if quoted is None:
            raise place.refusal("the quote is never closed", f"end the value with {value[0]}")
        if quoted["rest"]:
            raise place.group(quoted, "rest").refusal(
                "there is text after the closing quote, so cron does not read a setting", "remove this text"
            )
        value = quoted["value"]
    else:
        value = value.rstrip()
        if " #" in value:
            note = note or "the # and the text after it are part of the value: cron has no comments here"
    return Setting(name, value, note or _about(name, value))


def _about(name: str, value: str) -> str:
    """What depends on the value."""
    if name == "MAILTO" and value:
        return "no mail is sent"
    if name == "RANDOM_DELAY" and not _MINUTES.fullmatch(value):
        return "not a number of minutes, so cron ignores it"
    if name == "CRON_TZ":
        try:
            zone(value)
        except InvalidRule as refusal:
            return str(refusal)
    return "used literally: cron does not expand $" if "$" in value else ""


def _random_delay(environment: Mapping[str, str]) -> Duration:
    value = environment.get("RANDOM_DELAY", "")
    return int(value) * MINUTE if _MINUTES.fullmatch(value) else 0


def _refuse_what_is_no_time(first: Piece) -> None:
    word = first.text.lower()
    if word == "@reboot":
        raise first.refusal(
            "@reboot is not a time, and Foliot does not start runs when a host boots",
            "leave it in the crontab, or let the system's service manager start it",
        )
    if word.startswith("@every"):
        raise first.refusal(f"{first.text:.20} is not a nickname of cron", "write the five fields, such as */5 * * * *")


def _spread(piece: Piece, whole: str) -> str:
    """A field with random ranges, with those spread by hash instead: `0~29,45` becomes `H(0-29),45`."""
    low, high = whole.split("-")
    items = []
    for item in piece.items():
        match = _RANDOM.fullmatch(item.text)
        if match is None and "~" in item.text:
            raise item.refusal(f"{item.text:.20} is not a random range", f"write it as {low}~{high}")
        if match is None:
            items.append(item.text)
            continue
        first, last, step = match["first"] or low, match["last"] or high, match["step"] or ""
        if first.isdigit() and last.isdigit() and int(first) > int(last):
            raise item.refusal(f"the random range {item.text:.20} is reversed", f"write {last}~{first}")
        items.append(f"H({first}-{last}){step}")
    return ",".join(items)


def _command_and_input(first: Piece, content: str) -> tuple[str, str]:
    """The command up to the first bare `%`, and what follows that, with line breaks for the others."""
    if first.text.startswith("*"):
        raise first.refusal("the command starts with *", "a crontab has five fields of time: no seconds, no year")
    if first.text.startswith("-"):
        raise first.refusal(
            "the command starts with -", "flags such as OpenBSD's -n and -s are not imported: remove them"
        )
    text = content[first.start :]
    match = _UNESCAPED.match(text)
    end = match.end() if match else 0
    command = re.sub(r"\\(.)", lambda pair: "%" if pair[1] == "%" else pair[0], text[:end], flags=re.DOTALL)
    if not command.strip():
        raise first.refusal("the command is missing before the %", r"write it here; write a literal % as \%")
    given = re.sub(r"\\?%", lambda found: "%" if len(found[0]) == 2 else "\n", text[end + 1 :])
    return command, given if given == "" or given.endswith("\n") else f"{given}\n"
