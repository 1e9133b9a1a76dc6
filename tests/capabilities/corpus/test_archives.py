"""Valid members of an archive are read, and nothing that an archive contains or declares does harm."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armarium.capabilities.corpus.errors import ExtractFailed, FileTooLarge
from armarium.capabilities.corpus.files.archives import (
    ArchiveLimits,
    Member,
    SkippedMember,
    is_archive,
    members,
)

LIMITS = ArchiveLimits()
Files = dict[str, bytes]


def zipped(files: Files, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files: Files, format: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 1_700_000_000
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


PACKERS: dict[str, Callable[[Files], bytes]] = {
    "zip": zipped,
    "stored zip": lambda files: zipped(files, zipfile.ZIP_STORED),
    "tar": tarred,
    "gnu tar": lambda files: tarred(files, tarfile.GNU_FORMAT),
    "ustar": lambda files: tarred(files, tarfile.USTAR_FORMAT),
    "tar.gz": lambda files: gzip.compress(tarred(files)),
    "tar.bz2": lambda files: bz2.compress(tarred(files)),
    "tar.xz": lambda files: lzma.compress(tarred(files)),
}
EVERY_FORMAT = pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS.keys())


def read(source: bytes, limits: ArchiveLimits = LIMITS, *, deep: bool = True) -> tuple[Files, dict[str, str]]:
    """Contents by path, and codes of what was skipped by shown path."""
    contents: Files = {}
    skipped: dict[str, str] = {}
    for found in members(source, limits, deep=deep):
        if isinstance(found, Member):
            assert found.path not in contents
            assert found.size_bytes == len(found.data)
            contents[found.path] = found.data
        else:
            skipped[found.shown_path] = found.code
    return contents, skipped


def read_until_it_fails(source: bytes, limits: ArchiveLimits = LIMITS) -> list[Member]:
    found: list[Member | SkippedMember] = []
    with pytest.raises(ExtractFailed) as raised:
        found.extend(members(source, limits))
    assert raised.value.code == "EXTRACT_FAILED"
    return [each for each in found if isinstance(each, Member)]


def total(found: list[Member]) -> int:
    return sum(len(each.data) for each in found)


@EVERY_FORMAT
def test_members_come_with_path_and_content(pack: Callable[[Files], bytes]) -> None:
    files = {
        "a.md": b"# a",
        "deep/down/b.txt": b"b" * 2000,
        "empty": b"",
        "é/ü – x.md": "é".encode(),
        "c" * 90 + "/d": b"d",
    }
    assert read(pack(files)) == (files, {})


def test_a_member_has_the_time_it_was_written() -> None:
    [found] = members(tarred({"a": b"a"}), LIMITS)
    assert isinstance(found, Member)
    assert found.mtime_unix == 1_700_000_000


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_in_a_tar_are_whole(format: int) -> None:
    files = {"n" * 200 + "/" + "é" * 60 + ".md": b"x", "short": b"y"}
    assert read(tarred(files, format)) == (files, {})


def test_directories_are_passed_over_and_names_cleaned() -> None:
    assert read(tarred({"./a//b.md": b"x"})) == ({"a/b.md": b"x"}, {})
    assert read(zipped({"folder/": b"", "folder/./x": b"1"})) == ({"folder/x": b"1"}, {})


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("../evil.md", "PATH_OUTSIDE_ROOT"),
        ("a/../../evil.md", "PATH_OUTSIDE_ROOT"),
        ("a/..", "PATH_OUTSIDE_ROOT"),
        ("/etc/passwd", "PATH_OUTSIDE_ROOT"),
        ("..\\evil.md", "PATH_OUTSIDE_ROOT"),
        ("C:\\evil.md", "PATH_OUTSIDE_ROOT"),
        ("c:evil.md", "PATH_OUTSIDE_ROOT"),
        ("new\nline.md", "EXTRACT_FAILED"),
        ("n" * 5000, "EXTRACT_FAILED"),
        ("inner.zip!/fake.md", "EXTRACT_FAILED"),
    ],
)
def test_an_unsafe_name_is_skipped_and_told(pack: Callable[[Files], bytes], name: str, code: str) -> None:
    contents, skipped = read(pack({name: b"x", "good.md": b"good"}))
    assert contents == {"good.md": b"good"}
    assert list(skipped.values()) == [code]
    assert all(shown.isprintable() for shown in skipped)


def test_a_name_with_a_nul_or_without_utf8_is_skipped() -> None:
    nul = zipped({"aXb.md": b"x", "good": b"1"}).replace(b"aXb.md", b"a\0b.md")
    assert read(nul) == ({"good": b"1"}, {r"a\x00b.md": "EXTRACT_FAILED"})
    info = tarfile.TarInfo("bad\udcff.md")
    raw = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape") + bytes(1024)
    assert read(raw) == ({}, {r"bad\xff.md": "EXTRACT_FAILED"})


def test_links_devices_and_sparse_files_are_skipped() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE):
            info = tarfile.TarInfo(f"kind-{kind.decode()}")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        good = tarfile.TarInfo("good")
        good.size = 4
        archive.addfile(good, io.BytesIO(b"good"))
    contents, skipped = read(buffer.getvalue())
    assert contents == {"good": b"good"}
    assert set(skipped.values()) == {"EXTRACT_FAILED"}
    assert len(skipped) == 5


def test_a_zipped_link_is_skipped() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    assert read(buffer.getvalue()) == ({}, {"link": "EXTRACT_FAILED"})


def test_of_members_with_the_same_path_the_first_counts() -> None:
    twice = zipped({"a.md": b"first", "b.md": b"other"}).replace(b"b.md", b"a.md")
    assert read(twice) == ({"a.md": b"first"}, {"a.md (again)": "EXTRACT_FAILED"})


def test_an_encrypted_member_is_skipped() -> None:
    data = bytearray(zipped({"secret.md": b"x", "plain.md": b"y"}))
    first_entry = data.index(b"PK\x01\x02")
    data[first_entry + 8] |= 1
    assert read(bytes(data)) == ({"plain.md": b"y"}, {"secret.md": "EXTRACT_FAILED"})


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_packed_in_an_unusual_way_is_skipped(method: int) -> None:
    assert read(zipped({"a": b"a"}, method)) == ({}, {"a": "EXTRACT_FAILED"})


@pytest.mark.parametrize("claimed", [3, 900])
def test_a_member_that_lies_about_its_size_is_skipped(claimed: int) -> None:
    data = bytearray(zipped({"liar.md": b"x" * 500, "honest.md": b"y"}))
    struct.pack_into("<L", data, data.index(b"PK\x01\x02") + 24, claimed)
    assert read(bytes(data)) == ({"honest.md": b"y"}, {"liar.md": "EXTRACT_FAILED"})


def test_a_member_with_a_wrong_checksum_is_skipped() -> None:
    data = zipped({"a.md": b"content", "b.md": b"fine"}, zipfile.ZIP_STORED).replace(b"content", b"c0ntent")
    assert read(data) == ({"b.md": b"fine"}, {"a.md": "EXTRACT_FAILED"})


@EVERY_FORMAT
def test_a_member_over_the_limit_is_skipped_unread(pack: Callable[[Files], bytes]) -> None:
    limits = ArchiveLimits(max_member_bytes=100)
    assert read(pack({"big": b"x" * 101, "small": b"x" * 100}), limits) == (
        {"small": b"x" * 100},
        {"big": "FILE_TOO_LARGE"},
    )


@EVERY_FORMAT
def test_an_archive_of_too_many_members_stops_at_the_limit(pack: Callable[[Files], bytes]) -> None:
    found = read_until_it_fails(pack({f"m{number}": b"x" for number in range(20)}), ArchiveLimits(max_members=10))
    assert [each.path for each in found] == [f"m{number}" for number in range(10)]


def test_a_zip_whose_directory_alone_is_huge_is_not_even_listed() -> None:
    source = zipped({f"{'n' * 200}{number}": b"" for number in range(100)})
    with pytest.raises(ExtractFailed):
        next(members(source, ArchiveLimits(max_members=10)))


@EVERY_FORMAT
def test_the_members_together_stay_within_the_total(pack: Callable[[Files], bytes]) -> None:
    source = pack({f"m{number}": random.Random(number).randbytes(10_000) for number in range(10)})
    assert 3 <= len(read_until_it_fails(source, ArchiveLimits(max_total_bytes=60_000))) <= 6


@pytest.mark.parametrize("name", ["zip", "tar.gz", "tar.bz2", "tar.xz"])
def test_a_bomb_is_stopped_by_what_it_unpacks_to_for_its_size(name: str) -> None:
    bomb = PACKERS[name]({f"zeros{number}": bytes(2_000_000) for number in range(20)})
    limits = ArchiveLimits(ratio_free_bytes=5_000_000)
    allowed = max(limits.ratio_free_bytes, limits.max_ratio * len(bomb))
    assert allowed < 40_000_000
    assert total(read_until_it_fails(bomb, limits)) <= allowed


def test_a_bomb_inside_an_archive_pays_from_the_same_budget() -> None:
    bomb = zipped({f"z{number}": bytes(1_000_000) for number in range(10)})
    source = zipped({f"{number}.zip": bomb for number in range(20)}, zipfile.ZIP_STORED)
    assert 0 < total(read_until_it_fails(source, replace(LIMITS, max_total_bytes=15_000_000))) <= 15_000_000


def test_overlapping_members_pay_each_time() -> None:
    data = zipped({"a": bytes(100_000)})
    entry_at, end_at = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    entries = b"".join(data[entry_at : end_at - 1] + bytes([number]) for number in b"abcdefgh")
    local = data[:entry_at]
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 8, 8, len(entries), len(local), 0)
    assert total(read_until_it_fails(local + entries + end, ArchiveLimits(max_total_bytes=350_000))) <= 350_000


def nest(depth: int) -> bytes:
    content = zipped({"core.md": b"core"})
    for level in range(depth - 1):
        pack = gzip.compress if level % 2 else bytes
        name = "inner.zip" if level == 0 else "inner.tar.gz" if level % 2 == 0 else "inner.tar"
        content = pack(tarred({name: content, f"level{level}.md": b"x"}))
    return content


def test_deep_mode_opens_archives_in_archives_down_to_the_limit() -> None:
    contents, skipped = read(nest(3))
    assert contents["inner.tar!/inner.zip!/core.md"] == b"core"
    assert skipped == {}
    contents, skipped = read(nest(4))
    assert sorted(contents) == ["inner.tar.gz!/inner.tar!/level0.md", "inner.tar.gz!/level1.md", "level2.md"]
    assert skipped == {"inner.tar.gz!/inner.tar!/inner.zip": "EXTRACT_FAILED"}


def test_shallow_mode_leaves_archives_in_archives_closed_and_off_opens_none() -> None:
    source = zipped({"a.md": b"a", "inner.zip": zipped({"b.md": b"b"})})
    assert read(source, deep=False) == ({"a.md": b"a"}, {"inner.zip": "EXTRACT_FAILED"})


def test_a_damaged_nested_archive_is_skipped_and_the_rest_goes_on() -> None:
    source = zipped({"broken.zip": b"PK\x03\x04 nothing", "after.md": b"x"})
    assert read(source) == ({"after.md": b"x"}, {"broken.zip": "EXTRACT_FAILED"})


@EVERY_FORMAT
def test_a_truncated_archive_fails_and_what_came_before_is_good(pack: Callable[[Files], bytes]) -> None:
    files = {f"m{number}": random.Random(number).randbytes(300_000) for number in range(6)}
    whole = pack(files)
    found = read_until_it_fails(whole[: len(whole) * 2 // 3])
    assert all(files[each.path] == each.data for each in found)
    if pack not in (PACKERS["zip"], PACKERS["stored zip"]):  # A zip has its directory at the end.
        assert found


@pytest.mark.parametrize("source", [b"", b"PK", b"PK\x03\x04", b"\x1f\x8b", b"BZh9", b"\xfd7zXZ\0", b"hello " * 200])
def test_what_is_no_archive_fails_or_is_empty(source: bytes) -> None:
    try:
        assert list(members(source, LIMITS)) == []
        assert source == b""
    except ExtractFailed:
        assert source != b""


def tar_header(name: bytes, size: bytes, kind: bytes) -> bytes:
    header = bytearray(512)
    header[: len(name)] = name
    header[124 : 124 + len(size)] = size
    header[156:157] = kind
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


@pytest.mark.parametrize(
    "source",
    [
        tar_header(b"x", b"77777777777\0", b"x") + bytes(512),
        tar_header(b"L", b"00007777777\0", b"L") + bytes(2_100_000),
        tar_header(b"a", b"\xff" * 12, b"0") + bytes(512),
        tar_header(b"a", b"\x80" + b"\x7f" * 11, b"5") + tar_header(b"b", b"\x80" + b"\x7f" * 11, b"0"),
        tar_header(b"a", b"nonsense\0", b"0"),
        tar_header(b"p", b"00000000024\0", b"x") + b"9999999 path=../evil".ljust(512, b"\0"),
        tar_header(b"p", b"00000000020\0", b"x") + b"-5 path=abcdefg\n".ljust(512, b"\0"),
        tar_header(b"s", b"00000000000\0", b"S")[:482] + b"\1" + bytes(29),
    ],
)
def test_a_header_that_lies_fails(source: bytes) -> None:
    with pytest.raises(ExtractFailed):
        list(members(source, ArchiveLimits(max_member_bytes=1 << 60)))


def test_hostile_headers_by_the_thousand_end() -> None:
    digits = tar_header(b"p", b"00000177777\0", b"x") + (b"1" * 65535).ljust(65536, b"\0")
    with pytest.raises(ExtractFailed):
        list(members(gzip.compress(digits * 200), LIMITS))


def test_one_member_is_found_by_its_path() -> None:
    source = zipped({"a.md": b"a", "inner.zip": zipped({"b.md": b"b"}), "big": b"x" * 200})

    def content(path: str) -> list[bytes | str]:
        on_the_way = lambda each: each == path or (each.endswith("!/") and path.startswith(each))  # noqa: E731
        found = members(source, ArchiveLimits(max_member_bytes=180), wanted=on_the_way)
        return [each.data if isinstance(each, Member) else each.code for each in found]

    assert content("a.md") == [b"a"]
    assert content("inner.zip!/b.md") == [b"b"]
    for missing in ("b.md", "inner.zip!/a.md", "inner.zip", "../a.md", ""):
        assert content(missing) == []
    assert content("big") == [FileTooLarge.code]


def test_what_is_not_wanted_is_neither_read_nor_told() -> None:
    inner = zipped({"b.md": b"b"})
    asked: list[str] = []

    def wanted(path: str) -> bool:
        asked.append(path)
        return path.endswith(".md")

    found = list(members(zipped({"a.md": b"a", "inner.zip": inner, ".env": b"x"}), LIMITS, wanted=wanted))
    assert [each.path for each in found if isinstance(each, Member)] == ["a.md"]
    assert len(found) == 1
    assert asked == ["a.md", "inner.zip!/", ".env"]


def test_archives_are_known_by_name_and_documents_are_not_archives() -> None:
    assert all(map(is_archive, ["a.zip", "A.ZIP", "b.tar", "c.tar.gz", "d.tgz"]))
    assert not any(map(is_archive, ["a.docx", "b.epub", "c.jar", "d.gz", "zip"]))


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(PACKERS)),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=12),
    st.integers(0, 6000),
)
def test_a_damaged_archive_never_does_worse_than_fail(name: str, changes: list[tuple[int, int]], cut: int) -> None:
    files = {"a.md": b"alpha" * 50, "d/b.md": b"beta", "inner.zip": zipped({"c.md": b"gamma"}), "é.md": b"x" * 700}
    data = bytearray(PACKERS[name](files))
    for position, value in changes:
        data[position % len(data)] = value
    limits = ArchiveLimits(max_members=50, max_total_bytes=1_000_000)
    unpacked = 0
    try:
        for found in members(bytes(data[: len(data) - cut % len(data)]), limits):
            unpacked += found.size_bytes if isinstance(found, Member) else 0
            if isinstance(found, Member):
                assert ".." not in found.path.split("/")
                assert not found.path.startswith("/")
    except ExtractFailed:
        pass
    assert unpacked <= 1_000_000


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=3000), st.sampled_from([b"", b"PK\x03\x04", b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\0"]))
def test_any_bytes_are_read_or_refused(tail: bytes, magic: bytes) -> None:
    with suppress(ExtractFailed):
        assert all(isinstance(each, Member | SkippedMember) for each in members(magic + tail, LIMITS))
