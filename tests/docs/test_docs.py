"""The documentation is true: its code runs, its generated parts are fresh, and nothing that exists goes unmentioned."""

from __future__ import annotations

import ast
import difflib
import inspect
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

import foliot
from foliot import Context, Foliot, every
from foliot.app import _HANDLER_SETTINGS
from foliot.cli import account, imports
from foliot.cli import foliot as command
from foliot.clock import SystemClock
from foliot.domain.alerts import Alert, Kind, Severity
from foliot.domain.gates import Gate, GateView
from foliot.domain.instant import parse_rfc3339, spell
from foliot.domain.ledger import BatchView, EffectState, EffectView, Facts
from foliot.domain.policy import Policy
from foliot.domain.replay import DeadLetter, Fate
from foliot.domain.state import Outcome, Reason, State
from foliot.domain.store import AuditRow, EventRow
from foliot.errors import FoliotError
from foliot.operate import replaying, shapes
from foliot.operate.advising import guidance, guidance_shape
from foliot.operate.alerting import alert_story_shape, alerts_shape
from foliot.operate.auditing import audit_report_shape, sealed_shape
from foliot.operate.cancelling import ForcedCancel, forced_shape
from foliot.operate.jobs import job_shape
from foliot.operate.limits import limit_shape
from foliot.operate.replaying import Judged, ReplayPreview, dead_shape, outcomes_shape, replay_preview_shape
from foliot.operate.report import Verdict, report_shape
from foliot.operate.shapes import run_shape
from foliot.operate.story import lineage_shape
from foliot.operate.surveyed import overview_shape, standing_shape
from foliot.operate.surveying import Need
from foliot.operate.tokens import token_shape
from foliot.testing import World, virtual_time
from foliot.timing import binding, dst, spoken
from foliot.timing.expression import NICKNAMES
from foliot.watch import reaper
from tests.docs import generated, pages
from tests.docs.pages import DOCS, PAGES, ROOT
from tests.waiting import HANG

README, GUIDE, TIME, POLICIES, STATES, TESTING, CLI, OPERATIONS = (
    ROOT / "README.md",
    DOCS / "guide.md",
    DOCS / "time.md",
    DOCS / "policies.md",
    DOCS / "states.md",
    DOCS / "testing.md",
    DOCS / "cli.md",
    DOCS / "operations.md",
)
SOURCE = ROOT / "src" / "foliot"
ON_A_SERVER = [DOCS / "transactions.md", DOCS / "http.md"]
"""Pages whose Python needs a server: tests/docs/test_transactions.py and test_http_page.py run it there."""
RUNNING = [page for page in PAGES if pages.python_blocks(page) and page not in ON_A_SERVER]
NOT_RUN: dict[str, int] = {}
"""By page, how many Python blocks are marked as not run. Each is a promise that nobody checks: keep this empty."""

NOW = parse_rfc3339("2026-06-01T12:00:00Z")
"""When the commands are given whose output is shown."""


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("FOLIOT_APP", "FOLIOT_STORE"):
        monkeypatch.delenv(name, raising=False)


# ------------------------------------------------------------------------------------------------------- code that runs


def _run(page: Path) -> dict[str, Any]:
    """All Python blocks of a page in order, in one namespace; a traceback shows the page and its line."""
    module = ModuleType(f"docs_{page.stem.lower()}")
    for block in pages.python_blocks(page):
        if block.not_run is None:
            code = compile("\n" * block.line + block.text, str(page), "exec")
            with redirect_stdout(io.StringIO()) as printed:
                exec(code, module.__dict__)
            if block.prints is not None:
                assert _lines(printed.getvalue()) == _lines(block.prints)
    return module.__dict__


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


@pytest.mark.parametrize("page", RUNNING, ids=pages.name_of)
def test_every_python_block_runs(page: Path) -> None:
    namespace = _run(page)
    try:
        for name, value in list(namespace.items()):
            if name.startswith("test_"):
                value()
    finally:
        for value in namespace.values():
            if isinstance(value, Foliot):
                value.close()


def test_the_blocks_that_do_not_run_are_counted() -> None:
    marked = {pages.name_of(page): [b for b in pages.python_blocks(page) if b.not_run is not None] for page in PAGES}
    assert {name: len(found) for name, found in marked.items() if found} == NOT_RUN


