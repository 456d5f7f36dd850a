"""Test the review's engine: context, rules, ignores, project settings and the command."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from artefacts import KNOWLEDGE, Called, run_program, text, write_files
from scripts import read_bash

from recommender.commands.review import QUESTION
from recommender.knowledge.load import load
from recommender.review import case, checks, context, engine, settings
from recommender.review.rule import Case, Diagnostic, Finding, Rule
from recommender.review.script.model import Container, Launch, Script, Span, Word

ROOT = KNOWLEDGE.parent
SERVE = "lmdeploy serve api_server OpenGVLab/InternVL3-8B-AWQ"
HERE = Span(0, 1, 1, 1)


def one(script: str, **options: object) -> Case:
    (found,) = case.cases(read_bash("deploy.sh", script), options)
    return found


def word(value: str | None) -> Word:
    """Return a word at an arbitrary place."""
    return Word(value or "$X", value, HERE)


def speaking(name: str = "LMD900", about: str = "--", severity: str = "warning", **more: object) -> Rule:
    """Return a rule that reports every option with this prefix."""

    def check(case: Case) -> Iterator[Diagnostic]:
        for option in case.launch.options:
            if option.name.startswith(about):
                yield Diagnostic(option.place, f"{option.name} is there.", "It must not be.")

    return Rule(name, f"no{about.strip('-') or 'thing'}", "nothing", severity, (), check, **more)  # type: ignore[arg-type]


def found(review: engine.Review) -> list[tuple[str, int]]:
    return [(finding.rule.id, finding.place.line) for finding in review.findings]


def judged(script: str, *rules: Rule, **options: object) -> engine.Review:
    """Review a script with some rules and the rules about ignores."""
    own = [rule for rule in engine.rules() if rule.id.startswith("LMD00")]
    return engine.examine(read_bash("deploy.sh", script), options, among=[*rules, *own])


# --- settings and context


def test_settings_are_the_records_ids() -> None:
    """Options with underscores or shortened, and variables, are found by their record's id."""
    found = one(
        f"export OMP_NUM_THREADS=8\n{SERVE} --session-len 4096 --quant_policy 8 --cache-max 0.5 --enable-prefix-caching"
    )
    assert {name: each.text for name, each in found.settings.items()} == {
        "session-len": "4096",
        "quant-policy": "8",
        "cache-max-entry-count": "0.5",
        "enable-prefix-caching": "true",
        "omp-num-threads": "8",
    }
    assert (found.number("session-len"), found.text("tp"), found.number("enable-prefix-caching")) == (4096, None, None)


@pytest.mark.parametrize("spelled", ["--session-length", "--se", "--", "-x", "--nonsense", "session-len"])
def test_what_no_record_has_is_no_setting(spelled: str) -> None:
    """Misspelt, ambiguous and unknown options are no settings; rules report them."""
    assert "session-len" not in one(f"{SERVE} {spelled} 4096").settings


def test_the_last_of_an_option_given_twice_counts() -> None:
    """LMDeploy's parser does the same."""
    assert one(f"{SERVE} --tp 1 --tp 2").text("tp") == "2"


def test_keywords_of_python_are_found_by_their_class() -> None:
    """A pipeline's keywords are those of its engine's class; a dotted one names the class itself."""
    from recommender.review.script.model import GivenOption

    names = ("session_len", "VisionConfig.max_batch_size", "max_batch_size", "tp", "GenerationConfig.max_new_tokens")
    options = tuple(GivenOption(name, (word("4"),), HERE, HERE) for name in names)
    launch = Launch("pipeline", HERE, word("OpenGVLab/InternVL3-8B-AWQ"), options, {}, engine="TurbomindEngineConfig")
    (found,) = case.cases(Script("run.py", "python", "", (launch,)), {})
    assert set(found.settings) == {"session-len", "vision-max-batch-size", "max-batch-size", "tp", "max-tokens"}


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("OpenGVLab/InternVL3-8B-AWQ", True),
        ("internvl3-8b-awq", True),
        ("/models/InternVL3-8B-AWQ/", True),
        ("~/.cache/huggingface/hub/models--OpenGVLab--InternVL3-8B-AWQ/snapshots/abc", True),
        ("/models/ours", False),
        ("InternVL3-8B-AWQ-finetuned", False),
    ],
)
def test_the_model_is_the_scripts(model: str, known: bool) -> None:
    """Hub names, aliases, folders of that name and cache paths are known; nothing else is guessed."""
    found = one(f"lmdeploy serve api_server {model}")
    assert found.model_known is known
    assert not known or found.resolved.model.id == "internvl3-8b-awq"


