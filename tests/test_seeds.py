"""The advisers' records against the texts they come from.

Whatever these tests expect is parsed from the seed texts, which are not part of the
repository. Without them every test that needs them is skipped, with the folder's name.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from packaging.version import Version
from seeds import ROOT, Seeds, read_config, read_script, repair

from recommender.knowledge.records import Adviser, Claim, Disagreement, Place, Record, Scenario

KNOWLEDGE = ROOT / "knowledge"
R = TypeVar("R", bound=Record)
ADVISERS = ("chatgpt", "gemini", "claude", "kimi", "grok", "baseline", "guide", "hybrid")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def records(name: str, kind: type[R]) -> dict[str, R]:
    paths = sorted((KNOWLEDGE / name).glob("*.yaml"))
    return {path.stem: kind.model_validate_json(json.dumps(load(path))) for path in paths}


@pytest.fixture(scope="session")
def advisers() -> dict[str, Adviser]:
    return records("advisers", Adviser)


@pytest.fixture(scope="session")
def disagreements() -> dict[str, Disagreement]:
    return records("disagreements", Disagreement)


def finals(adviser: Adviser) -> dict[str, str]:
    return {setting.option: setting.value for setting in adviser.settings if setting.final}


def places(node: Any) -> Iterator[Place]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "places":
                yield from (Place.model_validate(item) for item in value)
            else:
                yield from places(value)
    elif isinstance(node, list):
        for item in node:
            yield from places(item)


def with_places() -> list[Path]:
    paths = KNOWLEDGE.glob("*/**/*.yaml")
    return sorted(path for path in paths if re.search(r"^ *places:", path.read_text(encoding="utf-8"), re.MULTILINE))


def test_shell_reader_knows_the_forms_that_scripts_use() -> None:
    text = """
    export CARDS=${CARDS:-"0,1"}  # don't trip over this
    PORT=8000
    TP=${TP:-2}
    run() {
        lmdeploy serve api_server "$MODEL" \\
            --server-port ${PORT} \\
            --tp=$TP --eager-mode --log-level "ERROR"
    }
    """
    config = read_config(read_script(list(enumerate(text.split("\n"), 1))))
    assert config.model == "$MODEL"
    expected = {"server-port": "8000", "tp": "2", "eager-mode": "true", "log-level": "ERROR", "cards": "0,1"}
    assert config.settings == expected


def test_repair_restores_text_and_keeps_what_was_never_broken() -> None:
    broken = "≈ 5 %".encode().decode("cp1252")
    assert repair(f"a {broken} b алеко") == "a ≈ 5 % b алеко"
    assert repair("”".encode().decode("latin-1")) == "”"


def test_every_adviser_has_a_record(seeds: Seeds, advisers: dict[str, Adviser]) -> None:
    assert set(advisers) == set(ADVISERS) == set(seeds.chatbots) | {"baseline", "guide", "hybrid"}
    assert all(record.id == name for name, record in advisers.items())
    assert {record.name for record in advisers.values()} >= set(seeds.chatbots.values())


@pytest.mark.parametrize("adviser", ADVISERS)
def test_final_settings_are_what_the_text_sets(seeds: Seeds, advisers: dict[str, Adviser], adviser: str) -> None:
    """Both ways: nothing the text sets is missing, nothing is recorded that it does not set."""
    parsed = seeds.final(adviser)
    record = advisers[adviser]
    assert parsed.settings, "nothing was parsed"
    assert finals(record) == parsed.settings
    assert len(finals(record)) == sum(setting.final for setting in record.settings), "an option is final twice"
    assert record.model == parsed.model


def test_ranges_of_the_hybrid(seeds: Seeds, advisers: dict[str, Adviser]) -> None:
    recorded = {s.option: (s.value, s.up_to) for s in advisers["hybrid"].settings if s.final}
    assert recorded == seeds.hybrid


def test_values_of_the_guides_sections(seeds: Seeds, advisers: dict[str, Adviser]) -> None:
    """Each number its sections advise is recorded, and each recorded number is in them or in its command."""
    final = seeds.final("guide").settings
    recorded: dict[str, set[str]] = {}
    for setting in advisers["guide"].settings:
        recorded.setdefault(setting.option, set()).update({setting.value, setting.up_to} - {""})
    suggested = seeds.guide_suggestions()
    assert set(suggested) == set(final)
    for option, values in suggested.items():
        assert values <= recorded[option], option
        numbers = {value for value in recorded[option] if value[0].isdigit()}
        assert numbers <= values | {final[option]}, option


@pytest.mark.parametrize("adviser", ADVISERS)
def test_values_stand_at_their_places(seeds: Seeds, advisers: dict[str, Adviser], adviser: str) -> None:
    """Each value, said in passing or final, is written on one of its lines; a switch is at least named there."""
    for setting in advisers[adviser].settings:
        there = [seeds.on_disk(place.seed)[place.line - 1] for place in setting.places]
        parts = [*setting.value.split(","), *filter(None, [setting.up_to])]
        written = all(any(re.search(rf"(?<![\w.]){re.escape(p)}(?!\w|\.\d)", line) for line in there) for p in parts)
        name = re.sub(r"^enable-|^disable-", "", setting.option).replace("-", "[-_ ]")
        named = any(re.search(name, line, re.IGNORECASE) for line in there)
        assert written or (setting.value in {"true", "false"} and named), (adviser, setting.option, setting.value)


@pytest.mark.parametrize("path", with_places(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_tokens_stand_at_their_lines(seeds: Seeds, path: Path) -> None:
    for place in places(load(path)):
        lines = seeds.on_disk(place.seed)
        assert place.line <= len(lines), place
        assert place.token in lines[place.line - 1], place
        assert len(place.token.split()) <= 4, f"more than a token: {place}"


def test_value_disagreements_are_all_and_only_those_of_the_table(
    seeds: Seeds, disagreements: dict[str, Disagreement]
) -> None:
    """The comparison's table against the scripts of the answers, cell by cell; not passed reads as false."""
    cells = seeds.table_values()
    assert len(cells) == len(seeds.chatbots) * (len(seeds.table) - 1)
    final = {adviser: seeds.final(adviser).settings for adviser in seeds.chatbots}
    differing = {cell: value for cell, value in cells.items() if final[cell[0]].get(cell[1], "false") != value}
    recorded = {(d.adviser, d.option): d for d in disagreements.values() if d.kind == "value"}
    assert set(recorded) == set(differing)
    for cell, value in differing.items():
        assert recorded[cell].table_says == value


