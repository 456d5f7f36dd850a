"""Checkpoints and their shapes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from recommender.knowledge.records.base import Id, Record, Sources, Text, Version, VersionOrOpen


class Mixture(Record):
    """Layers whose feed-forward part is a mixture of experts. One record in the list: the model has them."""

    experts: Annotated[int, Field(ge=2)]
    per_token: Annotated[int, Field(ge=1, description="experts that one token goes through")]
    intermediate: Annotated[int, Field(ge=1, description="intermediate size of one expert")]
    shared: Annotated[int, Field(ge=0, description="that of the expert that every token goes through; 0: none")] = 0
    dense_layers: Annotated[int, Field(ge=0, description="layers without experts, wherever they are")] = 0
    bias: bool = Field(default=False, description="router and experts have biases")
    corrected: bool = Field(
        default=False, description="the router adds a learned number to each score; the shared expert has no gate"
    )
    ungated: bool = Field(default=False, description="the shared expert has no gate, though scores are not corrected")
    sets: Annotated[int, Field(ge=0, description="sets of experts that layers share in turn; 0: one a layer")] = 0


class Window(Record):
    """Layers that look back so many tokens. One record in the list: the model has them."""

    tokens: Annotated[int, Field(ge=1)]
    layers: Annotated[int, Field(ge=1)]
    whole: bool = Field(
        default=False,
        description="the PyTorch engine takes it for all layers: it frees older blocks and has no prefix cache",
    )


class LinearAttention(Record):
    """Layers with a gated delta rule in place of attention. One record in the list: the model has them.

    They keep a state of fixed size per sequence and no keys or values. Every other layer's query has an output gate.
    """

    layers: Annotated[int, Field(ge=1)]
    key_heads: Annotated[int, Field(ge=1)]
    value_heads: Annotated[int, Field(ge=1)]
    head_dim: Annotated[int, Field(ge=1, description="of keys and of values")]
    kernel: Annotated[int, Field(ge=1, description="tokens that the convolution before it spans")]


class SparseIndex(Record):
    """What picks the tokens that latent attention reads (DeepSeek-V3.2). One record in the list: the model has it.

    Each layer scores all tokens before with small heads of its own, and caches a key of 8 bits per token for that.
    """

    heads: Annotated[int, Field(ge=1)]
    head_dim: Annotated[int, Field(ge=1)]
    tokens: Annotated[int, Field(ge=1, description="tokens that attention reads of those before")]


class LatentAttention(Record):
    """Attention whose heads share one latent vector per token (multi-head latent attention).

    One record in the list: the model has it. ``heads`` are then query heads, ``kv_heads`` is 1 and ``head_dim`` the
    width of what is cached: ``rank`` and ``rope``.
    """

    query_rank: Annotated[int, Field(ge=0, description="width that queries pass; 0: they pass none")]
    rank: Annotated[int, Field(ge=1, description="width of the latent vector")]
    rope: Annotated[int, Field(ge=1, description="width with rotary positions, beside the latent vector")]
    key: Annotated[int, Field(ge=1, description="width of a head's key without positions")]
    value: Annotated[int, Field(ge=1, description="width of a head's value")]
    index: tuple[SparseIndex, ...] = Field(default=(), max_length=1)


class TextShape(Record):
    """A decoder-only language model's shape."""

    family: Text
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied_embeddings: bool
    attention_bias: Literal["none", "qkv", "qkvo"]
    qk_norm: bool
    max_positions: int
    dtype: Literal["float16", "bfloat16"]
    post_norms: bool = Field(default=False, description="a layer has a norm after attention and MLP too (Gemma, GLM-4)")
    attention_sinks: bool = Field(default=False, description="a learned number per head joins each softmax")
    mixture: tuple[Mixture, ...] = Field(default=(), max_length=1)
    window: tuple[Window, ...] = Field(default=(), max_length=1)
    linear: tuple[LinearAttention, ...] = Field(default=(), max_length=1)
    latent: tuple[LatentAttention, ...] = Field(default=(), max_length=1)


class PixelRule(Record):
    """How many pixels an image may have when it keeps its shape; smaller ones are enlarged, larger ones shrunk."""

    least: Annotated[int, Field(ge=1)]
    most: Annotated[int, Field(ge=1)]
    frames: Annotated[int, Field(ge=1, description="frames that a patch spans")]
    over_frames: bool = Field(
        default=False, description="the processor's file counts every frame: its limits are so many times as large"
    )


class VisionWindow(Record):
    """Layers of a vision encoder that see a square of so many pixels a side, but for some that see all."""

    side: Annotated[int, Field(ge=1)]
    full_layers: Annotated[int, Field(ge=1)]


