"""Options that a model needs in some releases: held against LMDeploy's own matching, emitted, explained, missed."""

import ast
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from artefacts import RELEASES, found, parser
from click.testing import CliRunner
from packaging.version import Version
from test_checkpoint import folder, hub_config
from variants import STORE, resolve

from recommender.choose.needs import list_needs
from recommender.choose.recommend import recommend_adviser
from recommender.cli import root
from recommender.knowledge.eras import within
from recommender.knowledge.records import Model
from recommender.render import artefact
from recommender.render.formats import render
from recommender.request import checkpoint
from recommender.request.request import Request
from recommender.request.resolved_request import resolve_request

MATCHED: Mapping[str, Mapping[str, str]] = yaml.safe_load(
    (Path(__file__).parent / "cases" / "chat_templates.yaml").read_text(encoding="utf-8")
)
BY_NAME = [release for release in RELEASES if Version(release) < Version("0.10.0")]
"""Releases that select the chat template by the name in the model path."""
COMPLETES = {"mixtral-8x22b"}
"""Base models: they complete texts and have no chat template."""
OLD = [release for release in RELEASES if release.startswith("0.7.")]
REQUESTER = "internvl3-8b-awq"


def served(model: Model, release: str) -> bool:
    return any(within(support.since, support.until, Version(release)) for support in model.support)


def matched(model: Model, release: str) -> str:
    eras = MATCHED[model.hub]
    return next(eras[since] for since in reversed(eras) if Version(since) <= Version(release))


@pytest.mark.parametrize("model", STORE.models.values(), ids=lambda model: model.id)
def test_a_template_is_needed_where_none_matches(model: Model) -> None:
    """In every release that serves the model by either engine, and in no other."""
    needed = {
        release: need.value
        for release in RELEASES
        for need in list_needs(resolve(model=model.id, lmdeploy=release, images=0)).values()
        if need.option == "chat-template"
    }
    assert set(needed) == {
        release
        for release in BY_NAME
        if served(model, release) and matched(model, release) == "base" and model.id not in COMPLETES
    }
    same = {template for eras in MATCHED.values() for template in eras.values()}
    assert set(needed.values()) <= same - {"base"}  # a name that these releases select for other models


@pytest.mark.parametrize("release", OLD)
def test_the_requesters_model_is_planned_with_its_template(release: str) -> None:
    """In every 0.7 release, as its parser reads the command line, and in Python; with reason and sources."""
    made = found(lmdeploy=release, model=REQUESTER)
    words = artefact.parse(render(made, "bash"), "serve.sh").words(made.resolved, {})
    assert parser(release).parse_args(["model", *words]).chat_template == "internvl2_5"
    script = render(made, "python")
    given = artefact.parse(script, "pipeline.py").words(made.resolved, {})
    assert given[given.index("--chat-template") + 1] == "internvl2_5"
    calls = [node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Call)]
    (call,) = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "pipeline"]
    assert "chat_template_config" in {keyword.arg for keyword in call.keywords}
    (option,) = [each for each in made.explanations if each.option == "chat-template"]
    assert option.emitted
    assert f"LMDeploy {release} selects" in option.reason
    assert {"issues/3424", "issues/3437"} <= {page.url.partition("lmdeploy/")[2] for page in option.sources.pages}


@pytest.mark.parametrize("form", ["bash", "python", "env", "docker", "json"])
def test_every_format_has_it_where_it_is_needed(form: str) -> None:
    """In 0.7.3, and not in 0.8.0, which selects the template itself; nor for a model that 0.7.3 matches."""
    assert "internvl2_5" in render(found(lmdeploy="0.7.3", model=REQUESTER), form)
    for asked in ({"lmdeploy": "0.8.0", "model": REQUESTER}, {"lmdeploy": "0.7.3", "model": "internvl2.5-8b"}):
        if form != "json":  # which has the verdicts too
            assert "internvl2_5" not in render(found(**asked), form)
        assert found(**asked).config.chat_template == ""


