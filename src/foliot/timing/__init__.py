"""Rules of time: parse, next, previous, combine, explain.

Pure: now is an argument; no clock, no randomness, no environment. Sees foliot.domain and foliot.errors, and the tables
of the world (tzdata, holidays) as they come with their packages.
"""

from foliot.timing.business import (
    BusinessDay,
    BusinessDays,
    NearestBusinessDay,
    OnlyOn,
    business_day,
    business_days,
    nearest_business_day,
    only_on,
)
from foliot.timing.codec import decode, parse, takes_policy, takes_zone
from foliot.timing.combine import Composable
from foliot.timing.cron import Cron, cron
from foliot.timing.elapsed import After, At, Every, after, at, every
from foliot.timing.monthly import last_weekday, month_end, nth_weekday
from foliot.timing.recurrence import Recurrence, rrule
from foliot.timing.ticks import Overdue, jittered, overdue, upcoming
from foliot.timing.wall import chosen_policies
from foliot.timing.workdays import Workdays, workdays

__all__ = [
    "After",
    "At",
    "BusinessDay",
    "BusinessDays",
    "Composable",
    "Cron",
    "Every",
    "NearestBusinessDay",
    "OnlyOn",
    "Overdue",
    "Recurrence",
    "Workdays",
    "after",
    "at",
    "business_day",
    "business_days",
    "chosen_policies",
    "cron",
    "decode",
    "every",
    "jittered",
    "last_weekday",
    "month_end",
    "nearest_business_day",
    "nth_weekday",
    "only_on",
    "overdue",
    "parse",
    "rrule",
    "takes_policy",
    "takes_zone",
    "upcoming",
    "workdays",
]
