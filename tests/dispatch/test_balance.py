"""Sharing shards: a fleet in a few lines, whose schedulers come, die, stall and look in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from foliot.dispatch.balance import Balance, Plan, dealt, shares
from foliot.domain.instant import MILLISECOND, MINUTE, SECOND, Instant
from foliot.domain.store import Shard, Standing
from tests.tiers import by_tier

TTL = 5 * SECOND


@dataclass
class Member:
    number: int
    balance: Balance
    beat_at: Instant
    leases: dict[int, Instant] = field(default_factory=dict)
    """What it believes to hold, and until when."""
    plan: Plan | None = None
    is_waiting: bool = False


class Fleet:
    """The store's part: who owns what until when. Everything else is `Balance`."""

    def __init__(self, shards: int, members: int = 0) -> None:
        self.now: Instant = 0
        self.owners: dict[int, tuple[int, Instant]] = {}
        self.shard_count = shards
        self.members: dict[int, Member] = {}
        self.beats: dict[int, Instant] = {}
        self.born = 0
        self.taken = self.released = 0
        for _ in range(members):
            self.join()

    def join(self) -> Member:
        self.born += 1
        member = self.members[self.born] = Member(self.born, Balance(self.born), self.now)
        self.beats[member.number] = self.now
        return member

    def die(self, number: int) -> None:
        """It vanishes; its leases and its last beat stay as they are."""
        del self.members[number]

    def leave(self, number: int) -> None:
        """It ends in order."""
        for shard in self.members.pop(number).leases:
            if self.owner(shard) == number:
                del self.owners[shard]
        del self.beats[number]

    def owner(self, shard: int) -> int | None:
        owner, until = self.owners.get(shard, (None, 0))
        return owner if until > self.now else None

    def look(self, member: Member) -> None:
        """Renews, and plans by what it sees."""
        self.beats[member.number] = self.now
        for shard in list(member.leases):
            if self.owners.get(shard, (None, 0))[0] == member.number:
                self.owners[shard] = (member.number, self.now + TTL)
                member.leases[shard] = self.now + TTL
            else:
                del member.leases[shard]
        standing = [Shard(shard, self.owner(shard)) for shard in range(self.shard_count)]
        living = sorted(number for number, beat in self.beats.items() if beat > self.now - TTL)
        member.plan = member.balance.plan(Standing(standing, living), self.now)
        member.is_waiting = member.plan.is_waiting

    def act(self, member: Member) -> None:
        """Does what it planned, perhaps some time ago."""
        plan, member.plan = member.plan, None
        if plan is None:
            return
        for shard in plan.release:
            if member.leases.pop(shard, None) is not None and self.owner(shard) == member.number:
                del self.owners[shard]
                self.released += 1
        for shard in plan.take:
            if self.owner(shard) is None:
                self.owners[shard] = (member.number, self.now + TTL)
                member.leases[shard] = self.now + TTL
                self.taken += 1

    def round(self, order: Sequence[int] | None = None) -> None:
        """A second, in which everybody looks once and acts at once; whoever waits for its share looks more often."""
        for _ in range(9):
            self.now += SECOND // 10
            for member in self.members.values():
                if member.is_waiting:
                    self.look(member)
                    self.act(member)
        self.now += SECOND // 10
        for number in order or list(self.members):
            self.look(self.members[number])
            self.act(self.members[number])

    def counts(self) -> list[int]:
        held = Counter(self.owner(shard) for shard in range(self.shard_count))
        return sorted(held[number] for number in self.members)

    def is_balanced(self) -> bool:
        counts = self.counts()
        return sum(counts) == self.shard_count and counts[-1] - counts[0] <= 1


def settled(shards: int, members: int) -> Fleet:
    fleet = Fleet(shards, members)
    for _ in range(3):
        fleet.round()
    assert fleet.is_balanced()
    return fleet


# Shares


@given(some.dictionaries(some.integers(1, 99), some.integers(0, 20), min_size=1, max_size=20), some.integers(1, 64))
def test_shares_differ_by_one_at_most_and_are_all_there_is(held: dict[int, int], shard_count: int) -> None:
    due = shares(held, shard_count)
    assert sum(due.values()) == shard_count
    assert max(due.values()) - min(due.values()) <= 1


@given(some.lists(some.integers(0, 8), min_size=1, max_size=8), some.integers(0, 8))
def test_every_free_shard_is_dealt_to_one_scheduler(counts: list[int], free: int) -> None:
    held = dict(enumerate(counts))
    due = shares(held, sum(counts) + free)
    hands = dealt(list(range(free)), held, due)
    assert sorted(shard for hand in hands.values() for shard in hand) == list(range(free))


# Coming and going


def test_one_scheduler_takes_everything_at_its_first_look() -> None:
    fleet = Fleet(16, 1)
    fleet.round()
    assert fleet.counts() == [16]


@pytest.mark.parametrize("members", range(1, 20))
def test_a_fleet_that_starts_together_shares_evenly_and_then_nothing_moves(members: int) -> None:
    fleet = settled(16, members)
    taken = fleet.taken
    for _ in range(200):
        fleet.round()
    assert (fleet.taken, fleet.released) == (taken, fleet.released)
    assert fleet.is_balanced()


