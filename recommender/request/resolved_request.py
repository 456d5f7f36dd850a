"""Resolve a request against the knowledge."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from packaging.version import Version

from recommender.common.errors import RequestError, UnknownName
from recommender.common.fast_replace import fast_replace
from recommender.common.text import did_you_mean, shorten
from recommender.common.units import GIB, MIB
from recommender.knowledge import conditions
from recommender.knowledge.engines import LABELS, EngineName
from recommender.knowledge.eras import options_of, within
from recommender.knowledge.names import PART, resolve_gpu, resolve_model, resolve_release
from recommender.knowledge.store import Store
from recommender.request.image_tokens import image_tokens, most_image_tokens, tiles
from recommender.request.load_lengths import exceeds_context, prompt_in_turn, resolve_lengths, total_variance
from recommender.request.request import DEFAULT_CPUS, Request, read_mix

if TYPE_CHECKING:
    from recommender.knowledge import records

HOST_GPUS = 8
"""GPUs of a usual large host; few have more."""


SIZE_STEPS = 10
"""Equal steps in which smaller images are tried where the context does not hold them."""


@dataclass(frozen=True)
class ResolvedRequest:
    """A request with its names resolved and its tokens counted.

    ``weight_bytes`` is exact where the checkpoint's headers were read, else 0.
    ``options`` holds the era of each option that the release has, by flag id.

    ``prompt_tokens`` and ``output_tokens`` are means; ``prompt_lengths`` and ``output_lengths`` are ascending, equally
    likely lengths where they vary. ``image_sizes`` are width, height and share where sizes differ; ``image_width`` and
    ``image_height`` are then the largest. Of the prompt's text ``prefix_tokens`` are the same in every request.
    ``streamed_share`` of the answers are streamed. ``engine`` is the one that will run the model.
    ``workload`` is the id of the record that filled what was not given.
    """

    request: Request
    store: Store
    release: records.Release
    version: Version
    gpu: records.Gpu
    notes: tuple[str, ...]
    model: records.Model
    model_source: str
    weight_bytes: int
    images: int
    image_width: int
    image_height: int
    prompt: str
    prompt_tokens: int
    output_tokens: int
    response_schema: str
    concurrency: int
    available_bytes: int
    options: Mapping[str, records.Era]
    prompt_lengths: tuple[int, ...] = ()
    output_lengths: tuple[int, ...] = ()
    prefix_tokens: int = 0
    turns: int = 1
    max_context: int = 0
    rps: float = 0.0
    burstiness: float = 1.0
    image_sizes: tuple[tuple[int, int, float], ...] = ()
    streamed_share: float = 1.0
    engine: EngineName = "turbomind"
    workload: str = ""

    @property
    def local(self) -> bool:
        """Whether the model is a folder of this machine; its path is absolute."""
        return self.model_source.startswith("/")

    @property
    def prompts(self) -> tuple[int, ...]:
        """The equally likely lengths of a first prompt's text, in tokens, ascending."""
        return self.prompt_lengths or (self.prompt_tokens,)

    @property
    def outputs(self) -> tuple[int, ...]:
        """The equally likely lengths of an answer, in tokens, ascending."""
        return self.output_lengths or (self.output_tokens,)

    @property
    def varies(self) -> bool:
        """Whether requests differ in length, share a prefix, or belong to conversations."""
        repeats = self.prefix_tokens or self.turns > 1 or self.request.repeated_share
        return bool(self.prompt_lengths or self.output_lengths or repeats)

    def prompt_in_turn(self, prompt: int, output: int, turn: int) -> int:
        """Return the text tokens of a conversation's turn; the first is 0.

        Each turn repeats what was said before and adds as much new text as the first had beside its prefix.
        """
        return prompt_in_turn(prompt, output, turn, self.prefix_tokens, self.max_context)

    def longest(self) -> ResolvedRequest:
        """Return the case with every prompt and answer as long as the longest."""
        if not (self.prompt_lengths or self.output_lengths or self.max_context) and self.turns == 1:
            return self
        prompt, output = self.prompts[-1], self.outputs[-1]
        text = self.prompt_in_turn(prompt, output, self.turns - 1)
        return fast_replace(
            self, prompt_tokens=text, output_tokens=output, prompt_lengths=(), output_lengths=(), turns=1
        )

    def longest_prompt(self) -> ResolvedRequest:
        """Return the case with every prompt as long as the longest, beside the shortest answer."""
        shortest = fast_replace(self, output_lengths=(), output_tokens=self.outputs[0])
        return shortest.longest()

    def total_variance(self) -> float:
        """Return the variance of ``total_tokens`` over the requests."""
        return total_variance(self.prompts, self.outputs, self.turns, self.prefix_tokens, self.max_context)

    @property
    def vision(self) -> records.VisionShape | None:
        """The vision encoder, or None for a text model."""
        return self.model.vision[0] if self.model.vision else None

    @property
    def mean_images(self) -> float:
        """The images of a request, on average; those of a mix are at most ``images``."""
        asked = self.request.asked
        return sum(each.images for each in asked) / len(asked) if asked else self.images

    def each_size(self) -> list[tuple[ResolvedRequest, float]]:
        """Return the request with images of each size, and the share of requests that have it."""
        sizes = self.image_sizes or ((self.image_width, self.image_height, 1.0),)
        return [
            (fast_replace(self, image_width=width, image_height=height, image_sizes=()), share)
            for width, height, share in sizes
        ]

    def tiles(self, max_tiles: int = 0) -> int:
        """Return the tiles of one image of the request, the thumbnail counted; 0 without images."""
        if not self.images or self.vision is None:
            return 0
        return tiles(self.vision, self.image_width, self.image_height, max_tiles or None)

    def image_tokens(self, max_tiles: int = 0) -> int:
        """Return the tokens of all images of one request."""
        if not self.images or self.vision is None:
            return 0
        return self.images * image_tokens(self.vision, self.image_width, self.image_height, max_tiles or None)

    def input_tokens(self, max_tiles: int = 0) -> int:
        """Return the tokens of one request's prompt: template, text, images and the markers around them."""
        text = self.prompt_tokens + self.model.chat_tokens
        if not self.images or self.vision is None:
            return text
        return self.image_tokens(max_tiles) + self.images * self.vision.wrapper_tokens + text

    def total_tokens(self, max_tiles: int = 0) -> int:
        """Return the tokens that one request holds in the KV cache when it ends."""
        return self.input_tokens(max_tiles) + self.output_tokens

    def largest_tokens(self, max_tiles: int = 0) -> int:
        """Return ``total_tokens`` with each image at its most tiles: what a larger photo would need."""
        if not self.images or self.vision is None:
            return self.total_tokens()
        image = most_image_tokens(self.vision, max_tiles or None)
        return max(0, self.images * image - self.image_tokens(max_tiles)) + self.total_tokens(max_tiles)


