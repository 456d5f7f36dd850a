"""Checkpoints and their shapes."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from recommender.knowledge.records.base import Id, Record, Sources, Text, Version, VersionOrOpen


class Mixture(Record):
    """Layers whose feed-forward part is a mixture of experts. One record in the list: the model has them."""

    experts: Annotated[int, Field(ge=2, description="experts of a layer")]
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
    """Layers that look back ``tokens`` tokens only. The list has one record if the model has such layers."""

    tokens: Annotated[int, Field(ge=1, description="tokens that a layer looks back")]
    layers: Annotated[int, Field(ge=1, description="number of such layers")]
    whole: bool = Field(
        default=False,
        description="the PyTorch engine takes it for all layers: it frees older blocks and has no prefix cache",
    )


class LinearAttention(Record):
    """Layers with a gated delta rule in place of attention. The list has one record if the model has such layers.

    They keep a state of fixed size per sequence and no keys or values. Every other layer's query has an output gate.
    """

    layers: Annotated[int, Field(ge=1, description="number of such layers")]
    key_heads: Annotated[int, Field(ge=1, description="heads of keys")]
    value_heads: Annotated[int, Field(ge=1, description="heads of values")]
    head_dim: Annotated[int, Field(ge=1, description="of keys and of values")]
    kernel: Annotated[int, Field(ge=1, description="tokens that the convolution before it spans")]


class SparseIndex(Record):
    """What picks the tokens that latent attention reads (DeepSeek-V3.2).

    The list holds one record if the model uses it.
    Each layer scores all tokens before with small heads of its own, and caches a key of 8 bits per token for that.
    """

    heads: Annotated[int, Field(ge=1, description="scoring heads of a layer")]
    head_dim: Annotated[int, Field(ge=1, description="width of a scoring head")]
    tokens: Annotated[int, Field(ge=1, description="tokens that attention reads of those before")]


class LatentAttention(Record):
    """Attention whose heads share one latent vector per token (multi-head latent attention).

    The list holds one record if the model uses it. ``heads`` are then query heads, ``kv_heads`` is 1 and ``head_dim``
    is the width of what is cached: ``rank`` and ``rope``.
    """

    query_rank: Annotated[int, Field(ge=0, description="width that queries pass; 0: they pass none")]
    rank: Annotated[int, Field(ge=1, description="width of the latent vector")]
    rope: Annotated[int, Field(ge=1, description="width with rotary positions, beside the latent vector")]
    key: Annotated[int, Field(ge=1, description="width of a head's key without positions")]
    value: Annotated[int, Field(ge=1, description="width of a head's value")]
    index: tuple[SparseIndex, ...] = Field(
        default=(), max_length=1, description="what picks the tokens; empty: all are read"
    )


class TextShape(Record):
    """A decoder-only language model's shape."""

    family: Text = Field(description="name of the architecture family")
    hidden: int = Field(description="width of the hidden state")
    layers: int = Field(description="number of layers")
    heads: int = Field(description="query heads of a layer")
    kv_heads: int = Field(description="key and value heads of a layer")
    head_dim: int = Field(description="width of a head")
    intermediate: int = Field(description="width of the MLP")
    vocab: int = Field(description="tokens of the vocabulary")
    tied_embeddings: bool = Field(description="input and output share one embedding")
    attention_bias: Literal["none", "qkv", "qkvo"] = Field(description="which attention matrices have a bias")
    qk_norm: bool = Field(description="queries and keys are normalised")
    qk_norm_weights: bool = Field(default=True, description="that norm has weights")
    max_positions: int = Field(description="trained length in tokens")
    dtype: Literal["float16", "bfloat16"] = Field(description="format of the unquantised weights")
    post_norms: bool = Field(default=False, description="a layer has a norm after attention and MLP too (Gemma, GLM-4)")
    attention_sinks: bool = Field(default=False, description="a learned number per head joins each softmax")
    mixture: tuple[Mixture, ...] = Field(default=(), max_length=1, description="mixture of experts; empty: none")
    window: tuple[Window, ...] = Field(default=(), max_length=1, description="sliding window; empty: none")
    linear: tuple[LinearAttention, ...] = Field(
        default=(), max_length=1, description="linear attention layers; empty: none"
    )
    latent: tuple[LatentAttention, ...] = Field(default=(), max_length=1, description="latent attention; empty: none")


class PixelRule(Record):
    """How many pixels an image may have when it keeps its shape; smaller ones are enlarged, larger ones shrunk."""

    least: Annotated[int, Field(ge=1, description="fewest pixels of an image")]
    most: Annotated[int, Field(ge=1, description="most pixels of an image")]
    frames: Annotated[int, Field(ge=1, description="frames that a patch spans")]
    over_frames: bool = Field(
        default=False, description="the processor's file counts every frame: its limits are so many times as large"
    )


class VisionWindow(Record):
    """Windowed attention of a vision encoder: most layers see only a square of the image."""

    side: Annotated[int, Field(ge=1, description="side of the square in pixels")]
    full_layers: Annotated[int, Field(ge=1, description="layers that see the whole image")]


