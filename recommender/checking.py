"""``recommend check``: whether artefacts are still what ``recommend`` writes, and who changed them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import click

from recommender import progress
from recommender.checked import Checked, Difference, Kind, compared, kinds
from recommender.rendered import REQUEST
from recommender.request import Request, RequestError

if TYPE_CHECKING:
    from recommender.pipeline import Recommendation
    from recommender.rendered import Key, Rendered
    from recommender.review.source import Source

FORMAT = 1
CLEAN, DRIFT, USAGE = 0, 1, 2
TITLES: Mapping[Kind, str] = {
    "hand": "EDITED BY HAND",
    "newer": "NEWER ADVICE",
    "both": "EDITED BY HAND, AND NEWER ADVICE",
    "unknown": "BY HAND OR NEWER ADVICE",
}
OTHERS: Mapping[Kind, str] = {
    "hand": "Other lines were edited by hand too; --diff shows them.",
    "newer": "Other lines are newer too, such as reasons, predictions and checks; --diff shows them.",
    "unknown": "Other lines differ too, by hand or by newer advice; --diff shows them.",
}
HELP = """\b
Examples:
  recommend check serve.sh
  recommend check deploy/*.sh --json     for a pipeline
  recommend check serve.sh --diff        a patch from the file to today's advice
  recommend check serve.sh --update      take the newer advice, keep your values

\b
FILE is what recommend wrote as bash, python, client, env, docker or json. Its
head holds the request and, in the line "rendered", digests of what was written:
by these an edit of yours is told from advice that changed since. A file that
has no such line was made before there was one; its differences are shown, and
nobody can tell whose they are.

\b
--update writes the file anew, whole or not at all, and
  keeps values edited by hand, names each, and goes on to report them (exit 1);
  takes an edited request in the head as your new request;
  leaves the file alone, and says so, where other lines were edited by hand, a
  value of yours has no place any more, or whose edits they are is unknown.
  With --discard-edits it writes today's advice whatever was edited.

\b
Exit codes: 0 no drift; 1 drift, or after --update what is left of it; 2 the
command line is wrong, or a file cannot be read or written or is not an
artefact of recommend.
"""


class Unchecked(Exception):
    """A file that cannot be checked. The message is one line."""


@click.command("check", epilog=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--diff", "as_diff", is_flag=True, help="A patch from each file to today's advice; change nothing.")
@click.option("--update", is_flag=True, help="Write the files anew; values edited by hand are kept and named.")
@click.option("--discard-edits", is_flag=True, help="With --update: drop whatever was edited by hand.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON, complete.")
def check(files: tuple[str, ...], as_diff: bool, update: bool, discard_edits: bool, as_json: bool) -> None:
    """Tell whether files that recommend wrote are still what it writes, and who changed them.

    Each is made anew from the request in its head with today's knowledge. Your edits are told apart from advice
    that changed, value by value.
    """
    if as_diff and (update or as_json):
        raise click.UsageError(f"--diff and {'--update' if update else '--json'} exclude each other; leave one out")
    if discard_edits and not update:
        raise click.UsageError("--discard-edits goes with --update")
    found: list[Checked] = []
    failed: list[str] = []
    for path in progress.told(dict.fromkeys(files), "recommend check", " files"):
        try:
            found.append(_file(path, as_diff, update, discard_edits))
        except Unchecked as error:
            failed.append(_line(f"{path}: {error}"))
            click.echo(f"recommend check: {failed[-1]}", err=True)
    _write(found, failed, as_diff, as_json)
    sys.exit(USAGE if failed else DRIFT if any(each.left for each in found) else CLEAN)


def _file(path: str, as_diff: bool, update: bool, discard: bool) -> Checked:
    """Checks a file, and updates it or shows the patch. Raises Unchecked."""
    from recommender import rendered
    from recommender.review.source import Source, Unreadable, read

    try:
        source = read(path)
        file = rendered.read(source.text)
        made = _remade(file)
    except OSError as error:
        raise Unchecked(f"cannot be read: {error.strerror or error}") from None
    except (Unreadable, rendered.NotRendered, ValueError) as error:
        raise Unchecked(str(error)) from None
    if isinstance(made, str):
        found = Checked(path, file.form, bool(file.sealed), (), (), nothing=made)
        return replace(found, refused="nothing can be written for its request today") if update else found
    today, reasons = made
    found = compared(path, file, today, reasons)
    if as_diff and found.drift:
        from recommender.review import fix

        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
        sys.stdout.writelines(fix.unified(source, Source(path, today.text)))
    return _updated(found, source, file, today, discard) if update else found


# --- today's advice


def _remade(file: Rendered) -> tuple[Rendered, Mapping[str, tuple[str, str]]] | str:
    """The same artefact as it is written today, and the reasons by value; or why none can be. Raises Unchecked."""
    from recommender import rendered
    from recommender.checkpoint import CheckpointError
    from recommender.pipeline import NothingFits
    from recommender.render import render
    from recommender.smoke import launch
    from recommender.store import UnknownName

    try:
        head = _typed(rendered.head(file))
        request, follow = launch.asked(launch.Artefact("bash", "its head", "", head), {})
        made = launch.remake(request, follow)
    except NothingFits as error:
        return f"nothing fits its request today: {error}"
    except (RequestError, UnknownName, CheckpointError) as error:
        raise Unchecked(f"its request cannot be answered: {error}") from None
    try:
        return rendered.read(render(made, file.form), file.form), _reasons(made)
    except RequestError as error:
        return f"today's advice cannot be written as {file.form}: {error}"


def _typed(head: Mapping[str, Any]) -> Mapping[str, Any]:
    """A request's head, each of whose fields is of its type. Raises RequestError."""
    types: dict[str, type] = {each.name: type(each.default) for each in fields(Request)}
    types |= {"gpu": str, "follow": str, "with": dict, "without": list}
    for name, value in head.items():
        kind = types.get(name, object)
        right = type(value) in ((int, float) if kind is float else (kind,)) or kind is object
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if not right or not all(isinstance(each, str) for each in parts):
            raise RequestError(f"{_line(name)} has a wrong value; mend it, or render the file anew")
    return head


def _reasons(made: Recommendation) -> dict[str, tuple[str, str]]:
    """Today's reason and its source, by each name that a value has in any format."""
    from recommender.render import cite, variable

    names: dict[str, tuple[str, str]] = {}
    for each in made.explanations:
        flag = made.facts.store.flags.get(each.option)
        python = [field.field for field in flag.fields] if flag else []
        names |= dict.fromkeys((each.name, variable(each.option), *python), (each.reason, cite(each.sources)))
    return names


# --- the update


def _updated(found: Checked, source: Source, file: Rendered, today: Rendered, discard: bool) -> Checked:
    """Writes the file anew where it may be. Raises Unchecked where it cannot be written."""
    from recommender.rendered import with_lines
    from recommender.review import fix
    from recommender.review.source import Source, Unreadable

    if not found.drift and file.sealed == today.seal:
        return found
    mine = [key for key, kind in kinds(file, today) if kind in ("hand", "both") and key[0] != REQUEST]
    refused = "" if discard else _refusal(found, file, today, mine)
    if refused:
        return replace(found, refused=refused)
    kept = {} if discard else {key: file.lines[key] for key in mine}
    text = with_lines(today, kept) if kept else today.text
    names = tuple(key[0] for key in kept)
    if text == source.text:
        return replace(found, kept=names)
    try:
        fix.save(source, Source(source.path, text))
    except (OSError, Unreadable) as error:
        raise Unchecked(f"cannot be written: {getattr(error, 'strerror', None) or error}") from None
    return replace(found, updated=True, kept=names)


def _refusal(found: Checked, file: Rendered, today: Rendered, mine: Iterable[Key]) -> str:
    """Why a file cannot be written anew without losing what somebody edited; empty where it can be."""
    rest = "see --diff, then --update --discard-edits"
    if found.drift and not found.sealed:
        return f"it has no line that tells your edits from older advice; {rest}"
    if "hand" in found.others:
        return f"lines beside its values were edited by hand; {rest}"
    lost = [key[0] for key in mine if file.form == "json" or key not in today.lines or key not in file.lines]
    if lost:
        return f"{', '.join(lost)}, edited by hand, cannot be kept in what is written today; {rest}"
    return ""


# --- what is told


def _write(found: Sequence[Checked], failed: Sequence[str], as_diff: bool, as_json: bool) -> None:
    from recommender import terminal

    if as_json:
        terminal.show_json(
            {
                "format": FORMAT,
                "files": [terminal.plain(each) | {"drift": each.left} for each in found],
                "errors": failed,
            }
        )
    elif as_diff:
        for each in found:
            click.echo(_line(_summary(each)), err=True)
    elif found:
        terminal.show(line for each in found for line in _lines(each))


def _line(text: str) -> str:
    from recommender.render import printable

    return printable(" ".join(text.split()))


def _summary(each: Checked) -> str:
    if not each.drift:
        return f"{each.path}: no drift"
    of = [setting.kind for setting in each.settings]
    edited, newer = (of.count(kind) + of.count("both") for kind in ("hand", "newer"))
    counted = (
        (edited, "edited by hand"),
        (newer, "with newer advice"),
        (of.count("unknown"), "by hand or newer advice"),
    )
    told = [f"{number} {'value' if number == 1 else 'values'} {what}" for number, what in counted if number]
    return f"{each.path}: drift: {'; '.join(told) or each.nothing or 'of other lines only'}"


def _lines(each: Checked) -> Iterator[str]:
    """The text of 80 columns."""
    from recommender.terminal import wrap

    yield _line(_summary(each))
    for kind, title in TITLES.items():
        settings = [setting for setting in each.settings if setting.kind == kind]
        if settings:
            yield title
        for setting in settings:
            yield from _setting(setting)
    for kind in each.others:
        yield from wrap(OTHERS[kind], "  ", "  ")
    if each.updated or each.kept:
        kept = f"; kept as edited: {', '.join(each.kept)}" if each.kept else ""
        yield from wrap(f"{'updated' if each.updated else 'nothing to update'}{kept}", "  ", "  ")
    if each.refused:
        yield from wrap(f"not updated: {each.refused}", "  ", "  ")


def _setting(each: Difference) -> Iterator[str]:
    from recommender.terminal import wrap

    there, now = (value or "(not set)" for value in (each.file, each.today))
    advice = "" if each.name == REQUEST else f", today's advice: {now}"
    yield from wrap(f"{each.name} {there}{advice}", "  ", "    ")
    if each.reason:
        yield from wrap(each.reason, "    ", "    ")
        yield from wrap(f"[{each.source}]", "    ", "    ")
