"""Steps that were released are frozen: somebody's tables were made by them, and no edit would ever reach those."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files

import pytest

from foliot.store.migrations import steps_of

ENGINES = ("foliot.store.sqlite", "foliot.store.postgres")
FROZEN = {
    ("foliot.store.sqlite", "0001_foundation"): "026b6eaeffb8a272f317f6066d64111ed21b52d5d838fb88d0d1791b4488c7d1",
    (
        "foliot.store.sqlite",
        "0002_walls_and_tables",
    ): "65f7401d2d1260984c376a62877072a8309ab4b573381e3ecbfc339e3bc56671",
    ("foliot.store.sqlite", "0003_fleet"): "d049f31488adc8060601cb094669dff85fbb133ac27ff3cd680b3f17dfc5dc27",
    ("foliot.store.sqlite", "0004_truth"): "774bd8012e97e0a546c2c6524123090b24727a315a156db1a00361fadf5cd506",
    ("foliot.store.sqlite", "0005_pressure"): "8ebcc0e58c1607ebdc0b2c08949b3de2d2212b65db0c0e872d9b92235b92fb2a",
    # Join when the engine is released: the steps of postgres.
}


@pytest.mark.parametrize(("engine", "name"), FROZEN)
def test_a_released_step_is_never_edited(engine: str, name: str) -> None:
    text = files(engine).joinpath("migrations", f"{name}.sql").read_bytes()
    assert sha256(text).hexdigest() == FROZEN[engine, name], "put the step back as it was, and make another one"


@pytest.mark.parametrize("engine", ENGINES)
def test_steps_are_numbered_from_one_without_a_gap(engine: str) -> None:
    assert [int(step.name[:4]) for step in steps_of(engine)] == [step.number for step in steps_of(engine)]


@pytest.mark.parametrize("engine", ENGINES)
def test_released_steps_come_before_those_that_are_not(engine: str) -> None:
    released = [(engine, step.name) in FROZEN for step in steps_of(engine)]
    assert released == sorted(released, reverse=True)
