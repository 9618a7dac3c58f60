"""Schedules as people and files state them, without the code of their jobs. Pure.

What the store knows of a job is on its card: its policy, its queue, what it touches. Its signature is not: arguments
are checked to be data, and whoever executes a run finds out whether they fit.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, NamedTuple

from foliot.domain import fingerprint_0
from foliot.domain.fingerprint import rule_before, signed, wire, wire_policy
from foliot.domain.identity import checked_line, checked_name, checked_priority, checked_tenant
from foliot.domain.instant import SECOND, Instant, spell
from foliot.domain.locking import SHOWN_SHUT, is_shut, why_shut
from foliot.domain.policy import (
    Policy,
    choices,
    choices_from_json,
    choices_to_json,
    policy_from_json,
    refuse_of_jobs,
)
from foliot.domain.redaction import REDACTED, Secrets
from foliot.domain.rule import Rule
from foliot.domain.schedule import Declaration, Schedule
from foliot.domain.store import DEFAULT_QUEUE, JobCard
from foliot.domain.templates import Carried
from foliot.errors import InvalidInput, InvalidRule, Locked, UnknownName
from foliot.operate.advising import traits_of
from foliot.operate.shapes import DURATIONS, policy_shape
from foliot.operate.showing import shown_arguments
from foliot.timing import chosen_policies, decode, parse, takes_policy, takes_zone
from foliot.timing.binding import MEMBER, Binding, binding, binding_in
from foliot.timing.ticks import upcoming

MOST_PAYLOAD = 1 << 20
COMING = 5
"""So many next ticks are shown before and after a change."""
_TEXTS = ("owner", "runbook", "changes")
_DESCRIBED = ("queue", "priority", "tenant", *_TEXTS)
_POLICY = tuple(field.name for field in fields(Policy))
EDITABLE = ("rule", "tz", "args", "bind", *_DESCRIBED)
"""What can be edited beside settings of the policy."""
STATABLE = ("name", "job", "over", "paused", *EDITABLE)
_DEFAULTS = Policy()
_HIDDEN = (f'"{REDACTED}"'.encode(), *SHOWN_SHUT)
"""What people are shown in the place of a secret: it must not become the value."""


class FieldChange(NamedTuple):
    """One thing that becomes another; values as JSON has them."""

    field: str
    before: Any
    after: Any


class Ticks(NamedTuple):
    """What comes next, under two rules."""

    before: list[Instant]
    after: list[Instant]


# Stating


def stated_schedule(given: Mapping[str, Any], cards: Mapping[str, JobCard], sets: Collection[str]) -> Declaration:
    """A schedule as somebody writes it down: `name`, `job`, `rule`, and what else it says. It has no first tick yet."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidInput(f"{given!r:.80} is not a schedule; give its name, job and rule")
    name = checked_name(_needed(given, "name", "a schedule"), "schedule")
    what = f"schedule {name!r}"
    settings = _settings(what, given, STATABLE)
    card = _card(_needed(given, "job", what), what, cards)
    rule = stated_rule(name, _needed(given, "rule", what), given.get("tz"))
    over = _over(what, given.get("over"), rule, sets)
    chosen = choices(settings)
    job = _policy_of(card)
    _check_chosen(what, card, job, chosen)
    bound = binding(given.get("bind") or {}, rule.tz)
    check_binding(name, bound, rule, over)
    check_complete(name, chosen, over)
    described = _described(what, {"queue": None, "priority": 0} | dict(given))
    described |= {one: described.get(one) or getattr(card, one) for one in _TEXTS}
    described["queue"] = described["queue"] or _own_queue(card)
    paused = given.get("paused")
    return _declaration(
        name,
        card.name,
        rule,
        stated_arguments(what, given.get("args")),
        job,
        chosen,
        bound,
        described,
        over=over,
        paused=None if paused is None else checked_line(paused, "paused"),
    )


