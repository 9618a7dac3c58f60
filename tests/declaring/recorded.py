"""Makes a store by the code of an older release, with operators' edits, and records that code's fingerprints.

    git worktree add /tmp/old ed5b06f
    PYTHONPATH=/tmp/old/src:. python -m tests.declaring.recorded sqlite:////tmp/old.db tests/declaring/ed5b06f.json
    gzip -9nc /tmp/old.db > tests/declaring/ed5b06f.db.gz

With the URL of an empty PostgreSQL database the same makes the rows of `ed5b06f.sql.gz`:
`pg_dump --data-only --inserts --rows-per-insert=100`, of the tables `job`, `schedule`, `edit`, `declared`, `audit` and
`member`, without comments and lines that begin with a backslash.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from foliot.domain.store import Store
from tests.declaring.shop import EDITS, FILE, MADE, PAUSED, STATED, crontab, shop


async def fill(app: Any) -> None:
    store: Store = await app.opened()
    await store.register(
        "scheduler",
        version="old",
        queues=(),
        slots=0,
        jobs=[job.handler.card() for job in app.jobs.values()],
        release=app.release,
    )
    await app.apply_async()
    said = {"reason": "to see", "actor": "ada"}
    await app.operate.apply_schedules_async(STATED, source=FILE, **said)
    await app.operate.put_schedule_async(MADE, **said)
    await app.operate.import_schedules_async(crontab(), source="crontab", actor="ada")
    for name, given in EDITS.items():
        revision = (await store.schedule(name)).schedule.revision
        await app.operate.edit_schedule_async(name, given, revision=revision, **said)
    for name in PAUSED:
        await store.pause(name, until=None, actor="ada", note="holidays")


async def says(app: Any) -> dict[str, Any]:
    """What this release's code calls each declaration."""
    from foliot.operate.scheduling import _declared

    store = await app.opened()
    return {
        "release": app.release,
        "code": {one.id: one.fingerprint for one in app.declarations()},
        FILE: {one.id: one.fingerprint for one in await _declared(store, STATED)},
        "operator": {one.id: one.fingerprint for one in await _declared(store, [MADE])},
        "crontab": {one.id: one.fingerprint for one in crontab()},
        "stored": {one.id: [one.source, one.fingerprint, one.revision] for one in await store.templates()},
    }


async def main(url: str) -> str:
    app = shop(url)
    await fill(app)
    found = await says(app)
    other = shop(url, nightly="0 6 * * *", region="east")
    found["other"] = {"release": other.release, "code": {one.id: one.fingerprint for one in other.declarations()}}
    await app.close_async()
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(asyncio.run(main(sys.argv[1])))
