"""An option of the PyTorch engine on TurboMind

Finds options that only the PyTorch engine reads, on a server that runs TurboMind: `--adapters`, `--dllm-*`,
`--speculative-*`, `--cudagraph-capture-batch-sizes`, `--kernel-block-size` and others.

The command line takes options of both engines and hands TurboMind its own; the others are dropped without a word.
LoRA adapters are then not loaded, drafts not made. `--eager-mode` has a rule of its own.

Take the option out, or choose `--backend pytorch` if it is what you want.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --backend turbomind --adapters mylora=/lora

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --backend pytorch --adapters mylora=/lora
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import mend
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

OWN_RULES = frozenset({"eager-mode", "kv-transfer-config"})


def _check(case: Case) -> Iterator[Said]:
    if not s.server(case) or s.engine(case) != s.TURBOMIND:
        return
    if not case.model_known and "backend" not in case.settings:
        return  # a model that TurboMind does not serve runs on the engine that reads them
    for option, flag in s.options(case):
        era = s.era(case, flag)
        if era is None or set(era.read_by) != {s.PYTORCH} or flag.id in OWN_RULES or s.at_default(case, flag.id):
            continue
        yield Said(
            option.place,
            f"{option.name} does nothing on TurboMind: only the PyTorch engine reads it.",
            "The command line drops it without a word; --backend pytorch is the engine that has it.",
            mend.remove(case.script, option) if era.type == "bool" else None,
        )


RULE = Rule(
    id="LMD301",
    name="pytorch-option-on-turbomind",
    family="nothing",
    severity="warning",
    sources=("flags/adapters", "flags/kernel-block-size", "flags/cudagraph-capture-batch-sizes", "flags/backend"),
    check=_check,
)
