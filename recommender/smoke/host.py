"""What this machine must have before anything is launched, and what smoke sets for the launch."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recommender.records import CORES, cores
from recommender.request import RequestError
from recommender.smoke.failures import Failure
from recommender.store import shorten

if TYPE_CHECKING:
    from recommender.pipeline import Recommendation
    from recommender.smoke.launch import Artefact

PACKAGES = {"aiohttp": "aiohttp", "numpy": "numpy", "PIL": "pillow", "pynvml": "nvidia-ml-py"}
VERSION = "import importlib.metadata as m; print(m.version('lmdeploy'))"


def packages() -> None:
    """What smoke itself imports. Raises Failure."""
    missing = [name for module, name in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise Failure("machine", f"not installed: {', '.join(missing)}; run: pip install 'lmdeploy-recommender[smoke]'")


def named_cores(text: str) -> str:
    """The CPU cores that --pin names, on whatever machine. Raises RequestError."""
    if text and not (re.fullmatch(CORES, text) and cores(text)):
        raise RequestError(f"--pin {shorten(text)}: write cores as taskset -c takes them, such as 0-7 or 0-3,8-11")
    return text


def pinned(text: str) -> str:
    """The CPU cores that --pin names on this machine. Raises RequestError."""
    mine, theirs = os.sched_getaffinity(0), cores(named_cores(text))
    if not theirs <= mine:
        raise RequestError(f"--pin {text}: this machine has the cores {min(mine)} to {max(mine)}; name some of these")
    return text


def random_weights(seed: object) -> str:
    """What a record says of weights that were drawn."""
    return f"random, seed {seed}; not the real model"


def stand_aside(pin: str) -> None:
    """Keeps this process, which drives the loads, to the cores that the servers have not, if any are left."""
    others = os.sched_getaffinity(0) - cores(pin)
    if pin and others:
        os.sched_setaffinity(0, others)


def python(environment: Mapping[str, str]) -> list[str]:
    """The interpreter that an artefact uses: PYTHON, else that of the lmdeploy command, else python3."""
    if environment.get("PYTHON"):
        return [environment["PYTHON"]]
    command = shutil.which("lmdeploy", path=environment.get("PATH"))
    if command:
        launcher = Path(command).resolve()
        with launcher.open("rb") as file:
            first = file.readline(300).decode("utf-8", "replace").strip()
        if re.match(r"#!\S*python\S*$", first) and os.access(first[2:], os.X_OK):
            return [first[2:]]
        if os.access(launcher.with_name("python3"), os.X_OK):
            return [str(launcher.with_name("python3"))]
    return ["python3"]


def lmdeploy(release: str, environment: Mapping[str, str]) -> str:
    """LMDeploy's version for the artefact's interpreter. Raises Failure where it is absent or another one."""
    command = python(environment)
    try:
        done = subprocess.run(
            [*command, "-c", VERSION], env=dict(environment), capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(
            "machine", f"{command[0]} cannot be run ({type(error).__name__}); set PYTHON to one that has LMDeploy"
        ) from None
    found = done.stdout.strip()
    if done.returncode or not found:
        raise Failure(
            "machine", f"LMDeploy is not installed for {command[0]}: pip install lmdeploy=={release}, or set PYTHON"
        )
    plain = found.partition("+")[0]
    if plain != release and not plain.startswith(f"{release}.post"):
        raise Failure("other-release", f"LMDeploy {found} is installed for {command[0]}; the artefact is for {release}")
    return found


def model(
    script: Artefact, found: Recommendation, options: Mapping[str, Any], environment: Mapping[str, str],
    say: Callable[[str], None],
) -> tuple[str, str]:  # fmt: skip
    """The folder to set MODEL to (empty: as the artefact has it) and what its weights are. Raises Failure."""
    from recommender.smoke import weights

    if options["weights"] == "random":
        cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmdeploy-recommender" / "random"
        try:
            made = weights.ensure(found.facts.model, options["weights_dir"] or cache, options["seed"], say)
        except weights.WeightsError as error:
            raise Failure("machine", str(error)) from None
        return str(made.folder), random_weights(options["seed"])
    name = script.model(environment)
    if not name:
        return "", "as the script has it"
    folder = Path(name)
    if name.startswith(("/", "./", "../", "~")) or folder.is_dir():
        if not (folder / "config.json").is_file():
            raise Failure("model", f"MODEL is {name}, and there is no config.json in that folder")
        mark = weights.synthetic(folder)
        if mark:
            return str(folder.resolve()), random_weights(mark.get("seed"))
        return str(folder.resolve()), "a local folder"
    return "", f"{name} from the hub"


def variables(folder: str, environment: Mapping[str, str], fleet: bool = False) -> dict[str, str]:
    """What smoke sets for the launch: the engine's own words in the log, and no network for a local model."""
    made = {"TM_LOG_LEVEL": "INFO", "PYTHONUNBUFFERED": "1"}
    if environment.get("RESTART"):
        made["RESTART"] = "0"  # a script that restarts its server hides why it ended
    if folder:
        made |= {"MODEL": folder, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        # A folder has no revision, and a fleet's files want one.
        made |= {"REVISION": "main"} if fleet else {}
    return made


def api_key(environment: Mapping[str, str]) -> str:
    """The first key that the artefact asks clients for, as its scripts read them; empty without any."""
    words = environment.get("API_KEYS", "").split()
    if not words and environment.get("API_KEYS_FILE"):
        try:
            words = Path(environment["API_KEYS_FILE"]).read_text("utf-8").split()
        except OSError as error:
            raise Failure("start-failed", f"API_KEYS_FILE: {error.strerror}") from None
    return words[0] if words else ""
