"""The process of one attempt: `python -m foliot.isolated FD`. What it does is in `foliot.work.child`.

Here it is told where it is at home: in the app that has the job, on the store of its worker.
"""

from __future__ import annotations

from foliot.app import Foliot, app_of
from foliot.domain.signals import Tracer
from foliot.work import child
from foliot.work.handler import Handler


def main() -> None:
    child.main(_home_of, _tracer_of)


def _home_of(handler: Handler, store: str | None) -> Foliot | None:
    """None when the store is one that only its worker can reach."""
    app = app_of(handler)
    if store is None or app is None:
        return None
    if app.store.url != store:  # the worker was given another one than the app's code names
        app.move_to(store)
    return app


def _tracer_of(handler: Handler) -> Tracer | None:
    app = app_of(handler)
    return None if app is None else app.tracer


if __name__ == "__main__":
    main()
