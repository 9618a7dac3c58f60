"""How tenants stand beside one another, in numbers and in words."""

from __future__ import annotations

from foliot.domain.fairness import TenantView
from foliot.domain.instant import MINUTE
from foliot.operate.tenants import TenantShare, shares, tenant_shape, tenant_words
from tests.operate.values import DUE, NOW


def told(*views: TenantView) -> dict[str | None, str]:
    found = shares(views, NOW)
    return {share.view.tenant: tenant_words(share, found) for share in found}


def standing(tenant: str | None, waiting: int, running: int) -> TenantView:
    return TenantView(tenant, waiting, running, DUE if waiting else None)


def test_who_floods_is_named() -> None:
    assert told(standing("acme", 9_950, 20), standing("other", 50, 20)) == {
        "acme": "floods: 9,950 of 10,000 waiting runs",
        "other": "",
    }


def test_who_has_more_than_its_share_while_others_wait_is_named() -> None:
    assert told(standing("other", 80, 5), standing("acme", 0, 35)) == {
        "other": "",
        "acme": "takes 35 slots, its fair share is 20",
    }


def test_a_tenant_that_is_alone_is_in_nobodys_way() -> None:
    assert told(standing("acme", 9_950, 20)) == {"acme": ""}


def test_who_uses_what_nobody_wants_is_in_nobodys_way() -> None:
    assert told(standing("acme", 0, 95), standing("other", 0, 5)) == {"acme": "", "other": ""}


def test_a_tenant_has_a_shape() -> None:
    [share, _] = shares([standing(None, 300, 10), standing("other", 0, 2)], NOW)
    assert isinstance(share, TenantShare)
    assert tenant_shape(share) == {
        "tenant": None,
        "weight": 1.0,
        "waiting": 300,
        "running": 10,
        "share": 10.0,
        "oldest_due_at": "2026-04-03T06:00:00Z",
        "delay": 20 * MINUTE / 1_000_000,
        "takes_more": False,
        "floods": True,
    }
