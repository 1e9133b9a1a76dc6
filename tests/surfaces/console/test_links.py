"""One-time links: used once, for five minutes, by nobody else."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from armarium.foundation.security.identity import Principal
from armarium.surfaces.console.links import KeyLinks, OwnerLinks, link
from support.manual_clock import ManualClock

ANN, BEN = Principal("ann", (), "a"), Principal("ben", (), "b")


@pytest.fixture
def links(tmp_path: Path) -> OwnerLinks:
    return OwnerLinks(tmp_path / "state")


def only_file(tmp_path: Path) -> Path:
    (file,) = (tmp_path / "state" / "console-links").iterdir()
    return file


def test_a_link_is_used_once(links: OwnerLinks) -> None:
    code = links.create()
    assert links.redeem(code)
    assert not links.redeem(code)


def test_the_state_directory_has_only_the_hash_and_nobody_else_may_read_it(links: OwnerLinks, tmp_path: Path) -> None:
    code = links.create()
    file = only_file(tmp_path)
    assert code not in file.name
    assert file.read_bytes() == b""
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_link_expires_after_five_minutes_and_is_removed(links: OwnerLinks, tmp_path: Path) -> None:
    code = links.create()
    written = only_file(tmp_path).stat().st_mtime
    os.utime(only_file(tmp_path), (written - 301, written - 301))
    assert not links.redeem(code)
    old = links.create()
    os.utime(only_file(tmp_path), (written - 301, written - 301))
    links.create()
    assert len(list((tmp_path / "state" / "console-links").iterdir())) == 1
    assert not links.redeem(old)


@pytest.mark.parametrize("code", ["", "x", "../secret.token", "\x00", "é" * 1000])
def test_other_codes_are_invalid(links: OwnerLinks, code: str) -> None:
    links.create()
    assert not links.redeem(code)


def test_without_a_state_directory_no_code_is_valid(links: OwnerLinks) -> None:
    assert not links.redeem("x")


def test_what_is_no_file_of_ours_is_no_link(links: OwnerLinks, tmp_path: Path) -> None:
    code = links.create()
    file = only_file(tmp_path)
    file.unlink()
    file.symlink_to(tmp_path)
    assert not links.redeem(code)


def test_of_many_that_use_a_link_at_once_one_gets_in(links: OwnerLinks) -> None:
    code, admitted, gate = links.create(), list[bool](), threading.Barrier(8)

    def use() -> None:
        gate.wait()
        admitted.append(links.redeem(code))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(admitted) == [False] * 7 + [True]


def test_a_link_of_a_key_logs_in_as_that_key_once() -> None:
    clock = ManualClock()
    links = KeyLinks(clock)
    code, expires_at = links.create(ANN, "key-of-ann")
    assert expires_at == clock() + 300
    assert links.redeem(code) == (ANN, "key-of-ann")
    assert links.redeem(code) is None
    late, _ = links.create(ANN, "key-of-ann")
    clock.advance(300)
    assert links.redeem(late) is None


def test_many_links_of_one_caller_push_out_only_their_own() -> None:
    links = KeyLinks()
    of_ben, _ = links.create(BEN, None)
    codes = [links.create(ANN, None)[0] for _ in range(21)]
    assert links.redeem(codes[0]) is None
    assert links.redeem(codes[1]) is not None
    assert links.redeem(of_ben) is not None


def test_the_code_is_in_the_fragment_which_is_never_sent() -> None:
    assert link("http://127.0.0.1:8091", "c") == "http://127.0.0.1:8091/console#in=c"
