"""GPU products."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from recommender.knowledge.records.base import Id, Record, Sources, Text


class Rate(Record):
    """Peak dense matrix rate of one precision in TFLOP/s (TOP/s for int8), without sparsity."""

    precision: Literal["fp16", "bf16", "int8", "fp8", "fp4"] = Field(description="number format of the products")
    tera: Annotated[float, Field(gt=0, description="10^12 operations a second")]


class Gpu(Record):
    """One GPU product (one form factor, one memory size)."""

    def __hash__(self) -> int:  # equal records have equal ids; hashing every field would cost more than it saves
        return hash(self.id)

    id: Id = Field(description="name of the file")
    name: Text = Field(description="product name")
    aliases: tuple[Text, ...] = Field(default=(), description="other names that people type")
    ambiguous: tuple[Text, ...] = Field(
        default=(), description="aliases that fit other products too; the report says which one was meant"
    )
    nvml_names: tuple[Text, ...] = Field(default=(), description="names that nvidia-smi prints")
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d+$", description="CUDA compute capability, such as 9.0")]
    memory_gb: Annotated[float, Field(gt=0, description="as sold, 10^9 or 2^30 bytes as the vendor counts")]
    memory_mib: Annotated[int, Field(gt=0, description="total that the driver reports")]
    memory_mib_status: Literal["read", "estimated"] = Field(
        description="read: from a driver; estimated: from the size as sold"
    )
    bandwidth_gb_s: Annotated[float, Field(gt=0, description="10^9 bytes a second")]
    rates: tuple[Rate, ...] = Field(min_length=1, description="peak rates by precision")
    nvlink_gb_s: Annotated[float, Field(ge=0, description="total of both directions; 0: none")]
    sources: Sources = Field(description="datasheets that were opened")
