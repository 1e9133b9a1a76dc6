"""Encodings are detected and line ends normalised; decoding never fails."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.retrieval.encodings import clean, decode

SAMPLES = {
    "cp1252": "Größe der Äpfel, naïve façade für alle Fälle – “ja” 5 €\n",
    "latin-1": "x = 1  # von Müller\n",
    "iso8859_2": "Zażółć gęślą jaźń, příliš žluťoučký kůň\n",
    "cp1250": "Zażółć gęślą jaźń, příliš žluťoučký kůň\n",
    "cp1251": "Это русский текст для проверки кодировки.\n",
    "koi8_r": "Это русский текст для проверки кодировки.\n",
    "cp1253": "Αυτό είναι ένα ελληνικό κείμενο για δοκιμή\n",
    "shift_jis": "これは日本語の文章です。検索エンジンをテストします。\n",
    "euc_jp": "これは日本語の文章です。検索エンジンをテストします。\n",
    "iso2022_jp": "これは日本語の文章です。\n",
    "gb18030": "这是一个中文文件，用于测试编码检测。\n",
    "big5": "這是一個繁體中文檔案，用於測試編碼檢測。\n",
    "euc_kr": "한국어 문서입니다. 인코딩을 검사합니다.\n",
    "utf-8-sig": "Grüße\n",
    "utf-16": "Grüße 日本\n",
    "utf-16-le": "plain words without a mark\n",
    "utf-16-be": "plain words without a mark\n",
    "utf-32": "Grüße\n",
    "utf-32-le": "plain words without a mark\n",
    "utf-32-be": "plain words without a mark\n",
}


@pytest.mark.parametrize("encoding", SAMPLES)
def test_the_encoding_of_a_text_is_found_out(encoding: str) -> None:
    text = SAMPLES[encoding] * 3
    assert decode(text.encode(encoding)) == text


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("latin-1", "café"),
        ("latin-1", "<p>Größe</p>"),
        ("cp1252", "it’s “quoted” – once"),
        ("shift_jis", "x = 1  # テスト"),
        ("cp1251", "x = 1  # проверка кодировки"),
        ("gb18030", "int a;  // 这是一个变量的说明"),
    ],
)
def test_even_a_few_words_are_enough(encoding: str, text: str) -> None:
    assert decode(text.encode(encoding)) == text


def test_a_first_letter_above_ascii_far_into_the_file_is_still_read_right() -> None:
    text = "plain line\n" * 20_000 + "le café\n"
    assert decode(text.encode("latin-1")) == text


def test_a_few_broken_bytes_do_not_spoil_the_rest_of_utf8() -> None:
    text = decode("Grüße aus Köln, schön ".encode() * 10 + b"\xff!")
    assert text.startswith("Grüße aus Köln")
    assert text.endswith("\ufffd!")


def test_every_kind_of_line_end_becomes_one_and_others_stay() -> None:
    assert decode(b"a\r\nb\rc\nd\x0ce\x0bf\r\r\n") == "a\nb\nc\nd\x0ce\x0bf\n\n"


def test_zero_bytes_and_half_surrogates_do_not_get_through() -> None:
    assert decode(b"a\0b") == "a\ufffdb"
    assert clean("a\ud800b") == "a\ufffdb"


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\r\x1b\ufeff")))
def test_utf8_comes_back_as_it_was(text: str) -> None:
    assert decode(text.encode()) == text


@given(st.binary(max_size=2000))
def test_any_bytes_become_text_that_can_be_stored(data: bytes) -> None:
    text = decode(data)
    text.encode("utf-8")
    assert "\r" not in text
    assert "\0" not in text
