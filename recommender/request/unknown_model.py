"""Say what can be done about a model that no record describes: a typo, a folder, or another engine."""

from __future__ import annotations

import difflib
import json
import re
from functools import cache
from typing import TYPE_CHECKING

from recommender.common.pattern import pattern
from recommender.common.text import BEGUN, normal, shorten
from recommender.knowledge.load import data_root
from recommender.knowledge.names import SHOWN, models_with_words
from recommender.knowledge.store import Store

if TYPE_CHECKING:
    from recommender.knowledge import records

TYPO = 0.8
"""Likeness from which a name is taken for a misspelt one."""
WORD = 0.7
LEAST_LETTERS = 4
MISSPELT = 3
"""Models that are suggested for a misspelt name."""
SEES = re.compile(r"(?<![a-z])(vl|vision|omni|audio)(?![a-z])")
"""Marks the name of a model that reads more than text."""
READS = re.compile(r"(?<!V)(?<!VLM)(?<!VLV2)ForCausalLM$")
"""Marks an architecture that reads text only."""
PARTS = re.compile(r"MTP|Eagle|Draft|Reward")
"""Marks an architecture that only helps another to decode, or does not chat."""
EMBEDDINGS = pattern(r"(?:.*-)?(?:bge|gte|e5|gme)-.*|(?:.*[-_])?embed(?:ding|dings)?(?:[-_.].*)?", re.IGNORECASE)
"""Names of embedding models."""
FORMATS = pattern(r"(?:^|[-_./])(gguf|bnb|mlx|exl[23]|onnx|(?:nv)?fp4)(?:[-_./]|$)", re.IGNORECASE)
"""Marks the name of a checkpoint whose weights no engine of LMDeploy reads, and the format."""
UNSERVED = (
    # Its config.json: https://huggingface.co/Intel/GLM-4.5V-int4-AutoRound/blob/main/config.json
    (re.compile(r"glm-?4\.[56]v(?!-?flash)"), "no covered release of LMDeploy has Glm4vMoeForConditionalGeneration"),
    (
        re.compile(r"minicpm-?v-?4"),
        "LMDeploy stops at it: it takes MiniCPM-V 2.5 and 2.6 only (0.18.0 lmdeploy/vl/model/minicpmv.py:34)",
    ),
)
"""Models that resemble others by name and that no release serves, and how this is known."""
SUFFIX = re.compile(r"(For[A-Z]\w*|LMHeadModel|ChatModel|MTP\w*|Model)$")


def explain_unknown(store: Store, name: str, release: str) -> str:
    """Return one line: the names that are near, how to use a checkpoint folder, or which engine serves it."""
    shown = f"--model: unknown model {shorten(name)}"
    if unserved := explain_unserved(name):
        return f"{shown}: {unserved}"
    last = name.casefold().replace("_", "-").rpartition("/")[2]
    if unserved := next((why for model, why in UNSERVED if model.search(last)), ""):
        return f"{shown}: {unserved}"
    covered = {model.architecture for model in store.models.values()}
    architecture, named = family(name, release, covered)
    certain = f" ({architecture})" if named else ""
    other = named and architecture not in covered  # Mistral is no misspelt Mixtral
    if not other and (near := _near(store, name)):
        folder = (
            " For another one, pass its folder with config.json: --model path/to/it" if architecture in covered else ""
        )
        return f"{shown}: did you mean {', '.join(near)}?{folder}"
    if architecture in covered:
        return (
            f"{shown}: no record has it, but its architecture may be covered{certain}; download it and pass its "
            "folder with config.json: --model path/to/it"
        )
    if architecture in served(release, "turbomind"):
        return f"{shown}: TurboMind {release} serves {architecture}, but no record describes one yet (CONTRIBUTING.md)"
    if architecture:
        return (
            f"{shown}: LMDeploy {release} serves this family{certain} with its PyTorch engine "
            "only, and no record describes one yet (CONTRIBUTING.md)"
        )
    return f"{shown}; see recommend list models, or pass the folder of a checkpoint: --model path/to/it"


def explain_unserved(name: str) -> str:
    """Return what a name says against serving the model: an embedding model, or a format that LMDeploy does not read.

    Empty if it says nothing.
    """
    if found := FORMATS.search(name):
        kind = "NVFP4" if "fp4" in found[1].casefold() else found[1].upper()
        return f"by its name its weights are {kind}, which LMDeploy does not read; use the original, AWQ or GPTQ"
    if EMBEDDINGS.fullmatch(name.rstrip("/").rpartition("/")[2]):
        return "by its name it is an embedding model, which LMDeploy does not serve: /v1/embeddings answers HTTP 400"
    return ""


