"""All of it together."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from foliot.domain.instant import Instant
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
from foliot.domain.store.measuring import MeasureStore
from foliot.domain.store.pausing import PauseStore
from foliot.domain.store.promising import PromiseStore
from foliot.domain.store.reading import ReadStore
from foliot.domain.store.scheduling import ScheduleStore
from foliot.domain.store.spreading import MemberStore
from foliot.domain.store.surveying import SurveyStore
from foliot.domain.store.watching import WatchStore
from foliot.domain.store.working import HandlerStore, LedgerStore, WorkStore


class Schema(NamedTuple):
    """How a store's tables stand towards this release."""

    current: int
    """The last step that was made; 0 where there is nothing yet."""
    latest: int
    """The last one that this release knows."""
    needs: int
    """How many steps a release must know to use these tables."""
    pending: tuple[str, ...]
    """The steps that are still to be made, by name."""

    @property
    def is_too_new(self) -> bool:
        return self.needs > self.latest


class Store(
    PromiseStore,
    ScheduleStore,
    DispatchStore,
    WorkStore,
    LedgerStore,
    HandlerStore,
    WatchStore,
    MemberStore,
    BackfillStore,
    LimitStore,
    PauseStore,
    FleetStore,
    ReadStore,
    AuditStore,
    SurveyStore,
    MeasureStore,
    LockStore,
    AlertStore,
    AccessStore,
    ElsewhereStore,
    KeepStore,
    Protocol,
):
    """All of it, and its own life."""

    async def open(self) -> None:
        """Connects, checks engine and schema, migrates. Raises before anything was changed if it cannot be trusted."""

    async def close(self) -> None:
        """Finishes what was begun; later calls raise StoreClosed."""

    async def schema(self) -> Schema:
        """How the tables stand. Needs no open store, and changes nothing: who may only read may ask."""

    async def migrate(self) -> Schema:
        """Brings the tables to this release, and answers how they stood before. Needs no open store. All steps or none,
        or each whole; processes of older releases go on meanwhile. SchemaMismatch when the tables are too new."""

    def migration_sql(self, after: int) -> str:
        """What `migrate` does with tables that stand at step `after`, as text."""

    async def tidy(self) -> None:
        """What an engine must do now and then to stay small: partitions ahead, and what has outlived its term goes."""

    @property
    def name(self) -> str:
        """Where the store is, for people; without passwords."""

    @property
    def url(self) -> str | None:
        """What another process on this host opens it by, password included: not for people. None where it cannot."""

    @property
    def file(self) -> str | None:
        """Its path on this host's disk; None when it is no file."""

    @property
    def is_server(self) -> bool:
        """Whether it is another process, perhaps on another host."""

    def again(self) -> Store | None:
        """Another handle on the same store, to be opened by itself; None where that would be another store."""

    @property
    def has_own_clock(self) -> bool:
        """Whether the store's clock is another one than the host's, so that processes must measure how far apart
        they are."""

    async def now(self) -> Instant:
        """The store's clock."""

    def version(self) -> int:
        """A hint: a number that soon differs from an earlier answer when something was committed in between.

        Cheap: asked every few milliseconds, from the event loop. It may differ for no reason. Between hosts a hint may
        come late or be lost, so whoever waits for work looks for it now and then in any case.
        """

    def when_new(self, callback: Callable[[], None]) -> bool:
        """Has this called, in the running event loop, whenever `version` has changed. False when the store cannot do
        that: then it has to be polled. A call is a hint, and need not come for runs due later than `CALLED_FOR`."""
