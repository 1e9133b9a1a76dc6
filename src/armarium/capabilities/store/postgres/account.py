"""Drops root privileges for PostgreSQL without a dedicated account."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.capabilities.store.postgres.home import NOBODY

_CLONE_NEWUSER = 0x10000000
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TIMEOUT_S = 30.0

_libc = ctypes.CDLL(None, use_errno=True)


def leave_root(own: Iterable[Path], binaries: Path, *, rehearsal: bool = False) -> None:
    """Drop root privileges for the rest of this process, which must not have threads yet.

    In a new user namespace the process is `nobody` with only the rights of the owner of its files, which still belong
    to root outside. Where user namespaces are forbidden, it becomes the real `nobody`, and the `own` paths are given to
    it, except in a rehearsal. Raises if the programs or the `own` paths are not accessible then.
    """
    if os.geteuid() != 0:
        return
    own = list(own)
    if all(path.stat().st_uid == 0 for path in own) and _succeeds_in_a_child(_enter_user_namespace):
        _enter_user_namespace()
    else:
        for path in () if rehearsal else own:
            _give_to_nobody(path)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    reached = all(os.access(path.parent, os.X_OK) for path in own) and os.access(binaries / "postgres", os.X_OK)
    if not reached:
        raise DatabaseUnavailable(
            "PostgreSQL does not run as root, and nobody else here can reach its programs and its directory",
            hint="run the server as an ordinary user, or name a database in store.dsn",
        )


def die_with_parent(parent: int, with_signal: signal.Signals) -> Callable[[], None]:
    """A `preexec_fn` that requests a signal when the parent ends."""

    def ask() -> None:
        if sys.platform == "linux":
            _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(with_signal), *map(ctypes.c_ulong, (0, 0, 0)))
            if os.getppid() != parent:
                os._exit(1)

    return ask


def adopt_orphans() -> None:
    """Become the subreaper: orphaned descendants of this process become its children."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, *map(ctypes.c_ulong, (1, 0, 0, 0)))


def _enter_user_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    unshare = getattr(_libc, "unshare", None)
    if unshare is None or unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "no user namespace")
    # The kernel allows a group mapping only after setgroups is denied.
    for name, content in (
        ("setgroups", "deny"),
        ("uid_map", f"{NOBODY} {user} 1"),
        ("gid_map", f"{NOBODY} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(content)


def _succeeds_in_a_child(attempt: Callable[[], None]) -> bool:
    """Whether the attempt succeeds in a child process, because a partial attempt cannot be undone."""
    child = os.fork()
    if child == 0:
        outcome = 1
        try:
            attempt()
            outcome = 0
        finally:
            os._exit(outcome)
    return os.waitpid(child, 0)[1] == 0


def can_leave_root(own: Iterable[Path], binaries: Path) -> bool:
    """Whether PostgreSQL could run without root privileges. Tried in a separate process."""
    tried = subprocess.run(  # noqa: S603 ourselves
        [sys.executable, "-P", "-m", __name__, binaries, *own],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd="/",
        timeout=_TIMEOUT_S,
        check=False,
    )
    return tried.returncode == 0


def _give_to_nobody(path: Path) -> None:
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    if path.is_dir() and not path.is_symlink():
        for entry in path.iterdir():
            _give_to_nobody(entry)


if __name__ == "__main__":
    leave_root(map(Path, sys.argv[2:]), Path(sys.argv[1]), rehearsal=True)
