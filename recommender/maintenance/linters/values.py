"""Linters of values: conditions, reasons, settings, numbers, verdicts."""

import dataclasses
import math
from collections.abc import Iterator, Mapping

from recommender.common.text import did_you_mean, one_line
from recommender.estimate.configuration import Configuration
from recommender.knowledge import records
from recommender.knowledge.conditions import ConditionError, holes, parse
from recommender.maintenance.knowledge_folder import KnowledgeFolder, Problem, join_fields

TEXTS: Mapping[type, tuple[str, ...]] = {
    records.Reason: ("text",),
    records.Constraint: ("message", "remedy"),
    records.NeededOption: ("because",),
}
"""Fields with {names} of the vocabulary, by the record that has them."""
WEIGHT_BITS = (4, 8)
"""Bits of the quantised weights that LMDeploy reads."""
LEAST_REPORTED = 0.85
"""Lowest share of the memory as sold that a driver reports; the names of MIG slices round it up."""
MOST_RATES: Mapping[str, float] = {"bf16": 1.05, "fp8": 2.1, "int8": 4.2, "fp4": 8.4}
"""Highest dense rates in multiples of fp16's, with room for rounding; GeForce halves fp16."""
FLOPS_PER_BYTE = (10, 2000)
"""Range of fp16 FLOP per byte of bandwidth; the records have 31 to 453."""