def _assumed(request: Request, model: records.Model) -> tuple[str, ...]:
    """Return the assumptions that matter, for the report."""
    cores = f"assuming a host of {DEFAULT_CPUS} CPU cores (pass --cpus to change)"
    images = request.max_context and request.images and model.vision
    context = ("--max-context limits text; images come on top",) if images else ()
    host = f"taking all {request.gpu_count} GPUs to be in one host: no output here spreads a model over several"
    hosts = (host,) if request.gpu_count > HOST_GPUS else ()
    return (*context, *hosts, *((cores,) if request.cpus == DEFAULT_CPUS else ()))


def resolve_request(
    request: Request, store: Store, local: tuple[records.Model, int, str] | None = None
) -> ResolvedRequest:
    """Return a request with its names resolved. ``local`` is a checkpoint folder's model, exact bytes and path.

    Raises UnknownName or RequestError.
    """
    release = resolve_release(store, request.lmdeploy, "--lmdeploy")
    version = conditions.version(release.id)
    gpu, notes = resolve_gpu(store, request.gpu)
    if PART in gpu.id and request.gpu_count > 1:
        raise RequestError(f"--gpu {shorten(request.gpu)}: a process can use one MIG slice only; ask for one")
    model, exact, source = local or (resolve_model(store, request.model), 0, "")
    if request.revision and source:
        raise RequestError(f"revision {request.revision}: --model is a folder, which has none; leave it out")
    concurrency = request.concurrency
    if request.load:
        if request.load not in store.loads:
            known = ", ".join(sorted(store.loads, key=lambda name: store.loads[name].concurrency))
            near = did_you_mean(request.load, store.loads, f"use a number, or one of {known}")
            raise UnknownName(f"--load: unknown load {shorten(request.load)}{near}")
        concurrency = store.loads[request.load].concurrency
    workload = _workload_of(request, model, store)
    images, width, height = workload.images, workload.image_width, workload.image_height
    if request.images >= 0:
        images, width, height = request.images, request.image_width, request.image_height
    if images and not model.vision:
        option = f"--workload {workload.id}" if request.images < 0 else "--workload" if request.asked else "--image"
        raise RequestError(f"{option}: {model.hub} is a text model; remove {option}, or name a vision model")
    lengths = resolve_lengths(request, workload, model)
    engine = engines_for(request, model, version)[0]
    memory = gpu.memory_mib * MIB
    available = int(request.vram_gib * GIB)
    if available > memory:
        raise RequestError(f"--vram {request.vram_gib:g}: {gpu.name} has {memory / GIB:.1f} GiB; ask for less")
    return ResolvedRequest(
        request=request,
        store=store,
        release=release,
        version=version,
        gpu=gpu,
        notes=(*notes, *_assumed(request, model), *lengths.notes, *_why_engine(request, engine, model, release.id)),
        workload=workload.id,
        model=model,
        model_source=source or model.hub,
        weight_bytes=exact,
        images=images,
        image_width=width if images else 0,
        image_height=height if images else 0,
        prompt=request.prompt or (workload if images or not workload.images else store.workloads["text"]).prompt,
        response_schema=request.response_schema or (workload.response_schema if images and not request.prompt else ""),
        concurrency=math.ceil((concurrency or 1) * request.headroom),
        available_bytes=available if request.vram_gib else memory,
        options=options_of(store, version),
        **lengths.fields(),
        burstiness=request.burstiness or workload.burstiness,
        image_sizes=read_mix(request.image_mix) if images else (),
        engine=engine,
    )


