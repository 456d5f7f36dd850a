"""Drafts of the records that a new LMDeploy release needs: what its wheel says is filled in, the rest is TODO."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from recommender.base import TEMPLATES
from recommender.drift import scaffold
from recommender.extract import metadata_text

if TYPE_CHECKING:
    from recommender.extracted import Facts, ReleaseFacts


def drafts(
    root: Path, facts: Facts, versions: Collection[str], known: Collection[str], wheel_of: Callable[[str], Path]
) -> Iterator[tuple[Path, str]]:
    """Place and text of every record that the releases need and the knowledge folder ``root`` does not have."""
    for found in facts.releases:
        place = root / "releases" / f"{found.version}.yaml"
        if found.version in versions and not place.exists():
            yield place, release(_template(root, "release"), found, wheel_of(found.version))
    if facts.releases[-1].version in versions:
        for name, text in flags(_template(root, "flag"), facts, known):
            place = root / "flags" / f"{name}.yaml"
            if not place.exists():
                yield place, text


def _template(root: Path, kind: str) -> str:
    return (root / TEMPLATES / f"{kind}.yaml").read_text("utf-8")


def release(template: str, facts: ReleaseFacts, wheel: Path) -> str:
    """The record of a release: its ranges and CUDA from METADATA, each with its line; the day and the rest are TODO."""
    with zipfile.ZipFile(wheel) as file:
        lines = metadata_text(file).splitlines()
    head = f'    - {{release: "{facts.version}", path: METADATA'
    cited = []
    for name in ("torch", "transformers", *facts.cuda):
        for number, line in enumerate(lines, 1):
            if re.fullmatch(rf"Requires-Dist: {re.escape(name)}(?![\w-]).*", line):
                token = re.sub(r"[ ()]", "", line.partition(": ")[2].partition(";")[0])
                cited.append(f'{head}, line: {number}, token: "{token}"}}\n')
                break
    values = {
        "python": facts.requires_python or "TODO the range of its Linux wheels",
        "torch": facts.requires.get("torch", "") or "TODO",
        "transformers": facts.requires.get("transformers", "") or "TODO",
        "cuda": facts.cuda[0].rpartition("-cu")[2] if facts.cuda else "TODO",
    }
    text = template.replace("id: ID\n", f'id: "{facts.version}"\n')
    for field, value in values.items():
        text = re.sub(rf'(?m)^{field}: "TODO.*$', f'{field}: "{value}"', text)
    return re.sub(r"(?m)^    - \{release: ID, path: METADATA.*\n", "".join(cited), text)


def flags(template: str, facts: Facts, known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Name and text of a draft for each option of the newest release that no flag record describes."""
    newest = facts.releases[-1]
    for option in newest.options:
        if option.name not in known and option.name.startswith("--"):
            name = option.name.removeprefix("--")
            yield name, flag(template, facts, name).replace("id: ID\n", f"id: {name}\n")


def flag(template: str, facts: Facts, name: str) -> str:
    """One option's template with the fields and eras that were extracted from the wheels; its id is still ID."""
    return template.replace("SCAFFOLD\n", scaffold(facts, f"--{name}")).replace('option: "--ID"', f'option: "--{name}"')
