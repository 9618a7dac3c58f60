"""Rules of time: parse, next, previous, explain.

Pure: now is an argument; no clock, no randomness, no environment. Sees foliot.domain and foliot.errors.
"""

from foliot.timing.codec import decode, parse
from foliot.timing.crontab import Cron
from foliot.timing.rules import After, At, Every, after, at, cron, every
from foliot.timing.ticks import Overdue, jittered, overdue, upcoming

__all__ = [
    "After",
    "At",
    "Cron",
    "Every",
    "Overdue",
    "after",
    "at",
    "cron",
    "decode",
    "every",
    "jittered",
    "overdue",
    "parse",
    "upcoming",
]
