"""The picker's answers and the JSON interface: the same bytes as the command writes, and every record as it is."""

import gzip
import json
import random
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from artefacts import KNOWLEDGE, command

from recommender.choose import recommend
from recommender.knowledge.index import TYPES, read_record
from recommender.knowledge.load import load
from recommender.knowledge.store import FOLDERS
from recommender.render.json_output import published
from recommender.render.summary import cite, gib
from recommender.request.request import Request
from recommender.site import picker
from recommender.site.api import answers, api, cache
from recommender.site.site_data import SiteData

ROOT = KNOWLEDGE.parent
DRAWN = 520
MOST_BYTES = 5_000_000
SCRIPTS = sorted((ROOT / "site" / "assets").glob("picker*.js"))


@pytest.fixture(scope="module")
def files(site: Path) -> Mapping[str, str]:
    folder = site / "api" / "v1" / "recommendations"
    return {name: (folder / name).read_text("utf-8") for name in cache.questions()}


@pytest.fixture(scope="module")
def parsed(files: Mapping[str, str]) -> Mapping[str, dict[str, Any]]:
    return {name: json.loads(text) for name, text in files.items()}


def questions(number: int) -> list[tuple[str, str, str, str]]:
    """So many questions of the grid, the same in every run."""
    every = [
        (model, gpu, name, goal)
        for model in answers.MODELS
        for gpu in answers.GPUS
        for name in answers.loads(load())
        for goal in answers.GOALS
    ]
    return random.Random(7).sample(every, number)


def asked(question: tuple[str, str, str, str]) -> list[str]:
    model, gpu, name, goal = question
    return api.COMMAND.format(model=model, gpu=gpu, load=name, goal=goal).split()


def script(found: dict[str, Any], state: dict[str, Any]) -> str:
    """A state's script, put together as the page does."""
    return "\n\n".join(found["texts"][each] for each in state["script"])


def test_answers_are_what_the_command_writes(parsed: Mapping[str, dict[str, Any]]) -> None:
    """Drawn at random, each answer has the command's bytes on stdout, or its refusal on stderr, and its exit code."""
    outcomes = []
    for question in questions(DRAWN):
        found = parsed["{}/{}.json".format(*question)]
        state = found["states"][question[2]][question[3]]
        code, out, err = command(*asked(question)[1:])
        expected = ("", found["texts"][state["error"]]) if state["exit"] else (script(found, state), "")
        assert (code, out, err) == (state["exit"], *expected), question
        outcomes.append(code)
    assert outcomes.count(0) > DRAWN / 3
    assert outcomes.count(1) > DRAWN / 10


def test_figures_and_reasons_are_those_of_the_report(parsed: Mapping[str, dict[str, Any]]) -> None:
    """What stands beside a script is what the recommendation has."""
    compared = 0
    for model, gpu, name, goal in questions(60):
        found = parsed[f"{model}/{gpu}.json"]
        state, texts = found["states"][name][goal], found["texts"]
        if state["exit"]:
            continue
        own = recommend.recommend(Request(gpu, model=model, load=name, goal=goal))
        whole, plan = published(own), found["plans"][state["plan"]]
        emitted = {each.option: each for each in whole.options if each.emitted}
        said = {option: (of["value"], texts[of["why"]], texts[of["on"]]) for option, of in plan["options"].items()}
        assert said == {option: (of.value, of.reason, cite(of.sources, of.caveat)) for option, of in emitted.items()}
        assert texts[plan["command"]].split() == list(whole.command)
        assert [texts[each["says"]] for each in plan["warnings"]] == [each.message for each in whole.findings]
        assert plan["memory"]["total"][0] == float(gib(whole.memory.total_bytes))
        assert plan["speed"]["rps"][0] == round(own.speed.rps.value, 1)
        assert [each["run"] for each in plan["near"]] == [each.run for each in whole.near]
        compared += 1
    assert compared > 20


def test_advice_is_alike_where_its_value_is_ours() -> None:
    """The same text or number, or a range that ours lies in; a value that is no number is in no range."""
    pairs = [("0.2", "0.20"), ("turbomind", "turbomind"), ("2", "1 to 4"), ("4", "1 to 4"), ("true", "true")]
    assert all(answers.same_value(ours, said) for ours, said in pairs)
    assert not any(
        answers.same_value(*each) for each in [("5", "1 to 4"), ("", "0"), ("0", ""), ("int8", "8"), ("1", "a to b")]
    )


def test_the_grid_is_large_and_its_files_are_small(
    files: Mapping[str, str], parsed: Mapping[str, dict[str, Any]]
) -> None:
    """At least 30 cards and 15 models, every load and goal, in less than 5 MB as a server sends them."""
    assert len(set(answers.GPUS)) == len(answers.GPUS) >= 30
    assert len(set(answers.MODELS)) == len(answers.MODELS) >= 15
    assert set(answers.GPUS) <= set(load().gpus)
    assert set(answers.MODELS) <= set(load().models)
    assert set(answers.loads(load())) == set(load().loads)
    assert set(answers.GOALS) == {"latency", "throughput", "memory", "balanced"}
    assert len(files) == len(answers.GPUS) * len(answers.MODELS)
    for found in parsed.values():
        assert list(found["states"]) == answers.loads(load())
        assert all(set(goals) == set(answers.GOALS) for goals in found["states"].values())
    packed = sum(len(gzip.compress(text.encode(), mtime=0)) for text in files.values())
    assert packed < MOST_BYTES


