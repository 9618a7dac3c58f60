"""The two sides of a comparison: copies of the package `foliot`, each from a commit or from a folder."""

from __future__ import annotations

import io
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = Path("src/foliot")

SideName = Literal["this", "other"]
SIDES: tuple[SideName, SideName] = ("this", "other")


class SideError(Exception):
    """A commit or folder that cannot be compared."""


@dataclass(frozen=True, slots=True)
class Side:
    name: SideName
    label: str
    """The folder, or the commit as git abbreviates it."""
    source: Path
    """The copy of `src`, for PYTHONPATH."""


def copy_side(name: SideName, given: str | None, folder: Path) -> Side:
    """Copies a commit or a folder into `folder`; without either, the working tree of this checkout."""
    tree = CHECKOUT if given is None else Path(given)
    if tree.is_dir():
        label = _copy_folder(tree.resolve(), folder)
    else:
        label = _extract_commit(str(given), folder)
    return Side(name, label, folder / PACKAGE.parent)


def _copy_folder(tree: Path, folder: Path) -> str:
    if not (tree / PACKAGE / "__init__.py").is_file():
        raise SideError(f"{tree} has no {PACKAGE}; give the top folder of a checkout, or a commit")
    # With compiled files and file times, so that the copy is not compiled again.
    shutil.copytree(tree / PACKAGE, folder / PACKAGE)
    return str(tree)


def _extract_commit(given: str, folder: Path) -> str:
    try:
        commit = _git("rev-parse", "--short", "--verify", "--end-of-options", f"{given}^{{commit}}").decode().strip()
    except SideError as error:
        raise SideError(f"{given!r} is neither a folder nor a commit of {CHECKOUT} ({error})") from error
    try:
        archive = _git("archive", "--format=zip", commit, str(PACKAGE))
    except SideError as error:
        raise SideError(f"commit {given} has no {PACKAGE} ({error})") from error
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:  # safe tar extraction needs Python 3.11.4
        packed.extractall(folder)
    return commit


def _git(*arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(CHECKOUT), *arguments], capture_output=True, check=False)
    except FileNotFoundError as error:
        raise SideError("git is not installed; give folders instead of commits") from error
    if done.returncode:
        raise SideError(done.stderr.decode(errors="replace").strip())
    return done.stdout
