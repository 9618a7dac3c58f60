"""The routes of actions: a page that shows what would happen, and the form that does it."""

from __future__ import annotations

import secrets
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from foliot.domain.access import Answer, Asked
from foliot.errors import Refused, UnknownName
from foliot.web.caller import Asking, Caller
from foliot.web.fields import Key
from foliot.web.pages.acting import Act, Acts, Desk, Form, Prospect, field_to_blame
from foliot.web.pages.ahead import counting_of
from foliot.web.pages.asked import number_in
from foliot.web.pages.bulk_acts import add_bulk_acts
from foliot.web.pages.drawing import framed
from foliot.web.pages.forms import PageRoute
from foliot.web.pages.run_acts import add_run_acts
from foliot.web.pages.schedule_acts import add_schedule_acts
from foliot.web.pages.telling import address_telling, safe_back

routes = APIRouter(route_class=PageRoute, include_in_schema=False)

_OURS = frozenset({"csrf", "back", "reason", "request", "told", "mark"})
ACTS = Acts()
add_run_acts(ACTS)
add_schedule_acts(ACTS)
add_bulk_acts(ACTS)


@routes.get("/act/{kind}/{subject}/{verb}")
async def look(request: Request, caller: Asking, kind: Key, subject: Key, verb: Key) -> Response:
    form = Form(_values(request.query_params.multi_items()))
    act, desk = await _desk(caller, kind, subject, verb, form)
    back = _back(request, kind, subject)
    return await _shown(request, caller, await act.look(desk), form, back)


@routes.post("/act/{kind}/{subject}/{verb}")
async def do(request: Request, caller: Asking, kind: Key, subject: Key, verb: Key) -> Response:
    given = parse_qsl((await request.body()).decode(), keep_blank_values=True)
    form = Form(_values(given))
    back = safe_back(form.get("back") or f"/{kind}")
    act, desk = await _desk(caller, kind, subject, verb, form)
    if form.has("preview"):
        return await _shown(request, caller, await act.look(desk), form, back)
    key, digest = form.get("request"), sha256(await request.body()).digest()
    before = await _told_before(caller, key, digest)
    if before is not None:
        return RedirectResponse(before, 303)
    try:
        told = await act.do(desk)
    except Refused as error:
        await _forget(caller, key)
        # What was typed is not lost: the same page again, with the refusal.
        return await _shown(request, caller, await act.look(desk), form, back, refused=error)
    if verb == "delete":
        back = f"/{kind}"
    if kind == "schedules":
        counting_of(request).forget()
    address = address_telling(back, caller.principal, told)
    if key:
        await caller.operate.end_request_async(
            caller.principal.credential, key, Answer(303, {"location": address}, b"")
        )
    return RedirectResponse(address, 303)


async def _told_before(caller: Caller, key: str, digest: bytes) -> str | None:
    """A form that is sent twice, by a double click or by going back, is done once: where its answer led."""
    if not key:
        return None
    found = await caller.operate.begin_request_async(caller.principal.credential, key, digest)
    if found.answer is not None:
        return found.answer.headers["location"]
    if found.standing is not Asked.NEW:
        raise Refused("this form was sent before; check whether the action was done, then reopen the form")
    return None


async def _forget(caller: Caller, key: str) -> None:
    if key:
        await caller.operate.drop_request_async(caller.principal.credential, key)


async def _desk(caller: Caller, kind: str, subject: str, verb: str, form: Form) -> tuple[Act, Desk]:
    """Whose it is, is asked first: what is another tenant's does not exist."""
    name = f"{form.get('verb')}-many" if verb == CHOOSE else verb
    act = ACTS.get(kind, name)
    if act is None or (act.is_for_all and caller.tenant is not None):
        raise UnknownName(f"unknown action {verb!r:.40}")
    is_of_one = not name.endswith("-many") and name != MAKE
    if kind == "runs" and is_of_one:
        await caller.run(subject)
    if kind == "schedules" and is_of_one:
        await caller.schedule(subject)
    if kind == "backfills":
        await caller.check_backfill(number_in(subject))
    return act, Desk(caller, subject, form, form.get("reason"))


MANY, NEW, MAKE = "many", "new", "make"
CHOOSE = "choose"
"""The verb that a list of chosen ones is sent to: which one it is, the button says."""


async def _shown(
    request: Request, caller: Caller, prospect: Prospect, form: Form, back: str, refused: Refused | None = None
) -> Response:
    asked = {field.name for field in prospect.fields}
    problem = refused or prospect.refused
    carried = [
        (name, value)
        for name, values in form.values.items()
        if name not in _OURS | asked | {"preview"}
        for value in values
    ]
    values: dict[str, Any] = {
        "heading": prospect.heading,
        "will": prospect.will,
        "sample": prospect.sample,
        # What has to be said by whoever does it is not said by an address.
        "fields": [
            field
            if field.kind == "checkbox" and field.required
            else field._replace(value=form.typed(field.name) or field.value)
            for field in prospect.fields
        ],
        "button": prospect.button,
        "unsafe": prospect.unsafe,
        "may_go": prospect.may_go,
        "previews": prospect.previews,
        "action": quote(request.scope["path"], safe="/%:@~"),
        "back": back,
        "reason": form.typed("reason"),
        "refused": None if problem is None else str(problem),
        "blamed": None if problem is None else field_to_blame(problem, prospect.fields, form),
        "carried": carried,
        "request_key": secrets.token_urlsafe(12),
    }
    return await framed(request, caller, "act.html", values, 422 if refused else 200)


def _values(items: list[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in items:
        found.setdefault(name, []).append(value)
    return found


def _back(request: Request, kind: str, subject: str) -> str:
    """Where one came from; the thing's own page otherwise."""
    came = request.headers.get("referer")
    if came is not None:
        path = "/" + came.split("/", 3)[3] if came.count("/") >= 3 else "/"
        if not path.startswith("/act/"):
            return safe_back(path)
    if kind in ("runs", "schedules") and subject not in (MANY, NEW):
        return f"/{kind}/{quote(subject, safe='')}"
    return {"workers": "/fleet"}.get(kind, f"/{kind}")
