"""What operators do and see: actions with actor, reason and audit row, and read models. Used by CLI, API and pages.

    operator     the verbs, with those of the next three
    recovering   retry, resume, rerun, verify, reconcile
    backfilling  preview, start, pause, resume, pace, cancel, progress of backfills
    limits       limit, unlimit, release: how many at a time, and how many in a time
    auditing     the log of all this: read by filters, verified, anchored
    telling      one run's story, one day's report, one job's card
    surveying    pages of runs and schedules, how everything stands, what needs a person
    surveyed     how these look in JSON, and in a few signs; pure
    keeping      for how long history is kept
    load         the load that the schedules will make, and its herds in words
    acting       what every action needs: who, why
    advising     what is safe to do about a run, and what to type; pure
    settling     a person's word about effects; pure
    story        a run's life, as a person would tell it; pure
    report       a day's work, in sentences, from records alone; pure
    jobs         jobs in words, and whether their limits fit what they do; pure
    shapes       how each thing looks in JSON; pure
    words        lengths, errors and numbers as people say them; pure
    crontab      schedules that are made of a crontab's lines; pure

Sees domain, timing and clock; is handed a store, and never imports one.
"""

from foliot.operate.operator import Operator

__all__ = ["Operator"]
