"""Where a job is found by a process that has not made it: by the module that has it, under its registered name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from foliot.errors import InvalidInput
from foliot.work.handler import Handler
from foliot.work.wire import Place

MAIN = "__main__"
_AS_MODULE = "__foliot_main__"
"""The name that a script has in another process: what stands below `if __name__ == "__main__"` does not run there."""


def place_of(handler: Handler) -> Place:
    """Where another process can import the job from. InvalidInput when it cannot."""
    for module in _candidates(handler):
        if any(found is handler for found in _handlers(module)):
            return Place(module.__name__, getattr(module, "__file__", None), handler.name)
    raise InvalidInput(
        f"{handler.name} cannot be imported by an isolated process: it, or its app, is not an attribute of a "
        'module; define a job with isolation="process" at the top of a module, not inside a function'
    )


def _candidates(handler: Handler) -> Iterator[ModuleType]:
    """The module of its function first: most jobs are decorated where they are defined."""
    own = sys.modules.get(getattr(handler.function, "__module__", None) or "")
    if own is not None:
        yield own
    yield from [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]


def _handlers(module: ModuleType) -> Iterator[Handler]:
    """Of all jobs that a module has under names, by themselves or in an app."""
    for value in list(vars(module).values()):
        # By their shape: this room does not know what an app is.
        jobs = _attribute(value, "jobs")
        for job in [value, *jobs.values()] if isinstance(jobs, dict) else [value]:
            found = _attribute(job, "handler")
            if isinstance(found, Handler):
                yield found


def _attribute(value: object, name: str) -> object:
    """One that is the object's own: whatever else a module holds may answer anything when it is asked for one."""
    own = None if isinstance(value, ModuleType | type) else getattr(value, "__dict__", None)
    return own.get(name) if isinstance(own, dict) else None


def handler_at(place: Place) -> Handler:
    """Imports it. InvalidInput when the module does not have it; whatever its code raises otherwise."""
    module = _imported(place)
    for handler in _handlers(module):
        if handler.name == place.job:
            return handler
    raise InvalidInput(
        f"{place.module} has no job {place.job!r} when an isolated process imports it; a job with "
        'isolation="process" must be defined on every import of its module'
    )


def _imported(place: Place) -> ModuleType:
    if place.module == MAIN:
        return _from_file(_AS_MODULE, place)
    if place.file is not None and _file_of(place.module) != Path(place.file):
        return _from_file(place.module, place)  # it was loaded from its file, under a name that leads nowhere
    return importlib.import_module(place.module)


def _file_of(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)


def _from_file(name: str, place: Place) -> ModuleType:
    spec = None if place.file is None else importlib.util.spec_from_file_location(name, place.file)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{place.job}: {place.module} is not in a file that an isolated process could import")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # annotations are looked up there
    spec.loader.exec_module(module)
    return module
