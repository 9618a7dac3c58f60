"""The order of measuring: each load goes round among the peers, so that what is compared was measured side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg

from bench.company import Company
from bench.peers import workloads
from bench.peers.adapters import Broken, Program
from bench.peers.environment import Environment, Unavailable, prepare
from bench.peers.peers import Peer, Workload
from bench.peers.workloads import Burst, Lateness, Promises, Sizes, Template
from bench.peers.yard import Yard

Found = Promises | Burst | Lateness
PENDING_RATE = 500
STOLEN, MORE_ROUNDS = 0.03, 2
"""A round in which other machines of the host took more than this share is played again: no more than so many times as
often as there are rounds."""
HELD_RATE, HELD_FOR = 2_000, 6
"""A snapshot is held for so many times as long as a steady load lasts."""


@dataclass(slots=True)
class Results:
    """Everything that one run found out, by load and then by the id of the peer."""

    sizes: Sizes
    peers: list[Peer]
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    """Peers that could not be had at all, and why."""
    found: dict[str, dict[str, list[Found]]] = field(default_factory=dict)
    """One per round."""
    disturbed: dict[str, dict[str, list[Found]]] = field(default_factory=dict)
    """Of rounds in which the host took too much of the processor away. They count where there are no others."""
    failed: dict[str, dict[str, str]] = field(default_factory=dict)
    """Why a peer has nothing, or less, under a load."""

    def of(self, load: str, peer: Peer) -> list[Any]:
        return self.found.get(load, {}).get(peer.id, [])

    def reason(self, load: str, peer: Peer) -> str | None:
        return self.absent.get(peer.id) or self.failed.get(load, {}).get(peer.id)


class Measurement:
    def __init__(
        self, yard: Yard, results: Results, folder: Path, environments: Path, say: Callable[[str], None]
    ) -> None:
        self._yard = yard
        self._results = results
        self._folder = folder
        self._environments = environments
        self._say = say
        self._programs: dict[str, Program] = {}

    def prepare(self) -> None:
        """Environments, and a first word with every adapter: who cannot be had is known before anything is measured."""
        for peer in self._results.peers:
            self._say(f"{peer.name}: preparing")
            try:
                environment = prepare(peer, self._environments)
                self._programs[peer.id] = program = self._program(peer, environment)
                with self._yard.fresh(peer.id) as database:
                    program.ask(database.dsn, "setup")
                    with psycopg.connect(database.dsn) as connection:
                        connection.execute(peer.unfinished)
            except (Unavailable, Broken, psycopg.Error) as error:
                self._results.absent[peer.id] = str(error).strip()
                self._say(f"{peer.name} CANNOT BE HAD: {error}")
            else:
                self._results.versions[peer.id] = environment.version

    def _program(self, peer: Peer, environment: Environment) -> Program:
        folder = self._folder / peer.id
        folder.mkdir(parents=True, exist_ok=True)
        return Program(environment, folder)

    def run(self, chosen: set[Workload]) -> None:
        sizes, yard = self._results.sizes, self._yard
        if "promises" in chosen:
            self._go_round("promises", "promises", lambda peer, program: workloads.promises(yard, peer, program, sizes))
        if "burst" in chosen:
            self._go_round("burst", "burst", lambda peer, program: workloads.burst(yard, peer, program, sizes))
        if "steady" in chosen:
            for place, rate in enumerate(sizes.rates):
                if place:
                    self._spare(sizes.rates[place - 1], rate)
                self._steady(rate)
        if "pending" in chosen:
            self._pending()
        if "held" in chosen:
            longer = replace(sizes, seconds=HELD_FOR * sizes.seconds)
            self._go_round(
                "held",
                "held",
                lambda peer, program: workloads.steady(yard, peer, program, longer, HELD_RATE, is_held=True),
            )
        if "recurring" in chosen:
            self._go_round(
                "recurring", "recurring", lambda peer, program: workloads.recurring(yard, peer, program, sizes)
            )

    def _steady(self, rate: int) -> None:
        sizes, yard = self._results.sizes, self._yard
        self._go_round(
            f"steady {rate}", "steady", lambda peer, program: workloads.steady(yard, peer, program, sizes, rate)
        )

    def _spare(self, before: int, rate: int) -> None:
        """Whoever was overwhelmed by a rate is not asked for a higher one."""
        for id, rounds in self._results.found.get(f"steady {before}", {}).items():
            worst = max((one for one in rounds if isinstance(one, Lateness)), key=lambda one: one.missing)
            if worst.missing > worst.count / 2:
                reason = f"cannot: at {before:,}/s already {worst.missing:,} of {worst.count:,} did not start in time"
                self._results.failed.setdefault(f"steady {rate}", {})[id] = reason

    def _pending(self) -> None:
        """Databases are filled once, and copied for every turn."""
        sizes, yard = self._results.sizes, self._yard
        templates: dict[str, Template] = {}
        with ExitStack() as stack:
            for peer, program in self._able("pending", "pending"):
                self._say(f"{peer.name}: jobs pending")
                database = stack.enter_context(yard.fresh(peer.id))
                with self._minding("pending", peer):
                    templates[peer.id] = workloads.fill(database, program, sizes)
            self._go_round(
                "pending",
                "pending",
                lambda peer, program: workloads.steady(yard, peer, program, sizes, PENDING_RATE, templates[peer.id]),
            )

    def _go_round(self, load: str, workload: Workload, once: Callable[[Peer, Program], Found]) -> None:
        """Rounds, until enough of them were not disturbed, or there were too many."""
        wanted = self._results.sizes.rounds
        calm: list[dict[str, Found]] = []
        disturbed: list[dict[str, Found]] = []
        while len(calm) < wanted and len(calm) + len(disturbed) < wanted * (1 + MORE_ROUNDS):
            found, stolen = self._play(load, workload, once, len(calm))
            if not found:
                break
            (disturbed if stolen > STOLEN else calm).append(found)
        self._results.found.setdefault(load, {})
        for id in {id for found in (*calm, *disturbed) for id in found}:
            counted = [found[id] for found in calm if id in found]
            aside = [found[id] for found in disturbed if id in found]
            self._results.found[load][id] = counted or aside
            if aside:
                self._results.disturbed.setdefault(load, {})[id] = aside

    def _play(
        self, load: str, workload: Workload, once: Callable[[Peer, Program], Found], place: int
    ) -> tuple[dict[str, Found], float]:
        """One round: what each peer came to, and what share was stolen in the worst of their turns."""
        found: dict[str, Found] = {}
        worst = 0.0
        able = list(self._able(load, workload))
        # Backwards every second time: what drifts with time favours nobody.
        for peer, program in able if place % 2 == 0 else reversed(able):
            self._say(f"{peer.name}: {load}, round {place + 1}")
            company = Company()
            with self._minding(load, peer):
                found[peer.id] = once(peer, program)
            worst = max(worst, company.stolen())
        if worst > STOLEN:
            self._say(f"the host took {worst:.0%} away: {load} is played once more, unless it was too often already")
        return found, worst

    def _able(self, load: str, workload: Workload) -> Iterator[tuple[Peer, Program]]:
        for peer in self._results.peers:
            if workload in peer.cannot:
                self._results.failed.setdefault(load, {})[peer.id] = f"cannot: {peer.cannot[workload]}"
            if self._results.reason(load, peer) is None:
                yield peer, self._programs[peer.id]

    def _minding(self, load: str, peer: Peer) -> _Minding:
        return _Minding(self._results.failed.setdefault(load, {}), peer, self._say)


class _Minding:
    """One peer that fails does not stop the others. It is not tried again under the same load."""

    def __init__(self, failed: dict[str, str], peer: Peer, say: Callable[[str], None]) -> None:
        self._failed = failed
        self._peer = peer
        self._say = say

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Broken | psycopg.Error):
            return False
        self._failed[self._peer.id] = str(error)
        self._say(f"{self._peer.name} FAILED: {error}")
        return True
