from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from foliot.dispatch.cells import AHEAD, BUCKET, bucket_end, bucket_of, lease_through
from foliot.domain.instant import HOUR, LAST, MINUTE, SECOND

moments = some.integers(-LAST // 5, LAST)


@given(moments)
def test_every_moment_lies_in_its_bucket(moment: int) -> None:
    bucket = bucket_of(moment)
    assert bucket_end(bucket - 1) <= moment < bucket_end(bucket)
    assert bucket_end(bucket) - bucket_end(bucket - 1) == BUCKET


def test_the_current_bucket_is_leased_until_a_minute_before_its_end() -> None:
    assert lease_through(HOUR) == HOUR + 5 * MINUTE
    assert lease_through(HOUR + 4 * MINUTE - 1) == HOUR + 5 * MINUTE


def test_the_next_bucket_is_leased_from_a_minute_before_the_end() -> None:
    assert lease_through(HOUR + 4 * MINUTE) == HOUR + 10 * MINUTE
    assert lease_through(HOUR + 5 * MINUTE - 1) == HOUR + 10 * MINUTE
    assert lease_through(HOUR + 5 * MINUTE + 30 * SECOND) == HOUR + 10 * MINUTE


@given(moments)
def test_there_is_always_at_least_a_minute_ahead(moment: int) -> None:
    assert AHEAD < lease_through(moment) - moment <= BUCKET + AHEAD
