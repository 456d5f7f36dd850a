"""The frozen types of the knowledge records: one YAML file holds one of them.

Types are strict and closed: an unknown field, a number written as text or the
other way round is an error that names the file and the field. No field is a
union: what may be absent is an empty string or an empty list.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
Version = Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+(\.post\d+)?$")]
VersionOrOpen = Annotated[str, Field(pattern=r"^(\d+\.\d+\.\d+(\.post\d+)?)?$")]
Date = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
Text = Annotated[str, Field(min_length=1)]
Engine = Literal["turbomind", "pytorch", "server", "nobody"]
Verdict = Literal["confirmed", "refuted", "no-effect", "outdated", "depends", "unverified"]


class Record(BaseModel):
    """Base of all record types: frozen, strict, closed."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)


class CodeSource(Record):
    """A token that stands at a line of a file of one LMDeploy release.

    A path under ``lmdeploy/`` or ``METADATA`` is in the release's wheel; any other
    path is in the public repository at the release's tag.
    """

    release: Version
    path: Text
    line: Annotated[int, Field(ge=1)]
    token: Text


class PageSource(Record):
    """A page (datasheet, model card, issue thread) and what was read on it that day."""

    url: Annotated[str, Field(pattern=r"^https?://")]
    opened: Date
    says: Text


class Sources(Record):
    """What a record rests on. All three empty means: unverified, and shown so."""

    code: tuple[CodeSource, ...] = ()
    pages: tuple[PageSource, ...] = ()
    evidence: tuple[Id, ...] = ()

    @property
    def empty(self) -> bool:
        """True when nobody opened anything for this fact."""
        return not (self.code or self.pages or self.evidence)


class Place(Record):
    """Where a statement stands in a seed text: its number, 1-based line and a short token there."""

    seed: Literal["000", "001", "002", "003", "004"]
    line: Annotated[int, Field(ge=1)]
    token: Text


class Release(Record):
    """One LMDeploy release on the package index and what it needs. Ranges are PEP 440 specifiers."""

    id: Version
    published: Date
    python: Text
    torch: Text
    transformers: Text
    cuda: Text = Field(description="CUDA major version its Linux wheel links, from its requirements")
    architectures: tuple[Text, ...] = Field(
        default=(), description="GPU architectures in the TurboMind binary, e.g. sm_80; empty if nobody read them"
    )
    images: tuple[Text, ...] = Field(
        default=(), description="endings of the container tags that its workflow pushes, the usual first; empty: unread"
    )
    note: str = ""
    sources: Sources


class EngineField(Record):
    """The engine configuration field an option fills, with the releases that have it (half-open)."""

    config: Literal["TurbomindEngineConfig", "PytorchEngineConfig", "VisionConfig", "SpeculativeConfig"]
    field: Text
    since: Version
    until: VersionOrOpen = ""


class Era(Record):
    """A half-open range of releases in which nothing about an option changed."""

    since: Version
    until: VersionOrOpen = ""
    type: Literal["str", "int", "float", "bool", "json"] = Field(
        description="what the value is parsed as; bool is a switch without a value"
    )
    default: str = Field(description="the text argparse would parse; empty for None; lists joined by spaces")
    choices: tuple[str, ...] = ()
    read_by: tuple[Engine, ...] = Field(min_length=1)
    note: str = ""
    sources: Sources


class Effect(Record):
    """What turning an option changes, in words; each says which way and how strongly."""

    memory: Text
    latency: Text
    throughput: Text
    accuracy: Text


class Reason(Record):
    """Why a setting has its value: the first whose conditions all hold is shown.

    ``when`` and the {names} in ``text`` are facts of the case (see GUIDELINES.md).
    """

    when: tuple[Text, ...] = ()
    text: Text
    sources: Sources = Field(default_factory=Sources)


class Encoding(Record):
    """How a decided value is written on the command line, e.g. kv_bits 8 as quant policy 8."""

    value: str
    text: str


class Option(Record):
    """What flags, environment variables and request fields share."""

    id: Id
    summary: Text
    setting: str = Field(default="", description="the decided value it carries; empty: always left at its default")
    emit: Literal["always", "changed", "never"] = Field(
        default="changed", description="changed: only where the value differs from the default"
    )
    encodings: tuple[Encoding, ...] = ()
    reasons: tuple[Reason, ...] = ()
    sources: Sources = Field(default_factory=Sources)


class Flag(Option):
    """One option of ``lmdeploy serve api_server`` over all covered releases."""

    option: Annotated[str, Field(pattern=r"^--[a-z0-9-]+$")]
    topic: Literal[
        "server", "model", "engine", "memory", "scheduling", "parallelism", "vision", "logging", "security", "decoding"
    ]
    summary_vi: str = ""
    effect: Effect
    choose: Text
    fields: tuple[EngineField, ...] = ()
    eras: tuple[Era, ...] = Field(min_length=1)