def test_what_nobody_told_is_not_known() -> None:
    """Without options the case marks its GPU, model, load and release as assumed."""
    bare = one("lmdeploy serve api_server /models/ours")
    assert (bare.gpu_known, bare.model_known, bare.load_known, bare.release_known) == (False, False, False, False)
    told = one(SERVE, gpu="L4", load="16", lmdeploy="0.9.2", image="1280x720")
    assert (told.gpu_known, told.model_known, told.load_known, told.release_known) == (True, True, True, True)
    assert (told.resolved.gpu.id, told.resolved.concurrency, told.resolved.release.id) == ("l4", 16, "0.9.2")
    assert told.answered == {"gpu", "model", "load", "lmdeploy", "image"}


@pytest.mark.parametrize(
    ("image", "install", "release"),
    [
        ("openmmlab/lmdeploy:v0.9.2-cu12", "", "0.9.2"),
        ("registry.local/openmmlab/lmdeploy:v0.9.2", "", "0.9.2"),
        ("openmmlab/lmdeploy:latest", "", ""),
        ("", "lmdeploy==0.9.2", "0.9.2"),
        ("", "lmdeploy[all]==0.9.2", "0.9.2"),
        ("", "lmdeploy>=0.9.2", ""),
        ("", "lmdeploy==0.1.0", ""),
    ],
)
def test_the_release_is_the_scripts(image: str, install: str, release: str) -> None:
    """An image's tag or an exact version sets the release; a range with the newest one does not."""
    container = Container(HERE, image=word(image)) if image else None
    launch = Launch("api_server", HERE, word("a/b"), (), {}, container=container)
    text = f"pip install '{install}' # lmdeploy==0.7.0\n" if install else ""
    script = replace(read_bash("x.sh", text), launches=(launch,))
    (found,) = case.cases(script, {})
    assert (found.release_known, found.resolved.release.id if release else "") == (bool(release), release)


def test_a_release_that_is_not_covered_is_said() -> None:
    """A finding names it, so that no findings is not read as no problems."""
    launch = Launch("api_server", HERE, None, (), {}, container=Container(HERE, word("openmmlab/lmdeploy:v0.5.1")))
    pinned = context.context(Script("x.sh", "bash", "", (launch,)), launch, {}).uncovered
    assert pinned.release == "0.5.1"
    text = "docker run openmmlab/lmdeploy:v0.5.1 lmdeploy serve api_server m\n"
    said = [finding.message for finding in engine.review("x.sh", text).findings if finding.rule.id == "LMD002"]
    assert ["0.5.1" in message for message in said] == [True]


@pytest.mark.parametrize(
    ("name", "text", "release"),
    [
        ("requirements.txt", "# lmdeploy==0.7.0\nlmdeploy==0.10.2\n", "0.10.2"),
        ("pyproject.toml", '[project]\ndependencies = ["lmdeploy[all]==0.13.0"]\n', "0.13.0"),
        ("uv.lock", '[[package]]\nname = "lmdeploy"\nversion = "0.12.3"\n', "0.12.3"),
        ("Pipfile.lock", '{"default": {"lmdeploy": {"hashes": ["a"], "version": "==0.9.2"}}}', "0.9.2"),
        ("environment.yml", "dependencies:\n  - pip:\n    - lmdeploy==0.10.2.post1\n", "0.10.2"),
        ("conda.yaml", "dependencies:\n  - lmdeploy=0.11.0\n", "0.11.0"),
        ("requirements.txt", "lmdeploy>=0.10.2\n", ""),
        ("pyproject.toml", '[tool.poetry.dependencies]\nlmdeploy = "^0.10.2"\n', "0.10.2"),
    ],
)
def test_the_release_is_pinned_beside_the_script(tmp_path: Path, name: str, text: str, release: str) -> None:
    """Exact pins count, and ranges without the newest release; a post-release belongs to its release."""
    (tmp_path / name).write_text(text)
    script = tmp_path / "serve.sh"
    (found,) = case.cases(read_bash(str(script), SERVE), {})
    assert (found.release_known, found.resolved.release.id if release else "") == (bool(release), release)


@pytest.mark.parametrize(
    ("gpu", "visible", "container", "cards"),
    [
        ("A100-80G", None, None, None),
        ("A100-80G:4", "3,5", 8, 2),
        ("A100-80G", "3,5", 8, 2),
        ("A100-80G", "3", None, 1),
        ("A100-80G", None, 8, 8),
        ("A100-80G", "$(list)", None, None),
    ],
)
def test_the_cards_are_counted_where_something_tells(
    gpu: str, visible: str | None, container: int | None, cards: int | None
) -> None:
    """The option's count wins, then CUDA_VISIBLE_DEVICES, then the container's; nothing is assumed."""
    environment = {"CUDA_VISIBLE_DEVICES": word(None if visible == "$(list)" else visible)} if visible else {}
    around = Container(HERE, gpus=container) if container else None
    launch = Launch("api_server", HERE, word("a/b"), (), environment, container=around)
    (found,) = case.cases(Script("x.sh", "bash", "", (launch,)), {"gpu": gpu})
    assert found.visible_gpus == cards


