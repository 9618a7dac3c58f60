"""Which app and which store: the command line beats the environment, which beats `foliot.toml`, which beats the app."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import sys
import tomllib
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from foliot.app import Foliot
from foliot.domain.alerts import EVENTFUL, AlertSettings, Rules
from foliot.domain.instant import duration
from foliot.domain.policy import checked_kinds, checked_ping, checked_public_url
from foliot.errors import InvalidInput, StoreError
from foliot.net import SETTING

FILE = "foliot.toml"
_KEYS = (
    *("app", "store", "audit_anchor", "log_format", "log_level", "encryption_keys", "audit_keys", "private_networks"),
    "public_url",
)
PUBLIC_URL = "FOLIOT_PUBLIC_URL"
_OF_ALERTS = ("urls", "ping", "silent", "grace")


_DEFAULT_ALERTS = AlertSettings()


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings from options, environment and file; None where none of them has a value."""

    app: str | None = None
    store: str | None = None
    audit_anchor: str | None = None
    """The file that anchors of the audit log are written to."""
    log_format: str | None = None
    """See `foliot.cli.logs`."""
    log_level: str | None = None
    encryption_keys: str | None = None
    """Keys of stored values, separated by commas: the first one encrypts, all decrypt."""
    audit_keys: str | None = None
    """Keys that rows of the audit log are signed with, with commas between: the first one signs, all verify."""
    private_networks: str | None = None
    """Networks that requests may go to beside public addresses, with commas between."""
    public_url: str | None = None
    """The address at which people open the dashboard."""
    alerts: AlertSettings = _DEFAULT_ALERTS
    """How alerts are notified."""

    def load(self) -> Foliot:
        """The app, with the store that was asked for; without an app, one that knows no jobs."""
        self._set_environment()
        if self.store is not None:
            os.environ["FOLIOT_STORE"] = (
                self.store
            )  # so that the app's own code sees the same store from its first line
        if self.app is None:
            return Foliot(self.store)
        app = load_app(self.app)
        if self.store is not None:
            app.move_to(self.store)  # it may have used its store while it was imported
        return app

    def on_store(self) -> Foliot:
        """For commands that need no jobs. The app is imported only if it alone knows the store: broken code must not
        keep an operator out."""
        self._set_environment()
        return Foliot(self.store) if self.store is not None else self.load()

    def _set_environment(self) -> None:
        """For the app's own code, and for the processes of single attempts."""
        if self.encryption_keys is not None:
            os.environ["FOLIOT_ENCRYPTION_KEYS"] = self.encryption_keys
        if self.audit_keys is not None:
            os.environ["FOLIOT_AUDIT_KEYS"] = self.audit_keys
        if self.private_networks is not None:
            os.environ[SETTING] = self.private_networks
        if self.public_url is not None:
            os.environ[PUBLIC_URL] = self.public_url

    def existing(self) -> Foliot:
        """For commands that look or act: they never make a store where there was none."""
        app = self.on_store()
        file = app.store.file
        if file is not None and not _is_there(Path(file)):
            raise StoreError(f"there is no store at {file}; give another --store, or create one with `foliot up`")
        if app.store.is_server and asyncio.run(app.store.schema()).current == 0:
            where = app.store.name
            raise StoreError(f"there is no store in {where}; give another --store, or create one with `foliot migrate`")
        return app


def _is_there(file: Path) -> bool:
    try:
        return file.exists()
    except OSError as error:  # a folder that is not ours, a name that is too long
        raise StoreError(f"the store {file} cannot be reached: {error.strerror or error}") from None


def resolve(app: str | None, store: str | None, environment: Mapping[str, str], folder: Path) -> Settings:
    said = _read(folder / FILE)
    public_url = environment.get(PUBLIC_URL) or said.get("public_url")
    return Settings(
        app or environment.get("FOLIOT_APP") or said.get("app"),
        store or environment.get("FOLIOT_STORE") or said.get("store"),
        environment.get("FOLIOT_AUDIT_ANCHOR") or said.get("audit_anchor"),
        environment.get("FOLIOT_LOG_FORMAT") or said.get("log_format"),
        environment.get("FOLIOT_LOG_LEVEL") or said.get("log_level"),
        environment.get("FOLIOT_ENCRYPTION_KEYS") or said.get("encryption_keys"),
        environment.get("FOLIOT_AUDIT_KEYS") or said.get("audit_keys"),
        environment.get(SETTING) or said.get("private_networks"),
        None if public_url is None else checked_public_url(public_url),
        _alerts(said.get("alerts", {}), environment)._replace(public_url=public_url),
    )


