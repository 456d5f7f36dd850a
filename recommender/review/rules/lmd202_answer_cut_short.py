"""An answer that is cut short

Finds session lengths that hold the prompt but not the whole answer, and max_new_tokens below the answer.

Prompt and answer share the session; what does not fit is cut off, and the cut half of a JSON object does not parse.
The request has a limit of its own besides: raising one does not raise the other.

Raise the session length, or the tokens that the client allows.

Bad, for a prompt of 300 tokens and an answer of 200:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 400

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 1024
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

INPUT = ("session-holds-input", "session-holds-input-before-0-16")
OUTPUT, ALLOWED = "session-holds-output", "max-tokens-cover-output"


def _check(case: Case) -> Iterator[Said]:
    if not any(s.broken(case, *INPUT)):
        yield from s.say(case, OUTPUT)
    yield from s.say(case, ALLOWED)


RULE = Rule(
    id="LMD202",
    name="answer-cut-short",
    family="answers",
    severity="warning",
    sources=(f"constraints/{OUTPUT}", f"constraints/{ALLOWED}", "threads/answer-cut-off"),
    check=_check,
    needs=("model", "load"),
)
