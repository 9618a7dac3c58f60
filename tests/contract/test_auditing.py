"""The operators' log: found by filters, sealed in order, and refused to whoever would change it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import apsw
import asyncpg
import pytest

from foliot.domain.audit import GENESIS, Anchor, AuditFilter, AuditKeys, ChainCheck, SealedRow, Signed, sealed
from foliot.domain.gates import Gate
from foliot.domain.instant import MINUTE, rfc3339
from foliot.domain.replay import Fate
from foliot.domain.run import OnConflict, Promise
from foliot.domain.store import Store
from foliot.errors import Conflict, Locked
from tests.contract.stage import START, Stage, declared

ANY = AuditFilter()


async def _limited(stage: Stage, *names: str, actor: str = "ana", note: str = "why") -> None:
    """A minute apart, so many rows of the log."""
    for name in names:
        await stage.store.set_limit(Gate(name, most=1, note=note), actor=actor)
        stage.clock.advance(MINUTE)


async def _found(stage: Stage, **filters: object) -> list[str]:
    rows = await stage.store.audit(AuditFilter(**filters))  # type: ignore[arg-type]
    return [one.row.subject for one in rows if one.row]


async def _by_hand(store: Store, statement: str) -> None:
    """What somebody does who has the tables in his hands, and our triggers in the way."""
    if store.is_server:
        connection = await asyncpg.connect(store.url)
        try:
            await connection.execute(statement.replace("INTO ", "INTO foliot.").replace("UPDATE ", "UPDATE foliot."))
        finally:
            await connection.close()
        return
    other = apsw.Connection(store.file) if store.file else store._reader  # type: ignore[attr-defined]
    other.execute(statement.replace("foliot.", ""))
    if store.file:
        other.close()


async def _undisturbed(store: Store, statement: str) -> None:
    """The same, by somebody who has first taken the triggers away."""
    if store.is_server:
        await _by_hand(store, f"SET session_replication_role = replica; {statement}")
        return
    tables = "audit_stays audit_remains audit_is_kept audit_added seal_stays seal_remains seal_is_kept".split()
    await _by_hand(store, "; ".join(f"DROP TRIGGER IF EXISTS {name}" for name in tables) + f"; {statement}")


async def _checked(store: Store, anchors: Sequence[Anchor] = ()) -> str | None:
    check = ChainCheck(anchors)
    check.follow(await store.seals(0, 1_000))
    check.end()
    return check.problem and f"{check.problem.breach} at {check.problem.position}"


async def test_rows_are_found_by_filters_newest_first_and_page_by_page(stage: Stage) -> None:
    await _limited(stage, "job:a", "job:b")
    await _limited(stage, "job:c", actor="bob", note="DIE Übung beginnt")
    await stage.store.drop_limit("job:a", actor="bob", note="over")
    assert await _found(stage) == ["job:a", "job:c", "job:b", "job:a"]
    assert await _found(stage, actor="ana") == ["job:b", "job:a"]
    assert await _found(stage, action="unlimit") == ["job:a"]
    assert await _found(stage, subject="job:a") == ["job:a", "job:a"]
    assert await _found(stage, subject="job:a", actor="ana") == ["job:a"]
    assert await _found(stage, since=START + MINUTE, until=START + 3 * MINUTE) == ["job:c", "job:b"]
    assert await _found(stage, text="die Übung") == ["job:c"]
    assert await _found(stage, text="B:A") == ["job:a", "job:a"], "also in the subject"
    first = await stage.store.audit(ANY, limit=3)
    rest = await stage.store.audit(ANY, before=first[-1].number, limit=3)
    assert [one.row.subject for one in rest if one.row] == ["job:a"]


async def test_what_a_person_promises_and_moves_is_written_down_and_what_code_does_is_not(stage: Stage) -> None:
    store, due = stage.store, stage.now + MINUTE
    await stage.promise("code", after=MINUTE)
    await store.move("code", None, due + MINUTE)
    wanted = [Promise("job", b"{}", due, key="a"), Promise("job", b"{}", due), Promise("job", b"{}", due, key="code")]
    first, second, kept = await store.promise_as(wanted, actor="ana", note="asked for")
    assert (first.id, kept.outcome) == ("a#1", "kept")
    again = Promise("job", b"{}", due, key="a", on_conflict=OnConflict.REPLACE)
    await store.promise_as([again], actor="ana", note="later")
    await store.move("a", None, due + MINUTE, actor="ben", note="a day off")
    await store.move("a", None, due, actor="ben")
    refused = Promise("job", b"{}", due, key="a", on_conflict=OnConflict.ERROR)
    with pytest.raises(Conflict):
        await store.promise_as([Promise("job", b"{}", due), refused], actor="eve", note="all or none")
    found = [one.row for one in await store.audit(ANY) if one.row]
    assert [(row.actor, row.action, row.subject, row.note) for row in reversed(found)] == [
        ("ana", "promise", "a#1", "asked for"),
        ("ana", "promise", second.id, "asked for"),
        ("ana", "promise", "a#1", "later (replaced)"),
        ("ben", "move", "a#1", f"to {rfc3339(due + MINUTE)}: a day off"),
        ("ben", "move", "a#1", f"to {rfc3339(due)}"),
    ]
    stage.clock.set(due)
    await stage.fire()
    assert {run.id for run in await stage.claim()} == {"a#1", second.id}


async def test_rows_are_sealed_in_order_each_upon_the_one_before(stage: Stage) -> None:
    await _limited(stage, "job:a", "job:b", "job:c")
    standing = await stage.store.sealing()
    assert (standing.head.position, standing.head.hash, standing.waiting, standing.since) == (0, GENESIS, 3, START)
    assert await stage.store.seal(2) == 2
    assert await stage.store.seal() == 1
    assert await stage.store.seal() == 0
    chain = await stage.store.seals(0, 10)
    assert [one.row.subject for one in chain if one.row] == ["job:a", "job:b", "job:c"]
    assert [one.seal.position for one in chain if one.seal] == [1, 2, 3]
    assert chain[1].row is not None
    assert chain[0].seal is not None
    assert sealed(chain[0].seal, chain[1].row) == chain[1].seal
    assert await stage.store.seals(2, 10) == chain[2:]
    assert (await stage.store.sealing()).head == chain[2].seal
    assert await stage.store.audit(ANY) == list(reversed(chain)), "each with its seal"
    assert await _checked(stage.store) is None


async def test_many_who_seal_at_once_make_one_chain(stage: Stage) -> None:
    await _limited(stage, *(f"job:{n}" for n in range(20)))
    done = await asyncio.gather(*(stage.store.seal(3) for _ in range(8)))
    while count := await stage.store.seal(3):
        done.append(count)
    assert sum(done) == 20
    assert await _checked(stage.store) is None
    assert await stage.store.unsealed(0, 100) == ([], (await stage.store.audit(ANY))[0].number)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET note = 'nothing'",
        "DELETE FROM foliot.audit",
        "UPDATE seal SET hash = ''",
        "DELETE FROM foliot.seal",
    ],
)
async def test_whoever_would_change_the_log_is_refused(stage: Stage, statement: str) -> None:
    await _limited(stage, "job:a")
    await stage.store.seal()
    with pytest.raises((apsw.ConstraintError, asyncpg.RaiseError), match="never changed"):
        await _by_hand(stage.store, statement)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE audit SET note = 'nothing' WHERE subject = 'job:b'", "edited at 2"),
        ("UPDATE audit SET at = at + 1 WHERE subject = 'job:c'", "edited at 3"),
        ("DELETE FROM foliot.audit WHERE subject = 'job:b'", "missing at 2"),
        ("DELETE FROM foliot.seal WHERE position = 2", "broken at 2"),
        (f"UPDATE seal SET hash = '{GENESIS}' WHERE position = 1", "forged at 1"),
    ],
)
async def test_whoever_changed_it_all_the_same_is_found_out(stage: Stage, statement: str, told: str) -> None:
    await _limited(stage, "job:a", "job:b", "job:c")
    await stage.store.seal()
    await _undisturbed(stage.store, statement)
    assert await _checked(stage.store) == told


async def test_rows_without_a_seal_that_wait_for_none_are_found_and_those_that_vanished_before_theirs(
    stage: Stage,
) -> None:
    await _limited(stage, "job:a", "job:b")
    await stage.store.seal()
    await _limited(stage, "job:c")
    await _undisturbed(
        stage.store,
        "INSERT INTO audit (at, actor, action, subject, note) VALUES (1, 'eve', 'limit', 'job:z', 'who, me?'); "
        "DELETE FROM foliot.audit WHERE subject = 'job:c'",
    )
    found, last = await stage.store.unsealed(0, 1_000)
    assert [(one.seals, one.at) for one in found] == [(0, 1)]
    gone, end = await stage.store.unsealed(last or 0, 1_000)
    assert [(one.seals, one.at) for one in gone] == [(0, None)]
    assert end is None


KEYS, OTHERS = AuditKeys([b"k" * 32]), AuditKeys([b"x" * 32])
FORGED = "INSERT INTO audit (at, actor, action, subject, note) VALUES (1, 'ana', 'limit', 'job:z', 'as agreed')"
COPIED = (
    "INSERT INTO audit (at, actor, action, subject, note, signature) "
    "SELECT at, actor, action, subject, note, signature FROM foliot.audit WHERE subject = 'job:a'"
)
NOTED = "INSERT INTO unsealed SELECT max(n) FROM foliot.audit"


@pytest.mark.parametrize("anchored", [False, True], ids=["no-anchor", "anchor"])
@pytest.mark.parametrize(
    "forge",
    [
        pytest.param((_by_hand, FORGED), id="inserted"),
        pytest.param((_undisturbed, f"{FORGED}; {NOTED}"), id="noted-by-hand"),
        pytest.param((_by_hand, COPIED), id="copied"),
    ],
)
async def test_a_row_that_was_inserted_without_the_key_is_found(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, forge: Any, anchored: bool
) -> None:
    monkeypatch.setattr(stage.store, "audit_keys", KEYS)
    await _limited(stage, "job:a")
    await stage.store.seal()
    [first] = await stage.store.seals(0, 10)
    assert first.seal is not None
    anchors = [Anchor(stage.now, *first.seal)] if anchored else []
    by_whom, statement = forge
    await by_whom(stage.store, statement)
    assert await stage.store.seal() == 1
    await _limited(stage, "job:b")
    await stage.store.seal()
    assert await _checked(stage.store, anchors) == "unsigned at 2"
    [event] = await stage.events("unsigned_audit")
    forged = (await stage.store.seals(0, 10))[1]
    assert event.subject == f"audit:{forged.number}"
    monkeypatch.setattr(stage.store, "audit_keys", None)
    assert await _checked(stage.store, anchors) is None, "only the key tells"


async def test_removing_all_signatures_does_not_hide_a_row_that_was_inserted_without_the_key(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.store, "audit_keys", KEYS)
    await _limited(stage, "job:a", "job:b")
    await stage.store.seal()
    await _undisturbed(stage.store, f"UPDATE audit SET signature = NULL; {FORGED}; {NOTED}")
    assert await stage.store.seal() == 1
    assert await _checked(stage.store) == "broken at 1"


async def test_a_log_that_was_rewritten_without_signatures_is_found_by_a_process_with_the_key(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.store, "audit_keys", KEYS)
    await _limited(stage, "job:a", "job:b")
    await stage.store.seal()
    anchor = Anchor(stage.now, *(await stage.store.sealing()).head)
    await _undisturbed(
        stage.store,
        f"UPDATE audit SET signature = NULL; DELETE FROM foliot.seal; {FORGED}; "
        "DELETE FROM foliot.unsealed; INSERT INTO unsealed SELECT n FROM foliot.audit",
    )
    assert await stage.store.seal() == 3
    assert await _checked(stage.store, [anchor]) == "anchor at 2"
    assert await _checked(stage.store) == "unsigned at None"
    monkeypatch.setattr(stage.store, "audit_keys", None)
    assert await _checked(stage.store) is None, "without a key and an anchor, nothing shows it"


async def test_rows_are_signed_as_they_are_stored(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage.store, "audit_keys", KEYS)
    await _limited(stage, "job:a", note="a NUL \0 and \N{SNOWMAN}")
    many = [Promise("job", b"{}", stage.now + MINUTE) for _ in range(3)]
    await stage.store.promise_as(many, actor="ana", note="asked for")
    found = await stage.store.audit(ANY)
    assert [one.signed for one in found] == [Signed.YES] * 4
    await stage.store.seal()
    assert await _checked(stage.store) is None


async def test_schedules_that_are_applied_and_runs_that_are_replayed_leave_signed_rows(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.store, "audit_keys", KEYS)
    await stage.apply(declared("daily", START + MINUTE))
    await stage.apply(declared("daily", START + MINUTE, fingerprint="v2"))
    dead = await stage.running("a")
    await stage.finish(stage.died(dead))
    again: dict[str, Any] = {"due_at": stage.now, "every": 0, "override": False, "actor": "ana", "note": "why"}
    assert [one.fate for one in await stage.store.replay([dead.number], **again)] == [Fate.REPLAYED]
    rows = await stage.store.audit(ANY)
    assert [one.row.action for one in rows if one.row] == ["replay", "apply", "apply"]
    assert {one.signed for one in rows} == {Signed.YES}
    monkeypatch.setattr(stage.store, "audit_keys", None)
    with pytest.raises(Locked, match="FOLIOT_AUDIT_KEYS"):
        await stage.apply(declared("daily", START + MINUTE, fingerprint="v3"))
    await stage.apply(declared("daily", START + MINUTE, fingerprint="v2"))  # nothing changes
    assert len(await stage.store.audit(ANY)) == 3


async def test_rows_from_before_the_first_signature_stay_as_they_are(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _limited(stage, "job:a")
    monkeypatch.setattr(stage.store, "audit_keys", KEYS)
    await _limited(stage, "job:b")
    await stage.store.seal()
    assert [one.signed for one in await stage.store.seals(0, 10)] == [Signed.NO, Signed.YES]
    assert await _checked(stage.store) is None
    assert await stage.events("unsigned_audit") == []
    monkeypatch.setattr(stage.store, "audit_keys", OTHERS)
    assert await _checked(stage.store) == "unsigned at 2", "its key is not here"


async def test_a_process_without_the_key_does_nothing_once_the_log_is_signed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.store, "audit_keys", KEYS)
    await _limited(stage, "job:a")
    monkeypatch.setattr(stage.store, "audit_keys", None)
    with pytest.raises(Locked, match="FOLIOT_AUDIT_KEYS"):
        await _limited(stage, "job:b")
    with pytest.raises(Locked, match="FOLIOT_AUDIT_KEYS"):
        await stage.store.promise_as([Promise("job", b"{}", stage.now, key="k")], actor="ana", note="asked for")
    assert [gate.gate.name for gate in await stage.store.limits()] == ["job:a"]
    assert await stage.store.runs() == []
    assert len(await stage.store.audit(ANY)) == 1


async def test_a_row_that_commits_late_is_sealed_behind_those_that_came_before_its_commit(stage: Stage) -> None:
    """Where transactions are many at a time, its number is smaller; the chain is in the order of sealing."""
    if not stage.store.is_server:
        return
    connection = await asyncpg.connect(stage.store.url)
    try:
        slow = connection.transaction()
        await slow.start()
        await connection.execute(
            "INSERT INTO foliot.audit (at, actor, action, subject, note) VALUES (1, 'slow', 'limit', 'job:slow', '')"
        )
        await _limited(stage, "job:a")
        assert await stage.store.seal() == 1
        await slow.commit()
    finally:
        await connection.close()
    assert await stage.store.seal() == 1
    chain: list[SealedRow] = await stage.store.seals(0, 10)
    assert [one.row.actor for one in chain if one.row] == ["ana", "slow"]
    assert chain[0].number > chain[1].number
    assert await _checked(stage.store) is None
