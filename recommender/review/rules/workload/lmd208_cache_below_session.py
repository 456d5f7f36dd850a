"""A session that the KV cache cannot hold

## What it does
Reports a `--session-len` above the tokens that the KV cache holds.

## Why
Up to 0.14.0 TurboMind shortens the session to what fits and only logs it. Since 0.15.0 it keeps the number: it
accepts a request longer than the cache, which then fails for lack of memory.

## Bad
On a small GPU:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 32768 --cache-max-entry-count 0.05

## Good
Raise the cache share, or lower the session length to what the requests need:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 8192 --cache-max-entry-count 0.5
"""

from recommender.review import checks
from recommender.review.rules.constraint_rule import constraint_rule

rule = constraint_rule(
    __name__,
    "warning",
    ("kv-holds-session", "kv-holds-session-before-0-15", "kv-holds-session-pytorch"),
    sources=("flags/session-len",),
    needs=("gpu", "model"),
    at="session-len",
    when=checks.runs_for_certain,
)
