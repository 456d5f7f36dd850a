"""``recommend bench-prompt``: the same pictures through two launches, what is counted, and what is claimed."""

import csv
import hashlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import pytest
from artefacts import run_program, wait_for
from fleet import made_ahead, uses
from PIL import Image
from schemas import valid
from standin.machine import Standin
from test_smoke import AT_ONCE, BUSY_S, OWN, RECOMMEND, edited, listens, prepared, rendered

from recommender.commands import bench_prompt as bench_command
from recommender.common.errors import RequestError
from recommender.smoke.bench import answers, ask, report, statistics
from recommender.smoke.bench.ask import ImageAnswer, Round

ASKED = ("--gpu", "H100-80G", "--load", "4")
YES_NO = answers.Form(
    {"type": "object", "properties": {"seen": {"type": "boolean"}}, "required": ["seen"]}, enforced=True
)


# --- statistics ----------------------------------------------------------------------------------


def coins(one: int, other: int) -> Fraction:
    """The two-sided chance by writing out every way that so many coins can fall."""
    of, gap = one + other, abs(one - other)
    ways = [sum(faces) for faces in itertools.product((0, 1), repeat=of)]
    return Fraction(sum(abs(2 * heads - of) >= gap for heads in ways), len(ways))


@pytest.mark.parametrize(("one", "other"), list(itertools.product(range(8), range(5))))
def test_mcnemars_test_is_exact(one: int, other: int) -> None:
    """The chance of so uneven a count or a more uneven one, to the last digit, whichever way round."""
    assert statistics.sign_test(one, other) == statistics.sign_test(other, one) == float(coins(one, other))


def test_mcnemars_test_of_many() -> None:
    """Hundreds of pairs are no trouble: against a sum of fractions built by Pascal's rule."""
    row = [1]
    for _ in range(900):
        row = [1, *(left + right for left, right in itertools.pairwise(row)), 1]
    assert statistics.sign_test(430, 470) == pytest.approx(float(Fraction(2 * sum(row[:431]), 2**900)), rel=1e-12)
    assert 0 < statistics.sign_test(100, 800) < 1e-100


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [(0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718), (15, 148, 0.0624, 0.1605), (81, 263, 0.2553, 0.3662),
     (10, 10, 0.7225, 1.0)],
)  # fmt: skip
def test_wilsons_interval(count: int, of: int, low: float, high: float) -> None:
    """The published values of Newcombe's comparison of intervals (1998)."""
    assert statistics.wilson(count, of) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_the_paired_interval() -> None:
    """Newcombe's published case: 36 both, 12 only one, 2 only the other; and it lies mirrored the other way round."""
    one = [True] * 48 + [False] * 2
    other = [True] * 36 + [False] * 12 + [True] * 2
    low, high = statistics.newcombe(other, one)
    assert (low, high) == (pytest.approx(0.0569, abs=5e-5), pytest.approx(0.3404, abs=5e-5))
    assert statistics.newcombe(one, other) == (pytest.approx(-high), pytest.approx(-low))


def test_the_paired_interval_covers() -> None:
    """In at least 94 % of simulated comparisons it holds the true difference; where nothing differs it is not empty."""
    dice = random.Random(1)
    for of, weights in ((60, (50, 10, 5, 35)), (300, (90, 2, 3, 5))):
        truth, held = (weights[2] - weights[1]) / 100, 0
        for _ in range(500):
            drawn = dice.choices(range(4), weights, k=of)
            low, high = statistics.newcombe([each in (0, 1) for each in drawn], [each in (0, 2) for each in drawn])
            held += low <= truth <= high
        assert held >= 470
    for same in ([True] * 100, [False] * 100, [True, False] * 50):
        low, high = statistics.newcombe(same, same)
        assert -0.06 < low < 0 < high < 0.06


def made(**values: Any) -> Round:
    """A pass with these values; an exception's text is a cause."""
    failed = ImageAnswer(cause="too-long", message="HTTP 400")
    answers = {name: ImageAnswer(value, ms=10.0) if value != "!" else failed for name, value in values.items()}
    return Round(answers, window_s=0.5)


def test_what_is_counted() -> None:
    """Only pictures that both answered are compared; accuracy is each one's own; failures count for nothing."""
    a = made(p=True, q=True, r=False, s="!", t=True)
    again = made(p=True, q=False, r=False, s=True, t=True)
    b = made(p=False, q=True, r=False, s=True, u=True)
    found = statistics.compare_answers(a, again, b, {"p": True, "q": False, "s": True, "t": True, "x": True})
    assert (found.agreement.count, found.agreement.of) == (2, 3)
    assert (found.itself.count, found.itself.of) == (3, 4)
    assert (found.beyond.of, found.beyond.first, found.beyond.second) == (3, 1, 1)
    assert found.different == ("p",)
    right = found.accuracy
    assert [(each.count, each.of) for each in (right.a, right.again, right.b)] == [(2, 3), (4, 4), (1, 3)]
    assert (right.pairs.of, right.pairs.first, right.pairs.second, right.pairs.p_value) == (2, 1, 0, 1.0)
    assert right.difference == -0.5
    assert statistics.count_failures(a) == {"too-long": (1, "HTTP 400")}
    assert (
        statistics.measure_speed(a).answered,
        statistics.measure_speed(a).rate,
        statistics.measure_speed(a).p95_ms,
    ) == (4, 8.0, 10.0)


