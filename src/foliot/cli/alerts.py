"""`foliot alerts`: list, show, snooze, unsnooze, check, test."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from foliot import bootstrap
from foliot.app import Foliot
from foliot.cli import words
from foliot.cli.options import (
    ActorOption,
    AppOption,
    JsonOption,
    ReasonOption,
    StoreOption,
    WrongUsage,
    acting,
    legible,
    read_cursor,
    read_duration,
    settings_of,
    stated_reason,
    with_store,
)
from foliot.cli.output import Column, complain, print_facts, print_json, print_table, say
from foliot.domain.alerts import KINDS, Alert, Severity
from foliot.domain.instant import SECOND, Instant
from foliot.errors import InvalidInput
from foliot.operate.advising import Guidance
from foliot.operate.alerting import Alerts, alert_shape, alert_story_shape, alerts_shape

commands = typer.Typer(help="Manage alerts: list, show, snooze, unsnooze, check, test.", no_args_is_help=True)

NumberArgument = Annotated[
    int, typer.Argument(metavar="NUMBER", min=1, help="The number of an alert, as `alerts list` prints it.")
]
_COLUMNS = (
    Column("alert", right=True),
    Column("severity", rank=2),
    Column("kind"),
    Column("runs", right=True),
    Column("since", right=True),
    Column("cause", wraps=True, least=30),
    Column("owner", rank=3),
)


@commands.command("list")
def list_(
    everything: Annotated[bool, typer.Option("--all", help="Include resolved alerts, newest first.")] = False,
    kind: Annotated[
        str | None, typer.Option("--kind", help="Only alerts of this kind: missing, late, dead, …", callback=legible)
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option("--subject", help="Only alerts about this subject: schedule:X, job:X, queue:X.", callback=legible),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Number of alerts to list.")] = 50,
    before: Annotated[
        str | None,
        typer.Option("--before", help="Continue after this alert, the last of the previous page.", metavar="NUMBER"),
    ] = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List open alerts, most urgent first. Also prints the time of the last watch round."""
    cursor = read_cursor(before)
    found = with_store(
        app,
        store,
        lambda foliot: foliot.operate.alerts_async(
            everything=everything, kind=kind, subject=subject, limit=limit, before=cursor
        ),
    )
    if as_json:
        print_json(alerts_shape(found))
        return
    print_table(_COLUMNS, [_row(alert, found.now) for alert in found.alerts], nothing="no open alerts")
    say(_watch_words(found), style="bold red" if found.silent else "dim")


def _row(alert: Alert, now: Instant) -> tuple[str, ...]:
    state = "resolved " if not alert.is_open else "snoozed " if alert.snoozed(now) else ""
    return (
        str(alert.number or "-"),
        str(alert.severity),
        str(alert.kind),
        "-" if alert.runs is None else f"{alert.runs:,}",
        words.relative(alert.opened_at, now),
        f"{state and f'({state.strip()}) '}{alert.cause}",
        alert.owner or "-",
    )


def _watch_words(found: Alerts) -> str:
    if found.looked_at is None:
        return "the watch has never run: start a scheduler"
    looked = f"last watch round {words.relative(found.looked_at, found.now)}"
    return (
        f"{looked}: the watch has stopped, this list may be out of date; start a scheduler" if found.silent else looked
    )


