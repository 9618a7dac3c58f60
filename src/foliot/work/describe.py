"""Errors in words: what a store can hold, and what people read."""

from __future__ import annotations

import os
import traceback

from foliot.work.hiding import Hide, as_it_is

MOST_ERROR = 8 * 1024
"""Bytes of UTF-8."""

_HERE = os.path.dirname(__file__) + os.sep


def describe(error: BaseException, hide: Hide = as_it_is) -> str:
    """Type and message first, then the traceback of the handler's own frames, its newest end kept when it is long.
    Secrets go before anything is cut off: half of one would be known by nothing."""
    told = headline(error, hide)
    try:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_HERE):
            frames = frames.tb_next
        trace = "".join(traceback.format_exception(type(error), error, frames)) if frames is not None else ""
    except BaseException:
        trace = ""
    room = MOST_ERROR - len(told.encode()) - 1
    return f"{told}\n{clean(hide(trace), room, keep_end=True)}" if trace else told


def headline(error: BaseException, hide: Hide = as_it_is) -> str:
    """Type and message; the type alone when the error's own code cannot tell them."""
    try:
        text = "".join(traceback.format_exception_only(error))
    except BaseException:
        text = type.__repr__(type(error))  # not the metaclass's own
    return clean(hide(text), MOST_ERROR // 4)


def clean(text: str, most: int = MOST_ERROR, *, keep_end: bool = False) -> str:
    """Text that any store can hold: valid UTF-8 without NUL, and not longer than `most` bytes."""
    data = text.replace("\0", "").encode("utf-8", "replace")
    if len(data) > most:
        dots = "…".encode()
        data = dots + data[len(dots) - most :] if keep_end else data[: most - len(dots)] + dots
    return data.decode("utf-8", "ignore").strip()
