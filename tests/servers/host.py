"""What the host can give: free ports, and server programs, found or installed."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.servers.home import ServerMissing


def free_port() -> int:
    """A port of the loopback that nobody uses.

    Below the range from which systems take the ports of outgoing connections: otherwise one of those could be sitting
    on it when a stopped server wants it back.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def obtain(what: str, package: str, find: Callable[[], Path | None]) -> Path:
    """What `find` finds, if need be after the installation of a package."""
    if not os.path.isdir("/proc/self"):
        raise ServerMissing("servers are only looked after where there is a /proc: on Linux")
    if (found := find()) is not None:
        return found
    why = install(package)
    if why is None and (found := find()) is not None:
        return found
    raise ServerMissing(f"no {what} was found; {why or f'the package {package} did not bring one either'}")


def why_not(obtained: Callable[[], Path]) -> str | None:
    """Why something cannot be obtained; None when it can."""
    try:
        obtained()
    except ServerMissing as error:
        return str(error)
    return None


@cache
def install(package: str) -> str | None:
    """Install a Debian package, without starting what it brings. Why that did not work, or None. Tried once."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return f"install it (on Debian, `apt-get install {package}`); root's tests do so themselves"
    complaint = _apt_get("install", package)
    if complaint:  # package lists that are missing or old are the usual reason
        _apt_get("update")
        complaint = _apt_get("install", package)
    return complaint and f"apt-get could not install {package}: {complaint}"


def _apt_get(verb: str, *packages: str) -> str | None:
    with TemporaryDirectory() as folder:
        # Maintainers' scripts start services through these two, and look for them on the path that apt-get gives them.
        for starter in ("invoke-rc.d", "deb-systemd-invoke"):
            stub = Path(folder, starter)
            stub.write_text("#!/bin/sh\nexit 0\n")
            stub.chmod(0o755)
        options = [
            f"DPkg::Path={folder}:/usr/sbin:/usr/bin:/sbin:/bin",
            "DPkg::Lock::Timeout=120",
            "Dpkg::Options::=--force-confold",
        ]
        command = ["apt-get", verb, "-y", "-qq", *(f"-o{option}" for option in options), *packages]
        if verb == "install":
            command.insert(2, "--no-install-recommends")
        done = subprocess.run(
            command,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode == 0:
        return None
    last = (done.stderr or done.stdout).strip().splitlines()[-2:]
    return " ".join(last) or f"it ended with {done.returncode}"
