"""Answer a question of the configurator: figures, options with reasons, or why there is no answer and which ones exist.

A worker calls it in a browser, and the build for the stored answers. The texts of the files come from ``run.run``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from recommender.choose.defaults import compare_with_defaults
from recommender.choose.recommend import NothingFits, recommend
from recommender.cli import root, usage_text
from recommender.common.errors import UserError
from recommender.common.exit_codes import BAD_REQUEST, NEGATIVE
from recommender.common.text import as_typed
from recommender.common.units import MIB
from recommender.estimate.memory import likely_range
from recommender.estimate.model_shape import weight_bytes
from recommender.knowledge.provenance import web_address
from recommender.options import build_recommendation
from recommender.render.formats import render
from recommender.render.screen import list_assumptions
from recommender.render.summary import describe_load, gib

if TYPE_CHECKING:
    from recommender.choose.reasons import Explanation
    from recommender.choose.recommend import Recommendation
    from recommender.estimate.similar_runs import SimilarRun
    from recommender.knowledge import records
    from recommender.knowledge.store import Store
    from recommender.request.resolved_request import ResolvedRequest

SPEEDS = ("alone_ms", "latency_ms", "p99_ms", "ttft_ms", "token_ms", "rps")
FIELD = re.compile(r"^(?:no such option )?(--[A-Za-z][\w-]*)|^unknown (GPU|model|LMDeploy release|load)")
"""Which option a message is about: its beginning."""
NAMED = {"GPU": "--gpu", "model": "--model", "LMDeploy release": "--lmdeploy", "load": "--load"}
MEANT = re.compile(r"(?:did you mean|use one of|known are) ([^?;]+)|such as '([^']+)'")
LARGER = ("rtx-4090", "l40s", "a100-sxm-80g", "h100-sxm-80g", "h200-sxm", "b200")
"""GPUs to offer where nothing fits and no smaller change helps, smallest memory first."""
COUNTS = (1, 2, 4, 8)
ROOM = 1.15
"""Least factor of a GPU's memory over the bytes of the weights."""
GOALS = {"p99": "p99_ms", "ttft": "ttft_ms", "tpot": "tpot_ms", "latency": "latency_ms"}
"""Goals of a request: option, and field."""
MODELS = (
    "qwen2.5-7b-instruct",
    "qwen3-8b",
    "qwen3-30b-a3b",
    "internvl3-8b",
    "internvl3-8b-awq",
    "qwen2.5-vl-7b-instruct",
)
"""Models to offer in place of one that resembles none."""
USUAL = {
    "--gpu": LARGER, "--model": MODELS, "--load": ("1", "16", "64"), "--concurrency": ("1", "16", "64"),
    "--rps": ("1", "10"), "--image": ("448x448", "1280x720"), "--backend": ("auto",),
}  # fmt: skip
"""Values to offer in place of one that resembles none."""
MOST = 6
"""Offers in place of a value that is not understood."""


def answer(words: Sequence[str]) -> dict[str, Any]:
    """Return the answer to a command line's question; ``exit`` is the command's."""
    try:
        options = root.make_context("recommend", list(words)).params
        recommendation = build_recommendation(options)
    except click.ClickException as error:
        return _misunderstood(BAD_REQUEST, usage_text(error).partition("; see ")[0], words)
    except NothingFits as error:
        ways = (error.change, *error.others) if error.change else error.others
        offers = [{"options": way.options, "text": way.text} for way in ways]
        offers = offers or list(_larger(error))
        binding = error.nothing.binding
        refusal = {"error": binding.message, "constraint": binding.constraint, "option": ""}
        return {"exit": NEGATIVE, **refusal, "offers": offers}
    except UserError as error:
        message = as_typed(str(error), [each.opts for each in root.params], words)
        return _misunderstood(error.exit_code, message, words)
    shown = describe(recommendation, {name for name, value in options.items() if value})
    return {"exit": 0, "script": render(recommendation, "bash")} | shown


