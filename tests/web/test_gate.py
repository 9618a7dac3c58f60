"""What comes before everything else: hosts, sites, sizes, marks; and what browsers are told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from foliot.errors import InvalidInput
from foliot.net import networks
from foliot.web.pages import live
from foliot.web.server import check_address
from foliot.web.settings import WebSettings, is_local_name
from tests.waiting import soon, until_async
from tests.web.stage import ELSEWHERE, LOCAL, Stage, staged

PAUSE = "/api/v1/schedules/plain/pause"
WHY = {"reason": "why"}


@pytest.fixture(scope="module")
def house() -> Iterator[Stage]:
    """Served to this host alone, and nobody ever made a token."""
    with staged(WebSettings(), lived=False) as made:
        yield made


@pytest.fixture(scope="module")
def door() -> Iterator[Stage]:
    """Served to everybody who has a token."""
    with staged(lived=False) as made:
        made.token("first")
        yield made


def test_the_local_user_needs_no_token_and_is_the_actor(house: Stage) -> None:
    me = house.somebody().get("/me")
    assert (me["scope"], me["tenant"]) == ("admin", None)
    house.somebody().post("/schedules/plain/pause", reason="why")
    [row] = house.somebody().get("/audit", action="pause", limit=1)["items"]
    assert row["actor"] == me["name"]


@pytest.mark.parametrize("host", ["evil.example.com", "127.0.0.1.evil.example.com", "192.0.2.1:8300", ""])
def test_a_name_that_was_bent_to_this_host_opens_nothing(house: Stage, host: str) -> None:
    response = house.somebody(host=host).ask("GET", "/api/v1/runs")
    assert response.status_code == 421


PROXY_HEADERS = {
    "forwarded": "for=192.0.2.1",
    "via": "1.1 proxy",
    "cdn-loop": "cdn",
    "client-ip": "203.0.113.7",
    "x-original-forwarded-for": "203.0.113.7",
    "x-azure-clientip": "203.0.113.7",
    "x-envoy-external-address": "203.0.113.7",
    "x_forwarded_for": "192.0.2.1",
    "x_forwarded_host": "jobs.example.com",
    "x_forwarded_port": "443",
    "x_forwarded_proto": "https",
    "x_forwarded_anything": "",
    "x_real_ip": "192.0.2.1",
}


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/runs"])
def test_a_request_with_a_proxy_header_needs_a_token_though_its_host_is_local(house: Stage, path: str) -> None:
    assert house.somebody().ask("GET", path).status_code == 200
    for name, value in PROXY_HEADERS.items():
        assert house.somebody(**{name: value}).ask("GET", path).status_code == 401, name
        assert house.somebody(host="localhost", **{name: value}).ask("GET", path).status_code == 401, name


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/runs"])
@pytest.mark.parametrize("peer", ["192.0.2.1", "::ffff:192.0.2.1", "fe80::1", "somewhere"])
def test_a_request_from_another_host_needs_a_token_though_its_host_is_local(house: Stage, path: str, peer: str) -> None:
    caller = house.somebody()
    caller.peer = peer
    assert caller.ask("GET", path).status_code == 401


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_a_program_on_this_host_reads_metrics_without_a_token(peer: str, house: Stage) -> None:
    caller = house.somebody(host="localhost:8300")
    caller.peer = peer
    assert caller.ask("GET", "/metrics").status_code == 200


def test_metrics_need_a_token_where_a_proxy_is_announced() -> None:
    with staged(WebSettings(public_url="https://jobs.example.com"), lived=False) as stage:
        said = {"authorization": f"Bearer {stage.token('scraper', 'read')}"}
        for caller, status in ((stage.somebody(), 401), (stage.somebody(**said), 200)):
            assert caller.ask("GET", "/metrics").status_code == status


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example.com"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": "http://127.0.0.1:9999"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_a_page_of_another_site_cannot_act(house: Stage, headers: dict[str, str]) -> None:
    response = house.somebody(**headers).ask("POST", PAUSE, json=WHY)
    assert response.status_code == 403
    assert response.json()["type"] == "urn:foliot:problem:from-elsewhere"


def test_a_page_of_our_own_can(house: Stage) -> None:
    own = {"origin": LOCAL, "sec_fetch_site": "same-origin"}
    assert house.somebody(**own).ask("POST", PAUSE, json=WHY).status_code == 200


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_what_a_form_could_send_is_not_read(house: Stage, media: str) -> None:
    response = house.somebody(content_type=media).ask("POST", PAUSE, content=b'{"reason": "why"}')
    assert response.status_code == 415


def test_once_there_is_a_token_the_local_user_needs_one_too() -> None:
    with staged(WebSettings(), lived=False) as stage:
        assert stage.somebody().ask("GET", "/api/v1/me").status_code == 200
        stage.token("first", expires_in="1s")
        stage.world.run_for("2s")
        assert stage.somebody().ask("GET", "/api/v1/me").status_code == 401


@pytest.mark.parametrize(
    ("name", "is_local"),
    [
        ("localhost", True),
        ("LOCALHOST:8300", True),
        ("127.0.0.1", True),
        ("[::1]:80", True),
        ("127.8.8.8", True),
        ("localhost.evil.example.com", False),
        ("10.0.0.1", False),
        ("", False),
        ("0x7f.1", False),
    ],
)
def test_which_names_are_this_host(name: str, is_local: bool) -> None:
    assert is_local_name(name) is is_local


def test_browsers_are_told_to_trust_nothing_else(door: Stage) -> None:
    for path in ("/login", "/healthz", "/api/v1/me", "/nothing"):
        headers = door.somebody(ELSEWHERE).ask("GET", path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"


def test_a_request_has_a_largest_size_whether_it_says_its_size_or_not(door: Stage) -> None:
    caller = door.caller("large")

    async def pieces() -> object:
        for _ in range(20):
            yield b" " * 100_000

    for body in (b" " * (1 << 20) + b"x", pieces()):
        response = caller.ask("POST", PAUSE, content=body, headers={"content-type": "application/json"})
        assert response.status_code == 413, response.text
    assert caller.ask("GET", "/api/v1/runs?text=" + "x" * 9_000).status_code == 414
    assert caller.ask("GET", "/api/v1/runs", headers={"x-much": "x" * 40_000}).status_code == 431


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"reason": NaN}',
        b"[" * 2_000 + b"]" * 2_000,
        b"[" * 100_000,
        b'{"reason": "a\\u0000b"}',
        b'{"reason": "\\ud800"}',
        b'{"reason": "\xff"}',
        b'{"reason": ' + b"1" * 5_000 + b"}",
    ],
)
def test_json_that_no_store_could_hold_is_refused(door: Stage, body: bytes) -> None:
    caller = door.caller(f"odd-{abs(hash(body))}")
    response = caller.ask("POST", PAUSE, content=body, headers={"content-type": "application/json"})
    assert response.status_code in (400, 422), response.text
    assert response.headers["content-type"] == "application/problem+json"


def _logged_in(door: Stage, name: str, scope: str = "operate") -> tuple[str, str]:
    """The cookie of a browser, and the mark that its pages carry."""
    token = door.token(name, scope)
    browser = door.somebody(ELSEWHERE, origin=ELSEWHERE)
    response = browser.ask("POST", "/login", data={"token": token})
    assert response.status_code == 303, response.text
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert token not in cookie
    session = cookie.partition(";")[0]
    home = door.somebody(ELSEWHERE, cookie=session).ask("GET", "/")
    return session, home.text.partition('name="csrf" value="')[2].partition('"')[0]


def test_a_browser_that_is_logged_in_acts_only_with_its_mark(door: Stage) -> None:
    session, mark = _logged_in(door, "browser")
    browser = door.somebody(ELSEWHERE, cookie=session)
    assert browser.get("/me")["name"] == "browser"
    assert browser.ask("POST", PAUSE, json=WHY).status_code == 403
    assert browser.ask("POST", PAUSE, json=WHY, headers={"x-csrf-token": "0" * 64}).status_code == 403
    _, anothers = _logged_in(door, "another")
    assert browser.ask("POST", PAUSE, json=WHY, headers={"x-csrf-token": anothers}).status_code == 403
    assert browser.ask("POST", PAUSE, json=WHY, headers={"x-csrf-token": mark}).status_code == 200


def test_who_logs_out_is_out_and_so_is_who_lost_the_token(door: Stage) -> None:
    session, mark = _logged_in(door, "leaver")
    browser = door.somebody(ELSEWHERE, cookie=session)
    assert browser.ask("POST", "/logout", data={"csrf": "wrong"}).status_code == 403
    assert browser.ask("POST", "/logout", data={"csrf": mark}).status_code == 303
    assert browser.ask("GET", "/api/v1/me").status_code == 401
    session, _ = _logged_in(door, "looser")
    door.world.call(door.app.operate.revoke_token_async("looser", reason="lost", actor="ana"))
    assert door.somebody(ELSEWHERE, cookie=session).ask("GET", "/api/v1/me").status_code == 401


@pytest.mark.parametrize("comes_with", ["token", "session"])
def test_whoever_watches_with_a_token_that_is_revoked_hears_nothing_more(
    door: Stage, comes_with: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert live.ASKED_EVERY <= 30
    monkeypatch.setattr(live, "ASKED_EVERY", 0.02)
    monkeypatch.setattr(live, "LOOK_EVERY", 0.01)
    name = f"watches-{comes_with}"
    if comes_with == "token":
        watcher = door.caller(name)
    else:
        watcher = door.somebody(ELSEWHERE, cookie=_logged_in(door, name)[0])

    stands, answers = live._stands, []

    async def noted(*given: Any) -> bool:
        answers.append(await stands(*given))
        return answers[-1]

    monkeypatch.setattr(live, "_stands", noted)

    async def watched() -> httpx.Response:
        stream = asyncio.create_task(watcher.ask_async("GET", "/live"))
        await until_async(lambda: len(answers) > 1, "the stream has asked twice whether the token stands")
        assert answers[:2] == [True, True]
        assert not stream.done()
        await door.app.operate.revoke_token_async(name, reason="leaked", actor="ana")
        return await soon(stream)

    assert door.world.call(watched()).text.startswith("retry: 3000\nevent: hello")


def test_a_wrong_token_does_not_log_in_and_is_shown_nowhere(door: Stage) -> None:
    response = door.somebody(ELSEWHERE).ask("POST", "/login", data={"token": "<script>alert(1)</script>"})
    assert response.status_code == 401
    assert "set-cookie" not in response.headers
    assert "<script" not in response.text


def test_a_person_who_is_not_logged_in_is_shown_the_door_that_opens(door: Stage) -> None:
    response = door.somebody(ELSEWHERE, accept="text/html").ask("GET", "/")
    assert (response.status_code, response.headers["location"]) == (303, "/login")


def test_behind_a_proxy_nobody_is_the_local_user() -> None:
    settings = WebSettings(public_url="https://jobs.example.com")
    with staged(settings) as stage:
        stranger = stage.somebody("https://jobs.example.com")
        assert stranger.ask("GET", "/api/v1/me").status_code == 401
        for refused in (settings, WebSettings(trusted_proxies=networks("10.0.0.0/8", "--trusted-proxies"))):
            with pytest.raises(InvalidInput, match=r"no token exists.* without a public URL and --trusted-proxies"):
                stage.world.call(check_address(stage.app, refused))


def test_behind_a_proxy_only_the_public_name_is_answered() -> None:
    settings = WebSettings(host="0.0.0.0", public_url="https://jobs.example.com")
    with staged(settings, lived=False) as stage:
        token = stage.token("first")
        said = {"authorization": f"Bearer {token}"}
        assert stage.somebody("http://jobs.example.com", **said).ask("GET", "/api/v1/me").status_code == 200
        assert stage.somebody("http://other.example.com", **said).ask("GET", "/api/v1/me").status_code == 421
        cookie = stage.somebody("http://jobs.example.com").ask("POST", "/login", data={"token": token})
        assert "Secure" in cookie.headers["set-cookie"]
