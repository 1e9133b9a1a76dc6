"""Code is split at definitions, in every language with a grammar, and each chunk has their path as context."""

from __future__ import annotations

import argparse
import inspect
import random
import time
import typing
from pathlib import Path
from typing import Any

import pytest

from armarium.retrieval.chunker import definitions as definitions_module
from armarium.retrieval.chunker.definitions import definitions
from armarium.retrieval.chunker.document import chunk_document
from armarium.retrieval.chunks import Chunk, ChunkLimits, ExtractedText
from armarium.retrieval.spans import LineSpan

SMALL = ChunkLimits(max_chars=90, overlap_chars=0, min_chars=10)

Found = list[tuple[int, int, str]]
"""First line, last line, context."""

SNIPPETS: dict[str, tuple[str, Found]] = {
    "python": (
        '''\
import os

LIMIT = 3

@cached
# why
def load(path):
    """Read."""
    return open(path).read()

class UserStore:
    """Users."""

    def rename(self, old, new):
        self.names[new] = self.names.pop(old)

    async def drop(self, name):
        del self.names[name]
''',
        [
            (1, 3, ""),
            (5, 9, "def load"),
            (11, 12, "class UserStore"),
            (14, 15, "class UserStore > def rename"),
            (17, 18, "class UserStore > def drop"),
        ],
    ),
    "javascript": (
        """\
import fs from "fs";

// Reads.
export function load(path) {
  return fs.readFileSync(path);
}

export default class UserStore extends Base {
  rename(a, b) {
    this.names[b] = this.names[a];
  }
}

const table = {
  one: 1,
  two: 2,
};
""",
        [
            (1, 1, ""),
            (3, 6, "function load"),
            (8, 8, "class UserStore"),
            (9, 12, "class UserStore > method rename"),
            (14, 17, "const table"),
        ],
    ),
    "typescript": (
        """\
export interface User {
  name: string;
  age: number;
}

export type Id = string | number;

enum Color {
  Red,
}

namespace Shapes {
  export const a = 1;
}

@Injectable()
export abstract class Store<T> {
  rename(a: string): void {
    this.x = a;
  }
}
""",
        [
            (1, 4, "interface User"),
            (6, 6, "type Id"),
            (8, 10, "enum Color"),
            (12, 14, "namespace Shapes"),
            (16, 17, "class Store"),
            (18, 21, "class Store > method rename"),
        ],
    ),
    "tsx": (
        """\
export const Button = (props: Props) => {
  return <b>{props.label}</b>;
};

function App() {
  return <Button label="x" />;
}
""",
        [
            (1, 3, "const Button"),
            (5, 7, "function App"),
        ],
    ),
    "go": (
        """\
package main

import "fmt"

type Store struct {
	names []string
}

// Rename renames.
func (s *Store) Rename(a, b string) {
	fmt.Println(a, b)
}

func main() {
	fmt.Println("x")
}

const (
	A = 1
	B = 2
)
""",
        [
            (1, 3, ""),
            (5, 7, "type Store"),
            (9, 12, "func Store.Rename"),
            (14, 16, "func main"),
            (18, 21, "const A"),
        ],
    ),
    "rust": (
        """\
use std::fmt;

#[derive(Debug)]
pub struct Store {
    names: Vec<String>,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        Ok(())
    }
}

pub enum Kind {
    A,
}

pub trait Shape {
    fn area(&self) -> f64;
}

macro_rules! one {
    () => { 1 };
}
""",
        [
            (1, 1, ""),
            (3, 6, "struct Store"),
            (8, 8, "impl fmt::Display for Store"),
            (9, 12, "impl fmt::Display for Store > fn fmt"),
            (14, 16, "enum Kind"),
            (18, 20, "trait Shape"),
            (22, 24, "macro_rules! one"),
        ],
    ),
    "java": (
        """\
package a.b;

import java.util.List;

/** Users. */
public class UserStore {
    private int x;

    public UserStore() {
        this.x = 1;
    }

    @Override
    public void rename(String a) {
        this.x = 2;
    }
}

interface Shape {
    double area();
}
""",
        [
            (1, 3, ""),
            (5, 7, "class UserStore"),
            (9, 11, "class UserStore > constructor UserStore"),
            (13, 17, "class UserStore > method rename"),
            (19, 21, "interface Shape"),
        ],
    ),
    "c": (
        """\
#include <stdio.h>

struct point {
    int x;
};

typedef struct {
    int a;
} pair_t;

static char *name_of(const struct point *p)
{
    return "x";
}

enum color {
    RED,
};
""",
        [
            (1, 1, ""),
            (3, 5, "struct point"),
            (7, 9, "typedef pair_t"),
            (11, 14, "function name_of"),
            (16, 18, "enum color"),
        ],
    ),
    "cpp": (
        """\
#include <vector>

namespace app {

template <typename T>
class Store {
public:
    void rename(int a) {
        x = a;
    }
private:
    int x;
};

int Store<int>::count() const {
    return 1;
}

}
""",
        [
            (1, 1, ""),
            (3, 3, "namespace app"),
            (5, 6, "namespace app > class Store"),
            (7, 10, "namespace app > class Store > function rename"),
            (11, 13, "namespace app > class Store"),
            (15, 19, "namespace app > function Store<int>::count"),
        ],
    ),
    "c_sharp": (
        """\
using System;

namespace App {
    public class UserStore {
        public string Name { get; set; }

        public void Rename(string a) {
            Name = a;
        }
    }

    public interface IShape {
        double Area();
    }
}
""",
        [
            (1, 1, ""),
            (3, 3, "namespace App"),
            (4, 4, "namespace App > class UserStore"),
            (5, 5, "namespace App > class UserStore > property Name"),
            (7, 10, "namespace App > class UserStore > method Rename"),
            (12, 15, "namespace App > interface IShape"),
        ],
    ),
    "ruby": (
        """\
require "json"

module App
  class UserStore
    # Renames.
    def rename(a, b)
      @names[b] = a
    end

    def self.open(path)
      new(path)
    end
  end
end
""",
        [
            (1, 1, ""),
            (3, 3, "module App"),
            (4, 4, "module App > class UserStore"),
            (5, 8, "module App > class UserStore > def rename"),
            (10, 14, "module App > class UserStore > def self.open"),
        ],
    ),
    "php": (
        """\
<?php
namespace App;

use Foo\\Bar;

function load($path) {
    return file_get_contents($path);
}

class UserStore {
    public function rename($a) {
        $this->x = $a;
    }
}

interface Shape {
    public function area();
}
""",
        [
            (1, 4, ""),
            (6, 8, "function load"),
            (10, 14, "class UserStore"),
            (16, 18, "interface Shape"),
        ],
    ),
    "bash": (
        """\
#!/bin/bash
set -e

# Builds.
build() {
  make all
}

function deploy {
  scp a b
}
build
""",
        [
            (1, 2, ""),
            (4, 7, "function build"),
            (9, 12, "function deploy"),
        ],
    ),
    "kotlin": (
        """\
package a

import b.c

class UserStore(val x: Int) {
    fun rename(a: String) {
        println(a)
    }

    companion object {
        val y = 1
    }
}

object Single {
    fun one() = 1
}

interface Shape {
    fun area(): Double
}
""",
        [
            (1, 3, ""),
            (5, 5, "class UserStore"),
            (6, 8, "class UserStore > fun rename"),
            (10, 13, "class UserStore > companion object"),
            (15, 17, "object Single"),
            (19, 21, "interface Shape"),
        ],
    ),
    "scala": (
        """\
package a

import b.c

class UserStore(x: Int) {
  def rename(a: String): Unit = {
    println(a)
  }
}

object Main {
  def main(args: Array[String]): Unit = println(1)
}

trait Shape {
  def area: Double
}
""",
        [
            (1, 3, ""),
            (5, 9, "class UserStore"),
            (11, 13, "object Main"),
            (15, 17, "trait Shape"),
        ],
    ),
}