def _misunderstood(code: int, message: str, words: Sequence[str]) -> dict[str, Any]:
    """Return the values that were not understood: option, and near values that have an answer."""
    field = FIELD.match(message)
    meant = MEANT.search(message)
    name = (field[1] or NAMED[field[2]]) if field else ""
    near = (meant[1] or meant[2]).split(", ")[:MOST] if meant and name else []
    at = words.index(name) if name in words[:-1] else len(words)
    rest = [*words[:at], *words[at + 2 :]]
    if message.startswith("no such option"):
        offers = [offer for option in near for offer in _offer(rest, option, *words[at + 1 : at + 2], without=name[2:])]
    else:
        offers = [offer for value in near for offer in _offer(rest, name, value)]
        offers = offers or [offer for value in USUAL.get(name, ()) for offer in _offer(rest, name, value)]
    return {"exit": code, "error": message, "option": name, "offers": offers[:MOST]}


def _offer(words: Sequence[str], *option: str, without: str = "") -> Iterator[dict[str, Any]]:
    """Yield an option with which a question has an answer; with what it takes to fit, if it does not."""
    offer = {"options": " ".join(option), "text": "", "without": [without] if without else []}
    try:
        build_recommendation(root.make_context("recommend", [*words, *option]).params)
    except NothingFits as error:
        ways = [way.options for way in (error.change, *error.others) if way and way.options.startswith("--")]
        more = ways[:1] or [way["options"] for way in _larger(error)]
        own = f"{option[0]} "
        yield from ({**offer, "options": f"{offer['options']} {way}"} for way in more if not way.startswith(own))
    except (click.ClickException, UserError):
        return
    else:
        yield offer


def _larger(error: NothingFits) -> Iterator[dict[str, Any]]:
    """Yield larger GPUs as the way out if no small change helps: for the whole request, else for one request at a time.

    ``without``: options that the way out drops.
    """
    request, store = error.resolved.request, error.resolved.store
    needed = ROOM * weight_bytes(error.resolved.model)
    sizes = sorted((store.gpus[gpu].memory_mib * MIB * count, count, gpu) for gpu in LARGER for count in COUNTS)
    large = [(gpu, count) for size, count, gpu in sizes if size > needed]
    alone = {"load": "", "concurrency": 1, "rps": 0.0} | dict.fromkeys((*GOALS.values(), "vram_gib"), 0.0)
    tries = [(place, {"vram_gib": 0.0}) for place in large[:2]] + [(place, alone) for place in large[:3]]
    for (gpu, count), changes in tries:
        try:
            recommend(replace(request, gpu=gpu, gpu_count=count, **changes), store)
        except (NothingFits, UserError):
            continue
        name = f"{gpu}:{count}" if count > 1 else gpu
        options = f"--gpu {name}{' --load 1' if changes is alone else ''}"
        without = ["vram", *(GOALS if changes is alone else ())]
        yield {"options": options, "text": f"{count} x {store.gpus[gpu].name}", "without": without}
        return


def describe(recommendation: Recommendation, given_options: set[str]) -> dict[str, Any]:
    """Return what the configurator shows of a recommendation; sizes in GiB, times in ms."""
    resolved, config = recommendation.resolved, recommendation.config
    emitted = [option for option in recommendation.explanations if option.emitted]
    return {
        "model": resolved.model.id,
        "gpu": resolved.gpu.id,
        "title": f"{resolved.model.hub} on {config.cards} x {resolved.gpu.name}",
        "engine": config.backend,
        "servers": config.servers,
        "load": describe_load(resolved, config),
        "lmdeploy": resolved.release.id,
        "lengths": _lengths(resolved),
        "goals": [
            [goal.figure, goal.at, round(recommendation.speed.goal_ms(goal), 3), goal.most_ms]
            for goal in resolved.request.time_goals
        ],
        "assumed": list_assumptions(recommendation, given_options),
        "notes": [note for note in resolved.notes if "CPU cores" not in note],
        "memory": _memory(recommendation),
        "speed": _speed(recommendation),
        "defaults": _defaults(recommendation),
        "measured": next((_run(run) for run in recommendation.similar_runs if _is_same(run, recommendation)), None),
        "near": [_run(run) for run in recommendation.similar_runs],
        "warnings": [
            {"constraint": finding.constraint, "message": finding.message, "remedy": finding.remedy}
            for finding in recommendation.findings
        ],
        "options": [_option(resolved.store, option) for option in emitted],
        "left": len(recommendation.explanations) - len(emitted),
    }


