"""Every number on every page is the same number in the JSON API and in the rows of the store.

States of a store are drawn from seeds (`states`). Three sources are compared: the pages, read as HTML (`marked`); the
JSON API; and counts that are made in plain Python from the rows (`rows`).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit
from zoneinfo import ZoneInfo

import pytest

from foliot.web.pages import lists, schedules
from foliot.web.settings import WebSettings
from tests.servers.emptied import emptied
from tests.tiers import by_tier, full_only
from tests.web.marked import Element, Page, Shown, titles
from tests.web.rows import MINUTE, At, Length, Numbers, OneOf, Part, Record, Rows, Said, Settings, clock_of, headline
from tests.web.stage import Caller, Stage
from tests.web.states import FEW, RICH, Action, Lived, drawn_state

HTML = {"accept": "text/html"}
SECOND = 1_000_000
_UNITS = {
    "ms": 1_000,
    "s": SECOND,
    "m": MINUTE,
    "min": MINUTE,
    "h": 60 * MINUTE,
    "d": 1440 * MINUTE,
    "w": 10_080 * MINUTE,
}
_CUT = 160
ESTIMATES = ("expected_end",)
"""Fields that no rows have: pages and API are compared."""
NOTHING = "\N{EN DASH}"


# Rules for numbers that a page shortens


def in_length(text: str, value: int) -> bool:
    """`<1 ms`; else cut, never rounded up, at its last digit: `1.2 s`, `12 min`, `2h 5m`."""
    if text == "<1 ms":
        return 0 < value < 1_000
    if text == "now":
        return abs(value) < SECOND
    parts = re.findall(r"([0-9,]+(?:\.([0-9]))?) ?(ms|min|[smhd])\b", text)
    if not parts or re.sub(r"[0-9,]+(\.[0-9])? ?(ms|min|[smhd])\b", "", text).strip():
        return False
    low = sum(round(float(number.replace(",", "")) * _UNITS[unit]) for number, _, unit in parts)
    _, tenths, unit = parts[-1]
    return bool(low <= value < low + (_UNITS[unit] // 10 if tenths else _UNITS[unit]))


def in_part(text: str, value: float) -> bool:
    """Percent: half of the last digit off, but never 100% of what is less; a plain number: as many digits as it has."""
    if text == "<1%":
        return bool(value < 0.01)
    if text == NOTHING:
        return False
    number = text.removesuffix("%").replace(",", "")
    scaled = value * 100 if text.endswith("%") else value
    if number == "99.9" and text.endswith("%"):
        return bool(99.85 <= scaled < 100)
    digits = len(number.partition(".")[2])
    return bool(abs(float(number) - scaled) <= 0.5 * 10**-digits + 1e-9)


def in_moment(text: str, value: int, now: int) -> bool:
    """To the second, to the minute where that is whole, of a day to the millisecond; or how far away it is."""
    at = clock_of(value)
    shown = {f"{at:%Y-%m-%d %H:%M:%S}", f"{at:%Y-%m-%dT%H:%M:%SZ}", f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"}
    shown |= {f"{at:%Y-%m-%d %H:%M}"} if not at.second else set()
    if text in shown or text == "now":
        return text in shown or abs(now - value) < SECOND
    if text.startswith(("in ", "due ")):
        ahead = value - now if text.startswith("in ") else now - value
        return in_length(text.removeprefix("in ").removeprefix("due ").removesuffix(" ago"), ahead)
    return text.endswith(" ago") and in_length(text.removesuffix(" ago"), now - value)


def is_shown(text: str, value: Any, now: int) -> bool:
    """Whether a text says this value, by the rule of its kind."""
    match value:
        case None:
            return text in (NOTHING, "never", "none")
        case OneOf():
            return any(is_shown(text, one, now) for one in value.values)
        case At():
            return in_moment(text, value, now)
        case Length():
            return in_length(text, value)
        case Part():
            return in_part(text, value)
        case Said():
            return says(text, value, now)
        case Numbers():
            return tuple(map(int, re.findall("[0-9]+", text))) == value.values
        case Settings():
            return are_settings(text, value.values)
        case {"done": done, "of": of}:
            return text == f"{done} of {of}"
        case bool() | int():
            counted = text.replace(",", "")
            if counted.endswith("+"):
                return int(counted[:-1]) <= value
            return counted == f"{value}" or (value == 0 and text == NOTHING)
        case str():
            flat = " ".join(value.split())
            return text == flat or (text.endswith("…") and len(text) >= _CUT and flat.startswith(text[:-1]))
    raise AssertionError(f"no rule for {value!r}")


def are_settings(text: str, known: frozenset[Any]) -> bool:
    """Lengths are spelled as `1h30m`; what is no length is a plain number."""
    found = re.findall(r"\b((?:[0-9]+(?:ms|[wdhms]))+)\b|([0-9][0-9,]*)", text)
    for spelled, plain in found:
        lengths = re.findall(r"([0-9]+)(ms|[wdhms])", spelled)
        value = sum(int(count) * _UNITS[unit] for count, unit in lengths) if spelled else int(plain.replace(",", ""))
        if value not in known:
            return False
    return True


_DST = Settings(frozenset({29, 25, 2026, 2, 30, 3, 0, 138, 144, 150}))
"""Numbers in sentences about the two nights of 2026 in which the clocks of Paris change."""

# Sentences: every digit of one is a part of a named value.

_N, _LENGTH, _TIME = r"[0-9][0-9,]*", r"<?[0-9][0-9.,]* (?:ms|s|min|h|d)", r"[0-9]{4}-[0-9-]{5}T[0-9:]{8}Z"
_SENTENCES = [
    re.compile(pattern.replace("#", _N).replace("~", _LENGTH).replace("@", _TIME), re.S)
    for pattern in (
        # Of the fleet.
        r"(?P<alive>#) schedulers?, (?P<held>#) of (?P<shards>#) shards? held(?:, last tick (?P<tick>~) ago)?",
        r"(?P<overdue>#) due and not handed off, the oldest for (?P<first>~)",
        r"(?P<held>#) of (?P<shards>#) shards are held",
        r"(?:no live (?:scheduler|worker)|no (?:scheduler|worker) heartbeat since (?P<heard>@)): "
        r"no run (?:becomes due|starts)",
        r"(?P<alive>#) workers?, (?P<busy>#) of (?P<slots>#) slots? busy"
        r"(?:; (?P<waiting>#) waiting, the oldest for (?P<first>~))?",
        r"(?:(?P<shards>#) shards?)?(?:, )?(?:duties: [a-z_, ]+)?|none",
        r"store clock|(?P<low>[+-][0-9.]+ ms) to (?P<high>[+-][0-9.]+ ms)",
        r"(?:(?P<rate>#)/m, )?(?P<at_once>#) at a time",
        r"no limit|(?:(?P<most>#) concurrent)?(?:, )?(?:(?P<rate>#)/m)?(?:, )?(?:weight (?P<weight>[0-9.]+))?",
        # Of items and effects.
        r"effects: (?:(?P<done>#) done)?(?:, )?(?:(?P<in_doubt>#) ambiguous)?(?:, )?(?:(?P<not_done>#) not done)?",
        r"[a-z]+: (?P<done>#) of (?P<of>#) done(?:, (?P<in_doubt>#) ambiguous)?(?:, (?P<not_done>#) not done)?"
        r"(?:, (?P<failed>#) failed: .*)?",
        r"(?P<name_>.*) started at (?P<started_at>@), in attempt (?P<attempt>#), and has no recorded outcome; .*",
        r"and (?P<more>#) more such effects",
        # Of runs.
        r"(?P<done>#) of (?P<all>#)(?:; (?P<left>.*))?",
        r"No attempts are left after (?P<tries>#) attempts?\. .*",
        r".* crashed (?P<deaths>#) times?\. .*",
        r"The last attempt did not succeed\. The scheduler retries the run at (?P<fire_at>@)\.",
        r"The worker sends heartbeats, and the run reported no progress for (?P<silence>~)\.",
        r"Too few members are done: (?P<done>#) of (?P<all>#)(?:; (?P<left>.*))?\.",
        r"The last (?P<row>#) runs failed in a row\.",
        r"no watch round for (?P<silence>~): no live scheduler, or the watch is stuck",
        r"busy slots: the duration of runs of (?P<unknown>#) schedules? is unknown",
        r".* and (?P<more_paused>#) more are paused, and are left out",
        r"[^0-9]*",
    )
]


def says(text: str, said: Said, now: int) -> bool:
    """The text is one of the known sentences, and each of its numbers is what it has to be."""
    for pattern in _SENTENCES:
        if (found := pattern.fullmatch(text)) is None:
            continue
        wanted = said.values
        for name, shown in found.groupdict().items():
            if shown is None or name.endswith("_"):
                if (
                    not name.endswith("_")
                    and wanted.get(name)
                    and name in ("done", "in_doubt", "not_done", "failed", "waiting")
                ):
                    break  # a number that has to be said, and is not
                continue
            if name not in wanted or not is_said(name, shown, wanted, now):
                break
        else:
            return True
    return False


def is_said(name: str, shown: str, wanted: Mapping[str, Any], now: int) -> bool:
    value = wanted[name]
    if name in ("low", "high"):
        return value is not None and abs(float(shown.removesuffix(" ms")) - value / 1000) <= 0.05
    if name == "weight":
        return value is not None and float(shown) == value
    if name == "left":
        return value is not None and shown == ", ".join(f"{count:,} {state}" for state, count in value)
    return is_shown(shown, value, now)


_RANKS = {
    name: number
    for number, name in enumerate(
        (
            "scheduled",
            "retrying",
            "held",
            "ready",
            "running",
            "verifying",
            "succeeded",
            "verified",
            "reconciled",
            "cancelled",
            "skipped",
            "unverified",
            "dead",
            "ambiguous",
            "settled",
        )
    )
}
_DONE = ("succeeded", "verified", "reconciled")


def with_members(said: Said, rows: Rows) -> Said:
    """Fills in how complete a tick over members is."""
    if "tick" not in said.values:
        return said
    states = rows.tick_counts(said.values["tick"], said.values.get("counted"))
    left = [(state, states[state]) for state in sorted(states, key=lambda name: -_RANKS[name]) if state not in _DONE]
    counts = {"done": sum(states[state] for state in _DONE), "all": states.total(), "left": left}
    return Said({**said.values, **counts})


# Drawings: what their titles say, and where their marks stand

_STRIP = {"fill-ok": "kept", "fill-late": "late", "fill-idle": "skipped", "stroke line-bad": "failed"}


def marks_of(strip: Element) -> list[str]:
    """The marks of a strip, from left to right."""
    found: dict[int, str] = {}
    for one in strip.iter("path"):
        if (kind := _STRIP.get(one.get("class", ""))) is not None:
            found |= {int(x) // 12: kind for x in re.findall(r"M([0-9]+) ", one.get("d", ""))}
    for one in strip.iter("use"):
        found[int(one.get("x", "")) // 12] = one.get("href", "").removeprefix("#mark-")
    return [found[place] for place in sorted(found)]


def drawn_strip(element: Element, marks: Sequence[str]) -> bool:
    [title] = titles(element)
    counts = ", ".join(f"{count} {kind}" for kind, count in Counter(marks).items())
    wanted = f"the last {len(marks)} ticks: {counts}" if marks else "no ticks yet"
    return title == wanted and marks_of(element) == list(marks)


def drawn_lengths(element: Element, lengths: Sequence[int]) -> bool:
    """As many points as lengths, each as high beside the highest as it is long beside the longest."""
    [title] = titles(element)
    points = element.find("polyline")
    assert points is not None
    heights = [25 - float(one.split(",")[1]) for one in points.get("points", "").split(" ")]
    scale = max(heights) / max([*lengths, 1])
    is_drawn = all(abs(height - scale * length) <= 0.15 for height, length in zip(heights, lengths, strict=False))
    noun = "run" if len(lengths) == 1 else "runs"
    return is_drawn and len(heights) == len(lengths) and f"durations of the last {len(lengths)} {noun}" in title


def drawn_minutes(element: Element, kept: Mapping[int, Counter[str]]) -> bool:
    """Each minute's title, and the heights of its bars beside the highest."""
    groups = element.findall("g")
    top = max([sum(_bars(counts).values()) for counts in kept.values()] or [0]) or 1
    is_drawn = f"{top:,}" in {one.text for one in element.findall("text")}
    for group, (minute, counts) in zip(groups, kept.items(), strict=True):
        bars = _bars(counts)
        said = (
            f"{bars['ok']:,} on time, {bars['late']:,} late, {bars['bad']:,} missed or failed, {bars['idle']:,} skipped"
        )
        is_drawn &= list(titles(group)) == [f"{clock_of(minute * MINUTE):%H:%M}: {said}"]
        heights = {
            one.get("class", "").removeprefix("fill-"): float(one.get("height", "")) for one in group.findall("rect")
        }
        is_drawn &= all(abs(heights.get(kind, 0) - 92 * count / top) <= 0.1 for kind, count in bars.items())
    return is_drawn