def cut(text: str, language: str | None, limits: ChunkLimits) -> list[Chunk]:
    return chunk_document(ExtractedText(text, "code", language, is_file=True), limits)


def found(chunks: list[Chunk]) -> Found:
    spans = [(each.span, each.context) for each in chunks]
    return [(span.start, span.end, context) for span, context in spans if isinstance(span, LineSpan)]


@pytest.mark.parametrize("language", SNIPPETS)
def test_definitions_are_chunks_with_the_path_to_them(language: str) -> None:
    text, expected = SNIPPETS[language]
    assert found(cut(text, language, SMALL)) == expected


@pytest.mark.parametrize("language", SNIPPETS)
def test_letters_of_more_than_a_byte_do_not_shift_the_lines(language: str) -> None:
    text, expected = SNIPPETS[language]
    if language == "php":
        text = text.replace("<?php", "<?php // 日本語")
        spelled = text
    else:
        comment = "#" if language in ("python", "ruby", "bash") else "//"
        spelled = f"{comment} 日本語 ünïcödé 👩‍👩‍👧 {'ü' * 40}\n\n" + text
    shift = spelled.count("\n") - text.count("\n")
    shifted = [(first + shift, last + shift, context) for first, last, context in expected[1:]]
    assert found(cut(spelled, language, SMALL))[-len(shifted) :] == shifted


def test_a_small_file_stays_whole() -> None:
    text, _ = SNIPPETS["python"]
    assert found(cut(text, "python", ChunkLimits())) == [(1, 18, "")]