def _lengths(resolved: ResolvedRequest) -> dict[str, str]:
    """Return what the fields of the request's form hold if they are left empty."""
    images = f"{resolved.image_width}x{resolved.image_height}" if resolved.images else "none"
    many = f"x{resolved.images}" if resolved.images > 1 else ""
    tokens = {"input-tokens": f"{resolved.prompt_tokens}", "output-tokens": f"{resolved.output_tokens}"}
    return {"image": images + many, **tokens}


def _memory(recommendation: Recommendation) -> dict[str, Any]:
    used, resolved = recommendation.memory, recommendation.resolved
    low, high = likely_range(resolved, used, recommendation.config.tp)
    return {
        "total": _gib(used.total, low, high),
        "card": _gib(resolved.available_bytes)[0],
        "at_most": _gib(used.high)[0],
        "parts": [[item.name, *_gib(item.bytes, item.low, item.high), item.basis] for item in used.items if item.bytes],
        "cache": [used.kv_tokens, used.kv_requests, used.kv_needed_tokens],
    }


def _gib(*sizes: float) -> list[float]:
    return [float(gib(size)) for size in sizes]


def _speed(recommendation: Recommendation) -> dict[str, Any]:
    used = recommendation.speed
    figures = {name: getattr(used, name) for name in SPEEDS}
    rounded = {name: [round(end, 3) for end in (each.value, each.low, each.high)] for name, each in figures.items()}
    return rounded | {"limit": used.limit, "basis": used.basis}


def _defaults(recommendation: Recommendation) -> dict[str, Any] | None:
    found = compare_with_defaults(recommendation)
    if found is None:
        return None
    gain = [round(end, 3) for end in (found.gain.value, found.gain.low, found.gain.high)]
    return {"rps": round(found.rps, 3), "memory": _gib(found.memory)[0], "gain": gain, "fits": found.fits}


def _is_same(run: SimilarRun, recommendation: Recommendation) -> bool:
    """Return whether a run had this GPU, model and load."""
    resolved = recommendation.resolved
    image = f"{resolved.image_width}x{resolved.image_height}" if resolved.images else ""
    load = (resolved.gpu.id, resolved.model.id, resolved.concurrency, image)
    return load == (run.gpu, run.model, run.concurrency, run.image) and not resolved.varies


def _run(run: SimilarRun) -> dict[str, Any]:
    return {name: getattr(run, name) for name in (*run.__slots__, "kind")}


def _option(store: Store, option: Explanation) -> dict[str, Any]:
    """Return an option with its reason, and the names by which a file may set it."""
    record = next(record for record in store.options() if record.id == option.option)
    name = option.name.lstrip("-")
    fields = (field.field for field in getattr(record, "fields", ()))
    return {
        "id": option.option,
        "name": option.name,
        "kind": option.kind,
        "names": [*dict.fromkeys((option.name, name.upper().replace("-", "_"), *fields))],
        "value": option.value,
        "default": option.default or option.unset,
        "reason": option.reason,
        "brief": option.brief,
        "sources": [*_sources(store, option.sources)],
        "caveat": option.caveat,
        "advice": [[advice.adviser, advice.value] for advice in option.advice],
        "verdicts": len(option.verdicts),
    }


def _sources(store: Store, sources: records.Sources) -> Iterator[dict[str, str]]:
    """Yield each source's short text and its address: a web address, or the record's kind and id."""
    for line in sources.code:
        yield {"text": f"{line.release} {line.path}:{line.line}", "href": web_address(store, line)}
    yield from ({"text": page.url, "href": page.url} for page in sources.pages)
    yield from ({"text": run, "run": run} for run in sources.evidence)
