"""The port to the store. These docstrings are the contract; `tests/contract` holds every engine to it.

Rules that every verb keeps:

- *Durable before it returns.* A verb that changes something returns only when a kill -9 can no longer undo it. What
  only dispatchers are told of (a firing, a lease) may be forgotten by a crash of the store itself, whole: owners are
  told that then (`LostOwnership`), and whatever anybody else was told of since includes it.
- *All or nothing.* A verb is one transaction, or part of one that other callers share; if it raises, nothing changed.
- *The store's clock decides.* "Now" is read inside the transaction, from the store; arguments never carry it.
- *Every write names what it expects* (state, token, epoch). Zero rows is a normal branch: somebody got there first.
"""

from foliot.domain.audit import AuditRow
from foliot.domain.store.access import AccessStore
from foliot.domain.store.alerting import AlertStore
from foliot.domain.store.auditing import AuditStore
from foliot.domain.store.backfilling import BackfillStore
from foliot.domain.store.dispatching import DispatchStore
from foliot.domain.store.elsewhere import ElsewhereStore
from foliot.domain.store.fleet import FleetStore
from foliot.domain.store.keeping import KeepStore
from foliot.domain.store.limiting import LimitStore
from foliot.domain.store.locking import LockStore
from foliot.domain.store.pausing import PauseStore
from foliot.domain.store.promising import PromiseStore
from foliot.domain.store.reading import ReadStore
from foliot.domain.store.scheduling import ScheduleStore
from foliot.domain.store.spreading import MemberStore
from foliot.domain.store.surveying import SurveyStore
from foliot.domain.store.values import (
    ALIVE,
    CALLED_FOR,
    DEFAULT_QUEUE,
    Arrivals,
    Beat,
    Cells,
    Decide,
    Duty,
    EventRow,
    Fired,
    Instance,
    JobCard,
    Lease,
    Offer,
    PassedSlot,
    QueueView,
    Shard,
    StandbyRequest,
    Standing,
    Ticking,
    Wish,
    check_of,
    shard_of,
)
from foliot.domain.store.watching import WatchStore
from foliot.domain.store.whole import Schema, Store
from foliot.domain.store.working import HandlerStore, LedgerStore, OpenTransaction, WorkStore

__all__ = [
    "ALIVE",
    "CALLED_FOR",
    "DEFAULT_QUEUE",
    "AccessStore",
    "AlertStore",
    "Arrivals",
    "AuditRow",
    "AuditStore",
    "BackfillStore",
    "Beat",
    "Cells",
    "Decide",
    "DispatchStore",
    "Duty",
    "ElsewhereStore",
    "EventRow",
    "Fired",
    "FleetStore",
    "HandlerStore",
    "Instance",
    "JobCard",
    "KeepStore",
    "Lease",
    "LedgerStore",
    "LimitStore",
    "LockStore",
    "MemberStore",
    "Offer",
    "OpenTransaction",
    "PassedSlot",
    "PauseStore",
    "PromiseStore",
    "QueueView",
    "ReadStore",
    "ScheduleStore",
    "Schema",
    "Shard",
    "StandbyRequest",
    "Standing",
    "Store",
    "SurveyStore",
    "Ticking",
    "WatchStore",
    "Wish",
    "WorkStore",
    "check_of",
    "shard_of",
]
