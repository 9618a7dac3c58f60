"""By which policy a run is executed: its job's, with what its schedule or its caller chose."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from foliot.domain.instant import SECOND, Duration
from foliot.domain.policy import Policy, choices_from_json
from foliot.domain.signals import without_trace
from foliot.errors import InvalidInput
from foliot.work.handler import Handler

_MOST = 10_000


class Policies:
    """Reads choices once: the same few are asked for again and again."""

    def __init__(self, handlers: Iterable[Handler], report: Callable[[tuple[str, str, str]], None]) -> None:
        self.shortest_lease: Duration = min((one.policy.lease for one in handlers), default=30 * SECOND)
        """Of all that were seen so far."""
        self._report = report
        self._known: dict[tuple[str, bytes], Policy] = {}

    def of(self, handler: Handler, options: bytes | None) -> Policy:
        options = without_trace(options)
        if options is None:
            return handler.policy
        policy = self._known.get((handler.name, options))
        return self._read(handler, options) if policy is None else policy

    def _read(self, handler: Handler, options: bytes) -> Policy:
        try:
            policy = handler.policy.merged(choices_from_json(options))
        except InvalidInput as error:  # a schedule's mistake must not stop the job, nor pass in silence
            self._report(("bad_policy", handler.name, str(error)))
            policy = handler.policy
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[handler.name, options] = policy
        self.shortest_lease = min(self.shortest_lease, policy.lease)
        return policy
