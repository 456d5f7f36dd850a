"""The rules against labels that were written before them: precision and recall a family, as published."""

from collections import Counter

import judging
import pytest
from labels import FAMILIES
from seeds import ROOT, Seeds

FLOOR = 0.95
NOT_FOUND = {
    ("001-16", "The comment's 200 MB are about 3.6 GiB"),
    ("001-16", "The variable is set and never used"),
    ("001-16", "While a request is answered, /health waits"),
}
"""Labels of the seeds' blocks that no rule meets: a unit in a comment, what ShellCheck finds (SC2034), a slow probe."""


def table() -> list[str]:
    """Precision and recall of each family on the corpus, a line each."""
    right, wrong, missed = Counter[str](), Counter[str](), Counter[str]()
    for command in judging.corpus():
        right.update(finding.rule.family for finding, _ in command.right)
        wrong.update(finding.rule.family for finding in command.wrong)
        missed.update(FAMILIES[label["family"]] for label in command.missed)
    lines = []
    for label, family in [*FAMILIES.items(), ("all", "")]:
        good, bad, not_met = (
            sum(count for name, count in each.items() if not family or name == family)
            for each in (right, wrong, missed)
        )
        precision = f"{good / (good + bad):.2f}" if good + bad else "-"
        recall = f"{good / (good + not_met):.2f}" if good + not_met else "-"
        lines.append(f"| {label} | {good} | {bad} | {not_met} | {precision} | {recall} |")
    return lines


def test_few_false_alarms() -> None:
    """At least 95 of 100 findings are right; clean commands have next to none."""
    right = sum(len(command.right) for command in judging.corpus())
    wrong = [(command.id, each.rule.id) for command in judging.corpus() for each in command.wrong]
    assert right >= 40
    assert right / (right + len(wrong)) >= FLOOR, wrong


def test_the_published_table_is_the_measured_one() -> None:
    """tests/reviews/README.md says what the rules reach."""
    text = (ROOT / "tests" / "reviews" / "README.md").read_text("utf-8")
    for line in table():
        assert line in text.splitlines(), line


def test_the_seeds_blocks_are_reviewed_as_a_reader_would(seeds: Seeds) -> None:
    """Nothing said of them is wrong, and nothing that was labelled is missing but what is listed here."""
    judged = list(judging.seeds_judged(seeds))
    assert len(judged) >= 20
    assert [(one.id, each.rule.id, each.message) for one in judged for each in one.wrong] == []
    assert {(one.id, label["what"]) for one in judged for label in one.missed} == NOT_FOUND
    assert sum(len(one.right) for one in judged) >= 58 - len(NOT_FOUND)


@pytest.mark.parametrize("one", judging.corpus(), ids=lambda one: one.id)
def test_no_command_of_the_corpus_is_beyond_the_reader(one: judging.Judged) -> None:
    """Each is read without a defect, and every finding lies within the text and has a source or a page."""
    for finding, _ in one.right:
        place = finding.place
        assert 0 <= place.start <= place.end <= len(one.text)
        assert finding.message
        assert finding.diagnostic.why
