"""A batch of images that is never made

Finds `--vision-max-batch-size` from 0.16.0 on, where nothing reads it, and before where it is above 1 for requests of
one image.

Before 0.16.0 it counts images of one request that the encoder beside TurboMind takes at a time; images of different
clients were never joined in the covered releases. From 0.16.0 on the vision models that TurboMind serves encode inside
the engine, and nothing reads it.

Take it out.

Bad, with 0.16.0 or newer:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --vision-max-batch-size 8

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import mend
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said


def _check(case: Case) -> Iterator[Said]:
    setting = case.settings.get("vision-max-batch-size")
    flag = case.facts.store.flags["vision-max-batch-size"]
    era = s.era(case, flag)
    if setting is None or era is None:
        return
    fix = mend.remove(case.script, setting.option) if s.server(case) else None
    if "nobody" in era.read_by:
        yield Said(
            setting.option.place,
            f"{setting.option.name} does nothing in {s.release(case)}.",
            "From 0.16.0 on TurboMind's vision models encode inside the engine; no image waits for a batch.",
            fix,
        )
        return
    size = s.number(case, "vision-max-batch-size")
    if size is not None and size > 1 and case.load_known and s.images_told(case) and case.facts.images == 1:
        yield Said(
            setting.option.place,
            f"{setting.option.name} {size} does nothing for requests of one image.",
            "It counts images of the same request; those of different clients are never joined.",
            severity="info",
        )


RULE = Rule(
    id="LMD305",
    name="vision-batch",
    family="nothing",
    severity="warning",
    sources=(
        "flags/vision-max-batch-size",
        "claims/vision-batch-native",
        "claims/vision-batch-across-requests",
    ),
    check=_check,
)
