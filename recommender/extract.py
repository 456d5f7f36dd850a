"""Reads the facts of one LMDeploy wheel without installing it or its dependencies.

The parser is walked by ``stubbed.py`` in a process of its own; the configuration classes
are read as syntax trees; requirements come from the wheel's METADATA. Nothing of the wheel
but its ``.py`` files is unpacked, and help texts are not read.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement

from recommender.drift import differences, release_differences, scaffold
from recommender.extracted import (
    CONFIGS,
    ConfigField,
    Definition,
    Facts,
    MaintenanceError,
    ReleaseFacts,
    definition_from,
    dump_extracted,
    eras,
    load_extracted,
)
from recommender.parser import rebuild_parser

__all__ = [
    "ConfigField",
    "Definition",
    "Facts",
    "MaintenanceError",
    "ReleaseFacts",
    "differences",
    "dump_extracted",
    "eras",
    "extract_wheel",
    "load_extracted",
    "rebuild_parser",
    "release_differences",
    "scaffold",
]

REQUIRED = ("torch", "transformers")
CUDA = re.compile(r"^nvidia-.*-cu\d+$|^nvidia-(cublas|cuda-runtime|curand|nccl)$")
TIME_LIMIT_S = 120


def metadata_text(wheel: zipfile.ZipFile) -> str:
    """A wheel's METADATA file."""
    names = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    if len(names) != 1:
        raise MaintenanceError(f"{wheel.filename}: {len(names)} METADATA files, a wheel has one")
    return wheel.read(names[0]).decode("utf-8")


def metadata_of(wheel: zipfile.ZipFile) -> Message:
    """The headers of a wheel's METADATA file."""
    return HeaderParser().parsestr(metadata_text(wheel))


def requirements(metadata: Message) -> tuple[dict[str, str], tuple[str, ...]]:
    """Specifiers of torch and transformers as written, and the names of NVIDIA packages, extras left out."""
    needs: dict[str, str] = {}
    cuda: set[str] = set()
    for line in metadata.get_all("Requires-Dist") or []:
        need = Requirement(line)
        if need.marker is not None and "extra" in str(need.marker):
            continue
        if need.name in REQUIRED:
            written = re.match(r"\s*[\w.-]+\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)", line)
            needs[need.name] = written.group(1).replace(" ", "") if written else str(need.specifier)
        elif CUDA.match(need.name):
            cuda.add(need.name)
    return needs, tuple(sorted(cuda))


def config_fields(source: str) -> tuple[ConfigField, ...]:
    """Annotated fields of the configuration classes in the text of ``messages.py``.

    A field written twice counts once, as Python has it: the last wins. A missing default is empty.
    """
    found: dict[tuple[str, str], ConfigField] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef) or node.name not in CONFIGS:
            continue
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                default = "" if item.value is None else ast.unparse(item.value)
                key = (node.name, item.target.id)
                found[key] = ConfigField(*key, type=ast.unparse(item.annotation), default=default)
    return tuple(found[key] for key in sorted(found))


def read_options(folder: Path) -> tuple[tuple[Definition, ...], bool]:
    """Options of the api_server parser of the LMDeploy unpacked in a folder, and whether it takes underscores."""
    script = Path(__file__).with_name("stubbed.py")
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "options.json"
        command = [sys.executable, "-I", "-S", str(script), str(folder), str(output)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False, cwd=place)
        except subprocess.TimeoutExpired as error:
            raise MaintenanceError(f"importing lmdeploy.cli took more than {TIME_LIMIT_S} s") from error
        if done.returncode or not output.exists():
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise MaintenanceError(f"lmdeploy.cli could not be imported with stand-ins: {last}")
        found = json.loads(output.read_text(encoding="utf-8"))
    options = [definition_from(raw) for raw in found["options"]]
    return tuple(sorted(options, key=lambda item: (item.name, item.dest))), found["flexible"]


def extract_wheel(path: Path) -> ReleaseFacts:
    """Read one wheel; MaintenanceError with its name where it is no wheel of LMDeploy or cannot be read."""
    try:
        with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as place:
            metadata = metadata_of(wheel)
            sources = [name for name in wheel.namelist() if name.startswith("lmdeploy/") and name.endswith(".py")]
            wheel.extractall(place, sources)
            messages = (Path(place) / "lmdeploy" / "messages.py").read_text(encoding="utf-8")
            options, flexible = read_options(Path(place))
    except (OSError, zipfile.BadZipFile) as error:
        raise MaintenanceError(f"{path}: not a readable wheel of LMDeploy ({error})") from error
    except MaintenanceError as error:
        raise MaintenanceError(f"{path}: {error}") from error
    needs, cuda = requirements(metadata)
    return ReleaseFacts(
        version=str(metadata["Version"]),
        options=options,
        fields=config_fields(messages),
        requires_python=str(metadata["Requires-Python"] or ""),
        requires=needs,
        cuda=cuda,
        flexible=flexible,
    )
