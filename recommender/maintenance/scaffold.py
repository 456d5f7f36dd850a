"""Draft the records that a new LMDeploy release needs: facts of its wheel are filled in, the rest is TODO."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from recommender.maintenance.extract import metadata_text
from recommender.maintenance.flag_diff import scaffold_flag
from recommender.maintenance.knowledge_folder import TEMPLATES

if TYPE_CHECKING:
    from recommender.maintenance.wheel_facts import ReleaseFacts, WheelFacts


def drafts(
    root: Path,
    facts: WheelFacts,
    versions: Collection[str],
    option_names: Collection[str],
    wheel_of: Callable[[str], Path],
) -> Iterator[tuple[Path, str]]:
    """Yield path and text of every record that the releases need and the knowledge folder ``root`` lacks."""
    for facts_of_release in facts.releases:
        place = root / "releases" / f"{facts_of_release.version}.yaml"
        if facts_of_release.version in versions and not place.exists():
            yield place, release(_template(root, "release"), facts_of_release, wheel_of(facts_of_release.version))
    if facts.releases[-1].version in versions:
        for name, text in flags(_template(root, "flag"), facts, option_names):
            place = root / "flags" / f"{name}.yaml"
            if not place.exists():
                yield place, text


def _template(root: Path, kind: str) -> str:
    return (root / TEMPLATES / f"{kind}.yaml").read_text("utf-8")


def release(template: str, facts: ReleaseFacts, wheel: Path) -> str:
    """Return the record of a release: ranges and CUDA from METADATA, each with its line; the rest is TODO."""
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
    text = template.replace("id: ID\n", f'id: "{facts.version}"\n').replace("extract ID", f"extract {facts.version}")
    for field, value in values.items():
        text = re.sub(rf'(?m)^{field}: "TODO.*$', f'{field}: "{value}"', text)
    return re.sub(r"(?m)^    - \{release: ID, path: METADATA.*\n", "".join(cited), text)


def flags(template: str, facts: WheelFacts, option_names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield name and text of a draft for each option of the newest release without a flag record."""
    newest = facts.releases[-1]
    for option in newest.options:
        if option.name not in option_names and option.name.startswith("--"):
            name = option.name.removeprefix("--")
            yield name, flag(template, facts, name).replace("id: ID\n", f"id: {name}\n")


def flag(template: str, facts: WheelFacts, name: str) -> str:
    """Return a flag's template with the fields and eras that were extracted from the wheels; its id is still ID."""
    return template.replace("SCAFFOLD\n", scaffold_flag(facts, f"--{name}")).replace(
        'option: "--ID"', f'option: "--{name}"'
    )
