"""Find the resources of a batch job: ``#SBATCH``, ``#PBS`` and ``#BSUB`` lines, and tasks of SkyPilot."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice

from recommender.common.pattern import pattern
from recommender.review.script.model import Launch, Script, Span

DIRECTIVE = pattern(r"#(?:SBATCH|PBS|BSUB)[ \t]+(?P<given>[^\n]*)")
GPUS = pattern(
    r"(?:--(?:gpus-per-node|gpus)[= ]|-G[ \t]*)(?:[A-Za-z][\w.-]*:)?(?P<gpus>\d{1,4})(?![\w:,])"
    r"|--gres[= ]gpu(?::[A-Za-z][\w.-]*)?:(?P<gres>\d{1,4})(?![\w:])"
    r"|(?<=[:= ,])n?gpus=(?P<pbs>\d{1,4})(?!\w)|-gpu[ \t]+[\"']?num=(?P<lsf>\d{1,4})(?!\w)"
)
IMAGE = pattern(r"--container-image(?:=|[ \t]+)[\"']?(?P<image>[^\s\"']+)")
"""The image in which Slurm runs a job or a step of it."""
SKY = pattern(
    r"(?m)^resources:[ \t]*\n(?:[ \t]+[^\n]*\n)*?[ \t]+accelerators:[ \t]*(?:\n[ \t]+)?\{?[ \t]*"
    r"[\"']?(?P<card>[A-Za-z][\w.-]*)[\"']?(?::[ \t]*(?P<gpus>\d{1,3}))?[ \t]*[\"'}]*[ \t]*(?:#[^\n]*)?$"
)
"""What a task of SkyPilot has on each node."""
NODE = pattern(
    r"(?m)^[^\n#]*?\b(?:nvidia\.com/gpu\.product|cloud\.google\.com/gke-accelerator)[\"']?:"
    r"[ \t]*[\"']?(?P<card>[A-Za-z][\w.-]*)"
)
"""The label of the nodes on which a pod may run."""
SKY_CHOICE = pattern(r"(?m)^[ \t]+accelerators:[ \t]*[\[{](?P<cards>[^\]}\n]*)[\]}]")
SKY_EACH = pattern(r"(?m)^[ \t]+-[ \t]+accelerators:[ \t]*[\"']?[A-Za-z][\w.-]*(?::[ \t]*(\d{1,3}))?[\"']?[ \t]*$")
"""One of the machines on which a task of SkyPilot may run."""
SKY_CARD = pattern(r"[\"']?[A-Za-z][\w.-]*[\"']?(?::[ \t]*(\d{1,3}))?[\"']?")
"""A choice of SkyPilot, as ``{H100: 2, A100: 2}``, and one card of it."""
SUBMITTED = pattern(
    r"(?m)^[^\n#]{0,200}?\b(?:sbatch|qsub|bsub)\b(?P<given>[^\n]{0,500}?)<<-?[ \t]*[\"'\\]?(?P<end>\w+)[^\n]*\n"
)
"""The command that submits a job from a here-document, with its options."""
MARKS = ("#SBATCH", "#PBS", "#BSUB")
MOST_JOBS = 20
TOTAL = pattern(r"--gpus[= ]|-G")
"""GPUs of all nodes together."""
NODES = pattern(r"(?:--nodes[= ]|-N[ \t]*)(?P<nodes>\S+)")
OTHERWISE = pattern(r"--gpus|--gres|-G[ \t]*\d|\bhet-group\b|\b(?:sbatch|salloc)\b")
"""What gives a step, or another job, GPUs of its own."""


@lru_cache(maxsize=8)
def card(script: Script) -> str:
    """Return the GPU that a task of SkyPilot, or the pods of a manifest, ask for by name; empty if none or several."""
    sign = {"steps": SKY, "kubernetes": NODE}.get(script.kind)
    named = {match["card"] for match in islice(sign.finditer(script.text), MOST_JOBS)} if sign else set()
    return named.pop() if len(named) == 1 else ""


def gpus(script: Script, launch: Launch | None = None) -> int | None:
    """Return how many GPUs a launch's job has on each node; None if it does not say, or if a step may have others."""
    at = launch.place.start if launch is not None else -1
    jobs = (asked for start, end, asked in _submitted(script) if start <= at < end)
    return next(jobs, _of_file(script))


@lru_cache(maxsize=8)
def image(script: Script) -> tuple[str, Span] | None:
    """Return the image in which Slurm runs a batch job, and its place; None if its lines name none or several."""
    found = {}
    if script.kind == "bash" and IMAGE.search(script.text):
        for line in re.finditer(r"(?m)^#SBATCH[ \t][^\n]*", script.text):
            for match in IMAGE.finditer(script.text, *line.span()):
                found[match["image"]] = script.place(*match.span("image"))
    return next(iter(found.items())) if len(found) == 1 else None


@lru_cache(maxsize=8)
def _submitted(script: Script) -> list[tuple[int, int, int | None]]:
    """Return the jobs in here-documents: where each begins and ends, and its GPUs."""
    known = script.kind == "bash" and any(mark in script.text for mark in MARKS)
    jobs = []
    for job in islice(SUBMITTED.finditer(script.text), MOST_JOBS) if known else ():
        ends = re.compile(rf"(?m)^[ \t]*{job['end']}[ \t]*$").search(script.text, job.end())
        end = ends.start() if ends else len(script.text)
        jobs.append((job.end(), end, _asked(f"#SBATCH{job['given']}\n{script.text[job.end() : end]}")))
    return jobs


@lru_cache(maxsize=8)
def _of_file(script: Script) -> int | None:
    if script.kind == "steps" and (task := SKY.search(script.text)):
        return int(task["gpus"] or 1)
    if script.kind == "steps":
        choice = SKY_CHOICE.search(script.text)
        listed = SKY_CARD.findall(choice["cards"]) if choice else SKY_EACH.findall(script.text)
        counts = {int(count or 1) for count in listed}
        return counts.pop() if len(counts) == 1 else None
    if script.kind != "bash" or not any(mark in script.text for mark in MARKS):
        return None
    return _asked(script.text)


def _asked(text: str) -> int | None:
    lines = text.split("\n")
    given = " ".join(match["given"] for line in lines if (match := DIRECTIVE.fullmatch(line.rstrip())))
    code = "\n".join(line for line in lines if not line.startswith("#"))
    found = list(GPUS.finditer(given))
    nodes = NODES.search(given)
    if len(found) != 1 or OTHERWISE.search(code) or "hetjob" in given or ",gpu" in given:
        return None
    if TOTAL.match(found[0][0]) and nodes is not None and nodes["nodes"] != "1":
        return None
    return int(found[0][found[0].lastgroup or "gpus"])
