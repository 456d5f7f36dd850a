"""A model whose configuration is code, without leave to run it

Finds models such as OpenGVLab/InternVL3-8B-AWQ that are served from 0.13.0 on without `--trust-remote-code`.

The configuration class of such a model is a Python file in its repository. Up to 0.12.3 LMDeploy always ran it; from
0.13.0 on it does so only when told to, and else the start ends with an AttributeError about a 'dict' object. Many
checkpoints exist a second time in the transformers layout (`-hf`), which needs no code.

Add the switch, and pin the repository by `--revision`, for it lets the publisher's code run. Or use the `-hf`
checkpoint.

Bad, with 0.13.0 or newer:

    lmdeploy serve api_server OpenGVLab/InternVL3-2B

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-2B --trust-remote-code --revision 1234567
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import mend
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

NEEDED = "remote-code-needed"


def _check(case: Case) -> Iterator[Said]:
    if case.launch.starts == "proxy":
        return
    for _ in s.broken(case, NEEDED):
        word = case.launch.model
        missing = s.server(case) and "trust-remote-code" not in case.settings
        yield Said(
            word.place if word else case.launch.place,
            f"{case.facts.model.hub} does not start without trust in remote code in {s.release(case)}.",
            "Its configuration is code; LMDeploy runs that from 0.13.0 on only when told to.",
            mend.switch_after_model(case.script, case.launch, "--trust-remote-code") if missing else None,
        )


RULE = Rule(
    id="LMD108",
    name="remote-code",
    family="starts",
    severity="error",
    sources=(f"constraints/{NEEDED}", "threads/remote-code-off-by-default", "flags/trust-remote-code"),
    check=_check,
    needs=("model",),
)
