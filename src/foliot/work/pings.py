"""What an outside watcher is told of a run whose settings name one (`ping`): that it began, and how it ended."""

from __future__ import annotations

from collections.abc import Callable

from foliot.domain.run import Claimed, Ending
from foliot.domain.state import Event
from foliot.work.attempt import Attempt

Ping = Callable[[str, str, str], None]
"""Address, what (`start`, `fail`, `log`; empty for success), and what is said with it. Never waits."""

_SAID: dict[Event, str] = {
    Event.COMPLETED: "",
    Event.CHECK_PASSED: "",
    Event.EXHAUSTED: "fail",
    Event.GAVE_UP: "fail",
    Event.MAYBE_FOUND: "fail",
    Event.CHECK_REFUSED: "fail",
    Event.RETRY_GRANTED: "log",
    Event.CANCEL: "log",
    Event.DOUBTED: "log",
}
"""A success that is still to be checked, and what was given back, are nobody's news yet."""


def began(ping: Ping, url: str, claimed: Claimed) -> None:
    ping(url, "start", f"{claimed.id}/{claimed.attempt}")


def ended(ping: Ping, attempt: Attempt, ending: Ending) -> None:
    """Told when the attempt has ended, and before the store knows: should it be refused there, somebody else tells how
    the run went on."""
    what = _SAID.get(ending.event)
    if what is None or attempt.policy.ping is None:
        return
    detail = f"{attempt.claimed.id}/{ending.attempt}: {ending.outcome}"
    ping(attempt.policy.ping, what, f"{detail}\n{ending.error}" if ending.error else detail)
