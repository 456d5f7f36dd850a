"""The condition language, and the constraint records written in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from recommender.knowledge.conditions import (
    NAMES,
    OPERATORS,
    ConditionError,
    Value,
    fill,
    holes,
    parse,
    show,
    version,
)
from recommender.knowledge.records import Constraint

ROOT = Path(__file__).parent.parent
RECORDS = sorted((ROOT / "knowledge" / "constraints").glob("*.yaml"))
CASES = yaml.safe_load((Path(__file__).parent / "cases" / "constraints.yaml").read_text(encoding="utf-8"))


def record(path: Path) -> Constraint:
    return Constraint.model_validate_json(json.dumps(yaml.safe_load(path.read_text(encoding="utf-8"))))


def typed(values: Mapping[str, Value]) -> dict[str, Value]:
    """Case values as the evaluation gets them: versions are versions."""
    return {name: version(str(value)) if NAMES[name] == "version" else value for name, value in values.items()}


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("config.tp == 2", 2, True),
        ("config.tp != 2", 2, False),
        ("config.tp < 2", 1, True),
        ("config.tp < 2", 2, False),
        ("config.tp <= 2", 2, True),
        ("config.tp > 2", 2, False),
        ("config.tp >= 2", 2, True),
        ("config.tp in [1, 2, 4]", 4, True),
        ("config.tp in [1, 2, 4]", 3, False),
        ("config.tp not in [1,2]", 3, True),
        ("config.block_len multiple of 64", 128, True),
        ("config.block_len multiple of 64", 96, False),
        ("config.cache_ratio < 1.0", 0.99, True),
        ("config.cache_ratio < 1.0", 1, False),
        ("config.temperature >= -0.5", 0.0, True),
        ("model.quantization == awq", "awq", True),
        ("model.quantization == awq", "AWQ", False),
        ("model.quantization in [awq, gptq]", "gptq", True),
        ('config.proxy_url != ""', "", False),
        ('config.proxy_url != ""', "http://10.0.0.1:8000", True),
        ('config.server_name in ["", "::", 0.0.0.0]', "0.0.0.0", True),
        ("model.hub == OpenGVLab/InternVL3-8B-AWQ", "OpenGVLab/InternVL3-8B-AWQ", True),
        ("gpu.nvlink == true", True, True),
        ("gpu.nvlink != true", True, False),
        ("gpu.nvlink == false", False, True),
        ("lmdeploy >= 0.10.0", Version("0.9.2.post1"), False),
        ("lmdeploy >= 0.9.2", Version("0.9.2.post1"), True),
        ("lmdeploy < 0.10.0", Version("0.9.2"), True),
        ("lmdeploy in [0.10.0, 0.10.1]", Version("0.10.1"), True),
        ("gpu.compute_capability >= 8.9", Version("12.0"), True),
        ("gpu.compute_capability in [9.0, 12.0]", Version("9"), True),
    ],
)
def test_operator_compares_by_kind(text: str, value: Value, expected: bool) -> None:
    """Every operator, on every kind that has it, and versions as versions."""
    condition = parse(text)
    assert condition.holds({condition.names[0]: value}) is expected


@pytest.mark.parametrize(
    ("text", "left", "right", "expected"),
    [
        ("config.session_len <= model.max_positions", 4096, 4096, True),
        ("config.session_len <= model.max_positions", 4097, 4096, False),
        ("model.heads multiple of config.tp", 28, 4, True),
        ("model.heads multiple of config.tp", 28, 8, False),
        ("model.heads multiple of config.tp", 28, 0, False),
        ("config.model_format == model.quantization", "awq", "awq", True),
        ("config.model_format == model.quantization", "awq", "gptq", False),
    ],
)
def test_names_compare_with_names(text: str, left: Value, right: Value, expected: bool) -> None:
    """The operand may be another name of the same kind."""
    condition = parse(text)
    assert condition.holds(dict(zip(condition.names, (left, right), strict=True))) is expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("config.blocklen > 1", "did you mean config.block_len"),
        ("config.tp <= gpu.cout", "did you mean gpu.count?"),
        ("model.quantisation == awq", "model.quantization"),
        ("model.id == config.tpx", "config.tp"),
        ("nothing.like.it == 1", "GUIDELINES.md"),
        ("gpu.count", "NAME OPERATOR OPERAND"),
        ("gpu.count =< 2", "NAME OPERATOR OPERAND"),
        ("gpu.count >= 2 and config.tp == 1", "is not a number"),
        ("gpu.count in 3", "write a list"),
        ("gpu.count in []", "write a list"),
        ("gpu.count in gpu.count", "cannot compare"),
        ("gpu.count in [1, two]", "'two' is not a number"),
        ("gpu.count >= 1_0", "is not a number"),
        ("gpu.count == true", "is not a number"),
        ("gpu.count <= lmdeploy", "cannot compare"),
        ("config.block_len multiple of 0", "above 0"),
        ("gpu.nvlink > true", "is a flag; use one of ==, !="),
        ("gpu.nvlink == yes", "write true or false"),
        ("model.id < b", "is a text; use one of"),
        ("model.id multiple of b", "is a text; use one of"),
        ("model.id == two words", "is not a text"),
        ("lmdeploy >= newest", "write 0.10.0"),
        ("lmdeploy multiple of 0.10.0", "is a version; use one of"),
    ],
)
def test_error_names_the_text_and_the_mend(text: str, says: str) -> None:
    """A condition that cannot be read is quoted, with what to write."""
    with pytest.raises(ConditionError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)
    assert says in str(caught.value)


def test_missing_value_is_named() -> None:
    """Evaluation without a value says which one, for either side."""
    with pytest.raises(ConditionError, match=r"no value was given for config\.tp"):
        parse("config.tp <= gpu.count").holds({"gpu.count": 1})
    with pytest.raises(ConditionError, match=r"no value was given for gpu\.count"):
        parse("config.tp <= gpu.count").holds({"config.tp": 1})
    with pytest.raises(ConditionError, match=r"no value was given for config\.tp"):
        parse("config.tp <= 2").holds({})


def test_reading_is_cached() -> None:
    """The same text gives the same object; an error is raised each time."""
    assert parse("gpu.count >= 2") is parse("gpu.count >= 2")
    for _ in range(2):
        with pytest.raises(ConditionError):
            parse("apples == 3")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (9999, "9999"),
        (10_000, "10,000"),
        (23_087, "23,087"),
        (100, "100"),
        (0.0, "0"),
        (0.8, "0.8"),
        (0.95, "0.95"),
        (0.000412, "0.000412"),
        (12.0, "12"),
        (1.2346, "1.23"),
        (67_407.1, "67,400"),
        (-3.5, "-3.5"),
        (True, "true"),
        (False, "false"),
        ("InternVL3", "InternVL3"),
        (Version("8.0"), "8.0"),
    ],
)  # fmt: skip
def test_values_are_shown_plainly(value: Value, shown: str) -> None:
    """Thousands from 10,000 on, fractions with three digits, no trailing zeros."""
    assert show(value) == shown


def test_fill_replaces_names_and_refuses_others() -> None:
    """Messages take names of the vocabulary only, and every one needs a value."""
    values: dict[str, Value] = {"config.session_len": 16_384, "lmdeploy": version("0.18.0")}
    assert fill("{config.session_len} on {lmdeploy}", values) == "16,384 on 0.18.0"
    assert fill("nothing to fill", {}) == "nothing to fill"
    with pytest.raises(ConditionError, match="session_len"):
        fill("{config.sesion_len}", values)
    with pytest.raises(ConditionError, match=r"no value was given for config\.tp"):
        fill("{config.tp}", values)


def test_vocabulary_is_the_table_of_the_guidelines() -> None:
    """Every name of the table is in NAMES with its kind, and no other."""
    kinds: dict[str, str] = {}
    for line in (ROOT / "knowledge" / "GUIDELINES.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 3 and cells[1] in OPERATORS:
            prefix = ""
            for name in cells[0].replace("`", "").split(", "):
                prefix = name.partition(".")[0] if name[0] != "." else prefix
                kinds[prefix + name if name[0] == "." else name] = cells[1]
    assert kinds == dict(NAMES)


@given(st.integers(-1000, 1000), st.integers(-1000, 1000))
def test_number_operators_agree_with_python(left: int, right: int) -> None:
    """Comparison is Python's own, with literals and with names."""
    values: dict[str, Value] = {"config.tp": left, "gpu.count": right}
    for sign, expected in (("<", left < right), ("<=", left <= right), ("==", left == right), (">=", left >= right)):
        assert parse(f"config.tp {sign} {right}").holds(values) is expected
        assert parse(f"config.tp {sign} gpu.count").holds(values) is expected


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_constraint_record_reads(path: Path) -> None:
    """File name and id agree; every condition and message uses known names."""
    constraint = record(path)
    assert constraint.id == path.stem
    for text in (*constraint.when, *constraint.require):
        assert parse(text).names
    assert holes(constraint.message) or constraint.message
    assert not holes(constraint.remedy)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_constraint_does_as_its_cases_say(path: Path) -> None:
    """Each constraint has a case that passes, one that violates, and one that skips where it has conditions."""
    constraint = record(path)
    when, require = [parse(text) for text in constraint.when], [parse(text) for text in constraint.require]
    seen = set()
    for case in CASES[constraint.id]:
        values = typed(case["values"])
        applies = all(condition.holds(values) for condition in when)
        result = "skip" if not applies else "pass" if all(c.holds(values) for c in require) else "violate"
        assert result == case["expect"], case
        assert "{" not in fill(constraint.message, values)
        seen.add(result)
    assert {"pass", "violate"} <= seen
    assert "skip" in seen or not when


def test_no_case_is_left_over() -> None:
    """Cases belong to constraints that exist."""
    assert set(CASES) == {path.stem for path in RECORDS}
