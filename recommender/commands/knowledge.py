"""The commands that keep the knowledge base: ``recommend knowledge ...``."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recommender.commands.fit import fit
from recommender.commands.knowledge_files import knowledge_of, knowledge_option, wheels_option, write_whole
from recommender.commands.published import published
from recommender.commands.short_help import ShortGroup
from recommender.common import progress
from recommender.common.errors import MaintenanceError
from recommender.common.exit_codes import CLEAN, NEGATIVE
from recommender.common.text import did_you_mean, shorten
from recommender.options import PATH

if TYPE_CHECKING:
    from recommender.maintenance.wheel_facts import WheelFacts

VERSION = re.compile(r"\d+\.\d+\.\d+(\.post\d+)?")
KINDS = {kind: f"{kind}s" for kind in ("flag", "gpu", "model", "claim", "constraint", "thread", "release")}


@click.group("knowledge", cls=ShortGroup, context_settings={"max_content_width": 100})
def command() -> None:
    """Check, extract and verify the knowledge base.

    Exit codes: 0 done, 1 problems were found, 2 the command line is wrong, 3 a file or the network
    is missing, 4 a record is broken (knowledge check lists all of them).

    \b
    Example: before committing a change of knowledge/
      recommend knowledge schema
      recommend knowledge check
      recommend knowledge verify --only claims/ --wheels ~/wheels
    """


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@knowledge_option
def check(as_json: bool, folder: Path | None) -> None:
    """Check every record against its type, the other records and the extracted facts.

    Each problem is one line, "file: field: what is wrong: how to fix it". No network is used.

    \b
    Example:
      recommend knowledge check
      recommend knowledge check --knowledge ../copy/knowledge
      recommend knowledge check --json
    """
    from recommender.commands.schema import schemas
    from recommender.maintenance.run_linters import check as run

    result = run(knowledge_of(folder), schemas())
    if as_json:
        from recommender.maintenance.json_output import to_json

        click.echo(to_json(result), nl=False)
    else:
        for problem in result.problems:
            click.echo(str(problem))
        click.echo(str(result), err=bool(result.problems))
    sys.exit(NEGATIVE if result.problems else CLEAN)


@command.command()
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 and list stale files.")
@knowledge_option
def schema(only_check: bool, folder: Path | None) -> None:
    """Write knowledge/schema/ from the record types and the JSON output's types.

    \b
    Example:
      recommend knowledge schema
      recommend knowledge schema --check
    """
    from recommender.commands.schema import schemas
    from recommender.maintenance.schema_files import stale_schemas

    place = knowledge_of(folder) / "schema"
    wanted = schemas()
    stale = stale_schemas(place, wanted)
    left = [path.name for path in sorted(place.glob("*")) if path.name not in wanted]
    for name in stale:
        if only_check:
            _show_diff(f"knowledge/schema/{name}", _text(place / name), wanted[name])
            click.echo(f"knowledge/schema/{name}: stale: run recommend knowledge schema")
        else:
            write_whole(place / name, wanted[name])
            click.echo(f"knowledge/schema/{name}: written")
    for name in left:
        click.echo(f"knowledge/schema/{name}: no type has this name: remove it")
    if not stale and not left:
        click.echo(f"{len(wanted)} schemas, all current")
    sys.exit(NEGATIVE if left or (stale and only_check) else CLEAN)


@command.command()
@click.argument("versions", metavar="VERSION...", nargs=-1, required=True)
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 if wheel and file differ.")
@wheels_option
@knowledge_option
def extract(versions: tuple[str, ...], only_check: bool, wheels: Path | None, folder: Path | None) -> None:
    """Extract options, defaults and requirements from releases' wheels.

    Updates the files of knowledge/extracted, then lists where the flag records differ from them.
    Neither LMDeploy nor its dependencies are installed; a wheel is a download of about 100 MB.

    \b
    Example: a new release
      recommend knowledge extract 0.19.0
      recommend knowledge extract 0.17.0 0.18.0 --wheels ~/wheels --check
    """
    for version in versions:
        if not VERSION.fullmatch(version):
            raise click.BadParameter(f"{version!r} is not a release such as 0.18.0", param_hint="VERSION")
    lines = _extract(versions, only_check, knowledge_of(folder), _wheel_finder(wheels))
    for line in lines:
        click.echo(line)
    if not lines:
        click.echo(f"{', '.join(versions)}: the facts and the flag records agree")
    sys.exit(NEGATIVE if lines else CLEAN)


def _extract(versions: tuple[str, ...], only_check: bool, root: Path, wheel_of: Callable[[str], Path]) -> list[str]:
    """Read the wheels, write their facts unless ``only_check``, and return the differences from the records."""
    from packaging.version import Version

    from recommender.maintenance import subcommands
    from recommender.maintenance.extract import extract_wheel
    from recommender.maintenance.flag_diff import release_differences
    from recommender.maintenance.knowledge_folder import FACTS
    from recommender.maintenance.wheel_facts import WheelFacts, dump_extracted, load_extracted

    path = root / FACTS
    kept = load_extracted(path) if path.exists() else WheelFacts(())
    releases = {release.version: release for release in kept.releases}
    lines: list[str] = []
    for version in progress.track(versions, "extract"):
        from_wheel = extract_wheel(wheel_of(version))
        if from_wheel.version != version:
            raise MaintenanceError(f"the wheel of {version} says it is {from_wheel.version}; remove it and try again")
        if only_check and version in releases:
            lines += release_differences(releases[version], from_wheel)
        elif only_check:
            lines.append(f"knowledge/{FACTS}: {version}: not extracted yet; extract it without --check")
        releases[version] = from_wheel
    others = {version: releases[version].commands for version in versions}
    commands = subcommands.dump(others, root / subcommands.FILE)
    for name, new in ((FACTS, dump_extracted(releases.values())), (subcommands.FILE, commands)):
        if not only_check and new != _text(root / name):
            write_whole(root / name, new)
            click.echo(f"knowledge/{name}: written, {len(releases)} releases")
    facts = WheelFacts(tuple(sorted(releases.values(), key=lambda release: Version(release.version))))
    return [*lines, *_compare(root, facts, () if only_check else versions, wheel_of)]


def _compare(root: Path, facts: WheelFacts, drafted: tuple[str, ...], wheel_of: Callable[[str], Path]) -> Iterator[str]:
    """Write drafts of what the ``drafted`` releases need, and yield what is to do in the records of options."""
    from recommender.knowledge.records import Flag
    from recommender.maintenance import scaffold
    from recommender.maintenance.flag_diff import differences
    from recommender.maintenance.knowledge_folder import read

    knowledge = read(root)
    flags = {flag.id: flag for _, flag in knowledge.records_of(Flag)}
    unfinished = set(knowledge.names["flags"] - flags.keys())
    for place, draft in scaffold.drafts(root, facts, drafted, {flag.option for flag in flags.values()}, wheel_of):
        write_whole(place, draft)
        unfinished.add(place.stem)
        yield f"{place}: a draft; replace every TODO, then run recommend knowledge check"
    yield from (str(problem) for problem in knowledge.unread if problem.file.startswith("knowledge/flags/"))
    yield from differences(facts, flags, unfinished)


@command.command()
@wheels_option
@click.option("--repository", metavar="DIR", type=PATH, help="A clone of LMDeploy's repository, for the other paths.")
@click.option("--only", metavar="TEXT", default="", help="Only records whose file has this text in its name.")
@knowledge_option
def verify(wheels: Path | None, repository: Path | None, only: str, folder: Path | None) -> None:
    """Check in the wheels that every cited token is on its line.

    A citation is a release, a path, a line and a token. A wrong line is shown with the right one.
    Paths outside the wheel are read from the repository at the release's tag, or skipped.

    \b
    Example:
      recommend knowledge verify --only flags/dtype
      recommend knowledge verify --wheels ~/wheels --repository ~/lmdeploy
    """
    from recommender.maintenance.citations import citations, opener, verify_all
    from recommender.maintenance.knowledge_folder import read

    knowledge = read(knowledge_of(folder))
    if repository is not None and not repository.is_dir():
        raise MaintenanceError(f"--repository: {repository} is not a folder; name a clone of LMDeploy's repository")
    cited = list(citations(knowledge, only))
    if only and not any(only in file for file, _ in knowledge.records()):
        raise click.BadParameter(f"no record's file has {only!r} in its name", param_hint="--only")
    cited.sort(key=lambda citation: (citation.source.release, citation.source.path))
    outcome = verify_all(progress.track(cited, "verify"), opener(_wheel_finder(wheels), repository))
    for problem in sorted(outcome.problems, key=lambda problem: problem.cited.where):
        click.echo(str(problem))
    unread = [str(problem) for problem in knowledge.unread if only in problem.file]
    for line in unread:
        click.echo(line)
    click.echo(str(outcome), err=bool(outcome.problems))
    sys.exit(NEGATIVE if outcome.problems or unread else CLEAN)


@command.command("compile")
@click.option("-o", "--output", metavar="FILE", type=PATH, help="Write to a file instead of stdout.")
@knowledge_option
def compile_(output: Path | None, folder: Path | None) -> None:
    """Write all records as the one JSON index that a wheel ships.

    \b
    Example:
      recommend knowledge compile -o index.json
    """
    from recommender.knowledge.index import compile_index

    text = compile_index(knowledge_of(folder))
    if output is None:
        _out(text)
    else:
        write_whole(output, text)


@command.command()
@click.argument("kind", metavar="|".join(KINDS), type=click.Choice(list(KINDS)))
@click.argument("name", metavar="ID")
@click.option("--write", is_flag=True, help="Write it to its file in knowledge/; never replace an existing file.")
@knowledge_option
def new(kind: str, name: str, write: bool, folder: Path | None) -> None:
    """Print the annotated template of a new record.

    A flag's template has the fields and eras that were extracted from the wheels.

    \b
    Example:
      recommend knowledge new gpu rtx-4500-ada --write
      recommend knowledge new flag enable-metrics
    """
    from recommender.maintenance.knowledge_folder import FACTS, TEMPLATES

    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,99}", name):  # it is also a file's name
        raise click.BadParameter(
            f"{shorten(name)}: an id has at most 100 small letters, digits, dots and dashes, such as rtx-4090",
            param_hint="ID",
        )
    root = knowledge_of(folder)
    template = _text(root / TEMPLATES / f"{kind}.yaml")
    if not template:
        raise MaintenanceError(f"{root / TEMPLATES / kind}.yaml: no such template; name a knowledge folder that has it")
    if kind == "flag":
        from recommender.maintenance.scaffold import flag
        from recommender.maintenance.wheel_facts import load_extracted

        facts = load_extracted(root / FACTS)
        if f"--{name}" not in facts.names():
            hint = did_you_mean(name, [option.lstrip("-") for option in facts.names()])
            raise click.BadParameter(f"no covered release has --{name}{hint}", param_hint="ID")
        template = flag(template, facts, name)
    text = re.sub(r"\bID\b", _quoted(name), template)
    if not write:
        _out(text)
        return
    path = root / KINDS[kind] / f"{name}.yaml"
    if path.exists():
        raise click.UsageError(f"{path} exists; edit it, or choose another id")
    write_whole(path, text)
    click.echo(f"{path}: written; replace every TODO, then run recommend knowledge check")


def _out(text: str) -> None:
    """Write to stdout as UTF-8, whatever the terminal's encoding."""
    click.echo(text.encode(), nl=False)


