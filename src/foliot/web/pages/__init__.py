"""Pages for browsers, drawn on the server: no script or style but from static/, and every form says its CSRF mark.

    places    the pages that one can go to
    now, schedules, run, lists, alerts, fleet, ahead    what each of them shows; members is a part of a schedule's
    doing     actions: a page that shows what would happen, and the form that does it
    acting    what an action is; run_acts, schedule_acts and bulk_acts are all of them
    live      that something has changed, as server-sent events
    login     log in with a token, log out
    forms     what a form sends, with its mark checked
    drawing   templates: everything that is stored is escaped
    charts    drawings as SVG; pure
    words     how values are shown; pure
    asked     what an address asks for; pure
    telling   what is told after an action
    static    files that browsers fetch, each by its whole name, open to anybody

Every number on a page says where the JSON API has it: `data-of` of an element around it names the resource (`runs/ID`,
`overview`), its own `data-n` the field. A field that begins with # is counted from that resource. `words.fact` and the
macros for times in parts.html write both. `tests/web/test_numbers.py` refuses a digit without a meaning, and compares
each number with the API and with the rows of the store.

A new page goes into a file here, its routes (a router with `PageRoute`) into `routes`, and a line for each of them into
`foliot.web.access.TABLE`.
"""

from __future__ import annotations

from starlette.routing import BaseRoute

from foliot.web.pages import doing, live, login, places

routes: list[BaseRoute] = [route for part in (login, places, doing, live) for route in part.routes.routes]
