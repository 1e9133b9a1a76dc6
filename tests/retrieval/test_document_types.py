"""Files are classified by their name and first bytes."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.retrieval.document_types import DocumentFormat, classify


def zipped(*names: str) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name in names:
            archive.writestr(name, "content")
    return target.getvalue()


def tarred() -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"), io.BytesIO())
    return target.getvalue()


@pytest.mark.parametrize(
    ("name", "doc_type", "form_name"),
    [
        ("src/main.py", "code", "python"),
        ("a.ts", "code", "typescript"),
        ("a.tsx", "code", "tsx"),
        ("a.jsx", "code", "javascript"),
        ("a.h", "code", "c"),
        ("a.hpp", "code", "cpp"),
        ("Program.cs", "code", "c_sharp"),
        ("A.KT", "code", "kotlin"),
        ("build.gradle", "code", "groovy"),
        ("main.tf", "code", "terraform"),
        ("schema.sql", "code", "sql"),
        ("CMakeLists.txt", "code", "cmake"),
        ("Dockerfile", "code", "dockerfile"),
        ("docker/Dockerfile.dev", "code", "dockerfile"),
        ("Makefile", "code", "make"),
        (".bashrc", "code", "bash"),
        ("README", "text", "text"),
        ("LICENSE", "text", "text"),
        ("readme.old", "text", "text"),
        ("notes.txt", "text", "text"),
        ("guide.rst", "text", "rst"),
        ("README.md", "md", "markdown"),
        ("a.csv", "data", "csv"),
        ("a.yml", "data", "yaml"),
        ("a.ipynb", "data", "ipynb"),
        ("index.html", "html", "html"),
        ("letter.eml", "email", "eml"),
        ("no_extension", "text", "text"),
        ("strange.qqq", "text", "text"),
        ("dir.py/plain", "text", "text"),
    ],
)
def test_plain_text_is_what_its_name_says(name: str, doc_type: str, form_name: str) -> None:
    form = classify(name, b"some readable words\n")
    assert (form.doc_type, form.name) == (doc_type, form_name)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", ("image", "png")),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", ("image", "jpeg")),
        (b"GIF89a\x01\0\x01\0\x80\0\0", ("image", "gif")),
        (b"RIFF\x10\0\0\0WEBPVP8 ", ("image", "webp")),
        (b"II*\0\x08\0\0\0", ("image", "tiff")),
        (b"BM\x36\0\x01\0\0\0\0\0\x36", ("image", "bmp")),
        (b"%PDF-1.7\n", ("pdf", "pdf")),
        (b"ID3\x04\0\0\0\0\0\0", ("audio", "mp3")),
        (b"RIFF\x10\0\0\0WAVEfmt ", ("audio", "wav")),
        (b"OggS\0\x02", ("audio", "ogg")),
        (b"fLaC\0\0\0\x22", ("audio", "flac")),
        (b"\0\0\0\x20ftypM4A ", ("audio", "m4a")),
        (b"\x7fELF\x02\x01\x01\0", ("binary_ignored", "binary")),
        (b"MZ\x90\0\x03\0\0\0", ("binary_ignored", "binary")),
        (b"SQLite format 3\0", ("binary_ignored", "binary")),
    ],
)
@pytest.mark.parametrize("name", ["lying.txt", "lying.py", "lying", "lying.html"])
def test_the_first_bytes_win_over_a_name_that_lies(name: str, head: bytes, expected: tuple[str, str]) -> None:
    form = classify(name, head)
    assert (form.doc_type, form.name) == expected


@pytest.mark.parametrize("beginning", ["BM25 is a ranking", "MZ stands for", "GIF89a is a format", "ID3 tags", "PK"])
def test_prose_that_begins_like_a_signature_stays_prose(beginning: str) -> None:
    assert classify("notes.txt", beginning.encode()).doc_type == "text"


def test_zip_files_are_told_apart_by_what_is_in_them() -> None:
    office = "[Content_Types].xml"
    assert classify("a.docx", zipped(office, "word/document.xml")).doc_type == "word"
    assert classify("unnamed", zipped(office, "word/document.xml")).doc_type == "word"
    assert classify("lying.docx", zipped(office, "xl/workbook.xml")).doc_type == "sheet"
    assert classify("a.pptx", zipped(office, "ppt/presentation.xml")).doc_type == "slides"
    assert classify("a.zip", zipped("word/of/the/day.txt")) == DocumentFormat("archive", "zip")
    assert classify("a.bin", zipped("a.txt")) == DocumentFormat("archive", "zip")
    assert classify("lib.jar", zipped("A.class")).doc_type == "binary_ignored"


def test_a_book_is_known_by_its_first_part() -> None:
    assert classify("x", b"PK\x03\x04" + b"\0" * 26 + b"mimetypeapplication/epub+zip").doc_type == "epub"


def test_tar_files_are_known_packed_and_unpacked() -> None:
    assert classify("a.tar", tarred()[:4096]) == DocumentFormat("archive", "tar")
    assert classify("backup", tarred()[:4096]) == DocumentFormat("archive", "tar")
    assert classify("a.tar.gz", gzip.compress(tarred())) == DocumentFormat("archive", "tar.gz")
    assert classify("backup.gz", gzip.compress(tarred())) == DocumentFormat("archive", "tar.gz")
    assert classify("log.gz", gzip.compress(b"one file only")).doc_type == "binary_ignored"


@pytest.mark.parametrize(
    ("first_line", "language"),
    [
        (b"#!/bin/sh", "bash"),
        (b"#!/usr/bin/env python3.11", "python"),
        (b"#!/usr/bin/env -S node --harmony", "javascript"),
        (b"#! /usr/bin/ruby", "ruby"),
        (b"#!/opt/unheard/of", None),
    ],
)
def test_scripts_without_an_extension_are_known_by_their_first_line(first_line: bytes, language: str | None) -> None:
    form = classify("bin/run", first_line + b"\necho\n")
    assert (form.doc_type, form.name) == (("code", language) if language else ("text", "text"))


def test_bytes_that_are_no_text_are_ignored_whatever_the_name() -> None:
    assert classify("a.py", b"\x00\x01\x02\x03 some words").doc_type == "binary_ignored"
    assert classify("a.txt", bytes(range(1, 32)) * 4).doc_type == "binary_ignored"


def test_text_in_two_bytes_a_character_is_text() -> None:
    assert classify("a.txt", "grün".encode("utf-16")).doc_type == "text"
    assert classify("a.py", "import os\n".encode("utf-16-le")).doc_type == "code"


def test_a_pointer_to_a_large_file_is_text_and_a_broken_pdf_stays_a_pdf() -> None:
    assert classify("photo.png", b"version https://git-lfs.github.com/spec/v1\n").doc_type == "text"
    assert classify("report.pdf", b"not a pdf at all").doc_type == "pdf"
    assert classify("report.pdf", b"<!DOCTYPE html><html>").doc_type == "html"


def test_an_office_document_under_a_password_keeps_its_type_so_that_its_failure_is_told() -> None:
    assert classify("a.xlsx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1").doc_type == "sheet"
    assert classify("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1").doc_type == "binary_ignored"


def test_an_empty_file_is_what_its_name_says() -> None:
    assert classify("__init__.py", b"") == DocumentFormat("code", "python")
    assert classify("empty", b"").doc_type == "text"
    assert classify("empty.png", b"").doc_type == "image"


@given(st.text(max_size=40), st.binary(max_size=600))
def test_any_name_and_any_bytes_get_a_type(name: str, head: bytes) -> None:
    form = classify(name, head)
    assert form.doc_type
    assert form.name
