"""A schema that TurboMind does not follow yet

Finds response_format in the generation configuration of a TurboMind pipeline before 0.10.2.

Structured output came to TurboMind with 0.10.2; before, only the PyTorch engine followed a schema, and the server
answers such a request with HTTP 400.

Use 0.10.2 or newer, or the PyTorch engine.

Bad, with 0.9.2:

    gen_config = GenerationConfig(response_format={"type": "json_schema", "json_schema": schema})
    pipe = pipeline(model, backend_config=TurbomindEngineConfig())

Good, with 0.9.2:

    pipe = pipeline(model, backend_config=PytorchEngineConfig())
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

SCHEMA = "structured-output-turbomind"


def _check(case: Case) -> Iterator[Said]:
    setting = case.settings.get("response-format")
    if setting is None or setting.text in ("None", "none", ""):
        return
    for each in s.broken(case, SCHEMA, extra={"config.structured_output": True}):
        yield Said(setting.option.place, each.message, each.record.remedy)


RULE = Rule(
    id="LMD216",
    name="schema-before-its-time",
    family="answers",
    severity="error",
    sources=(f"constraints/{SCHEMA}", "threads/schema-refused-by-turbomind"),
    check=_check,
)
