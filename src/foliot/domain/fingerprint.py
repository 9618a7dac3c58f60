"""Fingerprints of declarations: canonical data, its hash, and whether a declaration is the one applied last. Pure.

Canonical data is JSON with names and values of its own. It follows no name of a Python attribute, class or enum member,
and no `repr`. Keys are sorted, durations are whole microseconds, and a field without a value is left out. So neither a
rename nor a new field changes any hash. A setting is part of it where app, job or schedule chose it and it is not the
baseline, so a default that changes in a later release changes no declaration.

A rule stands in it as `Rule.encode` writes it, because stored rules and older releases fix that form. A change of the
canonical data needs the next format number. Fingerprints of another format are compared in format 0, and then by
content.

Format 1: an RRULE that states no policy for changes of the clocks has Vixie's. Format 2: it has that of RFC 5545, and
is written with `"gap":"shift_forward"`. `rule_before` writes it as releases of format 0 and 1 do.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from json.encoder import encode_basestring_ascii
from typing import Any

from foliot.domain import fingerprint_0
from foliot.domain.gates import Rate
from foliot.domain.locking import is_shut
from foliot.domain.policy import (
    AtCutoff,
    BlocksUntil,
    CatchUp,
    OnLost,
    OnStall,
    Overlap,
    Policy,
    choices_from_json,
)
from foliot.domain.schedule import FORMAT, Declaration, Fingerprint, Release, Schedule
from foliot.errors import InvalidInput

SETTINGS: Mapping[str, str] = {
    "attempts": "attempts",
    "attempts_after_effect": "attempts_after_effect",
    "attempts_inside_effect": "attempts_inside_effect",
    "retries_per_hour": "retries_per_hour",
    "poison_after": "poison_after",
    "backoff": "backoff",
    "backoff_cap": "backoff_cap",
    "give_up_after": "give_up_after",
    "timeout": "timeout",
    "stall_after": "stall_after",
    "on_stall": "on_stall",
    "lease": "lease",
    "on_lost": "on_lost",
    "overlap": "overlap",
    "queue_limit": "queue_limit",
    "blocks_until": "blocks_until",
    "concurrency_key": "concurrency_key",
    "key_limit": "key_limit",
    "destination": "destination",
    "breaker_after": "breaker_after",
    "breaker_probe": "breaker_probe",
    "labels": "labels",
    "concurrency": "concurrency",
    "rate": "rate",
    "catch_up": "catch_up",
    "catch_up_window": "catch_up_window",
    "missed_after": "missed_after",
    "requires": "requires",
    "cutoff": "cutoff",
    "at_cutoff": "at_cutoff",
    "complete": "complete",
    "useful_until": "useful_until",
    "jitter": "jitter",
    "expect_every": "expect_every",
    "expect_within": "expect_within",
    "ping": "ping",
    "no_alerts": "no_alerts",
}
"""By attribute of `Policy`, the wire name. A rename changes the left side alone."""

BASELINE: Mapping[str, Any] = {**fingerprint_0.SETTINGS}
"""By wire name, the value that is left out. It is fixed when a setting is added, and does not follow the default."""

VALUES: Mapping[type[Enum], Mapping[Enum, str]] = {
    Overlap: {
        Overlap.SKIP: "skip",
        Overlap.QUEUE: "queue",
        Overlap.COALESCE: "coalesce",
        Overlap.REPLACE: "replace",
        Overlap.ALLOW: "allow",
    },
    BlocksUntil: {
        BlocksUntil.ENDED: "ended",
        BlocksUntil.SUCCEEDED: "succeeded",
        BlocksUntil.VERIFIED: "verified",
    },
    CatchUp: {CatchUp.ONCE: "once", CatchUp.ALL: "all", CatchUp.SKIP: "skip"},
    AtCutoff: {AtCutoff.SKIP: "skip", AtCutoff.RUN: "run"},
    OnLost: {OnLost.RETRY: "retry", OnLost.ASK: "ask"},
    OnStall: {OnStall.ALERT: "alert", OnStall.CANCEL: "cancel", OnStall.KILL: "kill"},
}
"""Wire values of enum members."""

CARRIED = ("concurrency_key", "key_limit", "blocks_until", "destination", "labels")
"""Settings that a run carries also where its job chose them: `settings` has them, so `own` does not."""

_DEFAULTS = Policy()


# ----------------------------------------------------------------------------------------------------------- wire forms


def wire(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by wire name, with wire values, in the given order."""
    return {SETTINGS[attribute]: _wire_value(value) for attribute, value in settings.items()}


