"""What every room's tests share: async tests, and loud reports of parts that cannot be had here.

A test that needs more than Python says so: `@pytest.mark.needs("postgres")`. Where that part is missing the test is
skipped, the summary ends with `NOT RUN: postgres (why)`, and `FOLIOT_REQUIRE=postgres` makes the session fail: a build
that was meant to prove something must not be green without having done so. A test that asks for the fixture `postgres`,
`database` or `pgbouncer` needs that part, and does not have to say so.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from tests.progress import Progress
from tests.servers.browser import missing_browser
from tests.servers.home import ServerMissing
from tests.servers.pgbouncer import PgBouncer, missing_pgbouncer
from tests.servers.postgres import CHOICE, PostgresServer, missing_postgres, server_version
from tests.tiers import FULL, TIER

if TYPE_CHECKING:
    from tests.servers.warm import Warm

# No deadline, and no complaint of slow draws: their time depends on the other programs of the machine. The short
# profile draws the same examples each time, so that a red run shows a change and not a new seed. The longer ones
# search for new ones.
UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("short", max_examples=25, derandomize=True, database=None, **UNTIMED)
settings.register_profile("full", max_examples=250, **UNTIMED)
settings.register_profile("torture", max_examples=2_500, **UNTIMED)
settings.load_profile(TIER)

# --------------------------------------------------------------------------------------------------------------- parts


def _sqlite() -> str | None:
    try:
        import apsw
    except ImportError as error:
        return f"apsw cannot be imported: {error}"
    if apsw.SQLITE_VERSION_NUMBER < 3_051_003:
        return f"apsw carries SQLite {apsw.sqlite_lib_version()}; 3.51.3 or newer is needed"
    return None


PARTS: dict[str, Callable[[], str | None]] = {
    "browser": missing_browser,
    "pgbouncer": missing_pgbouncer,
    "postgres": missing_postgres,
    "sqlite": _sqlite,
    "systemd-analyze": lambda: None if shutil.which("systemd-analyze") else "systemd-analyze is not on the PATH",
}
"""By name, how to find out why a part cannot be had; None when it can. A new part is one line here."""

NEEDED = pytest.StashKey[set[str]]()


@cache
def missing(part: str) -> str | None:
    """Why a part cannot be had; None when it can. Asked once per session."""
    if part not in PARTS:
        return f"there is no such part; known are: {', '.join(sorted(PARTS))}"
    return PARTS[part]()


def required() -> list[str]:
    """The parts that this session must have."""
    return [part.strip() for part in os.environ.get("FOLIOT_REQUIRE", "").split(",") if part.strip()]


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until the tests are collected, all of them is kept: a fifth of the cost of collecting
    config.addinivalue_line("markers", "needs(*parts): runs only where these parts can be had; see tests/conftest.py")
    config.stash[NEEDED] = set()
    is_worker = hasattr(config, "workerinput")
    if not is_worker and config.get_verbosity() == 0 and not config.option.collectonly:
        config.pluginmanager.register(Progress(config), "foliot-progress")


def parts_of(item: pytest.Item) -> list[str]:
    """What a test needs: what it says, and the parts whose fixtures it asks for."""
    said = [part for mark in item.iter_markers("needs") for part in mark.args]
    return said + [part for part in PARTS if part in getattr(item, "fixturenames", ())]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """What must be there is got by one process, before others are started."""
    if not session.config.option.collectonly:
        for part in required():
            missing(part)


PATIENT = ("tests/faults/", "tests/examples/", "tests/work/test_isolation.py")
"""Files whose tests wait more than they work: for processes to start, for leases to end."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the full suite. Order whole files: the largest first, with a patient one after every few
    others. At the end of a run in several processes, a patient file would keep the other processes waiting."""
    if not FULL and (left := [item for item in items if _is_left_out(item, config)]):
        items[:] = [item for item in items if not _is_left_out(item, config)]
        config.hook.pytest_deselected(items=left)
    if config.pluginmanager.has_plugin("randomly"):
        _restore_order(items)
        return
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    ordered = sorted(files, key=lambda name: -len(files[name]))
    patient = [name for name in ordered if name.startswith(PATIENT)]
    others = [name for name in ordered if not name.startswith(PATIENT)]
    every = max(len(others) // (2 * len(patient) + 1), 1)
    for place, name in enumerate(patient):
        others.insert(place * (every + 1), name)
    items[:] = [item for name in others for item in files[name]]


def _restore_order(items: list[pytest.Item]) -> None:
    """The tests marked `in_order` take their places in the order of their lines."""
    marked = [place for place, item in enumerate(items) if item.get_closest_marker("in_order") is not None]
    files = list(dict.fromkeys(items[place].path for place in marked))
    ordered = sorted(
        (items[place] for place in marked), key=lambda item: (files.index(item.path), item.location[1] or 0)
    )
    for place, item in zip(marked, ordered, strict=True):
        items[place] = item


def _is_left_out(item: pytest.Item, config: pytest.Config) -> bool:
    """A test that only the full suite runs, unless the command line names it."""
    return item.get_closest_marker("full_only") is not None and item.nodeid not in config.args


def pytest_collection_finish(session: pytest.Session) -> None:
    """Get the parts now: to install a server takes longer than a single test may. Collected tests stay to the end, so
    the garbage collector need not search them."""
    gc.enable()
    gc.freeze()
    if not session.config.option.collectonly:
        for part in {part for item in session.items for part in parts_of(item)}:
            missing(part)


@contextmanager
def reported(item: pytest.Item) -> Iterator[None]:
    """A test that starts a server without having said so is not run either where there is none."""
    try:
        yield
    except ServerMissing as error:
        for part in PARTS:
            if missing(part) == str(error):
                _leave_out(item, part)
        raise


def _leave_out(item: pytest.Item, part: str) -> NoReturn:
    item.config.stash[NEEDED].add(part)
    pytest.skip(f"needs {part}: {missing(part)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    with reported(item):
        yield


@pytest.hookimpl(
    wrapper=True, trylast=True
)  # the innermost one: pytest's others must have begun before a test is left out
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    parts = parts_of(item)
    for part in parts:
        if part not in PARTS:
            pytest.fail(f"needs({part!r}): {missing(part)}", pytrace=False)
    for part in parts:
        if missing(part) is not None:
            _leave_out(item, part)
    with reported(item):
        yield


def pytest_sessionfinish(session: pytest.Session) -> None:
    if any(missing(part) is not None for part in required()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True, tryfirst=True)  # the outermost one: what it writes after the others stands last
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, None, None]:
    yield
    if (FULL or os.environ.get(CHOICE)) and missing("postgres") is None:
        terminalreporter.write_line(f"PostgreSQL tests ran on {server_version()}")
    # In several processes, the others report only how their tests ended.
    ends = [str(report.longrepr) for report in terminalreporter.getreports("skipped")]
    elsewhere = {part for part in PARTS if any(f"needs {part}: " in end for end in ends)}
    for part in sorted(config.stash[NEEDED] | elsewhere | set(required())):
        why = missing(part)
        if why is not None:
            terminalreporter.write_line(f"NOT RUN: {part} ({why})", red=part in required(), yellow=True, bold=True)


# -------------------------------------------------------------------------------------------------------------- servers


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests that only use databases. A test that stops, freezes or sets it makes one of its own."""
    from tests.servers.emptied import emptied_often  # needs drivers, which are not there where a server is missing

    with PostgresServer() as server, emptied_often(server):
        yield server


