"""A server on the port of its own proxy

Finds a server whose port is the one that ``--proxy-url`` names on this very host.

If the proxy runs, its port is taken and the server ends when it opens it. If it does not, the server registers with
itself, gets an error, and serves alone on the port where everybody expects the proxy.

Mend it with another ``--server-port``.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 8000 --proxy-url http://localhost:8000

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 23333 --proxy-url http://localhost:8000
"""

from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around


def check(case: Case) -> Iterator[Said]:
    """Host and port of the proxy's address against the server's own."""
    proxy, own = case.settings.get("proxy-url"), case.settings.get("server-port")
    if proxy is None or not support.server(case) or case.launch.container is not None:
        return
    host, port = around.parts(proxy.text or "")
    if port is not None and around.this_host(host) and port == around.port(case.launch):
        yield Said(
            support.at(own) if own else support.at(proxy),
            f"Port {port} is the proxy's, on this same host.",
            "The server cannot open it while the proxy runs; give it a port of its own.",
        )


RULE = Rule(
    id="LMD615",
    name="port-of-the-proxy",
    family="operations",
    severity="error",
    sources=("flags/proxy-url", "flags/server-port", "constraints/port-not-the-proxys"),
    check=check,
)
