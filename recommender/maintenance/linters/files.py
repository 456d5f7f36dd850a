"""Linters of files: types, places, doubled keys, leftovers of templates, stale schemas."""

import re
from collections.abc import Iterator

from recommender.common.parse import duplicate_keys
from recommender.common.user_file import Unreadable
from recommender.knowledge.store import FOLDERS
from recommender.maintenance import subcommands
from recommender.maintenance.knowledge_folder import FACTS, FITS, TEMPLATES, KnowledgeFolder, Problem
from recommender.maintenance.schema_files import stale_schemas


def types(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that every YAML file holds one record of its folder's type, named after its id.

    Reports all broken files, each with all its fields. Repair: what the message says of the field;
    the types, with what each field means, are in recommender/knowledge/records/ and knowledge/schema/.
    """
    yield from knowledge.unread


def files(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that knowledge/ holds only files that something reads, and that no folder is missing.

    A record in a wrong folder or with the ending .yml would never be read.
    Repair: rename or move the file, or remove it; make the folder.
    """
    folders = set(FOLDERS.values())
    for folder in sorted(folders):
        if not (knowledge.folder / folder).is_dir():
            yield Problem(f"knowledge/{folder}", "(folder)", "it is missing", "create it, or fix its name")
    read_elsewhere = {"GUIDELINES.md", FACTS, subcommands.FILE, FITS, *(f"schema/{name}" for name in knowledge.schemas)}
    for path in sorted(path for path in knowledge.folder.rglob("*") if not path.is_dir()):
        name = path.relative_to(knowledge.folder).as_posix()
        folder = path.parent.relative_to(knowledge.folder).as_posix()
        if name in read_elsewhere or (path.suffix == ".yaml" and folder in {*folders, TEMPLATES, "campaigns"}):
            continue
        misnamed = path.suffix in (".yml", ".YAML", ".YML") and folder in folders
        repair = f"name it {path.stem}.yaml" if misnamed else "move it into the folder of its kind, or remove it"
        yield Problem(f"knowledge/{name}", "(whole file)", "nothing reads it here", repair)


def keys(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that no mapping has a key twice: YAML keeps the last and silently drops the first.

    Repair: remove one, or join the two.
    """
    for file, text in knowledge.texts.items():
        try:
            duplicates = list(duplicate_keys(text))
        except Unreadable:
            continue  # reported by the linter of types
        for line, key in duplicates:
            yield Problem(file, f"line {line}", f"duplicate key {key!r}", "remove one, or join them")


def unfinished(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that no record still holds a TODO of its template.

    Repair: write the fact there, or remove the line where it is optional.
    """
    for file, text in knowledge.texts.items():
        if "TODO" not in text:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if re.search(r"\bTODO\b", line):
                yield Problem(file, f"line {number}", "a TODO is left", "write the fact, or remove the optional line")


def schema(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that the JSON Schemas in knowledge/schema/ are current.

    Repair: run ``recommend knowledge schema`` and commit what it writes.
    """
    folder = knowledge.folder / "schema"
    for name in stale_schemas(folder, knowledge.schemas):
        what = "it differs from the type" if (folder / name).is_file() else "it is missing"
        yield Problem(f"knowledge/schema/{name}", "(whole file)", what, "run: recommend knowledge schema")
