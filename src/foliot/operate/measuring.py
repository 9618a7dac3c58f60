"""Metrics of the whole fleet, as a verb."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot.operate.acting import Acting

if TYPE_CHECKING:
    from foliot.operate.metrics import FleetMetrics


class MetricVerbs(Acting):
    _metrics: FleetMetrics | None = None

    async def metrics_async(self) -> bytes:
        """What the store knows of the whole fleet, in the format of Prometheus (`foliot.operate.metrics.CONTENT_TYPE`).
        Ask the same app again and again: what has ended is counted from one time to the next."""
        if self._metrics is None:
            from foliot.operate.metrics import FleetMetrics  # who asks for none need not wait for its library

            self._metrics = FleetMetrics(self._opened)
        return await self._metrics.render()

    def metrics(self) -> bytes:
        return self._call(self.metrics_async, "metrics_async")