def conditions(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that every condition can be read, and that every {name} of a message is in the vocabulary.

    A constraint is evaluated before anything is estimated unless its conditions compare an
    estimate; only then may its message name one. Repair: the table of names is in GUIDELINES.md.
    """
    for file, where, part in knowledge.parts:
        if not isinstance(part, (records.Reason, records.Constraint, records.NeededOption)):
            continue
        names: list[str] = []
        for field in ("when", "require") if isinstance(part, records.Constraint) else ("when",):
            for number, text in enumerate(getattr(part, field, ())):
                try:
                    names += parse(text).names
                except ConditionError as error:
                    yield misread(file, f"{join_fields(where, field)}[{number}]", error)
        estimated = not isinstance(part, records.Constraint) or any(name.startswith("estimate.") for name in names)
        for field in TEXTS[type(part)]:
            try:
                named = holes(getattr(part, field))
            except ConditionError as error:
                yield misread(file, join_fields(where, field), error)
                continue
            for name in named:
                if name.startswith("estimate.") and not estimated:
                    what = f"{{{name}}} is not known yet when this constraint is evaluated"
                    yield Problem(file, field, what, "compare an estimate in when or require, or leave the name out")


def claim_conditions(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that the conditions of a claim can be read and compare what was asked, not what was chosen.

    Repair: the table of names is in GUIDELINES.md.
    """
    for file, claim in knowledge.records_of(records.Claim):
        for number, text in enumerate(claim.when):
            try:
                names = parse(text).names
            except ConditionError as error:
                yield misread(file, f"when[{number}]", error)
                continue
            for name in names:
                if name.startswith(("config.", "estimate.")):
                    what = f"{name} is not part of a request"
                    yield Problem(file, f"when[{number}]", what, "compare lmdeploy, gpu, model or request")


def misread(file: str, where: str, error: ConditionError) -> Problem:
    """Return the problem of a condition that cannot be read."""
    what, _, repair = one_line(error).rpartition("; ")
    return Problem(file, where, what or one_line(error), repair if what else "write NAME OPERATOR OPERAND")


def reasons(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that the last reason of an option, and only the last, has no condition.

    Else some case has no reason, or the reasons below an unconditional one are never shown.
    Repair: end the list with a reason whose ``when`` is empty.
    """
    for file, option in knowledge.records_of(records.Option):
        for number, reason in enumerate(option.reasons, 1):
            last = number == len(option.reasons)
            where = f"reasons[{number - 1}].when"
            if last and reason.when:
                yield Problem(file, where, "some cases have no reason", "add a last reason without when")
            if not last and not reason.when:
                yield Problem(file, where, "the reasons below it are never shown", "give it a when, or move it last")


def settings(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that the recommender decides the setting that an option carries, and that a needed option has one.

    Repair: use a field of recommender/estimate/configuration.py, or leave it empty; that of a needed option is a text.
    """
    known = [field.name for field in dataclasses.fields(Configuration)]
    for file, option in knowledge.records_of(records.Option):
        if option.setting and option.setting not in known:
            near = did_you_mean(option.setting, known).lstrip(": ")
            yield Problem(file, "setting", f"nothing decides {option.setting!r}", f"fix it or leave it empty; {near}")
    texts = {field.name for field in dataclasses.fields(Configuration) if field.type == "str"}
    carried = {flag.id for _, flag in knowledge.records_of(records.Flag) if flag.setting in texts}
    for file, model in knowledge.records_of(records.Model):
        for number, need in enumerate(model.needs):
            if need.option in knowledge.names["flags"] and need.option not in carried:
                what = f"{need.option} has no setting of type str, so no artefact would pass it"
                yield Problem(file, f"needs[{number}].option", what, "give the option's record such a setting")


def numbers(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that numbers are possible: ranges in order, no size 0, heads in whole groups, weights of 4 or 8 bits.

    low <= value <= high for coefficients, low <= high for figures. Repair: correct the value.
    """
    for file, where, part in knowledge.parts:
        if isinstance(part, records.Coefficient):
            if not (part.low <= part.value <= part.high and math.isfinite(part.low) and math.isfinite(part.high)):
                what = f"low {part.low:g}, value {part.value:g}, high {part.high:g} are not in order"
                yield Problem(file, "value", what, "let low <= value <= high")
        elif isinstance(part, records.Figure) and part.low > part.high:
            what = f"low {part.low:g} is above high {part.high:g}"
            yield Problem(file, join_fields(where, "low"), what, "swap them")
        elif isinstance(part, records.Quantization) and part.bits not in WEIGHT_BITS:
            yield Problem(file, join_fields(where, "bits"), f"LMDeploy reads no {part.bits} bits", "write 4 or 8")
        elif isinstance(part, (records.TextShape, records.VisionShape)):
            if isinstance(part, records.TextShape) and part.heads % (part.kv_heads or 1):
                what = f"{part.kv_heads} does not divide the {part.heads} heads"
                yield Problem(file, join_fields(where, "kv_heads"), what, "write num_key_value_heads of config.json")
            for name in type(part).model_fields:
                value = getattr(part, name)
                if type(value) is int and value <= 0 and name not in ("wrapper_tokens", "positions", "deepstack"):
                    yield Problem(
                        file, join_fields(where, name), f"{value} is not a size", "write the value of config.json"
                    )


def gpus(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that memory, bandwidth and rates of a GPU match: right units, no rate with sparsity.

    Repair: see Numbers of a GPU in GUIDELINES.md. If a chip really differs, widen the limits in this module.
    """
    for file, gpu in knowledge.records_of(records.Gpu):
        if not LEAST_REPORTED <= gpu.memory_mib / (1024 * gpu.memory_gb) <= 1:
            what = f"{gpu.memory_mib} MiB does not match {gpu.memory_gb:g} GB as sold"
            yield Problem(file, "memory_mib", what, "write the total that nvidia-smi prints, in MiB")
        rates: dict[str, float] = {}
        for number, rate in enumerate(gpu.rates):
            most = MOST_RATES.get(rate.precision, math.inf) * rates.get("fp16", math.inf)
            if rate.precision in rates:
                yield Problem(file, f"rates[{number}]", f"{rate.precision} is listed twice", "remove one")
            elif rate.tera > most:
                what = f"{rate.tera:g} is {rate.tera / rates['fp16']:.1f} times fp16"
                yield Problem(file, f"rates[{number}].tera", what, "write the dense rate, half of that with sparsity")
            rates.setdefault(rate.precision, rate.tera)
        low, high = FLOPS_PER_BYTE
        if "fp16" in rates and not low < 1000 * rates["fp16"] / gpu.bandwidth_gb_s < high:
            what = f"{gpu.bandwidth_gb_s:g} GB/s does not match {rates['fp16']:g} TFLOP/s of fp16"
            yield Problem(file, "bandwidth_gb_s", what, "write GB/s (10^9 bytes) here, and TFLOP/s in rates")


def verdicts(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that a verdict rests on code, a page or a run, unless it is unverified or depends.

    Repair: cite what you opened, or let the claim be unverified.
    """
    for file, claim in knowledge.records_of(records.Claim):
        if claim.verdict not in ("unverified", "depends") and claim.sources.empty:
            what = f"{claim.verdict} has no source"
            yield Problem(file, "verdict", what, "add a source, or write unverified")