def test_the_command_line_counts_before_the_script_and_the_project() -> None:
    """The command line wins over the file, the file over the project; but a known model in the script always wins."""
    script = read_bash("x.sh", SERVE)
    (found,) = case.cases(script, {}, {"model": "internvl3-38b", "gpu": "L4", "load": "high"})
    expected = ("internvl3-8b-awq", "l4", "high")
    assert (found.resolved.model.id, found.resolved.gpu.id, found.resolved.request.load) == expected
    (found,) = case.cases(script, {"model": "internvl3-2b", "rps": "3"}, {"load": "high"})
    expected = ("internvl3-8b-awq", 3.0, "")
    assert (found.resolved.model.id, found.resolved.request.rps, found.resolved.request.load) == expected
    (found,) = case.cases(read_bash("x.sh", "lmdeploy serve api_server /models/ours"), {"model": "internvl3-2b"})
    assert (found.resolved.model.id, found.model_known) == ("internvl3-2b", True)


def test_an_artefact_of_ours_tells_its_request() -> None:
    """The header of a generated script answers every request option."""
    made = text(gpu="l4", load="low", lmdeploy="0.10.2", images=1, image_width=1280, image_height=720)
    resolved = context.context(Script("serve.sh", "bash", made), None, {})
    assert {"gpu", "model", "load", "lmdeploy", "image"} <= resolved.answered
    expected = ("l4", "0.10.2", 1280)
    assert (resolved.resolved.gpu.id, resolved.resolved.release.id, resolved.resolved.image_width) == expected


def test_a_header_that_was_edited_is_no_error() -> None:
    """An invalid request in the header is ignored."""
    for line in (
        '{"gpu": "nope"}',
        '{"gpu": "l4", "lmdeploy": "0.0.1"}',
        '{"gpu": 7}',
        '{"gpu": ["a"]}',
        "{",
        '{"gpu_count": "x"}',
        "[]",
    ):
        script = Script("serve.sh", "bash", f"# Made by lmdeploy-recommender 1\n# request: {line}\n")
        assert "gpu" not in context.context(script, None, {}).answered


def test_an_artefact_for_a_folder_tells_all_but_the_model() -> None:
    """The folder may be on another machine."""
    line = '# request: {"gpu": "l4", "load": "low", "model": "/models/ours"}'
    resolved = context.context(Script("serve.sh", "bash", f"# Made by lmdeploy-recommender 1\n{line}\n"), None, {})
    assert {"gpu", "load"} <= resolved.answered
    assert "model" not in resolved.answered


# --- what a launch comes to


def test_a_configuration_needs_gpu_model_and_known_values() -> None:
    """An unknown value, or an unknown number of words, leaves nothing to estimate."""
    assert one(SERVE).configuration is None
    assert one(f'{SERVE} --session-len $LEN "$@"', gpu="L4").configuration is None
    assert one(f"{SERVE} --session-len $LEN", gpu="L4").configuration is None
    assert one(f"{SERVE} --session-len many", gpu="L4").configuration is None
    made = one(f"{SERVE} --session-len 4096 --server-port $PORT --quant-policy 8", gpu="L4").configuration
    assert (made.session_len, made.kv_bits, made.max_batch_size) == (4096, 8, 128)


def test_the_estimate_is_that_of_the_estimate_command() -> None:
    """The same options give the same memory as ``recommend estimate``."""
    from recommender.choose.recommend import recommend_adviser
    from recommender.request.request import Request

    found = one(f"{SERVE} --session-len 4096", gpu="A100-80G", load="single").candidate
    known = recommend_adviser(Request("A100-80G", load="single"), "defaults", {"session-len": "4096"})
    assert (found.config, found.memory.total) == (known.config, known.memory.total)


def test_violations_rest_on_nothing_assumed() -> None:
    """A batch below the load is reported only if the load is given."""
    script = f"{SERVE} --max-batch-size 2 --trust-remote-code"
    assert list(checks.broken(one(script, gpu="L4", load="16"), "batch-holds-concurrency"))
    assert not list(checks.broken(one(script, gpu="L4"), "batch-holds-concurrency"))
    assert not list(checks.broken(one(script), *load().constraints))


