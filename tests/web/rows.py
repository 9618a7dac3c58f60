"""Counts of what a store has, made in plain Python from its rows. Nothing here uses the code that pages and API use.

`Rows(world)` reads the tables. `Rows.resource("runs/ID")` is what the API would say of it, as far as pages show numbers
of it: instants are `At`, durations `Length`, shares `Part`, both in microseconds; a sentence is `Said`.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import parse_qsl
from zoneinfo import ZoneInfo

from foliot.testing import World

MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000
ALIVE = 15_000_000
LATE = MINUTE
STATES = {
    0: "scheduled",
    1: "retrying",
    2: "held",
    3: "ready",
    4: "running",
    5: "verifying",
    10: "succeeded",
    11: "verified",
    12: "reconciled",
    13: "cancelled",
    14: "skipped",
    20: "unverified",
    21: "dead",
    22: "ambiguous",
    23: "settled",
}
ORIGINS = {0: "scheduled", 1: "delayed", 2: "manual", 3: "backfill", 4: "rerun"}
LANES = {0: "live", 1: "catch-up", 2: "backfill"}
PARKED = ("unverified", "dead", "ambiguous", "settled")
USEFUL = ("succeeded", "verified")
_TABLES = (
    *("run", "history", "attempt", "effect", "item", "batch", "schedule", "instance", "shard", "handoff", "claim"),
    *(
        "alert",
        "backfill",
        "audit",
        "member",
        "series",
        "gate",
        "slot",
        "pause",
        "event",
        "edit",
        "cancellation",
        "watched",
    ),
)


class At(int):
    """Microseconds since 1970."""


class Length(int):
    """Microseconds."""


class Part(float):
    """A share; 1.0 is all of it."""


class Said(NamedTuple):
    """A sentence with numbers: by name, what each of them has to be."""

    values: Mapping[str, Any]


class OneOf(NamedTuple):
    values: frozenset[Any]


class Numbers(NamedTuple):
    """A text of which all numbers are these, in order."""

    values: tuple[int, ...]


class Settings(NamedTuple):
    """Sentences about settings: each number or length in them is one of these."""

    values: frozenset[Any]


Record = dict[str, Any]


def _counts_in(detail: str) -> Counter[str]:
    """The states in "1,002 of 1,005; 2 dead, 1 skipped": the members that are done count as succeeded."""
    found = re.findall(r"([0-9][0-9,]*) ([a-z]+)", detail.replace(" of ", " succeeded of "))
    return Counter({state: number for count, state in found if (number := int(count.replace(",", "")))})


def at(value: int | None) -> At | None:
    return None if value is None else At(value)


def lasted(start: int | None, end: int | None) -> Length | None:
    return None if start is None or end is None else Length(max(end - start, 0))


class Rows:
    def __init__(self, world: World, rules: Mapping[str, Rule] | None = None) -> None:
        self.now = world.clock.now()
        self.rules = rules or {}
        self.tables: dict[str, list[Record]] = world.call(_read(world))
        self.shard_count = world.store.shard_count
        self.claimed = {number: claim for claim in self.claim for number in _numbers(claim["numbers"])}
        self.unwritten = {number for number, claim in self.claimed.items() if claim.get("written") is False}
        versions = {row["number"]: row["version"] or 0 for row in self.run}
        self.chunks: dict[int, Record] = {}
        """By number, the chunk that names a run and is not out of date."""
        for chunk in self.handoff:
            for number in _numbers(chunk["numbers"]):
                if chunk["version"] is None or versions.get(number, 0) == chunk["version"]:
                    self.chunks[number] = chunk
        self.attempts: defaultdict[int, list[Record]] = defaultdict(list)
        for row in sorted(self.attempt, key=lambda row: (row["attempt"], row["token"])):
            self.attempts[row["run"]].append(row)
        self.live = [self._live(row) for row in self.run]
        self.ended = [self._view(row, STATES[row["state"]]) for row in self.history]
        self.runs = {run["id"]: run for run in (*self.ended, *self.live)}

    def __getattr__(self, table: str) -> list[Record]:
        return self.tables[table]

    # Runs

    def _live(self, row: Record) -> Record:
        row = dict(row)
        state, claim = row["state"], self.claimed.get(row["number"])
        if state < 2 and claim is not None and claim.get("written") is False:
            claimed_at = max(claim["claimed_at"], row["fire_at"])
            state = 5 if row["phase"] is not None else 4
            row |= {
                "attempt": row["attempt"] + 1,
                "worker": claim["worker"],
                "claimed_at": claimed_at,
                "fired_at": min(claim["fired_at"], claimed_at),
                "reason": None,
                "detail": None,
                "lane": claim["lane"],
                "started_at": row["started_at"] if row["phase"] is not None else None,
            }
        elif row["phase"] is not None and state in (0, 1, 4):
            state = 5
        elif state < 2 and row["waits_for"] is not None:
            state = 2
        elif state < 2 and row["fire_at"] <= self.now and row["number"] in self.chunks:
            state = 3
        elif state == 22 and row["reason"] == "settled":
            state = 23
        return self._view(row | {"finished_at": None, "span_count": 1, "span_until": None}, STATES[state])

    def _view(self, row: Record, state: str) -> Record:
        schedule, _, rest = (row["schedule"] or "").partition("[")
        begun = row["started_at"] or row["claimed_at"]
        nominal = row["fire_at"] if row["nominal"] is None else row["nominal"]
        progress = json.loads(row["progress"]) if row["progress"] else None
        return {
            "id": row["name"] or _base32(row["number"]),
            "number": row["number"],
            "state": state,
            "origin": ORIGINS[row["origin"]],
            "lane": LANES[row["lane"]],
            "job": row["job"],
            "schedule": schedule or None,
            "member": rest[:-1] or None,
            "tenant": row["tenant"],
            "queue": row["queue"] or "default",
            "reason": row["reason"],
            "detail": self._detail(row, state),
            "nominal": At(nominal),
            "since": at(row["since"]),
            "made_at": At(1_577_836_800_000_000 + (row["number"] >> 22) * 1_000),
            "fire_at": At(row["fire_at"]),
            "fired_at": at(row["fired_at"]),
            "claimed_at": at(row["claimed_at"]),
            "started_at": at(row["started_at"]),
            "finished_at": at(row["finished_at"]),
            "late": lasted(row["fire_at"], begun),
            "took": lasted(row["started_at"], row["finished_at"]),
            "attempt": row["attempt"],
            "spent": row["spent"],
            "priority": row["priority"],
            "revision": row["revision"],
            "worker": row["worker"],
            "progress": progress,
            "span_count": row["span_count"] or 1,
            "span_until": at(row["span_until"]),
            "is_tick": row["member_set"] is not None,
            "lineage": row["lineage"] or row["number"],
            "deaths": row.get("deaths"),
            "phase": row.get("phase"),
        }

    def _detail(self, row: Record, state: str) -> Any:
        """What is said of a tick over members is counted; all else is stored text."""
        text = row["detail"] or row.get("withdrawn")
        if row["member_set"] is None or text is None or not re.match("[0-9]", text):
            return text
        return Said({"tick": row["name"], "counted": text if row["finished_at"] is not None else None})

    def tick_counts(self, tick: str, counted: str | None = None) -> Counter[str]:
        """Members' runs of a tick, by state; of one that was rerun, the last. `counted`: the detail of an ended tick,
        which holds while a run of a member is under way again."""
        newest: dict[str, Record] = {}
        for run in self.runs.values():
            if run["id"].startswith(f"{tick}["):
                member = run["id"].partition("[")[2].partition("]")[0]
                if run["state"] == "skipped" and run["reason"] == "revised":
                    continue  # it left the set
                if counted is not None and run["finished_at"] is None and run["state"] not in PARKED:
                    return _counts_in(counted)
                if member not in newest or newest[member]["number"] < run["number"]:
                    newest[member] = run
        return Counter(run["state"] for run in newest.values())

    def times(self, run: Record) -> frozenset[int]:
        """All moments that a story of the run can name."""
        found: set[Any] = {
            run[name]
            for name in ("nominal", "made_at", "fire_at", "fired_at", "claimed_at", "started_at", "finished_at")
        }
        for one in (*self.attempts_of(run), *self.effects_of(run)):
            found |= {one.get(name) for name in ("started_at", "finished_at", "ended_at")}
        found |= {one["at"] for one in (*self.event, *self.audit) if one["subject"] == run["id"]}
        return frozenset(At(one) for one in found | {self.now} if one is not None)

    def attempts_of(self, run: Record) -> list[Record]:
        known = [row for row in self.attempts[run["number"]] if row["outcome"] != "fenced"]
        known += [
            row
            for row in self.attempts[run["number"]]
            if row["outcome"] == "fenced" and row["attempt"] not in {one["attempt"] for one in known}
        ]
        found = [
            {
                "attempt": row["attempt"],
                "worker": row["worker"],
                "started_at": at(row["started_at"]),
                "finished_at": at(row["finished_at"]),
                "took": lasted(row["started_at"], row["finished_at"]),
                "outcome": row["outcome"],
                "error": headline(row["error"]),
                "progress": json.loads(row["progress"]) if row["progress"] else None,
            }
            for row in known
        ]
        if run["worker"] is not None and run["attempt"] not in {
            one["attempt"] for one in found if one["outcome"] != "fenced"
        }:
            found = [one for one in found if one["attempt"] != run["attempt"]] + [
                {
                    "attempt": run["attempt"],
                    "worker": run["worker"],
                    "started_at": run["started_at"],
                    "finished_at": run["finished_at"],
                    "took": run["took"],
                    "outcome": "succeeded" if run["state"] in USEFUL else None,
                    "error": None,
                    "progress": run["progress"],
                }
            ]
        return sorted(found, key=lambda one: one["attempt"])

    def losses(self, run: Record) -> int:
        """How many of its last attempts were lost, one after another."""
        outcomes = [row["outcome"] for row in self.attempts[run["number"]]]
        counted = [one == "lost" for one in outcomes if one not in ("interrupted", "fenced")]
        return [*counted[::-1], False].index(False)

    def effects_of(self, run: Record) -> list[Record]:
        return sorted((one for one in self.effect if one["lineage"] == run["lineage"]), key=lambda one: one["n"])

    def batches_of(self, run: Record) -> list[Record]:
        found = []
        for batch in sorted(self.batch, key=lambda one: one["name"]):
            if batch["lineage"] != run["lineage"]:
                continue
            effects = [one for one in self.effects_of(run) if one["batch"] == batch["name"]]
            names = {one["name"] for one in effects}
            items = {
                one["key"]: one
                for one in self.item
                if (one["lineage"], one["batch"]) == (run["lineage"], batch["name"])
            }
            kinds: Counter[str] = Counter()
            for key in items.keys() | {one["item"] for one in effects}:
                item, own = items.get(key), [one for one in effects if one["item"] == key]
                if item is not None and item["state"] == "done":
                    kinds["done"] += 1
                elif any(one["state"] == "started" for one in own):
                    kinds["in_doubt"] += 1
                elif own and names == {
                    one["name"]
                    for one in own
                    if one["state"] == "done" and (item is None or one["ended_at"] > item["at"])
                }:
                    kinds["done"] += 1
                elif item is not None:
                    kinds["failed"] += 1
            left = 0 if batch["size"] is None else max(batch["size"] - kinds.total(), 0)
            found.append(
                {
                    "name": batch["name"],
                    "of": batch["size"],
                    "done": kinds["done"],
                    "in_doubt": kinds["in_doubt"],
                    "failed": kinds["failed"],
                    "not_done": left,
                }
            )
        return found

    def whole_run(self, identifier: str) -> Record:
        run = self.runs[identifier]
        effects, batches = self.effects_of(run), self.batches_of(run)
        states = Counter(one["state"] for one in effects)
        counts: Record = {"done": states["done"], "in_doubt": states["started"], "not_done": states["not_done"]}
        begun = {f"{one['name']}:{one['key']}": one for one in effects if one["state"] == "started"}
        return run | {
            "attempts": self.attempts_of(run),
            "effects": [
                {"started_at": At(one["started_at"]), "ended_at": at(one["ended_at"]), "attempt": one["attempt"]}
                for one in effects
            ],
            "batches": batches,
            "#times": self.times(run),
            "#headlines": {one["attempt"]: headline(one["error"]) for one in self.attempts_of(run) if one["error"]},
            "advice": {
                "lead": Said(
                    {
                        "tries": run["attempt"],
                        "deaths": run["deaths"],
                        "fire_at": run["fire_at"],
                        "worker": run["worker"],
                        "silence": Length(self.now - self.said_at(run)) if run["state"] == "running" else None,
                        "detail": run["detail"],
                        "tick": run["id"],
                    }
                ),
                "counts": [
                    Said(
                        {"done": one["done"], "of": one["done"] + one["failed"] if one["of"] is None else one["of"]}
                        | {key: one[key] for key in ("in_doubt", "not_done", "failed")}
                    )
                    for one in batches
                ]
                + [Said(counts)],
                "look": [
                    Said({"started_at": At(one["started_at"]), "attempt": one["attempt"], "name": name})
                    for name, one in list(begun.items())[:5]
                ]
                + ([Said({"more": len(begun) - 5})] if len(begun) > 5 else []),
            },
            "#effects": len(effects),
            "#more": run["span_count"] - 1,
        }

    # Everything at a glance

    def failed_at(self, run: Record) -> int:
        ends = [int(row["finished_at"]) for row in self.attempts[run["number"]]]
        return max(ends, default=int(run["fire_at"]))

    def tallies(self) -> dict[int, Counter[str]]:
        """By minute, how runs with a time to keep ended, or failed."""
        jitters = {one["id"]: json.loads(one["policy"]).get("jitter", 0) for one in self.schedule}
        found: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for run in self.ended:
            if run["origin"] not in ("scheduled", "delayed") or run["is_tick"]:
                continue
            minute = found[run["finished_at"] // MINUTE]
            match run["state"]:
                case "succeeded" | "verified":
                    first = [row["started_at"] for row in self.attempts[run["number"]] if row["started_at"] is not None]
                    begun = (
                        min(first)
                        if first and run["attempt"] > 1
                        else run["started_at"] or run["claimed_at"] or run["nominal"]
                    )
                    is_late = begun - run["nominal"] > LATE + (jitters.get(run["schedule"]) or 0)
                    minute["late" if is_late else "on_time"] += 1
                case "skipped":
                    missed = run["reason"] in ("misfire", "too_late")
                    minute["missed" if missed else "skipped"] += run["span_count"]
                case state:
                    minute["settled" if state == "reconciled" else state] += 1
        for run in self.live:
            if run["state"] in PARKED and run["origin"] in ("scheduled", "delayed") and not run["is_tick"]:
                found[self.failed_at(run) // MINUTE]["failed"] += 1
        return found

    def tally(self, length: int) -> Record:
        first = (self.now - length) // MINUTE
        total: Counter[str] = Counter()
        for minute, counts in self.tallies().items():
            total += counts if minute > first else Counter()
        names = ("on_time", "late", "missed", "skipped", "cancelled", "settled", "failed")
        promised = sum(total[name] for name in ("on_time", "late", "missed", "failed"))
        return {name: total[name] for name in names} | {"promised": promised}

    def in_state(self, *states: str) -> list[Record]:
        return [run for run in self.live if run["state"] in states]

    def instances(self, role: str) -> list[Record]:
        return [one for one in self.instance if one["role"] == role and one["ended_at"] is None]

    def alive(self, role: str) -> list[Record]:
        return [one for one in self.instances(role) if self.now - one["beat_at"] < ALIVE]

    def ready(self) -> list[tuple[Record, Record]]:
        """Runs, and checks of runs, that wait for a worker, each with its chunk."""
        waiting = {
            row["number"]
            for row in self.run
            if row["state"] < 2 and row["waits_for"] is None and row["fire_at"] <= self.now
        }
        waiting &= self.chunks.keys() - self.unwritten
        return [(run, self.chunks[run["number"]]) for run in self.live if run["number"] in waiting]

    def overview(self) -> Record:
        hour, day = self.tally(HOUR), self.tally(DAY)
        ready = self.ready()
        since = min((chunk["fired_at"] for _, chunk in ready), default=None)
        running = self.in_state("running")
        due = [
            run
            for run in self.in_state("scheduled", "retrying", "verifying")
            if run["fire_at"] <= self.now
            and run["number"] not in self.claimed
            and not (run["state"] == "verifying" and run["is_tick"])
        ]
        ticks = [
            one["evaluated_through"] for one in self.schedule if (one["evaluated_through"] or self.now + 1) <= self.now
        ]
        held = [one for one in self.shard if one["owner"] is not None and one["until"] > self.now]
        beats = {
            role: max((one["beat_at"] for one in self.instances(role)), default=None)
            for role in ("scheduler", "worker")
        }
        workers = self.alive("worker")
        return {
            "last_hour": hour,
            "last_day": day,
            "running": len(running),
            "retrying": len(self.in_state("retrying")),
            "held": len(self.in_state("held")),
            "waiting": len(ready),
            "lanes": {
                lane: {"waiting": sum(LANES[chunk["lane"]] == lane for _, chunk in ready)} for lane in LANES.values()
            },
            "queue_delay": None if since is None else Length(max(self.now - since, 0)),
            "early": sum(
                (row["started_at"] or row["claimed_at"]) < row["fire_at"]
                for row in self.attempt
                if row["fire_at"] is not None and (row["started_at"] or row["claimed_at"]) is not None
            ),
            "needs_person": len(self.in_state(*PARKED))
            + len(self.stuck())
            + len(self.failing())
            + len(self.set_aside()),
            "schedulers": {
                "what": Said(
                    {
                        "alive": len(self.alive("scheduler")),
                        "held": len(held),
                        "shards": self.shard_count,
                        "tick": Length(self.now - max(ticks)) if ticks else None,
                        "heard": at(beats["scheduler"]),
                        "overdue": len(due),
                        "first": Length(self.now - min(run["fire_at"] for run in due)) if due else None,
                    }
                )
            },
            "#clocks": Said({}),
            "workers": {
                "what": Said(
                    {
                        "alive": len(workers),
                        "busy": len(running),
                        "slots": sum(one["slots"] for one in workers),
                        "heard": at(beats["worker"]),
                        # Said only of a run that waits for longer than a minute.
                        "waiting": 0 if since is None or self.now - since <= MINUTE else len(ready),
                        "first": None if since is None else Length(self.now - since),
                    }
                )
            },
        }

    # Schedules

    def of_schedule(self, name: str, runs: Iterable[Record]) -> list[Record]:
        return [run for run in runs if run["schedule"] == name and run["member"] is None]

    def stuck(self) -> list[Record]:
        """Of the sample, only the job `slow` says how long a silence may last: 4 minutes."""
        return [
            run
            for run in self.in_state("running")
            if run["job"] == "slow"
            and self.now - max(filter(None, (run["started_at"] or run["claimed_at"], self.heard(run)))) > 4 * MINUTE
        ]

    def heard(self, run: Record) -> int | None:
        return (run["progress"] or {}).get("at")

    def said_at(self, run: Record) -> int:
        """When a run last said something of its progress, or began."""
        return max(one for one in (run["started_at"], run["claimed_at"], self.heard(run)) if one is not None)

    def set_aside(self) -> list[Record]:
        return [one for one in self.schedule if one["fault"] is not None]

    def decided(self, name: str) -> list[Record]:
        """What was decided upon, the newest first; not the run that waits for the next tick."""
        following = self.next_tick(name)
        live = [
            run
            for run in self.of_schedule(name, self.live)
            if run is not following
            and not (run["lane"] == "backfill" and run["state"] in ("scheduled", "held", "retrying", "ready"))
        ]
        return sorted([*live, *self.of_schedule(name, self.ended)], key=_by_tick, reverse=True)

    def next_tick(self, name: str) -> Record | None:
        waiting = [
            run
            for run in self.of_schedule(name, self.live)
            if run["state"] in ("scheduled", "held")
            and run["origin"] == "scheduled"
            and run["fired_at"] is None
            and not run["attempt"]
            and run["lane"] != "backfill"
        ]
        return max(waiting, key=lambda run: run["nominal"], default=None)

    def in_a_row(self, name: str) -> int:
        count = 0
        for run in self.decided(name):
            if run["state"] in PARKED:
                count += 1
            elif run["state"] in (*USEFUL, "reconciled"):
                break
        return count

    def failing(self) -> list[str]:
        return [one["id"] for one in self.schedule if self.in_a_row(one["id"]) >= 3]

    def mark(self, run: Record, policy: Record) -> str | None:
        if run["state"] in PARKED:
            return "failed"
        fixed = {"reconciled": "settled", "cancelled": "skipped"}
        if run["state"] in fixed:
            return fixed[run["state"]]
        if run["state"] == "skipped":
            return "missed" if run["reason"] in ("misfire", "too_late") else "skipped"
        if run["state"] not in USEFUL:
            return None
        if run["reason"] == "partial":
            return "partial"
        if self.tries(run) > 1:
            return "retried"
        begun = run["started_at"] or run["claimed_at"]
        late = 0 if begun is None else begun - run["nominal"]
        return "late" if late > (policy.get("missed_after") or MINUTE) + (policy.get("jitter") or 0) else "kept"

    @staticmethod
    def tries(run: Record) -> int:
        """Attempts that count; the last one of a verified run was its check."""
        return max(int(run["attempt"]) - 1, 1) if run["state"] == "verified" else int(run["spent"])

    def whole_schedule(self, name: str) -> Record:
        [row] = [one for one in self.schedule if one["id"] == name]
        policy = json.loads(row["policy"])
        decided, following = self.decided(name), self.next_tick(name)
        ended = sorted(self.of_schedule(name, self.ended), key=_by_tick, reverse=True)[:30]
        kept = {run["id"] for run in ended}
        parked = {
            run["id"]
            for run in sorted(self.of_schedule(name, self.in_state(*PARKED)), key=lambda run: -run["number"])[:30]
        }
        last = [
            run
            for run in decided
            if run["id"] in kept
            or run["id"] in parked
            or run["state"] not in (*PARKED, *USEFUL, "reconciled", "cancelled", "skipped")
        ]
        at_work = [run for run in self.of_schedule(name, self.live) if run["state"] in ("running", "verifying")]
        useful = [run for run in ended if run["state"] in USEFUL]
        took = [run["took"] for run in reversed(useful) if run["took"] is not None]
        intervals = [
            run["nominal"] - run["since"]
            for run in useful
            if run["since"] is not None and run["nominal"] > run["since"]
        ]
        begun = [
            (run["started_at"] or run["claimed_at"]) - run["nominal"]
            for run in last
            if run["state"] in (*USEFUL, "running", "verifying")
            and (run["started_at"] or run["claimed_at"]) is not None
            and run["origin"] not in ("backfill", "rerun")
        ]
        delays = [run["claimed_at"] - run["fired_at"] for run in useful if run["claimed_at"] and run["fired_at"]]
        tried = [self.tries(run) for run in last]
        all_useful = [run for run in self.of_schedule(name, self.ended) if run["state"] in USEFUL]
        newest = max(all_useful, key=_by_tick, default=None)
        in_work = [
            max(self.now - (run["started_at"] or run["claimed_at"] or run["fired_at"] or run["fire_at"]), 0)
            for run in at_work
        ]
        workers = {one["number"]: one for one in self.instance}
        heard = [max(self.now - workers[run["worker"]]["beat_at"], 0) for run in at_work if run["worker"] in workers]
        backlog = sum(
            max(one["total"] - one["made"] - one["existed"], 0)
            for one in self.backfill
            if one["schedule"] == name and one["ended_at"] is None
        )
        backlog += sum(
            run["lane"] == "backfill" and run["state"] not in PARKED for run in self.of_schedule(name, self.live)
        )
        merged = [run["span_count"] for run in ended if run["reason"] in ("overlap", "coalesced", "replaced")]
        marks: list[str] = []
        for run in last:
            if (mark := self.mark(run, policy)) is not None and run["origin"] == "scheduled":
                marks += [mark] * min(run["span_count"], 30)
        paused = row["paused_at"] is not None and (row["paused_until"] is None or row["paused_until"] > self.now)
        return {
            "strip": list(reversed(marks[:30])),
            "durations": [Length(one) for one in took],
            "next_fire_at": None if following is None else following["fire_at"],
            "last_success_at": None if newest is None else newest["finished_at"],
            "paused_until": at(row["paused_until"]) if paused else None,
            "active": len(at_work),
            "queue_delay": Length(int(median(delays))) if delays else None,
            "late": Length(max(begun[0], 0)) if begun else None,
            "latest": Length(max([*begun, 0])) if begun else None,
            "runtime_to_interval": Part(median(took) / median(intervals)) if took and intervals else None,
            "retries": sum(count - 1 for count in tried if count > 1),
            "retrying": len(self.of_schedule(name, self.in_state("retrying"))),
            "useful_per_attempt": Part(
                sum(run["reason"] != "partial" or run["state"] == "verified" for run in useful) / sum(tried)
            )
            if sum(tried)
            else None,
            "partial": sum(run["reason"] == "partial" for run in useful),
            "completed": sum(run["span_count"] for run in ended),
            "emitted": sum(run["span_count"] for run in last),
            "overlaps": sum(merged) + max(len(at_work) - 1, 0),
            "failures_in_a_row": self.in_a_row(name),
            "backlog": backlog,
            "revision": row["revision"],
            "priority": row["priority"],
            "edited": {"at": next((At(one["at"]) for one in self.edit if one["schedule"] == name), None)},
            "#oldest": Length(max(in_work)) if in_work else None,
            "#heard": Length(min(heard)) if heard else None,
            "#median": Length(sorted(took)[len(took) // 2]) if took else None,
            "#members": sum(one["member_set"] == row["member_set"] for one in self.member),
            "words": Numbers(self.rules[row["id"]].words),
            "next": [At(tick) for tick in self.coming(row)],
            "#policy": Settings(frozenset(_settings(policy))),
            "#what": Said({"row": self.in_a_row(name)}),
            "#since": self.failed_since(name),
        }

    def failed_since(self, name: str) -> At | None:
        failed = []
        for run in self.decided(name):
            if run["state"] in PARKED:
                failed.append(run)
            elif run["state"] in (*USEFUL, "reconciled"):
                break
        return min((run["fire_at"] for run in failed), default=None)

    def coming(self, row: Record) -> list[int]:
        """The next eight ticks by the rule; a fixed delay knows at most the one that is waiting."""
        following = self.next_tick(row["id"])
        if self.rules[row["id"]].delay:
            return [] if following is None else [following["nominal"]]
        return self.rules[row["id"]].after(self.now, 8)

    def member_of(self, schedule: str, member: str) -> Record:
        [row] = [one for one in self.schedule if one["id"] == schedule]
        [added] = [
            one["added_at"] for one in self.member if (one["member_set"], one["key"]) == (row["member_set"], member)
        ]
        useful = [
            run["finished_at"]
            for run in self.ended
            if run["schedule"] == schedule and run["member"] == member and run["state"] in USEFUL
        ]
        newest = max(useful, default=None)
        return {
            "useful_at": newest,
            "added_at": At(added),
            "age": Length(self.now - (added if newest is None else newest)),
        }

    # Others

    def listed(self, query: str) -> list[Record]:
        """Runs by the filters of a link."""
        asked: defaultdict[str, list[str]] = defaultdict(list)
        for name, value in parse_qsl(query):
            asked[name].append(value)
        found = list(self.runs.values())
        stuck = {run["id"] for run in self.stuck()}
        for name, values in asked.items():
            match name:
                case "condition":
                    assert values == ["stuck"]
                    found = [run for run in found if run["id"] in stuck]
                case "needs_person":
                    found = [run for run in found if run["state"] in PARKED]
                case "schedule" if "member" not in asked:
                    found = [run for run in found if (run["schedule"] or "-") == values[0] and run["member"] is None]
                case _:
                    found = [run for run in found if (run[name] or "-") in values]
        return sorted(found, key=lambda run: -run["number"])

    def resource(self, name: str) -> Record:
        kind, _, rest = name.partition("/")
        path, _, query = name.partition("?")
        if path == "runs" and "?" in name:
            runs = self.listed(query)
            return {
                "#": len(runs),
                "#newest": self.parked_since(runs[0]) if runs else None,
                "#since": self.parked_since(runs[-1]) if runs else None,
                "#detail": headline(runs[0]["detail"]) if runs else None,
            }
        if kind == "runs":
            run = self.runs[rest]
            detail = run["detail"]
            return self.whole_run(rest) | {
                "#since": self.parked_since(run),
                "#detail": headline(detail) if isinstance(detail, str) else detail,
            }
        if kind == "schedules":
            schedule, _, member = rest.partition("/members/")
            return self.member_of(schedule, member) if member else self.whole_schedule(schedule)
        return _RESOURCES[kind.partition("?")[0]](self, rest if "/" in name else query)

    def parked_since(self, run: Record) -> At | None:
        if run["state"] == "running":
            return at(run["started_at"])
        return At(self.failed_at(run))

    def alerts(self, query: str = "") -> list[Record]:
        asked = dict(parse_qsl(query))
        found = [one for one in self.all_alerts() if "everything" in asked or one["resolved_at"] is None]
        if "kind" in asked:
            found = [one for one in found if one["kind"] == asked["kind"]]
        if "snoozed" in asked:
            found = [one for one in found if not (one["snoozed_until"] or 0) > self.now]
        return found

    def all_alerts(self) -> list[Record]:
        """With the one that no row has: that the watch has not looked for more than a minute."""
        looked_at = self.watched[0]["looked_at"] if self.watched else None
        if (
            looked_at is None
            or self.now - looked_at <= MINUTE
            or any(one["kind"] == "watch_silent" and one["resolved_at"] is None for one in self.alert)
        ):
            return self.alert
        derived = dict.fromkeys(self.alert[0] if self.alert else ("resolved_at", "snoozed_until", "schedule", "job"))
        return [
            *self.alert,
            derived
            | {
                "number": 0,
                "kind": "watch_silent",
                "severity": "critical",
                "subject": "fleet",
                "opened_at": looked_at,
                "count": 1,
                "cause": Said({"silence": Length(self.now - looked_at)}),
                "action": Said({}),
            },
        ]

    def alert_(self, number: str) -> Record:
        [row] = [one for one in self.all_alerts() if one["number"] == int(number)]
        alike = [one for one in self.all_alerts() if _alike(one) == _alike(row)]
        until = row["snoozed_until"]
        return {
            "opened_at": At(row["opened_at"]),
            "resolved_at": at(row["resolved_at"]),
            "snoozed_until": At(until)
            if until is not None and until > self.now and row["resolved_at"] is None
            else None,
            "cause": row["cause"],
            "action": row["action"],
            "count": row["count"],
            "#alike": len(alike),
            "#first_opened_at": At(min(one["opened_at"] for one in alike)),
            "#snoozed": sum((one["snoozed_until"] or 0) > self.now for one in alike),
            "#named": min(len(alike), 50),
        }

    def backfill_(self, number: str) -> Record:
        [row] = [one for one in self.backfill if one["number"] == int(number)]
        left = max(row["total"] - row["made"] - row["existed"], 0)
        low, high = row["first_number"] or 0, row["last_number"] or 0
        runs = [
            run
            for run in self.runs.values()
            if run["schedule"] == row["schedule"]
            and run["origin"] == "backfill"
            and low <= run["number"] <= high
            and run["member"] is None
            and row["starts"] <= run["nominal"] < row["ends"]
        ]
        unfinished = [
            run for run in runs if run["state"] in ("scheduled", "held", "ready", "running", "retrying", "verifying")
        ]
        is_over = row["state"] not in ("running", "paused")
        return {
            "id": row["number"],
            "ticks": row["total"],
            "#progress": {"done": row["total"] - left - (0 if is_over else len(unfinished)), "of": row["total"] or 1},
            "made": row["made"],
            "existed": row["existed"],
            "left": left,
            "unfinished": len(unfinished),
            "from": At(row["starts"]),
            "to": At(row["ends"]),
            "reason": row["reason"],
            "#pace": Said(
                {"at_once": row["at_once"], "rate": None if row["every"] is None else round(MINUTE / row["every"])}
            ),
        }

    def instance_(self, number: str) -> Record:
        [row] = [one for one in self.instance if one["number"] == int(number)]
        shards = [
            one for one in self.shard if one["owner"] == row["number"] and one["until"] > self.now and one["shard"] >= 0
        ]
        return {
            "number": row["number"],
            "pid": row["pid"],
            "#host": row["host"].split(" ")[0],
            "version": row["version"],
            "beat_at": At(row["beat_at"]),
            "started_at": At(row["started_at"]),
            "slots": row["slots"],
            "#shards": Said({"shards": len(shards)}),
            "#clock": Said({"low": row["offset_low"], "high": row["offset_high"]}),
        }

    def queue_(self, name: str) -> Record:
        waiting = [chunk["fired_at"] for run, chunk in self.ready() if run["queue"] == name]
        serving = [one for one in self.instances("worker") if name in json.loads(one["queues"])]
        return {
            "waiting": len(waiting),
            "waiting_since": At(min(waiting)) if waiting else None,
            "workers": len(serving),
            "slots": sum(one["slots"] for one in serving),
        }

    def tenant_(self, name: str) -> Record:
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for state, runs in (("ready", [run for run, _ in self.ready()]), ("running", self.in_state("running"))):
            for run in runs:
                counts[run["tenant"] or ""][state] += 1
        weights = {
            one["name"][7:]: one["weight"] for one in self.gate if one["name"].startswith("tenant:") and one["weight"]
        }
        left, shares = float(sum(one["running"] for one in counts.values())), dict[str, float]()
        while len(shares) < len(counts):  # whoever wants less than a share by weight leaves the rest to the others
            open_ = [tenant for tenant in counts if tenant not in shares]
            total = sum(weights.get(tenant, 1) for tenant in open_)
            first = min(open_, key=lambda tenant: counts[tenant].total() / weights.get(tenant, 1))
            shares[first] = min(counts[first].total(), left * weights.get(first, 1) / total)
            left -= shares[first]
        return {
            "waiting": counts[name]["ready"],
            "running": counts[name]["running"],
            "share": Part(shares.get(name, 0)),
        }

    def limit_(self, name: str) -> Record:
        row = next((one for one in self.gate if one["name"] == name), None)
        slots = Counter(slot for run in self.run for slot in json.loads(run["slots"] or "[]"))
        waiting = sum(run["waits_for"] in (name, f"rate:{name}") for run in self.run)
        allows = (
            {}
            if row is None
            else {
                "most": row["most"],
                "weight": row["weight"],
                "rate": None if row["every"] is None else round(MINUTE / row["every"]),
            }
        )
        return {"used": slots[name], "waiting": waiting, "#allows": Said(allows)}

    def audit_(self, number: str) -> Record:
        [row] = [one for one in self.audit if one["n"] == int(number)]
        return {"at": At(row["at"]), "note": row["note"]}

    def load(self, span: int) -> dict[int, int]:
        """Starts in each minute, from the beginning of this hour on."""
        begin = self.now - self.now % HOUR
        counts: Counter[int] = Counter()
        paused = self.paused()
        for one in self.schedule:
            if one["id"] in paused or one["fault"] or self.rules[one["id"]].delay:
                continue
            jitter = json.loads(one["policy"]).get("jitter") or 0
            size = (
                1 if one["member_set"] is None else sum(row["member_set"] == one["member_set"] for row in self.member)
            )
            # Jitter moves a tick forwards: one of before may start within the span.
            for tick in self.rules[one["id"]].between(begin - jitter, begin + span):
                counts[(tick + _moved(one["id"], tick, jitter)) // MINUTE] += size
        first = begin // MINUTE
        return {minute: counts[minute] for minute in range(first, first + span // MINUTE)}

    def kept(self) -> dict[int, Counter[str]]:
        found = self.tallies()
        last = self.now // MINUTE
        return {minute: found.get(minute, Counter()) for minute in range(last - 59, last + 1)}

    def load_(self, _: str) -> Record:
        """The load of a day, as its page has it."""
        load = self.load(DAY)
        peak = max(load.values())
        steps = {max(round(peak * part), 1) for part in (0.25, 0.5, 0.75, 1)}
        crowd = max(10, round(3 * max(sum(load.values()) / len(load), median(load.values()))))
        taking = [name for name, rule in self.rules.items() if not rule.delay]
        known = {run["job"] for run in self.ended if run["state"] in USEFUL and run["took"] is not None}
        unknown = [one for one in self.schedule if one["id"] in set(taking) - self.paused() and one["job"] not in known]
        return {
            "starts": sum(load.values()),
            "schedules": len([name for name in taking if name not in self.paused()]),
            "per": "minute",
            "peak": peak,
            "peak_at": At(min(minute for minute, count in load.items() if count == peak) * MINUTE),
            "#now": At(self.now),
            "#scale": OneOf(
                frozenset({"none", f"load spike: more than {crowd:,}", *(f"up to {step:,}" for step in steps)})
            ),
            "from": At(self.now - self.now % HOUR),
            "#left_out": Said({"unknown": len(unknown), "more_paused": len(self.paused()) - 4}),
        }

    def paused(self) -> set[str]:
        creation = {
            one["name"]
            for one in self.pause
            if one["what"] == "creation" and (one["until"] is None or one["until"] > self.now)
        }
        found = set()
        for one in self.schedule:
            is_own = one["paused_at"] is not None and (one["paused_until"] is None or one["paused_until"] > self.now)
            things = {
                f"schedule:{one['id']}",
                f"job:{one['job']}",
                f"queue:{one['queue'] or 'default'}",
                f"tenant:{one['tenant']}",
            }
            if is_own or things & creation:
                found.add(one["id"])
        return found


_RESOURCES: dict[str, Callable[[Rows, str], Record]] = {
    "overview": lambda rows, _: rows.overview(),
    "alerts": lambda rows, rest: rows.alert_(rest) if rest.isdigit() else {"#": len(rows.alerts(rest))},
    "backfills": Rows.backfill_,
    "schedulers": Rows.instance_,
    "workers": Rows.instance_,
    "queues": Rows.queue_,
    "tenants": Rows.tenant_,
    "limits": Rows.limit_,
    "load": Rows.load_,
    "audit": Rows.audit_,
}


def _by_tick(run: Record) -> tuple[int, int]:
    """A triggered run or a rerun may have the nominal time of a tick: the later run comes first."""
    return run["nominal"], run["number"]


def _alike(row: Record) -> tuple[Any, ...]:
    return row["kind"], row["severity"], row["resolved_at"] is None, row["schedule"] or row["job"] or row["subject"]


async def _read(world: World) -> dict[str, list[Record]]:
    opened = world.store.transaction()
    await opened.begin()
    found: dict[str, list[Record]] = {}
    try:
        for table in _TABLES:
            if opened.is_blocking:
                names = [row[1] for row in opened.connection.execute(f"PRAGMA table_info({table})")]
                rows = opened.connection.execute(f"SELECT * FROM {table}")
                found[table] = [dict(zip(names, row, strict=True)) for row in rows]
            else:
                found[table] = [dict(row) for row in await opened.connection.fetch(f"SELECT * FROM foliot.{table}")]
    finally:
        await opened.commit()
    return found


def _numbers(stored: Any) -> list[int]:
    return list(array("q", stored) if isinstance(stored, bytes) else stored)


def _base32(number: int) -> str:
    letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    return "".join(letters[number >> place & 31] for place in range(60, -1, -5))


def headline(error: str | None) -> str:
    """The first line, without the module of an error's class."""
    first = ((error or "").strip().splitlines() or [""])[0]
    return " ".join(re.sub(r"^([A-Za-z_]\w*\.)+(?=[A-Z]\w*(:|$))", "", first).split())