@pytest.mark.parametrize("form", ["compose", "systemd", "k8s"])
def test_a_fleet_has_it(form: str, tmp_path: Path) -> None:
    """The files of several servers pass the option with the template."""
    words = ["plan", "--rps", "8", "--gpu", "A100-80G:2", "--lmdeploy", "0.7.3", "--format", form, "-o", str(tmp_path)]
    done = CliRunner().invoke(root, words)
    assert done.exit_code == 0, done.stderr
    text = "\n".join(path.read_text(encoding="utf-8") for path in tmp_path.rglob("*") if path.is_file())
    assert "--chat-template" in text
    assert "internvl2_5" in text


def test_a_configuration_without_it_is_told_so() -> None:
    """LMDeploy's defaults lack it; with it, with an equal name or with a file, nothing is missing."""

    def missing(model: str, release: str, name: str = "") -> bool:
        asked = Request(gpu="h100-sxm-80g", gpu_count=4, model=model, lmdeploy=release, load="single")
        made = recommend_adviser(asked, "defaults", {"chat-template": name} if name else {})
        assert made.config.chat_template == name
        return "needed-options" in {finding.constraint for finding in made.findings}

    assert missing(REQUESTER, "0.7.3")
    assert missing(REQUESTER, "0.7.3", name="vicuna")
    assert not missing(REQUESTER, "0.7.3", name="internvl2_5")
    assert not missing(REQUESTER, "0.7.3", name="mine.json")
    assert not missing(REQUESTER, "0.8.0")
    assert missing("llama-3.3-70b-instruct", "0.9.2")
    assert not missing("llama-3.3-70b-instruct", "0.9.2", name="llama3_2")
    assert not missing("llama-3.3-70b-instruct", "0.10.0")


def test_a_file_is_read_in_python_too() -> None:
    """A template file becomes ChatTemplateConfig.from_json, as LMDeploy's command line reads it."""
    asked = Request(gpu="h100-sxm-80g", model=REQUESTER, lmdeploy="0.7.3", load="single")
    script = render(recommend_adviser(asked, "defaults", {"chat-template": "mine.json"}), "python")
    assert "template = ChatTemplateConfig.from_json('mine.json')" in script


@pytest.mark.parametrize(
    ("model", "needs"),
    [("internvl3-8b", "internvl2_5"), ("llama-3.3-70b-instruct", "llama3_1"), ("qwen2.5-7b-instruct", "")],
)
def test_a_local_folder_needs_what_its_record_does(model: str, needs: str, tmp_path: Path) -> None:
    """A folder is known by its shape, whatever it is called."""
    read = checkpoint.read(folder(tmp_path, hub_config(STORE.models[model])), STORE)
    resolved = resolve_request(Request(gpu="h100-sxm-80g", lmdeploy="0.7.3"), STORE, read)
    assert [need.value for need in list_needs(resolved).values()] == ([needs] if needs else [])
    assert not list_needs(replace(resolved, version=Version("0.10.0")))


def test_a_script_of_ours_is_not_called_wrong(tmp_path: Path) -> None:
    """Review of what recommend wrote for 0.7.3 misses nothing; of a script without the option it names the template."""
    text = render(found(lmdeploy="0.7.3", model=REQUESTER), "bash")
    script = tmp_path / "serve.sh"

    def rules(text: str) -> dict[str, str]:
        script.write_text(text, encoding="utf-8")
        words = ["review", str(script), "--format", "json", "--lmdeploy", "0.7.3", "--gpu", "A100-80G"]
        done = CliRunner().invoke(root, words)
        return {each["rule"]: each["message"] for each in json.loads(done.stdout)["findings"]}

    assert not {"LMD115", "LMD117", "LMD217"} & rules(text).keys()
    assert (
        "--chat-template internvl2_5" in rules(f"lmdeploy serve api_server {STORE.models[REQUESTER].hub}\n")["LMD217"]
    )