def test_nothing_to_compare() -> None:
    """Without answers, without B or without labels there are no figures, and no division by nothing."""
    empty = statistics.compare_answers(Round(), None, None, {})
    assert (empty.agreement, empty.itself, empty.beyond, empty.accuracy) == (None, None, None, None)
    assert statistics.measure_speed(Round()) == statistics.MeasuredSpeed(0, 0.0, 0.0, 0.0)
    alone = statistics.compare_answers(made(p=True), None, None, {"p": True})
    assert (alone.agreement, alone.accuracy.a.count, alone.accuracy.b, alone.accuracy.pairs) == (None, 1, None, None)


@pytest.mark.parametrize(("first", "second"), [(5, 0), (0, 5), (6, 0), (0, 6), (9, 2), (14, 6), (1, 1)])
def test_interval_and_test_never_say_different_things(first: int, second: int) -> None:
    """The interval leaves out 0 just where the exact test calls it a difference, and then a side is named."""
    both = 40 - first - second
    a = made(**{f"p{k}": k < both + first for k in range(40)})
    b = made(**{f"p{k}": k < both or k >= both + first for k in range(40)})
    found = statistics.compare_answers(a, None, b, {f"p{k}": True for k in range(40)}).accuracy
    assert (found.pairs.first, found.pairs.second) == (first, second)
    sure = coins(first, second) < Fraction(1, 20) if first + second < 15 else found.pairs.p_value < 0.05
    assert (found.low > 0 or found.high < 0) == sure
    said = report._verdict(found.pairs)
    assert said.startswith("A is" if first > second else "B is") if sure else "do not show" in said
    assert ("at least 6" in said) == (first + second < 6)


def test_a_chance_in_words() -> None:
    """As many digits as it is worth, and never a flat nothing."""
    shown = [report.percent(each) for each in (1.0, 0.34375, 0.0999, 0.0016, 0.0001)]
    assert shown == ["100 %", "34 %", "10.0 %", "0.2 %", "under 0.1 %"]


# --- answers -------------------------------------------------------------------------------------


