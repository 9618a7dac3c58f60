"""What must not be silent: for now, attempts whose worker vanished.

The room looks at what others left behind and takes decisions about it; it never executes, claims or fires anything,
and never sees a concrete store, dispatch/ or work/.
"""

from foliot.watch.reaper import Reaper

__all__ = ["Reaper"]