def test_small_definitions_are_put_together_under_what_they_share() -> None:
    methods = "".join(f"    def m{number}(self):\n        return {number}\n\n" for number in range(100))
    chunks = cut("class Numbers:\n" + methods, "python", ChunkLimits())
    assert {each.context for each in chunks} == {"class Numbers"}
    assert all(len(each.text) >= 1000 for each in chunks[:-1])


def test_a_long_function_is_cut_between_statements() -> None:
    statements = "".join(f"    if a{number}:\n        b({number})\n        c({number})\n" for number in range(60))
    chunks = cut("def long():\n" + statements, "python", ChunkLimits(max_chars=400, min_chars=50))
    assert len(chunks) > 3
    assert {each.context for each in chunks} == {"def long"}
    assert all(each.text.startswith("    if ") for each in chunks[1:])


def test_imports_are_a_chunk_of_their_own() -> None:
    imports = "".join(f"import module_number_{number}\n" for number in range(20))
    function = "def f():\n" + "    call(1)\n" * 100
    assert found(cut(imports + "\n\n" + function, "python", ChunkLimits())) == [(1, 20, ""), (23, 123, "def f")]


def test_a_comment_above_a_definition_belongs_to_it_and_one_set_apart_does_not() -> None:
    licence = "".join(f"// licence line {number} of this file\n" for number in range(12))
    body = "  call();\n" * 150
    text = f"{licence}\n// Does it.\n// Twice.\nfunction twice() {{\n{body}}}\n"
    assert found(cut(text, "javascript", ChunkLimits())) == [(1, 12, ""), (14, 167, "function twice")]


def test_a_file_with_errors_is_still_cut_at_its_definitions() -> None:
    body = "    call(1)\n" * 90
    text = f"def first(:\n{body}\n)) ]] ??\n\ndef second():\n{body}"
    assert "def second" in [each.context for each in cut(text, "python", ChunkLimits(max_chars=1500))]


def test_a_language_without_a_grammar_is_cut_before_unindented_blocks() -> None:
    block = "sub run_{0}\n" + "    step\n\n    other\n" * 8 + "\n"
    text = "".join(block.replace("{0}", str(number)) for number in range(20))
    chunks = cut(text, None, ChunkLimits(max_chars=600))
    assert len(chunks) > 5
    assert all(each.text.startswith("sub run_") for each in chunks)


def test_windows_keep_to_the_lines_and_repeat_some() -> None:
    limits = ChunkLimits(code_max_lines=20, code_overlap_lines=5)
    chunks = cut("\n".join(f"    line {number}" for number in range(100)), None, limits)
    assert found(chunks)[:3] == [(1, 20, ""), (16, 35, ""), (31, 50, "")]


def test_code_nested_a_hundred_thousand_times_is_cut_without_recursion() -> None:
    chunks = cut("(\n" * 100_000, "python", ChunkLimits())
    assert sum(len(each.text) for each in chunks) >= 199_999


def test_prose_that_claims_to_be_code_is_cut_without_parsing_all_of_it() -> None:
    words = random.Random(7).choices(
        ["the", "quick", "(", "brown", "'", "fox", "{", "jumps", "`", "<", "dog", ".\n"], k=60_000
    )
    text = " ".join(words)
    chunks = cut(text, "javascript", ChunkLimits())
    assert len(chunks) >= len(text) / 2500


def test_what_a_parser_would_take_minutes_for_is_not_parsed_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    parse_seconds = definitions_module.parse_seconds

    def counted(parser: Any, sample: str) -> float:
        parsed.append(len(sample))
        return parse_seconds(parser, sample)

    monkeypatch.setattr(definitions_module, "parse_seconds", counted)
    text = "a<b<\n" * 20_000
    assert definitions(text, [*range(0, len(text), 5)], "java", lambda start, end: False) is None
    assert max(parsed) <= 16_000


@pytest.mark.parametrize("speed", [0.25, 4.0])
def test_code_is_cut_the_same_way_on_a_slow_and_on_a_fast_machine(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, speed: float
) -> None:
    sources = [Path(module.__file__ or "").read_text() for module in (argparse, inspect, typing)]
    expected = [cut(text, "python", ChunkLimits()) for text in sources]
    thread_time = time.thread_time
    monkeypatch.setattr(time, "thread_time", lambda: thread_time() / speed)
    definitions_module.baseline_s_per_char.cache_clear()
    request.addfinalizer(definitions_module.baseline_s_per_char.cache_clear)
    assert [cut(text, "python", ChunkLimits()) for text in sources] == expected


def test_a_file_of_many_parts_keeps_all_of_its_definitions() -> None:
    body = "    call(1)\n" * 130
    text = "".join(f"def number_{number}():\n{body}\n\n" for number in range(250))
    assert [each.context for each in cut(text, "python", ChunkLimits())] == [f"def number_{n}" for n in range(250)]
