"""The only place that knows which concrete parts go together.

    stores      which store a URL means, and with which keys
    parts       dispatcher, worker, watch and whoever tells of them, each made of what it needs
    clocks      the clock of a process, held against the store's
    scheduling  a scheduler process, from its registration to its end
    working     a worker process, likewise

Sees every room but app, cli, web and testing; only these see it.
"""

from foliot.bootstrap.parts import (
    TEST_MESSAGE,
    append_line,
    make_alarm,
    make_backfiller,
    make_channels,
    make_dispatcher,
    make_guard,
    make_herald,
    make_reaper,
    make_sealer,
    make_sentry,
    make_telling,
    make_tracer,
    make_worker,
    send_test,
)
from foliot.bootstrap.scheduling import run_scheduler
from foliot.bootstrap.stores import (
    DEFAULT_STORE,
    audit_keys,
    encryption_keys,
    make_store,
    migrate_store,
    open_store,
    with_keys,
)
from foliot.bootstrap.working import RECYCLE_AFTER, Left, run_worker
from foliot.logs import guard
from foliot.store.keys import new_key
from foliot.watch.telling import Telling
from foliot.work.blockade import DRAINED, RECYCLED
from foliot.work.drain import LONGEST_END
from foliot.work.room import HEADROOM, RESERVE, checked_reserved

__all__ = [
    "DEFAULT_STORE",
    "DRAINED",
    "HEADROOM",
    "LONGEST_END",
    "RECYCLED",
    "RECYCLE_AFTER",
    "RESERVE",
    "TEST_MESSAGE",
    "Left",
    "Telling",
    "append_line",
    "audit_keys",
    "checked_reserved",
    "encryption_keys",
    "make_alarm",
    "make_backfiller",
    "make_channels",
    "make_dispatcher",
    "make_guard",
    "make_herald",
    "make_reaper",
    "make_sealer",
    "make_sentry",
    "make_store",
    "make_telling",
    "make_tracer",
    "make_worker",
    "migrate_store",
    "new_key",
    "open_store",
    "run_scheduler",
    "run_worker",
    "send_test",
    "with_keys",
]

guard()
