"""The operators' log: who did what, and why; and whether anybody has changed it since."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple

from foliot.domain.audit import (
    START,
    Anchor,
    AuditFilter,
    ChainCheck,
    Problem,
    Seal,
    SealedRow,
    told_of_unsealed,
)
from foliot.domain.instant import Instant
from foliot.domain.store import Store
from foliot.errors import Conflict, InvalidInput
from foliot.operate.acting import Acting, as_instant
from foliot.operate.shapes import Shape, moment

MOST = 10_000
"""Rows of one page."""
_PAGE = 2_000

Progress = Callable[[int, int], None]
"""Is told how many rows were checked, and how many there are."""


class AuditReport(NamedTuple):
    """What a look through the whole log found."""

    rows: int
    """So many were checked, from the first on."""
    head: Seal
    """The last seal that was."""
    problem: Problem | None
    """The first thing that is wrong; None: nothing is."""
    anchors: int
    """So many were given."""
    proven: Anchor | None
    """The last of these that the chain holds: nothing before it was rewritten."""
    signed: int | None = None
    """Rows with a right signature; None: this process has no key."""
    unsigned: int | None = None
    """Rows that lack a signature which they must have; None: this process has no key."""
    signed_from: int | None = None
    """The position of the first row with a right signature: each row behind it must be signed."""

    @property
    def warning(self) -> str | None:
        """Which rows this check does not authenticate, and what to set; None: it authenticates all rows."""
        if not self.rows or self.signed_from == 1:
            return None
        if self.signed is None:
            return (
                "rows are not signed: a user who can insert into the tables can add a row, which is then sealed; "
                "to sign rows, set FOLIOT_AUDIT_KEYS for each process"
            )
        before = "" if self.signed_from is None else f" before seal {self.signed_from:,}"
        return f"rows{before} are not signed with a key of this process"


class AuditVerbs(Acting):
    """What is on record about people's own actions."""

    async def audit_async(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        since: datetime | Instant | None = None,
        until: datetime | Instant | None = None,
        text: str | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> list[SealedRow]:
        """Newest first; `before` is the number of the last row of the page before. `text`: somewhere in it."""
        if not isinstance(limit, int) or not 1 <= limit <= MOST:
            raise InvalidInput(f"limit={limit!r:.40}: give a whole number from 1 to {MOST:,}")
        span = (None if since is None else as_instant(since), None if until is None else as_instant(until))
        wanted = AuditFilter(actor, action, subject, *span, text or None)
        return await (await self._opened()).audit(wanted, before=before, limit=limit)

    def audit(self, **filters: object) -> list[SealedRow]:
        return self._call(lambda: self.audit_async(**filters), "audit_async")  # type: ignore[arg-type]

    async def anchor_async(self) -> Anchor:
        """The head of the chain as it is now, with all that was done so far: to be kept where whoever could change the
        store cannot. Conflict when there is nothing in the log yet."""
        store = await self._opened()
        await _seal_all(store)
        head = (await store.sealing()).head
        if head == START:
            raise Conflict("the audit log is empty: there is no row to anchor")
        return Anchor(await store.now(), *head)

    def anchor(self) -> Anchor:
        return self._call(self.anchor_async, "anchor_async")

    async def verify_audit_async(
        self, *, anchors: Iterable[Anchor] = (), progress: Progress | None = None
    ) -> AuditReport:
        """Looks through the whole log, page by page, from its beginning up to the first thing that is wrong.

        1. What has no seal yet gets one. 2. Every seal fits its row and the seal before, and the anchors. 3. Every row
        behind the first signed one is signed, if this process has keys. 4. Every row has one seal.
        """
        store, given = await self._opened(), list(anchors)
        await _seal_all(store)
        total = (await store.sealing()).head.position
        check = ChainCheck(given)
        page = await store.seals(0, _PAGE)
        while page and check.problem is None:
            check.follow(page)
            if progress is not None:
                progress(check.head.position, max(total, check.head.position))
            last = page[-1].seal
            page = [] if last is None else await store.seals(last.position, _PAGE)
        check.end()
        problem = check.problem or await _oddly_sealed(store)
        signed, unsigned = (None, None) if store.audit_keys is None else (check.signed, check.unsigned)
        return AuditReport(
            check.head.position, check.head, problem, len(given), check.proven, signed, unsigned, check.signed_from
        )

    def verify_audit(self, *, anchors: Iterable[Anchor] = ()) -> AuditReport:
        return self._call(lambda: self.verify_audit_async(anchors=anchors), "verify_audit_async")


async def _seal_all(store: Store) -> None:
    while await store.seal() > 0:
        pass


async def _oddly_sealed(store: Store) -> Problem | None:
    last: int | None = 0
    while last is not None:
        found, last = await store.unsealed(last, _PAGE)
        if found:
            return told_of_unsealed(found[0])
    return None


def sealed_shape(one: SealedRow) -> Shape:
    """A row of the log, with its place in the chain."""
    row = one.row
    return {
        "number": one.number,
        "at": None if row is None else moment(row.at),
        "actor": None if row is None else row.actor,
        "action": None if row is None else row.action,
        "subject": None if row is None else row.subject,
        "note": None if row is None else row.note,
        "position": None if one.seal is None else one.seal.position,
        "hash": None if one.seal is None else one.seal.hash,
        "signed": None if one.signed is None else str(one.signed),
        "cursor": str(one.number),
    }


def anchor_shape(anchor: Anchor) -> Shape:
    return {"at": moment(anchor.at), "position": anchor.position, "hash": anchor.hash}


def audit_report_shape(report: AuditReport) -> Shape:
    problem = report.problem
    return {
        "ok": problem is None,
        "rows": report.rows,
        "position": report.head.position,
        "hash": report.head.hash,
        "problem": None if problem is None else str(problem.breach),
        "detail": None if problem is None else problem.detail,
        "broken_at": None if problem is None else problem.position,
        "row": None if problem is None else problem.row,
        "anchors": report.anchors,
        "proven": None if report.proven is None else anchor_shape(report.proven),
        "signed": report.signed,
        "unsigned": report.unsigned,
        "signed_from": report.signed_from,
        "warning": report.warning,
    }
