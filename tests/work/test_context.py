from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from foliot.clock import ManualClock
from foliot.domain.instant import HOUR, SECOND, to_datetime
from foliot.domain.policy import Policy
from foliot.errors import Cancelled, InvalidInput
from foliot.work.attempt import Attempt, Stop
from foliot.work.context import MOST_CHECKPOINT, Context
from foliot.work.handler import Handler
from tests.work.fakes import START, claimed


def context(**more):
    clock = ManualClock(START)
    return Context(claimed(**more), clock, START + 10 * SECOND, clock.monotonic() + 10 * SECOND), clock


def test_a_job_sees_which_run_and_attempt_it_is():
    ctx, _ = context(name="daily@2026-04-03T02:00:00Z", attempt=2, token=41, tenant="acme", schedule="daily", number=9)
    assert (ctx.run_id, ctx.attempt, ctx.token) == ("daily@2026-04-03T02:00:00Z", 2, 41)
    assert ctx.number == 9
    assert (ctx.tenant, ctx.schedule) == ("acme", "daily")


def test_times_are_aware_and_in_utc():
    ctx, _ = context(nominal=START, since=START - HOUR)
    assert ctx.nominal == to_datetime(START)
    assert ctx.nominal.tzinfo is UTC
    assert ctx.interval == (to_datetime(START - HOUR), to_datetime(START))


def test_a_delayed_run_stands_for_the_time_it_was_promised_for_and_has_no_interval():
    ctx, _ = context(fire_at=START - SECOND)
    assert ctx.nominal == to_datetime(START - SECOND)
    assert ctx.interval is None


def test_time_left_shrinks_to_zero_and_no_further():
    ctx, clock = context()
    assert ctx.deadline == to_datetime(START + 10 * SECOND)
    clock.advance(4 * SECOND)
    assert ctx.time_left == timedelta(seconds=6)
    clock.advance(HOUR)
    assert ctx.time_left == timedelta(0)


def test_time_left_does_not_go_by_a_clock_that_can_be_set():
    ctx, clock = context()
    clock.step(HOUR)
    assert ctx.time_left == timedelta(seconds=10)
    clock.step(-2 * HOUR)
    assert ctx.time_left == timedelta(seconds=10)


def test_check_raises_only_when_asked_to_stop():
    ctx, _ = context()
    ctx.check()
    assert not ctx.cancelled
    ctx._stopping = True
    assert ctx.cancelled
    with pytest.raises(Cancelled):
        ctx.check()


def test_the_last_checkpoint_is_that_of_an_earlier_attempt_until_there_is_a_newer_one():
    ctx, _ = context(checkpoint=b'{"page":3}')
    assert ctx.last_checkpoint == {"page": 3}
    ctx.checkpoint(["page", 4])
    assert ctx.last_checkpoint == ["page", 4]
    assert context()[0].last_checkpoint is None


def test_a_checkpoint_is_a_json_value_of_bounded_size():
    ctx, _ = context()
    with pytest.raises(InvalidInput, match="must be a JSON value"):
        ctx.checkpoint(object())
    with pytest.raises(InvalidInput, match="too large"):
        ctx.checkpoint("x" * MOST_CHECKPOINT)
    with pytest.raises(InvalidInput):
        ctx.progress(1, note="\ud800")


def attempt_with_context(**more):
    def job(ctx: Context) -> None: ...

    attempt = Attempt(claimed(**more), Handler.of(job), Policy())
    attempt.context, _ = context(**more)
    return attempt


def test_an_attempt_that_has_not_begun_has_no_news():
    assert attempt_with_context().news() is None


def test_news_are_told_once_and_only_what_is_new():
    attempt = attempt_with_context(checkpoint=b"1")
    ctx = attempt.context
    attempt.started_at = START
    begun = attempt.news()
    assert (begun.started_at, begun.note, begun.checkpoint) == (START, None, None)
    attempt.was_told(begun)
    assert attempt.news() is None
    ctx.progress(5, of=10, note="halfway")
    ctx.checkpoint(2)
    news = attempt.news()
    assert msgspec.json.decode(news.note) == {"done": 5, "of": 10, "note": "halfway", "at": START}
    assert news.checkpoint == b"2"
    assert attempt.news() == news  # until somebody says that it was told
    ctx.progress(6, of=10)
    attempt.was_told(news)
    later = attempt.news()
    assert (msgspec.json.decode(later.note)["done"], later.checkpoint) == (6, None)


def test_a_report_is_what_was_said_since_the_last_beat():
    attempt = attempt_with_context()
    attempt.started_at = START
    assert attempt.report() is None  # that it began is said by its ending
    attempt.context.checkpoint({"done": 3})
    assert attempt.report().checkpoint == b'{"done":3}'


def test_the_first_reason_to_stop_counts():
    attempt = attempt_with_context()
    attempt.ask_to_stop(Stop.CANCEL)
    attempt.ask_to_stop(Stop.DRAIN)
    assert attempt.stop is Stop.CANCEL
    assert not attempt.saw_stop()
    assert attempt.context.cancelled
    assert attempt.saw_stop()


def test_a_context_is_small():
    assert not hasattr(context()[0], "__dict__")
    assert isinstance(context()[0].nominal, datetime)


def test_a_rerun_knows_the_first_run_of_its_lineage_and_whether_it_is_to_repair():
    ctx, _ = context(name="daily@2026-04-03T02:00:00Z#r2", repair=True)
    assert (ctx.lineage, ctx.dedupe_key, ctx.repair) == ("daily@2026-04-03T02:00:00Z",) * 2 + (True,)
    plain, _ = context(name="class:7#1")
    assert (plain.lineage, plain.repair) == ("class:7#1", False)


def test_progress_and_checkpoints_show_that_an_attempt_moves():
    attempt = attempt_with_context()
    assert attempt.moved_at() is None
    attempt.begun_at = 5
    assert attempt.moved_at() == 5
    ctx, clock = context()
    attempt.context = ctx
    clock.advance(SECOND)
    ctx.progress(1)
    assert attempt.moved_at() == SECOND
    clock.advance(SECOND)
    ctx.checkpoint(1)
    assert attempt.moved_at() == 2 * SECOND


def test_a_context_that_was_made_by_hand_says_that_it_has_no_store():
    ctx, _ = context()
    with pytest.raises(InvalidInput, match="run the job in a worker"):
        ctx.effect("payout", 7)