def _settings(value: Any) -> Iterator[Any]:
    """All numbers of settings, as they are."""
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]:
        if isinstance(one, dict | list):
            yield from _settings(one)
        elif isinstance(one, int | float) and not isinstance(one, bool):
            yield one


def _moved(name: str, tick: int, most: int) -> int:
    """By how much jitter moves a tick: a hash of both, from zero to the jitter."""
    if not most:
        return 0
    digest = blake2b(f"{name}@{tick}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % (most + 1)


class Rule(NamedTuple):
    """A rule of time of the sample, and its ticks by a search of each minute."""

    words: tuple[int, ...]
    """The numbers in its words."""
    is_tick: Callable[[datetime], bool]
    zone: str = "UTC"
    delay: bool = False

    def between(self, begin: int, end: int) -> Iterator[int]:
        zone = ZoneInfo(self.zone)
        for minute in range(-(-begin // MINUTE), -(-end // MINUTE)):
            if self.is_tick(clock_of(minute * MINUTE).astimezone(zone)):
                yield minute * MINUTE

    def after(self, now: int, count: int) -> list[int]:
        found: list[int] = []
        minute = now // MINUTE + 1
        while len(found) < count:
            at = clock_of(minute * MINUTE)
            if self.is_tick(at.astimezone(ZoneInfo(self.zone))):
                found.append(minute * MINUTE)
            minute += 1
        return found


def clock_of(moment: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)
