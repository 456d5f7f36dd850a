"""What changed between two releases, held against LMDeploy's own parsers of both."""

import argparse
import contextlib
import io
import json
import re
from itertools import pairwise
from typing import Any

import pytest
from artefacts import RELEASES, parser, release_facts
from click.testing import CliRunner
from packaging.version import Version

from recommender.commands.diff import command
from recommender.knowledge.load import load
from recommender.lookup import release_diff, short_text
from recommender.lookup.release_diff_text import lines, name_holes

STORE = load()
PAIRS = [
    ("0.9.2", "0.18.0"), ("0.18.0", "0.9.2"), ("0.7.0", "0.18.0"), ("0.7.0", "0.7.0.post2"), ("0.7.2", "0.8.0"),
    ("0.8.0", "0.9.0"), ("0.9.0", "0.10.0"), ("0.10.2", "0.11.0"), ("0.11.1", "0.12.0"), ("0.12.3", "0.13.0"),
    ("0.13.0", "0.14.0"), ("0.14.0", "0.15.0"), ("0.15.0", "0.12.1"), ("0.16.0", "0.18.0"),
]  # fmt: skip


def made(old: str, new: str) -> release_diff.Diff:
    return release_diff.diff(STORE, STORE.releases[old], STORE.releases[new])


def actions(release: str) -> dict[str, Any]:
    """The options of a release's own parser by their long names."""
    found = {}
    for action in parser(release)._actions:
        for name in action.option_strings:
            if name.startswith("--") and name != "--help":
                found[name] = action
    return found


def starts(release: str, *words: str) -> bool:
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            parser(release).parse_args(["model", *words])
        except SystemExit:
            return False
    return True


def value(action: Any) -> list[str]:
    if action.nargs == 0:
        return []
    for text in (*map(str, action.choices or ()), "1", "{}"):
        with contextlib.suppress(ValueError, TypeError, argparse.ArgumentTypeError):
            if action.type:
                action.type(text)
            return [text]
    raise AssertionError(action)


def kind(action: Any) -> str:
    """What an option's value is read as; a number that has a name too is a number."""
    name = str(getattr(action.type, "__qualname__", action.type))
    return "int" if name.startswith("_named_number") else name


def as_text(value: object) -> str:
    """A parser's default as the records write it."""
    if value is None:
        return ""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_options_come_and_go_as_in_the_parsers(old: str, new: str) -> None:
    """What is gone and what is new are the differences of the two parsers' options, no more and no less."""
    found, before, after = made(old, new), actions(old), actions(new)
    assert {each.name for each in found.removed} == before.keys() - after.keys()
    assert {each.name for each in found.added} == after.keys() - before.keys()
    for each in found.removed:
        words = [each.name, *value(before[each.name])]
        assert starts(old, *words)
        assert not starts(new, *words)


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_defaults_and_choices_change_as_in_the_parsers(old: str, new: str) -> None:
    """For every option of both releases the told default and choices are those of the parsers, and none is missing."""
    found, before, after = made(old, new), actions(old), actions(new)
    told = {(each.name, one.what): one for each in found.changed for one in each.changes}
    for name in before.keys() & after.keys():
        if before[name].nargs == 0:
            assert (after[name].nargs == 0) == ((name, "type") not in told)
            continue
        defaults = as_text(before[name].default), as_text(after[name].default)
        if defaults[0] != defaults[1]:
            assert (told[name, "default"].before, told[name, "default"].after) == defaults
        else:
            assert (name, "default") not in told
        choices = [{as_text(each) for each in action.choices or ()} for action in (before[name], after[name])]
        if choices[0] != choices[1]:
            assert [
                set(text.split()) for text in (told[name, "choices"].before, told[name, "choices"].after)
            ] == choices
        else:
            assert (name, "choices") not in told
        assert ((name, "type") in told) == (kind(before[name]) != kind(after[name]))


