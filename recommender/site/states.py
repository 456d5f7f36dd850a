"""The picker's answers, made by the recommender itself: a file for each model and card, all loads and goals in it.

A file keeps each text once, and each choice once: ``states`` points to both.
"""

from __future__ import annotations

import json
from typing import Any, get_args

from recommender import __version__
from recommender import report as reports
from recommender.cli import NOTHING_FITS
from recommender.constraints import Finding
from recommender.facts import Facts
from recommender.memory import likely
from recommender.pipeline import NothingFits, Recommendation, recommend
from recommender.publish import command
from recommender.render import cite, gib, render, summary
from recommender.request import Goal, Request
from recommender.store import Store, load

FORMAT = 1
GPUS = (
    *("a10", "a100-pcie-40g", "a100-pcie-80g", "a100-sxm-40g", "a100-sxm-80g", "a10g", "a30", "a40", "b200"),
    *("gh200-96g", "h100-nvl-94g", "h100-pcie-80g", "h100-sxm-80g", "h20-96g", "h200-sxm", "l20", "l4"),
    *("l40", "l40s", "rtx-3060-12g", "rtx-3090", "rtx-4080", "rtx-4090", "rtx-5090", "rtx-6000-ada"),
    *("rtx-a4000", "rtx-a5000", "rtx-a6000", "rtx-pro-6000-server", "t4", "v100-sxm2-16g", "v100-sxm2-32g"),
)
"""The cards that people rent, or buy for this."""
MODELS = (
    *("internvl3-1b", "internvl3-2b", "internvl3-2b-awq", "internvl3-8b", "internvl3-8b-awq", "internvl3-14b"),
    *("internvl3-14b-awq", "internvl3-38b", "internvl3-38b-awq", "internvl3-78b-awq", "qwen2.5-vl-7b-instruct"),
    *("qwen2.5-7b-instruct", "qwen2.5-7b-instruct-awq", "qwen2.5-32b-instruct-awq"),
    *("qwen2.5-72b-instruct-awq", "llama-3.1-8b-instruct", "llama-3.3-70b-instruct-awq"),
)
"""The checkpoints that people ask for."""
GOALS: tuple[Goal, ...] = get_args(Goal)
SEVERAL = " to "
"""Between the ends of a range that an adviser gave."""
SPEEDS = ("alone_ms", "latency_ms", "p99_ms", "ttft_ms", "token_ms", "rps")


class Texts:
    """Texts in the order in which they came up, each once."""

    def __init__(self) -> None:
        """Begins with none."""
        self.known: dict[str, int] = {}

    def add(self, text: str) -> int:
        """The place of a text."""
        return self.known.setdefault(text, len(self.known))


def loads(store: Store) -> list[str]:
    """The named loads, the lightest first."""
    return [each.id for each in sorted(store.loads.values(), key=lambda each: each.concurrency)]


def slice_of(model: str, gpu: str) -> str:
    """The file of a model and a card as JSON text."""
    store, texts, plans = load(), Texts(), Texts()
    made = Slice(texts, plans)
    states = {
        name: {goal: made.state(Request(gpu, model=model, load=name, goal=goal)) for goal in GOALS}
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
            "plans": [json.loads(each) for each in plans.known],
            "texts": list(texts.known),
        }
    )


