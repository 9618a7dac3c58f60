"""Compares two commits by turns: this one and another one, in one run.

A pair is one round with the code of each side, on the same workload and store. The sides change places from pair to
pair. The two rounds of bulk and single run at the same time, and take turns every 50 ms or so: both meet the same load
of the machine. Each round has a fresh store, and processes of its own. They import `foliot` from a copy of its `src`.
A folder is copied when the run begins: later edits do not disturb it.

Each pair gives a ratio: this relative to other, and larger is better. For rates it is this / other, for times
other / this. The 95 percent interval of the median ratio decides. A workload has passed if the lower bound is at least
0.95. It has failed if the upper bound is below 0.97. Otherwise more pairs are added, and after the last pair the
workload is reported as undecided.

The interval is computed from the order of the ratios alone, and needs six of them (see `decision`). It decides only
after 12, 20, 30 and 40 pairs. Four looks make more errors than one. In simulations, a commit with a true ratio of 0.95
passed in 5 of 100 comparisons. One with a true ratio of 0.97 failed in 5 of 100. One look alone allows 2.5 of 100.

Workloads, and the measure that decides:

    burst       30,000 runs due at one moment                runs per second, from due to the last start
    limits      10,000 at one moment, concurrency=10000      runs per second, from due to the last start
    waiters     3,000 at one moment, concurrency=50          runs per second, from due to the last start
    steady      500 runs per second for 3 s                  median lateness
    schedules   1,000 schedules, one tick per second, 3 s    median lateness
    start       processes start with 10,000 schedules,       time from their start to the first run
                one tick of each in 10 s
    idle        nothing due for 15 s, 20,000 far promises    wake-ups per second
    bulk        100,000 promises in batches of 1,000         promises per second, of the median turn
    single      2,000 promises, one after another            median time of one promise

These measures are what a user notices. The other ones are reported with their own intervals, and decide nothing. The
99th percentile of lateness depends on the few moments in which other programs take the processor. It differs by a
factor of two between equal rounds. Where other programs use both cores, workloads with a scheduler and a worker often
stay undecided. Then the CPU time per run says more: it differs by a few percent.

CPU time per run is user and system time, without the start of the processes. For burst, limits, waiters and steady it
covers scheduler and worker, from the first promise until outcomes are written. For schedules it covers them over 3
whole seconds, for start from their start on, and for idle the 15 s. For bulk and single it covers the process that
promises. On PostgreSQL the server's CPU time is included, and also reported by itself.

Runs are counted when their handler starts. A round checks that each run started once, and that none started before
it was due. The rate of a burst ends with the last start, and the rate "to the end" with the last outcome. A commit may
write more outcomes between the starts than another one. Then the second rate says more.
"""
