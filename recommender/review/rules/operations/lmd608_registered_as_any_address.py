"""A server that registers as 0.0.0.0

## What it does
Reports `--proxy-url` on a server without its own address. The server registers with the proxy under `--server-name`,
which is 0.0.0.0 by default. If the proxy's address is this host, it is an info.

## Why
For the proxy, 0.0.0.0 is its own host. This works only if both run on one host; otherwise the proxy sends the
requests to itself.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --proxy-url http://10.0.0.5:8000

## Good
Set `--server-name` to an address of this host that the proxy can reach:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --proxy-url http://10.0.0.5:8000 --server-name 10.0.0.7
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.rules import surroundings


@launch_rule(
    "warning", sources=("constraints/proxy-needs-address", "claims/proxy-url-registers-server", "flags/proxy-url")
)
def rule(case: Case) -> Diagnostics:
    proxy, name = case.settings.get("proxy-url"), case.settings.get("server-name")
    if proxy is None or not checks.server(case):
        return
    address = surroundings.address(case)
    if address is None or not surroundings.is_any_address(address):
        return
    same_host = case.launch.container is None and surroundings.is_this_host(surroundings.split_url(proxy.text or "")[0])
    shown = address or surroundings.default("server-name")
    yield Diagnostic(
        checks.at(name) if name else checks.at(proxy),
        f"The server registers with the proxy as {shown}, which no other host can reach.",
        "Set --server-name to an address of this host that the proxy can reach.",
        severity="info" if same_host else None,
    )
