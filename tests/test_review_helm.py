"""Helm's templates, rendered with the values of the chart beside them. Expectations follow Helm's documentation."""

from pathlib import Path
from typing import Any

import pytest
from scripts import given_options

from recommender.review.engine import review
from recommender.review.readers.detect_kind import read
from recommender.review.readers.helm.values import UNKNOWN, evaluate, printed
from recommender.review.script.model import Script

VALUES: dict[str, Any] = {"a": {"b": "x"}, "n": 3, "on": True, "off": False, "list": ["p", "q"], "empty": ""}
SCOPE = {"": {"Values": VALUES}, "$": {"Values": VALUES}, "$port": 8000}
EXPRESSIONS = [
    (".Values.a.b", "x"),
    ("$.Values.n", "3"),
    ("$port", "8000"),
    (".Values.on", "true"),
    (".Values.a.b | quote", '"x"'),
    ('.Values.empty | default "m"', "m"),
    ('default "m" .Values.missing', "m"),
    ('printf "%s:%v" .Values.a.b (.Values.n | default 1)', "x:3"),
    ("eq .Values.n 3", "true"),
    ("and .Values.on (not .Values.off)", "true"),
    ('.Values.list | join ","', "p,q"),
    ("toYaml .Values.a", "b: x"),
    ("toYaml .Values.a | nindent 2", "\n  b: x"),
    ('required "why" .Values.a.b', "x"),
    ('ternary "yes" "no" .Values.off', "no"),
    ('include "chart.name" .', None),
    (".Files.Get", None),
    ("lookup 1 2", None),
    ("{", None),
]


@pytest.mark.parametrize(("expression", "text"), EXPRESSIONS)
def test_an_expression(expression: str, text: str | None) -> None:
    """None: the values do not determine it."""
    value = evaluate(expression, SCOPE if "Files" not in expression else {"": UNKNOWN})
    assert printed(value) == text


def chart(folder: Path, template: str, values: str) -> str:
    """Write a chart with one template; return its path."""
    (folder / "templates").mkdir(parents=True)
    (folder / "values.yaml").write_text(values)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: llm\nversion: 0.1.0\nappVersion: v0.18.0\n")
    path = folder / "templates" / "deploy.yaml"
    path.write_text(template)
    return str(path)


def pod(args: str) -> str:
    """Return a template of a pod whose container has these arguments."""
    return (
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: llm\n"
        "      image: openmmlab/lmdeploy:{{ .Values.tag | default .Chart.AppVersion }}\n      args:\n"
        f"        - lmdeploy\n        - serve\n        - api_server\n        - {{{{ .Values.model }}}}\n{args}"
    )


def launched(tmp_path: Path, args: str, values: str) -> tuple[Script, dict[str, list[str | None]]]:
    """Return what a chart's template starts, and with which options."""
    text = pod(args)
    script = read(chart(tmp_path / "c", text, values), text)
    (launch,) = script.launches
    assert launch.model.value == "m"
    return script, given_options(launch)


@pytest.mark.parametrize(
    ("args", "values", "options"),
    [
        ("        - --tp={{ .Values.tp }}\n", "tp: 2", {"--tp": ["2"]}),
        ("{{- if .Values.eager }}\n        - --eager-mode\n{{- end }}\n", "eager: true", {"--eager-mode": []}),
        ("{{- if .Values.eager }}\n        - --eager-mode\n{{- end }}\n", "eager: false", {}),
        (
            '{{- if eq .Values.mode "a" }}\n        - --tp=1\n{{- else if eq .Values.mode "b" }}\n        - --tp=2\n'
            "{{- else }}\n        - --tp=4\n{{- end }}\n",
            "mode: b",
            {"--tp": ["2"]},
        ),
        (
            "{{- range .Values.extra }}\n        - {{ . | quote }}\n{{- end }}\n",
            "extra: [--tp, 2]",
            {"--tp": ["2"]},
        ),
        (
            "{{- range $k, $v := .Values.options }}\n        - --{{ $k }}={{ $v }}\n{{- end }}\n",
            "options: {tp: 2, session-len: 8192}",
            {"--tp": ["2"], "--session-len": ["8192"]},
        ),
        ("{{- with .Values.tp }}\n        - --tp={{ . }}\n{{- end }}\n", "other: 1", {}),
        ("        {{- toYaml .Values.extra | nindent 8 }}\n", "extra: [--tp, '2']", {"--tp": ["2"]}),
        ("        - --tp={{ tpl .Values.tp $ }}\n", "tp: 2", {"--tp": [None]}),
        ("        {{/* - --tp=2 */}}\n        - --tp=4\n", "tp: 2", {"--tp": ["4"]}),
    ],
)
def test_a_template_is_rendered(tmp_path: Path, args: str, values: str, options: dict[str, list[str | None]]) -> None:
    """As helm template does; what the values do not determine is unknown."""
    script, found = launched(tmp_path, args, f"model: m\n{values}\n")
    assert found == options
    assert script.launches[0].container.image.value == "openmmlab/lmdeploy:v0.18.0"


def test_a_finding_is_in_the_template(tmp_path: Path) -> None:
    """At the place of the value, and without a repair: the value is in another file."""
    text = pod("        - --server-port\n        - {{ .Values.port | quote }}\n")
    path = chart(tmp_path / "c", text, "model: Qwen/Qwen2.5-7B-Instruct\nport: 233333\n")
    (finding,) = [finding for finding in review(path, text).findings if finding.severity == "error"]
    assert (finding.rule.id, finding.place.line) == ("LMD105", text.count("\n"))
    assert finding.fix is None


def test_a_loop_over_what_is_not_known_is_said(tmp_path: Path) -> None:
    """Options that the values do not hold could be any."""
    text = pod("{{- range .Files.Lines }}\n        - {{ . }}\n{{- end }}\n")
    path = chart(tmp_path / "c", text, "model: Qwen/Qwen2.5-7B-Instruct\n")
    (finding,) = [finding for finding in review(path, text).findings if finding.rule.id == "LMD002"]
    assert ".Files.Lines" in finding.message


def test_a_template_without_its_chart_is_said(tmp_path: Path) -> None:
    """The values decide what it starts."""
    text = pod("{{- if .Values.eager }}\n        - --tp=2\n{{- end }}\n")
    path = tmp_path / "deploy.yaml"
    path.write_text(text)
    assert "LMD002" in [finding.rule.id for finding in review(str(path), text).findings]
