"""SQLite files: one writer and many readers, atomic transactions, and a fault for every error of the environment."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from armarium.foundation.sqlite import (
    Connections,
    Fault,
    connect,
    create_file,
    fault_of,
    file_identity,
    is_disk_full,
    is_empty,
    is_intact,
    schema_version,
    transaction,
    translated_errors,
    use_write_ahead_log,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with one table."""
    path = tmp_path / "data.sqlite"
    create_file(path)
    with closing(connect(path)) as connection:
        use_write_ahead_log(connection, synchronous="NORMAL")
        connection.execute("CREATE TABLE numbers (number INTEGER)")
    return path


@pytest.fixture
def connections(file: Path) -> Generator[Connections]:
    """Open connections to it."""
    opened = Connections(lambda: connect(file, "ro"), lambda: connect(file))
    opened.open()
    yield opened
    opened.close()


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [row[0] for row in connection.execute("SELECT number FROM numbers ORDER BY number")]


def coded(code: int, message: str = "failed") -> sqlite3.Error:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error


# Errors


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (sqlite3.SQLITE_BUSY, Fault.BUSY),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, Fault.BUSY),
        (sqlite3.SQLITE_FULL, Fault.FULL),
        (sqlite3.SQLITE_READONLY_DIRECTORY, Fault.REFUSED),
        (sqlite3.SQLITE_CANTOPEN, Fault.REFUSED),
        (sqlite3.SQLITE_PERM, Fault.REFUSED),
        (sqlite3.SQLITE_IOERR, Fault.WRITE_FAILED),
        (sqlite3.SQLITE_IOERR_FSYNC, Fault.WRITE_FAILED),
        (sqlite3.SQLITE_IOERR_READ, Fault.READ_FAILED),
        (sqlite3.SQLITE_IOERR_SHORT_READ, Fault.READ_FAILED),
        (sqlite3.SQLITE_CORRUPT_INDEX, Fault.DAMAGED),
        (sqlite3.SQLITE_NOTADB, Fault.DAMAGED),
        (sqlite3.SQLITE_ERROR, None),
        (sqlite3.SQLITE_CONSTRAINT, None),
    ],
)
def test_every_error_of_the_environment_has_a_fault_and_our_own_mistakes_have_none(
    code: int, fault: Fault | None
) -> None:
    assert fault_of(coded(code)) is fault


def test_a_stored_text_that_is_not_utf_8_has_a_fault(file: Path) -> None:
    with closing(connect(file)) as connection, pytest.raises(sqlite3.OperationalError) as caught:
        connection.execute("SELECT CAST(x'ff' AS TEXT)").fetchall()
    assert fault_of(caught.value) is Fault.NOT_TEXT


def test_an_error_without_a_code_is_our_own_mistake() -> None:
    assert fault_of(sqlite3.ProgrammingError("Cannot operate on a closed database.")) is None


def test_real_faults_are_recognised(file: Path, tmp_path: Path) -> None:
    (tmp_path / "rubbish").write_bytes(b"not a database " * 100)
    with closing(connect(tmp_path / "rubbish")) as connection, pytest.raises(sqlite3.Error) as damaged:
        connection.execute("SELECT * FROM numbers")
    with closing(connect(file, "ro")) as connection, pytest.raises(sqlite3.Error) as read_only:
        connection.execute("INSERT INTO numbers VALUES (1)")
    with closing(connect(file)) as connection:
        connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(sqlite3.Error) as full:
            connection.execute("CREATE TABLE more (text)")
    with pytest.raises(sqlite3.Error) as missing:
        connect(tmp_path / "missing")
    faults = [fault_of(each.value) for each in (damaged, read_only, full, missing)]
    assert faults == [Fault.DAMAGED, Fault.REFUSED, Fault.FULL, Fault.REFUSED]


def test_an_error_is_translated_and_keeps_its_cause() -> None:
    error = coded(sqlite3.SQLITE_FULL)
    with pytest.raises(KeyError) as caught, translated_errors(lambda error: KeyError("translated")):
        raise error
    assert caught.value.__cause__ is error


def test_an_error_without_a_translation_is_raised_itself() -> None:
    error = coded(sqlite3.SQLITE_ERROR)
    with pytest.raises(sqlite3.OperationalError) as caught, translated_errors(lambda error: None):
        raise error
    assert caught.value is error


def test_a_disk_that_cannot_be_examined_is_not_full(tmp_path: Path) -> None:
    assert not is_disk_full(tmp_path)
    assert not is_disk_full(tmp_path / "missing")
    assert is_disk_full(Path("/proc/self"))


# Files


def test_a_new_file_belongs_to_its_owner_alone_and_so_does_its_log(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    create_file(path)
    with closing(connect(path)) as connection:
        assert is_empty(connection)
        use_write_ahead_log(connection, synchronous="FULL")
        connection.execute("CREATE TABLE t (a)")
        assert not is_empty(connection)
        assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}


def test_a_missing_file_is_created_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "missing.sqlite"
    for mode in ("rw", "ro", "immutable"):
        with pytest.raises(sqlite3.OperationalError):
            connect(path, mode).execute("SELECT * FROM sqlite_master")
    assert not path.exists()
    connect(path, "rwc").close()
    assert path.exists()


def test_a_name_with_special_characters_is_a_name(tmp_path: Path) -> None:
    path = tmp_path / "a?mode=ro#b%20c.sqlite"
    create_file(path)
    with closing(connect(path)) as connection:
        connection.execute("CREATE TABLE t (a)")
    assert path.stat().st_size


