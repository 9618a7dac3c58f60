"""The chain of seals: what it holds, and each way in which somebody may have laid hands on it."""

from __future__ import annotations

import pytest

from foliot.domain.audit import (
    START,
    Anchor,
    AuditKeys,
    AuditRow,
    Breach,
    ChainCheck,
    Problem,
    Seal,
    SealedRow,
    Signed,
    Unsealed,
    read_anchors,
    sealed,
    told_of_unsealed,
)
from foliot.domain.instant import parse_rfc3339
from foliot.errors import InvalidInput

NOON = parse_rfc3339("2026-04-03T12:00:00Z")


def _row(number: int, note: str = "why") -> AuditRow:
    return AuditRow(NOON + number, "ana", "pause", note, "daily", number)


def _chain(*notes: str) -> list[SealedRow]:
    found, before = [], START
    for number, note in enumerate(notes, 1):
        row = _row(number, note)
        before = sealed(before, row)
        found.append(SealedRow(number, row, before))
    return found


def _checked(chain: list[SealedRow], *anchors: Anchor) -> ChainCheck:
    check = ChainCheck(anchors)
    for one in chain:
        check.follow([one])
    check.end()
    return check


def _breach(chain: list[SealedRow], *anchors: Anchor) -> tuple[Breach, int | None] | None:
    problem = _checked(chain, *anchors).problem
    return problem and (problem.breach, problem.position)


def _anchor(chain: list[SealedRow], position: int) -> Anchor:
    seal = chain[position - 1].seal
    assert seal is not None
    return Anchor(NOON, position, seal.hash)


def test_a_chain_that_nobody_touched_is_sound_and_holds_its_anchors() -> None:
    chain = _chain("a", "b", "c")
    check = _checked(chain, _anchor(chain, 1), _anchor(chain, 2))
    assert check.problem is None
    assert check.head == chain[-1].seal
    assert check.proven == _anchor(chain, 2)
    assert _breach([]) is None


def test_the_hash_of_a_row_never_changes_from_release_to_release() -> None:
    row = AuditRow(1_775_217_600_000_000, "ana", "pause", "Übung: 50 %", "daily", 7)
    assert sealed(START, row) == Seal(1, "abd808ae179c846c42141d0396e6e963a129abfe436bbe8ce598d44891f9dcd8")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (AuditRow(NOON, "a", "bc", "d", "e", 1), AuditRow(NOON, "ab", "c", "d", "e", 1)),
        (AuditRow(NOON, "a", "b", "1:c", "d", 1), AuditRow(NOON, "a", "b", "c", "d1:", 1)),
        (AuditRow(NOON, "a", "b", "c", "d", 1), AuditRow(NOON, "a", "b", "c", "d", 2)),
    ],
)
def test_rows_that_differ_have_seals_that_differ(one: AuditRow, other: AuditRow) -> None:
    assert sealed(START, one) != sealed(START, other)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_edited_row_is_found_where_it_is(place: int) -> None:
    chain = _chain("a", "b", "c")
    chain[place] = chain[place]._replace(row=_row(place + 1, "somebody else's word"))
    assert _breach(chain) == (Breach.EDITED, place + 1)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_row_that_is_gone_is_found_where_it_was(place: int) -> None:
    chain = _chain("a", "b", "c")
    chain[place] = chain[place]._replace(row=None)
    assert _breach(chain) == (Breach.MISSING, place + 1)


def test_a_seal_that_was_changed_is_told_from_a_row_that_was() -> None:
    chain = _chain("a", "b", "c")
    chain[1] = chain[1]._replace(seal=Seal(2, "ab" * 32))
    assert _breach(chain) == (Breach.FORGED, 2)


def test_a_seal_that_is_gone_leaves_a_gap() -> None:
    chain = _chain("a", "b", "c")
    assert _breach([chain[0], chain[2]]) == (Breach.BROKEN, 2)
    assert _breach(chain[1:]) == (Breach.BROKEN, 1)


def test_a_row_and_its_seal_that_were_both_changed_break_the_chain() -> None:
    chain = _chain("a", "b", "c", "d")
    row = _row(2, "other")
    chain[1] = SealedRow(2, row, sealed(Seal(1, "cd" * 32), row))
    assert _breach(chain) == (Breach.BROKEN, 2)


def test_a_chain_that_was_written_anew_is_found_by_an_anchor_alone() -> None:
    true, anew = _chain("a", "b", "c"), _chain("a", "x", "c")
    assert _breach(anew) is None
    assert _breach(anew, _anchor(true, 1)) is None, "nothing before it was touched"
    assert _breach(anew, _anchor(true, 3)) == (Breach.ANCHOR, 3)


def test_a_chain_that_was_cut_off_is_found_by_an_anchor_alone() -> None:
    chain = _chain("a", "b", "c")
    assert _breach(chain[:2]) is None
    assert _breach(chain[:2], _anchor(chain, 3)) == (Breach.ANCHOR, 3)


KEYS = AuditKeys([b"k" * 32])


def test_the_signature_of_a_row_never_changes_from_release_to_release() -> None:
    row = AuditRow(1_775_217_600_000_000, "ana", "pause", "Übung: 50 %", "daily", 7)
    assert KEYS.sign(row) == "8f2410db:b9b0f01f64f39daaa699bb33443715c903a84574b5b235cdb8a2420d5b0c197b"


