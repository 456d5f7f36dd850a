"""Credentials allowed to every web page

Finds ``--allow-credentials`` where the allowed origins are all, by default or written out.

The two together let any page that a user opens call the server with what the user's browser holds for it, and read
the answer. The server knows no cookies, so nobody needs it; a proxy in front that logs users in by cookie would be
open to every page.

Mend it by leaving ``--allow-credentials`` out, or name the origins of your own pages.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --allow-credentials --allow-origins '*'

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --allow-credentials --allow-origins https://chat.acme.org
"""

from collections.abc import Iterator

from recommender.review.case import effective
from recommender.review.rule import Case, Rule, Said


def check(case: Case) -> Iterator[Said]:
    """The switch, where the origins in effect are known to be all."""
    setting = case.settings.get("allow-credentials")
    if setting is None or setting.text != "true":
        return
    origins = effective(case, "allow-origins")
    if origins is not None and "*" in origins.split():
        yield Said(
            setting.option.place,
            "Credentials are allowed to pages of every origin.",
            "Any page a user opens may then call the server as that user; name the origins, or leave it out.",
        )


RULE = Rule(
    id="LMD507",
    name="credentials-for-any-origin",
    family="safety",
    severity="warning",
    sources=("flags/allow-credentials", "flags/allow-origins"),
    check=check,
)
