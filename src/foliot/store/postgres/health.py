"""What `foliot doctor` says of the server."""

from __future__ import annotations

from typing import Any

from foliot.store.postgres.address import Address

_SETTINGS = (
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "synchronous_standby_names",
    "autovacuum",
    "wal_level",
    "max_connections",
)


async def health(connection: Any, where: Address) -> dict[str, Any]:
    settings = {
        row[0]: row[1]
        for row in await connection.fetch(
            "SELECT name, setting FROM pg_settings WHERE name = ANY($1::text[])", list(_SETTINGS)
        )
    }
    row = await connection.fetchrow(
        "SELECT current_setting('server_version'), "
        "(SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'foliot' AND c.relkind = 'r'), "
        "(SELECT count(*) FROM pg_stat_replication), "
        "(SELECT max(extract(epoch FROM now() - xact_start))::bigint FROM pg_stat_activity "
        "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()), "
        "(SELECT shards FROM foliot.setting), (SELECT keep_days FROM foliot.setting), "
        "(SELECT string_agg(i.indexrelid::regclass::text, ', ') FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'foliot' AND NOT i.indisvalid)"
    )
    version, size, replicas, oldest, shards, keep_days, broken = row
    return {
        "engine": "postgresql",
        "address": where.shown,
        "version": version,
        **settings,
        "replicas": replicas,
        "oldest_transaction_seconds": oldest or 0,
        "pooler": "transaction" if where.pooler else "none",
        "listens": where.listen is not None,
        "shards": shards,
        "keep_days": keep_days,
        "bytes": size,
        "integrity": "ok" if broken is None else f"damaged: {broken} must be built anew (REINDEX)",
    }
