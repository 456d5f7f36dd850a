"""A JSON schema that TurboMind does not support yet

## What it does
Reports response_format in the generation configuration of a TurboMind pipeline before 0.10.2.

## Why
TurboMind supports structured output since 0.10.2. Before, only the PyTorch engine does, and the server answers such a
request with HTTP 400.

## Bad
With 0.9.2:

    gen_config = GenerationConfig(response_format={"type": "json_schema", "json_schema": schema})
    pipe = pipeline(model, backend_config=TurbomindEngineConfig())

## Good
Use 0.10.2 or newer, or the PyTorch engine. With 0.9.2:

    pipe = pipeline(model, backend_config=PytorchEngineConfig())
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule

SCHEMA = "structured-output-turbomind"


@option_rule("response-format", "error", sources=(f"constraints/{SCHEMA}", "threads/schema-refused-by-turbomind"))
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    if setting.text in ("None", "none", ""):
        return
    for violation in checks.broken(case, SCHEMA, extra={"config.structured_output": True}):
        yield Diagnostic(setting.option.place, violation.message, violation.record.remedy)
