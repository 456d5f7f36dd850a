"""An option of the hub for a model in a folder

Finds `--revision` and `--download-dir` where the model is an absolute path.

LMDeploy reads both only when it fetches a repository by name. A folder is used as it is: a revision beside it pins
nothing, whatever it says.

Name the repository, or take the option out and keep the folder at the revision that you mean.

Bad:

    lmdeploy serve api_server /models/InternVL3-2B --trust-remote-code --revision 1234567

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-2B --trust-remote-code --revision 1234567
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

FETCHING = ("revision", "download-dir")


def _check(case: Case) -> Iterator[Said]:
    if not s.server(case) or not s.literal(case.launch).startswith(("/", "./", "../", "~")):
        return
    for name in FETCHING:
        setting = case.settings.get(name)
        if setting is not None:
            yield Said(
                setting.option.place,
                f"{setting.option.name} does nothing for a model in a folder.",
                "It is read when a repository is fetched by name; a folder is used as it is.",
            )


RULE = Rule(
    id="LMD313",
    name="hub-option-for-a-folder",
    family="nothing",
    severity="warning",
    sources=("flags/revision", "flags/download-dir"),
    check=_check,
)