class Parameter(Option):
    """An environment variable of the server process, or a field of each request."""

    name: Text
    kind: Literal["environment", "client"]
    default: str = ""
    effect: Effect
    choose: Text


class Rate(Record):
    """Peak dense matrix rate of one precision in TFLOP/s (TOP/s for int8), without sparsity."""

    precision: Literal["fp16", "bf16", "int8", "fp8", "fp4"]
    tera: Annotated[float, Field(gt=0)]


class Gpu(Record):
    """One GPU product (one form factor, one memory size)."""

    def __hash__(self) -> int:  # equal records have equal ids; hashing every field would cost more than it saves
        return hash(self.id)

    id: Id
    name: Text
    aliases: tuple[Text, ...] = ()
    ambiguous: tuple[Text, ...] = Field(
        default=(), description="aliases that fit other products too; the report says which one was meant"
    )
    nvml_names: tuple[Text, ...] = ()
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d+$")]
    memory_gb: Annotated[float, Field(gt=0, description="as sold, 10^9 or 2^30 bytes as the vendor counts")]
    memory_mib: Annotated[int, Field(gt=0, description="total that the driver reports")]
    memory_mib_status: Literal["read", "estimated"]
    bandwidth_gb_s: Annotated[float, Field(gt=0, description="10^9 bytes a second")]
    rates: tuple[Rate, ...] = Field(min_length=1)
    nvlink_gb_s: Annotated[float, Field(ge=0, description="total of both directions; 0: none")]
    sources: Sources


class Mixture(Record):
    """Layers whose feed-forward part is a mixture of experts. One record in the list: the model has them."""

    experts: Annotated[int, Field(ge=2)]
    per_token: Annotated[int, Field(ge=1, description="experts that one token goes through")]
    intermediate: Annotated[int, Field(ge=1, description="intermediate size of one expert")]
    shared: Annotated[int, Field(ge=0, description="that of the expert that every token goes through; 0: none")] = 0
    dense_layers: Annotated[int, Field(ge=0, description="first layers without experts")] = 0
    bias: bool = Field(default=False, description="router and experts have biases")


class Window(Record):
    """Layers that look back so many tokens. One record in the list: the model has them."""

    tokens: Annotated[int, Field(ge=1)]
    layers: Annotated[int, Field(ge=1)]


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
    attention_sinks: bool = Field(default=False, description="a learned number per head joins each softmax")
    mixture: tuple[Mixture, ...] = Field(default=(), max_length=1)
    window: tuple[Window, ...] = Field(default=(), max_length=1)


class PixelRule(Record):
    """How many pixels an image may have when it keeps its shape; smaller ones are enlarged, larger ones shrunk."""

    least: Annotated[int, Field(ge=1)]
    most: Annotated[int, Field(ge=1)]
    frames: Annotated[int, Field(ge=1, description="frames that a patch spans")]


class VisionWindow(Record):
    """Layers of a vision encoder that see a square of so many pixels a side, but for some that see all."""

    side: Annotated[int, Field(ge=1)]
    full_layers: Annotated[int, Field(ge=1)]


