"""Values of random weights: a few seeded blocks that every tensor is cut from.

Every weight is symmetric around zero: in 4-bit weights, a mean of half a step is enough to grow one direction from
layer to layer until 16-bit floats overflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recommender.smoke.weights.tensors import FLOATS

if TYPE_CHECKING:
    from recommender.knowledge.records import Model

BLOCK_ITEMS = 4_194_301
"""A prime, so that the rows of no matrix repeat after a few turns of the block."""
DEVIATION = 0.02
"""Standard deviation of weights: 1,000 to 30,000 normalised inputs then give outputs of 0.6 to 3.5."""


def blocks(model: Model, seed: int) -> dict[tuple[str, str], memoryview]:
    """Return the blocks that tensors are cut from, by kind of value and data type.

    They use the generator's raw bits and integer arithmetic: that stream is documented and the same everywhere, which
    NumPy does not promise of its distributions.
    """
    kind = FLOATS[model.text.dtype]
    arrays: dict[tuple[str, str], np.ndarray[Any, np.dtype[Any]]] = {
        ("normal", kind): _floats(_normal_values(seed), kind),
        ("ones", kind): _floats(np.ones(2**18, np.float32), kind),
        ("tenths", kind): _floats(np.full(2**18, 0.1, np.float32), kind),
    }
    if any(mixture.corrected for mixture in model.text.mixture):
        arrays["normal", "F32"] = _normal_values(seed).astype("<f4")
    for packed in model.quantization:
        words = _random_words(seed, 1)
        if packed.method == "fp8":
            arrays["bytes", "F8_E4M3"] = _eight_bits(words)
            arrays["steps", kind] = _floats(_spread(seed) * np.float32(DEVIATION / EIGHT_BITS_DEVIATION), kind)
        elif packed.method == "mxfp4":
            arrays["pairs", "U8"] = words.view(np.uint8)
            arrays["exponents", "U8"] = np.full(2**20, MXFP4_EXPONENT, np.uint8)
        else:
            arrays["nibbles", "I32"] = _nibbles(words)
            # GPTQ's loader adds one to what is stored.
            arrays["zeros", "I32"] = np.full(2**18, 0x88888888 if packed.method == "awq" else 0x77777777, np.uint32)
            step = np.float32(DEVIATION / (2 * sum(k * k for k in range(1, 8)) / 16) ** 0.5)
            arrays["scales", "F16"] = _floats(_spread(seed) * step, "F16")
    return {key: values.view(np.uint8).data for key, values in arrays.items()}


def _random_words(seed: int, stream: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    bits = np.random.PCG64(np.random.SeedSequence((seed, stream))).random_raw((BLOCK_ITEMS + 1) // 2)
    return np.asarray(bits, dtype="<u8").view("<u4")[:BLOCK_ITEMS]


def _normal_values(seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return nearly normal weights around zero: the sum of four random bytes each."""
    words = _random_words(seed, 0)
    pairs = (words & 0x00FF00FF) + ((words >> 8) & 0x00FF00FF)
    sums = (pairs & 0xFFFF) + (pairs >> 16)
    deviation = (4 * (256**2 - 1) / 12) ** 0.5
    return (sums.astype(np.float32) - np.float32(510)) * np.float32(DEVIATION / deviation)


def _nibbles(words: np.ndarray[Any, np.dtype[np.uint32]]) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return eight 4-bit values a word, 1 to 15 around the zero point 8 (0 becomes 8)."""
    some = words | (words >> 1)
    some |= some >> 2
    eights = (~some & np.uint32(0x11111111)) << np.uint32(3)
    words_without_zeros: np.ndarray[Any, np.dtype[np.uint32]] = np.bitwise_or(words, eights)
    return words_without_zeros


def _eight_bits(words: np.ndarray[Any, np.dtype[np.uint32]]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return 8-bit floats (a sign, 4 bits of exponent, 3 of mantissa) with exponents -3 to 0: never 0, never NaN."""
    some = words.view(np.uint8)
    kept: np.ndarray[Any, np.dtype[np.uint8]] = np.bitwise_or(some & np.uint8(0b1001_1111), np.uint8(0b0010_0000))
    return kept


EIGHT_BITS_DEVIATION = (
    sum((1 + mantissa / 8) ** 2 for mantissa in range(8)) / 8 * sum(4.0**-exponent for exponent in range(4)) / 4
) ** 0.5
MXFP4_EXPONENT = 127 - 7
"""A step of 2**-7: the 16 values of 4 bits have a deviation of 2.9, so weights have one of 0.023."""


def _spread(seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    spread = (_random_words(seed, 2) & 0xFF).astype(np.float32) / np.float32(510)
    return np.float32(0.75) + spread


def _floats(values: np.ndarray[Any, np.dtype[np.float32]], kind: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Return 16-bit floats; bfloat16 is the upper half of a 32-bit one, truncated."""
    if kind == "F16":
        return values.astype("<f2")
    return (values.astype("<f4").view("<u4") >> 16).astype("<u2")
