"""The `foliot` command: its subcommands, and the handling of errors."""

from __future__ import annotations

import copy
import os
import platform
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from foliot import __version__
from foliot.cli import (
    alerts,
    audit,
    backfill,
    completion,
    dead,
    doctor,
    editing,
    fleet,
    imports,
    jobs,
    keys,
    limits,
    load,
    members,
    migrate,
    needs,
    preview,
    processes,
    recover,
    report,
    retention,
    rules,
    simulate,
    tenants,
    tokens,
    top,
    up,
)
from foliot.cli.options import Json, WrongUsage
from foliot.cli.output import complain, print_json, say
from foliot.errors import FoliotError, UnknownName


class _Command(TyperGroup):
    """Errors in one line: exit 1 for a refusal, 2 for wrong usage. A stack trace always means a bug of ours."""

    def main(self, *args: Any, **settings: Any) -> Any:
        settings["standalone_mode"] = False
        try:
            code = super().main(*args, **settings) or 0
            sys.stdout.flush()
            sys.exit(code)
        except FoliotError as error:
            complain(str(error) + _list_hint(error))
            sys.exit(1)
        except WrongUsage as error:
            complain(str(error))
            sys.exit(2)
        except BrokenPipeError:  # the reader of our output has closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)
        except Exception as error:
            _exit_for_usage(error)
            raise


_LISTS = {
    "run": "runs list",
    "schedule": "schedules list",
    "alert": "alerts list --all",
    "backfill": "backfill list",
    "token": "tokens list",
    "limit": "limits list",
}


def _list_hint(error: FoliotError) -> str:
    """The command that lists the known names, for an error that says no more than that a name is unknown."""
    found = re.fullmatch(r"there is no (\w+)(?: for)? \S+", str(error)) if isinstance(error, UnknownName) else None
    command = _LISTS.get(found[1]) if found is not None else None
    return "" if command is None else f"; see foliot {command}"


def _exit_for_usage(error: Exception) -> None:
    """Exits for an error of the parser, recognised by its attributes: some releases of typer bundle their own click."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # type: ignore[attr-defined]
    elif type(error).__name__ == "Abort":  # at a prompt
        complain("aborted")
        sys.exit(1)
    elif hasattr(error, "format_message"):
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context is not None else ""
        complain(f"{error.format_message()}{hint}")
    else:
        return
    sys.exit(getattr(error, "exit_code", 2))


foliot = typer.Typer(
    name="foliot",
    cls=_Command,
    help="Schedule durable jobs and inspect every run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"foliot {__version__}")
        raise typer.Exit


@foliot.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Schedule durable jobs and inspect every run."""


foliot.command("up")(up.up)
foliot.command("scheduler")(processes.scheduler)
foliot.command("worker")(processes.worker)
foliot.command("web")(processes.web)
foliot.add_typer(editing.commands, name="schedules")  # with those of `schedules`
foliot.add_typer(recover.commands, name="runs")  # with those of `runs`
foliot.add_typer(dead.commands, name="dead")
foliot.add_typer(backfill.commands, name="backfill")
foliot.add_typer(jobs.commands, name="jobs")
foliot.add_typer(limits.commands, name="limits")
foliot.add_typer(members.commands, name="members")
foliot.add_typer(fleet.workers, name="workers")
foliot.add_typer(fleet.queues, name="queues")
foliot.add_typer(alerts.commands, name="alerts")
foliot.add_typer(audit.commands, name="audit")
foliot.add_typer(keys.commands, name="keys")
foliot.add_typer(tokens.commands, name="tokens")
foliot.add_typer(retention.commands, name="retention")
foliot.add_typer(imports.commands, name="import")
foliot.command("report")(report.report)
foliot.command("next")(rules.upcoming_times)
foliot.command("explain")(rules.explain)
foliot.command("preview")(preview.preview_days)
foliot.command("load")(load.preview_load)
foliot.command("simulate")(simulate.simulate)
foliot.add_typer(tenants.commands, name="tenants")
foliot.command("top")(top.top)
foliot.command("needs")(needs.needs)
foliot.command("doctor")(doctor.doctor)
foliot.command("migrate")(migrate.migrate)
foliot.command("completion")(completion.completion)


@foliot.command("version")
def version(as_json: Annotated[bool, Json] = False) -> None:
    """Print the version of Foliot and of Python."""
    if as_json:
        print_json({"foliot": __version__, "python": platform.python_version()})
    else:
        say(f"foliot {__version__} (Python {platform.python_version()})")


def narrowed(words: Sequence[str]) -> typer.Typer:
    """The command or group that these words name; all commands where there is none. Describing some ninety commands to
    the parser takes longer than most of them take to run."""
    commands = [one for one in foliot.registered_commands if one.name in words]
    groups = [one for one in foliot.registered_groups if one.name in words]
    if not commands and not groups:
        return foliot
    found = copy.copy(foliot)
    found.registered_commands, found.registered_groups = commands, groups
    return found