def test_every_model_and_card_has_an_answer(parsed: Mapping[str, dict[str, Any]]) -> None:
    """Nothing in the grid is refused throughout: it would be there for nothing."""
    answered = [
        (found["model"], found["gpu"])
        for found in parsed.values()
        if any(not state["exit"] for goals in found["states"].values() for state in goals.values())
    ]
    assert {model for model, _ in answered} == set(answers.MODELS)
    assert {gpu for _, gpu in answered} == set(answers.GPUS)


def test_answers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made once, read the next time; made anew where what was kept is cut short, or nothing can be kept."""
    monkeypatch.setattr(answers, "MODELS", ("internvl3-8b-awq",))
    monkeypatch.setattr(answers, "GPUS", ("l4", "t4"))
    folder = tmp_path / "kept"
    made = cache.answer_files(folder)
    assert list(made) == ["internvl3-8b-awq/l4.json", "internvl3-8b-awq/t4.json"]
    (kept,) = folder.iterdir()
    whole = kept.read_bytes()

    calls: list[int] = []
    again = list(made.values())
    monkeypatch.setattr(cache, "_compute", lambda: calls.append(1) or again)
    assert cache.answer_files(folder) == made
    assert not calls
    for broken in (whole[:-40], b"", b"no gzip", gzip.compress(b"{}"), gzip.compress(b"[1]"), gzip.compress(b"{")):
        kept.write_bytes(broken)
        assert cache.answer_files(folder) == made
        assert kept.read_bytes() == whole
    assert len(calls) == 6
    (tmp_path / "file").write_text("")
    assert cache.answer_files(tmp_path / "file" / "below") == made


def test_a_change_of_knowledge_makes_answers_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of what is kept follows the records and the templates."""
    for name in ("knowledge", "templates"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(cache, "data_root", lambda: tmp_path)
    digests = [cache.digest()]
    for name in ("knowledge/one.yaml", "templates/one.j2"):
        (tmp_path / name).write_text("text")
        digests.append(cache.digest())
    (tmp_path / "templates" / "one.j2").write_text("other")
    assert len({*digests, cache.digest()}) == 4


@pytest.mark.parametrize("kind", FOLDERS)
def test_the_interface_has_every_record(site: Path, kind: str) -> None:
    """Each record is a file, validates against its type, and is the one in the knowledge; the index lists it."""
    paths = sorted((KNOWLEDGE / FOLDERS[kind]).glob("*.yaml"))
    assert paths
    for path in paths:
        served = TYPES[kind].model_validate_json((site / f"api/v1/{kind}/{path.stem}.json").read_text("utf-8"))
        assert served == read_record(path, TYPES[kind])
    index = json.loads((site / f"api/v1/{kind}/index.json").read_text("utf-8"))
    assert set(index["records"]) == {path.stem for path in paths}
    assert index["count"] == len(paths)
    assert all(index["records"].values())
    schema = json.loads((KNOWLEDGE / "schema" / Path(index["schema"]).name).read_text("utf-8"))
    assert schema["title"] == TYPES[kind].__name__


def test_the_interface_says_what_it_has(site: Path, parsed: Mapping[str, dict[str, Any]]) -> None:
    """The first file names the kinds, the releases and the licence; the answers' index names every answer."""
    first = json.loads((site / "api/v1/index.json").read_text("utf-8"))
    assert set(first["kinds"]) == set(FOLDERS)
    assert (
        first["lmdeploy"][-1]
        == answers.release()
        == max(load().releases, key=lambda each: [*map(int, re.findall(r"\d+", each))])
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert first["licence"] == project["license"]
    for known in first["kinds"].values():
        assert (site / "api/v1" / known["index"]).is_file()
    grid = json.loads((site / "api/v1" / first["recommendations"]).read_text("utf-8"))
    for model in grid["models"]:
        for gpu in grid["gpus"]:
            found = parsed[grid["file"].format(model=model, gpu=gpu)]
            assert (found["model"], found["gpu"]) == (model, gpu)


def test_options_cover_all_answers(parsed: Mapping[str, dict[str, Any]]) -> None:
    """Whatever an answer writes out has its name, its advisers and its page's link beside it."""
    common = json.loads(answers.options())
    used = {option for found in parsed.values() for plan in found["plans"] for option in plan["options"]}
    assert used <= set(common["options"])
    form = "\n".join(picker.picker(SiteData(load()), ""))
    assert used <= set(re.findall(r'data-option="([^"]+)"', form))
    parts = {name for found in parsed.values() for plan in found["plans"] for name in plan["memory"]["parts"]}
    assert {"loading-part" if each == "loading" else each for each in parts} <= set(picker.TEXTS)


def test_the_form_starts_with_an_answer(parsed: Mapping[str, dict[str, Any]]) -> None:
    """What is asked first is in the grid, and every model and card can be chosen."""
    start = picker.START
    state = parsed[f"{start['model']}/{start['gpu']}.json"]["states"][start["load"]][start["goal"]]
    assert state["exit"] == 0
    form = "\n".join(picker.picker(SiteData(load()), ""))
    values = set(re.findall(r'<option value="([^"]+)"', form))
    assert set(load().models) | set(load().gpus) | set(load().releases) <= values
    assert form.count(" data-here") == len(answers.MODELS) + len(answers.GPUS)


def test_the_scripts_use_texts_that_are_there() -> None:
    """Each text that a script shows stands in the page, and each that stands there is shown."""
    code = "\n".join(path.read_text("utf-8") for path in SCRIPTS)
    asked = set(re.findall(r'\bsay\("([^"]+)"', code))
    assert asked <= set(picker.TEXTS)
    parts = {"context", "weights", "kv cache", "workspace", "vision"}
    link = {"page"}
    assert {each for each in picker.TEXTS if f'"{each}"' not in code} == parts | link
    assert "http" not in re.sub(r"//[^\n]*", "", code)
