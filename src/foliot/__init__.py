"""Foliot: a durable, distributed job scheduler. The public names, and nothing else."""

from foliot.app import Foliot
from foliot.domain.run import Kept, Promise, Verdict
from foliot.errors import Cancelled, FoliotError, ItemsFailed, Maybe, Permanent, RetryAfter
from foliot.job import Job
from foliot.timing import (
    after,
    at,
    business_day,
    business_days,
    cron,
    every,
    last_weekday,
    month_end,
    nearest_business_day,
    nth_weekday,
    only_on,
    rrule,
    workdays,
)
from foliot.work.context import Context

__all__ = [
    "Cancelled",
    "Context",
    "Foliot",
    "FoliotError",
    "ItemsFailed",
    "Job",
    "Kept",
    "Maybe",
    "Permanent",
    "Promise",
    "RetryAfter",
    "Verdict",
    "after",
    "at",
    "business_day",
    "business_days",
    "cron",
    "every",
    "last_weekday",
    "month_end",
    "nearest_business_day",
    "nth_weekday",
    "only_on",
    "rrule",
    "workdays",
]
__version__ = "0.1.0"
