"""Read a request from the command line's texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias, get_args

from recommender.common.errors import RequestError
from recommender.common.text import shorten
from recommender.common.units import IN_GIB, MS, PER_SECOND, read_quantity
from recommender.request.lengths import parse_tokens
from recommender.request.question import check_prompt, read_schema
from recommender.request.request import (
    LEAST,
    MAX_CONCURRENCY,
    MAX_COUNT,
    MAX_IMAGES,
    MAX_SIDE,
    MAX_TOKENS,
    MAX_TURNS,
    Quantile,
    Request,
)

Read: TypeAlias = Callable[[str, str], dict[str, Any]]
"""From an option's name and text to fields of a request. Raises RequestError."""
DECIMAL = re.compile(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?", re.ASCII | re.IGNORECASE)
"""A number as people write it: Python's float also reads 1_000, nan and the digits of other scripts."""


def positive_int(option: str, text: str, high: int, low: int = 1) -> int:
    """Return a whole number of at least ``low`` as typed. Raises RequestError."""
    if not re.fullmatch(r"\+?[0-9]{1,12}", text.strip()) or not low <= int(text) <= high:
        raise RequestError(f"{option} {shorten(text, 40)}: use a whole number from {low} to {high}")
    return int(text)


def positive_float(option: str, text: str, high: float, least: float = LEAST) -> float:
    """Return a finite number above 0, of at least ``least``, as typed. Raises RequestError."""
    value = float(text) if len(text) <= 40 and DECIMAL.fullmatch(text.strip()) else math.nan
    if not least <= value <= high:  # NaN is in no range
        low = f"of at least {least:g}" if 0 < value < least or least > LEAST else "above 0"
        raise RequestError(f"{option} {shorten(text, 40)}: use a number {low} and up to {high:,.10g}")
    return value


MIXED = re.compile(r"[,;+&|/]|\band\b", re.IGNORECASE)
TIMES = re.compile(r"(\d{1,2})\s*[x×*]\s*(\S.*)|(\S.*?)(?<![RG]T)\s*[x×*]\s*(\d{1,2})", re.IGNORECASE)
"""2xH100 and H100x2, but not RTX 40."""


def parse_gpu(text: str) -> tuple[str, int]:
    """Return name and count of ``NAME``, ``NAME:COUNT`` or ``auto``. Raises RequestError, or NoGpu for ``auto``."""
    if text.strip().casefold() == "auto":
        from recommender.request.detect_gpu import detect

        return detect()
    kinds = [kind.strip() for kind in MIXED.split(text) if kind.strip()]
    if len(kinds) > 1:
        raise RequestError(
            f"--gpu {shorten(text, 40)}: all GPUs of a server must be the same model (tp); name one, such as "
            f"--gpu {shorten(kinds[0], 40)}; recommend plan takes several --gpu"
        )
    if times := TIMES.fullmatch(text.strip()):
        meant = f"{times[2] or times[3]}:{times[1] or times[4]}"
        raise RequestError(f"--gpu {shorten(text, 40)}: write NAME:COUNT, such as {shorten(meant, 40)}")
    name, colon, count = text.rpartition(":")
    if not colon:
        return text, 1
    if not name or ":" in name:
        raise RequestError(f"--gpu {shorten(text, 40)}: write NAME or NAME:COUNT, such as A100-80G:2")
    if name.strip().casefold() == "auto":
        raise RequestError(f"--gpu {shorten(text, 40)}: auto detects the count; leave the number out")
    return name, positive_int("--gpu count", count, MAX_COUNT)


def parse_image(text: str) -> tuple[int, int, int]:
    """Return width, height (pixels) and number of images of ``WxH`` or ``WxHxN``. Raises RequestError."""
    match = re.fullmatch(r"(\d{1,9})[x×](\d{1,9})(?:[x×](\d{1,9}))?", text.strip(), re.IGNORECASE)
    if not match:
        raise RequestError(f"--image {shorten(text, 40)}: write WIDTHxHEIGHT or WIDTHxHEIGHTxCOUNT, such as 1280x720")
    width, height = (positive_int("--image side", side, MAX_SIDE) for side in match.groups()[:2])
    return width, height, positive_int("--image count", match[3] or "1", MAX_IMAGES)


def parse_images(text: str) -> dict[str, Any]:
    """Return the request's fields for one size or a mix, ``SIZE:SHARE,SIZE:SHARE``. Raises RequestError."""
    if not {",", ":"} & set(text):
        width, height, images = parse_image(text)
        return {"image_width": width, "image_height": height, "images": images}
    sizes = []
    for part in text.split(","):
        size, colon, share = part.partition(":")
        if not colon:
            raise RequestError(
                f"--images {shorten(text, 60)}: {shorten(part, 40)} has no share; write 448x448:0.7,1280x720:0.3"
            )
        percent = share.strip().removesuffix("%")
        value = positive_float("--images share", percent, 100) / (100 if percent != share.strip() else 1)
        sizes.append((*parse_image(size), value))
    if len({images for _, _, images, _ in sizes}) > 1:
        raise RequestError(f"--images {shorten(text, 60)}: each size needs the same number of images a request")
    width, height, images, _ = max(sizes, key=lambda size: size[0] * size[1])
    mix = ",".join(f"{wide}x{high}:{share:.6g}" for wide, high, _, share in sizes)
    return {"image_width": width, "image_height": height, "images": images, "image_mix": mix}


def read(
    options: Mapping[str, str], *, text_only: bool, loads: Collection[str], workloads: Collection[str] = ()
) -> Request:
    """Return a request from the command line's texts, by option.

    ``loads`` and ``workloads`` are the named ones. Raises RequestError.
    """
    if not options.get("gpu"):
        raise RequestError("--gpu is missing, such as --gpu A100-80G; see recommend --help")
    values: dict[str, Any] = {
        name: options[name] for name in ("model", "goal", "kv", "lmdeploy", "revision", "backend") if name in options
    }
    values["gpu"], values["gpu_count"] = parse_gpu(options["gpu"])
    values |= _load(options["load"].strip(), loads) if "load" in options else {}
    values |= _workload(options["workload"].strip(), workloads) if "workload" in options else {}
    if text_only:
        if "image" in options:
            raise RequestError("--image and --text-only exclude each other; remove one")
        values["images"] = 0
    if "image" in options:
        values |= parse_images(options["image"])
    for name, read_option in READ.items():
        if name in options:
            values |= read_option(f"--{name.replace('_', '-')}", options[name])
    return Request(**values)


def _whole(field: str, most: int) -> Read:
    return lambda option, text: {field: positive_int(option, text, most)}


def _real(field: str, most: float) -> Read:
    return lambda option, text: {field: positive_float(option, text, most)}


def _tokens(field: str, spread: str = "") -> Read:
    def read_tokens(option: str, text: str) -> dict[str, Any]:
        p50, p99 = parse_tokens(option, text, MAX_TOKENS, bool(spread))
        if p99 and not spread:
            raise RequestError(f"{option} {shorten(text, 40)}: use one number; it does not vary")
        return {field: p50} | ({spread: p99} if p99 else {})

    return read_tokens


def _goal(name: str) -> Read:
    def read_goal(option: str, text: str) -> dict[str, Any]:
        at, time = parse_goal(option, text)
        return {f"{name}_ms": time} | ({f"{name}_at": at} if at != "mean" else {})

    return read_goal


READ: Mapping[str, Read] = {
    "prompt_tokens": _tokens("prompt_tokens", "prompt_p99"),
    "output_tokens": _tokens("output_tokens", "output_p99"),
    "prefix_tokens": _tokens("prefix_tokens"),
    "max_context": _tokens("max_context"),
    "turns": _whole("turns", MAX_TURNS),
    "cpus": _whole("cpus", 4096),
    "rps": lambda option, text: {"rps": parse_rate(option, text)},
    "burstiness": _real("burstiness", 100.0),
    "p99": lambda option, text: {"p99_ms": parse_time(option, text)},
    "ttft": _goal("ttft"),
    "tpot": _goal("tpot"),
    "latency": _goal("latency"),
    "vram": lambda option, text: {"vram_gib": _quantity(option, text, IN_GIB, 10_000, "20, 20GiB or 20GB")},
    "prompt": lambda _option, text: _prompt(text),
    "schema": read_schema,
    "headroom": lambda _option, text: {"headroom": parse_headroom(text)},
}


def _quantity(option: str, text: str, units: Mapping[str, float], most: float, such_as: str) -> float:
    value = read_quantity(text, units)
    if value is None or not LEAST <= value <= most:
        raise RequestError(f"{option} {shorten(text, 40)}: use a number above 0, such as {such_as}")
    return value


def parse_time(option: str, text: str) -> float:
    """Return a time in ms, as ``500``, ``500ms`` or ``2s``. Raises RequestError."""
    return _quantity(option, text, MS, 86_400_000, "500, 500ms or 2s")


def parse_rate(option: str, text: str) -> float:
    """Return requests/s of ``2``, ``2/s``, ``30/min`` or ``90/h``. Raises RequestError."""
    number, _, time = text.partition("/")
    factor = PER_SECOND.get(time.strip().casefold())
    if factor is None:
        raise RequestError(f"{option} {shorten(text, 40)}: write requests/s such as 2, or as 30/min or 90/h")
    return positive_float(option, number, 100_000.0) * factor


def parse_goal(option: str, text: str) -> tuple[str, float]:
    """Return quantile and ms of ``[QUANTILE:]TIME``. Raises RequestError."""
    at, colon, time = text.partition(":")
    at = at.strip().casefold()
    if colon and (at not in get_args(Quantile) or not time.strip()):
        raise RequestError(f"{option} {shorten(text, 40)}: write mean, p50, p90 or p99, a colon and a time, as p99:2s")
    return (at, parse_time(option, time)) if colon else ("mean", parse_time(option, text))


def parse_headroom(text: str) -> float:
    """Return the factor of ``1.2`` or ``20%``. Raises RequestError."""
    share = text.strip().removesuffix("%")
    if share != text.strip():
        return 1 + positive_float("--headroom", share, 900) / 100
    return positive_float("--headroom", text, 10)


def _prompt(text: str) -> dict[str, Any]:
    check_prompt(text)
    return {"prompt": text}


def _load(text: str, loads: Collection[str]) -> dict[str, Any]:
    """Return a named load, or a number of concurrent requests."""
    if text.casefold() in loads:
        return {"load": text.casefold()}
    if not text or text[0] in "+-.0123456789":
        return {"concurrency": positive_int("--load", text, MAX_CONCURRENCY)}
    return {"load": text}


def _workload(text: str, workloads: Collection[str]) -> dict[str, Any]:
    if ":" in text:
        raise RequestError(f"--workload {shorten(text, 40)}: a mix is for recommend plan; name one workload")
    if text.casefold() not in workloads:
        raise RequestError(f"--workload {shorten(text, 40)}: use one of {', '.join(sorted(workloads))}")
    return {"workload": text.casefold()}
