"""A path that the shell may split

Finds an unquoted expansion as the model, or as the value of an option that takes a path, where the variable's value
comes from outside the script or from a default that can be overridden.

The shell splits an unquoted value at blanks and expands ``*`` and ``?`` in it. A folder with a blank in its name
becomes two arguments, and the server refuses the second.

Mend it with double quotes; ``--fix`` puts them there.

Bad:

    MODEL=${1:-Qwen/Qwen2.5-7B-Instruct}
    lmdeploy serve api_server $MODEL

Good:

    MODEL=${1:-Qwen/Qwen2.5-7B-Instruct}
    lmdeploy serve api_server "$MODEL"
"""

import re
from collections.abc import Iterator

from recommender.review.rule import Case, Fix, Rule, Said
from recommender.review.rules import circumstances as around
from recommender.review.script import Script, Word

PATHS = ("chat-template", "download-dir", "speculative-draft-model")
EXPANSION = re.compile(r"\$(?:[A-Za-z_]\w*|[1-9]|\{[A-Za-z_]\w*\}|\{[1-9]\})")
SPLITS = re.compile(r"[\s*?\[]")


def check(case: Case) -> Iterator[Said]:
    """The model and the paths among the options."""
    if case.script.kind not in ("bash", "command"):
        return
    words = [case.launch.model]
    words += [case.settings[name].word for name in PATHS if name in case.settings]
    for word in words:
        if word is not None and _may_split(case.script, word):
            yield Said(
                word.place,
                f"{word.raw} is not quoted: a path with a blank becomes two arguments.",
                "The shell splits it and expands * and ? in it; write it between double quotes.",
                Fix(((word.place, f'"{word.raw}"'),), f'write "{word.raw}"'),
            )


def _may_split(script: Script, word: Word) -> bool:
    """Whether it is one plain expansion, unquoted, whose value the script does not fix by itself."""
    if word.quoted or not word.variable or not EXPANSION.fullmatch(word.raw):
        return False
    if script.text[word.place.start : word.place.end] != word.raw:
        return False
    given = [each.word for each in around.assigned(script).get(word.variable, ())][: around.MOST]
    literal = [each.value is not None and "$" not in each.raw and "`" not in each.raw for each in given]
    fixed = bool(given) and all(literal)
    return not fixed or any(SPLITS.search(each.value or "") for each in given)


RULE = Rule(
    id="LMD611",
    name="unquoted-path",
    family="operations",
    severity="info",
    sources=("https://www.shellcheck.net/wiki/SC2086",),
    check=check,
)
