"""Resolves a request against the knowledge: the facts of this case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from packaging.version import Version

from recommender.request import DEFAULT_CPUS, Request, RequestError
from recommender.store import PART, Store, UnknownName, did_you_mean, names, normal, resolve, shorten
from recommender.tokens import image_tokens, most_tiles, tiles

if TYPE_CHECKING:
    from recommender import records as r

GIB = 2**30
MIB = 2**20
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Facts:
    """A request with its names resolved and its tokens counted.

    ``weight_bytes`` is exact where the checkpoint's headers were read, else 0.
    ``options`` holds the era of each option that the release has, by flag id.
    """

    request: Request
    store: Store
    release: r.Release
    version: Version
    gpu: r.Gpu
    notes: tuple[str, ...]
    model: r.Model
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
    options: Mapping[str, r.Era]

    @property
    def vision(self) -> r.VisionShape | None:
        """The vision encoder, or None for a text model."""
        return self.model.vision[0] if self.model.vision else None

    def tiles(self, max_tiles: int = 0) -> int:
        """Tiles of one image of the request, the thumbnail counted; 0 without images."""
        if not self.images or self.vision is None:
            return 0
        return tiles(self.vision, self.image_width, self.image_height, max_tiles or None)

    def image_tokens(self, max_tiles: int = 0) -> int:
        """Tokens of all images of one request."""
        if not self.images or self.vision is None:
            return 0
        return self.images * image_tokens(self.vision, self.image_width, self.image_height, max_tiles or None)

    def input_tokens(self, max_tiles: int = 0) -> int:
        """Tokens of one request's prompt: template, text, images and the markers around them."""
        markers = self.images * self.vision.wrapper_tokens if self.vision else 0
        return self.image_tokens(max_tiles) + markers + self.prompt_tokens + self.model.chat_tokens

    def total_tokens(self, max_tiles: int = 0) -> int:
        """Tokens that one request holds in the KV cache when it ends."""
        return self.input_tokens(max_tiles) + self.output_tokens

    def largest_tokens(self, max_tiles: int = 0) -> int:
        """The same with each image at its most tiles: what a larger photo would need."""
        if not self.images or self.vision is None:
            return self.total_tokens()
        most = most_tiles(self.vision, max_tiles or None)
        each = (most + (1 if self.vision.thumbnail and most > 1 else 0)) * self.vision.tokens_per_tile
        return max(0, self.images * each - self.image_tokens(max_tiles)) + self.total_tokens(max_tiles)


def within(since: str, until: str, version: Version) -> bool:
    """True where the version lies in the half-open range; an empty end is open."""
    return _version(since) <= version and (not until or version < _version(until))


@lru_cache(maxsize=512)
def _version(text: str) -> Version:
    return Version(text)


@lru_cache(maxsize=128)
def options_of(store: Store, version: Version) -> Mapping[str, r.Era]:
    """The era of every option that a release has, by flag id."""
    eras = ((flag.id, era) for flag in store.flags.values() for era in flag.eras)
    return MappingProxyType({name: era for name, era in eras if within(era.since, era.until, version)})


def resolve_release(store: Store, name: str) -> r.Release:
    """A covered release; a leading v is allowed. Raises UnknownName with near matches."""
    release = store.releases.get(name.strip().removeprefix("v"))
    if release is None:
        known = sorted(store.releases, key=Version, reverse=True)
        known = [each for each in known if each.startswith(name.strip().removeprefix("v"))] or known
        raise UnknownName(f"unknown LMDeploy release {shorten(name)}{did_you_mean(name, known)}")
    return release


@lru_cache(maxsize=8)
def _gpu_names(store: Store) -> dict[str, r.Gpu]:
    return names(store.gpus, {alias: gpu.id for gpu in store.gpus.values() for alias in gpu.nvml_names})


@lru_cache(maxsize=8)
def _model_names(store: Store) -> dict[str, r.Model]:
    return names(store.models, {model.hub: model.id for model in store.models.values()})


def resolve_gpu(store: Store, name: str) -> tuple[r.Gpu, tuple[str, ...]]:
    """A GPU by any of its names, with a note where the name fits other products too."""
    gpu = resolve("GPU", name, _gpu_names(store))
    said = next((known for known in gpu.ambiguous if normal(known) == normal(name)), "")
    if not said:
        return gpu, ()
    others = sorted(each.id for each in store.gpus.values() if each is not gpu and _fits(each, said))
    among = f" ({', '.join(others[:SHOWN])}{' ...' if len(others) > SHOWN else ''} too)" if others else ""
    return gpu, (f"{said} fits several products{among}; taken as {gpu.name}",)


def _fits(gpu: r.Gpu, name: str) -> bool:
    """Whether a whole GPU's name has all words of this one."""
    return PART not in gpu.id and all(normal(word) in normal(gpu.name) for word in re.split(r"[\s-]+", name))


def resolve_model(store: Store, name: str) -> r.Model:
    """A checkpoint by its id, hub name or alias. Raises UnknownName with near matches."""
    return resolve("model", name, _model_names(store))


def _assumed(request: Request) -> tuple[str, ...]:
    """What was taken for granted and matters: said in the report."""
    if request.cpus != DEFAULT_CPUS:
        return ()
    return (f"a host of {DEFAULT_CPUS} CPU cores is assumed; --cpus N says otherwise",)


def gather(request: Request, store: Store, local: tuple[r.Model, int, str] | None = None) -> Facts:
    """The facts of a request. ``local`` is a checkpoint folder's model, exact bytes and path.

    Raises UnknownName or RequestError.
    """
    release = resolve_release(store, request.lmdeploy)
    version = _version(release.id)
    gpu, notes = resolve_gpu(store, request.gpu)
    if PART in gpu.id and request.gpu_count > 1:
        raise RequestError(f"--gpu {shorten(request.gpu)}: a process sees one slice only; ask for one, or for the GPU")
    model, exact, source = local or (resolve_model(store, request.model), 0, "")
    concurrency = request.concurrency
    if request.load:
        if request.load not in store.loads:
            raise UnknownName(f"unknown load {shorten(request.load)}{did_you_mean(request.load, store.loads)}")
        concurrency = store.loads[request.load].concurrency
    shape = store.requests["accident" if model.vision and request.images != 0 else "chat"]
    images, width, height = shape.images, shape.image_width, shape.image_height
    if request.images >= 0:
        images, width, height = request.images, request.image_width, request.image_height
    if images and not model.vision:
        raise RequestError(f"--image: {model.hub} reads text only; leave --image out, or name a vision model")
    card = gpu.memory_mib * MIB
    asked = int(request.vram_gib * GIB)
    if asked > card:
        raise RequestError(f"--vram {request.vram_gib:g}: {gpu.name} has {card / GIB:.1f} GiB; ask for less")
    return Facts(
        request=request,
        store=store,
        release=release,
        version=version,
        gpu=gpu,
        notes=(*notes, *_assumed(request)),
        model=model,
        model_source=source or model.hub,
        weight_bytes=exact,
        images=images,
        image_width=width if images else 0,
        image_height=height if images else 0,
        prompt=shape.prompt,
        prompt_tokens=request.prompt_tokens or shape.prompt_tokens,
        output_tokens=request.output_tokens or shape.output_tokens,
        response_schema=shape.response_schema if images else "",
        concurrency=concurrency or 1,
        available_bytes=asked or card,
        options=options_of(store, version),
    )
