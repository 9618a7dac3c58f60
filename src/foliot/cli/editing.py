"""`foliot schedules edit` and `apply`: change one schedule, or all schedules of a file, at run time."""

from __future__ import annotations

import json
import tomllib
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer

from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.dead import Place, refuse_blind
from foliot.cli.options import (
    ActorOption,
    AppOption,
    DryRunOption,
    JsonOption,
    ReasonOption,
    ScheduleArgument,
    StoreOption,
    WrongUsage,
    YesOption,
    acting,
    legible,
    stated_reason,
)
from foliot.cli.output import Column, heading, print_json, print_table, say
from foliot.cli.schedules import commands
from foliot.domain.instant import rfc3339
from foliot.operate.scheduling import Planned, planned_shape
from foliot.operate.stating import FieldChange, change_words

__all__ = ["commands"]

_MOST_BYTES = 10_000_000


@commands.command("edit")
def edit(
    schedule: ScheduleArgument,
    revision: Annotated[
        int | None, typer.Option("--revision", help="Refuse the edit unless the schedule is at this revision.", min=1)
    ] = None,
    rule: Annotated[str | None, typer.Option("--rule", help="New rule of time: `0 2 * * *`.", callback=legible)] = None,
    tz: Annotated[
        str | None, typer.Option("--tz", help="Time zone of the rule. Default: unchanged.", callback=legible)
    ] = None,
    args: Annotated[
        str | None, typer.Option("--args", help="New arguments of its runs, as a JSON object.", callback=legible)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Another setting: overlap=queue, owner=ops. Repeatable.", metavar="NAME=VALUE"),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a schedule. The edit stays until the declaration changes. Shows the new ticks and asks for confirmation.

    An empty value (attempts=) resets a setting to the job's value.
    """
    given = {"rule": rule, "tz": tz, "args": None if args is None else _json(args, "--args")}
    wanted = {name: value for name, value in given.items() if value is not None} | read_settings(settings)
    if not wanted:
        raise WrongUsage("no change is given: use --rule, --tz, --args, or --set NAME=VALUE")
    why = "" if dry_run else stated_reason(reason)
    if not dry_run and as_json and revision is None:
        raise WrongUsage("--json requires --revision N, the revision that `foliot schedules show` prints")
    refuse_blind(dry_run=dry_run, yes=yes or revision is not None, as_json=as_json)
    place = Place(app, store)
    seen = place.call(lambda foliot: foliot.operate.preview_edit_async(schedule, wanted))
    is_stale = revision is not None and seen.revision != revision and seen.outcome != "unchanged" and not dry_run
    if not as_json and not is_stale:  # the store refuses a stale edit and says who changed it; its plan would mislead
        _print_plan([seen])
    elif dry_run:
        print_json(planned_shape(seen))
    # An operator who gives a revision has seen it; the others see it here. The store refuses any other revision.
    from_revision = revision or seen.revision or 0
    if dry_run or (seen.outcome == "unchanged" and not as_json):
        return
    if not as_json and not (yes or revision is not None or typer.confirm(f"change schedule {schedule}?")):
        return
    done = place.call(
        lambda foliot: foliot.operate.edit_schedule_async(
            schedule, wanted, revision=from_revision, reason=why, actor=acting(actor)
        )
    )
    if as_json:
        print_json(planned_shape(done))
    else:
        verb = "unchanged" if done.outcome == "unchanged" else "changed"
        say(f"{verb} {schedule}, now at revision {done.revision}")


@commands.command("apply")
def apply(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File with schedules, as TOML or JSON.", exists=True, dir_okay=False)
    ],
    source: Annotated[
        str | None,
        typer.Option("--source", help="Source of these schedules. Default: the file name.", callback=legible),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove schedules of this source that the file no longer contains.")
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create or change schedules to match a file, in one transaction. Shows the changes and asks for confirmation.

    Applying the same file again changes nothing.
    """
    given = read_schedules(file)
    whose = source or f"file:{file.name}"
    why = reason or f"applied {file.name}"
    refuse_blind(dry_run=dry_run, yes=yes, as_json=as_json)
    place = Place(app, store)
    if dry_run or not as_json:
        seen = place.call(lambda foliot: foliot.operate.preview_apply_async(given, source=whose, prune=prune))
        refused = next((one for one in seen if one.outcome == "refused"), None)
        if as_json:
            print_json([planned_shape(one) for one in seen])
        else:
            # A list is applied whole or not at all: with one refusal, no other line may say "changed".
            _print_plan(seen if refused is None or dry_run else [one for one in seen if one.outcome == "refused"])
        changing = sum(one.outcome in ("created", "changed", "pruned") for one in seen)
        if not dry_run and refused is None:
            if not changing:
                return
            if not (yes or typer.confirm(f"change {words.counted(changing, 'schedule')}?")):
                return
        if dry_run:
            return

    async def act(foliot: Foliot) -> list[Planned]:
        return await foliot.operate.apply_schedules_async(
            given, source=whose, prune=prune, reason=why, actor=acting(actor)
        )

    done = place.call(act)
    if as_json:
        print_json([planned_shape(one) for one in done])
    else:
        counts = {one.outcome: sum(other.outcome == one.outcome for other in done) for one in done}
        say("; ".join(f"{outcome} {words.counted(count, 'schedule')}" for outcome, count in counts.items()))


def read_settings(given: list[str] | None) -> dict[str, Any]:
    """Settings from `overlap=queue`. A value that is JSON is decoded (`attempts=3`); an empty value is None."""
    found: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals or not legible(text):
            raise WrongUsage(f"--set {text!r:.80}: write it as overlap=queue")
        if name in found:
            raise WrongUsage(f"--set names {name} twice; give it once")
        try:
            found[name] = json.loads(value) if value else None
        except ValueError:
            found[name] = value
    return found


def read_schedules(file: Path) -> list[Any]:
    """The schedules of a file: `[[schedule]]` tables in TOML; in JSON a list, one object, or `{"schedule": [...]}`."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise WrongUsage(f"{file} is larger than {_MOST_BYTES // 1_000_000} MB; split it into several files")
        text = file.read_text("utf-8")
        stated = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError, RecursionError) as problem:
        raise WrongUsage(f"{file}: {problem}") from None
    if isinstance(stated, dict) and "schedule" in stated:
        stated = stated["schedule"]
    listed = [stated] if isinstance(stated, dict) else stated
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise WrongUsage(f"{file}: write each schedule as a table [[schedule]] with its name, job and rule")
    return listed


def _json(text: str, option: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise WrongUsage(f"{option} {text!r:.80} is not JSON; give valid JSON") from None


def _print_plan(plans: list[Planned]) -> None:
    columns = (Column("schedule"), Column("outcome", coloured=True), Column("changes", shrinks=True))
    print_table(columns, [(one.schedule, one.outcome, _what(one)) for one in plans], nothing="no schedules")
    moving = [one for one in plans if one.ticks.before != one.ticks.after and one.outcome in ("created", "changed")]
    for one in moving[:10]:
        heading(f"ticks of {one.schedule} (UTC)")
        shown = ([rfc3339(tick) for tick in side] for side in one.ticks)
        rows = list(zip_longest(*shown, fillvalue="-"))
        print_table((Column("before"), Column("after")), rows, nothing="none")


def _what(one: Planned) -> str:
    told = [_change(change) for change in one.fields]
    return "; ".join([*told, *([one.problem] if one.problem else [])]) or "-"


def _change(change: FieldChange) -> str:
    before, after = (words.one_line(side, 60) for side in change_words(change))
    return f"{change.field}: {before} -> {after}"
