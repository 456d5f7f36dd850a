"""The commands that keep the knowledge base: ``recommend knowledge ...``."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from recommender import files, progress
from recommender.extracted import MaintenanceError
from recommender.store import FOLDERS, data_root, did_you_mean

VERSION = re.compile(r"\d+\.\d+\.\d+(\.post\d+)?")
KINDS = {each: f"{each}s" for each in ("flag", "gpu", "model", "claim", "constraint", "thread", "release")}
Command = TypeVar("Command", bound=Callable[..., Any])
FILE = click.Path(path_type=Path)


def _folder(command: Command) -> Command:
    """The option that names another knowledge folder than the installed or checked out one."""
    help_text = "The knowledge folder. [that of this checkout]"
    return click.option("--knowledge", "folder", metavar="DIR", type=FILE, help=help_text)(command)


def _wheels(command: Command) -> Command:
    help_text = "Wheels of LMDeploy; one that is missing is downloaded into it. [a cache of the user]"
    return click.option("--wheels", metavar="DIR", type=FILE, help=help_text)(command)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def knowledge() -> None:
    """Check, extract and verify the knowledge base.

    Exit codes: 0 done, 1 problems were found, 2 the command line is wrong, 3 a file or the network
    is missing, 4 a record is broken (knowledge check tells all of them).

    \b
    Example: what to run before a change of knowledge/ is committed
      recommend knowledge schema
      recommend knowledge check
      recommend knowledge verify --only claims/ --wheels ~/wheels
    """


@knowledge.command()
@_folder
def check(folder: Path | None) -> None:
    """Hold every record against its type, the others and the extracted facts.

    Each problem is one line, "file: field: what is wrong: how to repair it". No network is used.

    \b
    Example:
      recommend knowledge check
      recommend knowledge check --knowledge ../copy/knowledge
    """
    from recommender.check import check as run

    result = run(knowledge_of(folder))
    for problem in result.problems:
        click.echo(str(problem))
    click.echo(str(result), err=bool(result.problems))
    sys.exit(1 if result.problems else 0)


@knowledge.command()
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 and name the files that are stale.")
@_folder
def schema(only_check: bool, folder: Path | None) -> None:
    """Write knowledge/schema/ from the record types and the JSON output's types.

    \b
    Example:
      recommend knowledge schema
      recommend knowledge schema --check
    """
    from recommender.base import schemas, stale_schemas

    place = knowledge_of(folder) / "schema"
    made, stale = schemas(), stale_schemas(place)
    left = [path.name for path in sorted(place.glob("*")) if path.name not in made]
    for name in stale:
        if only_check:
            _differences(f"knowledge/schema/{name}", _text(place / name), made[name])
            click.echo(f"knowledge/schema/{name}: stale: run recommend knowledge schema")
        else:
            write_whole(place / name, made[name])
            click.echo(f"knowledge/schema/{name}: written")
    for name in left:
        click.echo(f"knowledge/schema/{name}: no type has this name: remove it")
    if not stale and not left:
        click.echo(f"{len(made)} schemas, all current")
    sys.exit(1 if left or (stale and only_check) else 0)


@knowledge.command()
@click.argument("versions", metavar="VERSION...", nargs=-1, required=True)
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 where wheel and file differ.")
@_wheels
@_folder
def extract(versions: tuple[str, ...], only_check: bool, wheels: Path | None, folder: Path | None) -> None:
    """Read options, defaults and requirements out of releases' wheels.

    Updates knowledge/extracted/api_server.json, then tells where the flag records differ from it.
    Neither LMDeploy nor what it depends on is installed; a wheel is about 100 MB to download.

    \b
    Example: a new release
      recommend knowledge extract 0.19.0
      recommend knowledge extract 0.17.0 0.18.0 --wheels ~/wheels --check
    """
    for version in versions:
        if not VERSION.fullmatch(version):
            raise click.BadParameter(f"{version!r} is not a release such as 0.18.0", param_hint="VERSION")
    found = _extract(versions, only_check, knowledge_of(folder), _wheel_of(wheels))
    for line in found:
        click.echo(line)
    if not found:
        click.echo(f"{', '.join(versions)}: the facts and the flag records agree")
    sys.exit(bool(found))


def _extract(versions: tuple[str, ...], only_check: bool, root: Path, wheel_of: Callable[[str], Path]) -> list[str]:
    """Reads the wheels, keeps what they say unless told not to, and tells the differences from the records."""
    from packaging.version import Version

    from recommender import drafts
    from recommender.base import FACTS, read
    from recommender.drift import differences, release_differences
    from recommender.extract import dump_extracted, extract_wheel, load_extracted
    from recommender.extracted import Facts
    from recommender.records import Flag

    path = root / FACTS
    kept = load_extracted(path) if path.exists() else Facts(())
    releases = {release.version: release for release in kept.releases}
    found: list[str] = []
    for version in progress.told(versions, "extract"):
        got = extract_wheel(wheel_of(version))
        if got.version != version:
            raise MaintenanceError(f"the wheel of {version} says it is {got.version}; remove it and try again")
        if only_check and version in releases:
            found += release_differences(releases[version], got)
        elif only_check:
            found.append(f"knowledge/{FACTS}: {version}: nothing is kept of it; extract it without --check")
        releases[version] = got
    text = dump_extracted(releases.values())
    if not only_check and text != _text(path):
        write_whole(path, text)
        click.echo(f"knowledge/{FACTS}: written, {len(releases)} releases")
    base = read(root)
    facts = Facts(tuple(sorted(releases.values(), key=lambda release: Version(release.version))))
    if not only_check:
        known = {flag.option for _, flag in base.every(Flag)}
        for place, draft in drafts.drafts(root, facts, versions, known, wheel_of):
            write_whole(place, draft)
            click.echo(f"{place}: a draft; replace every TODO, then run recommend knowledge check")
    found += [f"{problem}" for problem in base.unread if problem.file.startswith("knowledge/flags/")]
    return found + differences(facts, {flag.id: flag for _, flag in base.every(Flag)})


@knowledge.command()
@_wheels
@click.option("--repository", metavar="DIR", type=FILE, help="A clone of LMDeploy's repository, for the other paths.")
@click.option("--only", metavar="TEXT", default="", help="Only records whose file has this text in its name.")
@_folder
def verify(wheels: Path | None, repository: Path | None, only: str, folder: Path | None) -> None:
    """Open the wheels and see that every cited token stands on its line.

    A citation is a release, a path, a line and a token. Wrong lines are told with the right ones.
    Paths outside the wheel are looked up in the repository at the release's tag, or skipped.

    \b
    Example:
      recommend knowledge verify --only flags/dtype
      recommend knowledge verify --wheels ~/wheels --repository ~/lmdeploy
    """
    from recommender.base import read
    from recommender.verify import citations, opener, verify_all

    base = read(knowledge_of(folder))
    if repository is not None and not repository.is_dir():
        raise MaintenanceError(f"--repository: {repository} is no folder; name a clone of LMDeploy's repository")
    cited = [each for file, record in base.records() if only in file for each in citations(record, file)]
    if only and not any(only in file for file, _ in base.records()):
        raise click.BadParameter(f"no record's file has {only!r} in its name", param_hint="--only")
    cited.sort(key=lambda each: (each.source.release, each.source.path))
    outcome = verify_all(progress.told(cited, "verify"), opener(_wheel_of(wheels), repository))
    for problem in sorted(outcome.problems, key=lambda each: each.cited.where):
        click.echo(str(problem))
    unread = [problem for problem in base.unread if only in problem.file]
    for broken in unread:
        click.echo(str(broken))
    click.echo(str(outcome), err=bool(outcome.problems))
    sys.exit(1 if outcome.problems or unread else 0)


@knowledge.command("compile")
@click.option("-o", "--output", metavar="FILE", type=FILE, help="Write to a file, not to stdout.")
@_folder
def compile_(output: Path | None, folder: Path | None) -> None:
    """Write all records as the one JSON index that a wheel ships.

    \b
    Example:
      recommend knowledge compile -o index.json
    """
    from recommender.compiling import compile_index

    text = compile_index(knowledge_of(folder))
    if output is None:
        _out(text)
    else:
        write_whole(output, text)


@knowledge.command()
@click.argument("kind", metavar="|".join(KINDS), type=click.Choice(list(KINDS)))
@click.argument("name", metavar="ID")
@click.option("--write", is_flag=True, help="Write it to its file in knowledge/; an existing file is never replaced.")
@_folder
def new(kind: str, name: str, write: bool, folder: Path | None) -> None:
    """Print the annotated template of a new record.

    A flag's template holds its fields and eras as they were extracted from the wheels.

    \b
    Example:
      recommend knowledge new gpu rtx-4500-ada --write
      recommend knowledge new flag enable-metrics
    """
    from recommender.base import FACTS, TEMPLATES

    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
        raise click.BadParameter(
            f"{name!r}: an id has small letters, digits, dots and dashes, such as rtx-4090", param_hint="ID"
        )
    root = knowledge_of(folder)
    template = _text(root / TEMPLATES / f"{kind}.yaml")
    if not template:
        raise MaintenanceError(f"{root / TEMPLATES / kind}.yaml: no such template; name a knowledge folder that has it")
    if kind == "flag":
        from recommender.drafts import flag
        from recommender.extracted import load_extracted

        facts = load_extracted(root / FACTS)
        if f"--{name}" not in facts.names():
            hint = did_you_mean(name, [option.lstrip("-") for option in facts.names()])
            raise click.BadParameter(f"no covered release has --{name}{hint}", param_hint="ID")
        template = flag(template, facts, name)
    text = template.replace("id: ID\n", f"id: {_quoted(name)}\n")
    if not write:
        _out(text)
        return
    path = root / KINDS[kind] / f"{name}.yaml"
    if path.exists():
        raise click.UsageError(f"{path} exists; edit it, or choose another id")
    write_whole(path, text)
    click.echo(f"{path}: written; replace every TODO, then run recommend knowledge check")


def _out(text: str) -> None:
    """Writes to stdout as UTF-8, whatever the terminal's encoding."""
    click.echo(text.encode(), nl=False)


