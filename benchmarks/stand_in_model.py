"""A stand-in for all-MiniLM-L6-v2: the same architecture with random weights and a vocabulary from generated prose.

It replaces a model that a peer would download. The time of embedding does not depend on the weights, only the quality
of results does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import BertWordPieceTokenizer
from tokenizers.processors import TemplateProcessing

LAYERS, WIDTH, INNER, HEADS = 6, 384, 1536, 12
VOCABULARY = 30_522
POSITIONS = 512
EPSILON = 1e-12
MARKS = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}


def write_stand_in(directory: Path, texts: Iterable[str], seed: int) -> None:
    """Write the files that Transformers.js looks for in a model's directory."""
    (directory / "onnx").mkdir(parents=True)
    tokenizer = BertWordPieceTokenizer()
    tokenizer.train_from_iterator(texts, vocab_size=VOCABULARY, show_progress=False)
    known = tokenizer.get_vocab_size()
    tokenizer.post_processor = _wrapped_in_marks(tokenizer)
    tokenizer.save(str(directory / "tokenizer.json"))
    written = {
        "config.json": {"model_type": "bert", "hidden_size": WIDTH, "max_position_embeddings": POSITIONS},
        "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "model_max_length": POSITIONS} | MARKS,
    }
    for name, content in written.items():
        (directory / name).write_text(json.dumps(content))
    onnx.save(_Graph(seed, known).model(), str(directory / "onnx" / "model.onnx"))


def _wrapped_in_marks(tokenizer: BertWordPieceTokenizer) -> TemplateProcessing:
    marks = [(mark, tokenizer.token_to_id(mark)) for mark in ("[CLS]", "[SEP]")]
    return TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=marks)


class _Graph:
    """Collects the nodes and weights of the graph."""

    def __init__(self, seed: int, vocabulary: int) -> None:
        self._random = numpy.random.default_rng(seed)
        self._vocabulary = vocabulary
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def model(self) -> onnx.ModelProto:
        hidden = self._embedded()
        mask = self._mask()
        for _ in range(LAYERS):
            hidden = self._layer(hidden, mask)
        self._nodes.append(helper.make_node("Identity", [hidden], ["last_hidden_state"]))
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
            for name in ("input_ids", "attention_mask", "token_type_ids")
        ]
        output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "length", WIDTH])
        graph = helper.make_graph(self._nodes, "stand_in", inputs, [output], self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def _embedded(self) -> str:
        words = self._node("Gather", self._drawn(self._vocabulary, WIDTH), "input_ids")
        types = self._node("Gather", self._drawn(2, WIDTH), "token_type_ids")
        length = self._node("Gather", self._node("Shape", "input_ids"), self._given(numpy.array(1)))
        zero, one = self._given(numpy.array(0)), self._given(numpy.array(1))
        places = self._node("Gather", self._drawn(POSITIONS, WIDTH), self._node("Range", zero, length, one))
        return self._normed(self._node("Add", self._node("Add", words, types), places))

    def _mask(self) -> str:
        """0 for tokens, a large negative number for padding."""
        there = self._node("Cast", "attention_mask", to=TensorProto.FLOAT)
        apart = self._node("Unsqueeze", there, self._given(numpy.array([1, 2])))
        missing = self._node("Sub", apart, self._given(numpy.float32(1)))
        return self._node("Mul", missing, self._given(numpy.float32(10_000)))

    def _layer(self, hidden: str, mask: str) -> str:
        attended = self._linear(self._attention(hidden, mask), WIDTH, WIDTH)
        hidden = self._normed(self._node("Add", hidden, attended))
        inner = self._linear(hidden, WIDTH, INNER)
        # GELU by its definition, which runtimes recognise and fuse.
        scaled = self._node("Erf", self._node("Mul", inner, self._given(numpy.float32(0.5**0.5))))
        share = self._node(
            "Mul", self._node("Add", scaled, self._given(numpy.float32(1))), self._given(numpy.float32(0.5))
        )
        return self._normed(self._node("Add", hidden, self._linear(self._node("Mul", inner, share), INNER, WIDTH)))

    def _attention(self, hidden: str, mask: str) -> str:
        shape = self._given(numpy.array([0, 0, HEADS, WIDTH // HEADS]))
        asked, offered, told = (self._node("Reshape", self._linear(hidden, WIDTH, WIDTH), shape) for _ in range(3))
        asked, told = (self._node("Transpose", each, perm=[0, 2, 1, 3]) for each in (asked, told))
        offered = self._node("Transpose", offered, perm=[0, 2, 3, 1])
        scores = self._node("MatMul", asked, offered)
        scores = self._node("Mul", scores, self._given(numpy.float32((WIDTH // HEADS) ** -0.5)))
        weights = self._node("Softmax", self._node("Add", scores, mask), axis=-1)
        mixed = self._node("Transpose", self._node("MatMul", weights, told), perm=[0, 2, 1, 3])
        return self._node("Reshape", mixed, self._given(numpy.array([0, 0, WIDTH])))

    def _linear(self, hidden: str, inputs: int, outputs: int) -> str:
        return self._node("Add", self._node("MatMul", hidden, self._drawn(inputs, outputs)), self._drawn(outputs))

    def _normed(self, hidden: str) -> str:
        ones, zeros = self._given(numpy.ones(WIDTH, numpy.float32)), self._given(numpy.zeros(WIDTH, numpy.float32))
        return self._node("LayerNormalization", hidden, ones, zeros, axis=-1, epsilon=EPSILON)

    def _node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"value_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def _drawn(self, *shape: int) -> str:
        return self._given(self._random.normal(0, 0.05, shape).astype(numpy.float32))

    def _given(self, value: NDArray | numpy.generic) -> str:
        name = f"weight_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(numpy.asarray(value), name))
        return name
