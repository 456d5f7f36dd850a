"""Give predictions of speed a range, and say what they are based on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from recommender.estimate import coverage
from recommender.estimate.configuration import Configuration
from recommender.request.resolved_request import ResolvedRequest

if TYPE_CHECKING:
    from recommender.knowledge import records
    from recommender.knowledge.store import Store

Basis: TypeAlias = Literal[
    "modelled from measurements on the same GPU",
    "modelled from measurements of other kinds of models",
    "modelled from measurements of fewer cards a server",
    "calibrated by runs of your own",
    "extrapolated from datasheets",
]

UNLIKE: Mapping[Basis, str] = {"modelled from measurements of other kinds of models": "unmeasured-kind-spread"}
"""Coefficients that widen a range for another reason than an unmeasured GPU."""
UNTESTED = 2.0
"""Factor on both ends of a figure for which there are no held-out errors."""


@dataclass(frozen=True, slots=True)
class Range:
    """A predicted figure: its value, and the low and high end of its range."""

    value: float
    """Predicted value."""
    low: float
    """Low end of the range."""
    high: float
    """High end of the range."""


def find_basis(resolved: ResolvedRequest, config: Configuration) -> Basis:
    """Return what a prediction is based on."""
    if _calibrated(resolved):
        return "calibrated by runs of your own"
    return next(_list_unlike(resolved, config), "modelled from measurements on the same GPU")


def _calibrated(resolved: ResolvedRequest) -> bool:
    request = resolved.request
    return bool(request.calibrated_by) or (request.host_scale, request.card_scale) != (1.0, 1.0)


def _list_unlike(resolved: ResolvedRequest, config: Configuration) -> Iterator[Basis]:
    """Yield how a prediction differs from every measured run of its engine, what matters most first.

    A user's own runs calibrate the GPU, so they replace measurements of it, but not
    those of several GPUs per server or of other kinds of models.
    """
    own, store, engine = _calibrated(resolved), resolved.store, config.backend
    if not own and resolved.gpu.id not in coverage.list_measured_gpus(store, engine):
        yield "extrapolated from datasheets"
    elif not coverage.is_group_measured(store, resolved.gpu, config.tp, engine) and not (own and config.tp == 1):
        yield "modelled from measurements of fewer cards a server"
    if not coverage.is_speed_measured(store, resolved.model, engine):
        yield "modelled from measurements of other kinds of models"


def derive_rate(latency: Range, rps: float) -> Range:
    """Return requests a second of servers that run one request at a time each.

    Its range follows from that of the latency.
    """
    return Range(rps, rps * latency.value / latency.high, rps * latency.value / latency.low)


def find_spread(model: records.Model) -> str:
    """Return the coefficient that widens a model's ranges on GPUs, or on groups of them, that were not measured.

    Published benchmarks of other GPUs are of dense text models. They confirm 16-bit weights better than 4-bit ones;
    what they do not cover gets the wider range.
    """
    covered = not (model.quantization or model.text.mixture or model.vision)
    return "unmeasured-gpu-spread" if covered else "unmeasured-gpu-spread-other"


def find_widening(resolved: ResolvedRequest, config: Configuration, host_bound: bool = False) -> float:
    """Return the factor that widens both ends where nothing similar was measured: the largest that applies.

    ``host_bound``: handing images to the PyTorch engine decides a load, which hosts do at speeds of their own.
    """
    spreads = [UNLIKE.get(unlike) or find_spread(resolved.model) for unlike in _list_unlike(resolved, config)]
    if host_bound and not _calibrated(resolved):
        spreads.append("pytorch-image-spread")
    return max((resolved.store.coefficients[spread].value for spread in spreads), default=1.0)


def make_range(store: Store, name: str, value: float, widening: float) -> Range:
    """Return a figure with the range of its held-out errors, times ``widening``."""
    residual = store.residuals.get(name)
    low, high = (residual.low, residual.high) if residual else (1 / UNTESTED, UNTESTED)
    return Range(value, value * min(low, 1.0) / widening, value * max(high, 1.0) * widening)


def remove_impossible(
    figures: Mapping[str, Range], first: Range, step: Range, concurrency: int, output_tokens: int
) -> dict[str, Range]:
    """Return the ranges of the figures of ``Speed``, by name, without what no server can do.

    ``first`` and ``step`` are TTFT and time between tokens of a request alone. Each figure has held-out errors of its
    own, so ends of different figures may contradict each other:

    - load does not make a request faster than alone;
    - 99 % of the requests take no less than the mean, nor does an answer than its first token;
    - the later tokens of an answer take no longer than the answer;
    - by Little's law, N requests in flight that take at least T give at most N / T.

    Values are not changed; they keep these rules already, and every range holds its value.
    """
    latency = _at_least(figures["latency_ms"], figures["alone_ms"])
    ttft = _up_to(_at_least(figures["ttft_ms"], first), latency.high)
    token = _at_least(figures["token_ms"], step)
    if output_tokens > 1:
        token = _up_to(token, latency.high / (output_tokens - 1))
    # An answer takes at least the shortest TTFT plus the shortest time of each later token.
    least = ttft.low + (output_tokens - 1) * token.low
    latency = replace(latency, low=min(max(latency.low, least), latency.value))
    return {
        **figures,
        "latency_ms": latency,
        "p99_ms": _at_least(figures["p99_ms"], latency),
        "ttft_ms": ttft,
        "token_ms": token,
        "rps": _up_to(figures["rps"], 1e3 * concurrency / latency.low),
    }


def _at_least(figure: Range, other: Range) -> Range:
    """Return a range whose ends are no lower than those of another figure."""
    return Range(figure.value, min(max(figure.low, other.low), figure.value), max(figure.high, other.high))


def _up_to(figure: Range, most: float) -> Range:
    """Return a range that ends at ``most`` at the latest, but holds its value."""
    high = max(min(figure.high, most), figure.value)
    return Range(figure.value, min(figure.low, high), high)
