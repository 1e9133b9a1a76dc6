"""Where a server started here keeps what is its own: data, log, locks, and a socket only its user can reach."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.foundation.files.private import make_private_directory

SOCKET_NAME = ".s.PGSQL.5432"
NOBODY = 65534
_PRIVATE = 0o700
# The kernel allows 107 bytes. Commas separate directories and hosts, and other signs would need quoting in addresses.
_USABLE_AS_ADDRESS = re.compile(r"/[A-Za-z0-9._/+-]{1,88}")
_LOG_LIMIT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Home:
    """The directory of one server."""

    root: Path

    @property
    def data(self) -> Path:
        """What PostgreSQL calls the data directory."""
        return self.root / "data"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.root / "postgres.log"

    @property
    def users_lock(self) -> Path:
        """Held, shared, by every process that uses the server; the supervisor gets it when the last has gone."""
        return self.root / "users.lock"

    @property
    def start_lock(self) -> Path:
        """Held by the process that is looking whether a supervisor is needed."""
        return self.root / "start.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held by the supervisor as long as it lives; its process id is in it."""
        return self.root / "keeper.lock"

    @property
    def server_lock(self) -> Path:
        """Held by every process of PostgreSQL, so that a second server never starts beside the rest of a first."""
        return self.root / "server.lock"

    def prepare(self) -> None:
        """Make the directory, for this user alone; raises when it cannot be used."""
        try:
            make_private_directory(self.root)
            self.check()
        except OSError as error:
            raise unusable(error) from error

    def check(self) -> None:
        """Raise when the directory, which exists, cannot be used."""
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
        """Where the server listens. To be asked under the start lock: the answer is remembered, and stays the same."""
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
            "there is no place for the socket of the database", hint="set store.data_dir to a shorter path"
        )

    def open_socket(self) -> Path | None:
        """Where a server listens, or lately did; None when there is none. Nothing is made."""
        remembered = [Path(line) for line in _lines(self.root / "socket-directory")]
        for directory in (self.root / "run", *remembered):
            if _is_private(directory) and (directory / SOCKET_NAME).exists():
                return directory
        return None

    def trim_log(self) -> None:
        """Begin a new log when the old one is large; one old log is kept."""
        with suppress(FileNotFoundError):
            if self.log.stat().st_size > _LOG_LIMIT_BYTES:
                self.log.replace(self.log.with_suffix(".log.1"))

    def open_log(self) -> IO[bytes]:
        """The log, to write on."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.fdopen(os.open(self.log, flags, 0o600), "ab")

    def data_version(self) -> int | None:
        """The version of PostgreSQL that made the data; None when there is none yet."""
        said = next(_lines(self.data / "PG_VERSION"), "")
        return int(said) if said.isdecimal() else None


def data_directory(configured: str | None, state_dir: Path) -> Path:
    """Where the settings want the database: `store.data_dir`, or in the state directory."""
    return Path(os.path.abspath(os.path.expanduser(configured))) if configured else state_dir / "postgres"


class Lock:
    """A lock on a file, held through an open descriptor: it ends when the last process that has it is gone."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self, *, shared: bool = False) -> bool:
        """Have it from now on, unless others do."""
        try:
            fcntl.flock(self.descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Let others have it."""
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the descriptor, and with it of the lock unless a child has it too."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def open_lock(path: Path) -> Lock:
    """The lock of this name, not yet taken."""
    return Lock(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))


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
    """There is no room for the database."""
    return DatabaseUnavailable(
        "the disk of the database is full", hint="make room, or move store.data_dir to another disk"
    )


def _made_private(directory: Path) -> Path:
    try:
        directory.mkdir(exist_ok=True, mode=_PRIVATE)
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