def test_reasons_only_the_table_gives_are_disagreements(
    seeds: Seeds, advisers: dict[str, Adviser], disagreements: dict[str, Disagreement]
) -> None:
    """Where the table credits an adviser with a reason and the answer has none, that is recorded, and only there."""
    given = {(a.id, s.option) for a in advisers.values() for s in a.settings if s.final and s.reason}
    recorded = {(d.adviser, d.option): d for d in disagreements.values() if d.kind == "reason"}
    table = seeds.table_reasons()
    assert set(recorded) <= table
    assert table - given <= set(recorded)
    silent = {cell for cell, d in recorded.items() if not d.answer_says}
    assert not silent & given
    assert all(cell in given or cell in differing_options(disagreements) for cell in set(recorded) - silent)


def differing_options(disagreements: dict[str, Disagreement]) -> set[tuple[str, str]]:
    """Cells that differ in value: there the answer's reason belongs to something else it set."""
    return {(d.adviser, d.option) for d in disagreements.values() if d.kind == "value"}


def test_disagreements_are_named_after_what_they_are_about(disagreements: dict[str, Disagreement]) -> None:
    for name, record in disagreements.items():
        ending = "-reason" if record.kind == "reason" else ""
        assert name == record.id == f"{record.adviser}-{record.option}{ending}"
        assert "000" in {place.seed for place in record.places}
        assert "001" in {place.seed for place in record.places}


