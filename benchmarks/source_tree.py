"""Generates directory trees of source code, reproducibly for a seed."""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path

SYLLABLES = [
    "con", "ver", "get", "set", "ta", "user", "name", "re", "quest", "hand", "ler", "ser", "vice", "fig", "par",
    "se", "load", "er", "to", "ken", "ses", "sion", "buf", "fer", "time", "out", "err", "or", "cache", "key",
    "val", "ue", "list", "node", "tree", "path", "file", "read", "write", "open", "close", "in", "dex", "map",
    "try", "sta", "tus", "mes", "sage", "pay", "queue", "lock", "pool", "fetch", "que", "ry", "da", "base", "mod",
    "el",
]  # fmt: skip
VOCABULARY = 6000
BLOCKS = 20_000
FILES_PER_DIRECTORY = 25
NEEDLE = b"    raise SystemPanic('zebra_quota_exceeded', code=7431)\n"


class SourceWriter:
    """Generates lines of code from invented words with a realistic frequency distribution."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        words = {"".join(self.random.choices(SYLLABLES, k=self.random.randint(2, 4))) for _ in range(VOCABULARY)}
        self._words = sorted(words)
        self.random.shuffle(self._words)
        self._weights = list(accumulate(1 / (rank + 2) for rank in range(len(self._words))))

    def word(self) -> str:
        return self.random.choices(self._words, cum_weights=self._weights)[0]

    def identifier(self) -> str:
        kind = self.random.random()
        if kind < 0.5:
            return self.word()
        if kind < 0.8:
            return f"{self.word()}_{self.word()}"
        if kind < 0.9:
            return self.word().capitalize() + self.word().capitalize()
        return f"{self.word().upper()}_{self.word().upper()}"

    def statement(self) -> str:
        name = self.identifier
        comment = " ".join(self.word() for _ in range(self.random.randint(3, 10)))
        statements = [
            f"{name()} = {name()}.{name()}({name()}, {self.random.randint(0, 9999)})",
            f"{name()} = {name()}.{name()}({name()})",
            f"if {name()} != {name()}:",
            f"return {name()}[{name()}]",
            f"# {comment}",
            f"self.{name()}.{name()}('{self.word()} {self.word()}', {name()}=\"{self.word()}\")",
            f"raise {name()}(f'{self.word()} {{{name()}}}')",
            f"for {name()} in {name()}.{name()}():",
            f"{name()}({name()})",
            "",
        ]
        return self.random.choice(statements)

    def block(self) -> bytes:
        """A function or class of a few lines."""
        name = self.identifier
        lines = [f"def {name()}({name()}, {name()}: {name()}) -> {name()}:"]
        if self.random.random() < 0.2:
            lines = [f"class {name()}({name()}):"]
        for _ in range(self.random.randint(3, 25)):
            lines.append(" " * self.random.choice((4, 4, 8, 8, 12)) + self.statement())
        if self.random.random() < 0.01:
            lines.append(f"    # {self.random.choice(('TODO', 'FIXME'))}: {self.word()} {self.word()}")
        if self.random.random() < 0.0005:
            lines.append(f"    # {self.random.choice(('HACK', 'KLUDGE'))}: {self.word()} {self.word()}")
        if self.random.random() < 0.02:
            lines.append(f"    # naïve café – {self.word()}")
        return "\n".join(lines).encode() + b"\n\n"


def make_source_tree(top: Path, total_bytes: int, seed: int) -> int:
    """Fill a directory with files of 1 to 200 KB, some of them binary; returns their number."""
    writer = SourceWriter(seed)
    choose = writer.random
    blocks = [writer.block() for _ in range(BLOCKS)]
    written = files = 0
    directory = top
    while written < total_bytes:
        if files % FILES_PER_DIRECTORY == 0:
            names = [f"{writer.word()}_{choose.randint(0, 9)}" for _ in range(choose.randint(1, 5))]
            directory = top.joinpath(*names)
            directory.mkdir(parents=True, exist_ok=True)
        size = int(1024 * 200 ** choose.random())
        pieces: list[bytes] = []
        while size > 0:
            pieces.append(choose.choice(blocks))
            size -= len(pieces[-1])
        if choose.random() < 0.02:
            pieces.insert(len(pieces) // 2, NEEDLE)
        if choose.random() < 0.01:
            pieces.insert(0, b"\x7fELF\0" + choose.randbytes(300))
        content = b"".join(pieces)
        (directory / f"{writer.word()}_{files}.py").write_bytes(content)
        written += len(content)
        files += 1
    return files


def make_name_tree(top: Path) -> int:
    """Fill a directory with 200,000 empty files in 2,000 directories; returns their number."""
    files = 0
    for package in range(20):
        for module in range(20):
            for part in range(5):
                directory = top / f"pkg_{package:02}" / f"mod_{module:02}" / f"part_{part}"
                directory.mkdir(parents=True)
                for number in range(100):
                    suffix = "rs" if number == 7 else "py" if number % 2 == 0 else "txt"
                    (directory / f"name_{number % 10}_{number:03}.{suffix}").touch()
                    files += 1
    return files
