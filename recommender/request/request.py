"""A request of the user, checked and in base units."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from recommender.common.errors import RequestError
from recommender.common.field_types import check_field_types, short
from recommender.common.text import shorten
from recommender.request.lengths import MixRequest, read_lengths
from recommender.request.question import check_prompt, check_schema

Quantile = Literal["mean", "p50", "p90", "p99"]
Figure = Literal["ttft", "tpot", "latency"]
Time = tuple[float, Quantile]
"""The ms of a goal, and the quantile that it is for."""
Goal = Literal["latency", "throughput", "memory", "balanced"]
KvChoice = Literal["auto", "fp16", "int8", "int4"]
BackendChoice = Literal["auto", "turbomind", "pytorch"]

MAX_COUNT = 64
MAX_CONCURRENCY = 4096
MAX_TOKENS = 2_000_000
MAX_SIDE = 100_000
MAX_PIXELS = 178_956_970
"""Pillow, with which LMDeploy opens images (0.18.0 lmdeploy/vl/media/image.py:25), refuses more: twice its
MAX_IMAGE_PIXELS (https://pillow.readthedocs.io/en/stable/reference/Image.html#PIL.Image.open)."""
MAX_IMAGES = 64
MAX_TURNS = 200
MAX_SIZES = 20
MAX_MS = 86_400_000
SHARE_SLACK = 0.011
"""By which the shares of a mix may miss 1, as rounded thirds do."""
DEFAULT_CPUS = 16
MAX_SCALE = 5.0
LEAST = 1e-9
"""The least rate, time or share: smaller ones mean nothing, and sums with them lose their digits."""


class Replayed(NamedTuple):
    """One request of a trace: ms since the first, tokens of prompt and answer, and where its prompt's beginning was.

    The first ``shared`` tokens are those of the prompt at place ``of`` among the replayed, an earlier one.
    """

    at: float
    prompt: int
    output: int
    of: int = 0
    shared: int = 0


class TimeGoal(NamedTuple):
    """The most ms of a quantile of a time, and the option that asks for it."""

    option: str
    figure: Figure
    at: Quantile
    most_ms: float

    @property
    def words(self) -> str:
        """The time's name for use in a sentence: ``p99 TTFT``, ``the mean latency``."""
        name = {"ttft": " TTFT", "tpot": " TPOT", "latency": ""}[self.figure]
        return f"{self.at}{name}" if self.at != "mean" else f"the mean{name or ' latency'}"

    def with_time(self, ms: float) -> str:
        """Return the option with another time."""
        at = "" if self.option == "--p99" or self.at == "mean" else f"{self.at}:"
        return f"{self.option} {at}{math.ceil(ms)}"


def list_time_goals(p99_ms: float, ttft: Time, tpot: Time, latency: Time) -> tuple[TimeGoal, ...]:
    """Return the goals that are given, from the ms and the quantile of each; 0 ms is no goal."""
    figures: tuple[tuple[Figure, Time], ...] = (("ttft", ttft), ("tpot", tpot), ("latency", latency))
    goals = (TimeGoal(f"--{figure}", figure, at, ms) for figure, (ms, at) in figures)
    return tuple(goal for goal in (TimeGoal("--p99", "latency", "p99", p99_ms), *goals) if goal.most_ms)


@dataclass(frozen=True, slots=True)
class Request:
    """One question to the recommender.

    ``prompt_tokens`` and ``output_tokens`` are medians where a p99 is given; ``input_lengths`` and ``output_lengths``
    stand instead of them. With ``image_mix`` the width and height are those of the largest image. ``prompt`` and
    ``response_schema`` change no length. Times are in ms, sizes in pixels, memory in GiB.
    """

    gpu: str
    """GPU as it was named."""
    gpu_count: int = 1
    """GPUs of the host."""
    tp: int = 0
    """GPUs that share one model; 0: automatic."""
    model: str = "internvl3-8b-awq"
    """Model as it was named."""
    load: str = ""
    """Name of a load; empty: not given."""
    concurrency: int = 0
    """Concurrent requests; 0: not given."""
    rps: float = 0.0
    """Arriving requests/s; 0: not given."""
    images: int = -1
    """Images of a request; -1: not given."""
    image_width: int = 0
    """Pixels; 0: not given."""
    image_height: int = 0
    """Pixels; 0: not given."""
    prompt_tokens: int = 0
    """Tokens of text in a prompt, median; 0: not given."""
    output_tokens: int = 0
    """Tokens of an answer, median; 0: not given."""
    goal: Goal = "balanced"
    """What is optimised: balanced, latency, throughput or memory."""
    p99_ms: float = 0.0
    """Goal for the p99 of a request in ms; 0: none."""
    ttft_ms: float = 0.0
    """Goal for the time to first token in ms; 0: none."""
    vram_gib: float = 0.0
    """Memory of the GPU that may be used in GiB; 0: all."""
    cpus: int = DEFAULT_CPUS
    """CPU cores of the host."""
    kv: KvChoice = "auto"
    """Bits of a KV cache value, or auto."""
    lmdeploy: str = "0.18.0"
    """LMDeploy release."""
    host_scale: float = 1.0
    """Measured over predicted time of the host in the user's runs."""
    card_scale: float = 1.0
    """Measured over predicted time of the GPU in the user's runs."""
    calibrated_by: str = ""
    """Ids of those runs, separated by blanks."""
    workload: str = ""
    """Record that fills what is not given; empty: none."""
    prompt_p99: int = 0
    """99th percentile of the prompt in tokens; 0: all alike."""
    output_p99: int = 0
    """99th percentile of the answer in tokens; 0: all alike."""
    input_lengths: str = ""
    """Equally likely prompt lengths in tokens, with commas."""
    output_lengths: str = ""
    """Equally likely answer lengths in tokens, with commas."""
    prefix_tokens: int = 0
    """Tokens that all prompts begin with."""
    turns: int = 0
    """Requests of a conversation; 0: not given."""
    max_context: int = 0
    """Most tokens of prompt and answer; 0: no limit."""
    burstiness: float = 0.0
    """Variation of the gaps between arrivals; 1: Poisson, 0: not given."""
    tpot_ms: float = 0.0
    """Goal for the time per output token in ms; 0: none."""
    latency_ms: float = 0.0
    """Goal for the latency in ms; 0: none."""
    ttft_at: Quantile = "mean"
    """Quantile that the goal is for."""
    tpot_at: Quantile = "mean"
    """Quantile that the goal is for."""
    latency_at: Quantile = "mean"
    """Quantile that the goal is for."""
    headroom: float = 1.0
    """Factor on the load."""
    repeated_share: float = 0.0
    """Share of all input that an unlimited prefix cache finds."""
    image_mix: str = ""
    """Image sizes with their shares, such as 448x448:0.7,1280x720:0.3."""
    revision: str = ""
    """Commit, tag or branch of the model; empty: the newest."""
    replay: tuple[Replayed, ...] = field(default=(), compare=False, repr=False)
    """Requests of a trace; never written."""
    trace_requests: int = field(default=0, compare=False, repr=False)
    """Requests that the trace has; never written."""
    asked: tuple[MixRequest, ...] = field(default=(), repr=False)
    """Equally likely requests that stand for those of a mix, for a fleet; never written."""
    prompt: str = ""
    """The question that clients send; empty: the workload's."""
    response_schema: str = ""
    """JSON schema of the answer as text; empty: the workload's."""
    backend: BackendChoice = "auto"
    """Engine; auto: TurboMind where it serves the model."""

    @property
    def planned_rps(self) -> float:
        """The requests/s to plan for: those given, with headroom."""
        return self.rps * self.headroom

    @property
    def time_goals(self) -> tuple[TimeGoal, ...]:
        """The goals for times that were given."""
        ttft, tpot = (self.ttft_ms, self.ttft_at), (self.tpot_ms, self.tpot_at)
        return list_time_goals(self.p99_ms, ttft, tpot, (self.latency_ms, self.latency_at))

    def __post_init__(self) -> None:
        """Raise RequestError for a value that makes no sense."""
        if isinstance(self.load, int | float):
            raise RequestError(f"load {short(self.load)}: expected a name; for a number of requests use concurrency")
        check_field_types(self)
        self._check_numbers()
        self._check_servers()
        if self.revision and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}", self.revision):
            raise RequestError(f"revision {shorten(self.revision, 40)}: write a commit hash, a tag or a branch")
        if self.prompt:
            check_prompt(self.prompt)
        if self.response_schema:
            check_schema("--schema", self.response_schema)
        self._check_lengths()
        read_mix(self.image_mix)
        if not self.calibrated_by.isprintable():
            raise RequestError(
                "--calibrate: the run's id has unprintable characters; write it again with smoke --save-evidence"
            )
        words: tuple[tuple[str, str, Any], ...] = (
            ("--goal", self.goal, Goal),
            ("--kv", self.kv, KvChoice),
            ("--backend", self.backend, BackendChoice),
            *((f"--{figure}", getattr(self, f"{figure}_at"), Quantile) for figure in get_args(Figure)),
        )
        for option, value, allowed in words:
            if value not in get_args(allowed):
                raise RequestError(f"{option} {value!r}: use one of {', '.join(get_args(allowed))}")
        for option, text in (("--gpu", self.gpu), ("--model", self.model), ("--lmdeploy", self.lmdeploy)):
            if not text.strip() or "\0" in text:
                raise RequestError(f"{option}: the name is missing; give one")
            if any("\ud800" <= c <= "\udfff" for c in text):
                raise RequestError(f"{option}: the name is not valid UTF-8; rename it")

    def _check_numbers(self) -> None:
        """Raise RequestError for a number out of range."""
        for option, count, low, high in (
            ("--gpu count", self.gpu_count, 1, MAX_COUNT),
            ("GPUs of a server", self.tp, 0, MAX_COUNT),
            ("--cpus", self.cpus, 1, 4096),
            ("--load", self.concurrency, 0, MAX_CONCURRENCY),
            ("--image count", self.images, -1, MAX_IMAGES),
            ("--image width", self.image_width if self.images > 0 else 1, 1, MAX_SIDE),
            ("--image height", self.image_height if self.images > 0 else 1, 1, MAX_SIDE),
            ("--prompt-tokens", self.prompt_tokens, 0, MAX_TOKENS),
            ("--output-tokens", self.output_tokens, 0, MAX_TOKENS),
            ("--prefix-tokens", self.prefix_tokens, 0, MAX_TOKENS),
            ("--turns", self.turns, 0, MAX_TURNS),
            ("--max-context", self.max_context, 0, MAX_TOKENS),
        ):
            _whole(option, count, low, high)
        if self.images > 0:
            _check_pixels("--image", self.image_width, self.image_height)
        for option, number, most in (
            ("--rps", self.rps, 100_000),
            ("--p99", self.p99_ms, MAX_MS),
            ("--ttft", self.ttft_ms, MAX_MS),
            ("--tpot", self.tpot_ms, MAX_MS),
            ("--latency", self.latency_ms, MAX_MS),
            ("--vram", self.vram_gib, 10_000),
            ("--burstiness", self.burstiness, 100),
        ):
            _real(option, number, most)
        if not 1 <= self.headroom <= 10:
            raise RequestError(f"--headroom {short(self.headroom)}: use a factor from 1 to 10, or a share such as 20%")
        if not 0 <= self.repeated_share <= 1:
            raise RequestError(f"repeated_share {short(self.repeated_share)}: use a share from 0 to 1")
        for scale in (self.host_scale, self.card_scale):
            if not 1 / MAX_SCALE <= scale <= MAX_SCALE:
                raise RequestError(
                    f"--calibrate: factor {short(scale)} is out of range; these runs do not match the request"
                )

    def _check_servers(self) -> None:
        """Raise RequestError for a load given twice, and for GPUs over which no model is split."""
        if self.load and self.concurrency:
            raise RequestError(f"--load {shorten(self.load, 40)} and {self.concurrency} exclude each other; give one")
        if self.tp not in (0, 1, 2, 4, 8, 16) or self.tp > self.gpu_count:
            raise RequestError(f"GPUs of a server {self.tp}: use 1, 2, 4, 8 or 16, up to the host's {self.gpu_count}")

    def _check_lengths(self) -> None:
        """Raise RequestError for lengths that contradict each other."""
        for option, p50, p99 in (
            ("--input-tokens", self.prompt_tokens, self.prompt_p99),
            ("--output-tokens", self.output_tokens, self.output_p99),
        ):
            _whole(option, p99, 0, MAX_TOKENS)
            if p99 and not p50 <= p99:
                raise RequestError(f"{option} {p50}:{p99}: p99 is below p50; write the median first")
            if p99 and not p50:
                raise RequestError(f"{option}: a p99 needs a median; write P50:P99")
        read_lengths(self.output_lengths, MAX_TOKENS)
        prompts = read_lengths(self.input_lengths, MAX_TOKENS)
        shortest = self.prompt_tokens or (prompts[-1] if prompts else 0)
        if self.prefix_tokens and shortest and self.prefix_tokens >= shortest:
            raise RequestError(
                f"--prefix-tokens {self.prefix_tokens}: prompts have {shortest} tokens, prefix included; use "
                "fewer, or raise --input-tokens"
            )


