"""Tokens, sessions, answers that were given, and workers that come over HTTP."""

from __future__ import annotations

import asyncio

import pytest

from foliot.domain.access import KEPT, UNDER_WAY, Answer, Asked, NewToken, Scope, hashed
from foliot.domain.audit import AuditFilter
from foliot.domain.elsewhere import Guest
from foliot.domain.instant import DAY, MINUTE, SECOND
from foliot.domain.store import JobCard, Store
from foliot.errors import Conflict, UnknownName
from foliot.store.verbs import access
from tests.contract.stage import START, Stage

SECRET = hashed("foliot_whatever")


def _wanted(name: str = "ci", **more: object) -> NewToken:
    given = {"hash": hashed(name), "scope": Scope.OPERATE, "tenant": None, "expires_at": None}
    return NewToken(name, **given | more)  # type: ignore[arg-type]


async def test_a_token_is_found_by_the_hash_of_its_text(stage: Stage) -> None:
    store = stage.store
    assert not await store.any_token()
    made = await store.add_token(_wanted(tenant="acme", expires_at=START + DAY), actor="ana", note="for the build")
    assert made == await store.token(hashed("ci"))
    assert (made.name, made.scope, made.tenant, made.made_by, made.made_at) == ("ci", "operate", "acme", "ana", START)
    assert made.is_good(START)
    assert not made.is_good(START + DAY)
    assert await store.token(hashed("another")) is None
    assert await store.any_token()
    [row] = await store.audit(AuditFilter(subject="token:ci"))
    assert row.row is not None
    assert (row.row.actor, row.row.action, row.row.note) == ("ana", "create_token", "for the build")


async def test_a_name_is_never_given_to_a_second_token(stage: Stage) -> None:
    await stage.store.add_token(_wanted(), actor="ana", note="why")
    await stage.store.revoke_token("ci", actor="ana", note="leaked")
    with pytest.raises(Conflict, match="token name 'ci'"):
        await stage.store.add_token(_wanted(hash=SECRET), actor="ana", note="why")


async def test_a_revoked_token_is_good_for_nothing_nor_are_its_sessions(stage: Stage) -> None:
    store = stage.store
    made = await store.add_token(_wanted(), actor="ana", note="why")
    await store.begin_session(SECRET, made.number, START + DAY)
    assert await store.session(SECRET) == made
    revoked = await store.revoke_token("ci", actor="ben", note="leaked")
    assert not revoked.is_good(START)
    assert await store.session(SECRET) is None
    again = await store.revoke_token("ci", actor="ben", note="to be sure")
    assert again == revoked
    assert len(await store.audit(AuditFilter(action="revoke_token"))) == 1
    with pytest.raises(UnknownName):
        await store.revoke_token("nobody", actor="ben", note="leaked")


async def test_a_session_ends_when_it_is_ended_or_its_time_has_come(stage: Stage) -> None:
    store = stage.store
    made = await store.add_token(_wanted(), actor="ana", note="why")
    for name in ("short", "long"):
        await store.begin_session(hashed(name), made.number, START + (MINUTE if name == "short" else DAY))
    stage.clock.advance(MINUTE)
    assert await store.session(hashed("short")) is None
    assert await store.session(hashed("long")) == made
    await store.end_session(hashed("long"))
    assert await store.session(hashed("long")) is None


async def test_with_one_session_too_many_the_oldest_of_that_token_ends(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "MOST_SESSIONS", 3)
    store = stage.store
    shared, other = [await store.add_token(_wanted(name), actor="ana", note="why") for name in ("shared", "other")]
    await store.begin_session(hashed("other"), other.number, START + DAY)
    for number in range(5):
        await store.begin_session(hashed(f"browser-{number}"), shared.number, START + DAY)
        stage.clock.advance(SECOND)
    left = [number for number in range(5) if await store.session(hashed(f"browser-{number}"))]
    assert left == [2, 3, 4]
    assert await store.session(hashed("other")) == other


async def test_the_last_use_of_a_token_is_written_once_a_minute(stage: Stage) -> None:
    store = stage.store
    made = await store.add_token(_wanted(), actor="ana", note="why")
    for _ in range(3):
        await store.use_token(made.number)
        stage.clock.advance(25 * SECOND)
    [seen] = await store.tokens()
    assert seen.used_at == START
    await store.use_token(made.number)
    [seen] = await store.tokens()
    assert seen.used_at == START + 75 * SECOND


