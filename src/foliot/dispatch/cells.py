"""The arithmetic of cells: time is cut into five-minute buckets, and a scheduler leases them ahead. Pure."""

from __future__ import annotations

from foliot.domain.instant import MINUTE, Duration, Instant

BUCKET: Duration = 5 * MINUTE

AHEAD: Duration = MINUTE
"""How long before a bucket ends the next one is leased: long enough to load it in slices between firings."""


def bucket_of(moment: Instant) -> int:
    """The bucket that a fire time lies in."""
    return moment // BUCKET


def bucket_end(bucket: int) -> Instant:
    """The first instant after a bucket."""
    return (bucket + 1) * BUCKET


def lease_through(now: Instant) -> Instant:
    """The high-water mark that a shard's owner should have: the end of this bucket, or near that end, of the next.

    Adding `AHEAD` before the division is both at once: from `AHEAD` before the end, it falls into the next bucket.
    """
    return bucket_end(bucket_of(now + AHEAD))


def next_lease_at(high_water: Instant) -> Instant:
    """When the cells after a high-water mark are to be leased."""
    return high_water - AHEAD
