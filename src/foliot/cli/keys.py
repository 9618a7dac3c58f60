"""`foliot keys`: new, list, rotate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from foliot import bootstrap
from foliot.cli import words
from foliot.cli.dead import refuse_blind
from foliot.cli.options import (
    ActorOption,
    AppOption,
    DryRunOption,
    JsonOption,
    ReasonOption,
    StoreOption,
    YesOption,
    acting,
    stated_reason,
    with_store,
)
from foliot.cli.output import Column, console, print_json, print_table
from foliot.domain.locking import Place
from foliot.operate.locking import Rotated, rotated_shape

commands = typer.Typer(help="Manage encryption keys: new, list, rotate.", no_args_is_help=True)


@commands.command("new")
def new(as_json: JsonOption = False) -> None:
    """Print a new key. Foliot does not store it. Without the key, values encrypted with it are lost."""
    key = bootstrap.new_key()
    if as_json:
        print_json({"key": key})
    else:
        print(key)


@commands.command("list")
def list_(app: AppOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the names of the keys in FOLIOT_ENCRYPTION_KEYS or foliot.toml. The first key encrypts."""
    names = with_store(app, store, lambda foliot: foliot.operate.keys_async())
    if as_json:
        print_json([{"name": name, "locks": place == 0} for place, name in enumerate(names)])
        return
    rows = [(name, "encrypts and decrypts" if place == 0 else "decrypts") for place, name in enumerate(names)]
    print_table((Column("key"), Column("use")), rows, nothing="no keys: stored values are not encrypted")


@commands.command("rotate")
def rotate(
    history: Annotated[bool, typer.Option("--history", help="Include ended runs; there may be many.")] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    reason: ReasonOption = None,
    actor: ActorOption = None,
    app: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Re-encrypt stored values with the first key. Includes unencrypted values. Work continues meanwhile.

    Exit 1 when some values remain.
    """
    refuse_blind(dry_run=dry_run, yes=yes, as_json=as_json)
    why, who = "" if dry_run else stated_reason(reason), acting(actor)

    def gone_through(only_looking: bool) -> list[Rotated]:
        with _told(is_shown=not as_json) as on_page:
            return with_store(
                app,
                store,
                lambda foliot: foliot.operate.rotate_async(
                    reason=why or "dry run", actor=who, history=history, dry_run=only_looking, on_page=on_page
                ),
            )

    if not dry_run and not yes:
        count = sum(one.relocked for one in gone_through(True))
        if not typer.confirm(f"re-encrypt {words.counted(count, 'row')}?"):
            raise typer.Exit(1)
    _print(gone_through(dry_run), as_json, "rows to re-encrypt" if dry_run else "re-encrypted")


class _told:  # noqa: N801 - reads as a word
    """A status line, on a terminal."""

    def __init__(self, *, is_shown: bool) -> None:
        self._status = console().status("") if is_shown and console().is_terminal else None

    def __enter__(self) -> Callable[[Place, int], None]:
        if self._status is not None:
            self._status.start()
        return self._tell

    def _tell(self, place: Place, looked_at: int) -> None:
        if self._status is not None:
            self._status.update(f"{place}: {looked_at:,} rows read")

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()


def _print(told: list[Rotated], as_json: bool, done: str) -> None:
    if as_json:
        print_json([rotated_shape(one) for one in told])
    else:
        columns = (
            Column("column"),
            Column("rows", right=True),
            Column(done, right=True),
            Column("remaining", wraps=True),
        )
        rows = [(str(one.place), f"{one.looked_at:,}", f"{one.relocked:,}", _left(one)) for one in told]
        print_table(columns, rows, nothing="")
    if any(one.left or one.shut for one in told):
        raise typer.Exit(1)


def _left(one: Rotated) -> str:
    busy = f"{one.left:,} locked by other transactions: run this command again" if one.left else ""
    shut = f"{one.shut:,} damaged, or their key is missing" if one.shut else ""
    return "; ".join(filter(None, (busy, shut))) or "-"
