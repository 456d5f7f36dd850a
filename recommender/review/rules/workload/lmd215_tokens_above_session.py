"""More output tokens than the session holds

## What it does
Reports a max_new_tokens at or above the session length of the same pipeline.

## Why
Prompt and output share the session, so the output never reaches this limit. The session ends it first, in the middle
of a sentence and silently.

## Bad

    pipe = pipeline(model, backend_config=TurbomindEngineConfig(session_len=2048))
    pipe(prompts, gen_config=GenerationConfig(max_new_tokens=4096))

## Good
Raise the session length, or lower the limit to the longest output you want:

    pipe = pipeline(model, backend_config=TurbomindEngineConfig(session_len=8192))
    pipe(prompts, gen_config=GenerationConfig(max_new_tokens=4096))
"""

from recommender.review.rules.constraint_rule import constraint_rule

rule = constraint_rule(
    __name__,
    "warning",
    ("max-tokens-within-session",),
    sources=("client/max-tokens", "claims/session-counts-prompt-and-answer"),
    when=lambda case: {"max-tokens", "session-len"} <= case.settings.keys(),
)
