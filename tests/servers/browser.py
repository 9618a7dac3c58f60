"""A real browser, for tests of pages: the system's Chromium, found or installed."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

from tests.servers.host import obtain, why_not

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def _found() -> Path | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((Path(path) for name in names if (path := shutil.which(name))), None)


@cache
def chromium() -> Path:
    return obtain("Chromium", "chromium", _found)


def missing_browser() -> str | None:
    """Why there is no browser; None when there is one."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError as error:
        return f"playwright cannot be imported: {error}"
    return why_not(chromium)
