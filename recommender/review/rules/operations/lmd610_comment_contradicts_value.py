"""A comment that contradicts the value

## What it does
Reports a comment, on the line of a value or right above it, that states another value: other GPUs than
CUDA_VISIBLE_DEVICES, another GPU count, another number for the variable or option that it names, or another share.
Only plain statements count; defaults, examples, limits and ranges in comments are not compared.

## Why
One of the two is out of date, and readers believe the comment. Anyone who looks for a free GPU picks the wrong one.

## Bad

    # run on GPUs 2 and 3
    export CUDA_VISIBLE_DEVICES=0

## Good
Write what you mean, or remove the value from the comment:

    # run on one card only, the others are for training
    export CUDA_VISIBLE_DEVICES=0
"""

import re
from collections.abc import Iterator

from recommender.common.pattern import pattern
from recommender.common.units import read_number
from recommender.review.rule import Diagnostic, Diagnostics, script_rule
from recommender.review.script.model import Comment, Script, Word

VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
GPUS = pattern(
    r"\b(?:GPU|card|device)s?\s*+(?:ids?|numbers?|#|:)*+\s*+(\d+(?:\s*(?:,\s*and|,|and|&)\s*\d+)*)"
    r"(?![\w.%-])(?!\s*(?:GB|GiB|G\b))",
    re.IGNORECASE,
)
COUNT = pattern(r"(?<![\w.-])(\d+|two|four|eight)\s+(?:GPU|card)s?\b", re.IGNORECASE)
WORDS = {"two": 2, "four": 4, "eight": 8}
HEDGED = pattern(
    r"\b(?:default|e\.?g|example|instance|such as|or|change|adjust|if|instead|was|were|not|never|max(?:imum)?|up to"
    r"|min(?:imum)?|at least|at most|available|host|machine|node|total|all|range|between|from|try|could|may|might"
    r"|should|recommended|suggested|than|use case|per|each|old|previously|out of memory)\b|[?<>]|\d\s*-\s*\d|->",
    re.IGNORECASE,
)
NUMBER = r"(\d[\d_,]*(?:\.\d+)?)\s*(k|K)?(?![\w.%-])"
TOKENS = pattern(rf"#\s*{NUMBER}\s+tokens?\b", re.IGNORECASE)
PERCENT = pattern(r"(?<![\w.-])(\d+(?:\.\d+)?)\s*%")
SETTING = pattern(r"#\s*+(?:export\s++)?\w++\s*+=\s*+[^\s#]++\s*+")
"""A setting that was commented out above the one that holds."""
SHARE = "cache_max_entry_count"


@script_rule("warning", sources=("environment/cuda-visible-devices",))
def rule(script: Script) -> Diagnostics:
    by_line: dict[int, list[tuple[str, Word]]] = {}
    for name, word in _values(script):
        by_line.setdefault(word.place.line, []).append((name, word))
    for comment in script.comments:
        line, same_line = _target(script, comment)
        if HEDGED.search(comment.text) or (not same_line and SETTING.fullmatch(comment.text)):
            continue
        for name, word in by_line.get(line, []):
            if word.value is None or len(by_line[line]) > 1:
                continue
            stated = _contradiction(comment.text, name, word.value.strip(), same_line)
            if stated:
                yield Diagnostic(
                    comment.place,
                    f"The comment says {stated}, but the value is {word.value.strip()[:40]}.",
                    "One of the two is out of date, and readers believe the comment.",
                )


def _values(script: Script) -> Iterator[tuple[str, Word]]:
    """Yield name and value of assignments, container variables and Python keywords."""
    seen = set()
    for assignment in script.assignments:
        seen.add(assignment.word.place.start)
        yield assignment.name, assignment.word
    for launch in script.launches:
        for name, word in launch.environment.items():
            if word.place.start not in seen:
                seen.add(word.place.start)
                yield name, word
        for option in launch.options:
            if len(option.values) == 1 and script.kind == "python" and option.values[0].place.start not in seen:
                seen.add(option.values[0].place.start)
                yield option.name.rpartition(".")[2], option.values[0]


def _target(script: Script, comment: Comment) -> tuple[int, bool]:
    """Return the line that a comment is about, and whether the comment is on that line."""
    start = script.text.rfind("\n", 0, comment.place.start) + 1
    if script.text[start : comment.place.start].strip():
        return comment.place.line, True
    return comment.place.line + 1, False


def _contradiction(text: str, name: str, value: str, same_line: bool) -> str:
    """Return the value that the comment states instead; empty if it does not contradict."""
    if name in VISIBLE:
        return _other_gpus(text, value)
    number = read_number(value)
    if number is None:
        return ""
    named = re.escape(name).replace("_", "[ _-]?")
    stated = re.search(rf"(?<![\w-]){named}\s*+(?:=|:|is|to|of|at)?+\s*+{NUMBER}", text, re.IGNORECASE)
    counts_tokens = same_line and re.search(r"_LEN$|_TOKEN", name, re.IGNORECASE)
    stated = stated or (TOKENS.match(text) if counts_tokens else None)
    if stated:
        plain = float(re.sub("[_,]", "", stated[1]))
        return "" if number in ({plain * 1000, plain * 1024} if stated[2] else {plain}) else stated[0].lstrip("# ")
    share = PERCENT.search(text) if name.casefold() == SHARE and number < 1 else None
    return share[0] if share and abs(float(share[1]) / 100 - number) > 1e-6 else ""


def _other_gpus(text: str, value: str) -> str:
    listed = [gpu.strip() for gpu in value.split(",") if gpu.strip()]
    if not listed or not all(gpu.isdecimal() for gpu in listed):
        return ""
    count = COUNT.search(text)
    if count:
        number = WORDS.get(count[1].casefold()) or int(count[1])
        return count[0] if number != len(listed) else ""
    gpus = GPUS.search(text)
    if gpus and set(re.findall(r"\d+", gpus[1])) != set(listed):
        return gpus[0]
    return ""
