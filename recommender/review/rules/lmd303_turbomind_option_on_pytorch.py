"""An option of TurboMind on the PyTorch engine

Finds options that only TurboMind reads, on a server that runs the PyTorch engine: because `--backend pytorch` says so,
or because TurboMind does not serve the model.

`--communicator`, `--cp`, `--async`, `--max-prefill-iters` and others reach TurboMind alone, `--vision-max-batch-size`
the image encoder beside it. The PyTorch engine never sees them, and nothing says so.

Take the option out, or choose TurboMind where it serves the model.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --backend pytorch --tp 2 --communicator cuda-ipc

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --backend pytorch --tp 2
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said


def _check(case: Case) -> Iterator[Said]:
    if not s.server(case) or s.engine(case) != s.PYTORCH:
        return
    fell = s.wanted(case) != s.PYTORCH
    for option, flag in s.options(case):
        era = s.era(case, flag)
        if era is None or set(era.read_by) != {s.TURBOMIND} or s.at_default(case, flag.id):
            continue
        how = f", which serves {case.facts.model.hub} here" if fell else ""
        yield Said(
            option.place,
            f"{option.name} does nothing on the PyTorch engine{how}: only TurboMind reads it.",
            "The command line drops it without a word.",
        )


RULE = Rule(
    id="LMD303",
    name="turbomind-option-on-pytorch",
    family="nothing",
    severity="warning",
    sources=("flags/communicator", "flags/cp", "flags/async", "flags/vision-max-batch-size"),
    check=_check,
)
