"""Images fetched from any address

Finds a server of a vision model without ``--allowed-media-domains`` that others can reach and that the script means
to keep running, in a release that has the option.

Clients may send links instead of images, and the server fetches them: any public host. So whoever can send a
request makes this host call addresses of their choice. Addresses that are not public are refused either way.

Mend it with the host names of your own storage. Clients that send base64 are not affected.

Bad:

    while true; do lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code; sleep 10; done

Good:

    while true; do
      lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --allowed-media-domains img.acme.org
      sleep 10
    done
"""

from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around

FLAG = "allowed-media-domains"


def check(case: Case) -> Iterator[Said]:
    """Only where the release has the option and the server is surely meant to last."""
    if not support.server(case) or case.launch.unsure or case.facts.vision is None:
        return
    if FLAG in case.settings or FLAG not in case.facts.options:
        return
    if around.lasts(case) and around.reachable(case):
        since = case.facts.store.flags[FLAG].eras[0].since
        yield Said(
            case.launch.place,
            "Clients may have the server fetch images from any public host.",
            f"Name the hosts of your own storage with --{FLAG} ({since} and newer).",
        )


RULE = Rule(
    id="LMD505",
    name="media-from-anywhere",
    family="safety",
    severity="info",
    sources=("flags/allowed-media-domains", "https://github.com/InternLM/lmdeploy/issues/4761"),
    check=check,
    needs=("model",),
)
