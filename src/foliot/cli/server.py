"""What the doctor makes of a PostgreSQL server. Pure: the same findings always get the same verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from foliot.cli import words
from foliot.domain.instant import SECOND

LONG = 300
"""Seconds: a transaction that is open for longer keeps the server from tidying up, and late promises costly to find."""
CROWDED = 0.9

Verdict = tuple[str, str, str]
"""The name of a check, `ok`, `warning` or `wrong`, and what was found."""


def server_checks(health: Mapping[str, Any]) -> Iterator[Verdict]:
    yield _durability(health)
    yield _connections(health)
    yield _transactions(health)
    yield _wake_ups(health)
    yield _shards(health)
    days = health["keep_days"]
    yield "retention", "ok", "ended runs are kept for ever" if days is None else f"ended runs are kept for {days} days"


def _durability(health: Mapping[str, Any]) -> Verdict:
    commit, waits_for = health["synchronous_commit"], health["synchronous_standby_names"]
    replicas, synchronous, role = health["replicas"], health["synchronous_replicas"], health["role"]
    is_seen = synchronous is not None
    told = (
        f"fsync {health['fsync']}, full_page_writes {health['full_page_writes']}, synchronous_commit {commit}, "
        f"{words.counted(replicas, 'replica')}, {synchronous if is_seen else 'an unknown number'} synchronous"
    )
    if not is_seen:
        told += f"; the role {role} cannot see what replicas do: GRANT pg_monitor TO {role} lets it"
    if health["fsync"] != "on" or health["full_page_writes"] != "on":
        return "durability", "wrong", f"{told}: a crash of the server's host could undo what was accepted"
    if commit == "off":
        return "durability", "warning", f"{told}: a crash of the server may undo the last promises that were accepted"
    if commit == "local" and waits_for:
        return "durability", "warning", f"{told}: nobody waits for replicas, so a failover may undo the last promises"
    if waits_for and is_seen and not synchronous:
        return "durability", "warning", f"{told}: commits wait for {waits_for}, and none of it is there"
    return "durability", "ok", told


def _connections(health: Mapping[str, Any]) -> Verdict:
    used, most = health["connections"], health["max_connections"]
    told = f"{used} of {most} in use"
    if used > CROWDED * most:
        return "connections", "warning", f"{told}: raise max_connections, lower ?connections=, or put a pooler between"
    return "connections", "ok", told


def _transactions(health: Mapping[str, Any]) -> Verdict:
    oldest = health["oldest_transaction_seconds"]
    told = f"the oldest is open for {words.length(oldest * SECOND)}"
    if health["autovacuum"] != "on":
        return "transactions", "warning", f"{told}; autovacuum is off: tables will grow, and become slow"
    if oldest > LONG:
        return "transactions", "warning", f"{told}: the server cannot tidy up meanwhile; see pg_stat_activity"
    return "transactions", "ok", told if oldest else "none is open"


def _wake_ups(health: Mapping[str, Any]) -> Verdict:
    through = "through a pooler in transaction mode" if health["pooler"] == "transaction" else "without a pooler"
    if health["wake_ups"] not in (None, "ok"):
        told = f"{health['wake_ups']}; what is new is looked for now and then instead, and begins later"
        return "wake-ups", "warning", told
    if health["listens"]:
        return "wake-ups", "ok", f"listens for them; {through}"
    return "wake-ups", "ok", f"does not listen, and asks instead; {through}: listen= in the URL would spare the server"


def _shards(health: Mapping[str, Any]) -> Verdict:
    held: Mapping[str, list[int]] = health["held"]
    taken = sum(map(len, held.values()))
    told = f"{taken} of {health['shards']} held" + "".join(
        f", {len(shards)} by scheduler {owner}" for owner, shards in held.items()
    )
    if taken < health["shards"]:
        return "shards", "warning", f"{told}: what is due in the others waits for a scheduler"
    return "shards", "ok", told
