"""Pages for browsers, drawn on the server: no script or style but from static/, and every form says its CSRF mark.

    login    log in with a token, log out
    forms    what a form sends, with its mark checked
    drawing  templates: everything that is stored is escaped
    static   files that browsers fetch, each by its whole name, open to anybody

A new page goes into a file here, its routes (a router with `PageRoute`) into `routes`, and a line for each of them into
`foliot.web.access.TABLE`.
"""

from __future__ import annotations

from starlette.routing import BaseRoute

from foliot.web.pages import login

routes: list[BaseRoute] = [route for part in (login,) for route in part.routes.routes]
