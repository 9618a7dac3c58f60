"""The first program of README, run as a new user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest

import foliot
from foliot.domain.instant import to_datetime
from foliot.testing import virtual_time
from tests.waiting import HANG

ROOT = Path(__file__).parents[2]


def first_program() -> str:
    match = re.search(r"```python\n(# reminders.py\n.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert match is not None
    return match[1]


def test_the_first_program_prints_its_reminder_when_it_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    declarations, promise = first_program().split("if __name__", 1)
    module = ModuleType("__main__")
    exec(declarations, module.__dict__)
    with virtual_time(module.app, start=datetime.now(UTC)) as world:
        exec(f"if __name__{promise}", module.__dict__)
        world.run_until(to_datetime(world.run("class:7#1").fire_at) + timedelta(seconds=1))
        assert str(world.run("class:7#1").state) == "succeeded"
    assert capsys.readouterr().out.splitlines()[-1] == "class 7 starts tomorrow"


def test_the_first_program_prints_its_promise_and_the_second_time_that_the_key_is_taken(tmp_path: Path) -> None:
    (tmp_path / "reminders.py").write_text(first_program(), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(Path(foliot.__file__).parents[1])}
    environment.pop("FOLIOT_STORE", None)
    said = [
        subprocess.run(
            [sys.executable, "reminders.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=HANG,
        ).stdout
        for _ in range(2)
    ]
    due = r"scheduled, due at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\n"
    assert re.fullmatch(f"class:7#1 was made: {due}", said[0])
    assert re.fullmatch(f"class:7#1 exists already and has this key: {due[:-2]}, with another time\n", said[1])
