"""Whatever the description of the API allows, and what it does not: no answer is a mistake of ours, and the description
knows each of them.

`make test` asks every third operation one question, always the same. `make test-full` asks a whole fleet thousands of
questions over the wire, with others that follow from earlier answers. `make torture` asks tens of thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle
from typing import Any, NamedTuple

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from foliot.web.application import inner_application
from foliot.web.openapi import description
from tests.cli.support import process, run, until
from tests.servers.emptied import emptied
from tests.tiers import FULL, by_tier, full_only
from tests.web.stage import ELSEWHERE, Caller, Stage, staged

EXAMPLES = by_tier(1, 10, 60)
"""Questions to one operation that its description allows, and as many that it does not allow."""
MEANT = ("positive_data_acceptance", "ignored_auth")
"""What is left out: no description can say all that a domain refuses; and tests/web/test_access.py asks every route
without a token, and with every wrong one."""


def _schema(address: str) -> Any:
    schema = schemathesis.openapi.from_dict(description(inner_application()))
    schema.config.update(base_url=address)
    schema.config.checks.update(excluded_check_names=list(MEANT))
    schema.config.checks.negative_data_rejection.expected_statuses = ["4xx"]
    return schema


def _hurried(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=not FULL,
    )


def _play(examples: int, cases: Any, ask: Callable[[Any], None]) -> None:
    with suppress(Unsatisfiable):  # what takes nothing cannot be asked wrongly
        _hurried(examples)(given(case=cases)(ask))()


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as made:
        yield made


def test_no_question_breaks_the_api_or_its_description(stage: Stage) -> None:
    caller, asked = stage.caller("fuzz", "admin"), 0

    def ask(case: Any) -> None:
        nonlocal asked
        asked += 1
        case.validate_response(_answer(stage, caller, case))

    # The short suite asks by turns what is allowed and what is not; the full suite asks both of each operation.
    modes = cycle((GenerationMode.POSITIVE, GenerationMode.NEGATIVE))
    for found in list(_schema(ELSEWHERE).get_all_operations())[:: by_tier(3, 1)]:
        for _ in range(by_tier(1, 2)):
            _play(EXAMPLES, found.ok().as_strategy(next(modes)), ask)
    assert asked > by_tier(20, 500)


def _answer(stage: Stage, caller: Caller, case: Any) -> httpx.Response:
    asked = case.as_transport_kwargs(base_url=ELSEWHERE)
    headers = {name.lower(): value for name, value in (asked.get("headers") or {}).items()}
    # Header values are bytes, and the generated ones go beyond ASCII.
    asked["headers"] = httpx.Headers(headers | caller.headers, encoding="latin-1")
    if isinstance(asked.get("data"), bytes | str):
        asked["content"] = asked.pop("data")
    request = httpx.Request(**{name: asked[name] for name in asked if asked[name] is not None})
    transport = httpx.ASGITransport(stage.application)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.send(request)

    return stage.world.call(ask())


APP = """
from foliot import Context, Foliot, Permanent, every
app = Foliot(attempts=1)

@app.job
async def report(day: str = "today") -> str:
    return day

@app.job(effects=("pay",))
async def settle(ctx: Context) -> None:
    async with ctx.effect("pay", key="7"):
        raise TimeoutError("no answer")

@app.job
async def broken() -> None:
    raise Permanent("no such account")

app.members("shops", ["north", "south"])
app.schedule("plain", report, every("2s"), tenant="acme")
app.schedule("visits", report, every("10s"), over="shops")
app.schedule("doubt", settle, every("20s"), overlap="skip", catch_up="once")
app.schedule("letters", broken, every("20s"))
"""


PARTS = 16
"""The operations are divided into tests of about the same length."""
WALKS = by_tier(1, 2, 16)
"""Each walk draws its own questions."""


class Fleet(NamedTuple):
    schema: Any
    headers: dict[str, str]
    address: str


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres"))])
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Scheduler, worker and web, as `foliot up` starts them; afterwards none of them has stumbled."""
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "jobs.py").write_text(APP)
    url = f"sqlite:///{folder}/foliot.db"
    if request.param == "postgres":
        url = emptied(request.getfixturevalue("postgres"))
    run("migrate", "--store", url)
    token = run("tokens", "create", "fuzz-root", "--scope", "admin", "--reason", "fuzz", "--store", url).stdout.strip()
    with process(folder, "up", "--app", "jobs.py", "--store", url, "--port", "0", "--grace", "1s") as up:
        until(lambda: "serving http" in up.err.read_text(), "the web serves")
        address = up.err.read_text().partition("serving ")[2].split()[0].rstrip("/")
        headers = {"authorization": f"Bearer {token}"}
        schema = _schema(address)
        schema.config.update(headers=headers)
        yield Fleet(schema, headers, address)
        assert httpx.get(f"{address}/healthz").status_code == 200
        assert up.popen.poll() is None
    assert "Traceback" not in up.err.read_text()


@full_only
@pytest.mark.faults
@pytest.mark.parametrize("part", range(PARTS))
def test_thousands_of_questions_break_nothing(fleet: Fleet, part: int) -> None:
    def ask(case: Any) -> None:
        case.call_and_validate(headers=fleet.headers)

    for found in list(fleet.schema.get_all_operations())[part::PARTS]:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            _play(EXAMPLES, found.ok().as_strategy(mode), ask)


@full_only
@pytest.mark.faults
@pytest.mark.parametrize("walk", range(WALKS))
def test_questions_that_follow_from_answers_break_nothing(fleet: Fleet, walk: int) -> None:
    machine = fleet.schema.as_state_machine()
    machine.run(settings=settings(_hurried(10), stateful_step_count=10))
