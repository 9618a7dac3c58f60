"""Which release of an app declares what, so that an older one that is started again takes nothing back.

A release is known by a hash of all that it declares (`foliot.domain.fingerprint.release_of`). Instances register by the
hash in format 0, and declarations are remembered by theirs, because releases without a format number compare these.

The store remembers in which order releases were first applied: that is their age. While a process lives that runs a
newer release, an older one leaves alone what the newer one declares; once none is left (a rollback) it has its way
again.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from foliot.domain.instant import MINUTE
from foliot.domain.schedule import Release
from foliot.store import process
from foliot.store.verbs.transaction import Transaction, as_json

ALIVE = MINUTE
"""Whoever was heard of within this time still runs its release."""

Declared = tuple[str, str]
"""A schedule, and the fingerprint of its declaration in format 0; an empty one where it was removed."""


async def enter(tx: Transaction, release: Release, stated: dict[str, str]) -> set[Declared]:
    """Remembers which declarations a release has, by schedule. Answers with those of newer releases that run."""
    if not release.name:
        return set()
    age, is_entered = await _place(tx, release, stated)
    if is_entered:
        await _add(tx, release.name, stated)
    else:
        digest = release.hash or None
        values = {"declares": as_json(stated), "hash": digest, "format": release.format, "age": age}
        await tx.run("add_release", release=release.name, now=tx.now, **values)
        await tx.run("forget_declarations", release=release.name)
    if age is None:
        return set()  # The lock keeps out other processes, so this is the newest.
    newer: set[Declared] = set()
    for other in await _running(tx, after=age):
        newer |= set((await _declares(tx, other)).items())
    return newer


async def is_entered(tx: Transaction, release: Release, stated: dict[str, str]) -> bool:
    """Whether `enter` would change nothing."""
    if not release.name:
        return True
    rows = await tx.all("known_releases", release=release.name, hash=release.hash, format=release.format)
    for name, _, _, format, declares in rows:
        if name == release.name:
            is_known = not release.hash or format >= release.format
            return is_known and stated.items() <= msgspec.json.decode(declares, type=dict[str, str]).items()
    return False


async def _place(tx: Transaction, release: Release, stated: dict[str, str]) -> tuple[int | None, bool]:
    """The place of a release in the order, and whether it is entered by its name.

    It can be entered by another name: a release that writes the same data otherwise has another hash in format 0. Then
    the hash in the present format is the same, or all that was declared is, which is compared for older formats.
    """
    rows = await tx.all("known_releases", release=release.name, hash=release.hash, format=release.format)
    for name, age, _, format, _ in rows:
        if name == release.name:
            if release.hash and format < release.format:
                await tx.run("put_release", release=name, hash=release.hash, format=release.format)
            return age, True
    if release.hash:
        for _, age, digest, format, declares in rows:
            if (digest, format) == (release.hash, release.format):
                return age, False
            if format < release.format and _present(declares) == stated:
                return age, False
    return None, False


def _present(declares: str) -> dict[str, str]:
    """Without schedules that the release removed."""
    found = msgspec.json.decode(declares, type=dict[str, str])
    return {schedule: fingerprint for schedule, fingerprint in found.items() if fingerprint}


async def remove(tx: Transaction, release: Release, schedules: Collection[str]) -> None:
    """The release says that these shall not exist."""
    if release.name and schedules:
        await _add(tx, release.name, dict.fromkeys(schedules, ""))


async def otherwise(tx: Transaction, schedule: str, fingerprint: str) -> list[str]:
    """The processes whose code declares a schedule otherwise than it is stored."""
    found = []
    for release, there in (await _running(tx, after=0)).items():
        if (await _declares(tx, release)).get(schedule, fingerprint) != fingerprint:
            found += there
    return found


async def _running(tx: Transaction, after: int) -> dict[str, list[str]]:
    """Releases that were first applied after this place in the order, and who runs them."""
    running: dict[str, list[str]] = {}
    for release, number, role, host, pid, birth in await tx.all("running_releases", after=after, since=tx.now - ALIVE):
        if not process.is_gone(host, pid, birth):
            running.setdefault(release, []).append(f"{role} {number} on {host.partition(' ')[0]}")
    return running


async def _declares(tx: Transaction, release: str) -> dict[str, str]:
    row = await tx.one("declared_by", release=release)
    return {} if row is None else msgspec.json.decode(row[0], type=dict[str, str])


async def _add(tx: Transaction, release: str, stated: dict[str, str]) -> None:
    known = await _declares(tx, release)
    if stated.items() - known.items():
        await tx.run("declares", release=release, declares=as_json(known | stated))