def test_the_other_way_round_is_the_mirror() -> None:
    """Back from the newer release: what came goes, what was gained is lost, and the text says the direction."""
    on, back = made("0.9.2", "0.18.0"), made("0.18.0", "0.9.2")
    assert (on.back, back.back) == (False, True)
    assert {each.name for each in on.added} == {each.name for each in back.removed}
    assert {each.id for each in on.threads_gone} == {each.id for each in back.threads_new}
    assert {each.id for each in on.claims_new} == {each.id for each in back.claims_gone}
    assert "back to the older 0.9.2" in " ".join(lines(back))


def test_the_release_of_a_change_is_the_nearest_one() -> None:
    """An option that is gone names the last release that had it; a new one names the first since."""
    found = made("0.9.2", "0.18.0")
    for each in found.removed:
        later = RELEASES[RELEASES.index(each.release) + 1]
        assert each.name in actions(each.release)
        assert each.name not in actions(later)
    for each in found.added:
        earlier = RELEASES[RELEASES.index(each.release) - 1]
        assert each.name in actions(each.release)
        assert each.name not in actions(earlier)


def test_a_later_name_is_told() -> None:
    """The record of an option that was renamed points at its later name."""
    (renamed,) = [each for each in made("0.14.0", "0.15.0").removed if each.name == "--disable-vision-encoder"]
    assert renamed.see == ("--language-model-only",)


def test_needs_are_those_of_the_wheels() -> None:
    """What a release needs is what its METADATA asks for."""
    found = {each.name: each for each in made("0.9.2", "0.18.0").needs}
    for name in ("torch", "transformers"):
        for release, said in (("0.9.2", found[name].before), ("0.18.0", found[name].after)):
            asked = release_facts(release).requires.get(name, "")
            assert set(said.split(",")) == set(asked.split(",")) or (said, asked) == (">=0", ""), (name, release)


def test_the_same_release_changes_nothing() -> None:
    """A release and itself: said so, and status 0."""
    done = CliRunner().invoke(command, ["0.18.0", "v0.18.0"])
    assert done.exit_code == 0
    assert "nothing changes" in done.stdout


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_the_text_is_80_columns_wide(old: str, new: str) -> None:
    """No line is wider, but for one word that can be copied."""
    wide = [line for line in lines(made(old, new)) if len(line) > 80]
    assert not wide


def test_the_json_is_complete() -> None:
    """Each field of the difference is in the JSON, and nothing but ASCII."""
    done = CliRunner().invoke(command, ["0.9.2", "0.18.0", "--json"])
    read = json.loads(done.stdout)
    assert done.stdout.isascii()
    assert read["format"] == 1
    assert set(read) == {"format", *release_diff.Diff.__slots__}
    assert [each["name"] for each in read["removed"]] == [each.name for each in made("0.9.2", "0.18.0").removed]
    assert read["changed"][0]["sources"]["code"]


def test_rules_name_what_they_fill_in() -> None:
    """A rule's message has no case to be about: what it would fill in is named."""
    assert name_holes("{gpu.name} has {gpu.compute_capability}") == "<name> has <compute capability>"
    assert name_holes("{model.hub} in LMDeploy {lmdeploy}") == "<model> in LMDeploy <release>"
    assert "{" not in "".join(lines(made("0.7.0", "0.18.0")))


def test_an_unknown_release_is_one_line() -> None:
    """Status 2 and what is near."""
    from artefacts import recommend_here

    done = recommend_here("diff", "0.9.2", "0.18.1")
    assert done.returncode == 2
    assert b"did you mean 0.18.0" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_a_count_of_one_is_in_the_singular() -> None:
    """Of each two releases that follow each other, in the short form: no 1 known issues."""
    releases = sorted(STORE.releases, key=Version)
    ones = set()
    for old, new in pairwise(releases):
        text = " ".join(" ".join(short_text.diff(made(old, new))).split())
        ones |= set(re.findall(r"(?<![\d.,])1 (?:known issue|new option|rule|verdict)s?\b", text))
    assert ones
    assert not {each for each in ones if each.endswith("s")}
