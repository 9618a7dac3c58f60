"""Templates. Whatever is stored may be anything: all of it is escaped, everywhere."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from foliot import __version__
from foliot.web.entrance import Principal
from foliot.web.gate import PRINCIPAL


@cache
def templates() -> Environment:
    return Environment(
        loader=PackageLoader("foliot.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def drawn(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A page. Templates see `csrf`, for the hidden field of every form, and `principal`: who looks."""
    principal: Principal | None = request.scope.get(PRINCIPAL)
    text = (
        templates()
        .get_template(template)
        .render(version=__version__, principal=principal, csrf="" if principal is None else principal.csrf, **values)
    )
    return HTMLResponse(text, status)
