"""Who may ask."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from foliot.domain.access import MOST_BOUNDS, Scope
from foliot.operate.tokens import token_shape
from foliot.web import models
from foliot.web.api.parts import page, problems, router
from foliot.web.caller import Asking
from foliot.web.fields import Act, Choice, Key, Length, Name, ReasonQuery, named
from foliot.web.routing import Answered

routes = router("tokens")

TokenName = Annotated[Key, named("Name of the token", "ci")]


class TokenBody(Act):
    name: Name
    scope: Choice[Scope] = Scope.READ
    tenant: Annotated[
        Name | None, Field(description="The token gives access only to runs, schedules and promises of this tenant.")
    ] = None
    all_tenants: Annotated[
        bool,
        Field(
            description="Scope work: allow runs of all tenants. Without this and `tenant`: only runs without a tenant."
        ),
    ] = False
    jobs: Annotated[
        list[Name], Field(max_length=MOST_BOUNDS, description="Scope work: allow only runs of these jobs.")
    ] = []
    queues: Annotated[
        list[Name], Field(max_length=MOST_BOUNDS, description="Scope work: allow only runs of these queues.")
    ] = []
    expires_in: Annotated[Length | None, Field(description="Default: no expiry.")] = None


@routes.get("/tokens", response_model=models.Page[models.Token], responses=problems())
async def list_tokens(asking: Asking) -> Any:
    """Lists all tokens by name, including revoked tokens."""
    now = await asking.operate.now_async()
    return page([token_shape(one, now) for one in await asking.operate.tokens_async()], None)


@routes.post("/tokens", status_code=201, response_model=models.NewToken, responses=problems(409, body=True))
async def create_token(asking: Asking, body: TokenBody) -> Any:
    """Creates a token. Only its hash is stored: this answer alone contains its text."""
    made = await asking.operate.create_token_async(
        body.name,
        reason=body.reason,
        actor=asking.actor,
        scope=body.scope,
        tenant=body.tenant,
        all_tenants=body.all_tenants,
        jobs=body.jobs,
        queues=body.queues,
        expires_in=body.expires_in,
    )
    shape = token_shape(made.token, await asking.operate.now_async())
    return Answered(shape | {"token": made.text}, 201, kept=shape | {"token": None})


@routes.delete("/tokens/{token}", response_model=models.Token, responses=problems(404))
async def revoke_token(asking: Asking, token: TokenName, reason: ReasonQuery) -> Any:
    """Revokes a token and ends its sessions."""
    revoked = await asking.operate.revoke_token_async(token, reason=reason, actor=asking.actor)
    return Answered(token_shape(revoked, await asking.operate.now_async()))
