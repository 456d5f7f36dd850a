"""Find a launch's GPU, model, release and load in options, script and settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.version import Version

from recommender.common.errors import RequestError, UnknownName
from recommender.common.pattern import pattern
from recommender.common.text import normal
from recommender.knowledge.load import load
from recommender.knowledge.names import index_by_name, resolve_gpu
from recommender.knowledge.store import Store
from recommender.render.head import read_head
from recommender.request import command_line
from recommender.request.request import MAX_COUNT, Request
from recommender.request.resolved_request import ResolvedRequest, resolve_request, resolve_with_checkpoint
from recommender.review.releases import Pinned, covered, is_older, release_of
from recommender.review.script import batch_job
from recommender.review.script.model import Launch, Script, Word

if TYPE_CHECKING:
    from recommender.knowledge import records

ASSUMED_GPU = "a100-sxm-80g"
"""Placeholder while the GPU is unknown; no rule may use it."""

# The request fields that each option answers.
ANSWERS: Mapping[str, tuple[str, ...]] = {
    "gpu": ("gpu", "gpu_count"),
    "model": ("model",),
    "load": ("load", "concurrency"),
    "rps": ("rps",),
    "image": ("images", "image_width", "image_height"),
    "text_only": ("images",),
    "workload": ("workload",),
    "prompt_tokens": ("prompt_tokens", "prompt_p99"),
    "output_tokens": ("output_tokens", "output_p99"),
    "prefix_tokens": ("prefix_tokens",),
    "turns": ("turns",),
    "max_context": ("max_context",),
    "burstiness": ("burstiness",),
    "goal": ("goal",),
    "p99": ("p99_ms",),
    "ttft": ("ttft_ms", "ttft_at"),
    "tpot": ("tpot_ms", "tpot_at"),
    "latency": ("latency_ms", "latency_at"),
    "headroom": ("headroom",),
    "vram": ("vram_gib",),
    "cpus": ("cpus",),
    "kv": ("kv",),
    "lmdeploy": ("lmdeploy",),
}
EXCLUDED = {"rps": "load", "load": "rps", "text_only": "image", "image": "text_only"}
"""Pairs of options of which the later one wins."""
LONGEST_PATH = 4096
CACHED = pattern(r"models--([^/]+)--([^/]+)(?:/|$)")


class Context(NamedTuple):
    """Hold what is known about a launch, and a release that has no record."""

    resolved: ResolvedRequest
    answered: frozenset[str]
    visible_gpus: int | None
    uncovered: Pinned | None = None


def context(
    script: Script, launch: Launch | None, options: Mapping[str, Any], project: Mapping[str, Any] | None = None
) -> Context:
    """Return the context of a launch. Raise RequestError or UnknownName for options."""
    store = load()
    answers: dict[str, dict[str, Any]] = {}
    answers |= _answers(store, project or {})
    request = artefact_request(script)
    answers |= _request_answers(store, request) if request is not None else {}
    mine, uncovered = _script_answers(store, script, launch)
    answers |= mine
    if "gpu" not in answers:
        answers |= _named_gpu(store, batch_job.card(script))
    given = _answers(store, options)
    for name, excluded in EXCLUDED.items():
        if name in given and excluded not in given:
            answers.pop(excluded, None)
    answers |= given | {name: mine[name] for name in mine.keys() & {"model"}}
    uncovered = None if "lmdeploy" in given else uncovered
    count = _count(script, launch, ":" in str(options.get("gpu") or ""), answers, batch_job.gpus(script, launch))
    values = {name: value for answer in answers.values() for name, value in answer.items()}
    if uncovered is not None and is_older(uncovered, first_release(store)):
        values["lmdeploy"] = first_release(store)  # the nearest one
    values["gpu_count"] = count if count is not None else _tensor_parallel(launch)
    return Context(_resolve(store, tuple(values.items())), frozenset(answers), count, uncovered)


def first_release(store: Store) -> str:
    """Return the oldest release that the knowledge covers."""
    return min(store.releases, key=Version)


def _answers(store: Store, options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the request fields that options answer, by option name."""
    key = tuple(sorted((name, value) for name, value in options.items() if name in ANSWERS and value))
    return {name: dict(values) for name, values in _read(store, key)}


