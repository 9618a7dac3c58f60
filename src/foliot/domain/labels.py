"""Labels: what a worker has and a run needs, such as `gpu` or `region=eu`. Pure.

A run that needs some is handed off under a name that says so (`resize@gpu,region=eu`), as a check is (`settle?`): a
worker takes what is handed off under names that it knows, and whoever knows nothing of labels passes it by.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from foliot.errors import InvalidInput

MOST_LABELS = 16
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,49}(=[A-Za-z0-9._/-]{1,50})?")
_SIGN = "@"
"""No name of a job has it, and no label."""


def checked_labels(given: Any) -> tuple[str, ...]:
    """In order, each once; InvalidInput for what is none."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise InvalidInput(f'labels={given!r:.80}: give a set of them, as in labels={{"gpu", "region=eu"}}')
    listed = list(given)
    for label in listed:
        if not isinstance(label, str) or not _LABEL.fullmatch(label):
            raise InvalidInput(
                f"{label!r:.80} is not a label; use letters, digits and . _ / -, as in gpu, or two of these with = "
                "between them, as in region=eu"
            )
    found = tuple(sorted(set(listed)))
    if len(found) > MOST_LABELS:
        raise InvalidInput(f"{len(found)} labels are too many; give at most {MOST_LABELS}")
    return found


def labelled(name: str, labels: Iterable[str]) -> str:
    """What runs of a job, or checks of it, are handed off under that need these labels."""
    needed = ",".join(labels)
    return f"{name}{_SIGN}{needed}" if needed else name


def parted(name: str) -> tuple[str, tuple[str, ...]]:
    """The job, or its check, and the labels, behind such a name."""
    job, _, needed = name.partition(_SIGN)
    return job, tuple(needed.split(",")) if needed else ()


def can_take(name: str, jobs: Collection[str], labels: Collection[str]) -> bool:
    """Whether a worker that knows these jobs and has these labels takes what was handed off under a name."""
    job, needed = parted(name)
    return job in jobs and set(needed) <= set(labels)
