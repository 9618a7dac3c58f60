"""A person's word about effects: how it is read, and what settling many at once did. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from foliot.domain.ledger import EffectState, EffectView, Settled, Then
from foliot.domain.run import Kept, RunView
from foliot.errors import InvalidInput
from foliot.operate.advising import open_effects, quoted, shown_effect
from foliot.operate.shapes import Shape
from foliot.operate.words import listed

Words = Mapping[tuple[str, str], str] | Iterable[str]
"""`{("payout", "7"): "done"}`, or `["payout:7=done"]`."""

_SETTLED = (EffectState.DONE, EffectState.NOT_DONE)


class Reconciled(NamedTuple):
    """What became of one run, when many are settled at once."""

    run: str
    effects: tuple[str, ...]
    """The effects in question, as `name:key`."""
    outcome: str
    """`reconciled`, `settled`, `resumed`, `closed`; `recorded`, while other effects have no answer; `would` in a dry
    run; `refused`."""
    problem: str | None = None

    @property
    def is_good(self) -> bool:
        return self.outcome != "refused"


def reconciled_shape(one: Reconciled) -> Shape:
    return {"id": one.run, "effects": list(one.effects), "outcome": one.outcome, "problem": one.problem}


def reconciled_words(kept: Kept) -> str:
    """What became of a run that a person reconciled, and the next step."""
    run = quoted(kept.id)
    match kept.outcome:
        case "recorded":
            return (
                f"{kept.id}: recorded; other effects are still ambiguous, so it stays {kept.state}: "
                f"foliot runs show {run}"
            )
        case "settled":
            return (
                f"{kept.id}: its effects are reconciled; part of its work is not done, so it stays parked. Do the "
                f'remaining work: foliot runs resume {run} --reason "..."; or declare it not needed: foliot runs '
                f'reconcile {run} --then close --reason "..."'
            )
        case "resumed":
            return f"{kept.id}: its effects are reconciled, and the remaining work is due now"
        case "closed":
            return f"{kept.id} is closed; its remaining work will not be done"
    return f"{kept.id} is reconciled and has ended; your evidence is stored with it"


def settled_state(text: str) -> EffectState:
    """`done` or `not_done`, also as people write it."""
    told = text.strip().lower().replace("-", "_").replace(" ", "_")
    if told not in _SETTLED:
        raise InvalidInput(f"{text!r:.40} is not a state of an effect; give done or not_done")
    return EffectState(told)


def then_of(text: str | None) -> Then | None:
    """`resume` or `close`; None leaves the run parked until a person decides."""
    if text is None or text in tuple(Then):
        return None if text is None else Then(text)
    raise InvalidInput(
        f"then={text!r:.40}: give resume (do the remaining work), close (it is not needed), or leave it out"
    )


def settled(view: RunView, said: Words) -> list[Settled]:
    """What a person says of a run's effects, each looked up in its ledger."""
    if isinstance(said, str):
        said = [said]
    if isinstance(said, Mapping):
        return [_of_pair(view, name, key, settled_state(state)) for (name, key), state in said.items()]
    return [_of_text(view, text) for text in said]


def _of_text(view: RunView, text: str) -> Settled:
    """A key may hold any letter, also `:` and `=`: the ledger says where its name ends."""
    named, _, state = text.rpartition("=")
    if not named:
        raise InvalidInput(
            f"{text!r:.80} is not an effect with its state; write it as payout:7=done, or payout:7=not_done"
        )
    for effect in view.effects:
        if shown_effect(effect) == named:
            return Settled(effect.name, effect.key, settled_state(state))
    raise InvalidInput(_unknown(view, named))


def _of_pair(view: RunView, name: str, key: str, state: EffectState) -> Settled:
    if not any((effect.name, effect.key) == (name, key) for effect in view.effects):
        raise InvalidInput(_unknown(view, f"{name}:{key}"))
    return Settled(name, key, state)


def _unknown(view: RunView, named: str) -> str:
    known = [shown_effect(effect) for effect in view.effects]
    nearest = get_close_matches(named, known, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"it has {listed(known, 10) or 'no effects'}"
    return f"the ledger of {view.id} has no effect {named!r:.80}; {hint}"


def left_open(view: RunView, answers: Sequence[Settled]) -> list[EffectView]:
    """Effects without an end that are not spoken of: settling the run would hide them."""
    spoken_of = {(one.name, one.key) for one in answers}
    return [effect for effect in open_effects(view) if (effect.name, effect.key) not in spoken_of]