def wire_policy(policy: Policy, said: Collection[str] | None) -> dict[str, Any]:
    """The settings of a policy that `said` names and that are not the baseline. None: those that are not the defaults
    count as chosen."""
    if said is None:
        said = [field.name for field in fields(policy) if getattr(policy, field.name) != getattr(_DEFAULTS, field.name)]
    found = wire({attribute: getattr(policy, attribute) for attribute in SETTINGS if attribute in said})
    return {name: value for name, value in found.items() if value != BASELINE[name]}


@lru_cache(maxsize=4_096)
def shared_wire_policy(policy: Policy, said: frozenset[str] | None) -> Mapping[str, Any]:
    """`wire_policy`, computed once for all schedules with the same settings. The caller must not change it."""
    return wire_policy(policy, said)


def _wire_value(value: Any) -> Any:
    if isinstance(value, Enum):
        return VALUES[type(value)][value]
    if isinstance(value, Rate):
        return value.every
    return list(value) if isinstance(value, tuple) else value


def _rule(encoded: str) -> Any:
    return _loaded(encoded.encode())


def _loaded(text: bytes) -> Any:
    """A JSON value; text that is no JSON stands for itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"bytes": text.hex()}


def rule_before(encoded: str) -> str:
    """A rule as releases of format 0 and 1 write the same declaration: without the default policy of an RRULE."""
    if '"rrule"' not in encoded or '"gap":"shift_forward"' not in encoded:
        return encoded
    return json.dumps(_without_default(json.loads(encoded)), separators=(",", ":"), ensure_ascii=False)


def _without_default(shape: Any) -> Any:
    if isinstance(shape, list):
        return [_without_default(part) for part in shape]
    if not isinstance(shape, dict):
        return shape
    is_default = "rrule" in shape and shape.get("gap") == "shift_forward"
    return {name: _without_default(value) for name, value in shape.items() if not (is_default and name == "gap")}


def _choices(options: bytes | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings and the binding among a schedule's options, in wire form."""
    try:
        chosen = wire(choices_from_json(options))
    except InvalidInput:
        chosen = {"unreadable": (options or b"").hex()}
    stored = _loaded(options or b"{}")
    bound = stored.get("bind") if isinstance(stored, dict) else None
    return chosen, bound if isinstance(bound, dict) else {}


# ------------------------------------------------------------------------------------------------------- canonical data


def canonical(declaration: Declaration | Schedule) -> dict[str, Any]:
    """The data of a declaration, or of a schedule as it is stored, in the present format."""
    said = declaration.said if isinstance(declaration, Declaration) else None
    chosen, bound = _choices(declaration.options)
    given = {
        "name": declaration.id,
        "job": declaration.job,
        "rule": _rule(declaration.rule),
        "args": _loaded(declaration.payload or b"{}"),
        "bind": bound,
        "settings": wire_policy(declaration.policy, said),
        "own": {name: value for name, value in chosen.items() if name not in CARRIED},
        "queue": declaration.queue,
        "priority": declaration.priority or None,
        "tenant": declaration.tenant,
        "owner": declaration.owner,
        "runbook": declaration.runbook,
        "changes": declaration.changes,
        "over": declaration.over,
    }
    return {name: value for name, value in given.items() if value not in (None, {})}


_text = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode


_LEFT_OUT = ("", "{}", "null")


def canonical_json(data: Any) -> bytes:
    return _text(data).encode()


def canonical_form(declaration: Declaration) -> bytes:
    """`canonical_json(canonical(declaration))`, written from parts: schedules of one app share most of them."""
    own, bound = _shared_choices(declaration.options)
    fields = (
        ("args", "" if declaration.payload == b"{}" else _text(_loaded(declaration.payload or b"{}"))),
        ("bind", bound),
        ("changes", _quoted(declaration.changes)),
        ("job", _quoted(declaration.job)),
        ("name", _quoted(declaration.id)),
        ("over", _quoted(declaration.over)),
        ("own", own),
        ("owner", _quoted(declaration.owner)),
        ("priority", _text(declaration.priority) if declaration.priority else ""),
        ("queue", _quoted(declaration.queue)),
        ("rule", _text(_rule(declaration.rule))),
        ("runbook", _quoted(declaration.runbook)),
        ("settings", _shared_settings(declaration.policy, declaration.said)),
        ("tenant", _quoted(declaration.tenant)),
    )
    return ("{" + ",".join([f'"{name}":{text}' for name, text in fields if text not in _LEFT_OUT]) + "}").encode()