def test_estimates_of_the_comparison(seeds: Seeds, advisers: dict[str, Adviser]) -> None:
    for name, vram, *words in seeds.memory_table[1:]:
        ends = re.fullmatch(r"~([\d.]+)-([\d.]+) GB", vram)
        assert ends
        ours = [f for f in advisers[name.lower()].figures if any(place.seed == "000" for place in f.places)]
        assert [(f.low, f.high) for f in ours if f.kind == "vram"] == [(float(ends[1]), float(ends[2]))]
        assert [f.words for f in ours if f.unit == "words"] == [word.lower() for word in words]


def test_figures_of_the_answers_stand_at_their_places(seeds: Seeds, advisers: dict[str, Adviser]) -> None:
    """A number with its unit is on the line; a count may be spelt out there."""
    spelt = {"16": "sixteen"}
    for adviser in advisers.values():
        for figure in adviser.figures:
            if figure.unit == "words":
                continue
            there = " ".join(seeds.on_disk(place.seed)[place.line - 1] for place in figure.places)
            for number in {figure.low, figure.high}:
                text = f"{number:g}"
                pattern = rf"(?<![\d.]){re.escape(text)}(\.0)?(?![\d.])|\b{spelt.get(text, text)}\b"
                assert re.search(pattern, there), (adviser.id, figure.kind, text)


def test_scenarios_pick_whom_the_comparison_picks(seeds: Seeds) -> None:
    picked = {record.places[0].line: set(record.picks) for record in records("scenarios", Scenario).values()}
    assert picked == seeds.scenarios()


LECTURE = "004"


@pytest.fixture(scope="session")
def claims() -> dict[str, Claim]:
    return records("claims", Claim)


def said_by(seeds: Seeds, place: Place) -> str:
    """Whose words a place is in: the chatbot whose answer of 001 it stands in, or the text's own author."""
    if place.seed != "001":
        return {"000": "hybrid", "002": "guide", "003": "baseline", LECTURE: ""}[place.seed]
    return next(name for name in seeds.chatbots if place.line in {number for number, _ in seeds.answer(name)})


def test_each_claim_stands_with_whoever_makes_it(seeds: Seeds, claims: dict[str, Claim]) -> None:
    """Every adviser of a claim has a place in his own text, and no place is in the text of anybody else."""
    for claim in claims.values():
        speakers = {said_by(seeds, place) for place in claim.places} - {""}
        assert speakers == set(claim.advisers), claim.id
        assert claim.places or claim.statement.startswith("No adviser mentions this: "), claim.id


def test_there_are_claims_of_every_text(seeds: Seeds, claims: dict[str, Claim]) -> None:
    """At least sixty statements, of all five texts and all advisers, with every verdict."""
    assert len({claim.statement for claim in claims.values()}) >= 60
    assert {place.seed for claim in claims.values() for place in claim.places} == {"000", "001", "002", "003", LECTURE}
    assert {adviser for claim in claims.values() for adviser in claim.advisers} == set(ADVISERS)
    assert len({claim.verdict for claim in claims.values()}) == 6


def test_a_verdict_rests_on_something(claims: dict[str, Claim]) -> None:
    """Only what is unverified may name no source."""
    for claim in claims.values():
        assert not claim.sources.empty or claim.verdict == "unverified", claim.id


def test_a_statement_has_one_verdict_a_release(claims: dict[str, Claim]) -> None:
    """Records of one statement are of releases that do not overlap."""
    ranges: dict[str, list[tuple[Version, Version]]] = {}
    for claim in claims.values():
        ends = (Version(claim.since), Version(claim.until or "999"))
        for since, until in ranges.setdefault(claim.statement, []):
            assert ends[1] <= since or until <= ends[0], claim.id
        ranges[claim.statement].append(ends)
