"""An option that is given twice

Finds an option that stands twice in one command with different values.

The parser keeps the last one and drops the others without a word, lists too: of `--api-keys a --api-keys b` only b is
a key. Somebody who reads or changes the first is misled.

Keep one.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --tp 1 --session-len 8192 --tp 2

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 8192 --tp 2
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said
from recommender.review.script import Option


def _check(case: Case) -> Iterator[Said]:
    if not s.server(case):
        return
    last: dict[str, Option] = {}
    for option, flag in s.options(case):
        if not _within(case, option) or s.era(case, flag) is None:
            continue
        before = last.get(flag.id)
        if before is not None and before.place < option.place and _texts(before) != _texts(option):
            yield Said(
                before.place,
                f"{before.name} is given again in line {option.place.line}; this one has no effect.",
                "The parser keeps the last of them, of lists too.",
            )
        last[flag.id] = option


def _within(case: Case, option: Option) -> bool:
    """Whether the option stands in the command itself: what an array or a variable brings may be one of several."""
    place = case.launch.place
    return place.start <= option.place.start and option.whole.end <= place.end


def _texts(option: Option) -> list[str | None]:
    return [word.value for word in option.values]


RULE = Rule(
    id="LMD312",
    name="option-given-twice",
    family="nothing",
    severity="warning",
    sources=("flags/api-keys", "https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/cli/serve.py"),
    check=_check,
)
