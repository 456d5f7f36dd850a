"""Compute the picker's answers with the recommender: one file per model and GPU, for all loads and goals.

A file keeps each text and each plan once; ``states`` refers to them by number.
"""

import json
from functools import cache
from typing import Any, get_args

from recommender.choose.constraints import ConstraintFinding
from recommender.choose.recommend import NothingFits, Recommendation, recommend
from recommender.common.exits import NOTHING_FITS
from recommender.common.version import __version__
from recommender.estimate.memory import likely_range
from recommender.knowledge.load import load
from recommender.knowledge.store import Store
from recommender.render import report
from recommender.render.formats import render
from recommender.render.json_output import command
from recommender.render.summary import cite, gib, summary
from recommender.request.request import Goal, Request
from recommender.request.resolved_request import ResolvedRequest

FORMAT = 1
GPUS = (
    *("a10", "a100-pcie-40g", "a100-pcie-80g", "a100-sxm-40g", "a100-sxm-80g", "a10g", "a30", "a40", "b200"),
    *("gh200-96g", "h100-nvl-94g", "h100-pcie-80g", "h100-sxm-80g", "h20-96g", "h200-sxm", "l20", "l4"),
    *("l40", "l40s", "rtx-3060-12g", "rtx-3090", "rtx-4080", "rtx-4090", "rtx-5090", "rtx-6000-ada"),
    *("rtx-a4000", "rtx-a5000", "rtx-a6000", "rtx-pro-6000-server", "t4", "v100-sxm2-16g", "v100-sxm2-32g"),
)
"""GPUs that users rent or buy for serving."""
MODELS = (
    *("internvl3-1b", "internvl3-2b", "internvl3-2b-awq", "internvl3-8b", "internvl3-8b-awq", "internvl3-14b"),
    *("internvl3-14b-awq", "internvl3-38b", "internvl3-38b-awq", "internvl3-78b-awq", "qwen2.5-vl-7b-instruct"),
    *("qwen2.5-7b-instruct", "qwen2.5-7b-instruct-awq", "qwen2.5-32b-instruct-awq"),
    *("qwen2.5-72b-instruct-awq", "llama-3.1-8b-instruct", "llama-3.3-70b-instruct-awq"),
)
"""Checkpoints that users ask for."""
GOALS: tuple[Goal, ...] = get_args(Goal)
NEAR = ("run", "gpu", "model", "concurrency", "image", "rps", "p50_ms", "lmdeploy", "random_weights")
"""Fields of a similar run that the picker shows."""
SEVERAL = " to "
"""Separator in a range that an adviser gave."""
SPEEDS = ("alone_ms", "latency_ms", "p99_ms", "ttft_ms", "token_ms", "rps")


class Texts:
    """Unique texts in order of first use."""

    def __init__(self) -> None:
        """Start without texts."""
        self.known: dict[str, int] = {}

    def add(self, text: str) -> int:
        """Return the number of a text."""
        return self.known.setdefault(text, len(self.known))


def loads(store: Store) -> list[str]:
    """Return the named loads, lowest concurrency first."""
    return [load.id for load in sorted(store.loads.values(), key=lambda load: load.concurrency)]


def answer_file(model: str, gpu: str) -> str:
    """Return the answers of a model on a GPU as JSON text."""
    store, texts, plans = load(), Texts(), Texts()
    collector = AnswerFile(texts, plans)
    states = {
        name: {goal: collector.state(Request(gpu, model=model, load=name, goal=goal)) for goal in GOALS}
        for name in loads(store)
    }
    return compact(
        {
            "format": FORMAT,
            "made_by": f"lmdeploy-recommender {__version__}",
            "lmdeploy": release(),
            "model": model,
            "gpu": gpu,
            "card_gib": float(gib(store.gpus[gpu].memory_mib * 2**20)),
            "states": states,
            "plans": [json.loads(plan) for plan in plans.known],
            "texts": list(texts.known),
        }
    )