def test_an_immutable_file_is_read_without_files_beside_it(file: Path) -> None:
    before = sorted(file.parent.iterdir())
    with closing(connect(file, "immutable")) as connection:
        assert numbers(connection) == []
        assert sorted(file.parent.iterdir()) == before


def test_the_schema_version_is_what_was_recorded(file: Path) -> None:
    with closing(connect(file)) as connection:
        assert schema_version(connection) == 0
        connection.execute("PRAGMA user_version = 7")
        assert schema_version(connection) == 7


def test_damage_of_the_structure_is_found(file: Path) -> None:
    with closing(connect(file)) as connection:
        connection.executemany("INSERT INTO numbers VALUES (?)", ((number,) for number in range(5000)))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert is_intact(connection)
    content = bytearray(file.read_bytes())
    content[4096 * 3 : 4096 * 4] = bytes(4096)
    file.write_bytes(content)
    with closing(connect(file)) as connection:
        assert not is_intact(connection)


def test_a_replaced_file_has_another_identity(file: Path) -> None:
    before = file_identity(file)
    file.rename(file.with_name("old"))
    create_file(file)
    assert file_identity(file) != before
    assert file_identity(file.with_name("old")) == before


# Transactions


def test_a_transaction_is_committed_completely_or_not_at_all(file: Path) -> None:
    with closing(connect(file)) as connection, closing(connect(file, "ro")) as other:
        with transaction(connection):
            connection.execute("INSERT INTO numbers VALUES (1)")
            assert numbers(other) == []
        assert numbers(other) == [1]
        with pytest.raises(sqlite3.OperationalError), transaction(connection):
            connection.executemany(
                "INSERT INTO numbers VALUES (CASE ? WHEN 3 THEN abs(-9223372036854775808) ELSE 2 END)", [(2,), (3,)]
            )
        assert numbers(other) == [1]
        with transaction(connection):
            connection.execute("INSERT INTO numbers VALUES (3)")
        assert numbers(other) == [1, 3]


def test_errors_of_beginning_are_translated_and_those_of_the_block_are_not(file: Path) -> None:
    def errors() -> AbstractContextManager[None]:
        return translated_errors(lambda error: KeyError(str(fault_of(error))))

    with closing(connect(file, busy_timeout_s=0.01)) as connection, closing(connect(file)) as other:
        with transaction(other), pytest.raises(KeyError, match="BUSY"), transaction(connection, errors):
            pass
        with pytest.raises(sqlite3.OperationalError), transaction(connection, errors):
            connection.execute("SELECT * FROM missing")


# Connections


def test_readers_are_reused_and_see_what_is_committed(connections: Connections) -> None:
    with connections.reader() as first:
        assert numbers(first) == []
    with transaction(connections.writer):
        connections.writer.execute("INSERT INTO numbers VALUES (1)")
    with connections.reader() as second, connections.reader() as third:
        assert second is first
        assert third is not first
        assert numbers(second) == numbers(third) == [1]


def test_a_reader_is_returned_without_its_snapshot(connections: Connections) -> None:
    with connections.reader() as reader:
        reader.execute("BEGIN")
        assert numbers(reader) == []
        with transaction(connections.writer):
            connections.writer.execute("INSERT INTO numbers VALUES (1)")
        assert numbers(reader) == []
    with connections.reader() as again:
        assert again is reader
        assert numbers(again) == [1]


def test_a_reader_in_use_survives_closing_and_is_closed_afterwards(connections: Connections) -> None:
    with connections.reader() as reader:
        connections.close()
        assert numbers(reader) == []
    with pytest.raises(sqlite3.ProgrammingError):
        reader.execute("SELECT 1")


def test_after_reopening_readers_read_the_new_file(connections: Connections, file: Path) -> None:
    with transaction(connections.writer):
        connections.writer.execute("INSERT INTO numbers VALUES (1)")
    with connections.reader() as old:
        old.execute("BEGIN")
        assert numbers(old) == [1]
        for suffix in ("", "-wal", "-shm"):
            Path(f"{file}{suffix}").rename(file.with_name(f"old.sqlite{suffix}"))
        create_file(file)
        with closing(connect(file)) as connection:
            connection.execute("CREATE TABLE numbers (number INTEGER)")
        connections.open()
        assert numbers(old) == [1]
        with connections.reader() as new:
            assert numbers(new) == []
    with connections.reader() as reader:
        assert reader is not old
        assert numbers(reader) == []


def test_without_a_writer_the_file_is_checked_when_it_is_opened(tmp_path: Path, file: Path) -> None:
    reading = Connections(lambda: connect(file, "ro"), None)
    reading.open()
    with reading.reader() as reader:
        assert numbers(reader) == []
    with pytest.raises(AssertionError):
        _ = reading.writer
    reading.close()
    with pytest.raises(sqlite3.OperationalError):
        Connections(lambda: connect(tmp_path / "missing", "ro"), None).open()


def test_threads_that_write_take_turns_and_lose_nothing(connections: Connections) -> None:
    def write(start: int) -> None:
        for number in range(start, start + 50):
            with connections.write_lock, transaction(connections.writer):
                connections.writer.execute("INSERT INTO numbers VALUES (?)", (number,))
            with connections.reader() as reader:
                assert number in numbers(reader)

    threads = [threading.Thread(target=write, args=(start,)) for start in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with connections.reader() as reader:
        assert numbers(reader) == [*range(50), *range(100, 150), *range(200, 250)]
