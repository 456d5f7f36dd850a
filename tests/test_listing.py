"""Lists with search: one line each, all words, and what is near where nothing is found."""

import json

import pytest
from click.testing import CliRunner, Result

from recommender.commands.list import command
from recommender.knowledge.load import data_root, load
from recommender.lookup.listing import KINDS, lines, search, searchable

STORE = load()


def asked(*words: str) -> Result:
    return CliRunner().invoke(command, list(words))


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_has_a_line_for_each_record(kind: str) -> None:
    """As many lines as there are records, with a count at the end; whole in a pipe, cut at a terminal's width."""
    done = asked(kind)
    *found, last = done.stdout.splitlines()
    count = sum(len(getattr(STORE, name)) for name in KINDS[kind].kinds)
    assert len(found) == count
    assert last.startswith(f"{count} ")
    assert not [line for line in found if line.endswith("...")]
    narrow = list(lines(kind, search(searchable(STORE, kind), ()), 0, 80))
    assert max(map(len, narrow)) <= 80
    assert all(whole.startswith(short.removesuffix("...")) for whole, short in zip(found, narrow, strict=False))
    assert done.exit_code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_json_has_the_whole_records(kind: str) -> None:
    """Kind, words, count, and each record with its id and sources."""
    read = json.loads(asked(kind, "--json").stdout)
    assert read["format"] == 1
    assert read["kind"] == kind
    assert read["count"] == len(read["found"]) == len(searchable(STORE, kind))
    assert all(each["id"] for each in read["found"])


@pytest.mark.parametrize(
    ("kind", "words", "id"),
    [
        ("gpus", ("H100", "nvl"), "h100-nvl-94g"),
        ("gpus", ("rtx", "4090", "24"), "rtx-4090"),
        ("models", ("AWQ", "opengvlab", "8b"), "internvl3-8b-awq"),
        ("flags", ("session_len",), "session-len"),
        ("flags", ("OMP_NUM",), "omp-num-threads"),
        ("advisers", ("Vietnamese",), "guide"),
        ("claims", ("refuted", "session", "256"), "session-256-holds-one-image"),
        ("threads", ("Memory", "start"), "out-of-memory-at-start"),
        ("releases", ("0.18",), "0.18.0"),
    ],
)
def test_all_words_must_match_in_any_case(kind: str, words: tuple[str, ...], id: str) -> None:
    """Each record found holds every word somewhere, and the one that is meant is among them."""
    found = {each["id"]: each for each in json.loads(asked(kind, *words, "--json").stdout)["found"]}
    assert id in found
    for each in found.values():
        text = json.dumps(each, ensure_ascii=False).casefold().replace("_", "-")
        assert all(word.casefold().replace("_", "-") in text for word in words)
    assert set(found) == set(found) & {each.id for each, _ in searchable(STORE, kind)}


@pytest.mark.parametrize("words", [("moe",), ("MoE",), ("mixture",), ("mixture of experts",), ("mixture", "experts")])
def test_a_mixture_of_experts_is_found_by_what_it_is(words: tuple[str, ...]) -> None:
    """Whatever its name and architecture; no other model is."""
    folder = data_root() / "knowledge" / "models"
    mixtures = {file.stem for file in folder.iterdir() if "\n  mixture:\n" in file.read_text("utf-8")}
    assert {"gpt-oss-20b", "mixtral-8x22b", "deepseek-r1"} < mixtures
    found = json.loads(asked("models", *words, "--json").stdout)["found"]
    assert {each["id"] for each in found} == mixtures


def test_fewer_words_find_no_less() -> None:
    """Another word only narrows."""
    wide = {each["id"] for each in json.loads(asked("claims", "cache", "--json").stdout)["found"]}
    narrow = {each["id"] for each in json.loads(asked("claims", "cache", "refuted", "--json").stdout)["found"]}
    assert narrow < wide


def test_where_a_claim_was_read_is_no_text_of_it() -> None:
    """A search does not find records by the files they cite."""
    assert asked("claims", "turbomind.cc").exit_code == 1


def test_nothing_found_tells_what_is_near() -> None:
    """Status 1, one line on stderr; the JSON says count 0."""
    done = asked("gpus", "h1000")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "h100" in done.stderr
    assert done.stderr.count("\n") == 1
    assert json.loads(asked("gpus", "h1000", "--json").stdout)["count"] == 0


def test_words_that_never_meet_are_counted_one_by_one() -> None:
    """Where each word alone finds something, the numbers say which one to drop."""
    done = asked("gpus", "l40s", "a100")
    assert done.exit_code == 1
    assert "'l40s' 1" in done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_offered_where_nothing_is_found_is_a_command(kind: str) -> None:
    """The list that the error names is one that can be printed."""
    done = asked(kind, "qzqzq")
    assert done.exit_code == 1
    _, _, offered = done.stderr.strip().partition("see recommend list ")
    assert asked(*offered.split()).exit_code == 0
