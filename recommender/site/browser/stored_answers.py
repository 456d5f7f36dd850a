"""The commonest questions, answered when the site is built: for the time before the recommender is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

from recommender.site.browser.answer import answer

FOLDER = "assets/configure/stored"
MODELS = ("internvl3-8b-awq", "internvl3-8b", "qwen2.5-7b-instruct")
GPUS = ("h100-sxm-80g", "a100-sxm-80g", "l40s", "l4", "rtx-4090")
LOADS = ("16", "1")
FIRST = {"model": MODELS[0], "gpu": GPUS[0], "load": LOADS[0]}
"""The question of a fresh page."""


@dataclass(frozen=True)
class StoredAnswer:
    """A question, and its answer with the launch script."""

    model: str
    gpu: str
    load: str
    answer: Mapping[str, Any]

    @property
    def words(self) -> str:
        """Return the command line, as the page writes it."""
        return f"--model {self.model} --gpu {self.gpu} --load {self.load}"

    @property
    def name(self) -> str:
        """Return the name of its files."""
        return f"{self.model}-{self.gpu}-{self.load}"


@cache
def stored_answers() -> tuple[StoredAnswer, ...]:
    """Return the stored answers; a question without an answer is left out."""
    questions = (StoredAnswer(*each, {}) for each in product(MODELS, GPUS, LOADS))
    answered = (replace(each, answer=answer(each.words.split())) for each in questions)
    return tuple(each for each in answered if each.answer["exit"] == 0)


def files() -> Mapping[str, str]:
    """Return the files by their path below the site's root."""
    found = {}
    for each in stored_answers():
        rest = {name: value for name, value in each.answer.items() if name != "script"}
        found[f"{FOLDER}/{each.name}.json"] = json.dumps(rest, separators=(",", ":"))
        found[f"{FOLDER}/{each.name}.sh"] = each.answer["script"]
    return found
