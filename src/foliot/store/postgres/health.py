"""What `foliot doctor` says of the server."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import asyncpg

from foliot.store.postgres import migrating
from foliot.store.postgres.address import Address
from foliot.store.postgres.connection import UNREACHABLE

CONNECTED_WITHIN, HEARD_WITHIN = 5.0, 2.0
"""Seconds until the doctor gives up: a wake-up that takes longer is of no use to anybody."""

_SETTINGS = (
    "server_version",
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "synchronous_standby_names",
    "autovacuum",
    "wal_level",
    "max_connections",
)

_FACTS = """
SELECT
    (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
     JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'foliot' AND c.relkind = 'r') AS bytes,
    (SELECT count(*) FROM pg_stat_replication) AS replicas,
    -- NULL, and not 0, for a role that sees the replicas and may not see what they do.
    (SELECT CASE WHEN bool_or(sync_state IS NULL) THEN NULL
        ELSE count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) END
     FROM pg_stat_replication) AS synchronous_replicas,
    current_user::text AS role,
    (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::bigint FROM pg_stat_activity
     WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()) AS oldest_transaction_seconds,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
    (SELECT shards FROM foliot.setting) AS shards,
    (SELECT keep_days FROM foliot.setting) AS keep_days,
    (SELECT string_agg(i.indexrelid::regclass::text, ', ') FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
     JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'foliot' AND NOT i.indisvalid) AS broken
"""

_OWNERS = """
SELECT owner, array_agg(shard ORDER BY shard) FROM foliot.shard
WHERE shard >= 0 AND owner IS NOT NULL AND until > foliot.now() GROUP BY owner ORDER BY owner
"""


async def health(connection: Any, where: Address) -> dict[str, Any]:
    asked = "SELECT name, setting FROM pg_settings WHERE name = ANY($1::text[])"
    settings = dict(map(tuple, await connection.fetch(asked, list(_SETTINGS))))
    facts = dict(await connection.fetchrow(_FACTS))
    broken, schema = facts.pop("broken"), await migrating.stand(connection)
    return {
        "engine": "postgresql",
        "path": where.shown,
        "version": settings.pop("server_version"),
        "schema": schema.current,
        "schema_known": schema.latest,
        **settings,
        "max_connections": int(settings["max_connections"]),
        **facts,
        "held": {str(owner): list(shards) for owner, shards in await connection.fetch(_OWNERS)},
        "pooler": "transaction" if where.pooler else "none",
        "listens": where.listen is not None,
        "integrity": "ok" if broken is None else f"damaged: rebuild {broken} with REINDEX",
        "wake_ups": None if where.listen is None else await _wake_ups(connection, where, where.listen),
    }


async def _wake_ups(connection: Any, where: Address, listen: str) -> str:
    """`ok` when one arrived that was sent as the store sends them, else why not. Really tried, because whoever listens
    in vain is not told: the work is found a little later all the same."""
    channel, arrived = f"foliot_doctor_{os.urandom(8).hex()}", asyncio.Event()
    try:
        # The driver's own limit is for one host, of which there may be several.
        async with asyncio.timeout(CONNECTED_WITHIN):
            ears = await asyncpg.connect(listen, target_session_attrs=where.session, statement_cache_size=0)
    except (asyncpg.PostgresError, *UNREACHABLE, ValueError) as error:
        return f"cannot connect to listen for wake-ups: {_reason(error)}"
    try:
        async with asyncio.timeout(HEARD_WITHIN):
            await ears.add_listener(channel, lambda *_: arrived.set())
            await connection.execute(f"NOTIFY {channel}")  # waits for no replica: it writes nothing
            await arrived.wait()
    except TimeoutError:
        if listen == where.dsn:
            return "wake-ups do not arrive: the store's URL uses a pooler; add pooler=transaction to the URL"
        return "wake-ups do not arrive: listen= connects to another database, or through a pooler"
    except (asyncpg.PostgresError, *UNREACHABLE) as error:
        return f"wake-ups cannot be tested: {_reason(error)}"
    finally:
        ears.terminate()
    return "ok"


def _reason(error: BaseException) -> str:
    """What the server or the host said. What the driver says of a URL that it cannot read may quote the password."""
    if isinstance(error, ValueError):
        return "the URL cannot be read"
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECTED_WITHIN:g} s"
    return str(error) or type(error).__name__
