"""What opens, what stays and what resolves: the pure decision about alerts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from foliot.domain.alerts import (
    KINDS,
    Alert,
    Brewing,
    Finding,
    Kind,
    Rules,
    Seen,
    Severity,
    brewing_from,
    brewing_to,
    silence,
    weigh,
)
from foliot.domain.instant import MINUTE, SECOND, Instant

NOW: Instant = 1_000 * MINUTE
QUEUE = Finding(Kind.SATURATED, "queue:mail", "all slots are busy")
"""Of a kind with a grace of two minutes, and a minute to settle."""


def alert_of(finding: Finding, number: int = 1, opened_at: Instant = NOW) -> Alert:
    return Alert(
        number,
        finding.kind,
        finding.subject,
        Severity.WARNING,
        finding.cause,
        "look",
        opened_at,
        opened_at,
        finding.count,
    )


def test_an_alert_opens_when_its_grace_has_passed_and_not_before() -> None:
    first = weigh([], [Seen([QUEUE])], Brewing(), Rules(), NOW)
    assert (first.opens, first.brewing.since) == ([], {QUEUE.key: NOW})
    almost = weigh([], [Seen([QUEUE])], first.brewing, Rules(), NOW + 2 * MINUTE - 1)
    assert almost.opens == []
    assert weigh([], [Seen([QUEUE])], almost.brewing, Rules(), NOW + 2 * MINUTE).opens == [QUEUE]


def test_what_the_facts_know_the_beginning_of_has_waited_already() -> None:
    known = replace(QUEUE, since=NOW - 2 * MINUTE)
    assert weigh([], [Seen([known])], Brewing(), Rules(), NOW).opens == [known]


def test_a_grace_can_be_chosen_and_a_kind_can_be_silenced() -> None:
    assert weigh([], [Seen([QUEUE])], Brewing(), Rules(graces={"saturated": 0}), NOW).opens == [QUEUE]
    silent = Rules(frozenset({"saturated"}), {"saturated": 0})
    assert weigh([], [Seen([QUEUE])], Brewing(), silent, NOW).opens == []
    told = weigh([alert_of(QUEUE)], [Seen([QUEUE])], Brewing(gone={QUEUE.key: NOW}), silent, NOW + MINUTE)
    assert told.resolves == [1]


def test_what_brews_and_is_not_found_again_is_forgotten_in_the_end() -> None:
    first = weigh([], [Seen([QUEUE])], Brewing(), Rules(), NOW)
    kept = weigh([], [], first.brewing, Rules(), NOW + 30 * MINUTE)
    assert kept.brewing.since == {QUEUE.key: NOW}  # nobody looked
    assert weigh([], [], kept.brewing, Rules(), NOW + 60 * MINUTE).brewing.since == {}


def test_what_flaps_is_one_alert() -> None:
    alert, brewing = alert_of(QUEUE), Brewing()
    for second in range(0, 600, 30):  # half a minute on, half a minute off
        seen = Seen([QUEUE] if second % 60 else [], judged=[Kind.SATURATED])
        verdict = weigh([alert], [seen], brewing, Rules(), NOW + second * SECOND)
        assert (verdict.opens, verdict.resolves) == ([], [])
        brewing = verdict.brewing


def test_an_alert_resolves_once_its_cause_was_gone_for_long_enough() -> None:
    gone = Seen(judged=[Kind.SATURATED])
    first = weigh([alert_of(QUEUE)], [gone], Brewing(), Rules(), NOW)
    assert first.resolves == []
    assert weigh([alert_of(QUEUE)], [gone], first.brewing, Rules(), NOW + MINUTE).resolves == [1]


def test_what_nobody_looked_at_stays_as_it_is() -> None:
    brewing = Brewing(since={("late", "job:x"): NOW - SECOND})
    verdict = weigh([alert_of(QUEUE)], [Seen(judged=[Kind.LATE], cured=[])], Brewing(), Rules(), NOW)
    assert (verdict.resolves, verdict.brewing) == ([], Brewing())
    assert weigh([], [Seen()], brewing, Rules(), NOW).brewing == brewing


def test_words_that_change_are_written_now_and_then() -> None:
    worse = replace(QUEUE, cause="all slots are busy, still", count=9)
    assert weigh([alert_of(QUEUE)], [Seen([worse])], Brewing(), Rules(), NOW + SECOND).changes == []
    assert weigh([alert_of(QUEUE)], [Seen([worse])], Brewing(), Rules(), NOW + MINUTE).changes == [(1, worse)]
    assert weigh([alert_of(QUEUE)], [Seen([QUEUE])], Brewing(), Rules(), NOW + MINUTE).changes == []


looks = st.lists(st.tuples(st.booleans(), st.integers(1, 300)), max_size=40)


@given(st.sampled_from(list(Kind)), looks)
def test_whatever_is_seen_an_alert_opens_and_resolves_in_turn_and_only_for_a_cause(
    kind: Kind, looks: list[tuple[bool, int]]
) -> None:
    finding = Finding(kind, "job:x", "so it is")
    now, brewing, open_one = NOW, Brewing(), False
    held_since: Instant | None = None
    for is_so, passed in looks:
        now += passed * SECOND
        held_since = (held_since if held_since is not None else now) if is_so else None
        known = [alert_of(finding)] if open_one else []
        verdict = weigh(known, [Seen([finding] if is_so else [], judged=[kind])], brewing, Rules(), now)
        assert bool(verdict.opens) <= (is_so and not open_one)
        assert bool(verdict.resolves) <= (not is_so and open_one)
        if not open_one and held_since is not None:
            assert bool(verdict.opens) == (now - held_since >= KINDS[kind].grace)
        open_one = (open_one or bool(verdict.opens)) and not verdict.resolves
        brewing = brewing_from(brewing_to(verdict.brewing) and _plain(verdict.brewing))


def _plain(brewing: Brewing) -> dict[str, list[list[object]]]:
    """As JSON gives it back."""
    return {name: [list(row) for row in rows] for name, rows in brewing_to(brewing).items()}


def test_whoever_reads_can_tell_that_nobody_watches() -> None:
    assert silence(None, NOW) is None
    assert silence(NOW - MINUTE, NOW) is None
    assert silence(NOW + MINUTE, NOW) is None  # by a clock that was set back since
    told = silence(NOW - 5 * MINUTE, NOW)
    assert told is not None
    assert "no watch round for 5 min" in told.cause


def test_every_kind_says_what_it_means_when_it_opens_when_it_resolves_and_what_to_do() -> None:
    assert list(KINDS) == list(Kind)
    for traits in KINDS.values():
        assert all((traits.means, traits.opens, traits.resolves, traits.act))
