"""For tests, ours and users': virtual time, and faults put in on purpose.

The real dispatch, work and watch code, driven by a manual clock through `run_once()`, on a store in memory. Nothing
here is used in production.
"""

from foliot.clock import ManualClock
from foliot.domain.state import Outcome, State
from foliot.testing.world import World, virtual_time

__all__ = ["ManualClock", "Outcome", "State", "World", "virtual_time"]
