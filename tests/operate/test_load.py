"""Who takes part in a load, and how it is told."""

from __future__ import annotations

import json
from typing import Any

from foliot import Foliot, after, cron, every
from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND, parse_rfc3339
from foliot.operate.load import (
    Standings,
    herd_words,
    left_out_words,
    load_shape,
    per_words,
    relief_words,
    standings,
)
from foliot.testing import virtual_time
from foliot.timing.herds import herds
from foliot.timing.load import Load, Standing, load

START = parse_rfc3339("2026-06-01T00:00:00Z")


def nightly(count: int, **given: Any) -> list[Standing]:
    return [Standing(f"report-{number}", cron("0 2 * * *"), **given) for number in range(count)]


def a_day(*standing: Standing) -> Load:
    return load(standing, START, START + DAY)


def an_app() -> Foliot:
    app = Foliot("sqlite:///:memory:")

    @app.job
    def report() -> None: ...

    app.schedule("books", report, cron("0 2 * * *"), jitter="5m")
    app.schedule("wages", report, every("1h"))
    return app


def test_the_schedules_of_a_store_take_part_with_their_jitter_and_what_their_runs_took() -> None:
    app = an_app()
    with virtual_time(app) as world:
        world.run_for("2h")
        found = world.call(app.operate.standings_async())
    books, wages = found.taking_part
    assert (books.id, books.jitter, wages.id, wages.jitter) == ("books", 5 * MINUTE, "wages", 0)
    assert (books.job, wages.job) == ("report", "report")
    assert wages.takes is not None
    assert found.now == world.clock.now()


def test_what_is_paused_or_broken_is_left_out_and_said() -> None:
    app = an_app()
    with virtual_time(app) as world:
        app.operate.pause("books", reason="the ledger moves", actor="ana")
        found = world.call(app.operate.standings_async())
    assert ([one.id for one in found.taking_part], found.paused) == (["wages"], ["books"])
    told = left_out_words(
        Standings(paused=["books"], broken=[("old", "a newer release may have written it")]),
        a_day(Standing("sweep", after("10m")), Standing("mop", after("10m"))),
    )
    assert told == [
        "books is paused, and is left out",
        "sweep and mop have a fixed delay, so no fixed times, and are left out",
        "old is left out: a newer release may have written it",
    ]


def test_what_is_paused_by_its_job_or_tenant_is_left_out() -> None:
    app = an_app()
    with virtual_time(app) as world:
        app.operate.pause_of("job", "report", what=["claims"], reason="the ledger moves", actor="ana")
        assert len(world.call(app.operate.standings_async()).taking_part) == 2
        app.operate.pause_of("job", "report", what=["creation"], reason="the ledger moves", actor="ana")
        found = world.call(app.operate.standings_async())
    assert (found.taking_part, found.paused) == ([], ["books", "wages"])


def test_what_code_declares_replaces_what_the_store_has() -> None:
    app, newer = an_app(), Foliot("sqlite:///:memory:")

    @newer.job(name="report")
    def report() -> None: ...

    newer.schedule("wages", report, every("30m"))
    newer.schedule("stock", report, every("2h"))
    with virtual_time(app) as world:
        app.operate.pause("wages", reason="no money", actor="ana")
        stored = world.call(world.store.templates())
        found = standings(stored, newer.declarations(), {"report": SECOND}, world.clock.now())
        only = standings(stored, newer.declarations(), {}, world.clock.now(), "s*")
    assert [(one.id, one.takes) for one in found.taking_part] == [("books", SECOND), ("stock", SECOND)]
    assert found.paused == ["wages"], "an operator's pause outlives a deploy"
    assert [one.id for one in only.taking_part] == ["stock"]
    assert only.paused == []


def test_a_herd_is_told_in_one_sentence() -> None:
    counted = a_day(*nightly(380), *(Standing(f"even-{number}", every("2h")) for number in range(32)))
    first, second = herds(counted).found
    assert herd_words(first) == "412 schedules fire at second 0 of 02:00: 380 of 0 2 * * *, 32 of every 2 hours"
    assert herd_words(second) == (
        "32 schedules fire at second 0 of 00:00: 32 of every 2 hours; again at 04:00, 06:00, 08:00, 10:00 and 6 more"
    )


def test_what_would_help_is_told_with_the_peak_that_it_leaves() -> None:
    [herd] = herds(a_day(*nightly(120))).found
    by_hash, by_jitter = herd.relief
    assert relief_words(herd, by_hash, MINUTE) == (
        f"H 2 * * * instead of 0 2 * * * for all 120 leaves a peak of {by_hash.peak} a minute, at most "
        f"{by_hash.at_once} of them in one second"
    )
    assert relief_words(herd, by_jitter, 5 * MINUTE).startswith('jitter="30m" for all 120 leaves a peak of ')
    assert " in 5m" in relief_words(herd, by_jitter, 5 * MINUTE)


def test_a_stretch_is_called_by_its_name() -> None:
    assert [per_words(width) for width in (SECOND, MINUTE, 5 * MINUTE, HOUR, DAY)] == [
        "second",
        "minute",
        "5m",
        "hour",
        "day",
    ]


def test_all_of_it_has_a_form_in_json() -> None:
    counted = a_day(*nightly(20, takes=3 * SECOND), Standing("sweep", after("10m")))
    shape = load_shape(Standings(paused=["books"], broken=[("old", "unreadable")]), counted, herds(counted))
    assert json.loads(json.dumps(shape)) == shape
    assert (shape["from"], shape["to"], shape["per"]) == ("2026-06-01T00:00:00Z", "2026-06-02T00:00:00Z", 60.0)
    assert (shape["schedules"], shape["starts"], shape["peak"], shape["peak_at"]) == (
        20,
        20,
        20,
        "2026-06-01T02:00:00Z",
    )
    assert shape["buckets"][120] == {"at": "2026-06-01T02:00:00Z", "starts": 20, "busy": 1.0}
    assert (shape["paused"], shape["delayed"]) == (["books"], ["sweep"])
    assert shape["broken"] == [{"id": "old", "why": "unreadable"}]
    [herd] = shape["herds"]
    assert (herd["starts"], herd["at_once"], herd["works"]) == (20, 20, 60.0)
    assert herd["rules"][0]["rule"] == "0 2 * * *"
