"""The revenue table that doubled after a reboot, and does not here."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples import revenue
from foliot import Foliot
from foliot.domain.state import State
from foliot.testing import virtual_time
from tests.faults.test_transactions_killed import HOUR, killed_at_statements
from tests.tiers import by_tier

STRIDE = by_tier(30, 10, 1)


@pytest.mark.faults
@pytest.mark.timeout(HOUR)
def test_killed_at_any_statement_of_its_transaction_each_day_has_its_150_rows_once(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'revenue.db'}"
    days = killed_at_statements("tests.examples.revenue_killed", tmp_path, store, str(STRIDE))
    assert len(days) > 20, "there are more statements than that"
    assert revenue.rows_by_day(store) == dict.fromkeys(days, 150)
    with Foliot(store) as app:
        runs = app.portal.call(lambda: app.operate.runs_async(limit=1_000), "runs_async")
    ended = [(run.job, run.state) for run in runs]
    assert ended.count(("aggregate", State.SUCCEEDED)) == len(days)
    assert ended.count(("tell_the_board", State.SUCCEEDED)) == len(days), "each day was told once"
    assert len(ended) == 2 * len(days)


def test_a_night_in_virtual_time_and_a_rerun_that_somebody_orders_later() -> None:
    with virtual_time(revenue.app, start=datetime(2026, 4, 1, 12, tzinfo=UTC)) as world:
        world.run_for("1d")
        [night] = [run for run in world.runs(schedule="revenue") if run.state is State.SUCCEEDED]
        assert (night.id, night.result) == ("revenue@2026-04-02T00:00:00Z", b'{"regions":150}')
        again = revenue.app.operate.rerun(night.id, reason="who knows", actor="ana")
        world.run_for("1m")
        assert world.run(again.id).state is State.SUCCEEDED
        transaction = world.store.transaction()
        world.call(transaction.begin())
        assert transaction.connection.execute("SELECT count(*) FROM revenue").get == 150
        world.call(transaction.roll_back())
