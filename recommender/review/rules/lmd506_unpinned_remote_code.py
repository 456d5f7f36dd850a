"""Code of a model repository that is not pinned

Finds ``--trust-remote-code`` for a repository of the hub without ``--revision``, or with a branch for it.

The option runs Python files of the repository each time the server starts. Without a commit that is whatever the
repository holds by then: what you read once may be other code tomorrow. A local folder is not concerned.

Mend it with ``--revision`` and the full hash of the commit that you read.

Bad:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --revision "$COMMIT"
"""

import re
from collections.abc import Iterator

from recommender.review import support
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules import circumstances as around

HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
FOLDERS = re.compile(r"(?:models?|checkpoints?|ckpts?|weights|data|output|workspace|tmp|work_dirs?)/", re.IGNORECASE)
BRANCHES = ("main", "master")


def check(case: Case) -> Iterator[Said]:
    """The switch, where the model is surely a name on the hub."""
    setting, revision = case.settings.get("trust-remote-code"), case.settings.get("revision")
    if setting is None or setting.text != "true" or not _on_hub(case):
        return
    if revision is None:
        # A script that mentions a revision anywhere may give it in a way that was not followed.
        if not case.launch.unsure and not around.mentions(case.script, "revision"):
            yield Said(
                setting.option.place,
                "Code of the model's repository runs, and no revision pins it.",
                "What runs is whatever the repository holds at the next start; give --revision a commit hash.",
            )
    elif revision.text in BRANCHES:
        yield Said(
            support.at(revision),
            f"{revision.text} is a branch, which moves: the code that runs is not pinned.",
            "Give a full commit hash that you have read.",
            severity="info",
        )


def _on_hub(case: Case) -> bool:
    name = support.literal(case.launch)
    if case.model_known and name == case.facts.model.hub:
        return True
    return bool(HUB.fullmatch(name)) and not FOLDERS.match(name)


RULE = Rule(
    id="LMD506",
    name="unpinned-remote-code",
    family="safety",
    severity="warning",
    sources=("flags/trust-remote-code", "flags/revision", "threads/remote-code-off-by-default"),
    check=check,
)
