"""A value that LMDeploy rejects after parsing

## What it does
Reports numbers that the parser accepts but the engine or server does not: a port above 65535, zero GPUs, a batch
below one, a KV block length that the GPU's kernels cannot use, and FP8 or TurboQuant KV caches on TurboMind. In
Python, where no parser reads them, also text for a number, words that are not among the choices, and values that
`GenerationConfig` or `TurbomindEngineConfig` checks itself, such as `top_k=-1` and `cache_prompt="none"`.

With the PyTorch engine, also `--cudagraph-capture-batch-sizes` without a size up to `--max-batch-size`,
a `--kernel-block-size` that is no power of two or does not divide the KV block, a `--max-prefill-token-num` of 0, and
a `--dp-rank` that is not below `--dp`.

## Why
TurboMind stores the KV cache in 16, 8 or 4 bits. It rejects the newer `--quant-policy` values 16 and 17. It accepts
42 but cannot run it. The block length must be a multiple of 32 tokens, or of 64 below compute capability 8.0.

## Bad

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --server-port 233333

## Good
Use a value within the range that the message names:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --server-port 23333
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recommender.common.pattern import pattern
from recommender.knowledge import option_values
from recommender.knowledge.engines import LABELS
from recommender.review import checks
from recommender.review.launch_settings import LaunchSetting
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.rules import field_ranges

if TYPE_CHECKING:
    from recommender.knowledge import records

RANGES = ("block-length-ampere", "block-length-before-ampere", "block-length-pytorch")
OTHERS = frozenset({"cache-max-entry-count", "omp-num-threads"})
"""Options whose range has a rule of its own."""
CHOSEN = frozenset({"async", "device", "distributed-executor-backend", "log-level", "model-format", "moe-a2a-backend"})
"""Options whose words are checked in Python too: by an engine's configuration, the engine or the logger."""
CAPTURED = "cudagraph-capture-batch-sizes"
KERNEL_BLOCK, UNSET, LEAST_BLOCK = "kernel-block-size", -1, 16
PREFILL = "max-prefill-token-num"
RANK, REPLICAS = "dp-rank", "dp"
WHOLE = pattern(r"[-+]?\d{1,9}")
DTYPES = ("auto", "float16", "bfloat16")
"""What an engine's configuration takes."""


@launch_rule(
    "error",
    sources=(
        *(f"constraints/{constraint}" for constraint in RANGES),
        "constraints/kv-bits-turbomind",
        "flags/cudagraph-capture-batch-sizes",
        "flags/dp-rank",
        "flags/kernel-block-size",
        "flags/max-prefill-token-num",
        "flags/quant-policy",
        "flags/server-port",
        "flags/tp",
        "flags/log-level",
        "https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/messages.py",
    ),
)
def rule(case: Case) -> Diagnostics:
    refused = set()
    for name, setting in case.settings.items():
        refusal = _refusal(case, setting)
        if refusal and not (name in OTHERS and refusal.by == "range"):
            refused.add(name)
            within = refusal.by == "range" or setting.id in CHOSEN
            wrong = f"is out of range; use {refusal.expectation}" if within else f"is not {refusal.expectation}"
            message = f"{setting.option.name} {setting.text} {wrong}."
            why = "LMDeploy rejects the value, or cannot serve with it."
            kind = "flags" if name in case.resolved.store.flags else "environment"
            yield Diagnostic(checks.at(setting), message, why, sources=(f"{kind}/{name}",))
    for violation in checks.broken(case, *RANGES):
        if violation.settings and violation.settings[0].id not in refused:
            place, source = checks.at(violation.settings[0]), (f"constraints/{violation.record.id}",)
            yield Diagnostic(place, violation.message, violation.record.remedy, sources=source)
    yield from _kv_bits(case)
    yield from _capture_sizes(case)
    yield from _kernel_block(case)
    yield from _no_prefill(case) if PREFILL not in refused else ()
    yield from _rank(case)
    yield from _dtype(case)
    yield from field_ranges.refused(case) if checks.python(case) else ()


def _refusal(case: Case, setting: LaunchSetting) -> option_values.Refusal | None:
    """Return why a value that the parser accepts is refused, if the engine or the server reads it."""
    store, era = case.resolved.store, case.resolved.options.get(setting.id)
    checked = era is None or (_is_used(case, setting.id) and _is_checked(case, setting.id, era))
    if setting.text is None or not checked:
        return None
    accepted = era or store.environment.get(setting.id)
    refusal = option_values.refuse(accepted, setting.text, checks.python(case)) if accepted else None
    if refusal is None or refusal.by == "range" or accepted is None:
        return refusal
    judged = setting.id in CHOSEN if accepted.choices else accepted.type in ("int", "float")
    judged = judged and not field_ranges.IN_PYTHON.fullmatch(setting.text)
    levels = setting.id == "log-level" and setting.text.isdecimal()  # the logger takes the number of a level
    return refusal if checks.python(case) and judged and not levels else None


def _is_used(case: Case, option: str) -> bool:
    """Return whether this launch may use an option; images only if its model reads them."""
    given = {name: setting.text for name, setting in case.settings.items()}
    era = case.resolved.options.get(option)
    is_read = era is not None and checks.engine(case) in era.read_by
    used = option_values.is_used(option, given, checks.architecture(case), is_read)
    return used and (option != "vision-max-batch-size" or case.known.get("model.vision") is not False)


def _is_checked(case: Case, option: str, era: records.Era) -> bool:
    """Return whether the server or the engine reads an option, or at least the engine's configuration holds it."""
    engine = checks.engine(case)
    if {engine, "server"} & set(era.read_by):
        return True
    fields = case.resolved.store.flags[option].fields
    held = any(field.config == LABELS[engine].config_class for field in fields) if engine in LABELS else False
    return held and "nobody" in era.read_by


