"""Labels, as names that work is handed off under."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from foliot.domain.labels import MOST_LABELS, can_take, checked_labels, labelled, parted
from foliot.domain.policy import choices, choices_from_json, choices_to_json, labels_of
from foliot.errors import InvalidInput

labels = some.sets(some.from_regex(r"[a-z][a-z0-9._/-]{0,9}(=[a-z0-9]{1,5})?", fullmatch=True), max_size=5)


@given(some.sampled_from(["resize", "resize?", "a.b/c:d-e"]), labels)
def test_a_name_with_labels_can_be_read_again(name: str, needed: set[str]) -> None:
    assert parted(labelled(name, checked_labels(needed))) == (name, checked_labels(needed))


@given(labels, labels)
def test_a_worker_takes_what_needs_no_more_than_it_has(needed: set[str], having: set[str]) -> None:
    assert can_take(labelled("resize", sorted(needed)), ["resize"], having) == (needed <= having)
    assert not can_take(labelled("resize", sorted(needed)), ["mail"], having)


@given(labels)
def test_labels_are_stored_with_a_runs_settings(needed: set[str]) -> None:
    stored = choices_to_json(choices({"labels": needed}))
    assert labels_of(stored) == choices_from_json(stored)["labels"] == tuple(sorted(needed))


@pytest.mark.parametrize(
    "given",
    [
        "gpu",
        7,
        None,
        {},
        {"gpu": True},
        ["gp u"],
        [""],
        ["a=b=c"],
        ["=eu"],
        ["region="],
        ["a,b"],
        ["a@b"],
        [7],
        ["x" * 51],
    ],
)
def test_what_is_no_label_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInput, match="label"):
        checked_labels(given)


def test_there_is_a_most() -> None:
    assert len(checked_labels(f"label-{n}" for n in range(MOST_LABELS))) == MOST_LABELS
    with pytest.raises(InvalidInput, match="too many"):
        checked_labels(f"label-{n}" for n in range(MOST_LABELS + 1))


@pytest.mark.parametrize("options", [None, b"", b"{}", b"no JSON", b'{"labels": 7}', b'{"labels": ["a b"]}'])
def test_what_cannot_be_read_needs_nothing(options: bytes | None) -> None:
    assert labels_of(options) == ()
