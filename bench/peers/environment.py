"""Throw-away environments: a virtual environment or a folder of node modules, with one peer in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from bench.peers.peers import Peer

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
INSTALLING = 600.0
"""Seconds."""


class Unavailable(Exception):
    """A peer cannot be had here; the text says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """How to run a peer's adapter."""

    command: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    version: str = ""


def prepare(peer: Peer, folder: Path) -> Environment:
    """Installs the peer into a folder of its own. Unavailable when that cannot be done."""
    makers = {"ours": _ours, "python": _python, "node": _node}
    return makers[peer.runtime](peer, folder / peer.id)


def _ours(peer: Peer, folder: Path) -> Environment:
    # The code that stands beside this bench, whatever is installed.
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    return Environment(_script(sys.executable, peer), path, f"{version('foliot')}, Python {sys.version.split()[0]}")


def _python(peer: Peer, folder: Path) -> Environment:
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        _run([sys.executable, "-m", "venv", str(folder)])
        # A pre-release is taken only where the version asks for one.
        _run([str(python), "-m", "pip", "install", "-qq", "--no-input", *peer.packages])
        (folder / ".installed").touch()
    name = re.split(r"[<>=\[]", peer.packages[0])[0]
    found = _run([str(python), "-c", f"from importlib.metadata import version; print(version('{name}'))"])
    return Environment(
        _script(str(python), peer), {"PYTHONPATH": str(ROOT)}, f"{found.strip()}, Python {sys.version.split()[0]}"
    )


def _script(python: str, peer: Peer) -> tuple[str, ...]:
    return python, str(HERE / peer.id / "adapter.py")


def _node(peer: Peer, folder: Path) -> Environment:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Unavailable("there is no node here, or no npm")
    if not (folder / ".installed").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _run([npm, "install", "--loglevel=error", "--no-audit", "--no-fund", "--prefix", str(folder), *peer.packages])
        (folder / ".installed").touch()
    modules = folder / "node_modules"
    found = json.loads((modules / peer.packages[0] / "package.json").read_text("utf-8"))["version"]
    return Environment(
        (node, str(HERE / peer.id / "adapter.cjs")),
        {"NODE_PATH": str(modules), "NODE_ENV": "production"},
        f"{found}, node {_run([node, '--version']).strip()}",
    )


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALLING, env=_clean()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{error}") from error
    if done.returncode:
        raise Unavailable(f"{' '.join(command[:4])} … failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def _clean() -> dict[str, str]:
    """Without what would lead one Python into the packages of another."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
