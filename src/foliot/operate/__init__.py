"""What operators do and see: actions with actor, reason and audit row, and read models. Used by CLI, API and pages.

    operator     the verbs, with those of the next ones
    pausing      pause and resume schedules, jobs, queues, tenants; drain and quarantine workers
    scheduling   make, edit, remove schedules at run time, one by one or from a file
    promising    promises by a job's name, without its code
    bulk         cancel or skip many runs by a filter
    recovering   retry, resume, rerun, verify, reconcile
    backfilling  preview, start, pause, resume, pace, cancel, progress of backfills
    limits       limit, unlimit, release: how many at a time, and how many in a time
    auditing     the log of all this: read by filters, verified, anchored
    tokens       who may act over HTTP: create, list, revoke; sessions, and what was asked before
    external     work that is done elsewhere, over HTTP: register, claim, beat, complete, fail
    telling      one run's story, one day's report, one job's card
    surveying    pages of runs and schedules, how everything stands, what needs attention
    surveyed     how these look in JSON, and in a few signs; pure
    keeping      for how long history is kept
    locking      keys that change: everything is locked anew
    alerting     alerts: list, snooze
    measuring    the numbers of the store, for metrics
    load         the load that the schedules will make, and its herds in words
    stating      schedules as people state them, checked without the code of their jobs; pure
    acting       what every action needs: who, why
    advising     what is safe to do about a run, and what to type; pure
    settling     a person's word about effects; pure
    story        a run's life, as a person would tell it; pure
    report       a day's work, in sentences, from records alone; pure
    jobs         jobs in words, and whether their limits fit what they do; pure
    rules        a rule of time before it is saved; pure
    shapes       how each thing looks in JSON; pure
    words        lengths, errors and numbers as people say them; pure
    crontab      schedules that are made of a crontab's lines; pure

Sees domain, timing and clock; is handed a store, and never imports one.
"""

from foliot.operate.operator import Operator

__all__ = ["Operator"]
