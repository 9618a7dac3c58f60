"""Templates. Whatever is stored may be anything: all of it is escaped, everywhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from foliot import __version__
from foliot.domain.access import Scope, allows
from foliot.domain.instant import rfc3339
from foliot.domain.listing import RunFilter
from foliot.domain.state import State
from foliot.operate.words import headline
from foliot.web.access import TABLE, Tenants
from foliot.web.caller import Caller
from foliot.web.entrance import Principal
from foliot.web.gate import PRINCIPAL
from foliot.web.pages import charts, words
from foliot.web.pages.telling import safe_back, told_in


class Place(NamedTuple):
    """A page in the column of places."""

    href: str
    name: str
    key: str
    """Typed after `g`, it leads there."""
    waiting: str = ""
    title: str = ""
    of: str = ""
    """The resource of the API that lists it."""


PLACES = (
    Place("/", "Now", "n"),
    Place("/schedules", "Schedules", "s"),
    Place("/runs", "Runs", "r"),
    Place("/dead", "Dead letters", "d"),
    Place("/backfills", "Backfills", "b"),
    Place("/load", "Load", "l"),
    Place("/fleet", "Fleet", "f"),
    Place("/alerts", "Alerts", "a"),
    Place("/audit", "Audit", "u"),
)

_COUNTED = 100
"""What waits at a place is counted on every page, so no further than that."""

_LOGO = Markup(
    '<svg viewBox="0 0 32 32" fill="none" stroke="currentColor" stroke-width="2.4" stroke-linecap="round" '
    'aria-hidden="true"><path d="M16 5v22M4 11h24"/><path d="M7 11v4M25 11v4" stroke-width="2"/>'
    '<circle cx="7" cy="18" r="3" fill="currentColor" stroke="none"/>'
    '<circle cx="25" cy="18" r="3" fill="currentColor" stroke="none"/><path d="M11 27h10"/></svg>'
)


class Looker(NamedTuple):
    """Who looks, as templates see it."""

    name: str
    tenant: str | None
    may_operate: bool
    can_leave: bool


@cache
def templates() -> Environment:
    """A name that nobody gave is an error, and not an empty place."""
    made = Environment(
        loader=PackageLoader("foliot.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "absolute": words.absolute,
        "breaking": words.breaking,
        "clock": words.clock,
        "relative": words.relative,
        "length_of": words.length_of,
        "number": words.number,
        "cut": words.cut,
        "headline": headline,
        "pretty": words.pretty,
        "path": words.quoted,
        "query": words.quoted,
        "linked": words.linked,
        "sentence": words.sentence,
    }
    made.globals |= {
        "icon": charts.icon,
        "mark_shapes": charts.mark_shapes,
        "shape_of": charts.shape_of,
        "meaning_of": charts.meaning_of,
        "fact": words.fact,
        "logo": lambda: _LOGO,
        "version": __version__,
    }
    return made


def drawn(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """What stands by itself: templates see `csrf`, for the hidden field of every form."""
    principal: Principal | None = request.scope.get(PRINCIPAL)
    csrf = "" if principal is None else principal.csrf
    return HTMLResponse(templates().get_template(template).render(csrf=csrf, **values), status)


async def framed(
    request: Request, caller: Caller, template: str, values: dict[str, Any], status: int = 200
) -> HTMLResponse:
    """A page in its frame: beside the places that one can go to, with what was told last."""

    async def known() -> dict[str, Any]:
        return values

    return await framed_first(request, caller, template, known, status)


async def framed_first(
    request: Request, caller: Caller, template: str, values: Callable[[], Awaitable[dict[str, Any]]], status: int = 200
) -> HTMLResponse:
    """The same for a page that has the store busy: its frame is asked for before that."""
    principal = caller.principal
    now, places = rfc3339(await caller.operate.now_async()), await _places(caller)
    return drawn(
        request,
        template,
        status,
        now=now,
        here=f"/{request.scope['path'].split('/')[1]}",
        address=safe_back(f"{request.scope['path']}?{request.scope['query_string'].decode('latin-1')}"),
        places=places,
        store_name=caller.app.store.name,
        looker=Looker(
            principal.name,
            principal.tenant,
            allows(principal.scope, Scope.OPERATE),
            principal.session is not None,
        ),
        told=told_in(request, principal),
        **await values(),
    )


async def _places(caller: Caller) -> Sequence[Place]:
    """Those that exist for them, with what waits there."""
    open_ones = [
        place
        for place in PLACES
        if caller.tenant is None or (TABLE["GET", place.href].tenants is Tenants.OWN and place.href != "/")
    ]
    alerts = await caller.operate.alerts_async(tenant=caller.tenant, limit=_COUNTED)
    dead = await caller.operate.run_page_async(RunFilter(states=(State.DEAD,), tenant=caller.tenant), limit=_COUNTED)
    loud = sum(not one.snoozed(alerts.now) for one in alerts.alerts)
    counts = {
        "/alerts": (_waiting(loud, len(alerts.alerts)), "open alerts", "alerts?snoozed=false"),
        "/dead": (_waiting(len(dead.runs), len(dead.runs)), "dead letters", "runs?state=dead"),
    }
    return [
        place._replace(**dict(zip(("waiting", "title", "of"), counts[place.href], strict=True)))
        if place.href in counts
        else place
        for place in open_ones
    ]


def _waiting(count: int, looked_at: int) -> str:
    """`99+` where there may be more than were looked at, less those that are snoozed."""
    return f"{count - (count == _COUNTED)}+" if looked_at >= _COUNTED else str(count or "")
