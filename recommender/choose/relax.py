"""Find the smallest change of a request that makes something fit."""

from __future__ import annotations

import math
import re
import shlex
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from packaging.version import Version

from recommender.choose.constraints import list_goal_constraints
from recommender.choose.feasibility import fits, may_fit
from recommender.choose.looser_goals import floor_written, looser_goals
from recommender.choose.request_change import Relaxation, RequestChange, ask
from recommender.choose.select import Candidate, NoCandidate
from recommender.common.units import GIB, MIB
from recommender.estimate.memory_items import usable_bytes, weights
from recommender.knowledge.engines import LABELS
from recommender.knowledge.eras import options_of
from recommender.knowledge.names import PART, resolve_release
from recommender.knowledge.store import Store
from recommender.request.request import Request
from recommender.request.resolved_request import ResolvedRequest, engines_for, serving_engines

if TYPE_CHECKING:
    from recommender.knowledge import records

CARD_COUNTS = (2, 4, 8)
FORMAT = re.compile(r"awq|gptq|int4|fp8|instruct")
"""Words of a model's id that checkpoints of other bits lack or add."""
MOST_CARDS = 3
"""How many larger GPUs are tried one by one, and how many of the rest after them: each takes long."""
AT_ONCE = (16, 64, 256, 1024)
"""Requests at once that are tried for a rate."""
LEAST_PROMPT = 256
"""Tokens below which a shorter prompt is no longer worth an offer."""


def suggest_change(resolved: ResolvedRequest, nothing: NoCandidate) -> RequestChange | None:
    """Return the first change under which something fits, or None.

    Small changes are tried first; where the weights alone exceed the memory, only those that add memory.
    """
    smaller = () if nothing.too_large else _smaller(resolved, nothing.closest)
    return next((change for change, relaxed in chain(smaller, _more(resolved)) if _fits(relaxed)), None)


def _fits(resolved: ResolvedRequest) -> bool:
    """Return whether something fits; at a rate, with any number of requests at once that may serve it."""
    return any(fits(tried) for tried in _at_once(resolved))


def _may_fit(resolved: ResolvedRequest) -> bool:
    """Return whether something may fit, without simulations: nothing that fits is ruled out."""
    return any(may_fit(tried) for tried in _at_once(resolved))


def _at_once(resolved: ResolvedRequest) -> Iterator[ResolvedRequest]:
    """Yield a request with its concurrency and, at a rate, with higher ones."""
    yield resolved
    for count in AT_ONCE if resolved.rps else ():
        if count > resolved.concurrency:
            yield replace(resolved, concurrency=count)


def suggest_others(
    resolved: ResolvedRequest, nothing: NoCandidate, nearest: RequestChange | None
) -> tuple[RequestChange, ...]:
    """Return other ways out that people take: several servers for a rate, a quantised checkpoint, less context."""
    request = resolved.request
    goals = list_goal_constraints(resolved.store)
    if request.rps and nothing.binding.constraint in goals and not request.vram_gib:
        plan = shlex.join(["recommend", "plan", *_plan_words(request, resolved.gpu.id)])
        return (RequestChange(plan, "several servers for the rate"),)
    if nothing.binding.constraint in goals:
        return ()
    found = (next((change for change, tried in way(resolved) if _fits(tried)), None) for way in (_quantised, _shorter))
    return tuple(change for change in found if change and change != nearest)


def _plan_words(request: Request, gpu: str) -> Iterator[str]:
    """Yield the options with which ``plan`` sizes a fleet for the same requests and goals."""
    # The load of a trace is too long to write as options, and the name of its file is not known here.
    usual, traced = Request(gpu=gpu), request.input_lengths or request.output_lengths
    sides = f"{request.image_width}x{request.image_height}" + (f"x{request.images}" if request.images > 1 else "")
    given = (
        ("--trace", "FILE") if traced else ("--rps", f"{request.rps:g}"),
        ("--gpu", f"{gpu}:{request.gpu_count}" if request.gpu_count > 1 else gpu),
        ("--model", request.model),
        ("--workload", request.workload),
        ("--image", request.image_mix or (sides if request.images > 0 else "")),
        ("--input-tokens", _write_lengths(request.prompt_tokens, request.prompt_p99)),
        ("--output-tokens", _write_lengths(request.output_tokens, request.output_p99)),
        ("--prefix-tokens", request.prefix_tokens if not traced else 0),
        ("--turns", request.turns),
        ("--max-context", request.max_context),
        ("--burstiness", f"{request.burstiness:g}" if request.burstiness and not traced else ""),
        ("--cpus", request.cpus if request.cpus != usual.cpus else ""),
        ("--lmdeploy", request.lmdeploy if request.lmdeploy != usual.lmdeploy else ""),
        ("--kv", request.kv if request.kv != usual.kv else ""),
        ("--backend", request.backend if request.backend != usual.backend else ""),
    )
    for option, value in given:
        yield from (option, str(value)) if value else ()
    if not request.images:
        yield "--text-only"
    for goal in request.time_goals:
        yield from goal.with_time(goal.most_ms).split()


