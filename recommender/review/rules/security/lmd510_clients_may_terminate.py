"""Clients that can stop the server

## What it does
Reports `--allow-terminate-by-client` on a server that other hosts can reach.

## Why
A single GET request then stops the service for everyone. Up to 0.12.1 that route does not even check the API key. The
option is for test harnesses.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --allow-terminate-by-client

## Good
Remove the option and stop the process through whatever started it, or make the server reachable only from this host:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --allow-terminate-by-client --server-name 127.0.0.1
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule
from recommender.review.rules import surroundings


@option_rule("allow-terminate-by-client", "warning", sources=("flags/allow-terminate-by-client",))
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    if setting.text != "true" or not checks.server(case) or not surroundings.reachable(case):
        return
    yield Diagnostic(
        setting.option.place,
        "Any client can stop the server with one GET request.",
        "The option is for test harnesses; stop the process through whatever started it.",
    )
