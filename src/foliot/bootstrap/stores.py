"""Stores: which one a URL means, with which keys; opened, migrated."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from foliot.clock import Clock
from foliot.domain.audit import AuditKeys
from foliot.domain.store import Schema, Store
from foliot.errors import InvalidInput, StoreError
from foliot.store.keys import read_key
from foliot.store.sqlite import SqliteStore

DEFAULT_STORE = "sqlite:///foliot.db"


def make_store(
    url: str | None, clock: Clock | None = None, keys: Sequence[str] = (), audit: Sequence[str] | None = None
) -> Store:
    """The store behind a URL; it is not open yet. Without one, FOLIOT_STORE says which, and else `foliot.db` here.

    `keys` encrypt values before they are stored. `audit`: keys that sign rows of the audit log; None: those of
    FOLIOT_AUDIT_KEYS."""
    store = _plain_store(url, clock)
    signing = audit_keys(None) if audit is None else audit
    if signing:
        store.audit_keys = AuditKeys([read_key(key, "an audit") for key in signing])
    return with_keys(store, keys)


def with_keys(store: Store, keys: Sequence[str]) -> Store:
    if not keys:
        return store
    from foliot.store.keyring import Keyring  # its library is an extra, which not everybody has
    from foliot.store.locked import locked_store

    return locked_store(store, Keyring(keys))


def encryption_keys(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """As an app states them; without that, as FOLIOT_ENCRYPTION_KEYS does, with commas between."""
    return _listed(given, "FOLIOT_ENCRYPTION_KEYS")


def audit_keys(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """Keys of the audit log: those given, or by default those of FOLIOT_AUDIT_KEYS, separated by commas."""
    return _listed(given, "FOLIOT_AUDIT_KEYS")


def _listed(given: str | Iterable[str] | None, variable: str) -> tuple[str, ...]:
    if given is None:
        given = os.environ.get(variable, "")
    listed = given.split(",") if isinstance(given, str) else list(given)
    return tuple(key.strip() if isinstance(key, str) else key for key in listed if key != "")


def _plain_store(url: str | None, clock: Clock | None) -> Store:
    url = url or os.environ.get("FOLIOT_STORE") or DEFAULT_STORE
    scheme, separator, path = url.partition("://")
    if scheme == "sqlite" and separator and path.startswith("/") and len(path) > 1:
        file, _, words = path[1:].partition("?")
        if words not in ("", "migrate=auto", "migrate=never"):
            raise InvalidInput(
                f"?{words:.80} in the store's URL is unknown; a file takes ?migrate=auto or ?migrate=never"
            )
        return SqliteStore(file, clock, migrates=words != "migrate=never")
    if scheme in ("postgresql", "postgres") and separator:
        return _server_store(url, clock)
    raise InvalidInput(
        f"{_without_password(url)!r:.80} is not a store; write sqlite:///foliot.db for a file here, "
        "sqlite:////var/lib/foliot.db for an absolute path, sqlite:///:memory: for tests, or "
        "postgresql://user@host/database"
    )


def _server_store(url: str, clock: Clock | None) -> Store:
    try:
        from foliot.store.postgres import PostgresStore  # its driver is an extra, which not everybody has
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise InvalidInput(
            f'{_without_password(url)!r:.80}: the PostgreSQL driver is not installed; pip install "foliot[postgres]"'
        ) from None
    return PostgresStore(url, clock)


def _without_password(url: str) -> str:
    return re.sub(r"(://[^/@]*?):[^/]*@", r"\1:***@", url)


async def open_store(store: Store) -> None:
    """Opens it; a file that cannot be made or reached is a StoreError that says which."""
    try:
        await store.open()
    except OSError as error:
        raise StoreError(
            f"the store {store.name} cannot be opened: {error.strerror or error}; give a path in a folder that "
            "this user can create or write to"
        ) from error


async def migrate_store(store: Store) -> Schema:
    """Brings its tables to this release; answers how they stood before."""
    try:
        return await store.migrate()
    except OSError as error:
        raise StoreError(
            f"{store.name} cannot be created: {error.strerror or error}; allow this user to write there"
        ) from error
