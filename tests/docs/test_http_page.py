"""The page on HTTP is true: what it shows runs, against a server and a scheduler that live."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from foliot import Foliot, bootstrap, every
from foliot.domain.run import Promise
from foliot.domain.state import State
from foliot.web.server import serve
from foliot.web.settings import WebSettings
from tests.docs import pages
from tests.docs.pages import DOCS
from tests.waiting import HANG, until

PAGE = DOCS / "http.md"
SHOWN = "http://127.0.0.1:8300"


class Live:
    """A web and a scheduler in a thread, on a store with a schedule and a picture that is to be resized."""

    def __init__(self, folder: Path) -> None:
        self.app = Foliot(f"sqlite:///{folder}/foliot.db")
        self.address = self.token = self.work_token = ""
        self._ready, self._over = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()))

    async def _live(self) -> None:
        @self.app.job
        async def report() -> None: ...

        self.app.schedule("nightly/report", report, every("1d"))
        await self.app.apply_async()
        store = await self.app.opened()
        create = partial(self.app.operate.create_token_async, reason="why", actor="ana")
        self.token = (await create("page", scope="operate")).text
        self.work_token = (await create("resizer", scope="work", jobs=["resize"])).text
        self._loop = asyncio.get_running_loop()
        await asyncio.gather(
            bootstrap.run_scheduler(store, self._over),
            serve(self.app, WebSettings(port=0), self._over, ready=self._began),
        )
        await self.app.close_async()

    def _began(self, address: str) -> None:
        self.address = address.rstrip("/")
        self._ready.set()

    def do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(HANG)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(HANG)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(HANG)
        assert not self._thread.is_alive(), "the web and the scheduler end when they are asked to"


@contextmanager
def living(folder: Path) -> Iterator[Live]:
    live = Live(folder)
    live.start()
    try:
        yield live
    finally:
        live.end()


def _promise(live: Live, key: str) -> None:
    payload = json.dumps({"width": 80}).encode()
    live.do(live.app.store.promise([Promise("resize", payload, live.app.clock.now(), key=key)]))
    # Not by what waits: the page triggers a schedule whose runs nobody here takes.
    until(lambda: live.do(live.app.store.run(f"{key}#1")).state is State.READY, "it is handed off")


def test_what_the_page_shows_happens(tmp_path: Path) -> None:
    shell = [block.text for block in pages.blocks(PAGE) if block.language == "sh"]
    assert len(shell) == 3
    with living(tmp_path) as live:
        _promise(live, "picture")
        script = "\n".join(["set -euo pipefail", *shell]).replace(SHOWN, live.address)
        told = subprocess.run(
            ["bash", "-c", script],
            env={"TOKEN": live.token, "WORK_TOKEN": live.work_token, "PATH": "/usr/bin:/bin:/usr/local/bin"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
        )
        assert told.returncode == 0, told.stderr
        assert "problem" not in told.stdout, told.stdout
        run = live.do(live.app.store.run("picture#1"))
        assert (run.state, run.result) == (State.SUCCEEDED, b'{"bytes":70123}')

        _promise(live, "another")
        namespace: dict[str, Any] = {"WORK_TOKEN": live.work_token, "FOLIOT_URL": live.address}
        [block] = pages.python_blocks(PAGE)
        exec(compile("\n" * block.line + block.text, str(PAGE), "exec", dont_inherit=True), namespace)
        assert namespace["work_once"](namespace["worker"]) == 1
        assert live.do(live.app.store.run("another#1")).result == b'{"bytes":240}'
