"""Real processes: they do their work, end in order after a signal, and do not outlive their supervisor."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from foliot import Foliot
from foliot.cli import up
from foliot.cli.settings import Settings
from foliot.cli.supervisor import Supervisor
from foliot.errors import InvalidInput
from tests.cli.support import EXAMPLES, is_alive, process, refused, run, run_json, until
from tests.waiting import HANG

pytestmark = pytest.mark.faults

JOBS = """
import asyncio, time
from pathlib import Path
from foliot import Context, Foliot, every

app = Foliot(lease="2s", timeout="1h", backoff="0s")

@app.job
async def tick() -> None: ...

@app.job
async def finish(ctx: Context) -> None:
    while not Path(__file__).with_name("may finish").exists():
        await asyncio.sleep(0.05)

@app.job(queue="slow")
def stubborn() -> None:
    time.sleep(3600)

@app.job(queue="slower")
def obstinate() -> None:
    time.sleep(3600)

app.schedule("tick", tick, every("200ms"))
app.schedule("finishing", finish, every("10000d"))
app.schedule("stubborn", stubborn, every("10000d"))
app.schedule("obstinate", obstinate, every("10000d"))
"""
WHY = ("--reason", "a test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("processes")
    (made / "jobs.py").write_text(JOBS, "utf-8")
    return made


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/foliot.db"


@pytest.fixture(scope="module")
def scheduled(folder: Path) -> Iterator[str]:
    """The URL of a store that a scheduler serves, for tests that start workers."""
    inside, url = folder / "scheduler", f"sqlite:///{folder}/foliot.db"
    inside.mkdir()
    with process(inside, "scheduler", "--app", folder / "jobs.py", "--store", url) as scheduler:
        until(lambda: run("schedules", "show", "tick", "--store", url).exit_code == 0, "schedules were applied")
        yield url
        assert scheduler.end() == 0


def states(url: str, *filters: str) -> list[str]:
    """At one moment: what is asked twice may have gone on in between."""
    listed = run("runs", "list", *filters, "--store", url, "--json")
    return [] if listed.exit_code else [shape["state"] for shape in json.loads(listed.stdout)]


def ended(url: str, job: str) -> int:
    return states(url, "--job", job, "--limit", "100").count("succeeded")


def test_the_example_shows_every_ending_and_ends_in_order(tmp_path: Path, url: str):
    app = EXAMPLES / "learning_platform.py"
    with process(tmp_path, "up", "--app", app, "--store", url, "--grace", "1s", "--json") as up:
        until(lambda: run("schedules", "show", "campus", "--store", url).exit_code == 0, "schedules were applied")
        run_json("schedules", "trigger", "campus", *WHY, "--store", url)
        until(lambda: {"ended", "retrying"} <= {line["kind"] for line in up.lines()}, "the account told of a retry")
        until(lambda: _verdicts(up.lines()) >= {"succeeded", "cancelled"}, "the account told of a cancelled reminder")
        children = [up.started(name)[0] for name in ("scheduler", "worker")]
        assert up.end(signal.SIGINT) == 0
        assert not any(map(is_alive, children))
        assert up.lines()[-1]["text"] == "stopped"
    found = run_json("doctor", "--store", url)
    assert (found["ok"], found["counts"]["early"], found["instances"]) == (True, 0, [])


def _verdicts(lines: list[dict[str, object]]) -> set[object]:
    return {line["state"] for line in lines if line["kind"] == "ended"}


def test_a_worker_that_is_killed_is_started_again_and_ends_when_its_supervisor_is_killed(
    tmp_path: Path, folder: Path, url: str
):
    jobs = folder / "jobs.py"
    with process(tmp_path, "up", "--app", jobs, "--store", url, "--grace", "1s", "--json") as up:
        until(lambda: ended(url, "tick") >= 2, "the first runs ended")
        os.kill(up.started("worker")[0], signal.SIGKILL)
        until(lambda: len(up.started("worker")) == 2, "the worker was started again")
        told = [line["what"] for line in up.lines() if line["kind"] == "process"]
        assert "exited (SIGKILL); restarting in 1 s" in told
        before = ended(url, "tick")
        until(lambda: ended(url, "tick") > before, "work went on")
        children = [up.started(name)[-1] for name in ("scheduler", "worker")]
        assert all(map(is_alive, children))
        up.popen.kill()
        until(lambda: not any(map(is_alive, children)), "the children had ended")
    registered = {instance["role"] for instance in run_json("doctor", "--store", url)["instances"]}
    assert registered <= {"worker"}, "only the worker that was killed may not have signed off"


def test_up_gives_the_settings_of_a_proxy_to_the_process_that_serves_the_pages() -> None:
    child = up._web(Settings(app="jobs.py"), "127.0.0.1", 0, "1s", "10.0.0.0/8")
    words = list(child.command)
    assert words[words.index("--trusted-proxies") + 1] == "10.0.0.0/8"


@pytest.mark.parametrize("as_json", [False, True])
def test_up_names_the_port_that_it_took_and_why(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        usual = other.getsockname()[1]
        monkeypatch.setattr(up, "PORT", usual)
        chosen = up._chosen_port("127.0.0.1", None)
        with pytest.raises(InvalidInput, match=f"port {usual} is in use: choose another"):
            up._chosen_port("127.0.0.1", usual)
    assert chosen.port not in (0, usual)
    up._Up(Foliot("sqlite:///:memory:"), Settings(app="jobs.py"), [], 0, as_json, chosen)._greet()
    shown = capsys.readouterr().out
    if as_json:
        assert json.loads(shown)["web"] == chosen.address
    else:
        why = f"port {usual} is in use; choose one with --port"
        assert f"dashboard: http://127.0.0.1:{chosen.port}/ ({why})" in shown
    assert up._chosen_port("127.0.0.1", None).why == ""  # the port is free again


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--trusted-proxies", "proxy", "'proxy' is not a network"),
        ("--public-url", "example.com", "give scheme and host"),
    ],
)
def test_up_refuses_wrong_settings_of_a_proxy_before_it_starts_a_process(
    folder: Path, url: str, option: str, value: str, complaint: str
) -> None:
    result = run("up", "--app", folder / "jobs.py", "--store", url, "--port", "0", option, value)
    assert result.exit_code == 1
    assert complaint in result.stderr


@pytest.mark.parametrize("options", [("--public-url", "https://foliot.example.com"), ("--host", "0.0.0.0")])
def test_up_refuses_an_address_of_other_hosts_without_a_token(
    folder: Path, url: str, options: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supervisor, "start", lambda self: pytest.fail("a process was started"))
    command = ("up", "--app", folder / "jobs.py", "--store", url, "--port", "0", *options)
    error = refused(run(*command), 1)
    assert "no token exists; create one first: foliot tokens create admin" in error
    assert run_json("tokens", "list", "--store", url) == [], "the store exists, so a token can be created"


def test_a_worker_lets_running_work_finish_and_a_second_signal_ends_it_at_once(
    tmp_path: Path, folder: Path, scheduled: str
):
    given = ("--app", folder / "jobs.py", "--store", scheduled, "--grace", f"{HANG:g}s")
    with process(tmp_path, "worker", *given) as worker:
        for schedule, job in (("finishing", "finish"), ("stubborn", "stubborn")):
            run_json("schedules", "trigger", schedule, *WHY, "--store", scheduled)
            until(partial(states, scheduled, "--state", "running", "--job", job), f"{job} runs")
        worker.popen.send_signal(signal.SIGTERM)  # its main thread takes the signal before it runs anything else
        (folder / "may finish").touch()
        until(lambda: ended(scheduled, "finish") == 1, "the run that was running has finished")
        assert worker.popen.poll() is None, "a thread is running still, and its grace has not ended"
        assert worker.end() == 128 + signal.SIGTERM


def test_a_worker_leaves_a_thread_that_does_not_end_within_its_grace(tmp_path: Path, folder: Path, scheduled: str):
    given = ("--app", folder / "jobs.py", "--store", scheduled, "--grace", "1s", "--queues", "slower")
    with process(tmp_path, "worker", *given) as worker:
        run_json("schedules", "trigger", "obstinate", *WHY, "--store", scheduled)
        until(lambda: states(scheduled, "--state", "running", "--job", "obstinate"), "it runs")
        assert worker.end() == 0
        assert "interrupted obstinate@" in worker.err.read_text("utf-8")


def test_a_scheduler_without_an_app_serves_what_is_in_the_store(tmp_path: Path, store: str):
    with process(tmp_path, "scheduler", "--store", store) as scheduler:
        until(lambda: run_json("doctor", "--store", store)["instances"], "it registered")
        made = run_json("schedules", "trigger", "greetings", *WHY, "--store", store)
        until(lambda: run_json("runs", "show", made["id"], "--store", store)["state"] == "ready", "it was handed off")
        assert scheduler.end() == 0
    assert run_json("doctor", "--store", store)["instances"] == []
