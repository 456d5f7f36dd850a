"""A chat template that is ignored

Finds ``--chat-template`` or ``ChatTemplateConfig(model_name=...)`` with one of the names that
0.10.0 to 0.11.1 keep for old scripts: it is taken with a warning in the log, and the template of the model's own
tokenizer is used.

Leave the option out; from 0.12.0 on the name stops the start.

Bad, with 0.10.0:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --chat-template internvl2_5

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from recommender.review import mend
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said
from recommender.review.rules.lmd115_chat_template_gone import KEPT
from recommender.store import shorten

NAMES = frozenset({"--chat-template", "--chat_template", "ChatTemplateConfig.model_name"})


def _check(case: Case) -> Iterator[Said]:
    if not Version("0.10.0") <= case.facts.version < Version("0.12.0"):
        return
    for option in case.launch.options:
        word = option.values[0] if len(option.values) == 1 else None
        if option.name in NAMES and word is not None and word.value in KEPT:
            yield Said(
                word.place,
                f"{option.name} {shorten(word.value)} has no effect in {s.release(case)}.",
                "The name is kept, with a warning, and the tokenizer's own template is used instead.",
                mend.remove(case.script, option) if s.server(case) else None,
            )


RULE = Rule(
    id="LMD316",
    name="chat-template-ignored",
    family="nothing",
    severity="warning",
    sources=("flags/chat-template", "https://github.com/InternLM/lmdeploy/pull/4252"),
    check=_check,
)