@commands.command("show")
def show(number: NumberArgument, app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show one alert: its cause, its owner, and the safe next step."""

    async def look(foliot: Foliot) -> tuple[Alert, Guidance | None, Instant]:
        operate = foliot.operate
        return await operate.alert_async(number), await operate.alert_advice_async(number), await operate.now_async()

    alert, told, now = with_store(app, store, look)
    if as_json:
        print_json(alert_story_shape(alert, told, now))
        return
    safe = None if told is None or not alert.is_open else next((one for one in told.steps if one.command), None)
    facts = {
        "alert": f"{alert.number}, {alert.kind}, {alert.severity}",
        "about": alert.subject,
        "runs": None if alert.runs is None else f"{alert.runs:,}",
        "cause": alert.cause,
        "meaning": KINDS[alert.kind].means,
        "action": alert.action,
        "safe step": None if safe is None else f"{safe.command}: {safe.text}",
        "owner": alert.owner,
        "runbook": alert.runbook,
        "opened": f"{words.date_time(alert.opened_at)} ({words.relative(alert.opened_at, now)})",
        "newest run": alert.run if alert.count > 1 else None,
        "notified": None if alert.told_at is None else words.date_time(alert.told_at),
        "repeated": None if alert.repeated_at is None else words.date_time(alert.repeated_at),
        "snoozed until": words.date_time(alert.snoozed_until) if alert.snoozed(now) else None,
        "resolved": None if alert.resolved_at is None else words.date_time(alert.resolved_at),
    }
    print_facts({label: fact for label, fact in facts.items() if fact is not None})


@commands.command("snooze")
def snooze(
    number: NumberArgument,
    length: Annotated[
        str, typer.Option("--for", help="Length of the snooze: 30m, 2h, 1d. Required.", metavar="DURATION")
    ] = "",
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop notifications of an open alert for some time. The alert stays listed."""
    if not length:
        raise WrongUsage("--for is required: give the length of the snooze, such as --for 2h")
    span, why = read_duration(length, "--for"), stated_reason(reason)

    async def act(foliot: Foliot) -> tuple[Alert, Instant]:
        told = await foliot.operate.snooze_async(number, span / SECOND, reason=why, actor=acting(actor))
        return told, await foliot.operate.now_async()

    alert, now = with_store(app, store, act)
    if as_json:
        print_json(alert_shape(alert, now))
    else:
        say(f"snoozed alert {number} until {words.date_time(alert.snoozed_until)} UTC")


@commands.command("unsnooze")
def unsnooze(
    number: NumberArgument,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a snooze."""
    why = stated_reason(reason)

    async def act(foliot: Foliot) -> tuple[Alert, Instant]:
        told = await foliot.operate.unsnooze_async(number, reason=why, actor=acting(actor))
        return told, await foliot.operate.now_async()

    alert, now = with_store(app, store, act)
    if as_json:
        print_json(alert_shape(alert, now))
    else:
        say(f"ended the snooze of alert {number}")


@commands.command("check")
def check(
    severity: Annotated[
        str, typer.Option("--severity", help="Least severity that counts: critical, warning, notice.")
    ] = "warning",
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check for open alerts, for external monitoring. Exit 1 for an alert that is not snoozed, or a stopped watch."""
    if severity not in list(Severity):
        raise WrongUsage(f"--severity {severity!r:.40}: give one of {', '.join(Severity)}")
    ranks = list(Severity)[: list(Severity).index(Severity(severity)) + 1]
    found = with_store(app, store, lambda foliot: foliot.operate.alerts_async(limit=10_000))
    counting = [alert for alert in found.alerts if alert.severity in ranks and not alert.snoozed(found.now)]
    never = found.looked_at is None
    if as_json:
        print_json(alerts_shape(found._replace(alerts=counting)))
    elif not counting and not never:
        say(f"no open alerts; {_watch_words(found)}")
    for alert in () if as_json else counting[:20]:
        complain(f"{alert.severity}: {alert.kind}: {alert.cause}")
    if never and not as_json:
        complain(_watch_words(found))
    if counting or never:
        raise typer.Exit(1)


@commands.command("test")
def send_test(as_json: JsonOption = False) -> None:
    """Send a test message to every notification URL."""
    settings = settings_of(None, None).alerts
    if not settings.urls:
        raise InvalidInput('no notification URLs: set urls = ["..."] in [alerts] of foliot.toml, or FOLIOT_ALERT_URLS')
    told = asyncio.run(bootstrap.send_test(settings))
    if as_json:
        print_json([{"address": name, "error": error} for name, error in told.items()])
    else:
        for name, error in told.items():
            say(f"{name}: {'sent' if error is None else f'not sent: {error}'}")
    if any(error is not None for error in told.values()):
        raise typer.Exit(1)