class VisionShape(Record):
    """A ViT encoder's and its projector's shape. One record in the list: the model sees images.

    Without an entry in ``pixels`` an image is cut into square tiles of ``image`` pixels a side (InternVL).
    With one it keeps its shape: it is resized to whole merged patches within those limits, and the encoder
    has no class token and no learned positions (Qwen2-VL, Qwen2.5-VL). A tile is then the square in which
    work is counted, and ``max_tiles`` are those of the largest image.
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
    pixels: tuple[PixelRule, ...] = Field(default=(), max_length=1)
    window: tuple[VisionWindow, ...] = Field(default=(), max_length=1)


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
    quantization: tuple[Quantization, ...] = Field(default=(), max_length=1)
    support: tuple[Support, ...] = Field(min_length=1)
    published: tuple[Published, ...] = ()
    sources: Sources


class Workload(Record):
    """A named load: how many requests are in flight at once."""

    id: Id
    concurrency: Annotated[int, Field(ge=1)]
    summary: Text
    summary_vi: str = ""


class RequestShape(Record):
    """A kind of request: what goes in and what must come out."""

    id: Id
    summary: Text
    images: Annotated[int, Field(ge=0)]
    image_width: Annotated[int, Field(ge=0)]
    image_height: Annotated[int, Field(ge=0)]
    prompt: Text
    prompt_tokens: Annotated[int, Field(ge=1)]
    output_tokens: Annotated[int, Field(ge=1)]
    response_schema: str = Field(default="", description="JSON Schema as text; empty: free text")
    sources: Sources = Field(default_factory=Sources)


class Setting(Record):
    """One setting of an adviser: which option, its value, why, and where it stands."""

    option: Id
    value: str
    up_to: str = Field(default="", description="upper end where a range was advised")
    final: bool = Field(default=True, description="false: said in passing, not in the adviser's own configuration")
    reason: str = ""
    reason_vi: str = ""
    places: tuple[Place, ...] = Field(min_length=1)


class Figure(Record):
    """A memory, load or speed figure an adviser claims. Equal ends: one number. Unit 'words' puts it in text."""

    kind: Literal["vram", "weights", "kv-cache", "concurrency", "throughput", "latency", "instances"]
    low: float = 0.0
    high: float = 0.0
    unit: Literal["GB", "MB", "ms", "count", "words"]
    words: str = ""
    about: str = ""
    places: tuple[Place, ...] = Field(min_length=1)


class Adviser(Record):
    """Who advised what."""

    id: Id
    name: Text
    kind: Literal["chatbot", "script", "guide", "comparison"]
    language: Literal["en", "vi"]
    approach: Text
    approach_vi: str = ""
    best_for: Text
    best_for_vi: str = ""
    trade_off: Text
    trade_off_vi: str = ""
    model: str = ""
    settings: tuple[Setting, ...] = Field(min_length=1)
    figures: tuple[Figure, ...] = ()
    places: tuple[Place, ...] = Field(min_length=1)


class Disagreement(Record):
    """Seeds 000 and 001 say different things of the same adviser's setting; 001 is the source."""

    id: Id
    adviser: Id
    option: Id
    kind: Literal["value", "reason"]
    table_says: Text
    answer_says: str = Field(description="empty: the adviser's answer gives none")
    note: Text
    places: tuple[Place, ...] = Field(min_length=1)


class Scenario(Record):
    """A usage scenario of the comparison and the advisers it picks for it."""

    id: Id
    title: Text
    title_vi: str = ""
    picks: tuple[Id, ...] = Field(min_length=1)
    reasons: tuple[Text, ...] = Field(min_length=1)
    places: tuple[Place, ...] = Field(min_length=1)


class Claim(Record):
    """One checkable statement and its verdict."""

    id: Id
    statement: Text
    advisers: tuple[Id, ...] = ()
    places: tuple[Place, ...] = ()
    options: tuple[Id, ...] = ()
    verdict: Verdict
    since: Version = "0.7.0"
    until: VersionOrOpen = ""
    because: Text
    sources: Sources


class Thread(Record):
    """A public thread, or a page of LMDeploy's documentation, about a failure that users meet.

    ``since`` and ``until`` are the releases in which it can be met.
    """

    id: Id
    title: Text = Field(description="as it stands over the thread")
    thread: PageSource = Field(description="its address, the day it was opened, what its maintainers said")
    posted: Annotated[str, Field(pattern=r"^(\d{4}-\d{2}-\d{2})?$")] = Field(
        default="", description="the day it was begun; empty for a page of documentation"
    )
    symptom: Text
    error: str = Field(default="", description="at most eight words of the log that tell it; empty: none tells it")
    cause: Text
    remedy: Text
    options: tuple[Id, ...] = ()
    since: Version = "0.7.0"
    until: VersionOrOpen = ""
    code: tuple[CodeSource, ...] = Field(default=(), description="where cause or remedy stand in LMDeploy")


class Constraint(Record):
    """What hardware, model or release allow.

    Where every condition of ``when`` holds, each of ``require`` must; else ``message``
    (with {names} filled in) rejects the configuration, or warns.
    """

    id: Id
    severity: Literal["reject", "warn"]
    when: tuple[Text, ...] = ()
    require: tuple[Text, ...] = Field(min_length=1)
    message: Text
    remedy: Text
    sources: Sources


class Coefficient(Record):
    """A number of the estimates with its range and where it comes from."""

    id: Id
    value: float
    low: float
    high: float
    unit: Text
    basis: Literal["fitted", "measured", "modelled", "vendor", "assumed"] = Field(
        description="fitted: recommend knowledge fit finds the value, between low and high"
    )
    summary: Text
    derivation: Text
    sources: Sources = Field(default_factory=Sources)