def test_without_a_release_the_newest_is_assumed() -> None:
    """A constraint about the release is still evaluated; the summary names the assumed release."""
    from recommender.review.output import text

    made = one(f"{SERVE} --max-prefill-token-num 8192 --session-len 1024", gpu="A100-80G", load="single")
    assert not made.release_known
    assert "lmdeploy" in made.known
    said = "\n".join(text.summary([engine.review("x.sh", f"{SERVE} --tp 1")]))
    assert f"Assuming LMDeploy {made.resolved.release.id}" in said.replace("\n", " ")
    assert "Assuming LMDeploy" not in "".join(text.summary([engine.review("x.sh", SERVE, {"lmdeploy": "0.16.0"})]))


def test_a_release_that_a_file_beside_names_is_told(tmp_path: Path) -> None:
    """It decides what is found, so where it comes from is said; what is asked for comes first."""
    from recommender.review.output.text import summary

    (tmp_path / "Dockerfile").write_text("FROM openmmlab/lmdeploy:v0.10.0\n", encoding="utf-8")
    script = str(tmp_path / "serve.sh")
    said = "".join(summary([engine.review(script, SERVE, {})]))
    assert "LMDeploy 0.10.0, as Dockerfile beside it says" in said
    assert "beside it" not in "".join(summary([engine.review(script, SERVE, {"lmdeploy": "0.16.0"})]))


@pytest.mark.parametrize(
    ("options", "release", "bits"),
    [
        ("--quant-policy 8", "0.18.0", 8),
        ("--quant-policy int8", "0.18.0", 8),
        ("--quant-policy int4", "0.14.0", 4),
        ("--quant-policy none", "0.18.0", 16),
        ("--quant-policy 0", "0.9.0", 16),
        ("--quant-policy int8", "0.13.0", None),  # names came with 0.14.0
        ("--quant-policy 16", "0.18.0", None),  # 8-bit floats, for which nothing here has an estimate
        ("--quant-policy 16", "0.9.0", None),
        ("--quant-policy fp8", "0.18.0", None),
        ("--quant-policy 1", "0.18.0", None),
        ("--quant-policy 42", "0.18.0", None),
    ],
)
def test_the_precision_of_the_cache_is_a_number_or_a_name(options: str, release: str, bits: int | None) -> None:
    """Values that the parser rejects, or that no formula covers, have no estimate."""
    made = one(f"{SERVE} {options}", gpu="A100-80G", load="single", lmdeploy=release)
    found = made.candidate
    assert (found.config.kv_bits if found else None) == bits


@pytest.mark.parametrize(
    "options",
    [
        "--quant-policy 1", "--session-len 9999999999999999999999999999", "--cache-max-entry-count nan",
        "--cache-max-entry-count inf", "--tp 0", "--max-batch-size many",
    ],
)  # fmt: skip
def test_what_no_engine_runs_with_has_no_estimate(options: str) -> None:
    """The estimate is None; nothing is raised."""
    assert one(f"{SERVE} {options}", gpu="A100-80G:2", load="single").candidate is None


def test_the_value_in_effect_is_the_given_one_or_the_default() -> None:
    """An unknown value is unknown; so is a missing one if the number of words is unknown."""
    assert one(f"{SERVE} --tp 2").effective("tp") == "2"
    assert one(SERVE).effective("tp") == "1"
    assert one(f'{SERVE} "$@"').effective("tp") is None
    assert one(f"{SERVE} --tp $N").effective("tp") is None


# --- the engine


def test_rules_are_found_by_id_and_by_name() -> None:
    """Case does not matter; the error for an unknown rule names the nearest."""
    assert engine.rule("lmd001").name == "unused-ignore"
    assert engine.rule("Unused_Ignore").id == "LMD001"
    with pytest.raises(engine.UnknownRule, match="did you mean unused-ignore"):
        engine.rule("unused-ignores")


def test_findings_are_in_the_order_of_the_file_and_said_once() -> None:
    """Findings are sorted by place; duplicates are dropped."""
    made = judged(f"{SERVE} --tp 1\n{SERVE} --dp 2\n", speaking("LMD902", "--dp"), speaking("LMD901", "--tp"))
    assert found(made) == [("LMD901", 1), ("LMD902", 2)]
    script = read_bash("x.sh", f"{SERVE} --tp 1")
    twice = Script(**{**vars(script), "launches": script.launches * 2})
    assert len(engine.examine(twice, among=[speaking()]).findings) == 1


def not_estimated(more: str, starts: str = "lmdeploy serve api_server", **options: str) -> frozenset[str]:
    """Return the rules that a review skips because no estimate knows how the launch spreads its model."""
    known = {"gpu": "A100-80G:8", "lmdeploy": "0.18.0"} | options
    return engine.review("x.sh", f"{starts} Qwen/Qwen3-235B-A22B {more}\n", known).silent.get("estimate", frozenset())