def test_the_value_of_an_answer() -> None:
    """The one property's value; of several the whole; of free text the text; a fence only where no schema is held."""
    assert YES_NO.value('{"seen": true}') is True
    free = answers.Form(YES_NO.schema, enforced=False)
    assert free.value('```json\n{"seen": false}\n```') is False
    several = answers.Form({"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}}, enforced=True)
    assert several.value('{"b": [1], "a": 2}') == {"a": 2, "b": [1]}
    assert answers.Form(None, enforced=False).value(" Yes. \n") == "Yes."


@pytest.mark.parametrize(
    ("text", "why"),
    [('{"seen": tr', "not JSON"), ('{"seen": "yes"}', "seen is no boolean"), ("{}", "missing"), ("[]", "no object"),
     ('```json\n{"seen": true}\n```', "not JSON")],
)  # fmt: skip
def test_answers_that_cannot_be_read(text: str, why: str) -> None:
    """Each says why."""
    with pytest.raises(answers.UnreadableAnswer, match=why):
        YES_NO.value(text)


def test_an_answer_outside_the_schemas_values() -> None:
    """A value that the schema does not list is no answer; neither is one without its optional property."""
    form = answers.Form({"type": "object", "properties": {"kind": {"type": "string", "enum": ["car"]}}}, enforced=False)
    for text in ('{"kind": "bus"}', "{}"):
        with pytest.raises(answers.UnreadableAnswer):
            form.value(text)


def test_true_is_not_one() -> None:
    """Equality of parsed values; numbers are equal by value."""
    assert answers.same_value({"a": [1]}, {"a": [1.0]})
    assert not answers.same_value(True, 1)
    assert not answers.same_value("a", "A")


# --- labels --------------------------------------------------------------------------------------

NAMES = ("a.jpg", "night/b.png", "night/c.jpg", "day/c.jpg")


def labels(folder: Path, text: str | bytes, form: answers.Form = YES_NO) -> dict[str, Any]:
    """The labels of a file with this text, of images in the folder photos."""
    path = folder / "labels.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return answers.read_labels(path, Path("photos"), NAMES, form)


@pytest.mark.parametrize(
    "text",
    ["image,label\na.jpg,1\nnight/b.png,no\n", "a.jpg,TRUE\nnight/b.png,false\n", "a.jpg;yes\r\nb.png;0\r\n",
     b"\xef\xbb\xbfImage,note,Label\r\na.jpg,x,Yes\r\n\r\nnight/b.png,,No\r\nday/c.jpg,later,\r\n",
     "a.jpg\t1\n./night/b.png\t0\n", "photos/a.jpg,1\nnight\\b.png,0\n", '"a.jpg", 1 \na.jpg,yes\nb.png,0\n'],
)  # fmt: skip
def test_label_files_that_are_understood(text: str | bytes, tmp_path: Path) -> None:
    """With a header or without, other separators and columns, a byte order mark, paths and plain file names."""
    assert labels(tmp_path, text) == {"a.jpg": True, "night/b.png": False}


@pytest.mark.parametrize(
    ("text", "why"),
    [("a.jpg,1\nnight/bb.png,0\n", r"labels.csv:2: no image 'night/bb.png' in --images: did you mean night/b.png"),
     ("a.jpg,maybe\n", r"csv:1: 'maybe' is not true, 1, yes, false, 0 or no; write lines image,label"),
     ("file,truth\na.jpg,1\n", r"csv:1: no image 'file' .*\(a header line needs the columns image and label\)"),
     ("c.jpg,1\n", r"csv:1: 2 images are named 'c.jpg'; write the path inside --images"),
     ("a.jpg,1\n\na.jpg,0\n", r"csv:3: a.jpg has another label on line 1; keep one"),
     ("a.jpg\n", r"csv:1: image or label missing; write lines image,label"),
     ("image,label\n", r"no labels; write lines image"), ("", r"no labels"), (b"a.jpg,\xff\n", "UTF-8")],
)  # fmt: skip
def test_label_files_that_are_not(text: str | bytes, why: str, tmp_path: Path) -> None:
    """One line: the file, the line, what is wrong, how to mend it."""
    with pytest.raises(RequestError, match=why) as raised:
        labels(tmp_path, text)
    assert "\n" not in str(raised.value)


def test_labels_of_other_answers(tmp_path: Path) -> None:
    """Words are words, listed values are checked, numbers and objects are JSON, free text is text."""

    def form(part: dict[str, Any]) -> answers.Form:
        return answers.Form({"type": "object", "properties": {"x": part}}, enforced=True)

    assert labels(tmp_path, "a.jpg, car \n", form({"type": "string"})) == {"a.jpg": "car"}
    assert labels(tmp_path, "a.jpg,3\n", form({"type": "integer"})) == {"a.jpg": 3}
    assert labels(tmp_path, "a.jpg,No.\n", answers.Form(None, enforced=False)) == {"a.jpg": "No."}
    whole = answers.Form({"type": "object", "properties": {"x": {}, "y": {}}}, enforced=True)
    assert labels(tmp_path, 'a.jpg,"{""x"": 1, ""y"": true}"\n', whole) == {"a.jpg": {"x": 1, "y": True}}
    with pytest.raises(RequestError, match="'bus' is not an answer of the schema: known are car"):
        labels(tmp_path, "a.jpg,bus\n", form({"type": "string", "enum": ["car"]}))
    with pytest.raises(RequestError, match="'many' is not JSON; answers have type integer"):
        labels(tmp_path, "a.jpg,many\n", form({"type": "integer"}))


# --- the folder ----------------------------------------------------------------------------------


def paint(path: Path, *, truth: bool, kv: bool = False, tile: bool = False, fickle: bool = False, cut: bool = False,
          size: tuple[int, int] = (64, 48)) -> None:  # fmt: skip
    """A picture that the stand-in answers as told: see Engine.look."""
    path.parent.mkdir(parents=True, exist_ok=True)
    green, blue = 255 if kv else 128 if tile else 0, 255 if fickle else 128 if cut else 0
    Image.new("RGB", size, (255 if truth else 0, green, blue)).save(path)


def test_what_is_found_in_a_folder(tmp_path: Path) -> None:
    """Below it too, in the order of the names, by any spelling of the ending; hidden files are no photos."""
    for name in ("b.JPG", "a/z.png", "a/.hidden.jpg", ".cache/c.jpg", "c.jpeg"):
        paint(tmp_path / name, truth=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "really.png", "JPEG")
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "d.webp").write_bytes(b"")
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "empty.png").write_bytes(b"")
    Image.new("RGB", (8, 8)).save(tmp_path / "anim.jpg", "GIF")
    found = ask.find_pictures(tmp_path, 0)
    assert [picture.name for picture in found.pictures] == ["a/z.png", "b.JPG", "c.jpeg", "really.png"]
    assert [picture.kind for picture in found.pictures] == ["png", "jpeg", "jpeg", "jpeg"]
    assert found.pictures[1].sha256 == hashlib.sha256((tmp_path / "b.JPG").read_bytes()).hexdigest()
    assert set(found.unreadable) == {"broken.jpg", "empty.png", "anim.jpg"}
    assert found.passed_by == 1
    assert len(found.names) == 7


def test_a_part_is_spread_evenly(tmp_path: Path) -> None:
    """--limit does not take the first ones only, which may be all of one kind."""
    for number in range(10):
        paint(tmp_path / f"{number}.png", truth=True)
    assert [picture.name[0] for picture in ask.find_pictures(tmp_path, 4).pictures] == ["0", "2", "5", "7"]
    assert len(ask.find_pictures(tmp_path, 99).pictures) == 10


