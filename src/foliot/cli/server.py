"""The doctor's checks of a PostgreSQL server. Pure: the same findings always get the same verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from foliot.cli import words
from foliot.domain.instant import SECOND

LONG = 300
"""Seconds. A transaction that is open for longer keeps vacuum from removing dead rows, which slows the search for due
runs."""
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
    yield "retention", "ok", "ended runs are never deleted" if days is None else f"ended runs are kept for {days} days"


def _durability(health: Mapping[str, Any]) -> Verdict:
    commit, waits_for = health["synchronous_commit"], health["synchronous_standby_names"]
    replicas, synchronous, role = health["replicas"], health["synchronous_replicas"], health["role"]
    is_seen = synchronous is not None
    detail = (
        f"fsync {health['fsync']}, full_page_writes {health['full_page_writes']}, synchronous_commit {commit}, "
        f"{words.counted(replicas, 'replica')}, {synchronous if is_seen else 'an unknown number'} synchronous"
    )
    if not is_seen:
        detail += f"; role {role} cannot see the state of replicas: GRANT pg_monitor TO {role}"
    if health["fsync"] != "on" or health["full_page_writes"] != "on":
        return "durability", "wrong", f"{detail}: a crash of the server's host could undo committed promises"
    if commit == "off":
        return "durability", "warning", f"{detail}: a crash of the server may undo the last committed promises"
    if commit == "local" and waits_for:
        return (
            "durability",
            "warning",
            f"{detail}: commits do not wait for replicas, so a failover may undo the last commits",
        )
    if waits_for and is_seen and not synchronous:
        return (
            "durability",
            "warning",
            f"{detail}: commits wait for {waits_for}, and none of these replicas is connected",
        )
    return "durability", "ok", detail


def _connections(health: Mapping[str, Any]) -> Verdict:
    used, most = health["connections"], health["max_connections"]
    detail = f"{used} of {most} in use"
    if used > CROWDED * most:
        return "connections", "warning", f"{detail}: raise max_connections, lower ?connections=, or use a pooler"
    return "connections", "ok", detail


def _transactions(health: Mapping[str, Any]) -> Verdict:
    oldest = health["oldest_transaction_seconds"]
    detail = f"the oldest has been open for {words.length(oldest * SECOND)}"
    if health["autovacuum"] != "on":
        return "transactions", "warning", f"{detail}; autovacuum is off: tables grow and queries become slow"
    if oldest > LONG:
        return "transactions", "warning", f"{detail}, which blocks vacuum; see pg_stat_activity"
    return "transactions", "ok", detail if oldest else "none open"


def _wake_ups(health: Mapping[str, Any]) -> Verdict:
    through = "through a pooler in transaction mode" if health["pooler"] == "transaction" else "without a pooler"
    if health["wake_ups"] not in (None, "ok"):
        detail = f"{health['wake_ups']}; Foliot polls for new work instead, so runs start later"
        return "wake-ups", "warning", detail
    if health["listens"]:
        return "wake-ups", "ok", f"LISTEN/NOTIFY; {through}"
    return (
        "wake-ups",
        "ok",
        f"polling instead of LISTEN/NOTIFY; {through}: listen= in the URL reduces the server's load",
    )


def _shards(health: Mapping[str, Any]) -> Verdict:
    held: Mapping[str, list[int]] = health["held"]
    taken = sum(map(len, held.values()))
    detail = f"{taken} of {health['shards']} held" + "".join(
        f", {len(shards)} by scheduler {owner}" for owner, shards in held.items()
    )
    if taken < health["shards"]:
        return "shards", "warning", f"{detail}: due runs in the others wait for a scheduler"
    return "shards", "ok", detail
