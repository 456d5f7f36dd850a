"""Output that is cut off

## What it does
Reports session lengths that hold the prompt but not the whole output, or not the longest requests of a workload, and a
max_new_tokens below the expected output.

## Why
Prompt and output share the session, and LMDeploy cuts off what does not fit. A truncated JSON object does not parse.
The request has its own limit, max_new_tokens: raising one limit does not raise the other.

## Bad
For a prompt of 300 tokens and an output of 200:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 400

## Good
Raise the session length, or the client's token limit:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 1024
"""

from recommender.review.checks import HOLDS_INPUT
from recommender.review.rules.constraint_rule import constraint_rule

rule = constraint_rule(
    __name__,
    "warning",
    ("session-holds-output", "session-holds-longest", "max-tokens-cover-output"),
    sources=("threads/answer-cut-off",),
    needs=("model", "load"),
    unless={"session-holds-output": HOLDS_INPUT},
)
