"""Check what a launch needs on this machine, and set its environment."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recommender.common.errors import RequestError
from recommender.common.text import shorten
from recommender.knowledge.names import gpu_of_driver
from recommender.knowledge.records import CORES, cores
from recommender.smoke.failures import Failure
from recommender.smoke.process.gpu import Gpus

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.knowledge.records import Model
    from recommender.knowledge.store import Store
    from recommender.render.artefact import Artefact

PACKAGES = {"aiohttp": "aiohttp", "numpy": "numpy", "PIL": "pillow", "pynvml": "nvidia-ml-py"}
VERSION = "import importlib.metadata as m; print(m.version('lmdeploy'))"


def check_packages() -> None:
    """Raise Failure if a package that smoke imports is missing."""
    missing = [name for module, name in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise Failure("machine", f"not installed: {', '.join(missing)}; run: pip install {' '.join(missing)}")


def parse_cores(text: str) -> str:
    """Return the CPU cores of --pin; raise RequestError if malformed."""
    if text and not (re.fullmatch(CORES, text) and cores(text)):
        raise RequestError(f"--pin {shorten(text)}: use the format of taskset -c, such as 0-7 or 0-3,8-11")
    return text


def check_cores(text: str) -> str:
    """Return the CPU cores of --pin; raise RequestError if this machine lacks one."""
    available, requested = os.sched_getaffinity(0), cores(parse_cores(text))
    if not requested <= available:
        raise RequestError(
            f"--pin {text}: this machine has cores {min(available)} to {max(available)}; choose among them"
        )
    return text


def describe_random_weights(seed: object) -> str:
    """Return a record's description of random weights."""
    return f"random, seed {seed}; not the real model"


def describe_unstarted(model: Model, store: Store) -> str:
    """Return a warning if no recorded run started random weights of this architecture and format; else empty."""
    started = {_form(store.models[run.model]) for run in store.evidence.values() if run.random_weights}
    if _form(model) in started:
        return ""
    return (
        f"{model.id}: no recorded run has started random weights of {model.architecture} in this format; "
        "they were checked against LMDeploy's loader only"
    )


def _form(model: Model) -> tuple[str, ...]:
    return model.architecture, *(packed.method for packed in model.quantization)


def leave_cores(pin: str) -> None:
    """Move this process, which drives the loads, off the servers' cores if it can."""
    remaining = os.sched_getaffinity(0) - cores(pin)
    if pin and remaining:
        os.sched_setaffinity(0, remaining)


def find_python(environment: Mapping[str, str]) -> list[str]:
    """Return the artefact's interpreter: PYTHON, that of lmdeploy, or python3."""
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


def check_lmdeploy(release: str, environment: Mapping[str, str]) -> str:
    """Return LMDeploy's version; raise Failure if absent or of another release."""
    command = find_python(environment)
    try:
        process = subprocess.run(
            [*command, "-c", VERSION], env=dict(environment), capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(
            "machine",
            f"{command[0]} cannot be run ({type(error).__name__}); set PYTHON to an interpreter with LMDeploy",
        ) from None
    version = process.stdout.strip()
    if process.returncode or not version:
        raise Failure(
            "machine", f"LMDeploy is not installed for {command[0]}: pip install lmdeploy=={release}, or set PYTHON"
        )
    public = version.partition("+")[0]
    if public != release and not public.startswith(f"{release}.post"):
        raise Failure(
            "other-release", f"LMDeploy {version} is installed for {command[0]}; the artefact is for {release}"
        )
    return version


def other_gpu(recommendation: Recommendation, environment: Mapping[str, str]) -> str:
    """Return what this machine's GPU is called if it is not the one planned for; else an empty text."""
    planned, cards = recommendation.resolved.gpu, recommendation.config.cards
    name = Gpus(cards, environment).host().gpu_name
    return "" if gpu_of_driver(recommendation.resolved.store, planned.id, name) == planned.id else name


def find_model(
    script: Artefact, recommendation: Recommendation, options: Mapping[str, Any], environment: Mapping[str, str],
    say: Callable[[str], None],
) -> tuple[str, str]:  # fmt: skip
    """Return the folder for MODEL (or empty) and what its weights are; or raise Failure."""
    from recommender.smoke.weights import layouts, write

    if options["weights"] == "random":
        resolved = recommendation.resolved
        if warning := describe_unstarted(resolved.model, resolved.store):
            say(warning)
        cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lmdeploy-recommender" / "random"
        try:
            root = options["weights_dir"] or cache
            folder = write.ensure_checkpoint(resolved.model, root, options["seed"], say)
        except layouts.WeightsError as error:
            raise Failure("machine", str(error)) from None
        return str(folder), describe_random_weights(options["seed"])
    name = script.model(environment)
    if not name:
        return "", "as the script has it"
    folder = Path(name)
    if name.startswith(("/", "./", "../", "~")) or folder.is_dir():
        if not (folder / "config.json").is_file():
            raise Failure("model", f"MODEL is {name}, and there is no config.json in that folder")
        mark = write.read_mark(folder)
        if mark:
            return str(folder.resolve()), describe_random_weights(mark.get("seed"))
        return str(folder.resolve()), "a local folder"
    return "", f"{name} from the hub"


def launch_variables(folder: str, environment: Mapping[str, str], fleet: bool = False) -> dict[str, str]:
    """Return what smoke sets: engine logs at INFO, and offline mode for local models."""
    values = {"TM_LOG_LEVEL": "INFO", "PYTHONUNBUFFERED": "1"}
    if environment.get("RESTART"):
        values["RESTART"] = "0"  # a restarting script hides why its server ended
    if folder:
        values |= {"MODEL": folder, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        # A fleet's files require a revision; a folder has none.
        values |= {"REVISION": "main"} if fleet else {}
    return values