def _alerts(said: Mapping[str, Any], environment: Mapping[str, str]) -> AlertSettings:
    """`[alerts]` of the file; addresses from the environment take the place of those in it."""
    for key in said:
        if key not in _OF_ALERTS:
            raise InvalidInput(f"{FILE} has an unknown key {key!r} in [alerts]; known keys: {', '.join(_OF_ALERTS)}")
    given = environment.get("FOLIOT_ALERT_URLS")
    urls = given.split() if given is not None else said.get("urls", [])
    if not isinstance(urls, list) or not all(isinstance(url, str) and "://" in url for url in urls):
        raise InvalidInput(f'{FILE}: urls in [alerts] must be a list of URLs, such as ["mailto://..."]')
    ping = environment.get("FOLIOT_ALERT_PING") or said.get("ping")
    graces = said.get("grace", {})
    if not isinstance(graces, dict):
        raise InvalidInput(f'{FILE}: [alerts.grace] must be a table of durations by kind, such as late = "10m"')
    for kind in checked_kinds(list(graces)):
        if kind in EVENTFUL:
            raise InvalidInput(f"{FILE}: {kind} has no grace, because it is a single event; add it to silent instead")
    rules = Rules(
        frozenset(checked_kinds(said.get("silent", []))), {kind: duration(given) for kind, given in graces.items()}
    )
    return AlertSettings(tuple(urls), None if ping is None else checked_ping(str(ping)), rules)


def _read(file: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{FILE} cannot be read: {error}; correct the file") from None
    for key, value in found.items():
        if key == "alerts" and isinstance(value, dict):
            continue
        if key not in _KEYS:
            nearest = get_close_matches(key, [*_KEYS, "alerts"], n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; known keys: {', '.join(_KEYS)}, [alerts]"
            raise InvalidInput(f"{FILE} has an unknown key {key!r}{hint}")
        if not isinstance(value, str) or not value:
            raise InvalidInput(f'{FILE}: {key} must be text, such as {key} = "{_EXAMPLES[key]}"')
    return found


_EXAMPLES = {
    "app": "shop.jobs:app",
    "store": "sqlite:///foliot.db",
    "audit_anchor": "/mnt/vault/foliot.anchors",
    "log_format": "json",
    "log_level": "info",
    "encryption_keys": "foliot_key_...",
    "audit_keys": "foliot_key_...",
    "private_networks": "10.20.0.0/16",
    "public_url": "https://foliot.example.com",
}


def load_app(given: str) -> Foliot:
    """`module:app`, `module`, `file.py` or `file.py:app`. InvalidInput says what is wrong, and where."""
    place, _, name = given.partition(":")
    if place.endswith(".py") or os.sep in place:
        module = _import_file(given, Path(place))
    else:
        module = _import_module(given, place)
    return _pick(given, module, name)


def _import_file(given: str, file: Path) -> ModuleType:
    if not file.is_file():
        raise InvalidInput(f"--app {given}: there is no file {file} in {Path.cwd()}; give an existing file")
    # As `python file.py` would: what lies beside the file can be imported.
    sys.path.insert(0, str(file.absolute().parent))
    name = file.stem if file.stem not in sys.modules else f"foliot_app_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file.absolute())
    if spec is None or spec.loader is None:
        raise InvalidInput(f"--app {given}: {file} cannot be imported; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # annotations are looked up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _broken(given, error) from error
    return module


def _import_module(given: str, name: str) -> ModuleType:
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise InvalidInput(f"--app {given}: write it as module:app, or as a file: path/to/jobs.py")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _broken(given, error) from error
        hint = f"; for the file write --app {name}.py" if Path(f"{name}.py").is_file() else f" from {here}"
        raise InvalidInput(f"--app {given}: there is no module {error.name!r} to import{hint}") from None
    except (Exception, SystemExit) as error:
        raise _broken(given, error) from error


def _pick(given: str, module: ModuleType, name: str) -> Foliot:
    found = {key: value for key, value in vars(module).items() if isinstance(value, Foliot)}
    listed = ", ".join(sorted(found)) or "none"
    if name:
        if name not in found:
            raise InvalidInput(f"--app {given}: {module.__name__} has no app {name!r}; its apps are: {listed}")
        return found[name]
    if "app" in found:
        return found["app"]
    if len({id(app) for app in found.values()}) == 1:
        return next(iter(found.values()))
    if not found:
        raise InvalidInput(f"--app {given}: {module.__name__} creates no app; add to it: app = Foliot()")
    raise InvalidInput(f"--app {given}: {module.__name__} has several apps ({listed}); choose one: --app {given}:NAME")


def _broken(given: str, error: BaseException) -> InvalidInput:
    """The app's own mistake, and the line in which it is: a stack trace is for us, not for them."""
    if isinstance(error, SyntaxError):
        where = f"{error.filename}:{error.lineno}: "
    else:
        ours = str(Path(__file__).parents[1])
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if not frame.filename.startswith((ours, "<frozen"))
        ]
        where = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
    what = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    return InvalidInput(f"--app {given} cannot be imported: {where}{what}")
