"""Schedules that are made of a crontab's lines. Pure.

An import changes as little as it can: what cron did not do (try again, catch up, wait for an earlier run) is not done
here either. The schedules begin their life paused, because cron still runs the same lines.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from foliot.domain import fingerprint_0
from foliot.domain.fingerprint import signed, wire
from foliot.domain.identity import checked_name
from foliot.domain.instant import DAY, SECOND, Instant, rfc3339
from foliot.domain.policy import CatchUp, OnLost, Overlap, Policy, choices_to_json
from foliot.domain.schedule import Declaration
from foliot.timing import Cron, upcoming
from foliot.timing.crontab import Command, Crontab, Entry, Problem, Setting
from foliot.timing.surprises import dst_surprises

JOB = "foliot.shell"
"""The job that runs commands."""
SOURCE = "crontab"
PAUSED = (
    f"imported from a crontab: remove the line there, and resume the schedule when a worker has the job {JOB}; "
    "otherwise cron and Foliot both run the command"
)
_AS_CRON: dict[str, Any] = {
    "attempts": 1,
    "timeout": 7 * DAY,
    "on_lost": OnLost.ASK,
    "overlap": Overlap.ALLOW,
    "catch_up": CatchUp.SKIP,
}
NOTES = (
    f"The schedules are created paused: their commands need the job {JOB}, which no worker of this release has.",
    "Remove a line from the crontab before you resume its schedule; otherwise cron and Foliot both run the command.",
    "As in cron, runs may overlap, missed runs are not caught up, and failed runs are not retried.",
    "Foliot stops a command after a week; cron never does. Foliot sends no mail.",
)
_CARRIAGE_RETURNS = "Windows line ends are removed; cron passes them to the commands."

_SEGMENT = re.compile(r"&&|\|\||;")
_ASIDE = re.compile(r"[0-9]?[<>]+&?\s*\S*|(?<!\S)\w+=\S*", re.ASCII)
"""Redirections, and settings for one command."""
_PREPARING = frozenset("cd test [ [[ if fi done exit sleep export source . umask set".split())
_LEADING = frozenset("then do else exec nohup time ! ( {".split())
_LONGEST_SLUG = 40


def schedule_ids(crontab: Crontab, prefix: str) -> dict[int, str]:
    """A schedule id by number of line: `cron-backup-sh`.

    It comes from user and command alone, so that it stays when other lines move, and when the times are edited. Where
    that is not enough to tell lines apart, a digest of more is added to each of them.
    """
    left, chosen = crontab.commands(), dict[int, str]()
    for depth in range(2):
        names = {number: _name(command, depth) for number, command in left.items()}
        tally = Counter([*chosen.values(), *names.values()])
        chosen |= {number: name for number, name in names.items() if tally[name] == 1}
        left = {number: command for number, command in left.items() if number not in chosen}
    taken, twins = set(chosen.values()), Counter[str]()
    for number, command in left.items():
        stem = name = _name(command, 2)
        while name in taken:  # the same line once more: cron runs it as often as it is written
            twins[stem] += 1
            name = f"{stem}-{twins[stem] + 1}"
        taken.add(name)
        chosen[number] = name
    return {number: checked_name(prefix + name, "schedule") for number, name in chosen.items()}


def _name(command: Command, depth: int) -> str:
    slug = "-".join(filter(None, (_slugged(command.user or ""), _slug(command.command))))
    if depth == 0:
        return slug
    told: tuple[object, ...] = (command.user, command.command, command.stdin)
    if depth > 1:
        told = (*told, command.rule.expression, command.rule.tz)
    return f"{slug}-{blake2b(repr(told).encode(), digest_size=3).hexdigest()}"


def _slug(command: str) -> str:
    """What a person would call it: the first command that does more than prepare, without folders."""
    segments = [_bare(segment) for segment in _SEGMENT.split(command)]
    doing = [segment for segment in segments if segment and segment[0] not in _PREPARING]
    told = next(iter(doing or segments), [])
    return _slugged(" ".join(word.rstrip("/").rpartition("/")[2] for word in told)) or "job"


def _bare(segment: str) -> list[str]:
    told = _ASIDE.sub(" ", segment).strip(" \t(){}").split()
    while told and told[0] in _LEADING:
        del told[0]
    return told


def _slugged(text: str) -> str:
    slug = ""
    for token in re.findall(r"[a-z0-9_]+", text.lower(), re.ASCII):
        if slug and len(slug) + len(token) >= _LONGEST_SLUG:
            break
        slug += f"-{token[:_LONGEST_SLUG]}" if slug else token[:_LONGEST_SLUG]
    return slug


def declarations(crontab: Crontab, ids: Mapping[int, str]) -> list[Declaration]:
    """One for each command; not armed: `Operator.import_schedules` says when each begins."""
    return [_declaration(command, ids[number]) for number, command in crontab.commands().items()]


def _declaration(command: Command, schedule: str) -> Declaration:
    rule = command.rule.named(schedule)
    chosen = _AS_CRON | ({"jitter": command.jitter} if command.jitter else {})
    payload = json.dumps(arguments(command), separators=(",", ":"), ensure_ascii=False).encode()
    declaration = Declaration(
        id=schedule,
        job=JOB,
        rule=rule.encode(),
        payload=payload,
        policy=Policy().merged(chosen),
        options=choices_to_json(chosen),
        delay=None,
        paused=PAUSED,
        said=frozenset(chosen),
    )
    former = fingerprint_0.of_crontab(
        name=schedule, job=JOB, rule=declaration.rule, payload=payload, chosen=wire(chosen)
    )
    return signed(declaration, former)


def arguments(command: Command) -> dict[str, Any]:
    """What the job is given."""
    return {
        "command": command.command,
        "stdin": command.stdin,
        "env": dict(command.environment),
        "user": command.user,
    }


def notes(crontab: Crontab) -> list[str]:
    """What holds for all lines."""
    has_returns = any(entry.text.endswith("\r") for entry in crontab.entries)
    return [*NOTES, _CARRIAGE_RETURNS] if has_returns else list(NOTES)


def line_shapes(crontab: Crontab, ids: Mapping[int, str], now: Instant, coming: int) -> list[dict[str, Any]]:
    """Every line that says something, as what JSON can hold, with its next `coming` times."""
    return [
        {"line": entry.number, "text": entry.text.encode("utf-8", "replace").decode()} | _what(entry, ids, now, coming)
        for entry in crontab.entries
        if entry.what is not None
    ]


def _what(entry: Entry, ids: Mapping[int, str], now: Instant, coming: int) -> dict[str, Any]:
    match entry.what:
        case Setting(name, value, note):
            return {"kind": "setting", "name": name, "value": value, "note": note or None}
        case Problem(text):
            return {"kind": "problem", "problem": text}
        case Command() as command:
            rule = command.rule.named(ids[entry.number])
            return {
                "kind": "schedule",
                "id": ids[entry.number],
                "cron": rule.expression,
                "tz": rule.tz,
                "words": rule.explain(),
                "next": [rfc3339(tick) for tick in upcoming(rule, now, coming)],
                "arguments": arguments(command),
                "jitter": command.jitter // SECOND,
                "differences": list(command.differences),
                "clock_changes": _clock_changes(rule, now),
            }
    return {}


def _clock_changes(rule: Cron, now: Instant) -> list[str]:
    """What the changes of the clocks do to fixed times within a year. A rule that runs on through them is as ever."""
    return [] if rule.is_elapsed else [surprise.text for surprise in dst_surprises(rule, now, now + 366 * DAY)]