@pytest.fixture(scope="session")
def pgbouncer(postgres: PostgresServer) -> Iterator[PgBouncer]:
    """A pooler in transaction mode in front of that server; `pgbouncer.through(database)` is a database's address."""
    with PgBouncer(postgres) as pooler:
        yield pooler


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """The DSN of an empty database that nobody else uses."""
    name = f"test_{uuid4().hex}"
    postgres.create_database(name)
    yield postgres.dsn(name)
    postgres.drop_database(name)


@pytest.fixture(scope="session")
def template(postgres: PostgresServer) -> Iterator[str]:
    """The name of a database with all tables, made once, that other databases are copies of."""
    from foliot.store.postgres import PostgresStore

    name = f"template_{uuid4().hex}"
    postgres.create_database(name)
    asyncio.run(PostgresStore(postgres.dsn(name)).migrate())
    yield name
    postgres.drop_database(name)


@pytest.fixture
def migrated(postgres: PostgresServer, template: str) -> Iterator[str]:
    """The DSN of a database with all tables that no other test uses."""
    name = f"test_{uuid4().hex}"
    postgres.psql(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield postgres.dsn(name)
    postgres.drop_database(name)


# ---------------------------------------------------------------------------------------------------------- async tests


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of one test, shared with the fixtures that open and close things in it."""
    with asyncio.Runner() as running:
        yield running


@pytest.fixture(scope="session")
def lasting_loop() -> Iterator[asyncio.AbstractEventLoop]:
    with asyncio.Runner() as running:
        yield running.get_loop()


@pytest.fixture
def lasting_runner(lasting_loop: asyncio.AbstractEventLoop) -> Iterator[asyncio.Runner]:
    """As `runner`, in a loop that the next test has, too. What a test left behind in it ends with the test."""
    with _Lasting(loop_factory=lambda: lasting_loop) as running:
        yield running


class _Lasting(asyncio.Runner):  # type: ignore[misc]  # final for whoever checks types
    """Leaves its loop open, with nothing going on in it."""

    def close(self) -> None:
        self.run(_ended())


async def _ended() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    for outcome in await asyncio.gather(*left, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


@pytest.fixture(scope="session")
def warm(postgres: PostgresServer, lasting_loop: asyncio.AbstractEventLoop) -> Iterator[Warm]:
    """Makes stores for tests that run in that loop."""
    from tests.servers.warm import Warm

    made = Warm(lasting_loop)
    yield made
    lasting_loop.run_until_complete(made.close())


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """An `async def` test runs in the loop of its `runner` fixture, or else in one of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted})
    running = pyfuncitem.funcargs.get("runner")
    if isinstance(running, asyncio.Runner):
        running.run(test)
    else:
        asyncio.run(test)
    return True
