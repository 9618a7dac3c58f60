"""HTTP: the API under /api/v1, whether ticks happen, and a place for pages. For programs, browsers, workers elsewhere.

    server       one process that serves, until it is told to end
    application  all of it put together, as an ASGI application
    settings     where it listens, and what it lets in
    access       who may ask for what: every route, in one table
    gate         what comes first: sizes, host, origin, who it is; and headers on whatever goes out
    slots        how much may be open at the same time
    entrance     whose token or session it is
    routing      what every route has in common: scope, tenant, JSON, Idempotency-Key
    caller       who asks, and what exists for them
    problems     errors as application/problem+json
    fields       what requests are made of
    models       what answers are made of
    openapi      the description of it all
    health       /healthz, /readyz, /metrics
    api/         the routes under /api/v1, a file for each kind of thing
    pages/       for browsers: login, and whatever is drawn; templates/ and static/ are theirs

Sees operate, app, timing and domain; never a store, nor the rooms that move work. No other room knows the framework.
"""
