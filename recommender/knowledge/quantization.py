"""What the quantisation of a model covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recommender.knowledge import records


def only_experts(model: records.Model) -> bool:
    """Return whether the experts are quantised, and the layers that every token passes are not."""
    return any(packed.method == "mxfp4" or packed.version.endswith("-experts") for packed in model.quantization)
