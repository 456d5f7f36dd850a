"""Clients that may end the server

Finds ``--allow-terminate-by-client`` on a server that others can reach.

A plain GET of one route then ends the service for everyone. Up to 0.12.1 that route does not even ask for the API
key. The option is for test harnesses.

Mend it by leaving the option out; stop the process through what started it.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --allow-terminate-by-client

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --allow-terminate-by-client --server-name 127.0.0.1
"""

from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around


def check(case: Case) -> Iterator[Said]:
    """The switch on a server that is not bound to this host alone."""
    setting = case.settings.get("allow-terminate-by-client")
    if setting is None or setting.text != "true" or not support.server(case) or not around.reachable(case):
        return
    yield Said(
        setting.option.place,
        "Any client may end the server with one GET.",
        "The option is for test harnesses; stop the process through what started it.",
    )


RULE = Rule(
    id="LMD510",
    name="clients-may-terminate",
    family="safety",
    severity="warning",
    sources=("flags/allow-terminate-by-client",),
    check=check,
)
