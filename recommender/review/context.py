"""What a launch is for: GPU, model, release and load, from the command line, the script or the project's settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from recommender import request as asked
from recommender.facts import Facts, gather, resolve_gpu
from recommender.request import MAX_COUNT, Request, RequestError
from recommender.review.script import Launch, Script, Word
from recommender.store import Store, UnknownName, load, names, normal

if TYPE_CHECKING:
    from recommender import records as r

ASSUMED_GPU = "a100-sxm-80g"
"""Where no GPU is told something must stand in the facts; no rule may rest on it."""

# The question's options, each with the fields of a request that it answers.
ANSWERS: Mapping[str, tuple[str, ...]] = {
    "gpu": ("gpu", "gpu_count"),
    "model": ("model",),
    "load": ("load", "concurrency"),
    "rps": ("rps",),
    "image": ("images", "image_width", "image_height"),
    "text_only": ("images",),
    "prompt_tokens": ("prompt_tokens",),
    "output_tokens": ("output_tokens",),
    "goal": ("goal",),
    "p99": ("p99_ms",),
    "ttft": ("ttft_ms",),
    "vram": ("vram_gib",),
    "cpus": ("cpus",),
    "kv": ("kv",),
    "lmdeploy": ("lmdeploy",),
}
EXCLUDED = {"rps": "load", "load": "rps", "text_only": "image", "image": "text_only"}
"""What is said last of a pair makes the other void."""
HEADER = re.compile(r"#\s*request: (\{.*\})\s*")
HEADER_LINES = 30
MADE_BY, HEAD = "lmdeploy-recommender", 500
"""What stands in the first characters of an artefact of ours."""
IMAGE_TAG = re.compile(r"(?:^|/)lmdeploy:v?(\d+\.\d+\.\d+(?:\.post\d+)?)(?![\d.])")
INSTALLED = re.compile(r"lmdeploy(?:\[[\w,-]*\])?==(\d+\.\d+\.\d+(?:\.post\d+)?)")
CACHED = re.compile(r"models--([^/]+)--([^/]+)(?:/|$)")


@dataclass(frozen=True)
class Context:
    """What was told, the facts of it, how many GPUs the launch sees, and a release that is not covered."""

    facts: Facts
    told: frozenset[str]
    cards: int | None
    uncovered: str = ""


def context(
    script: Script, launch: Launch | None, options: Mapping[str, Any], project: Mapping[str, Any] | None = None
) -> Context:
    """The context of a launch. Raises RequestError or UnknownName for what the options say."""
    store = load()
    answers: dict[str, dict[str, Any]] = {}
    answers |= _answers(store, project or {})
    answers |= _header(store, script)
    mine, uncovered = _of_script(store, script, launch)
    answers |= mine
    given = _answers(store, options)
    for name, other in EXCLUDED.items():
        if name in given and other not in given:
            answers.pop(other, None)
    answers |= given | {name: mine[name] for name in mine.keys() & {"model"}}
    count = _count(launch, _gives_count(options), answers)
    values = {name: value for each in answers.values() for name, value in each.items()}
    values["gpu_count"] = count if count is not None else _needed(launch)
    return Context(_facts(store, values), frozenset(answers), count, uncovered)


def _gives_count(options: Mapping[str, Any]) -> bool:
    return ":" in str(options.get("gpu") or "")


def _answers(store: Store, options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The fields of a request that options answer, by the option's name."""
    key = tuple(sorted((name, value) for name, value in options.items() if name in ANSWERS and value))
    return {name: dict(values) for name, values in _read(store, key)}


@lru_cache(maxsize=64)
def _read(store: Store, key: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]:
    options = dict(key)
    given = {name: value for name, value in options.items() if isinstance(value, str)}
    if given.get("gpu", "").casefold() == "auto":
        from recommender.detect import detect

        name, count = detect()
        given["gpu"] = f"{name}:{count}"
    made = asked.read({"gpu": ASSUMED_GPU} | given, text_only=bool(options.get("text_only")), loads=store.loads)
    return tuple(
        (name, tuple((each, getattr(made, each)) for each in ANSWERS[name])) for name in ANSWERS if name in options
    )


def verify(options: Mapping[str, Any]) -> None:
    """Raises RequestError or UnknownName where the options alone cannot be understood."""
    store = load()
    values = {name: value for each in _answers(store, options).values() for name, value in each.items()}
    _understood(Request(**({"gpu": ASSUMED_GPU} | values)), store)


# --- what the script itself tells


def _header(store: Store, script: Script) -> dict[str, dict[str, Any]]:
    """What an artefact made by ``recommend`` says of its request, by the option that it answers."""
    made = made_for(script)
    return _told_by(store, made) if made is not None else {}


