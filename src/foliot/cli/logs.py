"""The log of a scheduler or worker on stderr: messages, and lines about runs.

`json`: every line is one JSON object. `text`: the same for people. `off`: messages only, without lines about runs.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import NamedTuple

from foliot.cli.options import WrongUsage
from foliot.cli.settings import Settings
from foliot.domain.redaction import redacted_text

FORMATS = ("json", "text", "off")
LEVELS = {"info": logging.INFO, "warning": logging.WARNING}
STDERR = 2


class Log(NamedTuple):
    """What was chosen."""

    format: str
    level: int

    @property
    def tells_runs(self) -> bool:
        return self.format != "off"


def chosen(format: str | None, level: str | None, settings: Settings, *, supervised: bool) -> Log:
    """The format and level. Under `foliot up` the default is `off`, because its live activity shows runs already."""
    named = format or settings.log_format or ("off" if supervised else "text" if sys.stderr.isatty() else "json")
    if named not in FORMATS:
        raise WrongUsage(f"--log-format {named!r:.40}: give one of {', '.join(FORMATS)}")
    least = (level or settings.log_level or "info").lower()
    if least not in LEVELS:
        raise WrongUsage(f"--log-level {least!r:.40}: give one of {', '.join(LEVELS)}")
    return Log(named, LEVELS[least])


def begin(log: Log, role: str, *, supervised: bool) -> None:
    """Sets messages up. What the app has set up itself stays."""
    handler = logging.StreamHandler()
    handler.setFormatter(_formatter(log, role, supervised))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logger = logging.getLogger("foliot")
    if logger.level == logging.NOTSET:
        logger.setLevel(log.level)


def write(data: bytes) -> None:
    """All of it, also where a pipe takes it piece by piece."""
    view = memoryview(data)
    while view:
        view = view[os.write(STDERR, view) :]


def _formatter(log: Log, role: str, supervised: bool) -> logging.Formatter:
    if log.format == "json":
        return JsonFormatter()
    style, dates = "%(asctime)sZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
    if supervised:
        # It speaks between the lines of the account.
        style, dates = f"%(asctime)s · {role}: %(message)s", "%H:%M:%S"
    formatter = logging.Formatter(style, dates)
    formatter.converter = time.gmtime
    return formatter


class JsonFormatter(logging.Formatter):
    """A message as one JSON object, in the shape of the lines about runs."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "at": f"{at}.{int(record.created % 1 * 1_000_000):06d}Z",
            "level": record.levelname.lower(),
            "event": "message",
            "logger": record.name,
            "message": redacted_text(record.getMessage()),
        }
        if record.exc_info:
            fields["error"] = redacted_text(self.formatException(record.exc_info))
        return json.dumps(fields, ensure_ascii=False)
