"""More answer tokens than a session can hold

Finds max_new_tokens at or above the session length of the same pipeline.

Prompt and answer share the session, so such a limit is never reached: the session ends the answer first, in the middle
of a sentence, and nothing says so.

Raise the session length, or lower the limit to the longest answer that is wanted.

Bad:

    pipe = pipeline(model, backend_config=TurbomindEngineConfig(session_len=2048))
    pipe(prompts, gen_config=GenerationConfig(max_new_tokens=4096))

Good:

    pipe = pipeline(model, backend_config=TurbomindEngineConfig(session_len=8192))
    pipe(prompts, gen_config=GenerationConfig(max_new_tokens=4096))
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

WITHIN = "max-tokens-within-session"


def _check(case: Case) -> Iterator[Said]:
    if "max-tokens" in case.settings and "session-len" in case.settings:
        yield from s.say(case, WITHIN)


RULE = Rule(
    id="LMD215",
    name="tokens-above-session",
    family="answers",
    severity="warning",
    sources=(f"constraints/{WITHIN}", "client/max-tokens", "claims/session-counts-prompt-and-answer"),
    check=_check,
)
