"""`foliot completion`: what a shell offers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.support import refused, run


def offered(folder: Path, *words: str) -> list[str]:
    """What bash would complete the last word to."""
    script = folder / "foliot.bash"
    script.write_text(run("completion", "bash").stdout)
    typed = " ".join(f"'{word}'" for word in words)
    asked = f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _foliot; echo ${{COMPREPLY[@]}}"
    command = ["bash", "-c", f"source {script}; {asked}"]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    return told.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    assert offered(tmp_path, "foliot", "ru") == ["runs"]
    assert {"list", "show", "cancel"} <= set(offered(tmp_path, "foliot", "runs", ""))
    assert offered(tmp_path, "foliot", "runs", "list", "--st") == ["--state", "--store"]
    assert offered(tmp_path, "foliot", "runs", "list", "--job", "x", "--lim") == ["--limit"]
    assert offered(tmp_path, "foliot", "worker", "--supervised") == []


def test_other_shells_have_a_script_too() -> None:
    assert "bashcompinit" in run("completion", "zsh").stdout
    assert "complete -c foliot" in run("completion", "fish").stdout


def test_an_unknown_shell_is_refused() -> None:
    assert "bash" in refused(run("completion", "powershell"), 2)
