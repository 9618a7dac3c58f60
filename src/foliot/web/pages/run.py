"""One run: its story, what is safe to do, and what could do harm. Pure: from the shape that the API gives to a page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from foliot.domain.instant import Instant, parse_rfc3339, rfc3339
from foliot.operate.advising import TRIES
from foliot.operate.words import headline
from foliot.web.pages import charts
from foliot.web.pages.words import clock, length_of, quoted

Shape = Mapping[str, Any]

_MARKS = {
    "made": "dot",
    "due": "waiting",
    "waiting": "held",
    "effect": "effect",
    "items": "effect",
    "check": "effect",
    "event": "late",
    "person": "person",
}
_WORDS = {
    "retry": "Retry",
    "resume": "Resume",
    "repair": "Rerun as a repair",
    "rerun": "Rerun",
    "verify": "Verify",
    "reconcile": "Reconcile",
    "close": "Close without remaining work",
    "cancel": "Cancel",
    "force_cancel": "Force cancel",
}
_FOR_ALL = frozenset({"force_cancel"})
_ALWAYS = {
    # What can be asked for in which state, beside what is advised.
    "scheduled": ("cancel", "skip"),
    "held": ("release", "cancel", "skip"),
    "ready": ("cancel",),
    "running": ("cancel",),
    "retrying": ("cancel",),
    "verifying": ("cancel",),
    "succeeded": ("rerun",),
    "verified": ("rerun",),
    "reconciled": ("rerun",),
    "cancelled": ("rerun",),
    "skipped": ("rerun",),
}
_NAMED = {"cancel": "Cancel…", "skip": "Skip…", "release": "Release…", "rerun": "Rerun…"}


def run_page(shape: Shape, card: Shape | None, now: Instant, *, is_bound: bool = False) -> dict[str, Any]:
    """`now`: where the stretch of an open attempt ends. `is_bound`: the caller is bound to a tenant, and is not offered
    actions that reach beyond it."""
    advice = shape["advice"]
    steps = [] if advice is None else [one for one in advice["steps"] if not (is_bound and one["action"] in _FOR_ALL)]
    return {
        "heading": shape["id"],
        "run": shape,
        "card": card,
        "advice": advice,
        "advice_steps": list(_steps(shape, steps)),
        "unsafe_steps": [] if advice is None else list(_steps(shape, advice["refused"], risky=True)),
        "acts": _acts(shape),
        "story": [line | {"mark": _mark(shape, line)} for line in shape["story"]],
        "drawing": _drawing(shape, now),
        "errors": [
            {"attempt": one["attempt"], "headline": headline(one["error"]), "text": one["error"]}
            for one in shape["attempts"]
            if one["error"] and one["outcome"] != "succeeded"
        ],
    }


def act_address(run: str, verb: str, **more: str) -> str:
    asked = "&".join(f"{quoted(name)}={quoted(value)}" for name, value in more.items())
    return f"/act/runs/{quoted(run)}/{verb}" + (f"?{asked}" if asked else "")


def _steps(shape: Shape, steps: list[Shape], risky: bool = False) -> Iterator[dict[str, str]]:
    """One button for each action: settling an effect as done or not done is one form. The first is the primary one,
    except a step that helps only later: after the cause is fixed, or after the members are done."""
    for place, action in enumerate(dict.fromkeys(step["action"] for step in steps)):
        if action not in _WORDS:
            continue
        if action == "reconcile" and (
            answers := answer_links(shape["id"], _in_doubt(shape), resumes=shape["reason"] != "poison")
        ):
            yield from answers
            continue
        more = {"risky": "yes"} if risky else {}
        risk = "; ".join(step["text"] for step in steps if step["action"] == action)
        href = act_address(shape["id"], action, **more)
        fixed = " after the cause is fixed" if shape["advice"]["fix_first"] and not risky and action in TRIES else ""
        later = " after the members are done" if action == "verify" and shape["reason"] == "incomplete" else fixed
        text = f"{_WORDS[action]}{later}…"
        kind = "unsafe" if risky else "" if later or place else "safe"
        yield {"href": href, "text": text, "risk": risk, "kind": kind}


MOST_ANSWERED = 20
"""Effects that one button answers for; with more of them the form asks."""


def answer_links(run: str, in_doubt: Sequence[str], *, resumes: bool) -> list[dict[str, str]]:
    """One button for each answer about the effects in doubt: the form that it opens has the answer filled in."""
    if not 1 <= len(in_doubt) <= MOST_ANSWERED:
        return []
    what = "It" if len(in_doubt) == 1 else f"All {len(in_doubt)}"
    then = {"then": "resume"} if resumes else {}
    return [
        {
            "href": act_address(run, "reconcile", **{f"effect {name}": state for name in in_doubt}, **then),
            "text": f"{what} {words}…",
            "risk": "",
            "kind": "",
        }
        for state, words in (("done", "happened"), ("not_done", "did not happen"))
    ]


def _in_doubt(shape: Shape) -> list[str]:
    return [f"{one['name']}:{one['key']}" for one in shape["effects"] if one["state"] == "started"]


def _acts(shape: Shape) -> list[dict[str, str]]:
    verbs = _ALWAYS.get(shape["state"], ())
    return [
        {"href": act_address(shape["id"], verb), "text": _NAMED[verb], "kind": "unsafe" if verb == "cancel" else ""}
        for verb in verbs
    ]


def _mark(shape: Shape, line: Shape) -> str:
    kind = line["kind"]
    if kind == "ended":
        return charts.shape_of(shape["state"])
    if kind == "now":
        return charts.shape_of(shape["state"])
    if kind == "attempt":
        # The text may end with an error, which may have these words, too.
        is_good = re.match(r"attempt \d+ (?:started|succeeded)\b", line["text"]) is not None
        return "running" if is_good else "failed"
    return _MARKS.get(kind, "dot")


def _drawing(shape: Shape, now: Instant) -> Markup | None:
    """Waiting, attempts and checks as stretches of time; None where nothing has a length yet. With an open attempt the
    picture ends now."""
    attempts = [one for one in shape["attempts"] if one["started_at"]]
    if not attempts or shape["fire_at"] is None:
        return None
    moments = [_at(shape[name]) for name in ("fire_at", "fired_at", "claimed_at", "finished_at") if shape[name]]
    moments += [_at(one[name]) for one in attempts for name in ("started_at", "finished_at") if one[name]]
    if (nominal := _at(shape["nominal"])) > min(moments) - (max(moments) - min(moments)) * 3:
        moments.append(nominal)
    is_open = attempts[-1]["finished_at"] is None and shape["finished_at"] is None
    moments += [now] if is_open else []
    low, high = min(moments), max(moments)
    if high - low < 1_000:
        return None

    def place(at: str | None) -> float:
        return 1.0 if at is None else (_at(at) - low) / (high - low)

    spans = []
    if shape["fired_at"] and attempts[-1]["started_at"] and _at(shape["fired_at"]) < _at(attempts[-1]["started_at"]):
        start, end = place(shape["fired_at"]), place(attempts[-1]["started_at"])
        spans.append(charts.Span("waits", start, end, "idle", "handed off, waiting for a worker"))
    for one in attempts:
        good = one["outcome"] in (None, "succeeded")
        meaning = "busy" if one["outcome"] is None else "ok" if good else "bad"
        detail = f"attempt {one['attempt']}: {one['outcome'] or 'running'}, {length_of(one['took'])}"
        row = "check" if one["stage"] == "check" else f"attempt {one['attempt']}"
        until = None if is_open and one is attempts[-1] else place(one["finished_at"])
        spans.append(charts.Span(row, place(one["started_at"]), until, meaning, detail))
    marks = [(place(shape["nominal"]), "due", "idle")] if _at(shape["nominal"]) >= low else []
    edges = [(0.0, clock(rfc3339(low))), (1.0, clock(rfc3339(high)))]
    return charts.timeline(spans, marks, edges, (low // 1_000, high // 1_000) if is_open else None)


def _at(text: str) -> Instant:
    return parse_rfc3339(text)