def _quoted(name: str) -> str:
    """Return an id as YAML text: in quotes where it would be read as something else."""
    import yaml

    return name if yaml.safe_load(name) == name else f'"{name}"'


def _wheel_finder(wheels: Path | None) -> Callable[[str], Path]:
    """Return a function that finds a release's wheel in a folder, or downloads it there and says so."""
    from recommender.maintenance.citations import download_wheel, find_wheel

    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmdeploy-recommender" / "wheels"
    folder = wheels if wheels is not None else user

    @cache
    def wheel_of(version: str) -> Path:
        if wheel := find_wheel(version, folder):
            return wheel
        click.echo(f"downloading the wheel of lmdeploy {version} (about 100 MB) to {folder}", err=True)
        try:
            return download_wheel(version, folder)
        except OSError as error:
            raise MaintenanceError(f"{folder}: cannot be written: {error.strerror or error}") from error

    return wheel_of


def _text(path: Path) -> str:
    """Return the text of a file; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise MaintenanceError(f"{path}: cannot be read: {error}") from error


def _show_diff(name: str, old_text: str, new_text: str) -> None:
    """Print the first lines of the diff from a file to what it should be."""
    old, new = old_text.splitlines(), new_text.splitlines()
    lines = list(difflib.unified_diff(old, new, name, f"{name} (made)", lineterm="", n=1))
    for line in lines[:20]:
        click.echo(line)
    if len(lines) > 20:
        click.echo(f"... {len(lines) - 20} more lines of difference")


command.add_command(fit)
command.add_command(published)
