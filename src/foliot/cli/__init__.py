"""The `foliot` command: what operators type and read.

    command      the command itself, and what becomes of errors
    options      the options that several commands share
    settings     which app and which store
    output       tables, JSON, one-line errors
    words        times and lengths as people read them
    rules        next, explain
    preview      a rule on a calendar, before it is saved
    load         the load that the schedules will make, and its herds
    simulate     what an app's schedules would do, in virtual time
    plots        numbers in time, as blocks on a terminal; pure
    drawing      the same as a picture; pure
    schedules    list, show, pause, resume, trigger, delete
    editing      edit, apply: schedules that are changed at run time
    pauses       pause and resume of jobs, queues and tenants
    bulk         what is done to many at once: shown, asked for, done one by one
    runs         list, and show: a run's whole story
    recover      cancel, skip, release, retry, resume, rerun, verify, reconcile
    backfill     start, list, show, pause, resume, rate, cancel
    jobs         what the store knows of jobs
    limits       list, set, drop: how many at a time, and how many in a time
    tenants      who shares the workers
    top          how everything stands, live
    needs        what waits for a person, and the safe thing to do
    fleet        workers, and queues: who takes what
    alerts       list, show, snooze, unsnooze, check, test: what must not be silent
    tokens       create, list, revoke: who may act over HTTP
    audit        list, verify, anchor: what people did, and whether the log is sound
    keys         new, list, rotate: what stored values are locked with
    retention    show, set: for how long history is kept
    report       what became of a day's work, in sentences
    imports      schedules from other schedulers: crontab
    doctor       checks store, clock and fleet
    server       what the doctor makes of a PostgreSQL server; pure
    completion   a script for shells
    migrate      brings the store's tables to this release
    processes    scheduler, worker and web, until they are told to end
    up           all in one: a supervisor with child processes, and a live account of what happens
    supervisor   child processes that are started again when they die
    account      what happens, in lines; pure
    follow       what is new in the store

Sees operate, app, testing, timing, domain, clock and bootstrap; never a store, nor the rooms that move work.
"""

import sys

import typer.main

from foliot.cli.command import foliot, narrowed

__all__ = ["foliot", "main"]


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a tick mark gets a question mark, not an error.
        getattr(stream, "reconfigure", lambda **_: None)(errors="replace")
    typer.main.get_group(narrowed(sys.argv[1:2]))()