def stated_rule(schedule: str, given: Any, tz: Any = None, before: Rule | None = None) -> Rule:
    """Reads a rule: the text that a person types, the JSON of a stored rule, or a rule object such as `cron(...)`.

    `before` is the rule that this one replaces: cron text and RRULEs keep its zone, where they name none, and its
    policy for gaps and folds."""
    is_whole = isinstance(given, Mapping | Rule)
    if is_whole and tz is not None:
        raise InvalidInput(
            f"schedule {schedule!r}: tz={tz!r:.40}: a rule given as an object has its own zone; leave tz out"
        )
    try:
        if isinstance(given, Rule):
            rule = given
        elif isinstance(given, Mapping):
            rule = decode(json.dumps(given))
        else:
            zone = _kept_zone(schedule, given, before) if tz is None else tz
            policy = _kept_policy(schedule, given, before)
            rule = parse(given, tz="UTC" if zone is None else zone, **policy)
    except (InvalidRule, TypeError) as problem:
        raise InvalidRule(f"schedule {schedule!r}: {problem}") from None
    rule = rule.named(schedule)
    check_readable(schedule, rule)
    return rule


def _kept_zone(schedule: str, given: Any, before: Rule | None) -> str | None:
    """The zone of the rule before, for a text that needs a zone; None where there is no such zone."""
    zones: frozenset[str] = frozenset() if before is None else before.zones
    if not zones or not isinstance(given, str) or not given.strip() or not takes_zone(given):
        return None
    if len(zones) > 1:
        raise InvalidInput(
            f"schedule {schedule!r}: its rule is read in several zones ({', '.join(sorted(zones))}); give tz with "
            f"rule={given!r:.80}"
        )
    return next(iter(zones))


def _kept_policy(schedule: str, given: Any, before: Rule | None) -> dict[str, Any]:
    """What the rule before chose of gap, fold and interval_like, for a text beside which they can be given."""
    policies = [] if before is None else chosen_policies(before)
    if not policies or not isinstance(given, str) or not given.strip() or not takes_policy(given):
        return {}
    if len(policies) > 1:
        raise InvalidInput(
            f"schedule {schedule!r}: the parts of its rule have different policies for gaps and folds; write the new "
            f'rule as a call that states its policy, such as cron("0 2 * * *", tz="Europe/Paris", gap="skip")'
        )
    return dict(policies[0])


