"""Our ticks against those of other engines, for random lines, zones and starts. What differs must have a known name.

`make test` asks some hundred questions, always the same ones; `make test-full` thousands, `make torture` a hundred
thousand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from foliot.errors import InvalidRule
from foliot.timing.dst import PRESETS
from tests.tiers import FULL, TORTURE, by_tier
from tests.timing.engines import (
    Answer,
    Case,
    ask_croniter,
    ask_cronsim,
    ask_systemd,
    is_for_systemd,
    is_the_same_on_this_host,
    local,
    ours,
)
from tests.timing.oracles import DAY, FIRST, HOUR, LAST, chosen_zones, near, random_line, shifts
from tests.timing.quirks import CRONITER, CRONSIM, SYSTEMD, Quirk, explain

Ask = Callable[[Case], Answer]

ENGINES: dict[str, tuple[Ask, dict[str, Quirk], str]] = {
    # The last is what it cannot read, or reads in a syntax of its own.
    "cronsim": (ask_cronsim, CRONSIM, r"L-|\dW"),
    "croniter": (ask_croniter, CRONITER, r"L-|W|\dL"),
}


def cases(seed: int, allowed: list[str]) -> Iterator[Case]:
    """Questions without end: most are asked close to where clocks are changed, the others anywhere."""
    random = Random(seed)
    changing = [zone for zone in allowed if shifts(zone)]
    while True:
        if random.random() < 0.6:
            zone = random.choice(changing)
            shift = random.choice(shifts(zone))
            yield Case(random_line(random, near(shift)), zone, shift.at + random.randint(-2 * DAY, 2 * HOUR))
        else:
            yield Case(random_line(random), random.choice(allowed), random.randint(FIRST, LAST))


def compare(ask: Ask, quirks: dict[str, Quirk], asked: Iterator[Case], count: int) -> None:
    """Asks both; a difference that no quirks explain fails, and so do explanations that explain too much."""
    known: Counter[str] = Counter()
    unexplained = []
    for case in islice(asked, count):
        try:
            expected = ours(case)
        except InvalidRule:  # such as `31 2`: no engine has anything to say
            continue
        theirs = ask(case)
        names = () if theirs == expected else explain(case, theirs, quirks)
        known.update(names)
        if theirs != expected and not names:
            unexplained.append(f"{case}\n  ours   {shown(case, expected)}\n  theirs {shown(case, theirs)}")
    assert not unexplained, f"{len(unexplained)} differences have no name yet:\n" + "\n".join(unexplained[:5])
    assert known.total() < count / 6, f"differences are meant to be rare: {known}"


def shown(case: Case, ticks: Answer) -> str:
    return ", ".join(str(local(case.zone, tick)) for tick in ticks) or "nothing"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", by_tier([2026], [2026], list(range(20))))
def test_other_engines_answer_as_we_do_or_we_know_why(engine: str, seed: int) -> None:
    ask, quirks, unreadable = ENGINES[engine]
    asked = (case for case in cases(seed, chosen_zones()) if not re.search(unreadable, case.line))
    compare(ask, quirks, asked, by_tier(600, 3_000, 5_000))


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("seed", by_tier([2026], [2026], list(range(10))))
def test_systemd_answers_as_our_preset_does_or_we_know_why(seed: int) -> None:
    allowed = [zone for zone in chosen_zones() if is_the_same_on_this_host(zone)]
    if not allowed:
        pytest.skip("this host has no tables of zones for systemd to read")
    readable = (
        case for case in cases(seed, allowed) if not re.search("[LW#]", case.line) and is_for_systemd(case.line)
    )
    asked = (as_systemd(case) for case in readable)
    compare(ask_systemd, SYSTEMD, asked, by_tier(40, 120, 250))


def test_the_host_has_nearly_all_zones_as_we_have_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that it has otherwise are left out above; its tables may be older, or newer, than ours."""
    others = [zone for zone in chosen_zones() if not is_the_same_on_this_host(zone)]
    if FULL:
        with capsys.disabled():
            print(f"\nnot compared with systemd, whose tables of the host differ: {', '.join(others) or 'none'}")
    assert len(others) < 0.1 * len(chosen_zones()) or len(others) == len(chosen_zones())


def as_systemd(case: Case) -> Case:
    policy = PRESETS["systemd"]
    return replace(case, gap=policy.gap, fold=policy.fold, interval_like=policy.interval_like)


@pytest.mark.parametrize("name", [*CRONSIM, *CRONITER])
def test_a_known_quirk_is_still_there(name: str) -> None:
    """When this fails, another engine was mended: remove the entry, and nothing hides behind its name."""
    ask, quirks, _ = ENGINES["cronsim" if name in CRONSIM else "croniter"]
    case = quirks[name].example
    assert explain(case, ask(case), quirks) == (name,), f"{quirks[name].reason}: no more"


@pytest.mark.needs("systemd-analyze")
@pytest.mark.skipif(not TORTURE, reason="another host has another systemd, which may be mended")
@pytest.mark.parametrize("name", SYSTEMD)
def test_a_known_quirk_of_systemd_is_still_there(name: str) -> None:
    case = as_systemd(SYSTEMD[name].example)
    assert explain(case, ask_systemd(case), SYSTEMD) == (name,), f"{SYSTEMD[name].reason}: no more"