def compact(value: object) -> str:
    """Return JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


class AnswerFile:
    """Convert recommendations to the form of a file."""

    def __init__(self, texts: Texts, plans: Texts) -> None:
        """Collect texts and plans into these."""
        self.text, self.plans = texts.add, plans

    def state(self, request: Request) -> dict[str, Any]:
        """Return one answer: numbers of its script and plan, or why nothing fits."""
        try:
            recommendation = recommend(request)
        except NothingFits as error:
            refused = {"exit": NOTHING_FITS, "error": self.text(report.explain_no_fit(error))}
            return refused | ({"nearest": error.change.options} if error.change else {})
        script = [self.text(part) for part in render(recommendation, "bash").split("\n\n")]
        return {"exit": 0, "plan": self.plans.add(compact(self.plan(recommendation))), "script": script}

    def plan(self, recommendation: Recommendation) -> dict[str, Any]:
        """Return the options with reasons, and predictions rounded as in the report."""
        return {
            "summary": self.text(" ".join(summary(recommendation))),
            "command": self.text(" ".join(command(recommendation))),
            "servers": recommendation.config.servers,
            "memory": memory(recommendation.resolved, recommendation),
            "speed": speed(recommendation),
            "options": {
                option.option: {
                    "value": option.value,
                    "why": self.text(option.reason),
                    "on": self.text(cite(option.sources, option.caveat)),
                }
                | {"alike": [advice.adviser for advice in option.advice if same_value(option.value, advice.value)]}
                for option in recommendation.explanations
                if option.emitted
            },
            "warnings": [self.warning(finding) for finding in recommendation.findings],
            "notes": [self.text(note) for note in recommendation.resolved.notes],
            "near": [{name: getattr(run, name) for name in NEAR} for run in recommendation.similar_runs],
        }

    def warning(self, finding: ConstraintFinding) -> dict[str, Any]:
        """Return a warning about the recommended configuration."""
        return {
            "severity": finding.severity,
            "says": self.text(finding.message),
            "mend": self.text(finding.remedy),
            "on": self.text(cite(finding.sources, finding.caveat)),
        }


def same_value(ours: str, advised: str) -> bool:
    """Return whether an adviser's value equals ours or is a range around it."""
    try:
        low, *rest = (float(end) for end in advised.split(SEVERAL))
        return ours == advised or low <= float(ours) <= (rest or [low])[-1]
    except ValueError:
        return ours == advised


def memory(resolved: ResolvedRequest, recommendation: Recommendation) -> dict[str, Any]:
    """Return memory of one GPU in GiB: parts and total as [predicted, low, high]."""
    used, (low, high) = recommendation.memory, likely_range(resolved, recommendation.memory, recommendation.config.tp)
    parts = {item.name: [*_gib(item.bytes, item.low, item.high), item.basis] for item in used.items if item.bytes}
    cache = {"blocks": used.kv_blocks, "tokens": used.kv_tokens, "requests": used.kv_requests}
    cache["needed_tokens"] = used.kv_needed_tokens
    total = _gib(used.total, low, high)
    return {"parts": parts, "total": total, "at_most": _gib(used.high)[0], "kv_cache": cache}


def _gib(*sizes: float) -> list[float]:
    return [float(gib(size)) for size in sizes]


def speed(recommendation: Recommendation) -> dict[str, Any]:
    """Return times in ms and requests/s as [predicted, low, high], with limit and basis."""
    used = recommendation.speed
    figures = {name: getattr(used, name) for name in SPEEDS}
    rounded = {name: [round(end, 1) for end in (value.value, value.low, value.high)] for name, value in figures.items()}
    return rounded | {"limit": used.limit, "basis": used.basis}


def release() -> str:
    """Return the LMDeploy release of the answers: the default of a request."""
    return Request(GPUS[0]).lmdeploy


@cache
def options() -> str:
    """Return what all answers share: option names, advisers' values and verdicts."""
    store = load()
    explanations = recommend(Request("h100-sxm-80g"), store).explanations
    known = {option.id: option for option in store.options()}
    shown = [option for option in explanations if known[option.option].setting]
    return compact(
        {
            "format": FORMAT,
            "count": len(explanations),
            "advisers": {adviser.id: adviser.name for adviser in store.advisers.values()},
            "ranges": report.WIDE,
            "options": {
                option.option: {
                    "name": option.name,
                    "kind": option.kind,
                    "switch": option.switch,
                    "summary": known[option.option].summary,
                    "summary_vi": getattr(known[option.option], "summary_vi", ""),
                    "advice": {advice.adviser: advice.value for advice in option.advice},
                    "claims": [
                        {"id": claim.claim, "verdict": claim.verdict, "says": claim.statement}
                        for claim in option.verdicts
                    ],
                }
                for option in shown
            },
        }
    )