def _kv_bits(case: Case) -> Diagnostics:
    """Report a precision of the KV cache that the parser accepts but TurboMind cannot run.

    A configuration in Python knows no names, and no parser reads its numbers.
    """
    flags, python = case.resolved.store.flags, checks.python(case)
    given = ((flags[name], setting) for name, setting in case.settings.items() if name in flags)
    for option, setting in given if python or checks.engine(case) == checks.TURBOMIND else ():
        era = checks.era(case, option)
        if setting.text is None or era is None or not option.encodings:
            continue
        turbomind, source = checks.engine(case) == checks.TURBOMIND, (f"flags/{option.id}",)
        refused = option_values.refuse(era, setting.text) or (python and not setting.text.isdecimal())
        encoded = [encoding.text for encoding in option.encodings if encoding.text in era.choices]
        texts = encoded if turbomind else era.choices
        known = ", ".join(text for text in texts if text.isdecimal() or not python)
        if python and refused:
            message = f"{setting.option.name} {setting.text} is out of range; use {known}."
            yield Diagnostic(checks.at(setting), message, "The configuration refuses the value.", sources=source)
        elif turbomind and not refused and not option_values.runs_on_turbomind(option, setting.text):
            message = f"{setting.option.name} {setting.text} works on the PyTorch engine only."
            yield Diagnostic(checks.at(setting), message, f"TurboMind accepts {known}.", sources=source)


def _capture_sizes(case: Case) -> Diagnostics:
    """Report sizes of CUDA graphs that the PyTorch engine refuses: none above 0, or none up to the batch's."""
    setting = case.settings.get(CAPTURED)
    if setting is None or setting.text is None or checks.engine(case) != checks.PYTORCH:
        return
    era, sizes = case.resolved.options.get(CAPTURED), setting.text.split()
    if era is None or not all(WHOLE.fullmatch(size) for size in sizes):
        return
    source, why = (f"flags/{CAPTURED}",), "The PyTorch engine does not start with it."
    batch = case.known.get("config.max_batch_size")
    for word in setting.option.values:
        if int(word.value or "1") < 1:
            message = f"{setting.option.name} {word.value} is out of range; use whole numbers of at least 1."
            yield Diagnostic(word.literal or word.place, message, why, sources=source)
            return
    if sizes and isinstance(batch, int) and min(map(int, sizes)) > batch > 0:
        message = f"{setting.option.name} has no size up to {checks.spelled(case, 'max-batch-size')} {batch}."
        yield Diagnostic(checks.at(setting), message, why, sources=source)


def _kernel_block(case: Case) -> Diagnostics:
    """Report a block that the PyTorch engine's configuration refuses (0.13.0 lmdeploy/messages.py:463)."""
    setting = _of_pytorch(case, KERNEL_BLOCK)
    if setting is None or setting.text is None or not WHOLE.fullmatch(setting.text) or int(setting.text) == UNSET:
        return
    size, block = int(setting.text), case.known.get("config.block_len")
    message = ""
    if size < LEAST_BLOCK or size & (size - 1):
        message = f"{setting.option.name} {size} is out of range; use -1 or a power of two of at least {LEAST_BLOCK}."
    elif isinstance(block, int) and block % size:
        message = f"{setting.option.name} {size} does not divide the KV block of {block} tokens."
    if message:
        why = "The PyTorch engine does not start with it."
        yield Diagnostic(checks.at(setting), message, why, sources=(f"flags/{KERNEL_BLOCK}",))


def _no_prefill(case: Case) -> Diagnostics:
    """Report 0 tokens a pass: chunks of a text are empty then (0.16.0 lmdeploy/pytorch/long_context.py:95)."""
    setting = _of_pytorch(case, PREFILL)
    if setting is not None and case.number(PREFILL) == 0:
        message = f"{setting.option.name} 0 leaves no prompt tokens for a pass of the PyTorch engine."
        why = "It reads a prompt in chunks of that many tokens, so a text is never read to its end."
        yield Diagnostic(checks.at(setting), message, why, sources=(f"flags/{PREFILL}",))


def _rank(case: Case) -> Diagnostics:
    """Report a replica beyond the last, which the PyTorch engine refuses (0.8.0 lmdeploy/pytorch/config.py:104)."""
    setting, replicas = _of_pytorch(case, RANK), case.effective(REPLICAS) or ""
    if setting is None or setting.text is None or not WHOLE.fullmatch(setting.text) or not WHOLE.fullmatch(replicas):
        return
    if int(setting.text) >= int(replicas) > 0:
        message = f"{setting.option.name} {setting.text} is not below {checks.spelled(case, REPLICAS)} {replicas}."
        why = "The PyTorch engine does not start with it."
        yield Diagnostic(checks.at(setting), message, why, sources=(f"flags/{RANK}",))


def _of_pytorch(case: Case, option: str) -> LaunchSetting | None:
    """Return a setting that the PyTorch engine reads, if it runs this launch."""
    setting, era = case.settings.get(option), case.resolved.options.get(option)
    reads = era is not None and checks.PYTORCH in era.read_by and checks.engine(case) == checks.PYTORCH
    return setting if reads else None


def _dtype(case: Case) -> Diagnostics:
    """Report a data type that the configuration of an engine refuses (0.7.0, 0.16.0 lmdeploy/messages.py)."""
    setting = case.settings.get("dtype")
    if case.launch.starts != "pipeline" or setting is None or setting.text is None:
        return
    if setting.text not in DTYPES:
        message = f"{setting.option.name} {setting.text} is out of range; use {', '.join(DTYPES)}."
        why = "The configuration refuses the value."
        yield Diagnostic(checks.at(setting), message, why, sources=("flags/dtype",))