class Residuals(Record):
    """How far one predicted figure was off at runs that the fit had not seen; ``recommend knowledge fit`` writes it.

    A fit leaves out one model, or one part of the configurations, and is judged by what it left out.
    ``low`` and ``high`` are measured over predicted: four fifths of these errors lie between, and one is the other's
    inverse, because the side that the models seen erred on says nothing of an unseen one's.
    """

    id: Id
    low: Annotated[float, Field(gt=0)]
    high: Annotated[float, Field(gt=0)]
    by_model: Annotated[float, Field(ge=0, description="median error of models left out, as a share")]
    by_configuration: Annotated[float, Field(ge=0, description="median error of configurations left out")]
    worst: Annotated[float, Field(ge=0)]
    covered: Annotated[float, Field(ge=0, le=1, description="share inside the range that all other parts' errors give")]
    predictions: Annotated[int, Field(ge=1, description="launches under a load; their repeats share one's weight")]
    starts: Annotated[int, Field(ge=1, description="server starts behind them, repeats too")]
    models: tuple[Id, ...]
    gpus: tuple[Id, ...]
    cards: tuple[Text, ...] = Field(description="GPU and cards of a server, as in h200-sxm x2")


class MeasuredLoad(Record):
    """One load on a running server: so many requests always in flight, in ms and requests a second."""

    kind: Literal["image", "text"]
    image: str = Field(default="", description="width x height in pixels")
    input_tokens: int
    output_tokens: int
    concurrency: int
    requests: int
    failures: int
    rps: float
    ttft_ms: float = Field(default=0.0, description="median; 0: not measured")
    latencies_ms: tuple[int, ...] = Field(description="every request's, in the order they ended")
    peak_mib: int


class MeasuredStart(Record):
    """One server start with its loads. Memory as the driver reports it for the whole card, idle card included."""

    model: Id
    flags: tuple[str, ...]
    omp_threads: int
    startup_s: float
    free_before_cache_mib: float
    cache_mib: float
    start_peak_mib: int
    ready_mib: int
    loads: tuple[MeasuredLoad, ...] = ()


class Measurement(Record):
    """Runs on one host taken before ``recommend smoke`` wrote evidence; the coefficients were fitted to them."""

    id: Id
    taken: Date
    lmdeploy: Version
    gpu: Id
    gpu_name: Text
    driver: Text
    memory_mib: int
    idle_mib: int
    cpus: int
    checkpoints: Text = Field(description="what the weights were")
    starts: tuple[MeasuredStart, ...] = Field(min_length=1)


