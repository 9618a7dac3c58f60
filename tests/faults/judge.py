"""The judge: outside the system, with its own log of what handlers really did."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

from foliot.app import Foliot
from foliot.domain.run import RunView
from foliot.domain.state import TERMINAL, Outcome, State


async def read_runs(app: Foliot) -> dict[str, RunView]:
    """Every run that the store knows, live or ended, with its attempts where there is more than one."""
    found: dict[str, RunView] = {}
    before: int | None = None
    while page := await app.operate.runs_async(limit=5_000, before=before):
        before = page[-1].number
        for run in page:
            assert run.id not in found, f"{run.id} stands twice"
            found[run.id] = run
    return found


def read_log(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def acknowledged(path: Path) -> list[str]:
    return path.read_text().split()


def judge_promises(runs: dict[str, RunView], promised: list[str]) -> None:
    """Acknowledged is durable, and kept: exactly one run for each, and it succeeded."""
    missing = [one for one in promised if one not in runs]
    assert not missing, f"{len(missing)} of {len(promised)} acknowledged promises are gone: {missing[:5]}"
    unkept = [(one, str(runs[one].state)) for one in promised if runs[one].state is not State.SUCCEEDED]
    assert not unkept, f"{len(unkept)} acknowledged promises were not kept: {unkept[:5]}"


def judge_executions(log: list[dict[str, object]], attempts: dict[tuple[str, int], Outcome | None]) -> None:
    """Nothing early; every execution that a handler saw matches a recorded attempt, and only one execution does."""
    starts = [line for line in log if line["what"] == "start"]
    early = [line for line in starts if line["at"] < line["due"]]  # type: ignore[operator]
    assert not early, f"{len(early)} started before they were due: {early[:3]}"
    seen = Counter((str(line["run"]), int(str(line["attempt"])), int(str(line["token"]))) for line in starts)
    twice = [one for one, count in seen.items() if count > 1]
    assert not twice, f"one attempt was executed twice: {twice[:5]}"
    unrecorded = [one for one in seen if (one[0], one[1]) not in attempts]
    assert not unrecorded, f"{len(unrecorded)} executions have no recorded attempt: {unrecorded[:5]}"
    finished = {(str(line["run"]), int(str(line["attempt"]))) for line in log if line["what"] == "end"}
    unproven = [one for one, outcome in attempts.items() if outcome is Outcome.SUCCEEDED and one not in finished]
    assert not unproven, f"recorded as succeeded, but no handler got to its end: {unproven[:5]}"


def judge_ticks(runs: dict[str, RunView], schedule: str, interval: int) -> int:
    """Every tick between the first and the last is accounted for exactly once."""
    rows = sorted((run for run in runs.values() if run.schedule == schedule), key=lambda run: run.nominal)
    spans = [(run.nominal, run.span_until or run.nominal, run) for run in rows]
    for (_, end, earlier), (begin, _, later) in pairwise(spans):
        assert begin - end == interval, f"{earlier.id} ends at {end}, and the next row is {later.id}"
    # The last kill may have caught ticks that were handed off or running; but only one waits for its time.
    waiting = [run.id for run in rows if run.state in (State.SCHEDULED, State.HELD)]
    assert len(waiting) == 1, f"not one waiting run of {schedule}: {waiting}"
    return len(rows)


def judge_verdicts_kept(before: dict[str, RunView], after: dict[str, RunView]) -> None:
    """What was finished once stays finished in the same way."""
    changed = [
        (one, str(run.state), str(after[one].state) if one in after else "gone")
        for one, run in before.items()
        if run.state in TERMINAL and (one not in after or after[one].state is not run.state)
    ]
    assert not changed, f"verdicts changed: {changed[:5]}"