@lru_cache(maxsize=64)
def _read(store: Store, key: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]:
    options = dict(key)
    given = {name: value for name, value in options.items() if isinstance(value, str)}
    request = command_line.read(
        {"gpu": ASSUMED_GPU} | given,
        text_only=bool(options.get("text_only")),
        loads=store.loads,
        workloads=store.workloads,
    )
    return tuple(
        (name, tuple((field, getattr(request, field)) for field in ANSWERS[name]))
        for name in ANSWERS
        if name in options
    )


def verify(options: Mapping[str, Any]) -> None:
    """Raise RequestError or UnknownName if the options alone are invalid."""
    store = load()
    values = {name: value for answer in _answers(store, options).values() for name, value in answer.items()}
    _resolve_known(Request(**({"gpu": ASSUMED_GPU} | values)), store)


# --- the script


def artefact_request(script: Script) -> Request | None:
    """Return the request in a generated file's header; None for other files, and if it cannot be used."""
    return _header(script)[0]


def header_problem(script: Script) -> str:
    """Return what is wrong with the request in a generated file's header; empty if nothing is."""
    return _header(script)[1]


@lru_cache(maxsize=8)
def _header(script: Script) -> tuple[Request | None, str]:
    if not script.generated:
        return None, ""
    try:
        written = read_head(script.text)
        known = {field.name for field in fields(Request)}
        given = {name: value for name, value in (written or {}).items() if name in known}
        return Request(**given) if "gpu" in given else None, ""
    except RequestError as error:  # edited by hand
        return None, str(error)


def _request_answers(store: Store, request: Request) -> dict[str, dict[str, Any]]:
    """Return a request's answers; the model only if its name is known here."""
    defaults: dict[str, Any] = {field.name: field.default for field in fields(Request)}
    always = {"gpu", "lmdeploy", "load"}
    model = model_of(store, request.model)
    if model is not None:
        request, always = replace(request, model=model.id), always | {"model"}
    else:
        request = replace(request, model=defaults["model"], images=-1)
    try:
        _resolve_known(request, store)
    except (RequestError, UnknownName):  # edited by hand
        return {}
    answers: dict[str, dict[str, Any]] = {}
    for name, field_names in ANSWERS.items():
        values = {field: getattr(request, field) for field in field_names}
        changed = any(value != defaults[field] for field, value in values.items())
        if name in always or (changed and name != "text_only"):
            answers[name] = values
    return answers


def _script_answers(
    store: Store, script: Script, launch: Launch | None
) -> tuple[dict[str, dict[str, Any]], Pinned | None]:
    """Return the answers of the script, and the release that it names if no record covers it."""
    answers: dict[str, dict[str, Any]] = {}
    model = model_of(store, launch.model.value) if launch and launch.model and launch.model.value else None
    if model is not None:
        answers["model"] = {"model": model.id}
    found = release_of(script, launch)
    release = covered(store, found.release) if found else ""
    if found is None or not release:
        return answers, found
    return answers | {"lmdeploy": {"lmdeploy": release}}, None


def _named_gpu(store: Store, name: str) -> dict[str, dict[str, Any]]:
    """Return the GPU that a file names, unless the name may mean several."""
    try:
        gpu, other = resolve_gpu(store, name) if name else (None, ())
    except UnknownName:
        return {}
    return {"gpu": {"gpu": gpu.id, "gpu_count": 1}} if gpu is not None and not other else {}


@lru_cache(maxsize=4)
def _models(store: Store) -> Mapping[str, records.Model]:
    hubs = {model.hub: model.id for model in store.models.values()}
    return index_by_name(store.models, hubs | {hub.rpartition("/")[2]: name for hub, name in hubs.items()})


def hub_name(path: str) -> str:
    """Return the repository of a folder in the hub's cache; any other path unchanged."""
    cached = CACHED.search(path[:LONGEST_PATH].replace("\\", "/"))
    return f"{cached[1]}/{cached[2]}" if cached else path


def model_of(store: Store, text: str) -> records.Model | None:
    """Return the model of a hub name or a folder of that name; None if unknown."""
    if len(text) > LONGEST_PATH:
        return None
    known = _models(store)
    path = text.replace("\\", "/").rstrip("/")
    tries = [path, hub_name(path), path.rpartition("/")[2].replace("___", ".")]
    return next((known[normal(name)] for name in tries if normal(name) in known), None)


# --- GPU count


