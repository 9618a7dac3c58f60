"""Which commits of SQLite wait for the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from foliot.domain.instant import SECOND
from foliot.domain.run import Progress
from foliot.store.sqlite import SqliteStore


class _File(apsw.VFSFile):
    def __init__(self, system: _System, base: str, name: Any, flags: Any) -> None:
        super().__init__(base, name, flags)
        self._system, self._name = system, str(name.filename() if isinstance(name, apsw.URIFilename) else name)

    def xSync(self, flags: int) -> None:  # noqa: N802 - the name that apsw calls
        self._system.syncs += self._name.endswith("-wal")
        super().xSync(flags)


class _System(apsw.VFS):
    """Counts how often a write-ahead log is synced."""

    def __init__(self) -> None:
        self._base = apsw.vfs_names()[0]
        super().__init__("counting", self._base, makedefault=True)
        self.syncs = 0

    def xOpen(self, name: Any, flags: Any) -> _File:  # noqa: N802 - likewise
        return _File(self, self._base, name, flags)


@pytest.fixture
def system() -> Iterator[_System]:
    made = _System()
    yield made
    made.unregister()


async def test_leases_and_heartbeats_do_not_wait_for_the_disk(tmp_path: Path, system: _System) -> None:
    store = SqliteStore(str(tmp_path / "foliot.db"))
    await store.open()
    instance = await store.register("worker", version="", queues=("default",), slots=1, jobs=())
    lease = await store.take(0, instance.number, 5 * SECOND)
    assert lease is not None
    before = system.syncs
    await store.renew([lease], 5 * SECOND, 0)
    await store.beat(instance.number, [])
    await store.standing(instance.number, 5 * SECOND)
    assert system.syncs == before
    await store.close()


async def test_a_commit_that_others_rely_on_waits_for_the_disk_after_one_that_does_not(
    tmp_path: Path, system: _System
) -> None:
    store = SqliteStore(str(tmp_path / "foliot.db"))
    await store.open()
    instance = await store.register("worker", version="", queues=("default",), slots=1, jobs=())
    await store.beat(instance.number, [])
    before = system.syncs
    await store.set_keep_days(30, actor="test", note="")
    assert system.syncs == before + 1
    await store.beat(instance.number, [Progress(1, 1, 0, None, None)])
    assert system.syncs == before + 2, "progress of a run"
    await store.close()
