"""No secret in our logs, whoever writes them out."""

from __future__ import annotations

import io
import logging
import re
from pathlib import Path

import pytest

import foliot
from foliot.logs import NAMES, guard

SOURCES = Path(foliot.__file__).parent


def test_every_logger_of_ours_is_known_here() -> None:
    found = {name for file in SOURCES.rglob("*.py") for name in re.findall(r'getLogger\("(.*?)"\)', file.read_text())}
    assert found <= set(NAMES), "add it to foliot.logs"


@pytest.mark.parametrize("name", NAMES)
def test_a_secret_is_taken_out_of_messages_and_of_tracebacks(name: str) -> None:
    guard()
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        logger.warning("connecting to %s failed", "postgresql://app:hunter2@db/school")
        try:
            raise ValueError("password=hunter2")
        except ValueError:
            logger.exception("it went wrong, %d times", 3)
    finally:
        logger.removeHandler(handler)
    told = stream.getvalue()
    assert "hunter2" not in told
    assert "postgresql://app:[redacted]@db/school" in told
    assert "it went wrong, 3 times" in told
    assert "ValueError: password=[redacted]" in told