def _count(
    script: Script, launch: Launch | None, has_count: bool, answers: Mapping[str, Mapping[str, Any]], of_job: int | None
) -> int | None:
    """Return how many GPUs the launch sees; ``has_count``: ``--gpu`` has a count; ``of_job``: a batch job's."""
    word = launch.environment.get("CUDA_VISIBLE_DEVICES") if launch else None
    visible_count = 1 if word and _counts_single_gpus(script, word) else visible(word)
    if visible_count is None and launch and launch.container:
        passed = launch.environment.get("NVIDIA_VISIBLE_DEVICES")
        listed = passed and DEVICES.fullmatch(passed.value or "")
        visible_count = launch.container.gpus or (visible(passed) if listed else None)
    if visible_count is None:
        visible_count = of_job
    if has_count:
        total = int(answers["gpu"]["gpu_count"])
        return total if visible_count is None else min(total, visible_count)
    if visible_count is None and answers.get("gpu", {}).get("gpu_count", 1) > 1:
        visible_count = int(answers["gpu"]["gpu_count"])
    return visible_count if visible_count is None or 1 <= visible_count <= MAX_COUNT else None


def visible(word: Word | None) -> int | None:
    """Return how many GPUs CUDA_VISIBLE_DEVICES lists; None if unknown."""
    if word is None or not word.value or not word.value.strip():
        return None
    return sum(bool(device.strip()) for device in word.value.split(",")) or None


DEVICES = pattern(r"\d+(?:,\d+)*")
LOOP = pattern(
    r"\bfor[ \t]+(?P<name>\w+)[ \t]+in[ \t]+(?P<values>[^;\n]+)|\bfor[ \t]*\(\([ \t]*(?P<counter>\w+)[ \t]*=[ \t]*\d"
)
SINGLE = pattern(r"\d+(?:[ \t]+\d+)*|\{\d+\.\.\d+\}|\"?\$\{![A-Za-z_]\w*\[@\]\}\"?|\$\(seq [^,()]*\)")
"""Numbers: a list of them, ``{0..3}``, the indices of an array, or what seq counts."""


def _counts_single_gpus(script: Script, word: Word) -> bool:
    """Return whether a value is a variable of shell loops that count: one GPU at a time."""
    name = word.raw.strip('"').removeprefix("$").strip("{}")
    if word.value is not None or not word.raw.strip('"').startswith("$"):
        return False
    loops = [loop for loop in LOOP.finditer(script.text) if name in (loop["name"], loop["counter"])]
    return bool(loops) and all(loop["counter"] or SINGLE.fullmatch(loop["values"].strip()) for loop in loops)


def _tensor_parallel(launch: Launch | None) -> int:
    """Return the launch's tensor-parallel size, as the GPU count when unknown."""
    for option in launch.options if launch else ():
        if option.name.lstrip("-").rpartition(".")[2] == "tp" and option.values:
            value = option.values[0].value or ""
            return min(int(value), MAX_COUNT) if re.fullmatch(r"[1-9]\d{0,3}", value) else 1
    return 1


# --- facts


@lru_cache(maxsize=512)
def _resolve(store: Store, values: tuple[tuple[str, Any], ...]) -> ResolvedRequest:
    """Resolve the request; drop images or GPU count that contradict the launch."""
    request = Request(**({"gpu": ASSUMED_GPU} | dict(values)))
    for changed in (
        request,
        replace(request, images=-1, image_width=0, image_height=0),
        replace(request, images=-1, image_width=0, image_height=0, gpu_count=1),
    ):
        try:
            return _resolve_known(changed, store)
        except RequestError as error:
            first = error
    raise first


def resolve_for(resolved: ResolvedRequest, changes: Mapping[str, Any]) -> ResolvedRequest:
    """Return a request with some fields changed; raise RequestError where the change contradicts it."""
    return _resolve_known(replace(resolved.request, **changes), resolved.store) if changes else resolved


def on_each_release(resolved: ResolvedRequest) -> Iterator[ResolvedRequest]:
    """Yield the same request on each release, the oldest first."""
    for release in resolved.store.releases:
        yield _resolve_known(replace(resolved.request, lmdeploy=release), resolved.store)


@lru_cache(maxsize=512)
def _resolve_known(request: Request, store: Store) -> ResolvedRequest:
    resolve_gpu(store, request.gpu)
    try:
        return resolve_request(request, store)
    except UnknownName:
        return resolve_with_checkpoint(request, store)  # a local checkpoint folder
