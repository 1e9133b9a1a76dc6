"""Turns the tensors of the model pack into the constants of the graph: smoothed int8 matrices.

A matrix product in int8 rounds its input to 256 steps. A few channels of this model are a hundred times larger than the
others, which would all round to zero. Smoothing divides each input channel by a factor and multiplies its row of the
matrix by the same factor. The factors were calibrated on texts of many kinds (scripts/build-embedder-graph) and are
shipped with the graph, which computes products without factors in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from armarium.providers.local.pack import Pack

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PRODUCTS = ("qkv", "ao", "f1", "f2")
"""The matrix products of a layer: query, key and value; attention output; the two feed-forward products."""

_LARGEST = 127


def constants(pack: Pack, smoothing: Mapping[str, NDArray[np.floating]]) -> dict[str, NDArray[np.generic]]:
    import numpy as np

    named: dict[str, NDArray[np.generic]] = {
        # All texts have the same token type, so its vector is added to the positions.
        "positions": pack.floats["pos_emb"][pack.shape["position_offset"] :] + pack.floats["type_emb"][0],
        "emb_ln.w": pack.floats["emb_ln.w"],
        "emb_ln.b": pack.floats["emb_ln.b"],
    }
    for layer in range(pack.shape["layers"]):
        for norm in ("aln", "fln"):
            for part in ("w", "b"):
                named[f"l{layer}.{norm}.{part}"] = pack.floats[f"l{layer}.{norm}.{part}"]
        for product in PRODUCTS:
            named |= _product(pack, smoothing, layer, product)
    # The runtime needs aligned memory, and slices of the pack are not aligned.
    return {name: np.require(array, requirements=["C", "A"]) for name, array in named.items()}


def _product(
    pack: Pack, smoothing: Mapping[str, NDArray[np.floating]], layer: int, product: str
) -> dict[str, NDArray[np.generic]]:
    """The constants of one product: int8 matrix, scales, bias and input factors, or float matrix and bias."""
    import numpy as np

    name = f"l{layer}.{product}"
    matrix, bias = pack.grouped[f"{name}.w"].dequantised(), pack.floats[f"{name}.b"]
    if name not in smoothing:
        return {f"{name}.matrix": matrix.T, f"{name}.bias": bias}
    factors = smoothing[name].astype(np.float32)
    matrix = matrix * factors
    if product == "qkv" and (following := f"l{layer}.ao") in smoothing:
        # Attention is linear in its values, so the factors of the following product can be folded into the values.
        folded = np.ones(matrix.shape[0], np.float32)
        folded[-pack.shape["hidden"] :] = 1 / smoothing[following].astype(np.float32)
        matrix, bias = matrix * folded[:, None], bias * folded
    scales = np.abs(matrix).max(axis=1) / np.float32(_LARGEST)
    constants: dict[str, NDArray[np.generic]] = {
        f"{name}.values": np.rint(matrix / scales[:, None]).astype(np.int8).T,
        f"{name}.scales": scales,
        f"{name}.bias": bias,
    }
    if product != "ao":
        constants[f"{name}.factors"] = 1 / factors
    return constants
