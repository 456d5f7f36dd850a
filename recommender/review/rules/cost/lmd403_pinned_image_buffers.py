"""Host memory pinned for image buffers

## What it does
Reports an InternVL model on TurboMind 0.16.0 or 0.17.0 if prefill tokens plus batch size exceed the limit of the
constraint `vision-host-memory`. Nothing is reported if `recommend` would choose as many prefill tokens for the load.

## Why
In these two releases the vision encoder pins host memory for two tiles per token of a forward pass, on every GPU.
With the default settings that is tens of gigabytes, and the kernel kills a container with a memory limit.

## Bad
With 0.16.0:

    lmdeploy serve api_server OpenGVLab/InternVL3-78B --trust-remote-code --max-prefill-token-num 8192

## Good
Use 0.18.0, or lower `--max-prefill-token-num` and `--max-batch-size`:

    lmdeploy serve api_server OpenGVLab/InternVL3-78B --trust-remote-code \\
      --max-prefill-token-num 2048 --max-batch-size 32
"""

from collections.abc import Mapping

from recommender.knowledge.conditions import Value
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, declare
from recommender.review.rules import surroundings


def _check(case: Case) -> Diagnostics:
    if not case.release_known:
        return
    for violation in checks.broken(case, "vision-host-memory", extra=_tokens(case)):
        if _needed(case):
            return
        remedy = f"{violation.record.remedy.rstrip('.')}, or use 0.18.0, which no longer pins it."
        yield Diagnostic(checks.place(case, "max-prefill-token-num"), violation.message, remedy)


def _needed(case: Case) -> bool:
    """Return whether ``recommend`` would choose as many prefill tokens for the given load."""
    chosen, prefill_tokens = surroundings.recommended_config(case), case.number("max-prefill-token-num")
    return chosen is not None and prefill_tokens is not None and chosen.prefill_tokens >= prefill_tokens


def _tokens(case: Case) -> Mapping[str, Value]:
    """Return the tokens of a pass that the launch itself sets, where GPU or model is unknown."""
    prefill, batch = case.number("max-prefill-token-num"), case.number("max-batch-size")
    if case.candidate is not None or prefill is None:
        return {}
    return {"estimate.forward_tokens": int(prefill + (batch or 0))}


rule = declare(
    __name__,
    "warning",
    check=_check,
    needs=("model",),
    by_architecture=True,
    sources=("constraints/vision-host-memory", "threads/host-memory-of-image-buffers"),
)
