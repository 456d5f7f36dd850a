"""The rules against labels that were written before them: precision and recall a family, as published."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import judging
import pytest
from labels import FAMILIES
from seeds import ROOT, Seeds

README = (ROOT / "tests" / "reviews" / "README.md").read_text("utf-8").splitlines()
SEEDS_NOT_FOUND = {
    ("001-16", "The comment's 200 MB are about 3.6 GiB"),
    ("001-16", "The variable is set and never used"),
    ("001-16", "While a request is answered, /health waits"),
}
"""Labels of the seeds' blocks that no rule meets: a unit in a comment, what ShellCheck finds (SC2034), a slow probe."""
CORPUS_NOT_FOUND = {
    ("docs-0-16-volcano", "The port of the proxy is empty on every node but the first"),
    ("issue-3280", "The KV cache leaves nothing to compute with"),
    ("issue-4426", "Prefix caching is switched off for this model"),
    ("issue-4533", "The PyTorch engine never reads the vision batch"),
    ("tutorial-internvl2-26b", "After the start nothing is left to encode an image with"),
    ("vmevalkit-server", "The version condition is taken for a redirection"),
    ("vmevalkit-server", "The waiting loop never ends when the server does not start"),
}
"""What no rule meets: a variable set in one branch, the PyTorch engine's work buffers, a Windows path, the models'
memory without a known model, pip's conditions."""
FILES_NOT_FOUND = {
    ("py-adapter", "Open to every address without API keys"),
    ("py-adapter-extra", "Open to every address without keys"),
    ("sh-heredoc-unit", "At once after the start, under set -e"),
    ("sh-local-arrays", "A share of 1 or more stops the start"),
    ("sh-proxy-three-workers", "The first worker has the proxy's port"),
    ("sh-retry-loop", "It registers http://0.0.0.0:23333 at the proxy"),
    ("sky-serve-yaml", "The server listens on 8080"),
    ("wild-py-nox", "Only the PyTorch engine has a cache in FP8"),
}
"""Most depend on the caller: it may add --api-keys or another engine, and the proxy may be on another host. Also a
request to a unit that was just enabled, and the ports of a SkyPilot service."""
FAMILIES_OF_FILES = {**FAMILIES, "unread": "unread"}


def table(judged: Sequence[judging.Judged], families: Mapping[str, str]) -> list[str]:
    """Precision and recall of each family, a line each; a right finding counts for the family of its label."""
    right, wrong, missed = Counter[str](), Counter[str](), Counter[str]()
    for one in judged:
        right.update(families[label["family"]] for _, label in one.right)
        wrong.update(finding.rule.family for finding in one.wrong)
        missed.update(families[label["family"]] for label in one.missed)
    lines = []
    for label, family in [*families.items(), ("all", "")]:
        good, bad, not_met = (
            sum(count for name, count in each.items() if not family or name == family)
            for each in (right, wrong, missed)
        )
        precision = f"{good / (good + bad):.2f}" if good + bad else "-"
        recall = f"{good / (good + not_met):.2f}" if good + not_met else "-"
        lines.append(f"| {label} | {good} | {bad} | {not_met} | {precision} | {recall} |")
    return lines


def heading(name: str) -> int:
    return README.index(f"| {name} | right | false alarms | missed | precision | recall |")


def missed(judged: Iterable[judging.Judged]) -> set[tuple[str, str]]:
    return {(one.id, label["what"]) for one in judged for label in one.missed}


def wrong(judged: Iterable[judging.Judged]) -> list[tuple[str, str, str]]:
    return [(one.id, each.rule.id, each.message) for one in judged for each in one.wrong]


def test_the_corpus_has_no_false_alarm_and_no_more_misses() -> None:
    """Infos count too. A finding that is lost, or a new false alarm, is a step back."""
    assert wrong(judging.corpus()) == []
    assert missed(judging.corpus()) == CORPUS_NOT_FOUND
    # LMD401 is not told of Qwen2-VL any more: its images lose nothing to a thread for each core.
    assert sum(len(command.right) for command in judging.corpus()) >= 75


def test_the_files_have_no_false_alarm_and_no_more_misses() -> None:
    """Errors and warnings. No file with a server, or with a label, is passed in silence."""
    judged = [file.judged for file in judging.files()]
    assert [file.judged.id for file in judging.files() if file.silent] == []
    assert wrong(judged) == []
    assert missed(judged) == FILES_NOT_FOUND
    assert sum(len(one.right) for one in judged) >= 1270


def test_findings_are_of_the_labelled_rule() -> None:
    """Where a label names a rule, no other one, mostly LMD002, reports it alone."""
    pairs = [(finding, label) for file in judging.files() for finding, label in file.judged.right if "rule" in label]
    named = {(label["what"], id(label)): label["rule"] for _, label in pairs}
    found = {(label["what"], id(label)) for finding, label in pairs if finding.rule.id == label["rule"]}
    assert [named[key] for key in named.keys() - found] == []


@pytest.mark.parametrize(
    ("name", "judged", "families"),
    [
        ("family", judging.corpus, FAMILIES),
        ("family, files", lambda: [file.judged for file in judging.files()], FAMILIES_OF_FILES),
    ],
)
def test_the_published_table_is_the_measured_one(
    name: str, judged: Callable[[], Sequence[judging.Judged]], families: Mapping[str, str]
) -> None:
    """tests/reviews/README.md says what the rules reach."""
    lines = table(judged(), families)
    start = heading(name) + 2
    assert README[start : start + len(lines)] == lines


def test_the_seeds_blocks_are_reviewed_as_a_reader_would(seeds: Seeds) -> None:
    """Nothing said of them is wrong, and nothing that was labelled is missing but what is listed here."""
    judged = list(judging.seeds_judged(seeds))
    assert len(judged) >= 20
    assert wrong(judged) == []
    assert missed(judged) == SEEDS_NOT_FOUND
    assert sum(len(one.right) for one in judged) >= 56
    lines, start = table(judged, FAMILIES), heading("family, seeds") + 2
    assert README[start : start + len(lines)] == lines


@pytest.mark.parametrize("one", judging.corpus(), ids=lambda one: one.id)
def test_no_command_of_the_corpus_is_beyond_the_reader(one: judging.Judged) -> None:
    """Each is read without a defect, and every finding lies within the text and has a source or a page."""
    for finding, _ in one.right:
        place = finding.place
        assert 0 <= place.start <= place.end <= len(one.text)
        assert finding.message
        assert finding.diagnostic.why
