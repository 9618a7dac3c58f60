"""What happens to a wall time that does not exist, or exists twice: a policy of each rule, never an accident."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from foliot.errors import InvalidRule


class Gap(StrEnum):
    """A wall time that the clocks jump over. After more than three hours (a zone that skips a day) always `skip`."""

    RUN_AFTER = "run_after"
    """Once, at the first instant after the gap, for however many of the rule's times fall into it."""
    SKIP = "skip"
    SHIFT_FORWARD = "shift_forward"
    """As much later as the gap is long: 02:30 becomes 03:30."""
    SHIFT_BACKWARD = "shift_backward"
    """As much earlier: 02:30 becomes 01:30."""


class Fold(StrEnum):
    """A wall time that comes twice, because the clocks are set back."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class IntervalLike(StrEnum):
    """Whether a rule whose minute or hour starts with `*` means elapsed time, and runs on through gap and fold."""

    AUTO = "auto"
    NEVER = "never"


class Dst(NamedTuple):
    """The three together."""

    gap: Gap = Gap.RUN_AFTER
    fold: Fold = Fold.FIRST
    interval_like: IntervalLike = IntervalLike.AUTO

    def settled(self, is_interval: bool) -> tuple[Gap, Fold]:
        """What the resolver has to do for a rule that looks like an interval, or for one that does not."""
        if is_interval and self.interval_like is IntervalLike.AUTO:
            return Gap.SKIP, Fold.BOTH
        return self.gap, self.fold

    def differing(self, other: Dst) -> dict[str, str]:
        """By name, what differs from another policy."""
        return {name: str(value) for name, value in self._asdict().items() if value != getattr(other, name)}

    def encoded(self) -> dict[str, str]:
        """Only what differs from Vixie's. That is the policy of stored rules which state none, whatever the default of
        new rules is."""
        return self.differing(VIXIE)


VIXIE = Dst()
RFC5545 = Dst(Gap.SHIFT_FORWARD)
PRESETS: dict[str, Dst] = {
    "vixie": VIXIE,
    # A time in a gap is read with the offset before the gap, so 02:30 is 03:30. A time that comes twice is the first.
    "rfc5545": RFC5545,
    # It runs what the clock on the wall shows for the first time, hourly rules too: the repeated hour is silent.
    "systemd": Dst(Gap.SKIP, Fold.FIRST, IntervalLike.NEVER),
    # java.util.Calendar reads a doubled time as standard time, so the first pass is silent; gaps have no firing.
    "quartz": Dst(Gap.SKIP, Fold.SECOND, IntervalLike.NEVER),
    # It counts the repeated hour once more, for fixed times too; times in a gap are passed over.
    "temporal": Dst(Gap.SKIP, Fold.BOTH, IntervalLike.NEVER),
}
"""How other schedulers treat the same days."""

Choice = TypeVar("Choice", bound=StrEnum)


def dst(
    preset: str | None = None,
    gap: str | None = None,
    fold: str | None = None,
    interval_like: str | None = None,
    *,
    default: Dst = VIXIE,
) -> Dst:
    """A preset, or the default of the rule, with what is said besides."""
    if preset is gap is fold is interval_like is None:
        return default
    if preset is not None and (not isinstance(preset, str) or preset not in PRESETS):
        raise InvalidRule(f"preset={preset!r:.80} is unknown; give one of {', '.join(PRESETS)}")
    chosen = default if preset is None else PRESETS[preset]
    return Dst(
        _choice(Gap, "gap", gap, chosen.gap),
        _choice(Fold, "fold", fold, chosen.fold),
        _choice(IntervalLike, "interval_like", interval_like, chosen.interval_like),
    )


def _choice(kind: type[Choice], name: str, given: Any, default: Choice) -> Choice:
    if given is None:
        return default
    try:
        return kind(given)
    except ValueError:
        raise InvalidRule(f"{name}={given!r:.80} is unknown; give one of {', '.join(kind)}") from None