def test_folders_without_pictures(tmp_path: Path) -> None:
    """No folder, no picture, another format or only broken ones: one line each."""
    with pytest.raises(RequestError, match="not a folder; name one"):
        ask.find_pictures(tmp_path / "gone", 0)
    with pytest.raises(RequestError, match=r"no jpg, jpeg or png file in it$"):
        ask.find_pictures(tmp_path, 0)
    (tmp_path / "a.heic").write_bytes(b"x")
    with pytest.raises(RequestError, match=r"1 images of another format: convert them"):
        ask.find_pictures(tmp_path, 0)
    (tmp_path / "a.jpg").write_bytes(b"x")
    with pytest.raises(RequestError, match="none of its 1 files is a readable image"):
        ask.find_pictures(tmp_path, 0)


# --- the command line ----------------------------------------------------------------------------

TEXT = ("--gpu", "H100-80G", "--text-only")
WRONG = {
    "no such script": (("gone.sh", "a.sh"), r"gone\.sh: No such file"),
    "a pipeline": (("a.sh", "p.py"), r"p\.py: a pipeline\.py starts no server"),
    "by hand without a GPU": (("a.sh", "own.sh"), r"own\.sh: recommend did not write this .* --gpu"),
    "text only": (("t.sh", "a.sh"), r"t\.sh: its request has no image.*pass --prompt"),
    "a text model": (("own.sh", "a.sh", "--gpu", "H100-80G", "--model", "qwen2.5-7b-instruct"), "reads text only"),
    "tiles": (("a.sh", "a.sh", "--tiles", "12"), r"--tiles '12': write two numbers up to 64"),
    "tiles that are not read": (
        ("own.sh", "a.sh", "--gpu", "H100-80G", "--model", "internvl3-8b-hf", "--tiles", "0,6"),
        r"--tiles: LMDeploy reads no max_dynamic_patch for OpenGVLab/InternVL3-8B-hf",
    ),
    "too many tiles": (("a.sh", "a.sh", "--tiles", "12,65"), r"--tiles '12,65'"),
    "labels": (("a.sh", "a.sh", "--labels", "wrong.csv"), r"wrong\.csv:1: no image 'c\.jpg' .*did you mean"),
    "no labels": (("a.sh", "a.sh", "--labels", "gone.csv"), r"--labels gone\.csv: No such file"),
    "schema": (("a.sh", "a.sh", "--schema", "wrong.csv"), r"--schema wrong\.csv: invalid JSON: .* or none"),
    "schema's kind": (("a.sh", "a.sh", "--schema", "list.json"), "not a JSON schema of an object"),
    "one script": (("a.sh",), "Missing argument 'B.sh'"),
    "limit": (("a.sh", "a.sh", "--limit", "0"), "not in the range"),
}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lines")
    (folder / "a.sh").write_text(rendered(*ASKED))
    (folder / "t.sh").write_text(rendered(*TEXT))
    (folder / "p.py").write_text(rendered(*ASKED, "--format", "python"))
    (folder / "own.sh").write_text(OWN)
    (folder / "wrong.csv").write_text("c.jpg,1\n")
    (folder / "list.json").write_text('{"properties": {"a": {"type": ["string", "null"]}}}')
    paint(folder / "photos" / "cc.jpg", truth=True)
    return folder


