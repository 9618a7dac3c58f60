"""What `foliot doctor` says of the server."""

from __future__ import annotations

from typing import Any

from foliot.store.postgres import migrating
from foliot.store.postgres.address import Address

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
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS synchronous_replicas,
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
        "integrity": "ok" if broken is None else f"damaged: {broken} must be built anew (REINDEX)",
    }