def made_for(script: Script) -> Request | None:
    """The request that an artefact made by ``recommend`` carries; None of any other file."""
    if MADE_BY not in script.text[:HEAD]:
        return None
    for line in script.text.splitlines()[:HEADER_LINES]:
        match = HEADER.fullmatch(line)
        if match:
            try:
                said = json.loads(match[1])
                known = {each.name for each in fields(Request)}
                return Request(**{name: value for name, value in said.items() if name in known})
            except (ValueError, TypeError, AttributeError, RequestError, RecursionError):  # edited by hand
                return None
    return None


def _told_by(store: Store, made: Request) -> dict[str, dict[str, Any]]:
    """The answers of a request, as far as their names are known here; a model may be a folder of another machine."""
    defaults: dict[str, Any] = {each.name: each.default for each in fields(Request)}
    always = {"gpu", "lmdeploy", "load"}
    model = model_of(store, made.model)
    if model is not None:
        made, always = replace(made, model=model.id), always | {"model"}
    else:
        made = replace(made, model=defaults["model"], images=-1)
    try:
        _understood(made, store)
    except (RequestError, UnknownName):  # edited by hand
        return {}
    told = {name: {each: getattr(made, each) for each in ANSWERS[name]} for name in ANSWERS if name != "text_only"}
    return {
        name: values
        for name, values in told.items()
        if name in always or any(value != defaults[each] for each, value in values.items())
    }


def _of_script(store: Store, script: Script, launch: Launch | None) -> tuple[dict[str, dict[str, Any]], str]:
    """Model and release as the script has them, and a release that the knowledge does not cover."""
    found: dict[str, dict[str, Any]] = {}
    model = model_of(store, launch.model.value) if launch and launch.model and launch.model.value else None
    if model is not None:
        found["model"] = {"model": model.id}
    releases = set(_releases(script, launch))
    if len(releases) != 1:
        return found, ""
    (release,) = releases
    if release not in store.releases:
        return found, release
    return found | {"lmdeploy": {"lmdeploy": release}}, ""


def _releases(script: Script, launch: Launch | None) -> Iterator[str]:
    """Releases that the launch's container image names, else those that the script installs."""
    image = launch.container.image if launch and launch.container else None
    tag = IMAGE_TAG.search(image.value) if image and image.value else None
    if tag:
        yield tag[1]
        return
    for call in script.calls:
        words = [word.value or "" for word in call.words]
        if "install" in words:
            yield from (match[1] for word in words if (match := INSTALLED.match(word)))


@lru_cache(maxsize=4)
def _models(store: Store) -> Mapping[str, r.Model]:
    return names(store.models, {model.hub: model.id for model in store.models.values()})


def model_of(store: Store, text: str) -> r.Model | None:
    """The checkpoint that a name on the hub means, or a folder called like one; None where it is unknown."""
    known = _models(store)
    path = text.rstrip("/")
    cached = CACHED.search(path)
    tries = [path, f"{cached[1]}/{cached[2]}" if cached else "", *(path.rsplit("/", 1)[1:])]
    return next((known[normal(each)] for each in tries if normal(each) in known), None)


# --- how many cards


def _count(launch: Launch | None, told: bool, answers: Mapping[str, Mapping[str, Any]]) -> int | None:
    """The GPUs that a launch sees: as the option says, else as the script does, else unknown."""
    if told:
        return int(answers["gpu"]["gpu_count"])
    seen = visible(launch.environment.get("CUDA_VISIBLE_DEVICES")) if launch else None
    if seen is None and launch and launch.container:
        seen = launch.container.gpus
    if seen is None and answers.get("gpu", {}).get("gpu_count", 1) > 1:
        seen = int(answers["gpu"]["gpu_count"])
    return seen if seen is None or 1 <= seen <= MAX_COUNT else None


def visible(word: Word | None) -> int | None:
    """How many cards a value of CUDA_VISIBLE_DEVICES lists; None where that cannot be known."""
    if word is None or not word.value or not word.value.strip():
        return None
    return len([each for each in word.value.split(",") if each.strip()])


def _needed(launch: Launch | None) -> int:
    """As many cards as the launch splits the model over, where nothing tells how many there are."""
    for option in launch.options if launch else ():
        if option.name.lstrip("-").rpartition(".")[2] == "tp" and option.values:
            value = option.values[0].value or ""
            return min(int(value), MAX_COUNT) if re.fullmatch(r"[1-9]\d{0,3}", value) else 1
    return 1


# --- facts


def _facts(store: Store, values: Mapping[str, Any]) -> Facts:
    """The facts; where options and this launch's model or cards exclude each other, the launch's own count."""
    request = Request(**({"gpu": ASSUMED_GPU} | dict(values)))
    for changed in (
        request,
        replace(request, images=-1, image_width=0, image_height=0),
        replace(request, images=-1, image_width=0, image_height=0, gpu_count=1),
    ):
        try:
            return _understood(changed, store)
        except RequestError as error:
            first = error
    raise first


@lru_cache(maxsize=256)
def _understood(request: Request, store: Store) -> Facts:
    resolve_gpu(store, request.gpu)
    try:
        return gather(request, store)
    except UnknownName:
        from recommender.pipeline import understand  # a model that is a folder

        return understand(request, store)
