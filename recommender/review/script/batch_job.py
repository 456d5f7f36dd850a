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
SKY_CHOICE = pattern(r"(?m)^[ \t]+accelerators:[ \t]*[\[{](?P<cards>[^\]}\n]*)[\]}]")
SKY_EACH = pattern(r"(?m)^[ \t]+-[ \t]+accelerators:[ \t]*[\"']?[A-Za-z][\w.-]*(?::[ \t]*(\d{1,3}))?[\"']?[ \t]*$")
"""One of the machines on which a task of SkyPilot may run."""
SKY_CARD = pattern(r"[\"']?[A-Za-z][\w.-]*[\"']?(?::[ \t]*(\d{1,3}))?[\"']?")
"""A choice of SkyPilot, as ``{H100: 2, A100: 2}``, and one card of it."""
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
    if script.kind == "steps":
        choice = SKY_CHOICE.search(script.text)
        listed = SKY_CARD.findall(choice["cards"]) if choice else SKY_EACH.findall(script.text)
        counts = {int(count or 1) for count in listed}
        return counts.pop() if len(counts) == 1 else None
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