@pytest.mark.parametrize("members", range(1, 16))
def test_whoever_joins_is_given_its_share_and_nothing_else_moves(members: int) -> None:
    fleet = settled(16, members)
    taken = fleet.taken
    fleet.released = 0
    fleet.join()
    for _ in range(3):
        fleet.round()
    assert fleet.is_balanced()
    assert fleet.released == fleet.taken - taken == 16 // (members + 1)


@pytest.mark.parametrize("members", range(2, 16))
def test_the_shards_of_one_that_leaves_are_taken_in_the_next_round_and_nothing_else_moves(members: int) -> None:
    fleet = settled(16, members)
    fleet.released = 0
    fleet.leave(1)
    fleet.round()
    assert fleet.is_balanced()
    assert fleet.released == 0


@pytest.mark.parametrize("members", range(2, 16))
def test_the_shards_of_one_that_died_are_taken_within_two_rounds_of_their_leases_end(members: int) -> None:
    fleet = settled(16, members)
    fleet.released = 0
    fleet.die(1)
    for _ in range(TTL // SECOND + 1):
        fleet.round()
    assert sum(fleet.counts()) == 16
    fleet.round()
    assert fleet.is_balanced()
    assert fleet.released == 0


def test_who_waits_for_a_share_says_so_and_who_has_it_does_not() -> None:
    fleet = settled(16, 1)
    [first] = fleet.members.values()
    second = fleet.join()
    fleet.look(second)
    assert second.plan == Plan([], [], is_waiting=True)
    fleet.look(first)
    assert first.plan == Plan([], [8, 9, 10, 11, 12, 13, 14, 15], is_waiting=False)
    fleet.act(first)
    fleet.look(second)
    assert second.plan == Plan([8, 9, 10, 11, 12, 13, 14, 15], [], is_waiting=False)


def test_one_shard_stays_where_it_is_however_many_would_like_it() -> None:
    fleet = settled(1, 1)
    for _ in range(5):
        fleet.join()
        fleet.round()
    assert (fleet.owner(0), fleet.released) == (1, 0)
    assert not any(member.balance.plan(Standing([Shard(0, 1)], [1, 2, 3]), 0).is_waiting for member in [fleet.join()])


def test_one_that_lives_but_takes_nothing_does_not_make_shards_go_round_in_circles() -> None:
    fleet = settled(16, 2)
    idle = fleet.join()
    del fleet.members[idle.number]
    for _ in range(3 * 60):
        fleet.beats[idle.number] = fleet.now + SECOND
        fleet.round()
    assert sum(fleet.counts()) == 16
    # Its five shards were offered, and taken back, about once a minute.
    assert fleet.released <= 3 * 5 + 5


def test_one_whom_the_store_does_not_count_takes_no_part() -> None:
    free = Standing([Shard(0, None), Shard(1, 7)], [8])
    assert Balance(7).plan(free, 0) == Plan([], [], is_waiting=False)


def test_a_clock_that_goes_back_does_not_leave_shards_lying() -> None:
    standing = Standing([Shard(shard, None if shard else 1) for shard in range(2)], [1, 2])
    balance = Balance(1)
    assert balance.plan(standing, MINUTE).take == []
    assert balance.plan(standing, 0).take == [1]


# Everything

events = some.lists(
    some.one_of(
        some.just(("join", 0)),
        some.tuples(
            some.sampled_from(["die", "leave", "look", "look", "act", "act", "both", "both"]), some.integers(0, 9)
        ),
        some.tuples(some.just("wait"), some.sampled_from([1, 90, 400, 1_000, 2_500, 6_000])),
    ),
    max_size=60,
)


@settings(max_examples=by_tier(25, 150, 1_000))
@given(shards=some.sampled_from([1, 2, 3, 16]), events=events, order=some.randoms(use_true_random=False))
def test_whatever_happened_a_fleet_that_is_left_alone_shares_evenly_and_comes_to_rest(
    shards: int, events: list[tuple[str, int]], order: object
) -> None:
    fleet = Fleet(shards, 1)
    for kind, which in events:
        member = list(fleet.members.values())[which % len(fleet.members)] if fleet.members else fleet.join()
        match kind:
            case "join" if len(fleet.members) < 8:
                fleet.join()
            case "die":
                fleet.die(member.number)
            case "leave":
                fleet.leave(member.number)
            case "look":
                fleet.look(member)
            case "act":
                fleet.act(member)
            case "both":
                fleet.look(member)
                fleet.act(member)
            case "wait":
                fleet.now += which * MILLISECOND
        for shard in range(shards):
            believers = [one for one in fleet.members.values() if one.leases.get(shard, 0) > fleet.now]
            assert len(believers) <= 1
    if not fleet.members:
        fleet.join()
    fleet.taken = fleet.released = 0
    lying: Counter[int] = Counter()
    for passed in range(80):
        numbers = list(fleet.members)
        order.shuffle(numbers)  # type: ignore[attr-defined]
        fleet.round(numbers)
        # Leases of the dead end within five seconds. Whatever is free then, or given up, is taken within three looks.
        for shard in range(shards):
            lying[shard] = lying[shard] + 1 if passed > 5 and fleet.owner(shard) is None else 0
        assert max(lying.values()) < 3
    assert fleet.is_balanced()
    assert fleet.taken <= 3 * shards
    at_rest = (fleet.taken, fleet.released)
    for _ in range(70):
        fleet.round()
    assert (fleet.taken, fleet.released) == at_rest