def compact(value: object) -> str:
    """JSON without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


class Slice:
    """Turns recommendations into what a file holds of them."""

    def __init__(self, texts: Texts, plans: Texts) -> None:
        """Collects into these."""
        self.text, self.plans = texts.add, plans

    def state(self, request: Request) -> dict[str, Any]:
        """One question's answer: where its script and its choice stand, or why nothing fits."""
        try:
            found = recommend(request)
        except NothingFits as error:
            refused = {"exit": NOTHING_FITS, "error": self.text(reports.nothing(error))}
            return refused | ({"nearest": error.change.options} if error.change else {})
        script = [self.text(each) for each in render(found, "bash").split("\n\n")]
        return {"exit": 0, "plan": self.plans.add(compact(self.plan(found))), "script": script}

    def plan(self, found: Recommendation) -> dict[str, Any]:
        """What was chosen, why, and what to expect of it: figures as the report shows them."""
        return {
            "summary": self.text(" ".join(summary(found))),
            "command": self.text(" ".join(command(found))),
            "servers": found.config.servers,
            "memory": memory(found.facts, found),
            "speed": speed(found),
            "options": {
                each.option: {"value": each.value, "why": self.text(each.reason), "on": self.text(cite(each.sources))}
                | {"alike": [said.adviser for said in each.advice if alike(each.value, said.value)]}
                for each in found.explanations
                if each.emitted
            },
            "warnings": [self.warning(each) for each in found.findings],
            "notes": [self.text(each) for each in found.facts.notes],
            "near": [
                {"run": each.run, "gpu": each.gpu, "model": each.model, "concurrency": each.concurrency}
                | {"image": each.image, "rps": each.rps, "p50_ms": each.p50_ms}
                for each in found.near
            ],
        }

    def warning(self, finding: Finding) -> dict[str, Any]:
        """What speaks against a configuration that is the best all the same."""
        made = {"severity": finding.severity, "says": self.text(finding.message), "mend": self.text(finding.remedy)}
        return made | {"on": self.text(cite(finding.sources))}


def alike(ours: str, said: str) -> bool:
    """Whether an adviser's value is ours: the same text or number, or a range that ours lies in."""
    try:
        low, *rest = (float(each) for each in said.split(SEVERAL))
        return ours == said or low <= float(ours) <= (rest or [low])[-1]
    except ValueError:
        return ours == said


def memory(facts: Facts, found: Recommendation) -> dict[str, Any]:
    """Memory of one card in GiB: each part and the total as [predicted, low, high]."""
    used, (low, high) = found.memory, likely(facts, found.memory, found.config.tp)
    parts = {item.name: [*_gib(item.bytes, item.low, item.high), item.basis] for item in used.items if item.bytes}
    cache = {"blocks": used.kv_blocks, "tokens": used.kv_tokens, "requests": used.kv_requests}
    cache["needed_tokens"] = used.kv_needed_tokens
    total = _gib(used.total, low, high)
    return {"parts": parts, "total": total, "at_most": _gib(used.high)[0], "kv_cache": cache}


def _gib(*sizes: float) -> list[float]:
    return [float(gib(each)) for each in sizes]


def speed(found: Recommendation) -> dict[str, Any]:
    """Times in ms and requests a second as [predicted, low, high]; what limits, and what that rests on."""
    used = found.speed
    figures = {name: getattr(used, name) for name in SPEEDS}
    rounded = {name: [round(each, 1) for each in (of.value, of.low, of.high)] for name, of in figures.items()}
    return rounded | {"limit": used.limit, "basis": used.basis}


def release() -> str:
    """The release of LMDeploy that the answers are for: that of a request that names none."""
    return Request(GPUS[0]).lmdeploy


def options() -> str:
    """What is the same in every answer: each option's name, what advisers gave and what was judged."""
    store = load()
    found = recommend(Request("h100-sxm-80g"), store)
    known = {each.id: each for each in store.options()}
    shown = [each for each in found.explanations if known[each.option].setting]
    return compact(
        {
            "format": FORMAT,
            "count": len(found.explanations),
            "advisers": {each.id: each.name for each in store.advisers.values()},
            "ranges": reports.WIDE,
            "options": {
                each.option: {
                    "name": each.name,
                    "kind": each.kind,
                    "switch": each.switch,
                    "summary": known[each.option].summary,
                    "summary_vi": getattr(known[each.option], "summary_vi", ""),
                    "advice": {said.adviser: said.value for said in each.advice},
                    "claims": [{"id": of.claim, "verdict": of.verdict, "says": of.statement} for of in each.verdicts],
                }
                for each in shown
            },
        }
    )