def _bars(counts: Mapping[str, int]) -> dict[str, int]:
    bad = counts.get("missed", 0) + counts.get("failed", 0)
    return {"ok": counts.get("on_time", 0), "late": counts.get("late", 0), "bad": bad, "idle": counts.get("skipped", 0)}


def drawn_dots(element: Element, runs: Sequence[Mapping[str, Any]]) -> bool:
    """A dot for each of the newest runs that has such a length."""
    is_late = element.get("aria-label", "").startswith("start lateness")
    wanted = {}
    for run in runs:
        begun = run["started_at"] or run["claimed_at"]
        size = (None if begun is None else max(begun - run["nominal"], 0)) if is_late else run["took"]
        if size is not None:
            wanted[run["id"]] = (size, run["state"])
    found = [one.get("aria-label", "").rpartition(": ") for one in element.iter("a")]
    is_drawn = sorted(one[0] for one in found) == sorted(wanted)
    for name, _, said in found:
        length, _, state = said.rpartition(", ")
        is_drawn &= (
            name in wanted
            and state == wanted[name][1]
            and (in_length(length, wanted[name][0]) or (length, wanted[name][0]) == ("0 ms", 0))
        )
    return is_drawn


def drawn_timeline(element: Element, run: Mapping[str, Any]) -> bool:
    attempts = {one["attempt"]: one for one in run["attempts"]}
    is_drawn = True
    for title in titles(element):
        if (found := re.fullmatch(r"attempt ([0-9]+): ([a-z_]+), (.*)", title)) is not None:
            attempt = attempts[int(found[1])]
            took = attempt["took"]
            is_drawn &= found[2] == (attempt["outcome"] or "running") and is_shown(found[3], took, 0)
        else:
            is_drawn &= not re.search("[0-9]", title)
    return is_drawn


