"""Write the bare command line, for people who have a script of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recommender.common.text import SCRIPT_WIDTH
from recommender.render.quoting import comment, shell
from recommender.render.summary import asked_of_clients, asks_revision, missing

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation

LINES = 15
PIN = "revision"
"""The setting that names a commit of the model's repository."""


def command_line(recommendation: Recommendation) -> str:
    """Return one command of at most 15 lines with its environment, runnable as it is."""
    resolved = recommendation.resolved
    emitted = [option for option in recommendation.explanations if option.emitted]
    revision = resolved.request.revision
    where = f"https://huggingface.co/{resolved.model.hub}/commits/main"
    options = [
        option.name if option.switch else f"{option.name} {shell(option.value)}"
        for option in emitted
        if option.kind == "flag"
    ]
    for pin in () if resolved.local else (flag.option for flag in resolved.store.flags.values() if flag.setting == PIN):
        if revision:
            options.append(f"{pin} {shell(revision)}")
        elif asks_revision(recommendation):
            options.append(f'{pin} "${{REVISION:?a commit of {where}}}"')
    notes = (asked_of_clients(resolved, recommendation.config), missing(recommendation))
    head = [comment(note) for note in notes if note]
    variables = [f"{option.name}={shell(option.value)}" for option in emitted if option.kind == "environment"]
    start = [*variables, f"lmdeploy serve api_server {shell(resolved.model_source)}"]
    most = LINES - sum(text.count("\n") + 1 for text in head)
    lines = [*start, *(f"  {option}" for option in options)]
    if len(lines) > most:
        lines = _packed(start, "") + _packed(options, "  ")
    return "\n".join([*head, " \\\n".join(lines)]) + "\n"


def _packed(words: list[str], indent: str) -> list[str]:
    """Put as many words on a line as fit."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= SCRIPT_WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(indent + word)
    return lines