def explain_architecture(architecture: str, release: str) -> str:
    """Return which engine of a release serves an architecture that no record has; empty if none does."""
    if architecture in served(release, "turbomind"):
        return f"TurboMind {release} serves it, but no record describes one yet"
    if architecture in served(release, "pytorch"):
        return f"LMDeploy {release} serves it with its PyTorch engine only, but no record describes one yet"
    return ""


def _near(store: Store, name: str) -> list[str]:
    """Return the models that begin with a name, that have its words, or that it misspells.

    None where it has a word of its own.
    """
    last = normal(name.rstrip("/").rpartition("/")[2])
    if named := (*_begun(store, last), *models_with_words(store, name)):
        return list(dict.fromkeys(model.id for model in named))[:SHOWN]
    models = store.models.values()
    known = {normal(alias): (alias, model.id) for model in models for alias in (model.hub, *model.aliases, model.id)}
    alike = (difflib.get_close_matches(word[:80], known, n=9, cutoff=TYPO) for word in (normal(name), last))
    nearest: dict[str, str] = {}
    for alias, model_id in (known[key] for key in next(filter(None, alike), ())):
        nearest.setdefault(model_id, alias)
    similar = [*nearest.values()][:MISSPELT]
    said = re.findall(r"[a-z]+", name.casefold().rpartition("/")[2])
    there = set(re.findall(r"[a-z]+", " ".join(similar).casefold()))
    own = [
        word
        for word in said
        if len(word) >= LEAST_LETTERS and not difflib.get_close_matches(word, there, n=1, cutoff=WORD)
    ]
    return [] if own else similar


def _begun(store: Store, begin: str) -> list[records.Model]:
    """Return the models whose id or name on the hub begins with these letters, shortest first."""
    begun = (
        model
        for model in store.models.values()
        if len(begin) >= BEGUN
        and any(normal(text).startswith(begin) for text in (model.id, model.hub.rpartition("/")[2]))
    )
    return sorted(begun, key=lambda model: (len(model.id), model.id))


def family(name: str, release: str, preferred: set[str]) -> tuple[str, bool]:
    """Return the architecture that a model's name suggests, and whether the name has the architecture's own.

    Else it is one of the same family, of which others may be. Empty if the name suggests none.
    """
    last = name.casefold().rstrip("/").rpartition("/")[2].rpartition("distill")[2]
    listed = served(release, "turbomind") | served(release, "pytorch")
    sees = bool(SEES.search(last))
    whole = [
        architecture
        for architecture in listed
        if not PARTS.search(architecture) and not (sees and READS.search(architecture))
    ]
    # Some architectures share a name, such as Glm4 for text and for images: prefer a covered one, then the shortest.
    ranked = sorted(whole, key=lambda architecture: (architecture not in preferred, len(architecture), architecture))
    by_key: dict[str, str] = {}
    for architecture in ranked:
        by_key.setdefault(_key(architecture), architecture)
    for word in re.finditer(r"[a-z0-9]+", last):  # a fine-tuned model's own words may come first
        begun = re.sub(r"[^a-z0-9]", "", last[word.start() :])
        if key := max((key for key in by_key if len(key) > 1 and begun.startswith(key)), key=len, default=""):
            alike = [by_key[other] for other in by_key if other.startswith(key)]  # the covered ones first
            if by_key[key] in preferred or not key.isalpha() or len(alike) == 1:
                return by_key[key], True
            return alike[0], False
    letters = _letters(normal(last))
    related = (
        architecture
        for architecture in ranked
        if len(letters) > 1 and _letters(_key(architecture)) == letters and not sees
    )
    return next(related, ""), False


def _key(architecture: str) -> str:
    return normal(SUFFIX.sub("", architecture).casefold())


def _letters(key: str) -> str:
    found = re.match(r"[a-z]+", key)
    return re.sub(r"v$", "", found[0]) if found else ""


@cache
def served(release: str, engine: str) -> frozenset[str]:
    """Return the architectures in an engine's table, as extracted from a release's wheel."""
    raw = json.loads((data_root() / "knowledge" / "extracted" / "api_server.json").read_text("utf-8"))
    entries = [raw["listed"][number] for number in raw["releases"].get(release, {}).get("listed", ())]
    return frozenset(entry["name"] for entry in entries if entry["table"] == engine)
