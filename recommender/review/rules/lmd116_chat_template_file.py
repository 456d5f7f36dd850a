"""A chat template from a file, for a model that has its own

Finds `--chat-template` with a JSON file for a model whose tokenizer brings its template, from 0.10.0 on.

A value that is no file when the server starts is taken for a name, and stops it. A file that is there replaces what the
model was trained with; one that was made for another model or an older release spoils answers and says nothing.
It is a remark, and a warning with a repair where the script lies on this machine and the file does not lie beside it.

Leave the option out from 0.10.0 on, unless you mean to change the template.

Bad:

    lmdeploy serve api_server OpenGVLab/InternVL3-2B-hf --chat-template my_template.json

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-2B-hf
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version

from recommender.review import mend
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said
from recommender.store import shorten


def _check(case: Case) -> Iterator[Said]:
    setting = case.settings.get("chat-template")
    if setting is None or not setting.text or not s.server(case) or not s.is_file(setting.text):
        return
    if case.facts.version >= Version("0.10.0"):
        missing = _missing(case.script.path, setting.text)
        where = "is not beside the script" if missing else "takes its place"
        yield Said(
            s.at(setting),
            f"{case.facts.model.hub} brings its own chat template; {shorten(setting.text)} {where}.",
            "From 0.10.0 on the tokenizer's template is used without the option; a missing file stops the start.",
            mend.remove(case.script, setting.option) if missing else None,
            severity="warning" if missing else "info",
        )


def _missing(script: str, name: str) -> bool:
    """Whether a script on disk names a file by a relative path and neither its folder nor this one has it."""
    template, home = Path(name), Path(script)
    if template.is_absolute() or not home.is_file():
        return False
    return not any((folder / template).exists() for folder in (home.parent, Path.cwd()))


RULE = Rule(
    id="LMD116",
    name="chat-template-file",
    family="starts",
    severity="info",
    sources=("flags/chat-template", "claims/chat-template-file-needed"),
    check=_check,
    needs=("model",),
)
