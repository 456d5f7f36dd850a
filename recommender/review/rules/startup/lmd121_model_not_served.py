"""A model that the release cannot load

## What it does
Reports models that the release cannot load: head sizes that TurboMind does not support, InternVL3 in the transformers
layout before 0.9.0, architectures that neither engine lists, and GGUF files.

## Why
The attention kernels support head sizes 64, 128 and 192, and since 0.12.2 also 256. InternVL3 in the transformers
layout is a separate architecture, which 0.9.0 was the first to support. The layout without -hf works in older
releases too; up to 0.7.3 it needs a chat template (LMD217).

## Bad
With 0.8.0:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf

## Good
Use a release or an engine that serves the model. With 0.9.0 or newer:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf
"""

from recommender.common.text import shorten
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics
from recommender.review.rules.constraint_rule import MODEL, constraint_rule

GGUF = ".gguf"

_constraints = constraint_rule(
    __name__,
    "error",
    ("head-dim", "head-dim-before-0-12-2", "internvl-hf-release"),
    at=MODEL,
    when=lambda case: checks.wanted(case) == checks.TURBOMIND,
    assume=lambda _: {"config.backend": checks.TURBOMIND},
)


def _check(case: Case) -> Diagnostics:
    found = list(_constraints.check(case)) if _constraints.check is not None else []
    yield from found
    name = checks.literal(case.launch)
    if found or not name or case.launch.starts not in ("api_server", "pipeline"):
        return
    if name.casefold().endswith(GGUF):
        message = (
            f"{shorten(name.rpartition('/')[2])} is a GGUF file; LMDeploy reads folders in the layout of transformers."
        )
        yield Diagnostic(checks.model_place(case), message, "The server does not start; use the original checkpoint.")
    elif not checks.is_served(case):
        yield Diagnostic(
            checks.model_place(case),
            f"No engine of {checks.release(case)} lists {checks.architecture(case)}.",
            "The server does not start; use a release that serves the model.",
        )


rule = _constraints._replace(check=_check)
