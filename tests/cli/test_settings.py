"""Which app and which store."""

from __future__ import annotations

from pathlib import Path

import pytest

from foliot.cli.settings import Settings, load_app, resolve
from foliot.errors import InvalidInput, StoreError
from foliot.net import AddressGuard, networks
from tests.cli.support import refused, run

APP = "from foliot import Foliot\napp = Foliot()\n"


def write(name: str, text: str) -> Path:
    file = Path(name)
    file.write_text(text, "utf-8")
    return file


def test_the_command_line_beats_the_environment_which_beats_the_file(tmp_path: Path):
    write("foliot.toml", 'app = "file.py"\nstore = "sqlite:///file.db"\n')
    told = {"FOLIOT_APP": "environment.py", "FOLIOT_STORE": "sqlite:///environment.db"}
    assert resolve("given.py", "sqlite:///given.db", told, tmp_path) == Settings("given.py", "sqlite:///given.db")
    assert resolve(None, None, told, tmp_path) == Settings("environment.py", "sqlite:///environment.db")
    assert resolve(None, None, {}, tmp_path) == Settings("file.py", "sqlite:///file.db")
    assert resolve(None, "sqlite:///given.db", {}, tmp_path) == Settings("file.py", "sqlite:///given.db")


def test_networks_that_requests_may_go_to_come_from_the_environment_and_else_from_the_file():
    write("foliot.toml", 'private_networks = "10.20.0.0/16, 192.168.1.7"\n')
    given = {"FOLIOT_PRIVATE_NETWORKS": "127.0.0.1"}
    assert resolve(None, None, given, Path()).load().guard == AddressGuard(networks("127.0.0.1"))
    assert resolve(None, None, {}, Path()).load().guard == AddressGuard(networks("10.20.0.0/16 192.168.1.7"))


def test_without_any_setting_the_apps_own_store_holds():
    write("own.py", 'from foliot import Foliot\napp = Foliot("sqlite:///own.db")\n')
    assert Settings("own.py").load().store.file == "own.db"
    assert Settings("own.py", "sqlite:///other.db").load().store.file == "other.db"
    assert Settings().load().store.file == "other.db"  # the environment has it now


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stoer = 'x'", "did you mean 'store'"),
        ("colour = 'x'", "known keys: app, store"),
        ("app = 3", "app must be text"),
        ("app = ", "cannot be read"),
    ],
)
def test_a_mistake_in_the_file_is_told(text: str, told: str, tmp_path: Path):
    write("foliot.toml", text)
    with pytest.raises(InvalidInput, match=told):
        resolve(None, None, {}, tmp_path)


@pytest.mark.parametrize("given", ["jobs_a.py", "jobs_a.py:app", "./jobs_a.py"])
def test_an_app_is_found_in_a_file(given: str):
    write("jobs_a.py", APP)
    assert load_app(given).jobs == {}


def test_an_app_is_found_in_a_module_of_this_folder():
    write("jobs_module_b.py", APP.replace("app =", "shop ="))
    assert load_app("jobs_module_b:shop") is load_app("jobs_module_b")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("missing.py", "there is no file missing.py"),
        ("missing_module:app", "there is no module 'missing_module'"),
        ("not-a-module:app", "write it as module:app"),
        ("empty.py", "creates no app"),
        ("several.py", "choose one"),
        ("several.py:three", "its apps are: one, two"),
        ("broken.py", r"broken\.py:3: ZeroDivisionError"),
        ("unreadable.py", r"unreadable\.py:1: SyntaxError"),
        ("refusing.py", r"refusing\.py:4: .*there is no setting 'atempts'; did you mean 'attempts'"),
        ("leaving.py", "SystemExit"),
    ],
)
def test_a_wrong_app_is_refused_in_one_line_that_says_where(given: str, told: str):
    write("empty.py", "x = 1\n")
    write("several.py", "from foliot import Foliot\none = Foliot()\ntwo = Foliot()\n")
    write("broken.py", "\n\n1 / 0\n")
    write("unreadable.py", "def\n")
    write("refusing.py", f"{APP}\n@app.job(atempts=3)\ndef job(): ...\n")
    write("leaving.py", "raise SystemExit(0)\n")
    with pytest.raises(InvalidInput, match=told):
        load_app(given)
    refused(run("up", "--app", given), 1)


def test_a_command_that_looks_never_makes_a_store():
    with pytest.raises(StoreError, match=r"there is no store at nowhere\.db"):
        Settings(None, "sqlite:///nowhere.db").existing()
    refused(run("runs", "list", "--store", "sqlite:///nowhere.db"), 1)
    assert not Path("nowhere.db").exists()


def test_a_broken_app_does_not_keep_an_operator_from_a_store_that_is_named(store: str, monkeypatch: pytest.MonkeyPatch):
    write("broken_e.py", "1 / 0")
    monkeypatch.setenv("FOLIOT_APP", "broken_e.py")
    assert run("runs", "list", "--store", store).exit_code == 0
    assert "ZeroDivisionError" in refused(run("runs", "list"), 1)


def test_a_store_of_an_unknown_kind_is_refused():
    refused(run("runs", "list", "--store", "mysql://localhost"), 1)


def test_a_file_that_is_no_store_is_refused_in_one_line():
    write("text.db", "this is not a database, and it is long enough to be looked at as one" * 20)
    refused(run("runs", "list", "--store", "sqlite:///text.db"), 1)


def test_a_store_in_memory_cannot_be_shared_by_processes():
    write("jobs_d.py", APP)
    assert "in memory" in refused(run("up", "--app", "jobs_d.py", "--store", "sqlite:///:memory:"), 1)


def test_networks_of_proxies_that_cannot_be_read_are_refused_by_their_option():
    assert "--trusted-proxies: 'proxy.example.com' is not a network" in refused(
        run("web", "--trusted-proxies", "proxy.example.com"), 1
    )