async def test_a_request_is_done_once_and_answered_again(stage: Stage) -> None:
    store, answer = stage.store, Answer(201, {"etag": '"3"'}, b'{"id": "x"}')
    asked = await asyncio.gather(*(store.begin_request(7, "k", b"same") for _ in range(3)))
    assert sorted(one.standing for one in asked) == [Asked.NEW, Asked.UNDER_WAY, Asked.UNDER_WAY]
    await store.end_request(7, "k", answer)
    assert await store.begin_request(7, "k", b"same") == (Asked.ANSWERED, answer)
    assert (await store.begin_request(7, "k", b"else")).standing is Asked.OTHER
    assert (await store.begin_request(8, "k", b"same")).standing is Asked.NEW


async def test_one_credential_has_so_many_keys_and_no_more(stage: Stage) -> None:
    store = stage.store
    for key in "abc":
        assert (await store.begin_request(7, key, b"same", most=3)).standing is Asked.NEW
    assert (await store.begin_request(7, "d", b"same", most=3)).standing is Asked.TOO_MANY
    assert (await store.begin_request(7, "a", b"same", most=3)).standing is Asked.UNDER_WAY, "what it has, it keeps"
    assert (await store.begin_request(8, "d", b"same", most=3)).standing is Asked.NEW
    stage.clock.advance(2 * DAY)
    assert (await store.begin_request(7, "d", b"same", most=3)).standing is Asked.NEW


async def test_a_request_that_was_dropped_may_be_tried_again(stage: Stage) -> None:
    await stage.store.begin_request(7, "k", b"same")
    await stage.store.drop_request(7, "k")
    assert (await stage.store.begin_request(7, "k", b"same")).standing is Asked.NEW


async def test_a_request_that_nobody_answered_is_not_done_again_blindly(stage: Stage) -> None:
    await stage.store.begin_request(7, "k", b"same")
    stage.clock.advance(UNDER_WAY)
    assert (await stage.store.begin_request(7, "k", b"same")).standing is Asked.UNKNOWN


async def test_answers_are_kept_for_a_day(stage: Stage) -> None:
    await stage.store.begin_request(7, "k", b"same")
    await stage.store.end_request(7, "k", Answer(200, {}, b""))
    stage.clock.advance(KEPT)
    assert (await stage.store.begin_request(7, "k", b"same")).standing is Asked.ANSWERED
    stage.clock.advance(1)
    assert (await stage.store.begin_request(7, "k", b"same")).standing is Asked.NEW


GUEST = Guest("laptop", 7, SECRET, ("gpu",), ("resize",), 3, ("cuda",), "1.2")


async def test_a_worker_elsewhere_is_one_of_the_fleet_and_its_process_is_not_looked_for(store: Store) -> None:
    entered = await store.register_guest(GUEST, [JobCard("resize", b"{}", "gpu")])
    found = await store.guest(entered.number)
    assert found is not None
    assert (found.credential, found.secret, found.queues, found.slots, found.labels) == (
        7,
        SECRET,
        ("gpu",),
        3,
        ("cuda",),
    )
    assert "resize" in found.jobs
    [seen] = await store.instances()
    assert (seen.number, seen.role, seen.host) == (entered.number, "worker", "http:laptop")
    await store.retire(entered.number)
    assert await store.guest(entered.number) is None


async def test_what_code_says_of_a_job_outlives_what_a_guest_says(store: Store) -> None:
    card = JobCard("resize", b'{"attempts": 9}', "gpu", owner="ana")
    await store.register("worker", version="1", queues=["gpu"], slots=1, jobs=[card])
    await store.register_guest(GUEST, [JobCard("resize", b"{}", "default")])
    assert (await store.jobs())["resize"] == card


async def test_what_a_worker_has_claimed_is_known_though_it_was_just_heard_of(stage: Stage) -> None:
    kept = await stage.promise("picture", job="resize", queue="gpu")
    await stage.fire()
    entered = await stage.store.register_guest(GUEST, [JobCard("resize", b"{}", "gpu")])
    [claimed] = await stage.store.claim(entered.number, ["gpu"], ["resize"], 5)
    [held] = await stage.store.attempts_of(entered.number)
    assert (held.number, held.name, held.token, held.attempt) == (kept.number, "picture#1", claimed.token, 1)
    assert await stage.store.attempts_of(entered.number + 1) == []


async def test_a_run_that_is_due_and_not_handed_off_is_told(stage: Stage) -> None:
    await stage.promise("picture", job="resize")
    seen = await stage.store.ticking()
    assert (seen.overdue_since, seen.held) == (None, 0)
    stage.clock.advance(MINUTE)
    assert (await stage.store.ticking()).overdue_since == START
    await stage.fire()
    seen = await stage.store.ticking()
    assert seen.overdue_since is None
    assert seen.held == seen.shards > 0
