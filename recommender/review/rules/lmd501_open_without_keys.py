"""A server that everyone may use

Finds an api_server outside a container that listens on every address and has no API keys: a warning where the
address is written out, a remark where it is LMDeploy's default.

Without keys nobody is asked who they are. Whoever reaches the port may use the model, call the management routes
that are there in every server, and have a vision model fetch addresses of their choice.

Mend it with ``--server-name 127.0.0.1`` and a reverse proxy that authenticates in front, or with ``--api-keys`` from
a file or variable. Keys stand in ``ps``, and the health route stays open.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-name 0.0.0.0

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-name 127.0.0.1
"""

from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around


def check(case: Case) -> Iterator[Said]:
    """The address in effect; whatever else may come among the arguments could be keys."""
    if (
        not support.server(case)
        or case.launch.container
        or case.launch.unsure
        or case.launch.instead
        or "api-keys" in case.settings
    ):
        return
    address, setting = around.address(case), case.settings.get("server-name")
    if address is None or not around.everywhere(address):
        return
    by_default = "" if setting else f" ({around.default('server-name')} is the default)"
    yield Said(
        support.at(setting) if setting else case.launch.place,
        f"The server listens on every address{by_default} and asks for no key.",
        "Whoever reaches the port may use it; bind it to 127.0.0.1 or put authentication in front.",
        severity=None if setting else "info",
    )


RULE = Rule(
    id="LMD501",
    name="open-without-keys",
    family="safety",
    severity="warning",
    sources=("flags/server-name", "flags/api-keys", "https://github.com/InternLM/lmdeploy/issues/4761"),
    check=check,
)