def _quoted(text: str | None) -> str:
    return "" if text is None else encode_basestring_ascii(text)


@lru_cache(maxsize=4_096)
def _shared_settings(policy: Policy, said: frozenset[str] | None) -> str:
    return _text(shared_wire_policy(policy, said))


@lru_cache(maxsize=4_096)
def _shared_choices(options: bytes | None) -> tuple[str, str]:
    chosen, bound = _choices(options)
    return _text({name: value for name, value in chosen.items() if name not in CARRIED}), _text(bound)


def digest_of(declaration: Declaration) -> str:
    """The fingerprint in the present format."""
    return blake2b(canonical_form(declaration), digest_size=16).hexdigest()


def signed(declaration: Declaration, former: str) -> Declaration:
    """With its fingerprints: in the present format, and `former`, which is that of format 0."""
    return replace(declaration, fingerprint=digest_of(declaration), format=FORMAT, former=former)


def release_of(signatures: Mapping[str, Fingerprint]) -> Release:
    """The release that declares all schedules with these fingerprints, by name."""
    stated = {name: signature.hash for name, signature in signatures.items()}
    digest = blake2b(canonical_json(stated), digest_size=16).hexdigest()
    former = {name: signature.former for name, signature in signatures.items()}
    return Release(fingerprint_0.of_release(former), digest, FORMAT)


# ----------------------------------------------------------------------------------------------------------- comparing


def former_of(declaration: Declaration) -> str:
    return declaration.former or declaration.fingerprint


def is_applied(declaration: Declaration, applied: Fingerprint) -> bool | None:
    """Whether this declaration is the one applied last, by their fingerprints. None: only the content can show it."""
    return is_same(Fingerprint(declaration.fingerprint, declaration.format, former_of(declaration)), applied)


def is_same(declared: Fingerprint, applied: Fingerprint) -> bool | None:
    """Whether two declarations are the same, by their fingerprints. None: only the content can show it.

    A hash that differs in another format shows nothing: a release that writes the same data otherwise has another hash.
    """
    if not applied.former:
        return False  # it was never declared
    if applied.format == declared.format:
        return applied.hash == declared.hash
    return True if applied.former == declared.former else None


def is_declared(declaration: Declaration, schedule: Schedule, edited: Collection[str] | None) -> bool:
    """Whether a stored schedule has this declaration. `edited`: the fields that operators edited since it was applied;
    None when there are none."""
    by_hash = is_applied(declaration, schedule.applied)
    return has_content(declaration, schedule, edited) if by_hash is None else by_hash


def has_content(declaration: Declaration, schedule: Schedule, edited: Collection[str] | None) -> bool:
    """Whether a stored schedule is as declared, in all that operators did not edit."""
    return not differences(declaration, schedule, edited)


def differences(declaration: Declaration, schedule: Schedule, edited: Collection[str] | None) -> set[str]:
    """The wire names of what differs. Edited fields are left out: of these the store holds the edit alone."""
    ours, theirs = _fields(declaration), _fields(schedule)
    found = {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}
    if "rule" in found and _rule(rule_before(declaration.rule)) == _rule(schedule.rule):
        found.remove("rule")  # the same declaration, applied by a release with another default: the stored rule stays
    if is_shut(schedule.payload) or is_shut(declaration.payload):
        # Arguments that cannot be read cannot be compared. Without an edit nothing is lost by writing them again.
        found = found - {"args"} if edited is not None else found | {"args"}
    if edited is None:
        return found
    # An edit writes settings of the job into the schedule's own; `settings` shows their effect.
    return {name for name in found if not name.startswith("own.")} - {SETTINGS.get(name, name) for name in edited}


def _fields(one: Declaration | Schedule) -> dict[str, Any]:
    data = canonical(one)
    settings: dict[str, Any] = data.pop("settings", {})
    own: dict[str, Any] = data.pop("own", {})
    return data | settings | {f"own.{name}": value for name, value in own.items()}
