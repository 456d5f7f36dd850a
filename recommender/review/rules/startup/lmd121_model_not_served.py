"""A model that the release cannot load

## What it does
Reports models that the release cannot load: head sizes that TurboMind does not support, InternVL3 in the transformers
layout before 0.9.0, architectures that neither engine lists, GGUF files, and embedding models (by their names).

## Why
The attention kernels support head sizes 64, 128 and 192, and since 0.12.2 also 256. InternVL3 in the transformers
layout is a separate architecture, which 0.9.0 was the first to support. The layout without -hf works in older
releases too; up to 0.7.3 it needs a chat template (LMD217). LMDeploy computes no embeddings: /v1/embeddings
answers every request with HTTP 400.

## Bad
With 0.8.0:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf

## Good
Use a release or an engine that serves the model. With 0.9.0 or newer:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf
"""

from packaging.version import Version

from recommender.common.text import shorten
from recommender.request.unknown_model import EMBEDDINGS
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, declare
from recommender.review.rules.constraint_rule import MODEL, constraint_rule

GGUF = ".gguf"

HEADS_ASKED_UNTIL = Version("0.14.0")
"""The release from which LMDeploy no longer asks for the size of the heads before it takes TurboMind."""
HEADS_ASKED = frozenset(
    {
        "InternVLChatModel",
        "InternVLForConditionalGeneration",
        "LlamaForCausalLM",
        "LlavaForConditionalGeneration",
        "Qwen2ForCausalLM",
    }
)
"""The architectures for which it asked (0.7.0 turbomind/supported_models.py:100-117): others fell back."""


def _keeps_turbomind(case: Case) -> bool:
    """Return whether LMDeploy takes TurboMind, asked for or by default, whatever the size of the heads."""
    asked = case.resolved.version < HEADS_ASKED_UNTIL and checks.architecture(case) in HEADS_ASKED
    return checks.engine(case) == checks.TURBOMIND and not asked


_heads = constraint_rule(__name__, "error", ("head-dim", "head-dim-before-0-12-2"), at=MODEL, when=_keeps_turbomind)
_layout = constraint_rule(
    __name__,
    "error",
    ("internvl-hf-release",),
    at=MODEL,
    when=lambda case: checks.wanted_engine(case) == checks.TURBOMIND,
    assume=lambda _: {"config.backend": checks.TURBOMIND},
)


def _check(case: Case) -> Diagnostics:
    causes = [diagnostic for rule in (_heads, _layout) if rule.check is not None for diagnostic in rule.check(case)]
    yield from causes
    name = checks.literal(case.launch)
    if causes or not name or case.launch.starts not in ("api_server", "pipeline"):
        return
    if name.casefold().endswith(GGUF):
        message = (
            f"{shorten(name.rpartition('/')[2])} is a GGUF file; LMDeploy reads folders in the layout of transformers."
        )
        yield Diagnostic(checks.model_place(case), message, "The server does not start; use the original checkpoint.")
    elif case.launch.starts == "api_server" and EMBEDDINGS.fullmatch(name.rstrip("/").rpartition("/")[2]):
        yield Diagnostic(
            checks.model_place(case),
            f"By its name {shorten(name)} is an embedding model; LMDeploy does not serve those.",
            "/v1/embeddings answers every request with HTTP 400; use another server for embeddings.",
            sources=("claims/serves-embeddings",),
        )
    elif not checks.is_served(case):
        yield Diagnostic(
            checks.model_place(case),
            f"No engine of {checks.release(case)} lists {checks.architecture(case)}.",
            "The server does not start; use a release that serves the model.",
        )


rule = declare(__name__, "error", check=_check, sources=(*_heads.sources, *_layout.sources))
