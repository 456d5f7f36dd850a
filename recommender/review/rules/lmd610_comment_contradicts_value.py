"""A comment that contradicts the value

Finds a comment, on the line of a value or right above it, that states another value: other GPUs than
CUDA_VISIBLE_DEVICES lists, another number of them, another number for the variable or option that it names, another
share. Only plain statements are compared; defaults, examples, limits and ranges in comments are left alone.

One of the two is out of date, and the reader believes the comment. Whoever looks for a free card trusts the wrong
one.

Mend it by writing what is meant, or take the value out of the comment.

Bad:

    # run on GPUs 2 and 3
    export CUDA_VISIBLE_DEVICES=0

Good:

    # run on one card only, the others are for training
    export CUDA_VISIBLE_DEVICES=0
"""

import re
from collections.abc import Iterator

from recommender.review.rule import Rule, Said
from recommender.review.script import Comment, Script, Word

VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
CARDS = re.compile(
    r"\b(?:GPU|card|device)s?\s*(?:ids?|numbers?|#|:)*\s*(\d+(?:\s*(?:,\s*and|,|and|&)\s*\d+)*)"
    r"(?![\w.%-])(?!\s*(?:GB|GiB|G\b))",
    re.IGNORECASE,
)
COUNT = re.compile(r"(?<![\w.-])(\d+|two|four|eight)\s+(?:GPU|card)s?\b", re.IGNORECASE)
WORDS = {"two": 2, "four": 4, "eight": 8}
HEDGED = re.compile(
    r"\b(?:default|e\.?g|example|instance|such as|or|change|adjust|if|instead|was|were|not|never|max(?:imum)?|up to"
    r"|min(?:imum)?|at least|at most|available|host|machine|node|total|all|range|between|from|try|could|may|might"
    r"|should|recommended|suggested|than|use case|per|each|old|previously|out of memory)\b|[?<>]|\d\s*-\s*\d|->",
    re.IGNORECASE,
)
NUMBER = r"(\d[\d_,]*(?:\.\d+)?)\s*(k|K)?(?![\w.%-])"
TOKENS = re.compile(rf"#\s*{NUMBER}\s+tokens?\b", re.IGNORECASE)
PERCENT = re.compile(r"(?<![\w.-])(\d+(?:\.\d+)?)\s*%")
SHARE = "cache_max_entry_count"


def check(script: Script) -> Iterator[Said]:
    """Each comment with the values of the line that it is about."""
    by_line: dict[int, list[tuple[str, Word]]] = {}
    for name, word in _values(script):
        by_line.setdefault(word.place.line, []).append((name, word))
    for comment in script.comments:
        if HEDGED.search(comment.text):
            continue
        line, beside = _target(script, comment)
        for name, word in by_line.get(line, []):
            if word.value is None or len(by_line[line]) > 1:
                continue
            other = _contradiction(comment.text, name, word.value.strip(), beside)
            if other:
                yield Said(
                    comment.place,
                    f"The comment says {other}, the value is {word.value.strip()[:40]}.",
                    "One of the two is out of date, and the comment is what people believe.",
                )


def _values(script: Script) -> Iterator[tuple[str, Word]]:
    """What the file sets, each with its name: assignments, variables of a container, keywords of Python."""
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
    """The line that a comment is about, and whether it stands on that line."""
    start = script.text.rfind("\n", 0, comment.place.start) + 1
    if script.text[start : comment.place.start].strip():
        return comment.place.line, True
    return comment.place.line + 1, False


def _contradiction(text: str, name: str, value: str, beside: bool) -> str:
    """What the comment says instead; empty where it says nothing else."""
    if name in VISIBLE:
        return _other_cards(text, value)
    number = _number(value)
    if number is None:
        return ""
    named = re.escape(name).replace("_", "[ _-]?")
    stated = re.search(rf"(?<![\w-]){named}\s*(?:=|:|is|to|of|at)?\s*{NUMBER}", text, re.IGNORECASE)
    counts_tokens = beside and re.search(r"_LEN$|_TOKEN", name, re.IGNORECASE)
    stated = stated or (TOKENS.match(text) if counts_tokens else None)
    if stated:
        plain = float(re.sub("[_,]", "", stated[1]))
        return "" if number in ({plain * 1000, plain * 1024} if stated[2] else {plain}) else stated[0].lstrip("# ")
    share = PERCENT.search(text) if name.casefold() == SHARE and number < 1 else None
    return share[0] if share and abs(float(share[1]) / 100 - number) > 1e-6 else ""


def _other_cards(text: str, value: str) -> str:
    listed = [each.strip() for each in value.split(",") if each.strip()]
    if not listed or not all(each.isdecimal() for each in listed):
        return ""
    count = COUNT.search(text)
    if count:
        said = WORDS.get(count[1].casefold()) or int(count[1])
        return count[0] if said != len(listed) else ""
    cards = CARDS.search(text)
    if cards and set(re.findall(r"\d+", cards[1])) != set(listed):
        return cards[0]
    return ""


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


RULE = Rule(
    id="LMD610",
    name="comment-contradicts-value",
    family="operations",
    severity="warning",
    sources=("environment/cuda-visible-devices",),
    whole=check,
)
