"""The directory of an embedded PostgreSQL: data, log, locks, and a private socket."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.foundation.files.state_files import make_private_directory

SOCKET_NAME = ".s.PGSQL.5432"
NOBODY = 65534
# The kernel allows 107 bytes. Commas separate directories and hosts, and other characters need quoting in addresses.
_USABLE_AS_ADDRESS = re.compile(r"/[A-Za-z0-9._/+-]{1,88}")
_LOG_LIMIT_BYTES = 1024 * 1024

LockName = Literal["users", "start", "keeper", "server"]
"""`users` is held in shared mode by every process that uses the server; the supervisor acquires it after the last one.
`start`: by the process that checks whether a supervisor is needed. `keeper`: by the supervisor; contains its process
id. `server`: by every process of PostgreSQL, so that no second server starts while processes of the first remain."""


@dataclass(frozen=True, slots=True)
class Home:
    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def log(self) -> Path:
        return self.root / "postgres.log"

    def lock_path(self, name: LockName) -> Path:
        return self.root / f"{name}.lock"

    def prepare(self) -> None:
        """Create the directory, private to this user. Raises if it cannot be used."""
        try:
            make_private_directory(self.root)
            self.check()
        except OSError as error:
            raise unusable(error) from error

    def check(self) -> None:
        """Raise if the existing directory cannot be used."""
        found = self.root.stat()
        if found.st_uid not in _our_accounts():
            raise DatabaseUnavailable(
                "the directory of the database belongs to another user",
                hint="run as that user, or set store.data_dir to a directory of your own",
            )
        if found.st_mode & 0o022:
            raise DatabaseUnavailable(
                "other users can write to the directory of the database",
                hint="let only its owner write there (chmod 700)",
            )
        if not os.access(self.root, os.R_OK | os.W_OK | os.X_OK):
            raise unusable(PermissionError(errno.EACCES, os.strerror(errno.EACCES)))

    def socket_directory(self) -> Path:
        """The directory of the socket, which is stored and stays the same. Must be called under the start lock."""
        inside = self.root / "run"
        if _USABLE_AS_ADDRESS.fullmatch(str(inside)):
            return _made_private(inside)
        memory = self.root / "socket-directory"
        for remembered in _lines(memory):
            if _is_private(Path(remembered)):
                return Path(remembered)
        digest = hashlib.sha256(f"{os.geteuid()}:{self.root}".encode()).hexdigest()[:16]
        for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):  # noqa: S108 checked to be ours
            short = Path(base or "/", f"armarium-{digest}")
            if base and _USABLE_AS_ADDRESS.fullmatch(str(short)) and os.access(base, os.W_OK):
                made = _made_private(short)
                try:
                    memory.write_text(f"{made}\n")
                except OSError as error:
                    raise unusable(error) from error
                return made
        raise DatabaseUnavailable(
            "no directory is usable for the socket of the database", hint="set store.data_dir to a shorter path"
        )

    def open_socket(self) -> Path | None:
        """The directory of an existing socket, or None. Creates nothing."""
        remembered = [Path(line) for line in _lines(self.root / "socket-directory")]
        for directory in (self.root / "run", *remembered):
            if _is_private(directory) and (directory / SOCKET_NAME).exists():
                return directory
        return None

    def trim_log(self) -> None:
        """Rotate a large log; one old log is stored."""
        with suppress(FileNotFoundError):
            if self.log.stat().st_size > _LOG_LIMIT_BYTES:
                self.log.replace(self.log.with_suffix(".log.1"))

    def open_log(self) -> IO[bytes]:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.fdopen(os.open(self.log, flags, 0o600), "ab")

    def data_version(self) -> int | None:
        """The major version of PostgreSQL that created the data; None if there is no data."""
        said = next(_lines(self.data / "PG_VERSION"), "")
        return int(said) if said.isdecimal() else None


def data_directory(configured: str | None, state_dir: Path) -> Path:
    """The absolute path of the configured `store.data_dir`, or of `postgres` in the state directory."""
    return Path(os.path.abspath(os.path.expanduser(configured) if configured else state_dir / "postgres"))


class Lock(AbstractContextManager["Lock"]):
    """A file lock, held through an open descriptor until the last process that inherited it ends."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __exit__(self, *_: object) -> None:
        """Close the descriptor. The lock stays if a child has inherited it."""
        os.close(self.descriptor)

    def take(self, *, shared: bool = False) -> bool:
        try:
            fcntl.flock(self.descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)


def open_lock(path: Path) -> Lock:
    """The lock in this file, not yet taken."""
    try:
        return Lock(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise unusable(error) from error


def unusable(error: OSError) -> DatabaseUnavailable:
    """Why nothing can be written, in words for the operator."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full()
    return DatabaseUnavailable(
        f"the directory of the database cannot be used: {error.strerror}",
        hint="set store.data_dir to a directory that this user may write to",
        private={"error": str(error)},
    )


def disk_full() -> DatabaseUnavailable:
    return DatabaseUnavailable(
        "the disk of the database is full", hint="make room, or move store.data_dir to another disk"
    )


def _made_private(directory: Path) -> Path:
    try:
        directory.mkdir(exist_ok=True, mode=0o700)
    except OSError as error:
        raise unusable(error) from error
    # In a directory that all can write to, somebody else may have been there first.
    if not _is_private(directory):
        raise DatabaseUnavailable(
            "the directory for the socket of the database is not private to this user",
            hint="remove it, or set store.data_dir to a shorter path",
            private={"directory": str(directory)},
        )
    return directory


def _is_private(directory: Path) -> bool:
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid in _our_accounts() and not found.st_mode & 0o077


def _our_accounts() -> tuple[int, ...]:
    # What root keeps may belong to `nobody`, as whom its server runs where there are no user namespaces.
    return (0, NOBODY) if os.geteuid() == 0 else (os.geteuid(),)


def _lines(path: Path) -> Iterator[str]:
    try:
        yield from path.read_text().splitlines()
    except OSError:
        return
