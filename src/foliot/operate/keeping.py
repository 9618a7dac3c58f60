"""For how long what is over is kept."""

from __future__ import annotations

from foliot.errors import InvalidInput
from foliot.operate.acting import Acting, acting, stated

_MOST = 36_500


class KeepVerbs(Acting):
    """The term of history."""

    async def retention_async(self) -> int | None:
        """For how many days ended runs, their attempts and events are kept; None: for ever."""
        return await (await self._opened()).keep_days()

    async def set_retention_async(self, days: int | None, *, reason: str, actor: str) -> None:
        """What is older goes within minutes, and does not come back. What waits for a person stays, and so does the
        operators' log."""
        if days is not None and (not isinstance(days, int) or isinstance(days, bool) or not 1 <= days <= _MOST):
            raise InvalidInput(f"days={days!r:.40}: give 1 to {_MOST:,} days, or none to keep history without limit")
        await (await self._opened()).set_keep_days(days, actor=acting(actor), note=stated(reason))

    def set_retention(self, days: int | None, *, reason: str, actor: str) -> None:
        self._call(lambda: self.set_retention_async(days, reason=reason, actor=actor), "set_retention_async")
