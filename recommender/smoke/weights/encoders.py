"""The modules that write the encoders of vision models, by architecture; InternVL's is not among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from recommender.smoke.weights import gemma, glm4v, llama4, llava, minicpmv, omni, phi3v, qwen2vl, qwen35
from recommender.smoke.weights.layouts import (
    GEMMA3,
    GLM4V,
    LLAMA4,
    LLAVA,
    MINICPM,
    OMNI,
    PHI3V,
    QWEN3_VL,
    QWEN35,
    QWEN_VL,
)

if TYPE_CHECKING:
    from recommender.knowledge.records import Model, VisionShape
    from recommender.smoke.weights.layouts import Tensor


class Encoder(Protocol):
    """What such a module has."""

    def config(self, model: Model, text: dict[str, Any], ids: Mapping[str, Any], /) -> dict[str, Any]:
        """Return the keys of the configuration besides those of all vision models."""
        ...

    def vision(self, shape: VisionShape, hidden: int, kind: str, /) -> Iterator[Tensor]:
        """Yield the tensors of the encoder and its projector."""
        ...


ENCODERS: Mapping[str, Encoder] = {
    GEMMA3: gemma,
    GLM4V: glm4v,
    LLAMA4: llama4,
    LLAVA: llava,
    MINICPM: minicpmv,
    OMNI: omni,
    PHI3V: phi3v,
    **dict.fromkeys(QWEN_VL, qwen2vl),
    **dict.fromkeys((*QWEN35, *QWEN3_VL), qwen35),
}