def resolve_with_checkpoint(request: Request, store: Store) -> ResolvedRequest:
    """Return a request with its names resolved; a model that is a folder is read from its files.

    Raises UnknownName, RequestError or CheckpointError.
    """
    try:
        resolve_model(store, request.model)
    except UnknownName:
        from recommender.request.model_folder import find_folder, looks_like_path, shorten_path
        from recommender.request.unknown_model import explain_unknown, explain_unserved

        folder = find_folder(request.model)
        if folder:
            from recommender.request import checkpoint

            return resolve_request(replace(request, model=folder), store, checkpoint.read(Path(folder), store))
        if looks_like_path(request.model):
            shown = shorten_path(request.model)
            if unserved := explain_unserved(Path(request.model).name):
                raise UnknownName(f"--model: {shown}: {unserved}") from None
            raise UnknownName(f"--model: {shown} is not a folder with a config.json") from None
        release = resolve_release(store, request.lmdeploy, "--lmdeploy")
        raise UnknownName(explain_unknown(store, request.model, release.id)) from None
    return resolve_request(request, store)


def check_context(resolved: ResolvedRequest) -> None:
    """Raise RequestError if the model's context does not hold the longest text with its images and answer."""
    longest, model = resolved.longest(), resolved.model
    tokens = longest.prompt_tokens + longest.output_tokens
    if tokens > model.text.max_positions - model.chat_tokens:
        raise exceeds_context(tokens, model)
    if longest.total_tokens() > model.text.max_positions:
        offers = ", ".join(_smaller_images(longest))
        raise RequestError(
            f"the images and the text take up to {longest.total_tokens():,} tokens, but {model.id} has a context of "
            f"{model.text.max_positions:,}; {f'nearest that fit: {offers}' if offers else 'ask for less text'}"
        )


def _smaller_images(resolved: ResolvedRequest) -> Iterator[str]:
    """Yield the options for the most images that the context holds, and for as many of the largest size that fits."""
    width, height = resolved.image_width, resolved.image_height
    fewer = ((width, height, images) for images in range(resolved.images - 1, 0, -1))
    smaller = [(width * n // SIZE_STEPS or 1, height * n // SIZE_STEPS or 1) for n in range(SIZE_STEPS - 1, 0, -1)]
    if resolved.vision and not resolved.vision.pixels:  # smaller ones of this shape may be cut into as many tiles
        smaller.append((resolved.vision.image, resolved.vision.image))
    for sizes in (fewer, ((*size, resolved.images) for size in smaller)):
        for wide, high, images in sizes:
            tried = fast_replace(resolved, image_width=wide, image_height=high, images=images)
            if tried.total_tokens() <= resolved.model.text.max_positions:
                yield f"--image {wide}x{high}{f'x{images}' if images > 1 else ''}"
                break


def _why_engine(request: Request, engine: EngineName, model: records.Model, release: str) -> tuple[str, ...]:
    """Return why another engine than LMDeploy's default runs the model, for the report."""
    if request.backend != "auto" or engine == "turbomind":
        return ()
    return (f"{LABELS[engine].title}: TurboMind {release} does not serve {model.architecture}",)


def engines_for(request: Request, model: records.Model, version: Version) -> tuple[EngineName, ...]:
    """Return the engines to try, best first: the one asked for, else those that serve the model in the release.

    TurboMind comes first, also where neither is known to serve the model: a constraint then says so.
    """
    if request.backend != "auto":
        return (request.backend,)
    return serving_engines(model, version) or ("turbomind",)


def serving_engines(model: records.Model, version: Version) -> tuple[EngineName, ...]:
    """Return the engines that are known to serve a model in a release, TurboMind first."""
    serving = {support.engine for support in model.support if within(support.since, support.until, version)}
    return tuple(engine for engine in get_args(EngineName) if engine in serving)


def _workload_of(request: Request, model: records.Model, store: Store) -> records.Workload:
    """Return the request's workload; without one that of the model's kind. Raises UnknownName."""
    name = request.workload or ("vision-json" if model.vision and request.images != 0 else "text")
    if name not in store.workloads:
        raise UnknownName(f"--workload: unknown workload {shorten(name)}{did_you_mean(name, store.workloads)}")
    return store.workloads[name]
