"""A server on the port of its proxy

## What it does
Reports a server whose port is the one that `--proxy-url` names on the same host.

## Why
If the proxy runs, its port is taken, and the server fails when it opens it. If not, the server registers with itself,
gets an error, and serves alone on the port where clients expect the proxy.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 8000 --proxy-url http://localhost:8000

## Good
Use another `--server-port`:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 23333 --proxy-url http://localhost:8000
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.rules import surroundings


@launch_rule("error", sources=("flags/proxy-url", "flags/server-port", "constraints/port-not-the-proxys"))
def rule(case: Case) -> Diagnostics:
    proxy, own = case.settings.get("proxy-url"), case.settings.get("server-port")
    if proxy is None or not checks.server(case) or case.launch.container is not None:
        return
    host, port = surroundings.split_url(proxy.text or "")
    if port is not None and surroundings.is_this_host(host) and port == surroundings.port(case.launch):
        yield Diagnostic(
            checks.at(own) if own else checks.at(proxy),
            f"Port {port} is the port of the proxy on this host.",
            "The server cannot open it while the proxy runs; use another port.",
        )
