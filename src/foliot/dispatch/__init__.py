"""From durable promise to handed-off work: cells, wheel, admission, firing.

The room owns a shard of the store, keeps what is due soon in memory, and hands it off when its time has come. What is
in memory is only a cache: the store decides, inside the firing transaction, who owns the shard, what the time is and
what is still pending. It never runs a handler, never sees a concrete store, and never sees work/ or watch/.
"""

from foliot.dispatch.admission import decide_tick, decide_ticks
from foliot.dispatch.counters import DispatchCounters
from foliot.dispatch.dispatcher import Dispatcher, DispatcherStore
from foliot.dispatch.wheel import Entry, Wheel

__all__ = [
    "DispatchCounters",
    "Dispatcher",
    "DispatcherStore",
    "Entry",
    "Wheel",
    "decide_tick",
    "decide_ticks",
]
