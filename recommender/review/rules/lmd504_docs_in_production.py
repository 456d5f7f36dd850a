"""Interactive API pages on a server that stays up

Finds a server without ``--disable-fastapi-docs`` that others can reach and that the script means to keep running: it
restarts it, probes it, registers it with a proxy or gives it keys.

The pages at / and /redoc list every route, the management routes included, with forms to call them. Clients do not
use them.

Mend it with ``--disable-fastapi-docs``.

Bad:

    while true; do lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct; sleep 10; done

Good:

    while true; do lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --disable-fastapi-docs; sleep 10; done
"""

from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around


def check(case: Case) -> Iterator[Said]:
    """Only of a server that is surely meant to last."""
    if not support.server(case) or case.launch.unsure or "disable-fastapi-docs" in case.settings:
        return
    if around.lasts(case) and around.reachable(case):
        yield Said(
            case.launch.place,
            "The interactive API pages stay on.",
            "They list every route, management routes included; production has no need of them"
            " (--disable-fastapi-docs).",
        )


RULE = Rule(
    id="LMD504",
    name="docs-in-production",
    family="safety",
    severity="info",
    sources=("flags/disable-fastapi-docs", "claims/docs-routes-go"),
    check=check,
)
