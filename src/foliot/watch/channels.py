"""The ways to people: whatever Apprise knows (mail, chat, pagers), and functions of the app."""

from __future__ import annotations

import asyncio
import inspect
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from foliot.domain.alerts import Alert, Severity
from foliot.errors import InvalidInput
from foliot.watch.heralding import Channel, Message

Hook = Callable[[Alert], Any]


class _Aside:
    """Calls what may hang, in a thread of its own: nobody else needs that one, and a process that ends does not wait
    for it. One call at a time: while the last one has not returned, the next is refused."""

    def __init__(self) -> None:
        self._last: Future[Any] | None = None

    async def call(self, function: Callable[[], Any]) -> Any:
        if self._last is not None and not self._last.done():
            raise OSError("the last message is still being sent")
        future = self._last = Future()
        future.set_running_or_notify_cancel()  # whoever stops waiting does not end the call

        def work() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, name="foliot-alerts", daemon=True).start()
        return await asyncio.wrap_future(future)


class Hooked:
    """A function of the app, called with each alert: when it opened, and again when it is resolved."""

    def __init__(self, function: Hook) -> None:
        self._function = function
        self._aside = _Aside()

    @property
    def name(self) -> str:
        return f"on_alert {getattr(self._function, '__qualname__', self._function)}"

    async def send(self, message: Message) -> None:
        for alert in message.alerts:
            if inspect.iscoroutinefunction(self._function):
                await self._function(alert)
            else:
                await self._aside.call(partial(self._function, alert))


class Notified:
    """An address that Apprise knows how to reach."""

    def __init__(self, url: str) -> None:
        with warnings.catch_warnings():
            # All of its plug-ins are imported here, and some of them use what some release of Python will not have.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._apprise = _apprise()
            service = self._apprise.Apprise.instantiate(url, suppress_exceptions=True)
        if service is None:
            scheme = url.partition("://")[0]
            raise InvalidInput(
                f"notification URL ({scheme:.20}://...) is not a service of Apprise; see its list of services"
            )
        self._service = service
        self._aside = _Aside()

    @property
    def name(self) -> str:
        shown: str = self._service.url(privacy=True)
        return shown.partition("?")[0]

    async def send(self, message: Message) -> None:
        kinds = self._apprise.NotifyType
        kind = kinds.FAILURE if message.severity is Severity.CRITICAL else kinds.WARNING
        if message.resolved:
            kind = kinds.SUCCESS
        elif message.severity is Severity.NOTICE:
            kind = kinds.INFO
        notify = partial(self._service.notify, body=message.body, title=message.title, notify_type=kind)
        if not await self._aside.call(notify):
            raise OSError("the service did not accept it")


def _apprise() -> Any:
    try:
        import apprise
    except ModuleNotFoundError as error:
        if error.name != "apprise":
            raise
        raise InvalidInput(
            'notification URLs need Apprise, which is not installed; pip install "foliot[alerts]"'
        ) from None
    return apprise


def channels(urls: Sequence[str], hooks: Sequence[Hook]) -> list[Channel]:
    return [*map(Notified, urls), *map(Hooked, hooks)]
