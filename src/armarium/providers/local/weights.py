"""Turns the tensors of the model pack into the constants of our graph: int8 matrices that multiply without much loss.

A matrix product in int8 rounds its input to 256 steps for the whole batch, and a few channels of this model are a
hundred times larger than the others, which then drown. So each input channel is divided by a factor before the product
and its row of the matrix multiplied by it: the product stays the same, the input becomes even. The factors were found
once, on texts of many kinds (scripts/build-embedder-graph), and travel beside the graph. A product without factors is
one the graph does in floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from armarium.providers.local.pack import Pack

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PRODUCTS = ("qkv", "ao", "f1", "f2")
"""The matrix products of a layer: query, key and value; attention output; both of the feed-forward part."""

_LARGEST = 127


def constants(pack: Pack, smoothing: Mapping[str, NDArray[np.floating]]) -> dict[str, NDArray[np.generic]]:
    """Every constant that the graph leaves out, by its name there."""
    import numpy as np

    named: dict[str, NDArray[np.generic]] = {
        # Every text is of the same type, so the vector of that type joins the positions.
        "positions": pack.floats["pos_emb"][pack.position_offset :] + pack.floats["type_emb"][0],
        "emb_ln.w": pack.floats["emb_ln.w"],
        "emb_ln.b": pack.floats["emb_ln.b"],
    }
    for layer in range(pack.layers):
        for norm in ("aln", "fln"):
            for part in ("w", "b"):
                named[f"l{layer}.{norm}.{part}"] = pack.floats[f"l{layer}.{norm}.{part}"]
        for product in PRODUCTS:
            named |= _product(pack, smoothing, layer, product)
    # The runtime wants aligned memory, which a slice of the pack is not.
    return {name: np.require(array, requirements=["C", "A"]) for name, array in named.items()}


def _product(
    pack: Pack, smoothing: Mapping[str, NDArray[np.floating]], layer: int, product: str
) -> dict[str, NDArray[np.generic]]:
    """One product: its int8 matrix, the scales, the bias and what its input is multiplied with; or matrix and bias."""
    import numpy as np

    name = f"l{layer}.{product}"
    matrix, bias = pack.grouped[f"{name}.w"].dequantised(), pack.floats[f"{name}.b"]
    if name not in smoothing:
        return {f"{name}.matrix": matrix.T, f"{name}.bias": bias}
    factors = smoothing[name].astype(np.float32)
    matrix = matrix * factors
    if product == "qkv" and (following := f"l{layer}.ao") in smoothing:
        # Attention is linear in its values, so what its output is divided by can be taken off the values: no
        # multiplication is left for the product that follows.
        taken_off = np.ones(matrix.shape[0], np.float32)
        taken_off[-pack.hidden :] = 1 / smoothing[following].astype(np.float32)
        matrix, bias = matrix * taken_off[:, None], bias * taken_off
    scales = np.abs(matrix).max(axis=1) / np.float32(_LARGEST)
    constants: dict[str, NDArray[np.generic]] = {
        f"{name}.values": np.rint(matrix / scales[:, None]).astype(np.int8).T,
        f"{name}.scales": scales,
        f"{name}.bias": bias,
    }
    if product != "ao":
        constants[f"{name}.factors"] = 1 / factors
    return constants