def test_the_first_app_of_the_readme_makes_its_promise(tmp_path: Path) -> None:
    block = pages.python_blocks(README)[0]
    (tmp_path / "reminders.py").write_text(block.text, "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    subprocess.run([sys.executable, "reminders.py"], cwd=tmp_path, env=environment, check=True, timeout=HANG)
    with Foliot(f"sqlite:///{tmp_path}/foliot.db") as app:
        [run] = app.portal.call(app.operate.runs_async, "runs_async")
    assert (run.id, run.job, str(run.state)) == ("class:7#1", "send_reminder", "scheduled")


def test_the_readme_stays_short() -> None:
    assert len(README.read_text("utf-8").split()) <= 900
    assert len(pages.python_blocks(README)[0].text.splitlines()) <= 25


@cache
def _known() -> dict[tuple[str, ...], generated.Command]:
    """Read once: the pages show some two hundred commands."""
    return {one.words: one for one in generated.commands()}


@pytest.mark.parametrize("page", [page for page in PAGES if any(pages.command_lines(page))], ids=pages.name_of)
def test_every_command_that_is_shown_exists_with_its_options(page: Path) -> None:
    assert [fault for line in pages.command_lines(page) for fault in _faults(line)] == []


def _faults(line: str) -> Iterator[str]:
    """Why the command line would not run."""
    known = _known()
    words = shlex.split(line.replace("…", ""), comments=True)
    found = next((known[tuple(words[:n])] for n in (3, 2) if tuple(words[:n]) in known), None)
    if found is None:
        yield f"there is no such command: {line}"
        return
    options = {form for parameter in found.parameters for form in parameter.forms} | {"--help", "-h"}
    for word in words[len(found.words) :]:
        # A single dash is the standard input.
        if word.startswith("-") and word != "-" and word.split("=")[0] not in options:
            yield f"{' '.join(found.words)} has no {word}: {line}"


@pytest.mark.parametrize("page", [page for page in PAGES if pages.shown_commands(page)], ids=pages.name_of)
def test_what_a_command_is_shown_to_print_it_prints(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "now", lambda self: NOW)
    for block in pages.shown_commands(page):
        if block.language == "crontab":
            Path(block.text.split()[1]).write_text(block.text, "utf-8")
            continue
        lines = [shlex.split(line, comments=True) for line in block.text.splitlines()]
        assert all(words[0] == "foliot" for words in lines), f"{pages.name_of(page)}, line {block.line}"
        printed = "".join(CliRunner().invoke(command, words[1:]).output for words in lines)
        assert _lines(printed) == _lines(block.prints or "")


# ------------------------------------------------------------------------------------------------------ generated parts


def _generated() -> list[tuple[Path, str]]:
    return [(page, name) for page in PAGES for name in pages.generated_parts(page)]


def test_every_generated_part_has_its_place() -> None:
    assert sorted(name for _, name in _generated()) == sorted(generated.PARTS)


@pytest.mark.parametrize("page", sorted({page for page, _ in _generated()}), ids=pages.name_of)
def test_generated_parts_are_fresh(page: Path) -> None:
    shown = pages.generated_parts(page)
    made = {name: generated.PARTS[name]() for name in shown}
    if os.environ.get("FOLIOT_UPDATE_DOCS"):
        pages.rewrite(page, made)
        shown = pages.generated_parts(page)
    stale = difflib.unified_diff("".join(shown.values()).splitlines(), "".join(made.values()).splitlines(), lineterm="")
    assert shown == made, "FOLIOT_UPDATE_DOCS=1 python -m pytest tests/docs brings it up to date\n" + "\n".join(stale)


# ------------------------------------------------------------------------------------------------- nothing unmentioned


def test_every_command_and_option_is_documented() -> None:
    for one in generated.commands():
        told = pages.section(CLI, " ".join(one.words))
        for parameter in one.parameters:
            for form in parameter.forms:
                assert form in told, f"{' '.join(one.words)} {form}"


def test_every_command_that_prints_json_says_what() -> None:
    told = pages.rows(pages.section(CLI, "JSON"))
    printing = {
        " ".join(one.words[1:]) for one in generated.commands() if any("--json" in p.forms for p in one.parameters)
    }
    assert printing - told.keys() == set()


def test_every_policy_setting_is_documented_with_its_default() -> None:
    told = pages.rows(pages.section(POLICIES, "Every setting"))
    assert list(told) == [field.name for field in fields(Policy)]
    for field in fields(Policy):
        default = getattr(Policy(), field.name)
        if default is None or default == ():
            shown = "none"
        elif isinstance(default, str):
            shown = f"`{default}`"
        else:
            shown = str(default) if str(field.type).startswith("int") else spell(default)
        assert told[field.name][0] == shown, field.name


def test_every_setting_of_a_job_is_documented() -> None:
    told = pages.rows(pages.section(POLICIES, "Job settings"))
    assert sorted(told) == sorted(set(_HANDLER_SETTINGS) - {"name"})


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("What each state answers", [str(state) for state in State]),
        ("Reasons", [str(reason) for reason in Reason]),
        ("How an attempt ends", [str(outcome) for outcome in Outcome]),
    ],
)
def test_every_state_reason_and_outcome_is_documented(title: str, words: list[str]) -> None:
    assert sorted(pages.rows(pages.section(STATES, title))) == sorted(words)


