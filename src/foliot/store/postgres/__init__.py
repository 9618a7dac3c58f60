"""The fleet engine: any number of schedulers, workers and web processes on any hosts.

The only room that imports asyncpg.

No session state is kept in the server between two transactions, so that a pooler in transaction mode may stand between.
"""

from foliot.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