def test_a_signature_is_that_of_one_row_in_one_place_by_one_key() -> None:
    row = _row(7)
    signed = row._replace(signature=KEYS.sign(row))
    assert KEYS.judge(signed) is Signed.YES
    assert AuditKeys([b"n" * 32, b"k" * 32]).judge(signed) is Signed.YES, "a key that came before the newest"
    assert AuditKeys([b"n" * 32]).judge(signed) is Signed.UNKNOWN
    assert KEYS.judge(row) is Signed.NO
    for changed in ({"number": 8}, {"at": 1}, {"actor": "eve"}, {"action": "x"}, {"subject": "x"}, {"note": "x"}):
        assert KEYS.judge(signed._replace(**changed)) is Signed.WRONG, changed
    for text in ("", "nonsense", f"{(signed.signature or '').partition(':')[0]}:\N{SNOWMAN}"):
        assert KEYS.judge(row._replace(signature=text)) is not Signed.YES, text


@pytest.mark.parametrize(
    ("signed", "wrong_at"),
    [
        ([None, None, None], None),
        ([Signed.NO, Signed.YES, Signed.YES], None),
        ([Signed.YES, Signed.NO, Signed.YES], 2),
        ([Signed.NO, Signed.WRONG, Signed.NO], 2),
        ([Signed.NO, Signed.NO, Signed.UNKNOWN], 3),
    ],
)
def test_from_the_first_signed_row_on_every_row_is_signed(signed: list[Signed | None], wrong_at: int | None) -> None:
    chain = [one._replace(signed=how) for one, how in zip(_chain("a", "b", "c"), signed, strict=True)]
    assert _breach(chain) == (None if wrong_at is None else (Breach.UNSIGNED, wrong_at))


def _signed_chain(*notes: str, sealed_without: int | None = None) -> list[SealedRow]:
    """Signed rows. A scheduler that does not know signatures sealed the one at `sealed_without`."""
    chain, before = list[SealedRow](), START
    for number, note in enumerate(notes, 1):
        row = _row(number, note)
        row = row._replace(signature=KEYS.sign(row))
        before = sealed(before, row._replace(signature=None) if number == sealed_without else row)
        chain.append(SealedRow(number, row, before, Signed.YES))
    return chain


def test_the_hash_of_a_signed_row_never_changes_from_release_to_release() -> None:
    row = AuditRow(1_775_217_600_000_000, "ana", "pause", "Übung: 50 %", "daily", 7)
    row = row._replace(signature=KEYS.sign(row))
    assert sealed(START, row).hash == "26e7b0edec602750c455122b6bb600cf139990f49f1035f2e66ddafbd16f9540"


def test_the_seal_of_a_signed_row_shows_that_its_signature_was_removed() -> None:
    chain = _signed_chain("a", "b", "c")
    assert _breach(chain) is None
    assert chain[1].row is not None
    chain[1] = chain[1]._replace(row=chain[1].row._replace(signature=None), signed=Signed.NO)
    assert _breach(chain) == (Breach.EDITED, 2)


@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_signed_row_that_an_earlier_release_sealed_keeps_its_seal(place: int) -> None:
    assert _breach(_signed_chain("a", "b", "c", sealed_without=place)) is None


def test_a_log_without_any_signed_row_is_wrong_where_a_key_is_set() -> None:
    chain = [one._replace(signed=Signed.NO) for one in _chain("a", "b", "c")]
    assert _breach(chain) == (Breach.UNSIGNED, None)
    assert _breach([]) is None


def test_an_unsigned_row_hides_no_later_change() -> None:
    chain = _signed_chain("a", "b", "c", "d")
    signed = [Signed.YES, Signed.NO, Signed.NO, Signed.YES]
    chain = [one._replace(signed=how) for one, how in zip(chain, signed, strict=True)]
    check = _checked(chain)
    assert check.problem is not None
    assert (check.problem.breach, check.problem.position, check.unsigned, check.signed) == (Breach.UNSIGNED, 2, 2, 2)
    assert _breach([*chain[:3], chain[3]._replace(row=_row(4, "other"))]) == (Breach.EDITED, 4)


def test_rows_that_are_oddly_sealed_are_told() -> None:
    assert told_of_unsealed(Unsealed(4, 2, NOON)).breach is Breach.EXTRA
    assert told_of_unsealed(Unsealed(4, 0, None)).breach is Breach.MISSING
    problem = told_of_unsealed(Unsealed(4, 0, NOON))
    assert isinstance(problem, Problem)
    assert (problem.breach, problem.row) == (Breach.UNSEALED, 4)


def test_anchors_are_read_as_they_are_written() -> None:
    [first, second] = [Anchor(NOON, 7, "ab" * 32), Anchor(NOON + 1_000_000, 9, "cd" * 32)]
    text = f"# of the vault\n{first.line()}\n\n  {second.line().upper()}  \n"
    assert read_anchors(text) == [first, second]


@pytest.mark.parametrize(
    "line", ["hello", "2026-04-03T12:00:00Z 7", "2026-04-03T12:00:00Z 0 " + "ab" * 32, "x 1 " + "ab" * 32]
)
def test_a_line_that_is_no_anchor_is_named(line: str) -> None:
    with pytest.raises(InvalidInput, match="line 2"):
        read_anchors(f"# fine\n{line}\n")
