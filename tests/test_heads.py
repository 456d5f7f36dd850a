"""Heads of generated files that somebody mangled: one line about that file, and the others are judged."""

import json
import random
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from artefacts import command

from recommender.choose.recommend import recommend
from recommender.render import head, seal
from recommender.render.formats import render
from recommender.request.request import Request

MUTATIONS, SEED = 150, 20261123
SERVE = "lmdeploy serve api_server internlm/internlm3-8b-instruct --tp 3\n"
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2.5, 1e308, float("nan"), float("inf"), 10**30, "", "x", "single"),
    *("high", "\0", "\ud800"),
    *([], ["x"], [[]], {}, {"a": 1}, {"a": "b"}, [None], "L4", "H100-80G", "0.9.2", "x" * 20_000, "auto", "defaults"),
)  # fmt: skip
FIELDS = (*(field.name for field in fields(Request)), "follow", "with", "without", "other")


@pytest.fixture(scope="module")
def written() -> str:
    return render(recommend(Request("h100-sxm-80g", load="single")), "bash")


def mutated(chance: random.Random, text: str) -> str:
    line = next(line for line in text.splitlines() if line.startswith("# request: "))
    request = json.loads(line.removeprefix("# request: "))
    for _ in range(chance.choice((1, 1, 2, 4))):
        request[chance.choice(FIELDS)] = chance.choice(VALUES)
    body = json.dumps(request, ensure_ascii=chance.random() < 0.8)
    if chance.random() < 0.3:
        at = chance.randrange(len(body))
        body = body[:at] + chance.choice(("", "{", "}", "[", '"', ",", "null", "\t", "[" * 500)) + body[at + 1 :]
    if chance.random() < 0.1:
        body = json.dumps(chance.choice(VALUES))
    begin = chance.choice(("# request: ", "#request: ", "#  request:", "# request:\t"))
    return text.replace(line, begin + body.replace("\n", " "))


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Any) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    yield
    assert capfd.readouterr() == ("", "")


def test_mangled_heads_end_no_review(written: str, tmp_path: Any) -> None:
    """Many at once: each has its place in the report, and the good file its finding."""
    chance = random.Random(SEED)
    for number in range(MUTATIONS):
        text = mutated(chance, written).encode("utf-8", "replace")
        (tmp_path / f"bad{number}.sh").write_bytes(text)
    (tmp_path / "good.sh").write_text(SERVE)
    status, out, err = command("review", ".", "--format", "json", "--gpu", "H100-80G")
    assert status == 1, err[-2000:]
    assert "internal error" not in err
    findings = json.loads(out)["findings"]
    judged = {finding["path"].removeprefix("./") for finding in findings}
    assert "good.sh" in judged
    told = [finding for finding in findings if "request in its head" in finding["message"]]
    assert len(told) > MUTATIONS // 4


def test_mangled_heads_end_no_check(written: str, tmp_path: Any) -> None:
    """Each is compared, or has one line that names it; the good file is compared."""
    chance = random.Random(SEED + 1)
    names = [f"bad{number}.sh" for number in range(60)]
    for name in names:
        (tmp_path / name).write_bytes(mutated(chance, written).encode("utf-8", "replace"))
    (tmp_path / "good.sh").write_text(written)
    status, out, err = command("check", *names, "good.sh", "--json")
    assert status == 2, err[-2000:]
    assert "internal error" not in err
    whole = json.loads(out)
    compared = {file["path"] for file in whole["files"]}
    refused = {error.partition(": ")[0] for error in whole["errors"]}
    assert compared | refused == {*names, "good.sh"}
    assert "good.sh" in compared
    assert len(refused) > 15


def test_mangled_heads_end_a_dry_run_in_one_line(written: str, tmp_path: Any) -> None:
    """Smoke reads the same line, with the same exit code as for a wrong command line."""
    chance = random.Random(SEED + 2)
    refused = 0
    for number in range(60):
        name = f"bad{number}.sh"
        (tmp_path / name).write_bytes(mutated(chance, written).encode("utf-8", "replace"))
        status, _, err = command("smoke", name, "--dry-run", "--text-only")
        assert status in (0, 1, 2), (status, err[-500:])
        if status == 2:
            refused += 1
            assert len(err.strip().splitlines()) == 1, err
    assert refused > 15


def test_every_field_has_its_type() -> None:
    """Each field of a request in turn, with a value of every other type."""
    good = {field.name: field.default for field in fields(Request)} | {"gpu": "L4"}
    assert head.check_types(dict(good)) == good
    for name, value in good.items():
        for wrong in (None, [], {}, True, "1" if not isinstance(value, str) else 1):
            with pytest.raises(head.HeadError, match=rf"\({name} has a wrong value\); render it anew"):
                head.check_types(good | {name: wrong})
    for name, wrong in (("follow", 1), ("with", []), ("with", {"a": 1}), ("without", {}), ("without", [1])):
        with pytest.raises(head.HeadError, match=name):
            head.check_types(good | {name: wrong})


@pytest.mark.parametrize("begin", ["# request: ", "#request: ", "#request:", "#\trequest:  "])
def test_one_reader_takes_the_line_with_and_without_blanks(begin: str, written: str) -> None:
    """So that review, check and smoke see the same request."""
    from recommender.review.context import artefact_request
    from recommender.review.readers.detect_kind import read

    text = written.replace("# request: ", begin)
    assert head.read_head(text) == head.read_head(written)
    assert seal.read_request(seal.read(text)) == head.read_head(written)
    request = artefact_request(read("a.sh", text))
    assert (request.gpu, request.load) == ("h100-sxm-80g", "single")


def test_a_head_that_cannot_be_used_is_said(written: str, tmp_path: Any) -> None:
    """Review still judges the file, without the head's request."""
    line = next(line for line in written.splitlines() if line.startswith("# request: "))
    (tmp_path / "a.sh").write_text(written.replace(line, '# request: {"gpu": ["H100"], "load": 7}'))
    status, out, _ = command("review", "a.sh")
    assert status == 1
    assert "gpu has a wrong value" in out


def test_a_file_with_hard_links_is_not_updated(written: str, tmp_path: Any) -> None:
    """One line says why; a symbolic link is followed, and stays."""
    old = f"{written}# edited\n"
    (tmp_path / "a.sh").write_text(old)
    (tmp_path / "b.sh").hardlink_to(tmp_path / "a.sh")
    (tmp_path / "c.sh").write_text(old)
    (tmp_path / "d.sh").symlink_to("c.sh")
    status, _, err = command("check", "a.sh", "d.sh", "--update", "--discard-edits")
    assert status == 2
    assert err.count("\n") == 1
    assert "a.sh: cannot be written: it has 2 names (hard links)" in err
    assert (tmp_path / "a.sh").read_text() == (tmp_path / "b.sh").read_text() == old
    assert (tmp_path / "d.sh").is_symlink()
    assert (tmp_path / "c.sh").read_text() == written
