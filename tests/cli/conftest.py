from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.cli.support import make_doubts, make_history


@pytest.fixture(scope="session")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lived-in")
    asyncio.run(make_history(f"sqlite:///{folder}/foliot.db"))
    return folder


@pytest.fixture(scope="session")
def doubted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doubted")
    asyncio.run(make_doubts(f"sqlite:///{folder}/foliot.db"))
    return folder


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads a foliot.toml, a foliot.db or a setting that somebody left lying around."""
    monkeypatch.chdir(tmp_path)
    for name in ("FOLIOT_APP", "FOLIOT_STORE", "FOLIOT_PRIVATE_NETWORKS", "FOLIOT_PUBLIC_URL"):
        monkeypatch.setenv(name, "")  # set, so that whatever a command puts there is undone after the test


@pytest.fixture
def store(lived_in: Path, tmp_path: Path) -> str:
    """The URL of a store in which things have happened; each test has a copy."""
    return _copied(lived_in, tmp_path)


@pytest.fixture
def doubts(doubted: Path, tmp_path: Path) -> str:
    """The URL of a store in which things are uncertain; each test has a copy."""
    return _copied(doubted, tmp_path)


def _copied(source: Path, target: Path) -> str:
    for file in source.iterdir():
        shutil.copy(file, target / file.name)
    return f"sqlite:///{target}/foliot.db"
