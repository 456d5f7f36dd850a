"""What limits a fact's sources is said by release, path and run alone, wherever the fact is shown."""

import json
import re

import pytest
from click.testing import CliRunner
from variants import STORE, store_with, variant

from recommender.choose.recommend import NothingFits, recommend
from recommender.cli import root
from recommender.common.plain import Plain
from recommender.knowledge import provenance
from recommender.knowledge.store import Store
from recommender.render.report import explain_no_fit
from recommender.request.request import Request

ENGINE, PYTHON, PAGE = "src/turbomind/turbomind.cc", "lmdeploy/messages.py", "docs/en/quantization/kv_quant.md"
NOT_PUBLIC = "code of 0.16.0; later code is not public"


def sources(*code: tuple[str, str], evidence: tuple[str, ...] = ()) -> Plain:
    lines = [Plain({"release": release, "path": path, "line": 1, "token": "x"}) for release, path in code]
    return Plain({"code": lines, "pages": [], "evidence": list(evidence)})


def with_runs(**releases: str) -> Store:
    """The knowledge with one run for each name, on that release."""
    return store_with(evidence={name: Plain({"id": name, "lmdeploy": release}) for name, release in releases.items()})


@pytest.mark.parametrize(
    ("cited", "release", "said"),
    [
        ([("0.16.0", ENGINE)], "0.18.0", NOT_PUBLIC),
        ([("0.16.0", ENGINE)], "0.17.0", NOT_PUBLIC),
        ([("0.16.0", ENGINE)], "0.16.0", ""),
        ([("0.7.0", ENGINE)], "0.9.2", ""),
        ([("0.7.0", ENGINE), ("0.16.0", ENGINE)], "0.18.0", NOT_PUBLIC),
        ([("0.10.0", ENGINE)], "0.18.0", "code of 0.10.0; newer code was not read"),
        ([("0.16.0", "CMakeLists.txt")], "0.18.0", NOT_PUBLIC),
        ([("0.16.0", ENGINE), ("0.18.0", PYTHON)], "0.18.0", NOT_PUBLIC),
        ([("0.16.0", PYTHON)], "0.18.0", ""),
        ([("0.16.0", "METADATA")], "0.18.0", ""),
        ([("0.16.0", PAGE)], "0.18.0", ""),
        ([], "0.18.0", ""),
    ],
)
def test_engine_code_of_an_older_release_is_said(cited: list[tuple[str, str]], release: str, said: str) -> None:
    """Only where the release's own engine code was not public; Python and pages are in wheel and repository."""
    assert provenance.code_caveat(STORE, sources(*cited), release) == said


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("0.18.0", "code of 0.16.0; measured on 0.18.0"),
        ("0.17.0", "code of 0.16.0; measured on 0.17.0"),
        ("0.16.0", NOT_PUBLIC),
    ],
)
def test_a_run_on_a_later_release_supports_it(run: str, said: str) -> None:
    """One of the code's own release does not."""
    known = sources(("0.16.0", ENGINE), evidence=("run",))
    assert provenance.code_caveat(with_runs(run=run), known, "0.18.0") == said


def test_what_is_public_is_in_the_records_of_the_releases() -> None:
    """If the repository gets a later tag, nothing is said any more."""
    releases = {name: variant(release, repository=True) for name, release in STORE.releases.items()}
    assert provenance.code_caveat(store_with(releases=releases), sources(("0.16.0", ENGINE)), "0.18.0") == ""
    assert provenance.newest_public(STORE) == "0.16.0"


@pytest.mark.parametrize(
    ("record", "newest"),
    [
        ({"until": ""}, "0.18.0"),
        ({"until": "0.17.0"}, "0.16.0"),
        ({"when": ["lmdeploy < 0.15.0", "config.tp > 1"]}, "0.14.0"),
        ({"when": ["lmdeploy in [0.7.2, 0.7.3]"]}, "0.7.3"),
        ({"when": []}, "0.18.0"),
        ({}, "0.18.0"),
    ],
)
def test_the_newest_release_that_a_record_is_about(record: dict[str, object], newest: str) -> None:
    """By the end of its range, or by what its conditions say of the release."""
    assert provenance.newest_about(STORE, Plain(record)) == newest


def said(*words: str) -> str:
    done = CliRunner().invoke(root, [*words])
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    "words",
    [
        ("--gpu", "H100-80G", "--load", "16", "--format", "report"),
        ("--gpu", "H100-80G", "--follow", "chatgpt", "--format", "report"),
        ("explain", "session-len"),
        ("compare", "--gpu", "H100-80G", "--load", "16"),
    ],
)
def test_it_is_said_wherever_a_source_is_shown(words: tuple[str, ...]) -> None:
    """Of the newest release; of 0.16.0 nothing is said."""
    assert NOT_PUBLIC in said(*words)
    assert "is not public" not in said(*words, "--lmdeploy", "0.16.0")


def test_a_refusal_and_a_rule_page_say_it() -> None:
    """A rule's page is for all releases, so it speaks of the newest that its records are about."""
    request = Request(gpu="t4", model="internvl3-38b")
    with pytest.raises(NothingFits) as refused:
        recommend(request, STORE)
    assert NOT_PUBLIC in " ".join(explain_no_fit(refused.value).split())
    page = said("review", "--explain", "LMD123")
    assert re.search(rf"constraints/kv-holds-warmup \([^)]*{NOT_PUBLIC}\)", page)


def test_json_has_it_beside_the_sources() -> None:
    """Each option, verdict and finding of a recommendation; similar runs say release and weights."""
    plain = json.loads(CliRunner().invoke(root, ["--gpu", "H100-80G", "--load", "16", "--format", "json"]).stdout)
    options = {option["option"]: option for option in plain["options"]}
    assert options["cache-max-entry-count"]["caveat"] == NOT_PUBLIC
    verdicts = {verdict["claim"]: verdict for option in plain["options"] for verdict in option["verdicts"]}
    assert verdicts["session-counts-prompt-and-answer"]["caveat"] == NOT_PUBLIC
    assert verdicts["cache-ratio-of-whole-card"]["caveat"] == "code of 0.16.0; measured on 0.18.0"
    assert {(run["lmdeploy"], run["random_weights"]) for run in plain["near"]} == {("0.18.0", True)}


def test_every_verdict_that_rests_on_runs_says_what_they_were() -> None:
    """Release, card, model and weights; and each comparison with all its loads."""
    resting = {name for name, claim in STORE.claims.items() if claim.sources.evidence}
    assert resting == set(STORE.measured)
    for name in resting:
        first, *rest = provenance.measured_lines(STORE, name)
        assert first.startswith("Measured on LMDeploy 0.18.0: NVIDIA "), name
        assert first.endswith("; random weights."), name
        compared = STORE.measured[name].comparisons
        assert len(rest) == len(compared) == len(STORE.claims[name].comparisons)
        for line, comparison in zip(rest, compared, strict=True):
            assert sum(line.count(f"x{load.ratio:.2f} at ") > 0 for load in comparison.loads) == len(comparison.loads)
    assert [*provenance.measured_lines(STORE, "one-preprocessing-thread")] == []
