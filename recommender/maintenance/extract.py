"""Extract the facts of one LMDeploy wheel without installing it or its dependencies.

``argparse_probe.py`` walks the parser in its own process; the configuration classes are read
as syntax trees; requirements come from the wheel's METADATA. Only the wheel's ``.py`` files
are unpacked, and help texts are not read.
"""

import ast
import itertools
import json
import re
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from recommender.common.errors import MaintenanceError
from recommender.common.leftovers import work_folder
from recommender.maintenance.model_tables import read_tables
from recommender.maintenance.wheel_facts import CONFIGS, ConfigField, Definition, ReleaseFacts, definition_from

REQUIRED = ("torch", "transformers")
CUDA = re.compile(r"^nvidia-.*-cu\d+$|^nvidia-(cublas|cuda-runtime|curand|nccl)$")
TIME_LIMIT_S = 120


def metadata_text(wheel: zipfile.ZipFile) -> str:
    """Return the text of a wheel's METADATA file."""
    names = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    if len(names) != 1:
        raise MaintenanceError(f"{wheel.filename}: {len(names)} METADATA files, a wheel has one")
    return wheel.read(names[0]).decode("utf-8")


def requirements(metadata: Message) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the specifiers of torch and transformers, and the names of NVIDIA packages, without extras."""
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
    """Return the annotated fields of the configuration classes in the text of a module.

    If a field is written twice, the last one counts, as in Python. A missing default is empty.
    """
    fields: dict[tuple[str, str], ConfigField] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef) or node.name not in CONFIGS:
            continue
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                default = "" if item.value is None else ast.unparse(item.value)
                key = (node.name, item.target.id)
                fields[key] = ConfigField(*key, type=ast.unparse(item.annotation), default=default)
    return tuple(fields[key] for key in sorted(fields))


def read_options(folder: Path) -> tuple[tuple[Definition, ...], bool, dict[str, tuple[Definition, ...]]]:
    """Return an unpacked LMDeploy's api_server options, whether it accepts underscores, and the other commands."""
    script = Path(__file__).with_name("argparse_probe.py")
    with work_folder("extract") as place:
        output = place / "options.json"
        command = [sys.executable, "-I", "-S", str(script), str(folder), str(output)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False, cwd=place)
        except subprocess.TimeoutExpired as error:
            raise MaintenanceError(f"importing lmdeploy.cli took more than {TIME_LIMIT_S} s") from error
        if done.returncode or not output.exists():
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise MaintenanceError(f"lmdeploy.cli could not be imported with stand-ins: {last}")
        probed = json.loads(output.read_text(encoding="utf-8"))
    commands = {name: _sorted(raw) for name, raw in probed["commands"].items() if name != "serve api_server"}
    return _sorted(probed["options"]), probed["flexible"], commands


def _sorted(options: list[dict[str, Any]]) -> tuple[Definition, ...]:
    return tuple(sorted((definition_from(raw) for raw in options), key=lambda item: (item.name, item.dest)))


def extract_wheel(path: Path) -> ReleaseFacts:
    """Read one wheel. Raises MaintenanceError with its name where it is not a readable LMDeploy wheel."""
    try:
        with zipfile.ZipFile(path) as wheel, work_folder("extract") as place:
            metadata = HeaderParser().parsestr(metadata_text(wheel))
            sources = [name for name in wheel.namelist() if name.startswith("lmdeploy/") and name.endswith(".py")]
            wheel.extractall(place, sources)
            package = place / "lmdeploy"
            modules = [(package / name).read_text(encoding="utf-8") for name in ("messages.py", "model.py")]
            listed = read_tables(package)
            options, flexible, commands = read_options(place)
    except (OSError, zipfile.BadZipFile) as error:
        raise MaintenanceError(f"{path}: not a readable wheel of LMDeploy ({error})") from error
    except MaintenanceError as error:
        raise MaintenanceError(f"{path}: {error}") from error
    needs, cuda = requirements(metadata)
    return ReleaseFacts(
        version=str(metadata["Version"]),
        options=options,
        fields=tuple(sorted(itertools.chain(*map(config_fields, modules)), key=lambda item: (item.config, item.field))),
        listed=listed,
        requires_python=str(metadata["Requires-Python"] or ""),
        requires=needs,
        cuda=cuda,
        flexible=flexible,
        commands=commands,
    )
