"""A log level for hunting problems

Finds ``--log-level`` DEBUG, NOTSET, REQUEST or INFO on a server: a warning for those that write for every request
and step, a remark for INFO.

Text is formatted and written for each request, on the host whose time decoding waits for. Prompts stand in the log
too, at INFO up to 0.13 and at REQUEST from 0.14, which is a matter of privacy. The default (WARNING, ERROR before
0.10.0) tells the fall-back to another engine and corrected settings.

Mend it by leaving the option out, and set INFO for the start that you watch.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --log-level DEBUG

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct
"""

from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said

LOUD = ("DEBUG", "NOTSET", "REQUEST")


def check(case: Case) -> Iterator[Said]:
    """The level as given."""
    setting = case.settings.get("log-level")
    level = ((setting.text if setting else None) or "").upper()
    if setting is None or not support.server(case) or level not in (*LOUD, "INFO"):
        return
    loud = level in LOUD
    yield Said(
        support.at(setting),
        f"Log level {level} formats text for every request{' and step' if loud else ''}.",
        "That is host time under load, and prompts may stand in the log; the default tells what goes wrong.",
        severity="warning" if loud else "info",
    )


RULE = Rule(
    id="LMD412",
    name="chatty-log-level",
    family="costs",
    severity="warning",
    sources=("flags/log-level", "claims/lower-log-level-saves-time"),
    check=check,
)
