"""The embedded engine: one file, no set-up. The only room that imports apsw.

No process that has the store open here may open the same file through the standard library's sqlite3: closing that one
drops the process's POSIX locks, and with them every promise this room makes.
"""

from foliot.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
