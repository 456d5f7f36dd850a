"""Threads that users meet: the records as a whole, and what the linter of threads tells."""

import re
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

from recommender.knowledge import records
from recommender.knowledge.index import read_record
from recommender.knowledge.load import data_root, load
from recommender.maintenance.knowledge_folder import KnowledgeFolder, read
from recommender.maintenance.linters import LINTERS

KNOWLEDGE = data_root() / "knowledge"
THREADS = {path.stem: read_record(path, records.Thread) for path in sorted((KNOWLEDGE / "threads").glob("*.yaml"))}
LEAST = 30
pytestmark = pytest.mark.usefixtures("_records_are_read_once")


def test_there_are_threads_of_many_options() -> None:
    """Users meet failures of more than one kind, and the records cover them."""
    assert len(THREADS) >= LEAST
    options = {option for thread in THREADS.values() for option in thread.options}
    assert {"cache-max-entry-count", "session-len", "quant-policy", "tp", "backend", "proxy-url"} <= options


def test_the_index_lists_those_of_an_option() -> None:
    """A thread names its options, not the other way round; a run finds them in the index."""
    store = load()
    assert set(store.threads) == set(THREADS)
    found = {thread.id for thread in store.threads.values() if "quant-policy" in thread.options}
    assert {"int4-kv-breaks-tool-calls", "kv-quantisation-frees-no-memory"} <= found


@pytest.mark.parametrize("thread", THREADS.values(), ids=list(THREADS))
def test_a_thread_says_where_it_was_read_and_what_to_do(thread: records.Thread) -> None:
    """Each text is a sentence of its own, and a repaired failure has the release that repairs it."""
    texts = {thread.symptom, thread.cause, thread.remedy, thread.thread.says}
    assert len(texts) == 4
    assert all(text.endswith((".", ")")) for text in texts), texts
    if thread.until:
        assert Version(thread.since) < Version(thread.until)


def test_an_error_is_searched_as_it_is_logged() -> None:
    """An error that stands in LMDeploy's code stands there word by word: placeholders and quotes are left out."""
    for thread in THREADS.values():
        assert "{" not in thread.error, thread.id
        assert not re.search(r"^\s|\s$|\n", thread.error), thread.id


def told(copy: Path, **fields: object) -> list[str]:
    """What the linters of threads, references, ranges and releases tell of one record with other fields."""
    path = copy / "threads/runs-out-of-tokens.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text(encoding="utf-8")) | fields), encoding="utf-8")
    base: KnowledgeFolder = read(copy)
    names = ("types", "threads", "references", "eras", "releases")
    return [str(problem) for name in names for problem in LINTERS[name](base) if "runs-out-of-tokens" in str(problem)]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"posted": "2026-11-22"}, "posted: posted on 2026-11-22, after it was opened"),
        ({"posted": "yesterday"}, "posted: String should match pattern"),
        ({"error": "one two three four five six seven eight nine"}, "error: it is not one line of 8 words"),
        ({"error": "two\nlines"}, "error: it is not one line"),
        ({"options": ["session-length"]}, "options[0]: there is no option 'session-length'"),
        ({"since": "0.9.0", "until": "0.8.0"}, "until: 0.9.0 to 0.8.0 is empty"),
        ({"until": "0.8.7"}, "until: 0.8.7 is not a covered release"),
        ({"cause": ""}, "cause: String should have at least 1 character"),
    ],
    ids=lambda case: case if isinstance(case, str) else "-".join(case),
)
def test_a_broken_thread_is_told(copy: Path, fields: dict[str, object], what: str) -> None:
    """Wrong days, long errors, unknown options, empty ranges and unknown releases are named with their field."""
    assert told(copy) == []
    found = told(copy, **fields)
    assert any(what in line for line in found), found


@pytest.mark.parametrize(
    ("url", "right"),
    [
        ("https://github.com/InternLM/lmdeploy/issues/1", True),
        ("https://github.com/InternLM/lmdeploy/pull/1", True),
        ("https://github.com/InternLM/lmdeploy/blob/v0.9.2/docs/en/faq.md", True),
        ("https://github.com/InternLM/lmdeploy/blob/main/docs/en/faq.md", False),
        ("https://github.com/InternLM/lmdeploy/blob/v0.6.0/docs/en/faq.md", False),
        ("https://github.com/InternLM/lmdeploy/issues", False),
        ("https://github.com/InternLM/lmdeploy/issues/1#issuecomment-2", False),
        ("https://example.org/issues/1", False),
    ],
)
def test_an_address_is_a_threads_or_that_of_a_tagged_page(copy: Path, url: str, right: bool) -> None:
    """Addresses that change under the reader, or lead to no one thread, are told."""
    page = {"url": url, "opened": "2026-11-21", "says": "Nothing."}
    assert ("thread.url" not in "".join(told(copy, thread=page))) == right


def test_two_records_of_one_thread_are_told(copy: Path) -> None:
    """One record an address."""
    other = yaml.safe_load((copy / "threads/answer-cut-off.yaml").read_text(encoding="utf-8"))
    assert any("already has" in line for line in told(copy, thread=other["thread"]))


def test_the_template_has_the_fields_of_the_type() -> None:
    """What a contributor starts from is refused for its TODOs only, never for a field."""
    text = (KNOWLEDGE / "templates-for-contributors/thread.yaml").read_text(encoding="utf-8")
    filled = yaml.safe_load(text)
    assert set(filled) == set(records.Thread.model_fields)
    assert set(filled["thread"]) == set(records.PageSource.model_fields)
    assert set(filled["code"][0]) == set(records.CodeSource.model_fields)
    assert all(str(value) == "ID" or "TODO" in str(value) or name == "since" for name, value in filled.items())
