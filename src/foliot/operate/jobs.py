"""What the store knows of jobs, in words, and whether their limits fit what they really do. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foliot.domain.conditions import job_policy
from foliot.domain.instant import HOUR, MINUTE, SECOND, Duration, spell
from foliot.domain.ledger import Traits
from foliot.domain.policy import OnLost, OnStall, Policy
from foliot.domain.store import JobCard
from foliot.operate.advising import traits_of
from foliot.operate.shapes import Shape, policy_shape, policy_words, seconds
from foliot.operate.words import length, listed

ENOUGH = 20
"""So many runs must have ended well before their durations say anything."""
LOOKED_AT = 1_000
"""Of how many of the latest runs that ended well it is asked how long they took."""
LISTED = 100
"""How many of the latest runs, whatever became of them, are looked at one by one."""
TELLING = 50
"""Of these, how many tell how long the job takes."""
_BEATS = 3
_BEAT: Duration = SECOND
"""The longest time between two heartbeats of a worker; leases below three of them are renewed more often."""
_NEAR = 0.5
"""A timeout of which p99 takes this share is near."""


@dataclass(frozen=True, slots=True)
class Durations:
    """How long the handlers of a job took that ended well."""

    count: int
    p50: Duration | None
    p99: Duration | None
    longest: Duration | None


def durations(taken: Sequence[Duration]) -> Durations:
    ordered = sorted(taken)
    if not ordered:
        return Durations(0, None, None, None)
    return Durations(len(ordered), _share(ordered, 0.50), _share(ordered, 0.99), ordered[-1])


def _share(ordered: Sequence[Duration], share: float) -> Duration:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def card_shape(card: JobCard) -> Shape:
    """A job as it stands in a list."""
    traits = traits_of(card)
    return {
        "name": card.name,
        "queue": card.queue,
        "owner": card.owner,
        "runbook": card.runbook,
        "changes": card.changes,
        "effects": None if traits.effects is None else list(traits.effects),
        "idempotent": traits.idempotent,
        "rewritable": traits.rewritable,
        "checked": traits.checked,
        "isolated": traits.isolated,
        "secret": list(traits.secret),
        "policy": policy_shape(job_policy(card)),
    }


def job_shape(card: JobCard, counts: Mapping[str, int], taken: Durations) -> Shape:
    """A job with what its latest runs say about it."""
    times = {"p50": seconds(taken.p50), "p99": seconds(taken.p99), "longest": seconds(taken.longest)}
    policy = job_policy(card)
    return card_shape(card) | {
        "counts": dict(counts),
        "durations": {"count": taken.count, **times},
        "advice": [*advise_lease(policy, taken), *advise_recovery(policy, traits_of(card))],
    }


def trait_words(traits: Traits) -> list[str]:
    """What a job's code says of itself, a sentence each."""
    words = []
    if traits.effects is None:
        words.append("effects: not declared")
    elif traits.effects:
        words.append(f"effects: {listed(traits.effects, 20)}")
    else:
        words.append("effects: none")
    if traits.idempotent:
        words.append("idempotent: a complete repetition is safe")
    if traits.rewritable:
        words.append("rewritable: a repetition writes the same output")
    words.append("check: yes" if traits.checked else "check: none")
    if traits.isolated:
        words.append("isolation: process")
    if traits.secret:
        words.append(f"secret: {listed(traits.secret, 20)}")
    return words


def lost_words(policy: Policy, traits: Traits) -> str:
    """What becomes of a run whose worker vanished: by its ledger where it has one, else by what was chosen."""
    if traits.tracked:
        return "by the ledger: retried, unless an effect started and has no recorded outcome"
    if traits.repeatable:
        return "retried: a repetition is safe"
    return policy_words(policy)["lost worker"]


def advise_lease(policy: Policy, taken: Durations) -> list[str]:
    """Whether the limits on its time fit the time that it takes."""
    return [*_timeout_advice(policy, taken), *_stall_advice(policy, taken), *_lease_advice(policy)]


def _timeout_advice(policy: Policy, taken: Durations) -> list[str]:
    if taken.p99 is None or taken.longest is None or taken.count < ENOUGH or taken.p99 < _NEAR * policy.timeout:
        return []
    share = round(100 * taken.p99 / policy.timeout)
    return [
        f"p99 is {share} % of the timeout ({length(taken.p99)} of {spell(policy.timeout)}): on a slow day, healthy "
        f"runs would time out. Set timeout to at least {spell(_rounded(2 * taken.longest))}."
    ]


def _stall_advice(policy: Policy, taken: Durations) -> list[str]:
    if policy.stall_after is None:
        if policy.timeout < HOUR:
            return []
        return [
            f"The job has no stall_after: a hung attempt takes its slot for {spell(policy.timeout)}. Report progress "
            "and set stall_after."
        ]
    if policy.stall_after >= policy.timeout:
        return ["stall_after has no effect: it is not shorter than the timeout."]
    if taken.longest is not None and taken.longest > policy.stall_after:
        return [
            f"Runs take up to {length(taken.longest)}: each must report progress at least every "
            f"{spell(policy.stall_after)} (stall_after), or the watch treats it as stuck."
        ]
    return []


def _lease_advice(policy: Policy) -> list[str]:
    """A lease is renewed by heartbeats, so that it has nothing to do with how long a run takes."""
    if policy.lease >= _BEATS * _BEAT:
        return []
    return [
        f"A lease of {spell(policy.lease)} is short: a worker that stops for that long (a swapping host, a slow disk) "
        f"loses its runs. Long runs need no long lease, since heartbeats renew it: {spell(_BEATS * _BEAT)} is enough."
    ]


def advise_recovery(policy: Policy, traits: Traits) -> list[str]:
    """What will happen when a run of it breaks in the middle, where that may surprise."""
    notes = []
    if not traits.tracked and not traits.repeatable and policy.on_lost is OnLost.RETRY:
        notes.append(
            "When a worker is lost, its run restarts from the beginning, without a record of its progress: declare "
            'the effects (or idempotent=True), or set on_lost="ask".'
        )
    if not traits.tracked and (policy.attempts_after_effect, policy.attempts_inside_effect) != (None, None):
        notes.append("attempts_after_effect and attempts_inside_effect have no effect: the job declares no effects.")
    elif policy.attempts_after_effect is not None and policy.attempts_after_effect <= 1:
        notes.append("After its first completed effect, only a person can retry a run (attempts_after_effect).")
    if traits.effects and not traits.checked:
        notes.append("The job has effects and no check, so the overall result is not verified (@job.verify).")
    if policy.on_stall is OnStall.KILL and policy.stall_after is not None and not traits.isolated:
        notes.append('on_stall="kill" ends the whole worker: isolate the job (isolation="process").')
    return notes


def _rounded(length_: Duration) -> Duration:
    """Up to whole seconds, or whole minutes where nobody counts seconds."""
    unit = SECOND if length_ < 2 * MINUTE else MINUTE
    return -(-length_ // unit) * unit