class Matrix(Record):
    """A matrix between an encoder and the language model."""

    inputs: Annotated[int, Field(ge=1)]
    outputs: Annotated[int, Field(ge=1)]
    bias: bool = False
    patches: bool = Field(default=False, description="multiplies each patch, not each token made of patches")


class VisionShape(Record):
    """A ViT encoder's and its projector's shape. One record in the list: the model sees images.

    Without an entry in ``pixels`` an image is cut into square tiles of ``image`` pixels a side (InternVL).
    With one it keeps its shape: it is resized to whole merged patches within those limits, and the encoder
    has no class token and, but for ``positions``, no learned positions (Qwen2-VL, Qwen2.5-VL). A tile is then
    the square in which work is counted, and ``max_tiles`` are those of the largest image.

    ``cut`` names the rule that makes tiles: the grid nearest in shape (InternVL), the canvas that shrinks the image
    least (Llama 4), rows as wide as fit (Phi-3.5-vision), slices near in area (MiniCPM-V). A model that sees every
    image as one square has ``max_tiles`` 1.
    """

    hidden: int
    layers: int
    heads: int
    intermediate: int
    patch: int
    image: int
    qkv_bias: bool
    qk_norm: bool
    layer_scale: bool
    norm: Literal["layer_norm", "rms_norm"]
    downsample: Annotated[float, Field(gt=0, le=1)]
    tokens_per_tile: int
    min_tiles: int
    max_tiles: int
    thumbnail: bool
    request_tiles: bool = Field(
        default=True, description="where images are cut: whether a request's max_dynamic_patch is read"
    )
    wrapper_tokens: Annotated[int, Field(ge=0, description="marker tokens around one image")]
    gated: bool = Field(default=False, description="the MLP has a gate: three matrices, not two")
    positions: Annotated[
        int, Field(ge=0, description="learned positions; 0: none where images keep their shape, else one a patch")
    ] = 0
    deepstack: Annotated[
        int, Field(ge=0, description="more projectors, whose outputs join the language model's first layers (Qwen3-VL)")
    ] = 0
    projector: tuple[Matrix, ...] = Field(default=(), description="its matrices if not InternVL's or Qwen's")
    cut: Literal["grid", "canvas", "rows", "slices"] = "grid"
    pixels: tuple[PixelRule, ...] = Field(default=(), max_length=1)
    window: tuple[VisionWindow, ...] = Field(default=(), max_length=1)


class AudioShape(Record):
    """An audio encoder's shape. One record in the list: the model loads it; requests with audio are not planned for."""

    hidden: int
    layers: int
    intermediate: int


class Quantization(Record):
    """Weight quantisation of a checkpoint. One record in the list: the LLM's linears are quantised.

    MXFP4 quantises the experts only.
    """

    method: Literal["awq", "gptq", "fp8", "mxfp4"]
    bits: int
    group: int
    version: Text


class Support(Record):
    """Releases (half-open) in which an engine serves a model."""

    engine: Literal["turbomind", "pytorch"]
    since: Version
    until: VersionOrOpen = ""
    sources: Sources


class NeededOption(Record):
    """An option without which some releases (half-open) load a model but do not serve it well."""

    option: Id
    value: Text = Field(description="as on the command line")
    equal: tuple[Text, ...] = Field(default=(), description="values that do the same")
    since: Version
    until: VersionOrOpen = ""
    because: Text = Field(description="shown beside the setting; {names} as in an option's reasons")
    sources: Sources


class Published(Record):
    """The size of the weight files as their publisher states it; computed bytes are tested against it."""

    bytes: Annotated[int, Field(gt=0)]
    sources: Sources


class Model(Record):
    """One checkpoint as an architecture shape. Bytes are computed from it, never stored."""

    def __hash__(self) -> int:  # equal records have equal ids; hashing every field would cost more than it saves
        return hash(self.id)

    id: Id
    hub: Text
    aliases: tuple[Text, ...] = ()
    architecture: Text
    remote_code: bool = Field(description="its config needs --trust-remote-code where that is not the default")
    chat_tokens: Annotated[int, Field(ge=0, description="tokens the chat template adds around one user turn")]
    text: TextShape
    vision: tuple[VisionShape, ...] = Field(default=(), max_length=1)
    audio: tuple[AudioShape, ...] = Field(default=(), max_length=1)
    quantization: tuple[Quantization, ...] = Field(default=(), max_length=1)
    support: tuple[Support, ...] = Field(min_length=1)
    needs: tuple[NeededOption, ...] = ()
    published: tuple[Published, ...] = ()
    sources: Sources