@pytest.mark.parametrize("case", WRONG)
def test_wrong_command_lines(case: str, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is one line that says what is wrong, before anything starts."""
    words, piece = WRONG[case]
    monkeypatch.chdir(workplace)
    with pytest.raises((RequestError, click.ClickException)) as raised:
        bench_command.command.main(["--images", "photos", *words], standalone_mode=False)
    said = raised.value.format_message() if isinstance(raised.value, click.ClickException) else str(raised.value)
    assert re.search(piece, said), said
    assert "\n" not in said


def test_the_command_ends_with_one_line(workplace: Path) -> None:
    """Exit code 2, nothing on stdout; the help of the whole lists the command, and its own fits 80 columns."""
    environment = {"PYTHONPATH": str(Path(__file__).parent.parent), "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}

    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        return run_program([*RECOMMEND, *words], env=environment, cwd=workplace, timeout=BUSY_S)

    done = ran("bench-prompt", "--images", "nowhere", "a.sh", "a.sh")
    assert (done.returncode, done.stdout) == (2, "")
    *before, last = done.stderr.splitlines()
    assert last == "recommend: --images nowhere: not a folder; name one with jpg, jpeg or png files"
    assert set(before) <= {"recommend bench-prompt: reading the images"}  # progress, on a slow machine
    assert re.search(r"^  bench-prompt +Compare two", ran("--help").stdout, re.MULTILINE)
    told = ran("bench-prompt", "--help-all").stdout
    assert max(map(len, told.splitlines())) <= 80
    for piece in ("image,label", "true, 1 or yes", "Examples:", "Exit codes:"):
        assert piece in told


# --- whole runs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Photo:
    """A picture, what is true of it by its label (None: no label), and what makes the answers differ."""

    name: str
    truth: bool
    label: bool | None
    kv: bool = False
    fickle: bool = False
    cut: bool = False


def photos() -> list[Photo]:
    """24 pictures: three that a quantised cache turns round, one fickle, one whose answer is cut, one unlabelled."""
    found = []
    for number in range(24):
        truth = number % 2 == 1
        label: bool | None = truth != (number in (2, 4))
        found.append(
            Photo(
                f"{'night/' if number % 3 == 0 else ''}p{number:02}.{'png' if number % 4 else 'jpg'}", truth,
                None if number == 10 else label, number in (1, 2, 3), number == 5, number == 7,
            )
        )  # fmt: skip
    return sorted(found, key=lambda each: each.name)


PHOTOS = photos()


@dataclass
class Ran:
    code: int
    out: str
    err: str
    machine: Standin
    left: dict[int, str]
    folders: list[Path]

    @property
    def asked(self) -> list[dict[str, Any]]:
        lines = (self.machine.folder / "state" / "asked").read_text().rpartition("\n")[0].splitlines()
        own = {
            hashlib.sha256(path.read_bytes()).hexdigest() for path in self.machine.folder.glob("work/photos/**/p*.*")
        }
        return [each for each in map(json.loads, lines) if each["sha256"] in own]


def ready(folder: Path, a: str, b: str, *, real: bool = True, fault: str = "", **variables: str) -> dict[str, str]:
    machine, environment = prepared(folder, fault, 1, {"STANDIN_SEES": "1", **variables})
    ready.machines[folder] = machine  # type: ignore[attr-defined]
    if real:
        config = folder / "model" / "config.json"
        plain = json.loads(config.read_text())
        plain.pop("synthetic")
        config.write_text(json.dumps(plain))
    work = folder / "work"
    for number, each in enumerate(PHOTOS):  # no two of one size: each has bytes of its own
        path = work / "photos" / each.name
        paint(path, truth=each.truth, kv=each.kv, fickle=each.fickle, cut=each.cut, size=(64 + number, 48))
    with (work / "labels.csv").open("w", newline="") as file:
        write = csv.writer(file)
        write.writerow(("image", "label"))
        write.writerows((each.name, "yes" if each.label else "no") for each in PHOTOS if each.label is not None)
    (work / "a.sh").write_text(a)
    (work / "b.sh").write_text(b)
    return environment


ready.machines = {}  # type: ignore[attr-defined]


def run(folder: Path, *words: str, a: str = "", b: str = "", patience: str = "20", extra: str = "", **more: Any) -> Ran:
    environment = ready(folder, a or SCRIPTS["fp16"](), b or SCRIPTS["int8"](), **more)
    if extra:
        (folder / "work" / "photos" / extra).write_bytes(b"no picture at all")
    command = [*RECOMMEND, "bench-prompt", "--images", "photos", "--patience", patience, *words, "a.sh", "b.sh"]
    done = run_program(command, env=environment, cwd=folder / "work", timeout=BUSY_S)
    machine = ready.machines[folder]  # type: ignore[attr-defined]
    return Ran(
        done.returncode, done.stdout, done.stderr, machine, machine.processes(), list((folder / "tmp").iterdir())
    )


def script(kv: str) -> Callable[[], str]:
    kept: list[str] = []

    def made() -> str:
        if not kept:
            kept.append(rendered(*ASKED, "--kv", kv))
        return kept[0]

    return made


SCRIPTS = {"fp16": script("fp16"), "int8": script("int8")}


def faulty(fault: str) -> str:
    return edited(SCRIPTS["int8"](), r"(?m)^set -euo pipefail$", f"set -euo pipefail\nexport STANDIN_FAULT={fault}")


RUNS: dict[str, Callable[[Path], Ran]] = {
    "json": lambda folder: run(folder, "--labels", "labels.csv", "--json", "--in-flight", "3"),
    "text": lambda folder: run(folder, "--labels", "labels.csv", extra="broken.jpg"),
    "tiles": lambda folder: run(
        folder, "--tiles", "12,1", "--no-repeat", "--limit", "5", "--prompt", "Is it broken?", "--json",
        b=SCRIPTS["fp16"](),
    ),
    "synthetic": lambda folder: run(folder, "--labels", "labels.csv", real=False),
    "own": lambda folder: run(folder, "--gpu", "H100-80G", "--schema", "none", "--no-repeat", a=OWN, b=OWN),
    "dies in B": lambda folder: run(folder, "--labels", "labels.csv", b=faulty("die-under-load:12")),
    "dies in A": lambda folder: run(folder, "--labels", "labels.csv", a=faulty("die-under-load:12")),
    "B does not start": lambda folder: run(folder, "--labels", "labels.csv", "--json", b=faulty("crash-start")),
    "B hangs": lambda folder: run(folder, "--no-repeat", b=faulty("hang-requests:12"), patience="5"),
    "B refuses": lambda folder: run(folder, "--no-repeat", b=faulty("error-200:12")),
    "late": lambda folder: run(folder, "--time-limit", "15", a=faulty("slow-start:60")),
    "no card": lambda folder: run(folder, STANDIN_CARDS="0"),
    "taken": lambda folder: run(folder, "--no-repeat", fault="other-release"),
}  # fmt: skip


@pytest.fixture(scope="module")
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Ran]]:
    """The runs that the chosen tests look at, made several at a time."""
    SCRIPTS["fp16"](), SCRIPTS["int8"]()
    yield from made_ahead(request, Path(__file__), "run_of", RUNS, AT_ONCE, tmp_path_factory)


def clean(ran: Ran) -> None:
    """Nothing is left, and nothing was said that no user should see."""
    assert ran.left == {}
    assert ran.folders == []
    assert not any("Traceback" in line for line in ran.err.splitlines() if not line.startswith("  | "))
    assert "\x1b" not in ran.out + ran.err
    assert [line for line in ran.out.splitlines() if len(line) > 80 and not ran.out.startswith("{")] == []


@uses("json")
def test_the_figures_are_those_of_the_pictures(fleet: Callable[[str], Ran]) -> None:
    """Agreement, accuracy and exact test against what the pictures' own flags give, counted here anew."""
    ran = fleet("json")
    clean(ran)
    assert ran.code == 20, ran.err  # one answer of each pass is cut
    told = valid("bench-prompt", ran.out)
    answered = [each for each in PHOTOS if not each.cut]
    agreement = told["agreement"]
    assert (agreement["agreement"]["count"], agreement["agreement"]["of"]) == (20, 23)
    assert (agreement["itself"]["count"], agreement["itself"]["of"]) == (22, 23)
    assert agreement["beyond"] == {"of": 23, "first": 3, "second": 1, "p_value": float(coins(3, 1))}
    labelled = [each for each in answered if each.label is not None]
    right = {"a": [each.truth == each.label for each in labelled],
             "again": [(each.truth != each.fickle) == each.label for each in labelled],
             "b": [(each.truth != each.kv) == each.label for each in labelled]}  # fmt: skip
    accuracy = told["accuracy"]
    for side, found in right.items():
        assert (accuracy[side]["count"], accuracy[side]["of"]) == (sum(found), 22)
    assert [sum(right[side]) for side in ("a", "again", "b")] == [20, 19, 19]
    assert accuracy["pairs"] == {"of": 22, "first": 2, "second": 1, "p_value": float(coins(2, 1))}
    assert accuracy["difference"] == pytest.approx(-1 / 22)
    assert accuracy["low"] < -1 / 22 < 0 < accuracy["high"]
    assert told["different"] == [each.name for each in PHOTOS if each.kv]
    assert (told["outcome"], told["exit_code"], told["synthetic"], told["warning"]) == ("malformed-json", 20, False, "")


@uses("json")
def test_json_has_every_picture_and_every_answer(fleet: Callable[[str], Ran]) -> None:
    """Value, text and time of each, the label, the digest; and the cause where there is no value."""
    told = valid("bench-prompt", fleet("json").out)
    assert [each["image"] for each in told["pictures"]] == [each.name for each in PHOTOS]
    for shown, photo in zip(told["pictures"], PHOTOS, strict=True):
        assert shown["label"] == photo.label
        if photo.cut:
            assert [shown[side]["cause"] for side in ("a", "a_again", "b")] == ["malformed-json"] * 3
            continue
        values = [shown[side]["value"] for side in ("a", "a_again", "b")]
        assert values == [photo.truth, photo.truth != photo.fickle, photo.truth != photo.kv]
        assert json.loads(shown["a"]["text"]) == {"accident_detected": photo.truth}
        assert shown["a"]["ms"] > 0
    assert told["settings"]["kv-bits"] == ["16", "8"]
    assert "tiles an image" not in told["settings"]
    assert (told["asked"]["in_flight"], told["asked"]["labels"], told["asked"]["max_tokens"]) == (3, 23, 32)
    first, again = told["a"]["passes"]
    assert (first["answered"], again["answered"], len(told["b"]["passes"])) == (24, 24, 1)
    assert first["failures"] == {"malformed-json": 1}
    for each in (first, *told["b"]["passes"]):
        assert each["rate"] == pytest.approx(24 / each["window_s"], rel=0.01)
        assert 0 < each["median_ms"] <= each["p95_ms"]
        assert each["peak_mib"] >= told["a"]["idle_mib"] > 0


@uses("json")
def test_both_get_the_same_bytes_and_words(fleet: Callable[[str], Ran]) -> None:
    """One server saw each picture twice, the other once; the first with a cache of 16 bits."""
    asked = fleet("json").asked
    servers = Counter((each["pid"], each["kv"]) for each in asked)
    assert sorted((count, kv) for (_, kv), count in servers.items()) == [(24, 8), (48, 0)]
    for pid, _ in servers:
        assert len({each["sha256"] for each in asked if each["pid"] == pid}) == 24
    assert {(each["text"], each["tiles"]) for each in asked} == {(asked[0]["text"], 0)}
    assert "traffic accident" in asked[0]["text"]


@uses("text")
def test_the_text_says_it_in_plain_words(fleet: Callable[[str], Ran]) -> None:
    """Counts with intervals, the exact test in words, no verdict where chance would do, and who differs where."""
    ran = fleet("text")
    clean(ran)
    assert ran.code == 20
    flat = " ".join(ran.out.split())
    for piece in (
        "24 of 25 images of photos, concurrency 4",
        "kv-bits 16 8",
        "A with B 20 of 23 87.0 % 67.9 to 95.5 %",
        "A with itself, asked again 22 of 23 95.7 % 79.0 to 99.2 %",
        "B alone differs from A's first answer on 3 images, A's repeat alone on 1 image",
        "A's own unsteadiness may explain this",
        "B 19 of 22 86.4 % 66.7 to 95.3 %",
        "only B is right once, only A 2 times; chance alone gives such a difference in 100 % of cases",
        "B's accuracy minus A's is -4.5 points",
        "these 22 images do not show which is more accurate: at least 6 images that only one gets right are needed",
        "A: 1 x malformed-json: the answer is not JSON",
        "unreadable, not asked: broken.jpg (no picture)",
        "DIFFERENT ANSWERS: 3",
        "p01.png true true false true",
        "night/p03.png true true false true",
    ):
        assert piece in flat, piece
    assert re.search(r"images/s +[\d.,]+ +[\d.,]+ +[\d.,]+ +[+-]\d+\.\d %", ran.out)
    assert re.search(r"VRAM ready MiB +8,\d\d\d +8,\d\d\d +-\d", ran.out)
    assert ran.err.splitlines()[-1].startswith("recommend bench-prompt: malformed-json: A: 1 of 24 images: ")


@uses("tiles")
def test_tiles_prompt_and_a_part(fleet: Callable[[str], Ran]) -> None:
    """Each side's tiles are sent, the prompt is the user's, so many pictures are asked, and A only once."""
    ran = fleet("tiles")
    clean(ran)
    assert ran.code == 0, ran.err
    told = valid("bench-prompt", ran.out)
    assert told["settings"] == {"tiles an image": ["12 at most", "1 at most"]}
    assert [each["image"] for each in told["pictures"]] == [PHOTOS[number].name for number in (0, 4, 9, 14, 19)]
    assert Counter((each["tiles"], each["text"]) for each in ran.asked) == {
        (12, "Is it broken?"): 5, (1, "Is it broken?"): 5,
    }  # fmt: skip
    assert (told["agreement"]["itself"], told["accuracy"], told["asked"]["found"]) == (None, None, 24)


@uses("synthetic")
def test_made_up_weights_prove_nothing(fleet: Callable[[str], Ran]) -> None:
    """The text says so at both figures, and no verdict is given."""
    ran = fleet("synthetic")
    clean(ran)
    assert ran.out.count("random weights: the procedure works, but these figures mean nothing") == 2
    for verdict_on in ("do not show", "more accurate", "unsteadiness", "chance alone"):
        assert verdict_on not in ran.out
    assert "weights: random, seed 0; not the real model" in ran.out


@uses("own")
def test_scripts_of_another_hand_and_free_text(fleet: Callable[[str], Ran]) -> None:
    """Two equal scripts that recommend did not write, answers in any words: all agree, and it says what it cannot."""
    ran = fleet("own")
    clean(ran)
    assert ran.code == 0, ran.err
    flat = " ".join(ran.out.split())
    assert "A and B have the same settings" in flat
    assert "A with B 24 of 24 100.0 % 86.2 to 100.0 %" in flat
    assert "A was asked once, so its own unsteadiness is unknown" in flat
    assert "pass --labels to see which answers are right" in flat
    assert ran.out.endswith("RESULT\n  ok\n")


@pytest.mark.parametrize(
    ("run_of", "code", "piece"),
    [("dies in B", 17, r"server-died: B: "), ("dies in A", 17, r"server-died: A: "),
     ("B does not start", 24, r"start-failed: B: .*ValueError"), ("B hangs", 18, r"requests-hang: B: .*no answer"),
     ("B refuses", 21, r"error-in-200: B: \d+ of 24 images: "), ("late", 26, r"time-limit: A: not done after 15 s"),
     ("no card", 3, r"machine: .*no NVIDIA GPU"), ("taken", 11, r"other-release: LMDeploy 0\.17\.0")],
)  # fmt: skip
def test_failures_have_smokes_names_and_codes(run_of: str, code: int, piece: str, fleet: Callable[[str], Ran]) -> None:
    """The last line names the failure and whose it is; nothing stays behind."""
    ran = fleet(run_of)
    clean(ran)
    assert ran.code == code, ran.err
    assert re.search(f"^recommend bench-prompt: {piece}", ran.err.splitlines()[-1]), ran.err


@uses("dies in B")
def test_what_a_gave_outlives_a_death_in_b(fleet: Callable[[str], Ran]) -> None:
    """A's accuracy and steadiness are told whole; the pairs are those that B answered, and all the rest is named."""
    flat = " ".join(fleet("dies in B").out.split())
    assert "A 20 of 22 90.9 %" in flat
    assert "A with itself, asked again 22 of 23" in flat
    assert "B ended early (server-died); A's results are complete" in flat
    compared = int(re.search(r"A with B \d+ of (\d+) ", flat)[1])
    assert 0 < compared < 12
    broken = int(re.search(r" B: (\d+) x server-died", flat)[1])
    unasked = re.search(r" B: (\d+) images? not asked", flat)
    cut = " B: 1 x malformed-json" in flat
    assert compared + broken + int(unasked[1] if unasked else 0) + cut == 24
    assert "RESULT server-died: B: " in flat


@uses("dies in A", "B does not start", "B refuses")
def test_the_other_ends(fleet: Callable[[str], Ran]) -> None:
    """After a death in A, B is not started; a B that never starts leaves A's answers; refusals are counted."""
    ran = fleet("dies in A")
    assert "B was not started; A's results are above" in ran.out
    assert len({each["pid"] for each in ran.asked}) == 1
    told = json.loads(fleet("B does not start").out)
    assert (told["outcome"], told["b"]["passes"], told["agreement"]["agreement"]) == ("start-failed", [], None)
    assert (told["accuracy"]["a"]["count"], told["accuracy"]["b"]) == (20, None)
    assert sum(each["a"] is not None for each in told["pictures"]) == 24
    assert re.search(r"B: 1\d x error-in-200: ", fleet("B refuses").out)


# --- stopped -------------------------------------------------------------------------------------


def stopped(folder: Path, number: signal.Signals, servers: int) -> None:
    """Stops a comparison once so many servers have answered something, and looks at what it leaves."""
    folder.mkdir()
    environment = ready(folder, SCRIPTS["fp16"](), SCRIPTS["int8"](), STANDIN_STEP_MS="1" if servers == 2 else "60")
    slow = edited(SCRIPTS["int8"](), r"(?m)^set -euo pipefail$", "set -euo pipefail\nexport STANDIN_STEP_MS=60")
    (folder / "work" / "b.sh").write_text(slow)
    command = [*RECOMMEND, "bench-prompt", "--images", "photos", "--in-flight", "2", "--no-repeat", "a.sh", "b.sh"]
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            command, env=environment, cwd=folder / "work", stdout=subprocess.DEVNULL, stderr=errors
        )
    machine: Standin = ready.machines[folder]  # type: ignore[attr-defined]
    seen = Ran(0, "", "", machine, {}, [])

    def answering() -> bool:
        there = (folder / "state" / "asked").exists()
        return process.poll() is not None or (there and len({each["pid"] for each in seen.asked}) >= servers)

    try:
        wait_for(answering, BUSY_S)
        process.send_signal(number)
        code = process.wait(BUSY_S)
    finally:
        process.kill()
    told = (folder / "stderr").read_text()
    assert code == 128 + number, told
    # On a busy machine a line of progress may have come before.
    assert told.splitlines()[-1] == f"recommend bench-prompt: stopped by {number.name}; all processes are stopped"
    assert "Traceback" not in told
    wait_for(lambda: not machine.processes() and not listens(int(environment["SERVER_PORT"])))
    assert not list((folder / "tmp").iterdir())