def _write_lengths(p50: int, p99: int) -> str:
    return f"{p50}:{p99}" if p99 else str(p50 or "")


def _quantised(resolved: ResolvedRequest) -> Iterator[Relaxation]:
    """Yield the same model's checkpoints of fewer bits, most bits first."""
    own = resolved.model
    if resolved.local:
        return
    siblings = [
        model
        for model in resolved.store.models.values()
        if _bits(model) < _bits(own) and (model.architecture, _name(model)) == (own.architecture, _name(own))
        if (model.text.hidden, model.text.layers) == (own.text.hidden, own.text.layers)
    ]
    for model in sorted(siblings, key=lambda model: (-_bits(model), model.id)):
        change = RequestChange(f"--model {model.id}", f"{model.hub}, {_bits(model)} bits, on the same GPU")
        request = replace(resolved.request, model=model.id)
        engine = engines_for(request, model, resolved.version)[0]
        yield (
            change,
            replace(resolved, request=request, model=model, model_source=model.hub, weight_bytes=0, engine=engine),
        )


def _bits(model: records.Model) -> int:
    return model.quantization[0].bits if model.quantization else 16


def _name(model: records.Model) -> list[str]:
    """Return the words of a model's id that do not say how its weights are stored or that it was tuned to chat."""
    return [word for word in model.id.split("-") if not FORMAT.fullmatch(word)]


def _shorter(resolved: ResolvedRequest) -> Iterator[Relaxation]:
    """Yield requests with half the prompt's text, a quarter and so on."""
    if resolved.varies or resolved.images:
        return
    tokens = resolved.prompt_tokens // 2
    while tokens >= LEAST_PROMPT:
        tokens = floor_written(tokens)
        relaxed = replace(ask(resolved, prompt_tokens=tokens), prompt_tokens=tokens)
        yield RequestChange(f"--input-tokens {tokens}", "shorter prompts"), relaxed
        tokens //= 2


def _other_engine(resolved: ResolvedRequest) -> Iterator[Relaxation]:
    """Yield the engine that was not asked for, if it serves the model."""
    if resolved.request.backend != "auto":
        for engine in engines_for(replace(resolved.request, backend="auto"), resolved.model, resolved.version):
            if engine != resolved.engine:
                change = RequestChange(f"--backend {engine}", "use the other engine")
                yield change, replace(ask(resolved, backend=engine), engine=engine)


def _smaller(resolved: ResolvedRequest, closest: Candidate | None) -> Iterator[Relaxation]:
    yield from _other_engine(resolved)
    if resolved.request.kv != "auto":
        yield RequestChange("--kv auto", "choose the KV cache precision automatically"), ask(resolved, kv="auto")
    yield from looser_goals(resolved, closest)
    clients = math.ceil(resolved.concurrency / resolved.request.headroom)
    while clients > 1:
        clients //= 2
        change = RequestChange(f"--load {clients}", f"limit concurrency to {clients}")
        yield change, replace(resolved, concurrency=math.ceil(clients * resolved.request.headroom))
    yield from newer_releases(resolved)


def _more(resolved: ResolvedRequest) -> Iterator[Relaxation]:
    """Yield changes that add memory, if it then holds the weights.

    More of a shared GPU, more GPUs, larger slices of the same GPU, larger GPUs.
    """
    more = (_more_memory, _more_cards, _larger_slices, _larger_cards)
    for change, relaxed in chain.from_iterable(way(resolved) for way in more):
        if _holds_weights(relaxed):
            yield change, relaxed


def _holds_weights(resolved: ResolvedRequest) -> bool:
    return usable_bytes(resolved) * resolved.request.gpu_count > weights(resolved, 1)


def newer_releases(resolved: ResolvedRequest) -> Iterator[Relaxation]:
    """Yield the first release that serves the model where this one does not, then the newest."""
    later = sorted(version for version in map(Version, resolved.store.releases) if version > resolved.version)
    if not _serves(resolved, resolved.version):
        serving = [version for version in later if _serves(resolved, version)]
        yield from (_release(resolved, version, "the first that serves the model") for version in serving[:1])
    yield from (_release(resolved, version, "") for version in later[-1:])


def _serves(resolved: ResolvedRequest, version: Version) -> bool:
    """Return whether an engine that the request allows is known to serve the model in a release."""
    serving = serving_engines(resolved.model, version)
    return bool(serving) and resolved.request.backend in ("auto", *serving)


def _release(resolved: ResolvedRequest, version: Version, why: str) -> Relaxation:
    """Return the request for another release, with the engine that it would take there."""
    name = str(version)
    asked = ask(resolved, lmdeploy=name)
    engine = engines_for(asked.request, resolved.model, version)[0]
    words = ", ".join(filter(None, (f"use LMDeploy {name}", why)))
    other = f": {LABELS[engine].title}" if engine != resolved.engine else ""
    relaxed = replace(
        asked,
        release=resolve_release(resolved.store, name),
        version=version,
        options=options_of(resolved.store, version),
        engine=engine,
    )
    return RequestChange(f"--lmdeploy {name}", words + other), relaxed


