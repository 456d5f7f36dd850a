"""Images fetched from any address

## What it does
Reports a vision server in production without `--allowed-media-domains`, in releases that have the option. LMD504 says
which servers count as in production.

## Why
Clients can send links instead of images, and the server fetches them from any public host. So anyone who can send a
request can make this host call an address of their choice. LMDeploy rejects addresses that are not public in any
case.

## Bad

    while true; do lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code; sleep 10; done

## Good
List the hosts of your own storage. Clients that send base64 are not affected.

    while true; do
      lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --allowed-media-domains img.acme.org
      sleep 10
    done
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.rules import surroundings

FLAG = "allowed-media-domains"


@launch_rule(
    "info",
    needs=("model",),
    sources=("flags/allowed-media-domains", "https://github.com/InternLM/lmdeploy/issues/4761"),
)
def rule(case: Case) -> Diagnostics:
    if not checks.server(case) or case.launch.unsure or case.resolved.vision is None:
        return
    if FLAG in case.settings or FLAG not in case.resolved.options:
        return
    if surroundings.is_long_running(case) and surroundings.reachable(case):
        since = case.resolved.store.flags[FLAG].eras[0].since
        yield Diagnostic(
            case.launch.place,
            "Clients can make the server fetch images from any public host.",
            f"List the hosts of your own storage with --{FLAG} ({since} and newer).",
        )