def test_what_is_said_to_be_unused_is_unused() -> None:
    used = {
        name
        for file in SOURCE.rglob("*.py")
        for name in re.findall(r"\b(?:Reason|Outcome)\.[A-Z_]+", file.read_text("utf-8"))
    }
    for title, kind in (("Reasons", Reason), ("How an attempt ends", Outcome)):
        for word, cells in pages.rows(pages.section(STATES, title)).items():
            unused = f"{kind.__name__}.{kind(word).name}" not in used
            assert unused == any("ot used by this release" in cell for cell in cells), word


def test_every_event_kind_is_documented() -> None:
    texts = [file.read_text("utf-8") for file in SOURCE.rglob("*.py")]
    # Only these can have such a call, and parsing every file takes a second.
    wanted = [text for text in texts if re.search(r"\b(event|note|_report|events\.append)\(", text)]
    kinds = {kind for text in wanted for kind in _event_kinds(ast.parse(text))}
    assert {"lost", "fenced", "overrun", "bad_policy"} <= kinds, "the search misses what it should find"
    assert sorted(pages.rows(pages.section(STATES, "Events"))) == sorted(kinds)


def _event_kinds(tree: ast.AST) -> Iterator[str]:
    """First arguments of `….event(kind, …)` and `….note(kind, …)`, and of tuples that are handed on to them."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        called, first = node.func.attr, node.args[0]
        handed_on = called == "_report" or (called == "append" and ast.unparse(node.func.value).endswith("events"))
        if handed_on and isinstance(first, ast.Tuple):
            first = first.elts[0]
        elif called not in ("event", "note"):
            continue
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value
        elif ast.unparse(first) == "str(loss.outcome)":
            yield from map(str, (Outcome.LOST, *reaper._ENDED))


def test_every_public_name_is_listed_importable_and_documented() -> None:
    public = {
        name for name, value in vars(foliot).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert sorted(public) == foliot.__all__
    told = GUIDE.read_text("utf-8") + POLICIES.read_text("utf-8")
    for name in foliot.__all__:
        assert getattr(foliot, name) is not None
        assert re.search(rf"\b{name}\b", told), f"{name} is neither in the guide nor in the policies"


def test_every_rule_is_documented_with_each_of_its_arguments() -> None:
    told = TIME.read_text("utf-8")
    for name, make in (spoken.CONSTRUCTORS | spoken.METHODS).items():
        assert f"{name}(" in told, name
        for argument in inspect.signature(make).parameters.values():
            if argument.kind is argument.KEYWORD_ONLY:
                assert re.search(rf"\b{argument.name}=|`{argument.name}`", told), f"{name}({argument.name}=)"


def test_every_choice_that_a_rule_has_is_documented() -> None:
    told = pages.section(TIME, "Where the clocks change")
    choices = [*dst.Gap, *dst.Fold, *dst.IntervalLike, *dst.PRESETS]
    assert [choice for choice in choices if f'`"{choice}"`' not in told] == []
    assert [name for name in NICKNAMES if f"`{name}`" not in pages.section(TIME, "Cron")] == []
    assert sorted(pages.rows(pages.section(TIME, "Arguments from the tick"))) == sorted(binding.KNOWN)
    taken = {name for chosen in generated.CHOICES for name in chosen.values()} | {*dst.VIXIE, "vixie"}
    assert set(choices) - taken == set(), "the table of nights leaves a policy out"


def test_every_verb_of_a_context_and_of_a_world_is_documented() -> None:
    context = pages.section(GUIDE, "Context: progress and checkpoints")
    for kind, told in ((Context, context), (World, TESTING.read_text("utf-8"))):
        internal = {"app", "store", "schedulers", "workers", "start", "call", "close"} if kind is World else set()
        for name in {name for name in vars(kind) if not name.startswith("_")} - internal:
            assert re.search(rf"\b{name}\b", told), f"{kind.__name__}.{name}"


def test_every_error_is_in_the_tree_that_the_guide_points_to() -> None:
    tree = foliot.errors.__doc__ or ""
    known: list[type] = [FoliotError]
    for kind in known:
        known += kind.__subclasses__()
    assert [kind.__name__ for kind in known if kind.__module__ == "foliot.errors" and kind.__name__ not in tree] == []


def test_operators_find_errors_by_the_texts_that_the_source_raises() -> None:
    shown = pages.rows(pages.section(OPERATIONS, "Find an error"))
    of_sqlite = {"database is locked"}
    source = "".join(file.read_text("utf-8") for file in [*SOURCE.glob("store/**/*.py"), SOURCE / "errors.py"])
    assert [text for text in shown if text not in source] == [*of_sqlite]
    assert all(hasattr(foliot.errors, cells[0].strip("`")) for cells in shown.values())


def test_every_field_of_the_json_forms_is_documented() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    def report() -> None: ...

    app.schedule("report", report, every("1h"))
    with virtual_time(app) as world:
        kept = app.operate.trigger("report", reason="to look at it", actor="ana")
        world.run_for("2h")
        lineage, now = world.call(app.operate.lineage_async(kept.id)), world.clock.now()
        run, job = lineage.view, world.call(app.operate.job_async("report"))
        day = report_shape(app.operate.report("report"))
        an_alert = Alert(1, Kind.LATE, "job:report", Severity.WARNING, "late", "look", now, now)
        forms: dict[str, list[str]] = {
            "A run": list(lineage_shape(lineage)),
            "A schedule": list(shapes.schedule_shape(world.schedule("report"), now)),
            "How a schedule stands": [
                name
                for name in standing_shape(app.operate.standing("report"), now)
                if name not in shapes.schedule_shape(world.schedule("report"), now)
            ],
            "How everything stands": list(overview_shape(app.operate.overview())),
            "Items that need attention": [*Need._fields],
            "A job": list(job_shape(job.card, job.counts, job.taken)),
            "A report": [*day, *map(str, Verdict)],
            "What an action did": list(shapes.kept_shape(kept)),
            "What a forced cancellation did": list(forced_shape(ForcedCancel(run, None, [], now), kept)),
            "A limit": list(limit_shape(GateView(Gate("job:report"), 0, 0))),
            "A token": list(token_shape(app.operate.create_token("x", reason="y", actor="z").token, now)),
            "A row of the log": list(sealed_shape(world.call(app.operate.audit_async())[0])),
            "An alert": [*alert_story_shape(an_alert, None, now), *alerts_shape(app.operate.alerts())],
            "What a look through the log found": list(audit_report_shape(app.operate.verify_audit())),
        }
        letter = DeadLetter(run, Facts(), begun=False, useful_until=None)
        seen = ReplayPreview(0, Counter({(Fate.REFUSED, "x"): 1}), [], {(Fate.REFUSED, "x"): "y"}, 0)
        forms["A dead letter"] = [name for name in dead_shape(Judged(letter, Fate.WOULD)) if name not in run_shape(run)]
        forms["What a replay would do"] = list(replay_preview_shape(seen))
        forms["What became of many"] = list(outcomes_shape([]))
        attempt = list(shapes.attempt_shape(run, run.attempts[0]))
        instance = list(shapes.instance_shape(world.call(world.store.instances())[0]))
    for title, names in forms.items():
        assert sorted(pages.rows(pages.section(CLI, title))) == sorted(names), title
    event = list(shapes.event_shape(EventRow(1, now, "lost", "x", "y")))
    line = EffectView("payout", "7", EffectState.STARTED, None, 1, 1, 1, now, None, None, None, None)
    advised = guidance_shape(guidance(replace(run, state=State.DEAD), None, now)) or {}
    for title, row, names in (
        ("A run", "attempts", attempt),
        ("A run", "events", event),
        ("A run", "effects", list(shapes.effect_shape(run, line))),
        ("A run", "batches", [*shapes.batch_shape(BatchView("x", 1, 1, 0, [])), "key", "error"]),
        ("A run", "audit", list(shapes.audit_shape(AuditRow(now, "ana", "retry", "x")))),
        ("A run", "story", ["at", "kind", "text"]),
        ("A run", "advice", [*advised, *advised["steps"][0]]),
        ("A report", "statements", list(day["statements"][0])),
        ("What a replay would do", "refused", list(replay_preview_shape(seen)["refused"][0])),
        ("What became of many", "runs", list(outcomes_shape([replaying.Outcome("x", Fate.WOULD)])["runs"][0])),
        ("What doctor found", "instances", instance),
    ):
        told = " ".join(pages.rows(pages.section(CLI, title))[row])
        assert [name for name in names if f"`{name}`" not in told] == [], row
    told_kinds = pages.rows(pages.section(CLI, "The account"))
    source = Path(account.__file__).read_text("utf-8") + (SOURCE / "cli" / "up.py").read_text("utf-8")
    assert set(re.findall(r'"kind": "(\w+)"', source)) - told_kinds.keys() - {"summary"} == set()


def test_every_field_that_is_told_of_rules_and_imports_is_documented() -> None:
    Path("crontab.txt").write_text("A=b\n0 2 * * * true\n@reboot true\n", "utf-8")
    explained, days = _json("explain", "0 2 * * *"), _json("preview", "0 2 * * *")
    imported = _json("import", "crontab", "crontab.txt", "--tz", "UTC", "--dry-run", exit_code=1)
    kinds = {line["kind"]: line for line in imported["lines"]}
    told = pages.section(CLI, "What an import did")
    assert sorted(pages.rows(pages.section(CLI, "A rule"))) == sorted(explained)
    assert [name for name in explained["policy"] if f"`{name}`" not in pages.section(CLI, "A rule")] == []
    assert sorted(pages.rows(pages.section(CLI, "A day of a preview"))) == sorted(days[0])
    assert sorted(pages.rows(told)) == sorted([*imported, *kinds])
    for kind, line in kinds.items():
        words = told if kind == "problem" else " ".join(pages.rows(told)[kind])
        assert [name for name in line.keys() - {"line", "text", "kind"} if f"`{name}`" not in words] == [], kind
    assert all(f"`{name}`" in told for name in ("line", "text", "kind", *imported["summary"], *imports._OUTCOMES))


def test_every_check_of_the_doctor_is_documented() -> None:
    with Foliot("sqlite:///foliot.db") as app:
        app.apply()
    found = _json("doctor", "--store", "sqlite:///foliot.db")
    told = pages.section(CLI, "What doctor found")
    assert found.keys() - pages.rows(told).keys() == set()
    assert [name for name in found["versions"] if f"`{name}`" not in " ".join(pages.rows(told)["versions"])] == []
    assert [check["name"] for check in found["checks"] if f"`{check['name']}`" not in told] == []


def _json(*words: str, exit_code: int = 0) -> Any:
    result = CliRunner().invoke(command, [*words, "--json"])
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


# --------------------------------------------------------------------------------------------------------- links, lists


@pytest.mark.parametrize("page", PAGES, ids=pages.name_of)
def test_links_resolve(page: Path) -> None:
    for link in pages.links(page):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), f"{pages.name_of(page)} points to {link}, which is not there"
        if anchor:
            assert anchor in pages.anchors(target), f"{pages.name_of(page)} points to {link}: no such heading"


def test_the_map_lists_every_page_and_every_decision() -> None:
    listed = {(DOCS / link.partition("#")[0]).resolve() for link in pages.links(DOCS / "README.md")}
    wanted = {page for page in DOCS.rglob("*.md") if page.name not in ("README.md", "0000-template.md")}
    assert {pages.name_of(page) for page in wanted - listed} == set()


def test_every_room_is_shown_to_contributors() -> None:
    told = pages.rows((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    rooms = {f"{entry.name}/" for entry in SOURCE.iterdir() if (entry / "__init__.py").exists()}
    rooms |= {entry.name for entry in SOURCE.glob("*.py") if not entry.name.startswith("__")}
    assert rooms - told.keys() == set()


def test_pages_speak_of_the_product_alone() -> None:
    """No machine's paths, no private hosts: what only one person's computer knows helps nobody else."""
    for page in PAGES:
        text = page.read_text("utf-8")
        found = re.findall(r"/(?:home|root|Users|work|tmp)/\S+|\b(?:10|192\.168)\.\d+\.\d+(?:\.\d+)?|#\d{2,}\b", text)
        assert found == [], pages.name_of(page)