def _more_memory(resolved: ResolvedRequest) -> Iterator[Relaxation]:
    """Yield the smallest larger share of a shared GPU that fits, in whole GiB; nothing if not even the whole GPU does.

    A share that fits still fits when it grows, so a bisection finds it.
    """

    def give(size: int) -> ResolvedRequest:
        return replace(ask(resolved, vram_gib=float(size)), available_bytes=size * GIB)

    asked = resolved.request.vram_gib
    sizes = range(int(asked) + 1, int(resolved.gpu.memory_mib / 1024) + 1) if asked else range(0)
    if sizes and _fits(give(sizes[-1])):
        size = sizes[bisect_left(sizes, True, key=lambda size: _fits(give(size)))]
        yield RequestChange(f"--vram {size}", f"give it {size} GiB of the GPU"), give(size)


def _more_cards(resolved: ResolvedRequest) -> Iterator[Relaxation]:
    if PART in resolved.gpu.id:  # a process sees only one MIG slice
        return
    for count in CARD_COUNTS:
        if count > resolved.request.gpu_count:
            change = RequestChange(f"--gpu {resolved.gpu.id}:{count}", f"use {count} GPUs")
            yield change, ask(resolved, gpu_count=count)


def _larger_slices(resolved: ResolvedRequest) -> Iterator[Relaxation]:
    """Yield the larger MIG slices of the same GPU, the smallest first."""
    own, (card, part, _) = resolved.gpu, resolved.gpu.id.partition(PART)
    sizes = sorted((gpu.memory_mib, gpu.id) for gpu in resolved.store.gpus.values() if gpu.id.startswith(card + PART))
    for size, name in sizes if part else ():
        if (size, name) > (own.memory_mib, own.id):
            yield _moved(move_to(resolved, resolved.store.gpus[name], 1))


def _larger_cards(resolved: ResolvedRequest) -> Iterator[Relaxation]:
    """Yield one larger or newer GPU, smallest first; then several of one.

    Of GPUs with equal memory and generation, only the first is tried.
    """
    gpus = distinct_gpus(resolved.store)
    if not _any_helps(resolved, gpus):
        return
    current, least = Version(resolved.gpu.compute_capability), resolved.request.gpu_count
    places = ((gpu, count) for count in dict.fromkeys((least, *CARD_COUNTS)) if count >= least for gpu in gpus)
    larger = (
        (gpu, count, move_to(resolved, gpu, count))
        for gpu, count in places
        if Version(gpu.compute_capability) > current or gpu.memory_mib * MIB > resolved.available_bytes
    )
    likely = (place for place in larger if _holds_weights(place[2]) and _may_fit(place[2]))
    first, others = [*islice(likely, MOST_CARDS)], [*likely] if resolved.request.time_goals or resolved.rps else []
    for _, _, moved in (*first, *others[:: -(-len(others) // MOST_CARDS) or 1]):
        yield _moved(moved)


def _moved(moved: ResolvedRequest) -> Relaxation:
    """Return a request on other GPUs, and the change."""
    gpu, request = moved.gpu, moved.request
    number, times = (f":{request.gpu_count}", f"{request.gpu_count} x ") if request.gpu_count > 1 else ("", "")
    vram = f" --vram {request.vram_gib:g}" if request.vram_gib else ""
    return RequestChange(f"--gpu {gpu.id}{number}{vram}", f"use {times}{gpu.name}"), moved


def distinct_gpus(store: Store, above_mib: int = 0) -> list[records.Gpu]:
    """Return whole GPUs of more memory than this, the smallest first; of GPUs alike only the first."""
    distinct: dict[tuple[str, int], records.Gpu] = {}
    for gpu in sorted(store.gpus.values(), key=lambda gpu: (gpu.memory_mib, gpu.id)):
        if PART not in gpu.id and gpu.memory_mib > above_mib:
            distinct.setdefault((gpu.compute_capability, gpu.memory_mib // 1024), gpu)
    return list(distinct.values())


def _any_helps(resolved: ResolvedRequest, gpus: Sequence[records.Gpu]) -> bool:
    """Return whether eight of any generation's largest GPU would do.

    Otherwise no other GPU is worth trying.
    """
    largest = {gpu.compute_capability: gpu for gpu in gpus}
    count = max(resolved.request.gpu_count, CARD_COUNTS[-1])
    by_size = sorted(largest.values(), key=lambda gpu: -gpu.memory_mib)
    moved = (move_to(resolved, gpu, count) for gpu in by_size)
    return any(_holds_weights(place) and _may_fit(place) for place in moved)


def move_to(resolved: ResolvedRequest, gpu: records.Gpu, count: int) -> ResolvedRequest:
    """Return the same request on ``count`` of another GPU, with all its memory, in whole GiB where some was asked."""
    vram = gpu.memory_mib // 1024 if resolved.request.vram_gib else 0
    moved = ask(resolved, gpu=gpu.id, gpu_count=count, vram_gib=float(vram))
    return replace(moved, gpu=gpu, available_bytes=vram * GIB or gpu.memory_mib * MIB)
