"""The first program of README, run as a new user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import foliot
from tests.waiting import HANG

ROOT = Path(__file__).parents[2]


def test_the_first_program_prints_its_promise_and_the_second_time_that_the_key_is_taken(tmp_path: Path) -> None:
    match = re.search(r"```python\n(# reminders.py\n.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert match is not None
    (tmp_path / "reminders.py").write_text(match[1], encoding="utf-8")
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
    assert re.fullmatch(f"class:7#1 exists already, so its key is taken: {due[:-2]}, with another time\n", said[1])