def test_a_signal_leaves_nothing(tmp_path: Path) -> None:
    """While A or B answers: the signal's exit code, one line, and neither process, port nor folder."""
    cases = list(itertools.product((signal.SIGINT, signal.SIGTERM), (1, 2)))
    SCRIPTS["fp16"](), SCRIPTS["int8"]()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for each in [pool.submit(stopped, tmp_path / f"{number.name}-{at}", number, at) for number, at in cases]:
            each.result()


def test_a_picture_that_changes_meanwhile(tmp_path: Path) -> None:
    """Other bytes than at the start are not asked about, so that A and B never see different pictures."""
    paint(tmp_path / "p.png", truth=True)
    (picture,) = ask.find_pictures(tmp_path, 0).pictures
    question = ask.Question("?", YES_NO, 0, 16, 1, 1)
    desk = ask._RequestPool(None, "m", question, [picture])  # type: ignore[arg-type]
    paint(tmp_path / "p.png", truth=False)
    assert (desk._one(picture).cause, desk._one(picture).value) == ("picture-changed", None)
    os.unlink(picture.path)  # noqa: PTH108
    assert "the file became unreadable" in desk._one(picture).message


def test_the_request_is_the_clients(tmp_path: Path) -> None:
    """As client.py sends it: the text, the picture with its kind, the tiles where set, the schema where held."""
    question = ask.Question("Well?", YES_NO, 6, 16, 1, 1)
    body = question.body("m", "png", b"abc")
    (text, image) = body["messages"][0]["content"]
    assert text == {"type": "text", "text": "Well?"}
    assert image["image_url"] == {"url": "data:image/png;base64,YWJj", "max_dynamic_patch": 6}
    assert (body["temperature"], body["max_tokens"]) == (0, 16)
    assert body["response_format"]["json_schema"]["schema"] == YES_NO.schema
    free = ask.Question("Well?", answers.Form(YES_NO.schema, enforced=False), 0, 16, 1, 1).body("m", "jpeg", b"abc")
    assert "response_format" not in free
    assert "max_dynamic_patch" not in free["messages"][0]["content"][1]["image_url"]
