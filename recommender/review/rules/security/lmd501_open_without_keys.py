"""A server open to everyone

## What it does
Reports an api_server outside a container that listens on every address without API keys. It is a warning if the
script sets the address, and an info if it is LMDeploy's default.

## Why
Without keys there is no authentication. Anyone who reaches the port can use the model, call the management routes
that every server has, and make a vision model fetch any address.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-name 0.0.0.0

## Good
Use `--server-name 127.0.0.1` with an authenticating reverse proxy, or `--api-keys` from a file or variable. Note that
`ps` shows the keys, and /health stays open.

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-name 127.0.0.1
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.rules import surroundings


@launch_rule(
    "warning", sources=("flags/server-name", "flags/api-keys", "https://github.com/InternLM/lmdeploy/issues/4761")
)
def rule(case: Case) -> Diagnostics:
    if (
        not checks.server(case)
        or case.launch.container
        or case.launch.unsure
        or case.launch.instead
        or "api-keys" in case.settings
    ):
        return
    address, setting = surroundings.address(case), case.settings.get("server-name")
    if address is None or not surroundings.is_any_address(address):
        return
    by_default = "" if setting else f" ({surroundings.default('server-name')} is the default)"
    yield Diagnostic(
        checks.at(setting) if setting else case.launch.place,
        f"The server listens on every address{by_default} without API keys.",
        "Anyone who reaches the port can use it; bind it to 127.0.0.1 or add an authenticating proxy.",
        severity=None if setting else "info",
    )
