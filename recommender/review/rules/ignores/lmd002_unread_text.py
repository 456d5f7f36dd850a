"""Text that was not read

## What it does
Reports what the review could not follow: a place that bash, Python or YAML would refuse; a server that is mentioned
where no command was read; a value that comes from the caller or from a file that is not there; an environment file
that is not beside the script; a release older than those covered; and a file that mentions LMDeploy and starts
nothing. It is an info if a loop of the file lists the values, as a benchmark over batch sizes does.

## Why
Rules judge only what was read. Without this finding, a file with a server could pass as clean. Keys, revisions and
names may come from outside: no rule judges them.

## Bad

    lmdeploy serve api_server "$MODEL" --tp "$TP"

## Good
Fix the syntax, give each variable a default, or put the environment file beside the script:

    MODEL=${MODEL:-internlm/internlm2_5-7b-chat}
    lmdeploy serve api_server "$MODEL" --tp "${TP:-1}"
"""

from recommender.knowledge.load import load
from recommender.review.context import first_release
from recommender.review.rule import Case, Diagnostic, Diagnostics, declare
from recommender.review.script.model import Script
from recommender.review.script.source import STDIN


def _unread(script: Script) -> Diagnostics:
    if "lmdeploy" not in script.text.casefold() or not (script.launches or script.tools or script.path != STDIN):
        return  # no script of ours to judge: a help text or a log, pasted
    for trouble in script.problems:
        message = f"{trouble.message[:1].upper()}{trouble.message[1:].rstrip('.')}."
        yield Diagnostic(
            trouble.place,
            message,
            "Rules skip what they cannot see, so no finding here does not mean no problem.",
            severity="info" if trouble.listed else None,
        )


def _uncovered(case: Case) -> Diagnostics:
    pinned = case.context.uncovered
    if pinned is not None:
        first, release = first_release(load()), pinned.release.removeprefix("lmdeploy")
        where = f" (in {pinned.file})" if pinned.file else ""
        yield Diagnostic(
            pinned.place or case.launch.place,
            f"LMDeploy {release}{where} is not among the covered releases, {first} and newer.",
            f"The rules assume {case.resolved.release.id}, so they may be wrong here; pass --lmdeploy to choose.",
        )


rule = declare(__name__, "warning", check=_uncovered, whole=_unread, family="starts")
