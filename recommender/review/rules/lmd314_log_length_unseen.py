"""A length of log lines that are not written

Finds `--max-log-len` where the log level hides the lines that it shortens.

It cuts the prompts in the log. They are written at INFO up to 0.13.0 and at REQUEST, below INFO, from 0.14.0 on; at
the default level, WARNING (ERROR before 0.10.0), there are none.

Take it out, or set the log level that shows prompts, if you want them in the log.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-log-len 100

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from recommender.review import case as k
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

QUIET = frozenset({"WARN", "WARNING", "ERROR", "CRITICAL", "FATAL"})
REQUEST_LEVEL = Version("0.14.0")


def _check(case: Case) -> Iterator[Said]:
    setting = case.settings.get("max-log-len")
    level = k.effective(case, "log-level") if s.server(case) else None
    if setting is None or level is None:
        return
    hidden = level in QUIET or (level == "INFO" and case.facts.version >= REQUEST_LEVEL)
    if hidden:
        shown = "REQUEST" if case.facts.version >= REQUEST_LEVEL else "INFO"
        yield Said(
            setting.option.place,
            f"{setting.option.name} does nothing at log level {level}.",
            f"The lines that it cuts are written at {shown} in {s.release(case)}.",
        )


RULE = Rule(
    id="LMD314",
    name="log-length-unseen",
    family="nothing",
    severity="info",
    sources=("flags/max-log-len", "flags/log-level"),
    check=_check,
)