Numbers = Annotated[str, Field(pattern=r"^(\d+( \d+)*)?$", description="whole numbers with a blank between them")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


CORES = r"^(\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*)?$"


def cores(text: str) -> set[int]:
    """CPU cores as ``taskset -c`` takes them: 0-3,8."""
    ends = [each.partition("-") for each in text.split(",") if each]
    return {core for first, _, last in ends for core in range(int(first), int(last or first) + 1)}


class FailedRequests(Record):
    """Requests of a phase that failed alike."""

    cause: Id = Field(description="a failure's name as recommend smoke --help lists them")
    count: Annotated[int, Field(ge=1)]
    said: str = Field(description="the first one's answer or error")


class Phase(Record):
    """One load on running servers: closed loop (so many always in flight) or open (Poisson arrivals).

    ``latencies_ms`` has every answer in the order of their ends, and ``gaps_ms`` the time from end to end, the
    first from the first send; added up they are the ends, rounded once each. The first ``window_requests`` of
    them lie in the window of ``window_s``, which ends when no new request is started any more.

    Requests a second of a closed loop of N are N over the mean time of a round: of N answers after another,
    wherever such a round fits between the end of the first N and that of the window. N at once on an idle server
    are what no steady load sends: over the window, which begins empty, the rate comes out too low by up to half
    a round in all rounds, and from the first answer on too high. Times are taken without the N requests that
    began it. Open loops, a phase with failures, of under two rounds, or of a record without gaps:
    ``window_requests / window_s``, and the times of all answers.

    Every ``streamed_ms`` is the whole time of the streamed request whose first token came after ``ttft_ms``.
    """

    concurrency: Annotated[int, Field(ge=0, description="0: open loop")]
    arrivals_rps: Annotated[float, Field(ge=0, description="0: closed loop")]
    images: Annotated[int, Field(ge=0)]
    image: str = Field(description="width x height in pixels; empty: text only")
    input_tokens: Annotated[int, Field(ge=0, description="median of what the server counted")]
    output_tokens: Annotated[int, Field(ge=0, description="median of what the server counted")]
    window_s: Annotated[float, Field(ge=0)]
    window_requests: Annotated[int, Field(ge=0)]
    latencies_ms: Numbers
    gaps_ms: Numbers = ""
    ttft_ms: Numbers
    streamed_ms: Numbers
    late_ms: Annotated[int, Field(ge=0, description="open loop: how late its latest request was sent")] = 0
    failures: tuple[FailedRequests, ...] = ()
    peak_mib: Annotated[int, Field(ge=0, description="the fullest card, whole")]
    host_cpu_percent: Annotated[float, Field(ge=0)]
    server_cores: Annotated[float, Field(ge=0, description="CPU cores the servers kept busy")]
    running_most: Annotated[int, Field(ge=-1, description="of /metrics, which lags 10 s; -1: it does not tell")]
    waiting_most: Annotated[int, Field(ge=-1)]
    cache_use_most: Annotated[float, Field(ge=-1, description="share of the KV cache")]


class Killed(Record):
    """One server of several killed under load (SIGKILL) and started again; times count from the kill.

    Rates are answers a second of all servers: in the seconds before the kill, until the server takes requests again,
    and after that. A process that is killed still takes connections while the kernel takes it apart (``dying_s``); what
    was sent to it by then was in flight there. ``lost_later`` are those of ``lost`` that were sent after that.
    """

    server: Text
    concurrency: Annotated[int, Field(ge=1)]
    in_flight: Annotated[int, Field(ge=0, description="at that server when it was killed, as the front saw it")]
    answered: Annotated[int, Field(ge=0)]
    lost: Annotated[int, Field(ge=0)]
    lost_later: Annotated[int, Field(ge=0)]
    said: str = Field(default="", description="the first loss's answer or error")
    dying_s: Annotated[float, Field(ge=0, description="until its port was closed")]
    restarted_s: Annotated[float, Field(ge=0, description="when it was started again")]
    back_s: Annotated[float, Field(ge=0, description="when it got a request again; 0: never")]
    rps_before: Annotated[float, Field(ge=0)]
    rps_down: Annotated[float, Field(ge=0)]
    rps_after: Annotated[float, Field(ge=0)]


class Readback(Record):
    """One effective setting: what the artefact asks for and what the engine's log says. Empty: not told."""

    name: Id
    asked: str
    found: str


class SmokeRun(Record):
    """One run of ``recommend smoke``, which alone writes these. Raw: medians and verdicts are computed from it.

    ``request`` remakes the artefact. ``artefact_sha256`` is over its bytes as launched, ``launch_sha256``
    over what it runs (environment and command), which reasons and predictions in its comments do not change.
    Memory is the driver's figure for the fullest card as a whole, the idle card included.
    """

    id: Id
    taken: Date
    made_by: Text
    lmdeploy: Version
    gpu: Id
    gpu_name: Text
    gpu_count: Annotated[int, Field(ge=1)]
    driver: Text
    memory_mib: Annotated[int, Field(ge=1)]
    cpus: Annotated[int, Field(ge=1)]
    cpu_name: str
    model: Id
    checkpoint: Text = Field(description="what the weights were")
    request: Text = Field(description="JSON on one line, as in the artefact's head")
    kind: Literal["bash", "python", "compose", "systemd"]
    artefact_sha256: Digest
    launch_sha256: Digest
    environment: tuple[Text, ...]
    command: tuple[Text, ...]
    set_by_smoke: tuple[Text, ...] = Field(description="variables that smoke set to run it here")
    copies: Annotated[int, Field(ge=1, description="how often the artefact was started on its card")]
    mps: bool = Field(description="under CUDA MPS")
    pinned: str = Field(default="", pattern=CORES, description="CPU cores of all servers; empty: every one of the host")
    servers: Annotated[int, Field(ge=0, description="servers of the artefact; 0: this was not kept")] = 0
    share: Annotated[int, Field(ge=1, description="of these, on the same card")] = 1
    max_tiles: Annotated[int, Field(ge=0, description="most tiles of an image asked for; 0: no limit")] = 0
    startup_s: Annotated[float, Field(ge=0, description="launch until /v1/models answered; the last copy's")]
    idle_mib: Annotated[int, Field(ge=0)]
    start_peak_mib: Annotated[int, Field(ge=0)]
    ready_mib: Annotated[int, Field(ge=0)]
    effective: tuple[Readback, ...]
    checks: tuple[Text, ...] = Field(description="what was proved before the load")
    outcome: Id = Field(description="ok, or the failure's name")
    said: str = ""
    notes: tuple[Text, ...] = Field(default=(), description="what the person who ran it adds")
    log_sha256: Digest
    phases: tuple[Phase, ...]
    killed: tuple[Killed, ...] = ()

    @property
    def cores(self) -> int:
        """CPU cores that the servers may use."""
        return len(cores(self.pinned)) or self.cpus
