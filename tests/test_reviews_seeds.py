"""The golden reviews of the seeds' code blocks: their form, and that each of them points into its block.

The seed texts are not part of the repository; without them only the form is looked at.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from labels import MAYBE, assert_file, assert_label
from seedblocks import FILES, Entry, digest, entry, every_block, put_into, reviewed, texts
from seeds import ROOT, Seeds

EVIDENCE = {path.stem for path in (ROOT / "knowledge" / "evidence").rglob("*.yaml")}
FIELDS = ["seed", "block", "sha256", "kind", "launches", "context", "labels", "maybe", "clean"]
CLEAN = ["what", "where", "why"]
MOST_WORDS = 4


def findings(one: Entry) -> list[dict[str, Any]]:
    """Everything in a golden review that points at a place."""
    return [*one["labels"], *one["maybe"], *one["clean"]]


def places(one: Entry) -> Iterator[dict[str, Any]]:
    """Every place that a golden review points at."""
    for finding in findings(one):
        yield finding["where"]
        yield from finding["where"].get("also", [])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_review_has_its_fields(path: Path) -> None:
    """The fields stand in their order, and the file is named after its block."""
    one = entry(path)
    assert [field for field in one if field != "into"] == FIELDS
    name = f"{one['seed'][:3]}-{one['block']}"
    if "into" in one:
        assert list(one["into"]) == ["seed", "block", "options"]
        name += f"-in-{one['into']['seed'][:3]}-{one['into']['block']}"
    assert path.stem == name
    assert re.fullmatch(r"[0-9a-f]{64}", one["sha256"])
    assert one["kind"] in {"bash", "python", "text"}
    assert_file(path, one)
    assert one["context"]["release_from"] == "assumed"
    assert one["context"]["gpu"] in {"H100-80G", "A100-80G"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_its_findings_have_their_fields(path: Path) -> None:
    """A label says why and from where, a maybe what it depends on, and what is clean why it is."""
    one = entry(path)
    for label in one["labels"]:
        assert_label({name: said for name, said in label.items() if name != "once"}, "evidence")
        assert set(label["source"].get("evidence", [])) <= EVIDENCE
    assert all(list(maybe) == MAYBE for maybe in one["maybe"])
    assert all(list(clean) == CLEAN for clean in one["clean"])
    for place in places(one):
        assert set(place) <= {"line", "token", "to", "also"}
        assert 1 <= len(place["token"].split()) <= MOST_WORDS


def test_only_what_launches_a_server_has_labels() -> None:
    """Each launch has labels and something that only looks wrong; the rest has no label."""
    for path in FILES:
        one = entry(path)
        assert bool(one["labels"]) == one["launches"], path.stem
        assert one["clean"] or not one["launches"], path.stem


def test_no_block_is_labelled_twice_for_the_same_thing() -> None:
    """One finding is one label, and stands either under the labels or under maybe."""
    for path in FILES:
        counted = Counter((label["what"], label["where"]["token"]) for label in findings(entry(path)))
        assert [key for key, times in counted.items() if times > 1] == [], path.stem


def test_every_code_block_has_a_review(seeds: Seeds) -> None:
    """No block of the five texts is left out, and no review is of a block that is not there."""
    there = {f"{seed}-{ordinal}" for seed, ordinal, _ in every_block(seeds)}
    assert {path.stem for path in FILES if "into" not in entry(path)} == there


def test_the_blocks_are_those_that_were_reviewed(seeds: Seeds) -> None:
    """Each text is the one that was read, and those that start a server are marked so."""
    for path in FILES:
        one = entry(path)
        text = reviewed(seeds, one)
        assert (seeds.where / one["seed"]).is_file()
        assert digest(text) == one["sha256"], path.stem
        assert one["launches"] == bool(re.search(r"^\s*(exec )?lmdeploy serve ", text, re.MULTILINE)), path.stem


def test_each_finding_points_into_its_block(seeds: Seeds) -> None:
    """The token stands on the line that the review gives."""
    for path in FILES:
        one = entry(path)
        lines = reviewed(seeds, one).split("\n")
        for place in places(one):
            assert place["token"] in lines[place["line"] - 1], (path.stem, place)
            assert place["line"] <= place.get("to", place["line"]) <= len(lines), (path.stem, place)


def test_no_sentence_of_the_texts_stands_in_a_review(seeds: Seeds) -> None:
    """No six words in a row are those of a seed: the texts are pointed at, not copied."""

    def runs(text: str) -> set[str]:
        words = re.findall(r"[^\W\d_]+", text.lower())
        return {" ".join(words[start : start + 6]) for start in range(len(words) - 5)}

    theirs = set().union(*(runs("\n".join(line for _, line in seeds.lines(name[:3]))) for name in names(seeds)))
    for path in FILES:
        one = entry(path)
        for finding in findings(one):
            ours = runs(f"{finding['what']}. {finding.get('why', '')} {finding.get('depends_on', '')}")
            assert not ours & theirs, (path.stem, ours & theirs)


def names(seeds: Seeds) -> list[str]:
    return sorted(path.name for path in seeds.where.glob("*.txt"))


def test_blocks_are_found_whatever_the_line_ends(tmp_path: Path) -> None:
    """A text saved with carriage returns has the same blocks."""
    (tmp_path / "002_x.txt").write_bytes(b"a\r\n```bash\r\none \\\r\n  two\r\n```\r\n")
    assert texts(Seeds(tmp_path), "002") == ["one \\\n  two"]


def test_pieces_are_put_into_a_script() -> None:
    """Exports of the same name are replaced, and options are added that the command lacks."""
    script = "export A=1\nexport B=2\nlmdeploy serve api_server m \\\n  --tp 1\necho end"
    assert put_into(script, "export B=3\nexport C=4", "--tp \\\n--new=5") == (
        "export A=1\nexport B=3\nlmdeploy serve api_server m \\\n  --tp 1 \\\n        --new=5\necho end"
    )
