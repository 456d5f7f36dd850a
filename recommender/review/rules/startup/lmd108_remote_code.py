"""A model that needs --trust-remote-code

## What it does
Reports models such as OpenGVLab/InternVL3-8B-AWQ that are served without `--trust-remote-code` in 0.13.0 or newer.

## Why
The configuration class of such a model is a Python file in its repository. Up to 0.12.3 LMDeploy always ran that
file. Since 0.13.0 it runs it only with the option; otherwise startup fails with an AttributeError about a 'dict'
object.

## Bad
With 0.13.0 or newer:

    lmdeploy serve api_server OpenGVLab/InternVL3-2B

## Good
Add the option, and pin the repository with `--revision`, because it runs the publisher's code. Or use a checkpoint in
the transformers layout (`-hf`), if there is one: it needs no code.

    lmdeploy serve api_server OpenGVLab/InternVL3-2B --trust-remote-code --revision 1234567
"""

from recommender.review import checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, Fix, launch_rule

NEEDED = "remote-code-needed"


@launch_rule(
    "error",
    needs=("model",),
    sources=(f"constraints/{NEEDED}", "threads/remote-code-off-by-default", "flags/trust-remote-code"),
)
def rule(case: Case) -> Diagnostics:
    if case.launch.starts == "proxy":
        return
    for _ in checks.broken(case, NEEDED):
        missing = checks.server(case) and "trust-remote-code" not in case.settings
        yield Diagnostic(
            checks.model_place(case),
            f"{case.resolved.model.hub} does not start without --trust-remote-code in {checks.release(case)}.",
            "Its configuration is code, which LMDeploy since 0.13.0 runs only with that option.",
            _added(case) if missing else None,
        )


def _added(case: Case) -> Fix | None:
    """Return the unsafe repair: running the repository's code is the reader's decision. LMD506 then asks for a pin."""
    fix = edits.switch_after_model(case.script, case.launch, "--trust-remote-code")
    return fix._replace(follows=("LMD506",)) if fix else None
