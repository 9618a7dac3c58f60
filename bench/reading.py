"""`python -m bench reading`: what operators look at, with a million ended runs and ten thousand schedules in the store.

Every question is asked as the command line asks it, through `app.operate`, and every page of the dashboard as a
browser does, less the network: again and again in turns, so that whatever is slow for a while is slow for all of them.
What is wanted of a question is a p95 below 100 ms, of a page one below 200 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from bench.company import Company
from bench.fairness import place_for
from bench.reading_fill import RARE_JOB, RARE_TENANT, Past, Size, fill_postgres, fill_sqlite
from foliot import Foliot, bootstrap
from foliot.domain.conditions import Condition
from foliot.domain.instant import DAY, HOUR
from foliot.domain.listing import Order, RunFilter
from foliot.domain.standing import ScheduleFilter, ScheduleOrder
from foliot.domain.state import State
from foliot.operate import Operator
from foliot.web.application import make_application
from foliot.web.settings import WebSettings

WANTED, WANTED_OF_PAGES = 100.0, 200.0
"""Milliseconds, at p95."""
PAGE = "page "
Ask = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Answered:
    engine: str
    question: str
    wanted: float
    times: list[float]
    """In milliseconds, shortest first."""

    def quantile(self, share: float) -> float:
        return self.times[min(int(share * len(self.times)), len(self.times) - 1)]

    @property
    def met(self) -> bool:
        return self.quantile(0.95) <= self.wanted


def main(arguments: list[str]) -> None:
    given = _arguments(arguments)
    size = Size().smaller(100) if given.quick else Size()
    rounds = max(given.rounds, 1)
    answered: list[Answered] = []
    for engine in given.engine or ("sqlite", "postgres"):
        company = Company()
        with place_for(engine) as url:
            answered += asyncio.run(_measured(engine, url, size, rounds))
        others = company.share()
        load = "not known" if others is None else f"{others:.0%} of the processor"
        print(f"{engine:9} others took {load}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    missed = [one for one in answered if not one.met]
    for wanted, what in ((WANTED, "questions"), (WANTED_OF_PAGES, "pages")):
        asked = [one for one in answered if one.wanted == wanted]
        print(f"\np95 at most {wanted:.0f} ms: {sum(one.met for one in asked)} of {len(asked)} {what}")
    for one in missed:
        print(f"  missed: {one.engine} {one.question}, {one.quantile(0.95):,.0f} ms")
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "reading.json").write_text(json.dumps([asdict(one) for one in answered]), "utf-8")


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench reading", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a hundred times smaller: a smoke test")
    parser.add_argument("--rounds", type=int, default=40, help="how often each question is asked, at least 1")
    parser.add_argument("--engine", action="append", choices=("sqlite", "postgres"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="where results are written")
    return parser.parse_args(arguments)


async def _measured(engine: str, url: str, size: Size, rounds: int) -> list[Answered]:
    past = await filled(engine, url, size)
    app = Foliot(url)
    store = await app.opened()
    try:
        began = time.perf_counter()
        await store.tidy()
        print(f"{engine:9} {size.history:,} endings were counted in {time.perf_counter() - began:.1f} s", flush=True)
        asked = await questions(app.operate, past) | await pages(app, past)
        times: dict[str, list[float]] = {question: [] for question in asked}
        for place in range(rounds + 1):
            for question, ask in asked.items():
                began = time.perf_counter()
                await ask()
                if place:  # the first time, pages and statements are read that stay
                    times[question].append((time.perf_counter() - began) * 1_000)
    finally:
        await app.close_async()
    found = [
        Answered(engine, question, WANTED_OF_PAGES if question.startswith(PAGE) else WANTED, sorted(spent))
        for question, spent in times.items()
    ]
    for one in found:
        told = f"best {one.times[0]:7.1f}   p50 {one.quantile(0.5):7.1f}   p95 {one.quantile(0.95):7.1f} ms"
        print(f"{engine:9} {one.question:36} {told}{'' if one.met else '   MISSED'}", flush=True)
    return found


async def filled(engine: str, url: str, size: Size) -> Past:
    store = bootstrap.make_store(url)
    await store.open()
    past = Past(size, await store.now())
    await store.close()
    if engine == "postgres":
        await fill_postgres(url, past)
    else:
        fill_sqlite(Path(url.removeprefix("sqlite:///")), past)
    return past


async def questions(operate: Operator, past: Past) -> dict[str, Ask]:
    middle = past.schedules()[past.size.schedules // 2]
    [tick, *_] = (await operate.run_page_async(RunFilter(schedule=middle, states=(State.SUCCEEDED,)), limit=1)).runs
    half = str((await operate.run_page_async(RunFilter(), limit=1)).runs[0].view.number - (15 * DAY // 1_000 << 22))

    def runs(cursor: str | None = None, **wanted: Any) -> Ask:
        return lambda: operate.run_page_async(RunFilter(**wanted), cursor=cursor)

    def schedules(cursor: str | None = None, **wanted: Any) -> Ask:
        return lambda: operate.schedule_page_async(ScheduleFilter(**wanted), cursor=cursor)

    return {
        "runs": runs(),
        "runs, a page deep in the past": runs(half),
        "runs, succeeded": runs(states=(State.SUCCEEDED,)),
        "runs, skipped": runs(states=(State.SKIPPED,)),
        "runs, running": runs(states=(State.RUNNING,)),
        "runs, held": runs(states=(State.HELD,)),
        "runs that need attention": runs(needs_person=True),
        "runs, late": runs(conditions=(Condition.LATE,)),
        "runs, soonest first": runs(order=Order.SOONEST),
        "runs of a schedule": runs(schedule=middle),
        "runs of a tenant": runs(tenant="tenant-007"),
        "runs of a rare tenant": runs(tenant=RARE_TENANT),
        "runs of a job": runs(job="job-07"),
        "runs of a rare job (cut short)": runs(job=RARE_JOB),
        "runs, by a text (cut short)": runs(text="no such thing"),
        "runs, by the beginning of a name": runs(prefix=f"{middle}@"),
        "runs, of one hour": runs(nominal_from=past.now - 2 * HOUR, nominal_to=past.now - HOUR),
        "a run, and its story": lambda: operate.lineage_async(tick.view.id),
        "schedules": schedules(),
        "schedules, by what is due next": schedules(order=ScheduleOrder.NEXT),
        "schedules, by a text": schedules(text="9999"),
        "schedules that need attention": schedules(needs_person=True),
        "schedules, last run cancelled": schedules(last=(State.CANCELLED,)),
        "a schedule, and how it stands": lambda: operate.standing_async(middle),
        "a job, and how it fares": lambda: operate.job_async("job-07"),
        "a rare job, and how it fares": lambda: operate.job_async(RARE_JOB),
        "items that need attention": operate.needs_person_async,
        "overview": operate.overview_async,
        "counts": operate.counts_async,
        "queues": operate.queues_async,
        "tenants": operate.tenants_async,
    }


async def pages(app: Foliot, past: Past) -> dict[str, Ask]:
    middle = past.schedules()[past.size.schedules // 2]
    ended = RunFilter(schedule=middle, states=(State.SUCCEEDED,))
    [tick, *_] = (await app.operate.run_page_async(ended, limit=1)).runs
    transport = httpx.ASGITransport(make_application(app, WebSettings()), client=("127.0.0.1", 4711))
    browser = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8300", headers={"accept": "text/html"})

    def page(path: str) -> Ask:
        async def ask() -> None:  # a transport within this process: there is nothing to close
            (await browser.get(path)).raise_for_status()

        return ask

    places = {
        "now": "/",
        "schedules": "/schedules",
        "schedules, by a text": "/schedules?text=9999",
        "one schedule": f"/schedules/{quote(middle, safe='')}",
        "runs": "/runs",
        "runs that need attention": "/runs?needs_person=true",
        "runs, by a text": "/runs?text=no+such+thing",
        "one run": f"/runs/{quote(tick.view.id, safe='')}",
        "dead letters": "/dead",
        "backfills": "/backfills",
        "load": "/load",
        "fleet": "/fleet",
        "alerts": "/alerts",
        "audit": "/audit",
    }
    return {f"{PAGE}{name}": page(path) for name, path in places.items()}