class Matrix(Record):
    """A matrix between an encoder and the language model."""

    inputs: Annotated[int, Field(ge=1, description="width of the input")]
    outputs: Annotated[int, Field(ge=1, description="width of the output")]
    bias: bool = Field(default=False, description="it has a bias")
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

    hidden: int = Field(description="width of the hidden state")
    layers: int = Field(description="number of layers")
    heads: int = Field(description="heads of a layer")
    intermediate: int = Field(description="width of the MLP")
    patch: int = Field(description="side of a patch in pixels")
    image: int = Field(description="side of a tile in pixels")
    qkv_bias: bool = Field(description="queries, keys and values have a bias")
    qk_norm: bool = Field(description="queries and keys are normalised")
    layer_scale: bool = Field(description="layers scale their outputs")
    norm: Literal["layer_norm", "rms_norm"] = Field(description="kind of normalisation")
    downsample: Annotated[float, Field(gt=0, le=1, description="tokens kept along a side, as a share")]
    tokens_per_tile: int = Field(description="tokens that the language model reads of a tile")
    min_tiles: int = Field(description="fewest tiles of an image")
    max_tiles: int = Field(description="most tiles of an image by default")
    thumbnail: bool = Field(description="several tiles come with a small whole image")
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
    cut: Literal["grid", "canvas", "rows", "slices"] = Field(
        default="grid", description="rule that cuts an image into tiles"
    )
    pixels: tuple[PixelRule, ...] = Field(
        default=(), max_length=1, description="limits where images keep their shape; empty: tiles"
    )
    window: tuple[VisionWindow, ...] = Field(default=(), max_length=1, description="windowed attention; empty: none")


class AudioShape(Record):
    """An audio encoder's shape. One record in the list: the model loads it; requests with audio are not planned for."""

    hidden: int = Field(description="width of the hidden state")
    layers: int = Field(description="number of layers")
    intermediate: int = Field(description="width of the MLP")
    filters: int = Field(description="filters of each of the three convolutions before it")
    bands: int = Field(description="bands of sound that the convolutions read")


QuantizationMethod: TypeAlias = Literal["awq", "gptq", "fp8", "mxfp4", "compressed-tensors"]


class Quantization(Record):
    """Weight quantisation of a checkpoint. One record in the list: the LLM's linears are quantised.

    MXFP4 quantises the experts only, compressed-tensors where its version ends in ``-experts``.
    """

    method: QuantizationMethod = Field(description="format of the quantised weights")
    bits: int = Field(description="bits of a weight")
    group: int = Field(description="weights that share a scale; 0: none")
    version: Text = Field(description="kernel layout as config.json names it")


class Support(Record):
    """Releases (half-open) in which an engine serves a model."""

    engine: Literal["turbomind", "pytorch"] = Field(description="engine that serves the model")
    since: Version = Field(description="first release that serves it")
    until: VersionOrOpen = Field(default="", description="first release that does not; empty: open")
    sources: Sources = Field(description="what it rests on")


class NeededOption(Record):
    """An option without which some releases (half-open) load a model but do not serve it well."""

    option: Id = Field(description="id of the option")
    value: Text = Field(description="as on the command line")
    equal: tuple[Text, ...] = Field(default=(), description="values that do the same")
    since: Version = Field(description="first release that needs it")
    until: VersionOrOpen = Field(default="", description="first release that does not; empty: open")
    because: Text = Field(description="shown beside the setting; {names} as in an option's reasons")
    sources: Sources = Field(description="what it rests on")


class PublishedSize(Record):
    """The size of the weight files as their publisher states it; computed bytes are tested against it."""

    bytes: Annotated[int, Field(gt=0, description="bytes of all weight files")]
    sources: Sources = Field(description="where the size stands")


class Model(Record):
    """One checkpoint as an architecture shape. Bytes are computed from it, never stored."""

    def __hash__(self) -> int:  # equal records have equal ids; hashing every field would cost more than it saves
        return hash(self.id)

    id: Id = Field(description="name of the file")
    hub: Text = Field(description="name on the Hugging Face hub")
    aliases: tuple[Text, ...] = Field(default=(), description="other names that people type")
    architecture: Text = Field(description="architecture in config.json")
    remote_code: bool = Field(description="its config needs --trust-remote-code where that is not the default")
    chat_tokens: Annotated[int, Field(ge=0, description="tokens the chat template adds around one user turn")]
    text: TextShape = Field(description="shape of the language model")
    vision: tuple[VisionShape, ...] = Field(
        default=(), max_length=1, description="shape of the vision encoder; empty: text only"
    )
    audio: tuple[AudioShape, ...] = Field(
        default=(), max_length=1, description="shape of the audio encoder; empty: none"
    )
    quantization: tuple[Quantization, ...] = Field(
        default=(), max_length=1, description="weight quantisation; empty: 16 bits"
    )
    support: tuple[Support, ...] = Field(min_length=1, description="which engines serve it, by release")
    needs: tuple[NeededOption, ...] = Field(default=(), description="options that some releases need")
    published: tuple[PublishedSize, ...] = Field(default=(), description="published size, to check the computed one")
    sources: Sources = Field(description="where the shape was read")