def test_rules_that_ask_for_an_estimate_skip_a_layout_that_none_knows() -> None:
    """Experts or a sequence over several GPUs; the review lists the rules (0.18.0 turbomind/parallel_config.py)."""
    asking = not_estimated("--dp 8 --ep 8")
    assert {"LMD122", "LMD123", "LMD208"} <= asking
    assert asking.isdisjoint({"LMD110", "LMD111", "LMD121"})
    assert not_estimated('--tp 8 --ep "$EP"') == not_estimated("--tp 8 --cp 2") == asking
    assert not_estimated("--backend pytorch --tp 8 --ep 8", lmdeploy="0.8.0") == asking
    assert not_estimated("--backend pytorch --tp 8 --dp 2") == not_estimated('--dp "$DP"') == asking
    assert not_estimated("--tp 8 --dp 2") == asking  # on 8 GPUs, TurboMind splits the replicas otherwise
    assert not_estimated("--dp 8", lmdeploy="0.8.0") == frozenset()  # only the PyTorch engine reads it there
    assert not_estimated("--tp 8 --ep 1 --dp 1") == not_estimated("--tp 8") == frozenset()
    assert not_estimated("--tp 8 --ep 8", lmdeploy="0.14.0") == frozenset()  # TurboMind reads it since 0.15.0
    assert not_estimated("--backend pytorch --tp 8 --cp 2") == frozenset()  # TurboMind's alone


def test_a_replica_of_turbomind_is_estimated_as_large_as_a_server() -> None:
    """Each has tp GPUs, weights and cache of its own; how the load is divided among them no estimate knows."""
    asking = not_estimated("--tp 2 --dp 4", load="64")
    assert {"LMD207", "LMD214"} <= asking
    assert asking.isdisjoint({"LMD122", "LMD123", "LMD208"})
    known = {"gpu": "A100-80G:8", "lmdeploy": "0.18.0"}
    command = "lmdeploy serve api_server Qwen/Qwen2.5-72B-Instruct"
    small = engine.review("x.sh", f"{command} --tp 1 --dp 4\n", known).findings
    assert [each.rule.id for each in small if each.severity == "error"] == ["LMD122"]
    assert not [
        each for each in engine.review("x.sh", f"{command} --tp 2 --dp 4\n", known).findings if each.severity == "error"
    ]


@pytest.mark.parametrize("need", ["gpu", "model", "load"])
def test_a_rule_without_what_it_needs_stays_silent(need: str) -> None:
    """The review lists the skipped rule."""
    rule = speaking(needs=(need,))
    made = judged("lmdeploy serve api_server /models/ours --tp 1", rule)
    assert (found(made), made.silent) == ([], {need: frozenset({"LMD900"})})
    told = judged("lmdeploy serve api_server /models/ours --tp 1", rule, gpu="L4", model="internvl3-8b", load="1")
    assert (found(told), told.silent) == ([("LMD900", 1)], {})


