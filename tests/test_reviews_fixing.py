"""Repairs over every published command and every row of the rules' tables: what they change, and what they leave."""

from collections.abc import Iterator
from functools import cache, lru_cache

import fuzz_reviews
import pytest

from recommender.review import engine, fix
from recommender.review.rule import Finding
from recommender.review.script.model import Script, Span
from recommender.review.script.source import Source

TOLD = ({"lmdeploy": "0.18.0"}, {"lmdeploy": "0.18.0", "gpu": "A100-80G", "load": "16", "image": "1280x720"})
PARTS = 4
LEAST = 150
"""So many of the texts have something to repair, so that these tests test something."""


@cache
def texts() -> tuple[fuzz_reviews.Text, ...]:
    found = {each.text: each for group in fuzz_reviews.originals().values() for each in group}
    return tuple(found.values())


@lru_cache(maxsize=64)
def reviewed(path: str, text: str, told: int) -> engine.Review:
    """The review of one text, kept while its repairs are tried: each begins with a review that was made before."""
    return engine.review(path, text, TOLD[told])


@cache
def mended(at: int, told: int) -> tuple[engine.Review, fix.Repaired, engine.Review] | None:
    """The review before, what the repairs made, and the review after; None where there is nothing to repair."""
    text = texts()[at]

    def look(source: Source) -> engine.Review:
        return reviewed(text.path, source.text, told)

    source = Source(text.path, text.text)
    before = look(source)
    if not any(finding.fix for finding in before.findings):
        return None
    made = fix.repair(source, look, unsafe=bool(told))
    return before, made, look(made.source)


def repaired(part: int) -> Iterator[tuple[int, int, engine.Review, fix.Repaired, engine.Review]]:
    """All texts of a part in which something was repaired."""
    for at in range(part, len(texts()), PARTS):
        for told in range(len(TOLD)):
            made = mended(at, told)
            if made is not None and made[1].applied:
                yield at, told, *made


def edits(findings: tuple[Finding, ...]) -> list[tuple[int, int, str]]:
    """What the repairs of some findings replace, each stretch once."""
    return list(dict.fromkeys((p.start, p.end, new) for f in findings if f.fix for p, new in f.fix.edits))


@pytest.mark.parametrize("part", range(PARTS))
def test_fixing_twice_changes_nothing(part: int) -> None:
    """A repaired text is as it stays."""
    for at, told, _, made, _ in repaired(part):
        text = texts()[at]
        again = fix.repair(made.source, lambda each: reviewed(text.path, each.text, told), bool(told))  # noqa: B023
        assert again.source.whole == made.source.whole, text.text
        assert again.applied == (), text.text


@pytest.mark.parametrize("part", range(PARTS))
def test_what_a_repair_claims_to_mend_is_mended(part: int) -> None:
    """Each repair takes a finding of its rule away, brings no error, and loses no server."""
    for at, _, before, made, after in repaired(part):
        text = texts()[at].text
        for name in {each.rule.id for each in made.applied}:
            claimed = sum(each.rule.id == name for each in made.applied)
            then, now = (sum(finding.rule.id == name for finding in one.findings) for one in (before, after))
            first = sum(each.rule.id == name for each in made.applied if each in before.findings)
            assert now <= then - first, (name, claimed, text)
        errors = [sum(finding.severity == "error" for finding in one.findings) for one in (before, after)]
        assert errors[1] <= errors[0], text
        assert len(after.script.launches) == len(before.script.launches), text
        assert len(after.script.problems) <= len(before.script.problems), text


@pytest.mark.parametrize("part", range(PARTS))
def test_only_the_claimed_stretches_differ(part: int) -> None:
    """If one round is enough, and it mostly is, the listed edits yield the repaired text."""
    rounds = 0
    for at, _, before, made, _ in repaired(part):
        if all(each in before.findings for each in made.applied):
            source = Source(texts()[at].path, texts()[at].text)
            assert source.edited(edits(made.applied)).whole == made.source.whole
        else:
            rounds += 1
    assert rounds < 10


@pytest.mark.parametrize("part", range(PARTS))
def test_comments_variables_and_options_keep_their_order(part: int) -> None:
    """Untouched comments, variables and options keep their order."""
    for at, _, before, made, after in repaired(part):
        touched = edits(made.applied)

        def whole(place: Span, touched: list[tuple[int, int, str]] = touched) -> bool:
            return all(last <= place.start or place.end <= first for first, last, _ in touched)

        if not all(each in before.findings for each in made.applied):
            continue
        for kept, now in zip(named(before.script, whole), named(after.script, lambda _: True), strict=True):
            assert in_order(kept, now), (kept, now, texts()[at].text)


def named(script: Script, whole: object) -> tuple[list[str], list[str], list[str]]:
    """The comments, the variables and the options of a script, as far as no repair touches them."""
    assert callable(whole)
    comments = [comment.text for comment in script.comments if whole(comment.place)]
    variables = [
        f"{assignment.name}={assignment.word.raw}" for assignment in script.assignments if whole(assignment.place)
    ]
    options = [option.name for launch in script.launches for option in launch.options if whole(option.whole)]
    return comments, variables, options


def in_order(some: list[str], all_of: list[str]) -> bool:
    rest = iter(all_of)
    return all(any(each == other for other in rest) for each in some)


def test_there_is_much_to_repair() -> None:
    """Enough texts are repaired for these tests to mean something."""
    assert sum(1 for part in range(PARTS) for _ in repaired(part)) >= LEAST