def stated_arguments(what: str, given: Any) -> bytes:
    """Arguments by name, as JSON. Whether they fit the job's signature is found out by whoever has its code."""
    if given is None:
        given = {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidInput(f'{what}: args={given!r:.80}: give them by name, as in {{"day": "monday"}}')
    try:
        payload = json.dumps(given, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidInput(f"{what}: the arguments cannot be written as JSON: {problem}; give JSON values") from None
    if any(hidden in payload for hidden in _HIDDEN):
        raise InvalidInput(f'{what}: args contains "[redacted]": give the real value, or leave args out')
    if len(payload) > MOST_PAYLOAD:
        raise InvalidInput(f"{what}: the arguments take {len(payload):,} bytes; give at most {MOST_PAYLOAD:,}")
    return payload


def promised_options(
    what: str, card: JobCard, chosen: Mapping[str, Any], payload: bytes
) -> tuple[Policy, bytes | None]:
    """What a run carries, with its key and destination as its arguments make them."""
    job = _policy_of(card)
    carried = Carried(card.name, job, chosen, (), others=True)
    options = choices_to_json(carried.choices(_told(what, payload)) if carried.names else carried.choices({}))
    return job.merged(chosen), options


# Editing


def edited_schedule(schedule: Schedule, given: Mapping[str, Any], card: JobCard | None) -> Declaration:
    """A schedule with what an operator changes of it. A setting that is given as None is the job's own again."""
    what = f"schedule {schedule.id!r}"
    if not isinstance(given, Mapping) or not given:
        raise InvalidInput(f"{what}: no change is given: give {', '.join(EDITABLE)}, or a setting such as overlap")
    settings = _settings(what, given, EDITABLE)
    rule = decode(schedule.rule)
    if "rule" in given:
        rule = stated_rule(schedule.id, given["rule"], given.get("tz"), rule)
    elif "tz" in given:
        raise InvalidInput(f"{what}: tz={given['tz']!r:.40}: the zone is part of the rule; also give rule")
    old = binding_in(schedule.options)
    bind = given["bind"] if "bind" in given else dict(old.arguments) if old is not None else {}
    bound = binding(bind or {}, rule.tz)
    check_binding(schedule.id, bound, rule, schedule.over)
    if (rule.delay is None) != (decode(schedule.rule).delay is None) and schedule.over is not None:
        raise InvalidInput(
            f"{what}: a fixed delay counts from the end of one run, and the schedule has many members; use every ..."
        )
    payload = stated_arguments(what, given["args"]) if "args" in given else schedule.payload
    job = schedule.policy if card is None else _policy_of(card)
    chosen = _rechosen(what, schedule, settings, card, payload)
    check_complete(schedule.id, chosen, schedule.over)
    now = {name: getattr(schedule, name) for name in _DESCRIBED}
    described = _described(what, now | {name: given[name] for name in _DESCRIBED if name in given})
    return _declaration(
        schedule.id, schedule.job, rule, payload, job, chosen, bound, described, over=schedule.over, filled=True
    )


def _rechosen(
    what: str, schedule: Schedule, settings: Mapping[str, Any], card: JobCard | None, payload: bytes
) -> dict[str, Any]:
    """What the schedule chooses then. Its key and destination are stored as its arguments made them: where they come
    from the job, other arguments make others."""
    kept = choices_from_json(schedule.options)
    dropped = {name for name, value in settings.items() if value is None}
    if dropped and card is None:
        raise InvalidInput(
            f"{what}: no worker has registered job {schedule.job} yet, so its settings are unknown; start one"
        )
    fresh = choices({name: value for name, value in settings.items() if value is not None})
    chosen = {name: value for name, value in kept.items() if name not in dropped} | fresh
    if card is None:
        return chosen
    before = Carried(card.name, _policy_of(card), {}, (), others=True)
    if before.names and payload != schedule.payload:
        of_job = before.choices(_told(what, schedule.payload))
        chosen = {name: value for name, value in chosen.items() if name in fresh or of_job.get(name) != value}
    carried = Carried(card.name, _policy_of(card), chosen, (), others=True)
    return carried.choices(_told(what, payload)) if carried.names else carried.choices({})


def changed_fields(schedule: Schedule, wanted: Declaration) -> list[FieldChange]:
    """What becomes otherwise, in the order in which people read it."""
    found = []

    def compare(field: str, before: Any, after: Any) -> None:
        if before != after:
            found.append(FieldChange(field, before, after))

    compare("job", schedule.job, wanted.job)
    compare("rule", json.loads(schedule.rule), json.loads(wanted.rule))
    compare("args", _json(schedule.payload), _json(wanted.payload))
    compare("bind", _bound(schedule.options), _bound(wanted.options))
    for name in (*_DESCRIBED, "over"):
        compare(name, getattr(schedule, name), getattr(wanted, name))
    before, after = policy_shape(schedule.policy), policy_shape(wanted.policy)
    for name in before.keys() | after.keys():
        compare(name, before.get(name), after.get(name))
    return found


def change_words(change: FieldChange) -> tuple[str, str]:
    """The values before and after, as people write them: `0 2 * * * (Europe/Paris)`, `1h30m`."""
    before, after = (_written(change.field, value) for value in (change.before, change.after))
    return before, after


def _written(field: str, value: Any) -> str:
    if field == "rule" and isinstance(value, dict):
        return _written_rule(value)
    if field in DURATIONS and isinstance(value, int | float):
        return spell(round(value * SECOND))
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _written_rule(shape: Mapping[str, Any]) -> str:
    match shape:
        case {"cron": str(text), "tz": str(tz), **rest} | {"rrule": str(text), "tz": str(tz), **rest}:
            return f"{text} ({', '.join([tz, *_written_extra(rest)])})"
        case {"every": str(interval), "start": "1970-01-01T00:00:00Z", **rest} if not rest:
            return f"every {interval}"
        case {"after": str(delay)}:
            return f"after {delay}"
    try:
        return decode(json.dumps(shape)).explain()
    except InvalidInput:  # a newer release wrote it
        return json.dumps(shape, ensure_ascii=False)


def _written_extra(rest: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in rest.items() if name != "id"]


def told_changes(schedule: Schedule, wanted: Declaration, secrets: Secrets) -> list[FieldChange]:
    """The same for people, who are shown no secrets."""
    shown = [_json(shown_arguments(payload, secrets)) for payload in (schedule.payload, wanted.payload)]
    return [
        FieldChange("args", *shown) if change.field == "args" else change for change in changed_fields(schedule, wanted)
    ]


def ticks_of(schedule: Schedule | None, wanted: Declaration | None, now: Instant) -> Ticks:
    """What comes next before and after; nothing where there is no such rule."""
    return Ticks(*(_coming(None if one is None else one.rule, now) for one in (schedule, wanted)))


def _coming(rule: str | None, now: Instant) -> list[Instant]:
    if rule is None:
        return []
    read = decode(rule)
    return [] if read.delay is not None else upcoming(read, now, COMING)


# What both need


def _declaration(
    name: str,
    job: str,
    rule: Rule,
    payload: bytes,
    policy: Policy,
    chosen: Mapping[str, Any],
    bound: Binding,
    described: Mapping[str, Any],
    *,
    over: str | None = None,
    paused: str | None = None,
    filled: bool = False,
) -> Declaration:
    """`filled`: the choices have their key and destination already."""
    carried = dict(chosen)
    if not filled:
        templates = Carried(job, policy, chosen, (), others=True)
        for argument, source in bound.arguments:
            if argument in templates.names:
                raise InvalidInput(
                    f"schedule {name!r}: a key or destination contains {argument}, which is bound to {source}; use "
                    "only arguments that are the same for every run"
                )
        carried = templates.choices(_told(f"schedule {name!r}", payload))
    extra = bound.encoded() if bound.arguments else {}
    declaration = Declaration(
        id=name,
        job=job,
        rule=rule.encode(),
        payload=payload,
        policy=policy.merged(carried),
        options=choices_to_json(carried | extra),
        delay=rule.delay,
        over=over,
        paused=paused,
        **described,
    )
    former = fingerprint_0.of_stated(
        name=name,
        job=job,
        rule=rule_before(declaration.rule),
        payload=payload,
        described=described,
        over=over,
        policy=wire_policy(declaration.policy, None),
        bound=extra,
        carried=wire(carried),
    )
    return signed(declaration, former)


def _needed(given: Mapping[str, Any], name: str, what: str) -> Any:
    if given.get(name) is None:
        raise InvalidInput(f"{what}: {name} is missing")
    return given[name]


def _settings(what: str, given: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Those of the policy; InvalidInput for a word that is nothing at all."""
    settings = {name: value for name, value in given.items() if name not in known}
    for name in settings:
        if name not in (*_POLICY, "preset"):
            near = get_close_matches(name, (*known, *_POLICY), n=1)
            hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(known)}, or a setting of the policy"
            raise InvalidInput(f"{what}: {name!r:.80} is not a setting of a schedule; {hint}")
    refuse_of_jobs(what, settings, "a schedule creates only some of its runs")
    return settings


def _card(job: Any, what: str, cards: Mapping[str, JobCard]) -> JobCard:
    if not isinstance(job, str) or job not in cards:
        near = get_close_matches(str(job), cards, n=1)
        hint = f"did you mean {near[0]}?" if near else "a worker that has its code registers it when it starts"
        raise UnknownName(f"{what}: there is no job {job!r:.80}; {hint}")
    return cards[job]


def _policy_of(card: JobCard) -> Policy:
    return policy_from_json(card.policy)


def _own_queue(card: JobCard) -> str | None:
    return None if card.queue == DEFAULT_QUEUE else card.queue


def _over(what: str, over: Any, rule: Rule, sets: Collection[str]) -> str | None:
    if over is None:
        return None
    if over not in sets:
        raise UnknownName(f"{what}: over={over!r:.80} is not a member set (known: {', '.join(sorted(sets)) or '-'})")
    if rule.delay is not None:
        raise InvalidInput(
            f"{what}: a fixed delay counts from the end of one run, and over= creates many; use every ..."
        )
    return str(over)


def _check_chosen(what: str, card: JobCard, job: Policy, chosen: Mapping[str, Any]) -> None:
    """As for code: what is done to the world outside must not be left out, or done late, because nobody thought of it.
    Of the job's own choice a card tells only what is not the default."""
    effects = traits_of(card).effects
    missing = [
        name
        for name in ("overlap", "catch_up")
        if name not in chosen and getattr(job, name) == getattr(_DEFAULTS, name)
    ]
    if effects and missing:
        raise InvalidInput(
            f"{what}: {card.name} has effects ({', '.join(effects)}), so its policies for overlapping and missed "
            f"ticks must be set; add {' and '.join(missing)}"
        )


def _described(what: str, given: Mapping[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {}
    for name in _TEXTS:
        value = given.get(name)
        described[name] = None if value is None else checked_line(value, name)
    queue, tenant = given.get("queue"), given.get("tenant")
    described["queue"] = None if queue in (None, DEFAULT_QUEUE) else checked_name(queue, "queue")
    described["tenant"] = None if tenant is None else checked_tenant(tenant)
    described["priority"] = checked_priority(0 if given.get("priority") is None else given["priority"])
    return described


def _told(what: str, payload: bytes) -> dict[str, Any]:
    if is_shut(payload):
        raise Locked(why_shut(payload, f"{what}: the data"))
    found = _json(payload)
    if not isinstance(found, dict):
        raise InvalidInput(f"{what}: args must be a JSON object, with the names of arguments as keys")
    return found


def _json(payload: bytes) -> Any:
    return json.loads(payload or b"{}")


def _bound(options: bytes | None) -> dict[str, str]:
    found = binding_in(options)
    return {} if found is None else dict(found.arguments)


def check_readable(schedule: str, rule: Rule) -> str:
    """The text of a rule, as it is stored. The scheduler knows a rule by that alone: what cannot be read back would
    never fire."""
    try:
        encoded = rule.encode()
        is_read_back = decode(encoded) == rule
    except Exception as error:
        raise InvalidInput(f"schedule {schedule!r}: the rule {rule!r:.80} cannot be stored: {error}") from error
    if not is_read_back:
        raise InvalidInput(
            f"schedule {schedule!r}: the rule {rule!r:.80} cannot be stored without a change; use cron(...), "
            "every(...), after(...) or at(...)"
        )
    return encoded


def check_requires(schedule: str, requires: str | None, known: Collection[str]) -> None:
    """Refuses a required schedule that does not exist: its ticks would wait for it until their cutoff, each time."""
    if requires is None or requires in known:
        return
    near = get_close_matches(requires, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "create that schedule first"
    raise UnknownName(f"schedule {schedule!r}: requires={requires!r:.80}: there is no such schedule; {hint}")


def check_complete(schedule: str, chosen: Mapping[str, Any], over: str | None) -> None:
    if over is None and chosen.get("complete") is not None:
        raise InvalidInput(f"schedule {schedule!r}: complete= requires a member set; add over=...")


def check_binding(schedule: str, bound: Binding, rule: Rule, over: str | None) -> None:
    for argument, source in bound.arguments:
        if source == MEMBER and over is None:
            raise InvalidInput(
                f"schedule {schedule!r}: {argument} is bound to the member, but the schedule has no member set; "
                "add over=..."
            )
        if rule.delay is not None and source.startswith("tick.start"):
            raise InvalidInput(
                f"schedule {schedule!r}: {argument} is bound to {source}, but the ticks of a fixed delay have no "
                f"interval; use every(...), or tick.at"
            )
        if len(rule.zones) > 1 and source.endswith((".date", ".time")):
            raise InvalidInput(
                f"schedule {schedule!r}: {argument} is bound to {source}, but its rules are read in different zones "
                f"({', '.join(sorted(rule.zones))}); bind an instant, such as tick.at"
            )
