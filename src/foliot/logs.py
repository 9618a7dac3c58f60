"""Our own logs tell no secrets: what is logged as `foliot…` is redacted before any handler sees it."""

from __future__ import annotations

import logging

from foliot.domain.redaction import redacted_text

NAMES = ("foliot", *map("foliot.{}".format, "alerts dispatch operate store targets watch web work".split()))
"""Every logger of ours. What a filter of a logger sees is logged to that very one: it is not asked for what is logged
below it."""

_format = logging.Formatter().formatException


class Redacting(logging.Filter):
    """Takes out what has the form of a secret, tracebacks included."""

    def filter(self, record: logging.LogRecord) -> bool:
        told = record.getMessage()
        kept = redacted_text(told)
        if kept != told:
            record.msg, record.args = kept, None
        if record.exc_info and not record.exc_text:
            # Whoever formats the record takes this text, and makes none of its own.
            record.exc_text = redacted_text(_format(record.exc_info))
        return True


_redacting = Redacting()


def guard() -> None:
    """For the whole process; to be called twice does no harm."""
    for name in NAMES:
        logging.getLogger(name).addFilter(_redacting)
