"""Images for a server without eyes

Finds `--language-model-only` (up to 0.14.0 `--disable-vision-encoder`) where the workload has images.

The image encoder is left out to save memory. Images of requests are then not looked at, and the answers are guesses.

Take the switch out.

Bad, for a workload with images:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --language-model-only

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import mend
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

SWITCHES = ("language-model-only", "disable-vision-encoder")


def _check(case: Case) -> Iterator[Said]:
    if not case.facts.images or not s.images_told(case):
        return
    for name in SWITCHES:
        setting = case.settings.get(name)
        if setting is not None and setting.text == "true" and name in case.facts.options:
            yield Said(
                setting.option.place,
                f"{setting.option.name} leaves the image encoder out, and the requests have images.",
                "Images are then not looked at; what is answered about them is a guess.",
                mend.remove(case.script, setting.option),
            )


RULE = Rule(
    id="LMD212",
    name="images-switched-off",
    family="answers",
    severity="error",
    sources=("flags/language-model-only", "flags/disable-vision-encoder"),
    check=_check,
    needs=("model", "load"),
)