def test_a_rule_that_fails_does_not_take_the_others_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash is reported as a defect; with RECOMMEND_DEBUG it is raised."""

    def fails(_: Case) -> Iterator[Diagnostic]:
        raise KeyError("odd")
        yield

    broken = Rule("LMD901", "broken", "nothing", "error", (), fails)
    monkeypatch.delenv("RECOMMEND_DEBUG", raising=False)
    made = judged(f"{SERVE} --tp 1", broken, speaking())
    assert (found(made), [defect.rule for defect in made.defects]) == ([("LMD900", 1)], ["LMD901"])
    monkeypatch.setenv("RECOMMEND_DEBUG", "1")
    with pytest.raises(KeyError):
        judged(f"{SERVE} --tp 1", broken)


def test_a_rule_of_the_whole_script_runs_once() -> None:
    """It runs once for several servers, and for none."""

    def whole(script: Script) -> Iterator[Diagnostic]:
        yield Diagnostic(HERE, "Seen.", "Once.")

    rule = Rule("LMD901", "whole", "nothing", "info", (), whole=whole)
    assert found(judged(f"{SERVE}\n{SERVE}\n", rule)) == found(judged("echo\n", rule)) == [("LMD901", 1)]


def test_a_text_that_cannot_be_read_is_told() -> None:
    """Only scripts that mention LMDeploy get the finding."""
    assert found(judged(f"{SERVE}\n;;\n")) == [("LMD002", 2)]
    assert found(judged("echo\n;;\n")) == []


# --- ignores

IGNORED = [
    (f"{SERVE} --tp 1  # recommend: ignore LMD900 because I say so", []),
    (f"echo\n# recommend: ignore LMD900 because I say so\n{SERVE} --tp 1", []),
    (f"echo\n# recommend: ignore lmd900, LMD901 because I say so\n{SERVE} --tp 1 --dp 2", []),
    (f"echo\n# recommend: ignore LMD900 because so\n# and another word\n{SERVE} \\\n --tp 1 \\\n --tp 2", []),
    (f"{SERVE} \\\n --tp 1 # recommend: ignore LMD900 because it is the last line", []),
    (f"#!/bin/sh\n# recommend: ignore LMD900 because of the fork\necho\n\n{SERVE} --tp 1\n{SERVE} --tp 1", []),
    (f"{SERVE} --tp 1\n# recommend: ignore LMD900 because it is too late", [("LMD900", 1), ("LMD001", 2)]),
    (f"echo\n# recommend: ignore LMD900 because of this one\n{SERVE} --tp 1\n{SERVE} --tp 1", [("LMD900", 4)]),
    (f"echo\n# recommend: ignore LMD901 because of dp\n{SERVE} --tp 1", [("LMD001", 2), ("LMD900", 3)]),
    (f"echo\n# recommend: ignore LMD900 LMD901 because of both\n{SERVE} --tp 1", [("LMD001", 2)]),
    (f"echo\n# recommend: ignore LMD900\n{SERVE} --tp 1", [("LMD003", 2)]),
    (f"echo\n# recommend: ignore LMD900 because\n{SERVE} --tp 1", [("LMD003", 2)]),
    (f"echo\n# recommend: ignore LMD900 our fork has it\n{SERVE} --tp 1", [("LMD003", 2)]),
    (f"echo\n# recommend: ignore LMD9OO because I say so\n{SERVE} --tp 1", [("LMD003", 2), ("LMD900", 3)]),
    (f"echo\n# recommend: ignore because I say so\n{SERVE} --tp 1", [("LMD003", 2), ("LMD900", 3)]),
    (f"echo\n# recommend: ignore all\n{SERVE} --tp 1", [("LMD003", 2), ("LMD900", 3)]),
    (f"echo\n# recommend: ignore the warnings of the driver\n{SERVE} --tp 1", [("LMD900", 3)]),
    (f"echo\n# Recommend: 0.8 for one server\n{SERVE} --tp 1", [("LMD900", 3)]),
]


@pytest.mark.parametrize(("script", "left"), IGNORED)
def test_ignores(script: str, left: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each comment hides what is expected, and is itself reported if wrong."""
    rules = (speaking("LMD900", "--tp"), speaking("LMD901", "--dp"))
    own = tuple(rule for rule in engine.rules() if rule.id.startswith("LMD00"))
    monkeypatch.setattr(engine, "rules", lambda: (*rules, *own))
    assert found(engine.examine(read_bash("x.sh", script))) == left


def test_an_ignore_of_a_rule_that_did_not_run_is_not_called_idle() -> None:
    """Without a GPU the rule is skipped, so its ignore may be needed."""
    script = f"echo\n# recommend: ignore LMD900 because I say so\n{SERVE} --tp 1"
    assert found(judged(script, speaking(needs=("gpu",)))) == []


def test_a_long_comment_is_read_at_once() -> None:
    """No pattern is slow on 100,000 repeated characters."""
    for filler in (" ", "\t", "=", "a ", "because"):
        script = f"{SERVE}  # recommend: ignore {filler * 100_000}x"
        judged(script, speaking())


# --- a project's settings


def test_settings_are_found_upward(tmp_path: Path) -> None:
    """The nearest file wins; the search stops at the repository's folder."""
    (tmp_path / ".recommend.toml").write_text('gpu = "L4"\n')
    inner = tmp_path / "a/b"
    inner.mkdir(parents=True)
    (tmp_path / "a/pyproject.toml").write_text('[project]\nname = "recommend"\n')
    assert settings.of(inner / "x.sh").options == {"gpu": "L4"}
    (tmp_path / "a/pyproject.toml").write_text(
        '[tool.recommend]\ngpu = "H100:2"\nload = 16\nignore = ["lmd001"]\nfail-on = "error"\ntext-only = true\n'
    )
    settings._upward.cache_clear()
    found = settings.of(inner / "x.sh")
    assert found.options == {"gpu": "H100:2", "load": "16", "text_only": True}
    assert (found.ignore, found.fail_on) == ({"LMD001"}, "error")
    (tmp_path / "a/b/.git").mkdir()
    settings._upward.cache_clear()
    assert settings.of(inner / "x.sh") == settings.Settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpus = 1", "unknown key 'gpus': did you mean gpu"),
        ("gpu = 1 2", "cannot be read"),
        ('gpu = "nope"', "unknown GPU"),
        ("gpu = []", "gpu: write a string"),
        ('load = "most"', "unknown load"),
        ('fail-on = "all"', "use one of error, warning, info, never"),
        ('ignore = "LMD001"', "write a list"),
        ('ignore = ["LMD999"]', "unknown rule"),
        ('text-only = "yes"', "true or false"),
    ],
)
def test_settings_that_cannot_be_used_are_one_line(text: str, said: str, tmp_path: Path) -> None:
    """The message names the file, the key and how to fix it."""
    (tmp_path / ".recommend.toml").write_text(text)
    with pytest.raises(settings.SettingsError) as error:
        settings.of(tmp_path / "x.sh")
    assert said in str(error.value)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


