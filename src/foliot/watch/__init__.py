"""What must not be silent: attempts whose worker vanished, clocks that are wrong, runs that are missing; and what
one does for all.

The room looks at what others left behind and takes decisions about it; it never executes, claims or fires anything,
and never sees a concrete store, dispatch/ or work/.
"""

from foliot.watch.alarm import Alarm
from foliot.watch.backfilling import Backfiller
from foliot.watch.clocks import ClockWatch
from foliot.watch.duty import OnDuty
from foliot.watch.heralding import Herald
from foliot.watch.reaper import Reaper
from foliot.watch.retention import Retention
from foliot.watch.sealing import Sealer
from foliot.watch.sentry import Sentry

__all__ = [
    "Alarm",
    "Backfiller",
    "ClockWatch",
    "Herald",
    "OnDuty",
    "Reaper",
    "Retention",
    "Sealer",
    "Sentry",
]
