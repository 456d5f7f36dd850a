"""What the user asked, checked and in base units."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Goal = Literal["latency", "throughput", "memory", "balanced"]
KvChoice = Literal["auto", "fp16", "int8", "int4"]

MAX_COUNT = 64
MAX_CONCURRENCY = 4096
MAX_TOKENS = 2_000_000
MAX_SIDE = 100_000
MAX_IMAGES = 64
DEFAULT_CPUS = 16
MAX_SCALE = 5.0


class RequestError(Exception):
    """The request makes no sense. The message is one line: what, where, how to mend."""


@dataclass(frozen=True, slots=True)
class Request:
    """One question to the recommender. Times are in ms, sizes in pixels, memory in GiB.

    A 0 means: not given. ``load`` is a named load, or empty when ``concurrency``
    (requests in flight) or ``rps`` (requests a second) was given instead.
    ``host_scale`` and ``card_scale`` are how much longer than predicted the
    host's and the card's work took in runs of the user's own; ``calibrated_by``
    names the records of these, with blanks between.
    """

    gpu: str
    gpu_count: int = 1
    tp: int = 0
    model: str = "internvl3-8b-awq"
    load: str = ""
    concurrency: int = 0
    rps: float = 0.0
    images: int = -1
    image_width: int = 0
    image_height: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    goal: Goal = "balanced"
    p99_ms: float = 0.0
    ttft_ms: float = 0.0
    vram_gib: float = 0.0
    cpus: int = DEFAULT_CPUS
    kv: KvChoice = "auto"
    lmdeploy: str = "0.18.0"
    host_scale: float = 1.0
    card_scale: float = 1.0
    calibrated_by: str = ""

    def __post_init__(self) -> None:
        """Raises RequestError for a number that cannot be meant."""
        _whole("--gpu count", self.gpu_count, 1, MAX_COUNT)
        _whole("cards of a server", self.tp, 0, MAX_COUNT)
        _whole("--cpus", self.cpus, 1, 4096)
        _whole("--load", self.concurrency, 0, MAX_CONCURRENCY)
        _whole("--image count", self.images, -1, MAX_IMAGES)
        _whole("--prompt-tokens", self.prompt_tokens, 0, MAX_TOKENS)
        _whole("--output-tokens", self.output_tokens, 0, MAX_TOKENS)
        _real("--rps", self.rps, 100_000)
        _real("--p99", self.p99_ms, 86_400_000)
        _real("--ttft", self.ttft_ms, 86_400_000)
        _real("--vram", self.vram_gib, 10_000)
        for scale in (self.host_scale, self.card_scale):
            if not 1 / MAX_SCALE <= scale <= MAX_SCALE:
                raise RequestError(
                    f"--calibrate: a factor of {_short(scale)}; those runs are not of this request's kind"
                )
        if not self.calibrated_by.isprintable():
            raise RequestError("--calibrate: the names of its records are no names; calibrate anew")
        if self.images > 0:
            _whole("--image width", self.image_width, 1, MAX_SIDE)
            _whole("--image height", self.image_height, 1, MAX_SIDE)
        for option, value, allowed in (("--goal", self.goal, Goal), ("--kv", self.kv, KvChoice)):
            if value not in get_args(allowed):
                raise RequestError(f"{option} {value!r}: use one of {', '.join(get_args(allowed))}")
        for option, text in (("--gpu", self.gpu), ("--model", self.model), ("--lmdeploy", self.lmdeploy)):
            if not text.strip() or "\0" in text:
                raise RequestError(f"{option}: a name is needed")
            if any("\ud800" <= c <= "\udfff" for c in text):
                raise RequestError(f"{option}: the name is not UTF-8, so no artefact can hold it; rename it")


def _whole(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise RequestError(f"{option} {_short(value)}: use a whole number from {max(low, 0)} to {high}")


def _real(option: str, value: float, high: float) -> None:
    if not math.isfinite(value) or not 0 <= value <= high:
        raise RequestError(f"{option} {_short(value)}: use a number above 0 and up to {high:,.0f}")


def _short(value: float) -> str:
    text = str(value)
    return text if len(text) <= 24 else text[:24] + "..."


def positive_int(option: str, text: str, high: int, low: int = 1) -> int:
    """A whole number of at least ``low`` as typed. Raises RequestError."""
    if not re.fullmatch(r"\+?[0-9]{1,12}", text.strip()) or not low <= int(text) <= high:
        raise RequestError(f"{option} {_quoted(text)}: use a whole number from {low} to {high}")
    return int(text)


def positive_float(option: str, text: str, high: float) -> float:
    """A finite number above 0 as typed. Raises RequestError."""
    try:
        value = float(text) if len(text) <= 40 else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or not 0 < value <= high:
        raise RequestError(f"{option} {_quoted(text)}: use a number above 0 and up to {high:,.0f}")
    return value


MIXED = re.compile(r"[,;+&|/]|\band\b", re.IGNORECASE)
TIMES = re.compile(r"(\d{1,2})\s*[x×*]\s*(\S.*)|(\S.*?)(?<![RG]T)\s*[x×*]\s*(\d{1,2})", re.IGNORECASE)
"""2xH100 and H100x2, but not RTX 40."""


def parse_gpu(text: str) -> tuple[str, int]:
    """``NAME`` or ``NAME:COUNT`` as name and count. Raises RequestError."""
    kinds = [each.strip() for each in MIXED.split(text) if each.strip()]
    if len(kinds) > 1:
        raise RequestError(
            f"--gpu {_quoted(text)}: the cards of a server must be alike (tp); name one kind, such as --gpu "
            f"{_quoted(kinds[0])}; recommend plan takes a --gpu for each kind of host"
        )
    if times := TIMES.fullmatch(text.strip()):
        meant = f"{times[2] or times[3]}:{times[1] or times[4]}"
        raise RequestError(f"--gpu {_quoted(text)}: write NAME:COUNT, such as {_quoted(meant)}")
    name, colon, count = text.rpartition(":")
    if not colon:
        return text, 1
    if not name or ":" in name:
        raise RequestError(f"--gpu {_quoted(text)}: write NAME or NAME:COUNT, such as A100-80G:2")
    if name.strip().casefold() == "auto":
        raise RequestError(f"--gpu {_quoted(text)}: auto counts this machine's cards; leave the number out")
    return name, positive_int("--gpu count", count, MAX_COUNT)


def parse_image(text: str) -> tuple[int, int, int]:
    """``WxH`` or ``WxHxN`` as width, height (pixels) and number of images. Raises RequestError."""
    match = re.fullmatch(r"(\d{1,9})[x×](\d{1,9})(?:[x×](\d{1,9}))?", text.strip(), re.IGNORECASE)
    if not match:
        raise RequestError(f"--image {_quoted(text)}: write WIDTHxHEIGHT or WIDTHxHEIGHTxCOUNT, such as 1280x720")
    width, height = (positive_int("--image side", side, MAX_SIDE) for side in match.groups()[:2])
    return width, height, positive_int("--image count", match[3] or "1", MAX_IMAGES)


def _quoted(text: str) -> str:
    shown = "".join(c if c.isprintable() else "?" for c in text[:40])
    return repr(shown) if len(text) <= 40 else repr(shown + "...")


def read(options: Mapping[str, str], *, text_only: bool, loads: Collection[str]) -> Request:
    """A request from the command line's texts, by option name; ``loads`` are the named ones. Raises RequestError."""
    if not options.get("gpu"):
        raise RequestError("--gpu is needed, such as --gpu A100-80G; recommend --help shows examples")
    values: dict[str, Any] = {name: options[name] for name in ("model", "goal", "kv", "lmdeploy") if name in options}
    values["gpu"], values["gpu_count"] = parse_gpu(options["gpu"])
    values |= _load(options["load"].strip(), loads) if "load" in options else {}
    if text_only:
        if "image" in options:
            raise RequestError("--image and --text-only exclude each other; leave one out")
        values["images"] = 0
    if "image" in options:
        values["image_width"], values["image_height"], values["images"] = parse_image(options["image"])
    for name, most in WHOLE.items():
        if name in options:
            values[name] = positive_int(f"--{name.replace('_', '-')}", options[name], most)
    for name, (field, high) in REAL.items():
        if name in options:
            values[field] = positive_float(f"--{name}", options[name], high)
    return Request(**values)


WHOLE = {"prompt_tokens": MAX_TOKENS, "output_tokens": MAX_TOKENS, "cpus": 4096}
REAL = {
    "rps": ("rps", 100_000.0),
    "p99": ("p99_ms", 86_400_000.0),
    "ttft": ("ttft_ms", 86_400_000.0),
    "vram": ("vram_gib", 10_000.0),
}


def _load(text: str, loads: Collection[str]) -> dict[str, Any]:
    """A named load, or requests in flight."""
    if text.casefold() in loads:
        return {"load": text.casefold()}
    if not text or text[0] in "+-.0123456789":
        return {"concurrency": positive_int("--load", text, MAX_CONCURRENCY)}
    return {"load": text}
