"""Makes promises as fast as it can, and writes down each one that was acknowledged, and only those."""

from __future__ import annotations

import itertools
import os
import sys
from datetime import UTC, datetime, timedelta

from tests.faults.campus import app, record

acknowledged = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
first = int(sys.argv[2])
for n in itertools.count(first, 5):
    now = datetime.now(UTC)
    kept = app.promise_many(
        [
            record.promise_at(now + timedelta(milliseconds=7 * (n % 100)), n=n),
            record.using(key=f"class:{n}").promise_at(now + timedelta(milliseconds=300), n=n + 1),
            *(record.promise_at(now, n=n + more) for more in (2, 3, 4)),
        ]
    )
    os.write(acknowledged, "".join(f"{one.id}\n" for one in kept).encode())
