"""Which release of an app declares what, so that an older one that is started again takes nothing back.

A release is known by a hash of all that it declares. The store remembers in which order releases were first applied:
that is their age. While a process lives that runs a newer release, an older one leaves alone what the newer one
declares; once none is left (a rollback) it has its way again.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from foliot.domain.instant import MINUTE
from foliot.domain.schedule import Declaration
from foliot.store import process
from foliot.store.verbs.transaction import Transaction, as_json

ALIVE = MINUTE
"""Whoever was heard of within this time still runs its release."""

Declared = tuple[str, str]
"""A schedule, and the fingerprint of its declaration; an empty one where it was removed."""


async def enter(tx: Transaction, release: str, declarations: Collection[Declaration]) -> set[Declared]:
    """Remembers what a release declares; answers with what newer releases do that are running now."""
    if not release:
        return set()
    row = await tx.one("declared_by", release=release)
    if row is None:
        # Nobody else enters one meanwhile, so this is the newest.
        await tx.run("add_release", release=release, now=tx.now, declares=as_json(_stated(declarations)))
        await tx.run("forget_declarations", release=release)
        return set()
    await _add(tx, release, _stated(declarations))
    newer: set[Declared] = set()
    for other in await _running(tx, after=row[0]):
        newer |= set((await _declares(tx, other)).items())
    return newer


async def remove(tx: Transaction, release: str, schedules: Collection[str]) -> None:
    """The release says that these shall not exist."""
    if release and schedules:
        await _add(tx, release, dict.fromkeys(schedules, ""))


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
    return {} if row is None else msgspec.json.decode(row[1], type=dict[str, str])


async def _add(tx: Transaction, release: str, stated: dict[str, str]) -> None:
    known = await _declares(tx, release)
    if stated.items() - known.items():
        await tx.run("declares", release=release, declares=as_json(known | stated))


def _stated(declarations: Collection[Declaration]) -> dict[str, str]:
    return {declaration.id: declaration.fingerprint for declaration in declarations}