def drawn_heat(element: Element, load: Mapping[int, int]) -> bool:
    """Rows of hours."""
    wanted = []
    for hour, minutes in groupby(load.items(), key=lambda item: item[0] // 60):
        counts = dict(minutes)
        fullest = max(counts, key=lambda minute: (counts[minute], -minute))
        noun = "start" if sum(counts.values()) == 1 else "starts"
        wanted.append(
            f"{clock_of(hour * 60 * MINUTE):%a %H:%M}: {sum(counts.values()):,} {noun}, at most {counts[fullest]:,}, "
            f"at {clock_of(fullest * MINUTE):%H:%M}"
        )
    return list(titles(element))[1:] == wanted


# Stories of runs

_STORY = [
    re.compile(pattern.replace("#", _N).replace("~", _LENGTH).replace("@", _TIME), re.S)
    for pattern in (
        r"created by schedule .*, revision (?P<revision>#)(?:, for the interval since (?P<since>@))?",
        r"handed off to workers(?: \((?:\+|EARLY )(?P<handed>~)\))?",
        r"created (?P<all>#) runs?, one per member",
        r"claimed by worker (?P<worker>#)",
        r"attempt (?P<attempt>#) is running(?:, at (?P<done_>#)(?: of (?P<of_>#))?(?: \([^0-9]*\))?)?"
        r"(?:; no progress reported for (?P<silence>~))?",
        r"(?:attempt (?P<attempt>#)|the check) started(?: on worker (?P<its_worker>#))?",
        r"(?:attempt (?P<attempt>#)|the check) [^0-9]*?(?: after (?P<its_took>~))?(?:, [^0-9]*)?"
        r"(?:; (?:last reported )?progress (?P<its_done>#)(?: of (?P<its_of>#))?(?: \([^0-9]*\))?)?"
        r"[^0-9]*",
        r"effect .* started \((?:attempt (?P<effect>#)|another run of its lineage)\)",
        r"effect [a-z]+ done for the last of (?P<effects>#) keys?",
        r"effect .* (?:done|did not happen)(?:: .*)?(?: \([^0-9]*\))?",
        r"retry (?:in (?P<left>[0-9a-z]+)|now), at (?P<fire_at>@)",
        r"due(?: in (?P<left>[0-9a-z]+)| now)?[^0-9]*",
        r"(?:waits for its members: |[a-z]+: [a-z]+, |[a-z]+, )(?P<tick>#[^:]*)(?:: needs attention)?",
        r"[a-z]+[^0-9]*; this row represents (?P<span_count>#) ticks, up to (?P<span_until>@)",
        r"suspected of crashing workers: lost (?P<losses>#) times in a row; a worker with (?P<most_slots>#) slots? "
        r"(?:executes at most (?P<together>#) such runs? together|executes it in an isolated process)",
        r"suspected of crashing workers: lost (?P<losses>#) times in a row; "
        r"a worker executes at most slots / (?P<divisor>#) such runs together, at least one",
        r"(?:promised|triggered|created as|reruns:|verified|succeeded|held:).*",
        r"[^0-9]*",
    )
]


def is_told(text: str, run: Record, rows: Rows) -> bool:
    """Whether every number of a line of a run's story is one that its rows have."""
    if any(" ".join(one["detail"].split()) in text for one in rows.event if one["subject"] == run["id"]):
        return True  # an event is stored as text
    if any(one.values and says(text, one, rows.now) for one in run["advice"]["counts"]):
        return True
    attempts = {one["attempt"]: one for one in run["attempts"]}
    stored = [one["error"] for one in run["attempts"]] + [run["detail"] if isinstance(run["detail"], str) else ""]
    for one in sorted(filter(None, stored), key=len, reverse=True):
        text = text.replace(" ".join(headline(one).split()), "")
    for one in sorted(rows.runs, key=len, reverse=True):
        text = text.replace(one, "")
    for pattern in _STORY:
        if (found := pattern.fullmatch(text)) is None:
            continue
        said = {name: shown for name, shown in found.groupdict().items() if shown is not None}
        # A line about a check names no attempt, and a run may be checked more than once.
        meant = [attempts.get(int(said["attempt"]), {})] if "attempt" in said else [*attempts.values(), {}]
        if any(all(_is_true(name, shown, run, attempt, rows) for name, shown in said.items()) for attempt in meant):
            return True
    return False


def _is_true(name: str, shown: str, run: Record, attempt: Mapping[str, Any], rows: Rows) -> bool:
    match name:
        case "attempt":
            return bool(attempt)
        case "handed":
            return in_length(shown, abs(run["fired_at"] - run["fire_at"]))
        case "tick" | "all":
            states = rows.tick_counts(run["id"])
            if name == "all":
                return is_shown(shown, states.total(), rows.now)
            return says(
                shown.removesuffix(", and more are being made"), with_members(Said({"tick": run["id"]}), rows), rows.now
            )
        case "left":
            return are_settings(shown, frozenset({(run["fire_at"] - rows.now) // SECOND * SECOND}))
        case "effects" | "effect":
            counts = (
                {one["attempt"] for one in run["effects"]} if name == "effect" else set(range(len(run["effects"]) + 1))
            )
            return int(shown) in counts
        case "silence":
            return in_length(shown, rows.now - rows.said_at(run))
        case "losses":
            return int(shown) == _losses(run, rows)
        case "most_slots":
            return int(shown) == _most_slots(rows)
        case "together":
            return int(shown) == max(_most_slots(rows) >> _losses(run, rows) - 1, 1)
        case "divisor":
            return int(shown) == 1 << _losses(run, rows) - 1
        case "done_" | "of_" | "its_done" | "its_of":
            progress = (run if name.endswith("_") else attempt)["progress"] or {}
            return is_shown(shown, progress.get("of" if "of" in name else "done"), rows.now)
    value = attempt.get(name.removeprefix("its_")) if name.startswith("its_") else run[name]
    return is_shown(shown, value, rows.now)


def _losses(run: Record, rows: Rows) -> int:
    return max(rows.losses(run), 2)


def _most_slots(rows: Rows) -> int:
    return max(int(one["slots"]) for one in rows.instances("worker"))


# The comparison


class Comparison:
    """One state: its pages, its API, its rows."""

    def __init__(self, state: Lived) -> None:
        self.stage = Stage(state.world, WebSettings())
        self.caller: Caller = self.stage.somebody()
        self.state = state
        self.rows = Rows(state.world, state.rules)
        self.now = self.rows.now
        self.wrong: list[str] = []
        self.compared: Counter[str] = Counter()
        self._resources: dict[str, Any] = {}
        self._answers: dict[str, Any] = {}

    def page(self, path: str) -> Page:
        response = self.caller.ask("GET", path, headers=HTML)
        assert response.status_code == 200, (path, response.text)
        page = Page(response.text)
        self.wrong += [f"{path}: no meaning: {text}" for text in page.unknown]
        for shown in page.numbers:
            self.compare(path, shown)
        for of, kind, element in page.drawings:
            self.compared[kind] += 1
            if not self.is_drawn(of, kind, element):
                said = " | ".join(titles(element))
                self.wrong.append(f"{path}: {of} {kind} is not drawn as the rows say: {said}")
        return page

    def replay(self, path: str) -> None:
        """The form that replays dead letters counts those that its link chooses."""
        wanted = dict(parse_qsl(urlsplit(path).query))
        by_rows = sum(_is_chosen(run, wanted) for run in self.rows.runs.values())
        by_api = len(self.listed("/dead", urlencode(wanted)))
        form = self.caller.ask("GET", path, headers=HTML).text
        counts = re.search("([0-9,]+) of ([0-9,]+) dead letter", form)
        told = [int(count.replace(",", "")) for count in counts.groups()] if counts else []
        self.compared["replay"] += 1
        if told[1:] != [by_rows] or by_api != by_rows or f"Replay {told[0]:,}<" not in form:
            self.wrong.append(f"{path}: {told}, the API has {by_api}, the rows {by_rows}")

    def is_drawn(self, of: str, kind: str, element: Element) -> bool:
        """The drawing has what the rows have; and so has the API."""
        match kind:
            case "strip":
                wanted = self.resource(of)["strip"]
                return drawn_strip(element, wanted) and self.answer(of)["strip"] == wanted
            case "durations":
                wanted = self.resource(of)["durations"]
                told = [round(one * SECOND) for one in self.answer(of)["durations"]]
                return drawn_lengths(element, wanted) and told == wanted
            case "bars":
                kept = self.rows.kept()
                told = [_bars(one) for one in self.caller.get("/overview/kept")["items"]]
                return drawn_minutes(element, kept) and told == [_bars(one) for one in kept.values()]
            case "dots":
                name = of.partition("/")[2]
                runs = [run for run in self.rows.runs.values() if run["schedule"] == name and run["member"] is None]
                return drawn_dots(element, sorted(runs, key=lambda run: -run["number"])[:30])
            case "timeline":
                return drawn_timeline(element, self.resource(of))
            case "heat":
                return drawn_heat(element, self.rows.load(1440 * MINUTE))
        return False

    def compare(self, path: str, shown: Shown) -> None:
        if shown.field in ("#rows",):
            return  # counted by the reader of that page
        where = f"{path}: {shown.of} {shown.field}"
        try:
            expected = self.expected(shown)
        except (KeyError, IndexError, ValueError) as error:
            self.wrong.append(f"{where} says {shown.text!r}; no count: {error!r}")
            return
        if isinstance(expected, Said):
            expected = with_members(expected, self.rows)
        self.compared[shown.field] += 1
        if not is_shown(shown.text, expected, self.now):
            self.wrong.append(f"{where} says {shown.text!r}; the rows say {expected!r}")
        if (
            shown.instant
            and expected is not None
            and _instant(shown.instant) not in getattr(expected, "values", [expected])
        ):
            self.wrong.append(f"{where} has the instant {shown.instant}; the rows say {expected!r}")
        self.compare_api(where, shown, expected)

    def expected(self, shown: Shown) -> Any:
        name = shown.of.partition("/")[2]
        if shown.field == "#local":
            zone = ZoneInfo(self.rows.rules[name].zone)
            shapes = [
                f"{clock_of(one).astimezone(zone):%a %d %b %H:%M %z}"
                for one in self.expected(shown._replace(field="next"))
            ]
            return OneOf(frozenset(shapes))
        if shown.field == "#dst":
            return _DST
        if shown.field in ("#error", "#headline"):
            heads = self.rows.resource(shown.of)["#headlines"]
            return OneOf(frozenset(heads if shown.field == "#error" else heads.values()))
        if shown.field in ESTIMATES:
            return At(_instant(self.answer(shown.of)[shown.field]))
        if shown.field.startswith("story."):
            return self.story(shown)
        return _evaluated(self.resource(shown.of), shown.field)

    def story(self, shown: Shown) -> Any:
        """When a line happened is a time of the run. It says no number that the rows of the run do not have."""
        run = self.resource(shown.of)
        if shown.field.endswith(".at"):
            return OneOf(run["#times"])
        return shown.text if is_told(shown.text, run, self.rows) else "nothing like it"

    def resource(self, name: str) -> Any:
        if name not in self._resources:
            self._resources[name] = self.rows.resource(name)
        return self._resources[name]

    # The API

    def compare_api(self, where: str, shown: Shown, expected: Any) -> None:
        if shown.field.startswith("#") and shown.field != "#":
            return
        try:
            answer = _evaluated(self.answer(shown.of), shown.field)
        except (KeyError, IndexError) as error:
            self.wrong.append(f"{where}: the API has no {error}")
            return
        if not _is_same(answer, expected, shown.text):
            self.wrong.append(f"{where} says {shown.text!r}; the rows say {expected!r}; the API says {answer!r}")

    def answer(self, of: str) -> Any:
        """What the API says of a resource, in the names that pages use."""
        if of not in self._answers:
            self._answers[of] = self._asked(of)
        return self._answers[of]

    def _asked(self, of: str) -> Any:
        kind, _, rest = of.partition("/")
        path, _, query = of.partition("?")
        name = quote(rest, safe="")
        if path == "runs":
            return {"#": len(self.listed("/runs", query))}
        if path == "alerts":
            alerts = self.listed("/alerts", query.replace("snoozed=false", ""))
            return {"#": sum("snoozed" not in query or one["snoozed_until"] is None for one in alerts)}
        match kind:
            case "load":
                start = clock_of(self.now - self.now % (60 * MINUTE)).strftime("%Y-%m-%dT%H:%M:%SZ")
                return self.caller.get("/load", **{"from": start, "for": "24h", "per": "1m"}) | {"per": "minute"}
            case "overview":
                found = self.caller.get("/overview")
                return found | {"needs_person": sum(found["needs_person"].values())}
            case "alerts":
                return self.item("/alerts", "everything=true", "number", rest)
            case "schedulers" | "workers":
                found = self.answer("overview")[kind]["instances"]
                return next(one for one in found if str(one["number"]) == rest)
            case "queues" | "tenants" | "limits":
                field = {"queues": "queue", "tenants": "tenant", "limits": "name"}[kind]
                return self.item(f"/{kind}", "", field, rest or None)
            case "audit":
                return self.item("/audit", "", "number", rest)
            case "schedules":
                schedule, _, member = rest.partition("/members/")
                name = quote(schedule, safe="")
                if member:
                    return self.item(f"/schedules/{name}/members", "", "member", member)
                ticks = self.caller.get(f"/schedules/{name}/next", count=8)["next"]
                found = self.caller.get(f"/schedules/{name}")
                return found | {"next": ticks, "active": len(found["at_work"])}
        return self.caller.get(f"/{kind}/{name}")

    def item(self, path: str, query: str, field: str, value: str | None) -> Any:
        found = self.listed(path, query)
        return next(one for one in found if value in (one[field], str(one[field])))

    def listed(self, path: str, query: str) -> list[Any]:
        """All pages of a list."""
        if f"{path}?{query}" not in self._answers:
            found, cursor = [], ""
            while True:
                asked = "&".join(
                    part for part in (query, "limit=500", cursor and f"cursor={quote(cursor, safe='')}") if part
                )
                if path in ("/queues", "/limits"):
                    asked = ""
                response = self.caller.ask("GET", f"/api/v1{path}?{asked}")
                assert response.status_code == 200, (path, asked, response.text)
                answer = response.json()
                found += answer["items"]
                if not (cursor := answer.get("cursor") or ""):
                    break
            self._answers[f"{path}?{query}"] = found
        listed: list[Any] = self._answers[f"{path}?{query}"]
        return listed


def _is_chosen(run: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    """Whether a run is a dead letter that a filter chooses; `-`: those that have none."""
    known = {name: run[name] for name in ("job", "schedule", "member", "tenant")} | {"why": run["reason"]}
    return run["state"] == "dead" and all((known[name] or "-") == value for name, value in wanted.items())


def _evaluated(found: Any, field: str) -> Any:
    """`a.b`, `a.b+a.c`, `a.b/a.c`."""
    if "/" in field:
        part, whole = (_evaluated(found, one) for one in field.split("/"))
        return Part(part / whole) if whole else None
    if "+" in field:
        return sum(_evaluated(found, one) for one in field.split("+"))
    for name in field.split("."):
        found = found[int(name)] if isinstance(found, Sequence) and not isinstance(found, Said) else found[name]
    return found


def _is_same(answer: Any, expected: Any, text: str) -> bool:
    """Whether the API has the value of the rows; a sentence is the text of the page."""
    match expected:
        case None:
            return answer in (None, 0)
        case At():
            return answer is not None and _instant(answer) == expected
        case Length():
            return answer is not None and round(answer * SECOND) == expected
        case Part():
            return answer is not None and abs(answer - expected) <= 0.05
        case OneOf() if isinstance(answer, str) and re.fullmatch(_TIME.replace("Z", "[0-9.]*Z"), answer):
            return _instant(answer) in expected.values
        case Said() | Numbers() | str() | OneOf():
            flat = " ".join(str(answer).split())
            return text in (flat, headline(str(answer))) or (text.endswith("…") and flat.startswith(text[:-1]))
        case {"done": done, "of": of}:
            return bool((answer["done"], answer["of"]) == (done, of))
    return bool(answer == expected)


def _instant(text: str) -> int:
    at = datetime.fromisoformat(text)
    return int(at.astimezone(UTC).timestamp()) * SECOND + at.microsecond


PLACES = ("/", "/load", "/schedules", "/runs", "/dead", "/backfills", "/fleet", "/alerts", "/alerts?all=true", "/audit")


def compared(state: Lived, monkeypatch: pytest.MonkeyPatch) -> Comparison:
    monkeypatch.setattr(lists, "_PAGE", 20)  # so that more lists have a second page
    monkeypatch.setattr(schedules, "_PAGE", 5)
    found = Comparison(state)
    for path in PLACES:
        page = found.page(path)
        for link in _links(page, "cursor="):
            again = {row for row in found.page(link).rows if row in page.rows}
            found.wrong += [f"{link}: {row} is on the page before" for row in again]
        for link in _links(page, "/act/dead/all/replay"):
            found.replay(link)
    for name in state.schedules:
        found.page(f"/schedules/{quote(name, safe='')}")
    for run in some_runs(found.rows):
        found.page(f"/runs/{quote(run, safe='')}")
    return found


def _links(page: Page, text: str) -> list[str]:
    """Where the links of a page lead whose address has this text, each once."""
    return sorted({link for link in page.links if text in link})


def some_runs(rows: Rows) -> list[str]:
    """The newest run of each job in each state."""
    runs = sorted(rows.runs.values(), key=lambda run: run["number"])
    by_kind = {(run["job"], run["state"], run["is_tick"], run["reason"]): run["id"] for run in runs}
    return sorted(by_kind.values())[:MOST_RUNS]


SEEDS = by_tier([8], list(range(300)), list(range(3_000)))
"""That of the short tier makes a strip of thirty marks, a backfill, and runs that wait for a worker."""
POSTGRES_SEEDS = by_tier([6], list(range(1_000, 1_040)), list(range(1_000, 1_400)))
RANDOM: list[Action | None] = [None] * 14
"""As many random actions."""
MOST_RUNS = by_tier(10, 100)
"""Pages of runs that are read of a state."""


@pytest.mark.parametrize("seed", SEEDS)
def test_every_number_on_every_page_is_that_of_the_api_and_of_the_rows(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with drawn_state(seed, by_tier(RICH, RANDOM)) as state:
        assert compared(state, monkeypatch).wrong == []


@pytest.mark.needs("postgres")
@pytest.mark.parametrize("seed", POSTGRES_SEEDS)
def test_the_same_on_postgresql(seed: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    url = emptied(request.getfixturevalue("postgres"), shards=4, by_socket=True)
    with drawn_state(seed, by_tier(FEW, RANDOM), url) as state:
        assert compared(state, monkeypatch).wrong == []


@full_only
def test_one_seed_makes_the_same_pages_each_time() -> None:
    """However often other tests have drawn from the same generator; they go on where they were."""
    random.seed("one")
    first = pages_of(6)
    random.seed("other")
    before = random.getstate()
    assert pages_of(6) == first
    assert random.getstate() == before


def pages_of(seed: int) -> list[str]:
    """Pages of a state, without the token that each application draws for its forms."""
    with drawn_state(seed, RANDOM) as state:
        caller = Stage(state.world, WebSettings()).somebody()
        paths = [*PLACES, *(f"/runs/{quote(run, safe='')}" for run in some_runs(Rows(state.world, state.rules)))]
        texts = [caller.ask("GET", path, headers=HTML).text for path in paths]
    return [re.sub('name="csrf" value="[0-9a-f]+"', "", text) for text in texts]