def _quoted(name: str) -> str:
    """An id as YAML text: in quotes where it would be read as something else."""
    import yaml

    return name if yaml.safe_load(name) == name else f'"{name}"'


def knowledge_of(folder: Path | None) -> Path:
    """The knowledge folder that was named, or that of this checkout. Raises MaintenanceError."""
    place = folder if folder is not None else data_root() / "knowledge"
    if not any((place / each).is_dir() for each in FOLDERS.values()):
        raise MaintenanceError(f"{place}: not a knowledge folder; name the one that holds releases/, flags/ and so on")
    return place


def _wheel_of(wheels: Path | None) -> Callable[[str], Path]:
    """Finds a release's wheel in a folder, or downloads it there and says so."""
    from recommender.verify import download_wheel, find_wheel

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmdeploy-recommender" / "wheels"
    place = wheels if wheels is not None else cache
    found: dict[str, Path] = {}

    def wheel_of(version: str) -> Path:
        if version not in found:
            here = find_wheel(version, place) if place.is_dir() else None
            if here is None:
                click.echo(f"downloading the wheel of lmdeploy {version} (about 100 MB) to {place}", err=True)
                try:
                    here = download_wheel(version, place)
                except OSError as error:
                    raise MaintenanceError(f"{place}: cannot be written: {error.strerror or error}") from error
            found[version] = here
        return found[version]

    return wheel_of


def _text(path: Path) -> str:
    """The text of a file; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise MaintenanceError(f"{path}: cannot be read: {error}") from error


def _differences(name: str, old: str, new_text: str) -> None:
    """The first lines in which a file differs from what it should be, as a diff."""
    lines = difflib.unified_diff(old.splitlines(), new_text.splitlines(), name, f"{name} (made)", lineterm="", n=1)
    shown = list(lines)
    for line in shown[:20]:
        click.echo(line)
    if len(shown) > 20:
        click.echo(f"... {len(shown) - 20} more lines of difference")


def write_whole(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, text)
    except OSError as error:
        raise MaintenanceError(f"{path}: cannot be written: {error.strerror or error}") from error
