"""An option that is given twice

## What it does
Reports an option that appears twice in one command with different values.

## Why
The parser silently keeps the last one, also for lists: with `--api-keys a --api-keys b` only b is a key. Anyone who
reads or changes the first one is misled.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --tp 1 --session-len 8192 --tp 2

## Good
Keep one:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 8192 --tp 2
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.script.model import GivenOption

CLI = "https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/cli/serve.py"


@launch_rule("warning", sources=(CLI, "flags/api-keys"))
def rule(case: Case) -> Diagnostics:
    if not checks.server(case):
        return
    last: dict[str, GivenOption] = {}
    for option, flag in checks.options(case):
        if not _within(case, option) or checks.era(case, flag) is None:
            continue
        before = last.get(flag.id)
        if before is not None and before.place < option.place and _texts(before) != _texts(option):
            yield Diagnostic(
                before.place,
                f"{before.name} is given again on line {option.place.line}; this one has no effect.",
                "The parser keeps only the last one, also for lists.",
            )
        last[flag.id] = option


def _within(case: Case, option: GivenOption) -> bool:
    """Return whether the option is written in the command itself: arrays and variables may have several values."""
    place = case.launch.place
    return place.start <= option.place.start and option.whole.end <= place.end


def _texts(option: GivenOption) -> list[str | None]:
    return [word.value for word in option.values]
