"""A server that registers itself as 0.0.0.0

Finds ``--proxy-url`` on a server without an address of its own: it registers with the proxy under ``--server-name``,
and by default that is 0.0.0.0.

For the proxy 0.0.0.0 is its own host. So it works only where both run on one host; from anywhere else the proxy
sends the requests to itself. It is told as a remark where the proxy's address is one of this host.

Mend it with ``--server-name`` and an address of this host that the proxy can reach.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --proxy-url http://10.0.0.5:8000

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --proxy-url http://10.0.0.5:8000 --server-name 10.0.0.7
"""

from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around


def check(case: Case) -> Iterator[Said]:
    """The name that the server gives itself, its default included."""
    proxy, name = case.settings.get("proxy-url"), case.settings.get("server-name")
    if proxy is None or not support.server(case):
        return
    address = around.address(case)
    if address is None or not around.everywhere(address):
        return
    near = case.launch.container is None and around.this_host(around.parts(proxy.text or "")[0])
    shown = address or around.default("server-name")
    yield Said(
        support.at(name) if name else support.at(proxy),
        f"The server registers with the proxy as {shown}, which no other host can reach.",
        "Give it --server-name with an address of this host that the proxy reaches.",
        severity="info" if near else None,
    )


RULE = Rule(
    id="LMD608",
    name="registered-as-any-address",
    family="operations",
    severity="warning",
    sources=("constraints/proxy-needs-address", "claims/proxy-url-registers-server", "flags/proxy-url"),
    check=check,
)