# --- the command


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use rules that report --tp (error), --dp (warning) and --ep (info), and those about ignores."""
    own = tuple(rule for rule in engine.rules() if rule.id.startswith("LMD00"))
    by = {"tp": "error", "dp": "warning", "ep": "info"}
    rules = tuple(speaking(f"LMD90{n}", f"--{name}", severity) for n, (name, severity) in enumerate(by.items()))
    monkeypatch.setattr(engine, "rules", lambda: (*rules, *own))


@pytest.mark.parametrize(
    ("option", "fail_on", "status"),
    [
        ("--tp", "error", 1), ("--dp", "error", 0), ("--dp", "", 1), ("--ep", "", 0), ("--ep", "info", 1),
        ("--tp", "never", 0), ("", "", 0),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("faked")
def test_the_exit_code_says_whether_something_was_found(call: Called, option: str, fail_on: str, status: int) -> None:
    """0: clean; 1: findings of the severity of --fail-on or above."""
    Path("x.sh").write_text(f"{SERVE} {option} 2\n" if option else f"{SERVE}\n")
    assert call("x.sh", *(("--fail-on", fail_on) if fail_on else ()))[0] == status


@pytest.mark.usefixtures("faked")
def test_a_project_says_what_fails_and_what_is_ignored(call: Called) -> None:
    """The project's fail-on applies if the command line has none."""
    Path("x.sh").write_text(f"{SERVE} --ep 2\n")
    Path(".recommend.toml").write_text('fail-on = "info"\n')
    assert call("x.sh")[0] == 1
    assert call("x.sh", "--fail-on", "error")[0] == 0
    Path(".recommend.toml").write_text('fail-on = "info"\nignore = ["LMD902"]\n')
    settings._upward.cache_clear()
    assert call("x.sh")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name a script"),
        (("none.sh",), "none.sh: cannot be read: No such file"),
        (("binary.sh",), "a binary file (or UTF-16), not text"),
        (("latin.sh",), "line 2 is not UTF-8"),
        (("huge.sh",), "larger than"),
        (("x.sh", "--gpu", "nope"), "unknown GPU"),
        (("x.sh", "--gpu", "L4:0"), "--gpu count"),
        (("x.sh", "--lmdeploy", "0.0.1"), "unknown LMDeploy release"),
        (("x.sh", "--load", "all"), "unknown load"),
        (("x.sh", "--image", "big"), "--image"),
        (("x.sh", "--format", "xml"), "xml"),
        (("x.sh", "--fix", "--diff"), "exclude each other"),
        (("-", "--fix"), "--fix cannot change stdin; name a file"),
        (("x.sh", "--diff", "--format", "json"), "write a patch"),
        (("--explain", "LMD0O1"), "did you mean"),
        (("x.sh", "--nonsense"), "no such option"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_2(call: Called, words: tuple[str, ...], said: str) -> None:
    """One line on stderr, no traceback."""
    Path("x.sh").write_text(f"{SERVE}\n")
    Path("binary.sh").write_bytes(b"lmdeploy\0")
    Path("latin.sh").write_bytes(b"lmdeploy\ncaf\xe9\n")
    with Path("huge.sh").open("wb") as file:
        file.truncate(5 * 2**20)
    status, _, err = call(*words)
    assert status == 2
    assert said in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("faked")
def test_what_cannot_be_read_does_not_hide_the_others(call: Called) -> None:
    """The other files are reviewed, but the exit code is 2."""
    Path("x.sh").write_text(f"{SERVE} --tp 2\n")
    status, out, err = call("none.sh", "x.sh")
    assert (status, "LMD900" in out, "none.sh" in err) == (2, True, True)


@pytest.mark.usefixtures("faked")
def test_a_folder_is_searched_for_what_names_lmdeploy(call: Called) -> None:
    """Only scripts, Python and YAML that mention it; no hidden folders, no links."""
    names = ("a.sh", "deep/b.sh", ".hidden/c.sh", "node_modules/d.sh", "e.txt")
    write_files(Path(), dict.fromkeys(names, f"{SERVE} --tp 2\n"))
    Path("other.sh").write_text("echo --tp\n")
    Path("link").symlink_to(".", target_is_directory=True)
    _, out, _ = call(".", "--format", "json")
    assert json.loads(out)["files"] == ["./a.sh", "./deep/b.sh"]


def test_stdin_is_a_script_or_a_command(tmp_path: Path) -> None:
    """``-`` reads stdin and runs nothing from it."""
    done = run_program(
        [sys.executable, "-m", "recommender", "review", "-", "--format", "json"],
        input=f"{SERVE} --tp 2; touch {tmp_path}/ran\n",
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    said = json.loads(done.stdout)
    assert (said["files"], said["launches"]) == (["-"], 1)
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("faked")
def test_a_defect_of_a_rule_is_told(call: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line asks to report it; without findings the exit code is 70."""

    def fails(_: Script) -> Iterator[Diagnostic]:
        raise ValueError("odd\nvery")
        yield

    broken = Rule("LMD950", "broken", "nothing", "error", (), whole=fails)
    known = engine.rules()
    monkeypatch.setattr(engine, "rules", lambda: (broken, *known))
    monkeypatch.delenv("RECOMMEND_DEBUG", raising=False)
    Path("x.sh").write_text(f"{SERVE}\n")
    status, _, err = call("x.sh")
    assert status == 70
    assert [line for line in err.splitlines() if "internal error in LMD950" in line]


def test_a_defect_of_the_reader_is_told(call: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other files are still reviewed."""
    from recommender.review.readers import detect_kind

    def read(path: str, text: str, explicit: bool = True) -> Script:
        if path == "odd.sh":
            raise RecursionError("deep")
        return read_bash(path, text)

    monkeypatch.setattr(detect_kind, "read", read)
    monkeypatch.delenv("RECOMMEND_DEBUG", raising=False)
    for name in ("odd.sh", "x.sh"):
        Path(name).write_text(f"{SERVE}\n# recommend: ignore LMD001\n")
    status, out, err = call("odd.sh", "x.sh")
    assert (status, "LMD003" in out, "internal error in the reader" in err) == (1, True, True)


def test_rules_are_listed_and_explained(call: Called) -> None:
    """The list has every rule; a rule's page is its module's docstring."""
    status, out, _ = call("--rules")
    assert status == 0
    assert all(rule.id in out for rule in engine.rules())
    status, out, _ = call("--explain", "lmd003")
    assert status == 0
    assert engine.page(engine.rule("LMD003")).splitlines()[-1] in out


def test_the_help_loads_no_knowledge() -> None:
    """``recommend review --help`` reads no record and no rule; ``recommend --gpu ...`` loads no review."""
    for words, banned in (
        (["review", "--help"], {"recommender.knowledge.store", "yaml", "pydantic", "recommender.review.engine"}),
        (
            ["--gpu", "A100-80G", "-q"],
            {"recommender.review.engine", "recommender.review.rule", "recommender.commands.review"},
        ),
    ):
        code = (
            f"import sys\nsys.argv = {['recommend', *words]!r}\nfrom recommender.cli import main\n"
            "try:\n    main()\nexcept SystemExit:\n    pass\nprint(*sys.modules, file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
        loaded = set(done.stderr.split())
        assert "recommender.cli" in loaded
        assert not loaded & banned


def test_the_workflow_and_the_hook_call_what_there_is() -> None:
    """Every option in them exists."""
    import yaml

    from recommender.commands.review import command

    known = {name for param in command.params for name in param.opts}
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    flow = yaml.safe_load((ROOT / "templates/review-workflow.yml").read_text("utf-8"))
    commands = [hook["entry"] for hook in hooks] + [each.get("run", "") for each in flow["jobs"]["review"]["steps"]]
    commands = [each for each in commands if each.startswith("recommend review")]
    assert len(commands) == 4
    for each in commands:
        assert {word for word in each.split() if word.startswith("--")} <= known


def test_a_finding_has_its_own_severity_or_the_rules() -> None:
    """A diagnostic's severity overrides the rule's."""
    rule = speaking()
    assert Finding(rule, "x", Diagnostic(HERE, "a", "b")).severity == "warning"
    assert Finding(rule, "x", Diagnostic(HERE, "a", "b", severity="info")).severity == "info"


def test_every_option_of_a_request_that_review_takes_is_read() -> None:
    """One that no rule reads would be accepted, right or wrong, and change nothing."""
    assert QUESTION.keys() == context.ANSWERS.keys()
