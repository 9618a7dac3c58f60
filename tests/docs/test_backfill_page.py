"""What the pages say of backfills: every field of their JSON, every state, every setting."""

from __future__ import annotations

from datetime import UTC, date, datetime

from foliot import Foliot, cron
from foliot.domain.backfill import BackfillState, Pace
from foliot.operate.backfilling import backfill_shape, preview_shape, progress_shape
from foliot.testing import virtual_time
from tests.docs import pages
from tests.docs.pages import DOCS

CLI, PAGE = DOCS / "cli.md", DOCS / "backfill.md"


def test_every_field_that_is_told_of_backfills_is_documented() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    def report() -> None: ...

    app.schedule("report", report, cron("0 2 * * *"))
    with virtual_time(app, start=datetime(2026, 4, 10, tzinfo=UTC)) as world:
        days = date(2026, 4, 1), date(2026, 4, 3)
        made = app.operate.backfill("report", *days, reason="to look at it", actor="ana")
        world.run_for("1m")
        preview = preview_shape(app.operate.preview_backfill("report", *days))
        progress = progress_shape(app.operate.backfill_progress(made.number))
    assert sorted(pages.rows(pages.section(CLI, "A backfill"))) == sorted(progress)
    assert set(backfill_shape(made)) < set(progress)
    told = pages.rows(pages.section(CLI, "What a backfill would do"))
    assert sorted(told) == sorted(preview)
    assert [name for name in preview["taken"][0] if f"`{name}`" not in " ".join(told["taken"])] == []


def test_every_state_and_every_setting_of_a_backfill_is_documented() -> None:
    assert sorted(pages.rows(pages.section(PAGE, "Its states"))) == sorted(map(str, BackfillState))
    assert sorted(pages.rows(pages.section(PAGE, "Its pace"))) == sorted([*Pace._fields, "tz", "stop_after"])
