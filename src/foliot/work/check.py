"""Checks: what a job's author says about whether a run's business result is right.

A check is called after the handler has succeeded, or when nobody knows whether it did. It takes any of the job's
arguments by name, and changes nothing, so that it can be made again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from foliot.domain.policy import choices
from foliot.domain.run import Verdict
from foliot.errors import InvalidInput
from foliot.work.arguments import Arguments
from foliot.work.describe import clean

_DEFAULTS = {"timeout": "5m", "attempts": 3, "backoff": "5s"}
_MOST_SCOPE = 1_000


def check_choices(job: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    for name in settings:
        if name not in _DEFAULTS:
            raise InvalidInput(f"{job}: a check has no setting {name!r}; known settings: {', '.join(_DEFAULTS)}")
    return choices(_DEFAULTS | dict(settings))


class CheckArguments(Arguments):
    """Some of the arguments of a job, read from its payload as the job itself reads them."""

    __slots__ = ("_defaults", "_of_job")

    def __init__(self, job: str, check: Callable[..., Any], function: Callable[..., Any], of_job: Arguments) -> None:
        super().__init__(job, check)
        self._of_job = of_job
        # What a promise leaves out has the job's own default, unless the check has one itself.
        given = inspect.signature(function).parameters
        wanted = inspect.signature(check).parameters
        absent = inspect.Parameter.empty
        self._defaults = {
            name: given[name].default
            for name in self.fields
            if wanted[name].default is absent and name in given and given[name].default is not absent
        }
        for name in self.fields:
            if name not in of_job.fields and not of_job._open and wanted[name].default is absent:
                raise InvalidInput(
                    f"{job}: its check has the parameter {name}, which the job does not have; "
                    f"the job has: {', '.join(of_job.fields) or 'no arguments'}"
                )

    def decode(self, payload: bytes, bound: Mapping[str, Any] | None = None) -> dict[str, Any]:
        given = self._defaults | self._of_job.decode(payload, bound)
        return given if self._open else {name: given[name] for name in self.fields if name in given}


def verdict_of(answer: Any) -> Verdict:
    """What a check returned; InvalidInput when that is no verdict."""
    if isinstance(answer, bool):
        return Verdict(answer)
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], bool):
        ok, scope = answer
        if scope is None or isinstance(scope, str):
            return Verdict(ok, clean(scope, _MOST_SCOPE) or None if scope else None)
    raise InvalidInput(
        f"the check returned {answer!r:.80}, which is not a verdict; return True or False, or a Verdict with its "
        'scope: Verdict(True, "412 of 412 accounts")'
    )
