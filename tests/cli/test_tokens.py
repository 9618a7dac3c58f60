"""`foliot tokens` and `foliot web`, as an operator types them."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import httpx
import pytest

from tests.cli.support import process, refused, run, run_json, until

WHY = ("--reason", "for the build")


def test_a_token_is_told_once_and_only_its_name_afterwards(store: str) -> None:
    made = run("tokens", "create", "ci", "--scope", "operate", "--expires", "90d", *WHY, "--store", store)
    assert made.exit_code == 0
    token = made.stdout.strip()
    assert token.startswith("foliot_")
    assert "store it now" in made.stderr
    listed = run("tokens", "list", "--store", store)
    assert "ci" in listed.stdout
    assert token not in listed.stdout
    [shape] = run_json("tokens", "list", "--store", store)
    assert (shape["name"], shape["scope"], shape["state"], shape["used_at"]) == ("ci", "operate", "good", None)
    assert token.encode() not in Path(store.removeprefix("sqlite:///")).read_bytes()


def test_a_token_is_revoked_with_a_reason(store: str) -> None:
    run("tokens", "create", "ci", *WHY, "--store", store)
    assert "--reason is required" in refused(run("tokens", "revoke", "ci", "--store", store), 2)
    assert run_json("tokens", "revoke", "ci", "--reason", "leaked", "--store", store)["state"] == "revoked"
    assert "no token 'cd'" in refused(run("tokens", "revoke", "cd", "--reason", "leaked", "--store", store), 1)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("ci", "--scope", "everything"), "give one of read, work, operate, admin"),
        (("c i",), "cannot name a token"),
        (("ci", "--tenant", "a b"), "cannot name a tenant"),
        (("ci", "--expires", "soon"), "is not a duration"),
        (("ci", "--job", "resize"), "job, queue and all_tenants apply only to tokens of scope work"),
        (("ci", "--scope", "work", "--job", "r", "--tenant", "a", "--all-tenants"), "give one of them"),
    ],
)
def test_what_cannot_be_a_token_is_refused(store: str, given: tuple[str, ...], told: str) -> None:
    assert told in refused(run("tokens", "create", *given, *WHY, "--store", store), 1)


def test_a_token_that_takes_runs_names_its_jobs_or_queues(store: str) -> None:
    create = ("tokens", "create", "resizer", "--scope", "work", *WHY, "--store", store)
    assert "a token of scope work needs jobs or queues; name them" in refused(run(*create), 1)
    made = run(*create, "--job", "resize", "--job", "crop", "--queue", "gpu", "--tenant", "acme")
    assert made.stdout.startswith("foliot_work_")
    assert "created token resizer with scope work (jobs resize, crop, queues gpu, tenant acme)" in made.stderr
    [shape] = run_json("tokens", "list", "--store", store)
    assert (shape["jobs"], shape["queues"], shape["tenant"]) == (["resize", "crop"], ["gpu"], "acme")
    assert "job resize, job crop, queue gpu" in run("tokens", "list", "--store", store).stdout


def test_an_address_that_others_reach_is_refused_without_a_token(store: str) -> None:
    told = refused(run("web", "--host", "0.0.0.0", "--port", "0", "--store", store), 1)
    assert "foliot tokens create" in told


def test_the_web_serves_this_host_until_it_is_told_to_end(store: str, tmp_path: Path) -> None:
    with process(tmp_path, "web", "--port", "0", "--store", store) as web:
        until(lambda: "serving http" in web.err.read_text(), "it serves")
        found = re.search(r"serving (http://127\.0\.0\.1:\d+/)", web.err.read_text())
        assert found is not None
        address = found[1]
        with httpx.Client(base_url=address) as client:
            assert client.get("/healthz").json()["status"] == "ok"
            assert client.get("/readyz").status_code == 503
            assert client.get("/api/v1/runs").json()["items"]
            assert client.get("/api/v1/runs", headers={"host": "evil.example.com"}).status_code == 421
            assert "server" not in client.get("/healthz").headers
        assert web.end(signal.SIGTERM) == 0