def _check_pixels(option: str, width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise RequestError(
            f"{option} {width}x{height}: LMDeploy's server refuses images above {MAX_PIXELS:,} pixels (Pillow's limit)"
            "; give the size that clients send"
        )


def read_mix(text: str) -> tuple[tuple[int, int, float], ...]:
    """Return width, height and share of each image size of a mix; shares add up to 1. Raises RequestError."""
    sizes = []
    for part in text.split(",") if text else ():
        match = re.fullmatch(r"([0-9]{1,6})x([0-9]{1,6}):([01]?\.?[0-9]{1,12})", part)
        if not match:
            raise RequestError(f"--images {shorten(part, 40)}: write a mix as 448x448:0.7,1280x720:0.3")
        width, height = (int(side) for side in match.groups()[:2])
        _whole("--images side", min(width, height), 1, MAX_SIDE)
        _whole("--images side", max(width, height), 1, MAX_SIDE)
        _check_pixels("--images", width, height)
        sizes.append((width, height, float(match[3])))
    total = math.fsum(share for *_, share in sizes)
    if sizes and (abs(total - 1) > SHARE_SLACK or min(share for *_, share in sizes) <= 0):
        raise RequestError(
            f"--images {shorten(text, 60)}: the shares add up to {total:g}; they must be above 0 and make 1"
        )
    if len(sizes) > MAX_SIZES:
        raise RequestError(f"--images: {len(sizes)} sizes; name up to {MAX_SIZES}")
    return tuple((width, height, share / total) for width, height, share in sizes)


def _whole(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise RequestError(f"{option} {short(value)}: use a whole number from {max(low, 0)} to {high}")


def _real(option: str, value: float, high: float) -> None:
    if value != 0 and not LEAST <= value <= high:  # NaN is in no range
        raise RequestError(f"{option} {short(value)}: use a number above 0 and up to {high:,.0f}")
