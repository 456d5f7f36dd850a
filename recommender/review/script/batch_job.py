"""Find what a batch job of Slurm, PBS or LSF is given, by its ``#SBATCH``, ``#PBS`` or ``#BSUB`` lines; of SkyPilot."""

from __future__ import annotations

from functools import lru_cache

from recommender.common.pattern import pattern
from recommender.review.script.model import Script

DIRECTIVE = pattern(r"#(?:SBATCH|PBS|BSUB)[ \t]+(?P<given>[^\n]*)")
GPUS = pattern(
    r"(?:--(?:gpus-per-node|gpus)[= ]|-G[ \t]*)(?:[A-Za-z][\w.-]*:)?(?P<gpus>\d{1,4})(?![\w:,])"
    r"|--gres[= ]gpu(?::[A-Za-z][\w.-]*)?:(?P<gres>\d{1,4})(?![\w:])"
    r"|(?<=[:= ,])n?gpus=(?P<pbs>\d{1,4})(?!\w)|-gpu[ \t]+[\"']?num=(?P<lsf>\d{1,4})(?!\w)"
)
SKY = pattern(
    r"(?m)^resources:[ \t]*\n(?:[ \t]+[^\n]*\n)*?[ \t]+accelerators:[ \t]*(?:\n[ \t]+)?\{?[ \t]*"
    r"[\"']?[A-Za-z][\w.-]*[\"']?(?::[ \t]*(?P<gpus>\d{1,3}))?[ \t]*[\"'}]*[ \t]*(?:#[^\n]*)?$"
)
"""What a task of SkyPilot has on each node."""
MARKS = ("#SBATCH", "#PBS", "#BSUB")
TOTAL = pattern(r"--gpus[= ]|-G")
"""GPUs of all nodes together."""
NODES = pattern(r"(?:--nodes[= ]|-N[ \t]*)(?P<nodes>\S+)")
OTHERWISE = pattern(r"--gpus|--gres|-G[ \t]*\d|\bhet-group\b|\b(?:sbatch|salloc)\b")
"""What gives a step, or another job, GPUs of its own."""


@lru_cache(maxsize=8)
def gpus(script: Script) -> int | None:
    """Return how many GPUs a job has on each node; None if it does not say, or if a step may have others."""
    if script.kind == "steps" and (task := SKY.search(script.text)):
        return int(task["gpus"] or 1)
    if script.kind != "bash" or not any(mark in script.text for mark in MARKS):
        return None
    lines = script.text.split("\n")
    given = " ".join(match["given"] for line in lines if (match := DIRECTIVE.fullmatch(line.rstrip())))
    code = "\n".join(line for line in lines if not line.startswith("#"))
    found = list(GPUS.finditer(given))
    nodes = NODES.search(given)
    if len(found) != 1 or OTHERWISE.search(code) or "hetjob" in given or ",gpu" in given:
        return None
    if TOTAL.match(found[0][0]) and nodes is not None and nodes["nodes"] != "1":
        return None
    return int(found[0][found[0].lastgroup or "gpus"])
