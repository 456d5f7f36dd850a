"""``recommend check``: compare generated files with a fresh rendering, and update them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from recommender.commands.short_help import ShortCommand
from recommender.common import progress
from recommender.common.errors import RequestError
from recommender.common.exit_codes import BAD_REQUEST, CLEAN, DEFECT, NEGATIVE
from recommender.common.text import one_line, printable
from recommender.options import files
from recommender.render.drift import Drift, classify, compare
from recommender.render.seal import REQUEST

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.render.seal import Key, ParsedArtefact
    from recommender.review.script.source import Source

HELP = """\b
Examples:
  recommend check serve.sh
  recommend check deploy/*.sh --json     for a pipeline
  recommend check serve.sh --diff        patch from the file to today's advice
  recommend check serve.sh --update      write today's advice, keep your edits

\b
FILE is what recommend wrote as bash, python, client, env, docker or json. Its
head holds the request and, in the line "rendered", digests of its text:
they separate your edits from advice that changed since. Older files have no
such line; their differences are shown without this distinction. Use - for
stdin.

\b
--update rewrites the file atomically; owner, mode and access control list
stay, a symbolic link keeps pointing, a file with hard links is refused. It
  keeps and lists values edited by hand, and still reports them (exit 1);
  takes an edited request in the head as your new request;
  refuses, and says why, if other lines were edited by hand, if one of your
  values no longer has a place, or if edits and advice cannot be separated.
With --discard-edits it writes today's advice and drops all edits.

\b
Exit codes: 0 no drift; 1 drift, or drift left after --update; 2 the command
line is wrong, or a file is unreadable, unwritable or not made by recommend.
"""


class Unchecked(Exception):
    """A file that cannot be checked. The message is one line."""


@click.command("check", cls=ShortCommand, epilog=HELP)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=files)
@click.option("--diff", "as_diff", is_flag=True, help="Print a patch from each file to today's advice; change nothing.")
@click.option("--update", is_flag=True, help="Rewrite the files; keep and list values edited by hand.")
@click.option("--discard-edits", is_flag=True, help="With --update: drop all edits by hand.")
@click.option("--json", "as_json", is_flag=True, help="Print the complete result as JSON.")
def command(files: tuple[str, ...], as_diff: bool, update: bool, discard_edits: bool, as_json: bool) -> None:
    """Show what changed since files were generated: your edits and newer advice.

    Each file is rendered again from the request in its head with today's knowledge, and compared value by value.
    """
    if as_diff and (update or as_json):
        raise click.UsageError(f"--diff and {'--update' if update else '--json'} exclude each other; remove one")
    if discard_edits and not update:
        raise click.UsageError("--discard-edits needs --update")
    if update and "-" in files:
        raise click.UsageError("--update cannot change stdin; name a file, or use --diff")
    drifts: list[Drift] = []
    errors: list[str] = []
    defect = False
    for path in progress.track(dict.fromkeys(files), "recommend check", " files"):
        try:
            drifts.append(_check(path, as_diff, update, discard_edits))
        except Exception as error:
            if not isinstance(error, Unchecked):  # our bug must not end the check of other files
                if os.environ.get("RECOMMEND_DEBUG"):
                    raise
                defect, error = True, Unchecked(f"internal error: {type(error).__name__}: {error}; please report it")
            errors.append(printable(one_line(f"{path}: {error}")))
            click.echo(f"recommend check: {errors[-1]}", err=True)
    _show(drifts, errors, as_diff, as_json)
    sys.exit(
        DEFECT
        if defect
        else BAD_REQUEST
        if errors
        else NEGATIVE
        if any(drift.still_differs for drift in drifts)
        else CLEAN
    )


def _show(drifts: Sequence[Drift], errors: Sequence[str], as_diff: bool, as_json: bool) -> None:
    from recommender.common import terminal
    from recommender.render import drift_text

    if as_json:
        terminal.show_json(drift_text.json_form(drifts, errors))
    elif as_diff:
        for drift in drifts:
            click.echo(drift_text.summary(drift), err=True)
    elif drifts:
        terminal.show(line for drift in drifts for line in drift_text.lines(drift))


def _check(path: str, as_diff: bool, update: bool, discard: bool) -> Drift:
    """Check a file; write it anew or its patch to stdout where asked for. Raises Unchecked."""
    from recommender.common.cpu_budget import cpu_budget
    from recommender.common.user_file import Unreadable
    from recommender.render import seal
    from recommender.review import fix
    from recommender.review.script.source import Source, read_argument

    try:
        with cpu_budget():
            source = read_argument(path)
            file = seal.read(source.text)
            current = _render_today(file)
            if isinstance(current, str):
                refused = "today nothing fits its request" if update else ""
                return Drift(path, file.form, bool(file.sealed), (), (), nothing=current, refused=refused)
            today, reasons = current
            drift = compare(path, file, today, reasons)
            patch = "".join(fix.patch(source, Source(path, today.text))) if as_diff and drift.differs else ""
    except OSError as error:
        raise Unchecked(f"cannot be read: {error.strerror or error}") from None
    except (Unreadable, seal.UnknownArtefact) as error:
        raise Unchecked(str(error)) from None
    if patch:
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
        sys.stdout.write(patch)
    return _update(drift, source, file, today, discard) if update else drift


# --- today's advice


def _render_today(file: ParsedArtefact) -> tuple[ParsedArtefact, Mapping[str, tuple[str, str]]] | str:
    """Return the artefact as it is written today, with the reasons by value; or why none can be. Raises Unchecked."""
    from recommender.choose.recommend import NothingFits
    from recommender.render import artefact, seal
    from recommender.render.formats import render
    from recommender.render.template import COMMENTS

    try:
        read_request = seal.read_request(file)
        request, follow = artefact.parse_request(artefact.Artefact("bash", "request line", "", read_request), {})
        recommendation = artefact.remake(request, follow)
    except NothingFits as error:
        return f"nothing fits its request today: {error}"
    except RequestError as error:
        raise Unchecked(f"its request cannot be answered: {error}") from None
    try:
        comments = follow.get("comments", COMMENTS[0])
        return seal.read(render(recommendation, file.form, comments), file.form), _reasons(recommendation)
    except RequestError as error:
        return f"today's advice cannot be written as {file.form}: {error}"


def _reasons(recommendation: Recommendation) -> dict[str, tuple[str, str]]:
    """Return today's reason and its source, by each name that a value has in any format."""
    from recommender.render.quoting import variable
    from recommender.render.summary import cite

    reasons: dict[str, tuple[str, str]] = {}
    for explanation in recommendation.explanations:
        flag = recommendation.resolved.store.flags.get(explanation.option)
        names = (
            explanation.name,
            variable(explanation.option),
            *(field.field for field in (flag.fields if flag else ())),
        )
        reasons |= dict.fromkeys(names, (explanation.reason, cite(explanation.sources, explanation.caveat)))
    return reasons


# --- the update


def _update(drift: Drift, source: Source, file: ParsedArtefact, today: ParsedArtefact, discard: bool) -> Drift:
    """Write the file anew where that loses nothing. Raises Unchecked where it cannot be written."""
    from recommender.common.user_file import Unreadable
    from recommender.render.seal import keep_lines
    from recommender.review import fix
    from recommender.review.script.source import Source

    if not drift.differs and file.sealed == today.seal:
        return drift
    edited = [key for key, kind in classify(file, today) if kind in ("hand", "both") and key[0] != REQUEST]
    refused = "" if discard else _refusal(drift, file, today, edited)
    if refused:
        return replace(drift, refused=refused)
    kept = {} if discard else {key: file.lines[key] for key in edited}
    text = keep_lines(today, kept) if kept else today.text
    drift = replace(drift, kept=tuple(key[0] for key in kept))
    if text == source.text:
        return drift
    try:
        fix.save(source, Source(source.path, text))
    except (OSError, Unreadable) as error:
        raise Unchecked(f"cannot be written: {getattr(error, 'strerror', None) or error}") from None
    return replace(drift, updated=True)


def _refusal(drift: Drift, file: ParsedArtefact, today: ParsedArtefact, edited: Sequence[Key]) -> str:
    """Return why a file cannot be written anew without losing an edit; empty where it can be."""
    rest = "see --diff, then --update --discard-edits"
    if drift.differs and not drift.sealed:
        return f"it has no line that separates your edits from older advice; {rest}"
    if "hand" in drift.others:
        return f"lines other than its values were edited by hand; {rest}"
    lost = [key[0] for key in edited if file.form == "json" or key not in today.lines or key not in file.lines]
    return f"{', '.join(lost)}, edited by hand, cannot be kept in today's file; {rest}" if lost else ""
