"""Whether another process has ended: certain, or not said."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from foliot.store.process import birth_of, is_gone, this_host

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


def child(code: str = "input()") -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE)


def test_this_process_lives() -> None:
    assert not is_gone(this_host(), os.getpid(), birth_of(os.getpid()))


def test_a_process_lives_until_it_ended() -> None:
    with child() as process:
        birth = birth_of(process.pid)
        assert birth
        assert not is_gone(this_host(), process.pid, birth)
        process.communicate()
        assert is_gone(this_host(), process.pid, birth)


def test_a_process_that_ended_and_was_not_buried_yet_is_gone() -> None:
    with child() as process:
        birth = birth_of(process.pid)
        assert process.stdin is not None
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(this_host(), process.pid, birth)


def test_a_process_that_got_the_pid_of_another_is_not_that_other() -> None:
    assert is_gone(this_host(), os.getpid(), "born on another day")


def test_nothing_is_said_of_a_process_on_another_host() -> None:
    with child("pass") as process:
        process.communicate()
    assert not is_gone("elsewhere", process.pid, "some birth")


def test_nothing_is_said_of_a_process_on_another_machine_of_the_same_name() -> None:
    """Nor of one before this machine was booted anew: its lease ends soon enough."""
    with child("pass") as process:
        process.communicate()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    other = this_host().replace(boot, "00000000-0000-4000-8000-000000000000")
    assert not is_gone(other, process.pid, "some birth")


def test_a_process_of_which_no_birth_is_known_lives_as_long_as_its_pid_is_in_use() -> None:
    assert not is_gone(this_host(), os.getpid(), "")


def test_a_process_of_somebody_else_may_live() -> None:
    assert not is_gone(this_host(), 1, birth_of(1))


def test_a_birth_names_the_boot_and_does_not_change() -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert birth_of(os.getpid()).startswith(boot)
    assert birth_of(os.getpid()) == birth_of(os.getpid())


def test_a_process_has_a_birth_whatever_its_name_looks_like() -> None:
    name = "x) Z 1 (y"
    code = f"import ctypes; ctypes.CDLL(None).prctl(15, {name.encode()!r}, 0, 0, 0); print('x', flush=True); input()"
    process = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        assert name in Path(f"/proc/{process.pid}/stat").read_text()
        assert birth_of(process.pid)
        assert not is_gone(this_host(), process.pid, birth_of(process.pid))
        process.communicate()


def test_where_the_birth_cannot_be_read_a_living_process_may_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of file descriptors, for one: that must not cost a living owner its lease."""
    birth = birth_of(os.getpid())

    def unreadable(*_: object, **__: object) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "read_text", unreadable)
    assert not is_gone(this_host(), os.getpid(), birth)
