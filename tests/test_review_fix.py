"""Test repairs, how files are written, and --optimize."""

from __future__ import annotations

import re
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from artefacts import Called
from hypothesis import given
from hypothesis import strategies as st
from scripts import read_bash

from recommender.common.user_file import Unreadable, decode
from recommender.review import engine, fix, optimize
from recommender.review.rule import Case, Diagnostic, Fix, Rule
from recommender.review.script.model import Script, Span
from recommender.review.script.source import MARK, Source, read

SERVE = "lmdeploy serve api_server OpenGVLab/InternVL3-8B-AWQ"
OWN = tuple(rule for rule in engine.rules() if rule.id.startswith("LMD00"))


def replacing(name: str, pattern: str, new: str, what: str = "") -> Rule:
    """Return a rule that reports a pattern and replaces it."""

    def whole(script: Script) -> Iterator[Diagnostic]:
        for match in re.finditer(pattern, script.text):
            place = script.place(*match.span())
            yield Diagnostic(
                place, f"{match[0]!r} is there.", "It must not be.", Fix(((place, new),), f"write {new!r}")
            )

    return Rule(name, f"no-{name.lower()}", "nothing", "error", (), whole=whole)


def looking(*rules: Rule, **options: object) -> fix.Look:
    """Return a function that reviews a source with some rules."""

    def look(source: Source) -> engine.Review:
        return engine.examine(read_bash(source.path, source.text), options, among=[*rules, *OWN])

    return look


def mended(text: str, *rules: Rule) -> fix.Repaired:
    return fix.repair(Source("x.sh", text), looking(*rules))


# --- source


@given(st.text(alphabet="ab\r\n\ufeffé", max_size=40), st.data())
def test_an_edit_changes_nothing_else(whole: str, data: st.DataObject) -> None:
    """Bytes outside the edit stay the same, for any line ends and byte order mark."""
    source = Source("x", whole)
    first = data.draw(st.integers(0, len(source.text)))
    last = data.draw(st.integers(first, len(source.text)))
    made = source.edited([(first, last, "NEW")])
    assert made.text == source.text[:first] + "NEW" + source.text[last:]
    assert made.whole.startswith(whole[: source.at(first)])
    assert made.whole.endswith(whole[source.at(last) :])
    assert source.edited([]).whole == whole
    if "\r" not in source.text:
        assert source.edited([(0, len(source.text), source.text)]).text == source.text


def test_line_ends_and_the_mark_are_kept() -> None:
    """Inserted text gets the file's line ends."""
    source = Source("x", f"{MARK}a\r\nb\r\nc")
    assert source.text == "a\nb\nc"
    assert source.edited([(2, 3, "x\ny")]).whole == f"{MARK}a\r\nx\r\ny\r\nc"
    assert source.edited([(0, 0, "1"), (5, 5, "2"), (2, 4, "")]).whole == f"{MARK}1a\r\nc2"


@pytest.mark.parametrize("data", [b"a\0b", b"\xff\xfea\0", b"caf\xe9", b"x" * (4 * 2**20 + 1)])
def test_what_is_no_text_is_refused(data: bytes) -> None:
    """The error is one line."""
    with pytest.raises(Unreadable) as error:
        decode(data)
    assert "\n" not in str(error.value)


# --- repairs


def test_all_repairs_are_made_and_the_rest_is_kept() -> None:
    """Blanks, comments and order are kept."""
    made = mended(
        f"# keep  me\nA=1   # one\n{SERVE}  --tp   1\n",
        replacing("LMD901", "A=1", "A=2"),
        replacing("LMD902", "tp   1", "tp   2"),
    )
    assert made.source.whole == f"# keep  me\nA=2   # one\n{SERVE}  --tp   2\n"
    assert [each.rule.id for each in made.applied] == ["LMD901", "LMD902"]
    assert not made.review.findings


def test_repairs_that_touch_are_made_one_after_the_other() -> None:
    """Of two repairs of the same text the first is applied; the other follows if still needed."""
    rules = replacing("LMD901", "aa", "ca"), replacing("LMD902", "ab", "d")
    assert mended("aab", *rules).source.whole == "cd"


def test_the_same_edit_of_two_rules_is_made_once() -> None:
    """One edit satisfies both rules."""
    made = mended("one two", replacing("LMD901", "two", "2"), replacing("LMD902", "two", "2"))
    assert (made.source.whole, len(made.applied)) == ("one 2", 2)


def test_all_broken_line_ends_of_a_command_are_repaired_at_once() -> None:
    """One alone would move the break to the next line."""
    text = "lmdeploy serve api_server m \\ \n  --tp 2 \\\n  --dp 1 \\\t\n  --server-port 8000\n"
    repaired = mended(text, engine.rule("LMD129"))
    assert repaired.source.text == text.replace("\\ \n", "\\\n").replace("\\\t\n", "\\\n")


EMPTYING = [
    "exec > a.log",
    "exec 2>&1 1>|a.log",
    "exec &> a.log",
    "exec > >(tee a.log)",
    "server >|a.log",
    "server &> >(tee -- a.log)",
]


@pytest.mark.parametrize("line", EMPTYING)
def test_a_repaired_log_keeps_what_is_in_it(line: str, tmp_path: Path) -> None:
    """Bash itself appends to the file."""
    log, again = tmp_path / "a.log", "" if line.startswith("server") else "\nserver"
    loop = f"while true; do\n{line}{again}\nsleep 1\ndone\n".replace("server", SERVE)
    text = mended(loop, engine.rule("LMD616")).source.text
    log.write_text("crash\n", encoding="utf-8")
    body = text.removeprefix("while true; do\n").removesuffix("sleep 1\ndone\n").replace(SERVE, "echo started")
    subprocess.run(["bash", "-c", f"{body}exec >&-; wait $!; true"], cwd=tmp_path, check=True)
    assert log.read_text("utf-8") == "crash\nstarted\n"


@pytest.mark.parametrize(
    ("path", "text", "near"),
    [
        ("a.sh", f"{SERVE} --no-enable-prefix-caching\n", "--enable-prefix-caching"),
        ("a.sh", f"{SERVE} --no-disable-fastapi-docs\n", "--disable-fastapi-docs"),
        (
            "a.py",
            'from lmdeploy import TurbomindEngineConfig, pipeline\npipeline("Qwen/Qwen2.5-7B-Instruct", '
            "backend_config=TurbomindEngineConfig(disable_prefix_caching=True))\n",
            "enable_prefix_caching",
        ),
    ],
)
def test_a_name_is_not_repaired_to_its_opposite(path: str, text: str, near: str) -> None:
    """What the author turned off is not turned on."""
    (wrong,) = (each for each in engine.review(path, text, {}).findings if each.rule.id in ("LMD101", "LMD109"))
    assert wrong.diagnostic.fix is None
    assert f"; there is only the opposite, {near}." in wrong.message


def test_a_repair_that_does_not_mend_is_taken_back() -> None:
    """The other repairs are applied; the undone one is listed."""
    made = mended("bad odd", replacing("LMD901", "bad", "good"), replacing("LMD902", "odd", "odd odd"))
    assert made.source.whole == "good odd"
    assert [each.rule.id for each in made.applied] == ["LMD901"]
    assert [each.rule.id for each in made.withdrawn] == ["LMD902"]


@pytest.mark.parametrize("new", ["if (( then", "# gone"])
def test_a_repair_that_breaks_the_script_is_taken_back(new: str) -> None:
    """A repair that breaks the syntax or loses a server is undone."""
    made = mended(f"{SERVE} --tp 1\n", replacing("LMD901", "lmdeploy", new))
    assert (made.source.whole, len(made.withdrawn)) == (f"{SERVE} --tp 1\n", 1)


def test_a_repair_that_brings_more_errors_is_taken_back() -> None:
    """A repair must not add a finding of another rule, not even one."""
    other = Rule("LMD902", "other", "nothing", "error", (), whole=lambda script: _says(script, "worse"))
    made = mended("bad", replacing("LMD901", "bad", "worse worse"), other)
    assert (made.source.whole, len(made.withdrawn)) == ("bad", 1)
    made = mended("bad", replacing("LMD901", "bad", "worse"), other)
    assert (made.source.whole, [each.rule.id for each in made.withdrawn]) == ("bad", ["LMD901"])


def _says(script: Script, word: str) -> Iterator[Diagnostic]:
    for match in re.finditer(word, script.text):
        yield Diagnostic(script.place(*match.span()), "No.", "No.")


def test_two_rules_that_undo_each_other_change_nothing() -> None:
    """Such repairs never end, so none is applied."""
    made = mended("a", replacing("LMD901", "a", "b"), replacing("LMD902", "b", "a"))
    assert (made.source.whole, made.applied) == ("a", ())
    assert made.withdrawn


def test_a_repair_beyond_the_text_is_left_alone() -> None:
    """A wrong place must not truncate the file."""

    def whole(script: Script) -> Iterator[Diagnostic]:
        place = Span(0, len(script.text) + 5, 1, 1)
        yield Diagnostic(place, "No.", "No.", Fix(((place, ""),), "empty the file"))

    assert mended("a\n", Rule("LMD901", "wild", "nothing", "error", (), whole=whole)).source.whole == "a\n"


@given(
    st.lists(st.tuples(st.sampled_from("abcdx "), st.sampled_from(["", "a", "b", "cd", "\n"])), max_size=4),
    st.text("abcdx \n", max_size=12),
)
def test_repairing_twice_changes_nothing(pairs: list[tuple[str, str]], text: str) -> None:
    """Repairs are idempotent for any rules."""
    rules = [replacing(f"LMD90{n}", re.escape(old), new) for n, (old, new) in enumerate(pairs)]
    once = mended(text, *rules)
    assert mended(once.source.whole, *rules).source.whole == once.source.whole


@pytest.mark.parametrize(
    ("script", "left"),
    [
        (f"echo\n# recommend: ignore LMD900 because so\n{SERVE}\n", f"echo\n{SERVE}\n"),
        (f"echo\n  # recommend: ignore LMD900 because so\n{SERVE}\n", f"echo\n{SERVE}\n"),
        (f"{SERVE}   # recommend: ignore LMD900 because so\n", f"{SERVE}\n"),
        (f"{SERVE} # recommend: ignore LMD900 because so", SERVE),
        (
            f"{SERVE} --dp 1 # recommend: ignore LMD900, LMD901 because it is so\n",
            f"{SERVE} --dp 1 # recommend: ignore LMD901 because it is so\n",
        ),
    ],
)
def test_an_idle_ignore_goes(script: str, left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment on its own line is removed with the line; ids that hide a finding stay."""
    rules = (_options("LMD900", "--tp"), _options("LMD901", "--dp"), *OWN)
    monkeypatch.setattr(engine, "rules", lambda: rules)
    assert fix.repair(Source("x.sh", script), looking(*rules[:2])).source.whole == left


def _options(name: str, option: str) -> Rule:
    def check(case: Case) -> Iterator[Diagnostic]:
        yield from (Diagnostic(each.place, "No.", "No.") for each in case.launch.options if each.name == option)

    return Rule(name, f"no-{name.lower()}", "nothing", "warning", (), check)


# --- files


def test_the_file_is_written_whole_with_its_mode(tmp_path: Path) -> None:
    """A link's target changes; the link stays."""
    real, link = tmp_path / "real.sh", tmp_path / "link.sh"
    real.write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    real.chmod(0o750)
    link.symlink_to("real.sh")
    source = read(str(link))
    fix.save(source, source.edited([(2, 3, "c")]))
    assert real.read_bytes() == b"\xef\xbb\xbfa\r\nc\r\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o750
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.sh", "real.sh"]


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    """Edits made during the review are kept."""
    file = tmp_path / "x.sh"
    file.write_text("a\n")
    source = read(str(file))
    file.write_text("b\n")
    with pytest.raises(Unreadable, match="changed"):
        fix.save(source, source.edited([(0, 1, "c")]))
    assert file.read_text() == "b\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\nc\n", "a\nx\nc\n"), ("a\nb", "a\nc"), ("a\nb", "a\nb\n"), ("a\r\nb\r\n", "a\r\nc\r\n"),
        ("a\x0cb\u2028c\nd\n", "a\x0cb\u2028e\nd\n"), ("", "a\n"), ("a\n", ""),
    ],
)  # fmt: skip
def test_the_patch_is_one(before: str, after: str, tmp_path: Path) -> None:
    """git apply turns the first file into the second."""
    file = tmp_path / "x.sh"
    file.write_bytes(before.encode())
    patch = "".join(fix.patch(Source("x.sh", before), Source("x.sh", after)))
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"], input=patch.encode(), cwd=tmp_path, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode() + patch
    assert file.read_bytes() == after.encode()


def test_no_change_is_no_patch() -> None:
    """The patch is empty."""
    assert list(fix.patch(Source("x", "a"), Source("x", "a"))) == []


@pytest.fixture
def call(call: Called, monkeypatch: pytest.MonkeyPatch) -> Called:
    """Run the command with rules that replace --tp 3 and --dp."""
    rules = (replacing("LMD901", r"--tp 3\b", "--tp 4"), replacing("LMD902", r"--dp \d", "--dp 3"), *OWN)
    monkeypatch.setattr(engine, "rules", lambda: rules)
    return call


def test_diff_shows_and_changes_nothing(call: Called) -> None:
    """The patch goes to stdout, the rest to stderr; the exit code is that of the unchanged file."""
    Path("x.sh").write_text(f"{SERVE} --tp 3\n")
    status, out, err = call("x.sh", "--diff")
    assert status == 1
    assert out.splitlines()[0] == "--- a/x.sh"
    assert f"+{SERVE} --tp 4" in out.splitlines()
    assert "LMD901: write '--tp 4'" in err
    assert Path("x.sh").read_text() == f"{SERVE} --tp 3\n"
    subprocess.run(["git", "apply", "-"], input=out, text=True, check=True)
    assert call("x.sh", "--diff")[:2] == (0, "")


def test_fix_mends_the_file_and_reviews_it_again(call: Called) -> None:
    """Line ends, mark and mode are kept; a second run changes nothing; the remaining findings set the exit code."""
    file = Path("x.sh")
    file.write_bytes(f"\ufeff{SERVE} --tp 3\r\necho 1\r\n".encode())
    file.chmod(0o711)
    status, out, err = call("x.sh", "--fix")
    assert (status, "nothing found" in out, "LMD901" in err) == (0, True, True)
    assert file.read_bytes() == f"\ufeff{SERVE} --tp 4\r\necho 1\r\n".encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o711
    before = file.stat().st_mtime_ns
    assert call("x.sh", "--fix")[0] == 0
    assert file.stat().st_mtime_ns == before


def test_a_repair_that_is_taken_back_is_said(call: Called) -> None:
    """The file is unchanged and the finding remains."""
    Path("x.sh").write_text(f"{SERVE} --dp 2\n")
    status, out, err = call("x.sh", "--fix")
    assert (status, "LMD902" in out, "undone: its repair would not help, or cause more" in err) == (1, True, True)
    assert "--fix repairs" not in out
    assert Path("x.sh").read_text() == f"{SERVE} --dp 2\n"


def test_a_file_that_cannot_be_written_is_one_line(call: Called) -> None:
    """A pipe is refused with exit code 2, without waiting for a writer."""
    import os

    os.mkfifo("pipe.sh")
    status, _, err = call("pipe.sh", "--fix")
    assert status == 2
    assert "not a regular file" in err


def test_a_file_with_hard_links_is_not_repaired(call: Called) -> None:
    """One line says why; both names keep the text."""
    Path("a.sh").write_text(f"{SERVE} --tp 3\n")
    Path("b.sh").hardlink_to("a.sh")
    status, _, err = call("a.sh", "--fix")
    assert status == 2
    assert "a.sh: cannot be written: it has 2 names (hard links)" in err
    assert Path("b.sh").samefile("a.sh")
    assert Path("a.sh").read_text() == f"{SERVE} --tp 3\n"


def test_a_repaired_file_can_be_told_to_machines(call: Called) -> None:
    """--fix works with every format; the report has the remaining findings."""
    import json

    Path("x.sh").write_text(f"{SERVE} --tp 3 --dp 2\n")
    _, out, _ = call("x.sh", "--fix", "--format", "json")
    assert [finding["rule"] for finding in json.loads(out)["findings"]] == ["LMD902"]


@pytest.mark.parametrize(
    ("path", "written", "repaired"),
    [
        ("x.sh", 'lmdeploy serve api_server m "--enable-prefix-caching=true"\n', '"--enable-prefix-caching"\n'),
        (
            "x.py",
            "import os\nos.execvp('lmdeploy',\n"
            "  ['lmdeploy', 'serve', 'api_server', 'm', '--enable-prefix-caching=true'])\n",
            "'--enable-prefix-caching'])\n",
        ),
        (
            "pod.yaml",
            "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - name: a\n      image: openmmlab/lmdeploy:v0.18.0\n"
            '      command: [lmdeploy, serve, api_server, m, "--enable-prefix-caching=true"]\n',
            '"--enable-prefix-caching"]\n',
        ),
    ],
)
def test_a_quoted_switch_keeps_its_quote(path: str, written: str, repaired: str) -> None:
    """Its value goes, the quote that ends the word stays; what was promised is done."""
    (finding,) = (each for each in engine.review(path, written, {}).findings if each.rule.id == "LMD103")
    ((place, text),) = finding.fix.edits
    made = written[: place.start] + text + written[place.end :]
    assert made.endswith(repaired)
    assert not [each for each in engine.review(path, made, {}).findings if each.rule.id == "LMD103"]


# --- optimize

Optimized = Callable[..., tuple[str, list[str]]]


def optimized(script: str, **options: object) -> tuple[str, list[str]]:
    """Return a script with recommended values, and the messages."""
    look = looking(**({"gpu": "A100-80G", "load": "single"} | options))
    source = Source("x.sh", script)
    made, said = optimize.optimize(source, look(source), look)
    again, more = optimize.optimize(made, look(made), look)
    assert (again.whole, [each for each in more if "not changed:" not in each and "not optimized" not in each]) == (
        made.whole,
        [],
    )
    return made.whole, said


AUTHORS = f"""#!/bin/bash
export OMP_NUM_THREADS=64
LEN=512
{SERVE} \\
    --session-len $LEN \\
    --max-batch-size 128 \\
    --server-name 10.0.0.1 \\
    --log-level ERROR
echo done
"""


def test_values_become_recommends_in_the_authors_structure() -> None:
    """A variable changes where it is set, an option where it is given; addresses are kept."""
    made, said = optimized(AUTHORS, prompt_tokens="24", output_tokens="16")
    settings = {each.option: each.value for each in _recommended()}
    assert f"export OMP_NUM_THREADS={settings['omp-num-threads']}  # " in made
    assert f"LEN={settings['session-len']}  # " in made
    assert "    --session-len $LEN \\\n" in made
    assert f"    --max-batch-size {settings['max-batch-size']} \\\n" in made
    assert "--server-name 10.0.0.1" in made
    assert "--log-level ERROR \\\n    --" in made
    assert made.startswith("#!/bin/bash\n")
    assert made.endswith("\necho done\n")
    assert any(each.startswith("3: --session-len 512 -> ") for each in said)
    assert all("\n" not in each for each in said)


def test_a_session_that_refuses_the_known_images_does_not_stay() -> None:
    """Lengths of text are the author's unless they are told, but not a session below an image: 2,339 tokens."""
    serve = "lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --session-len {}\n"
    short, _ = optimized(serve.format(512), load="16", image="1280x720")
    assert int(short.partition("--session-len ")[2].split()[0]) > 2339
    kept, _ = optimized(serve.format(4096), load="16", image="1280x720")
    assert "--session-len 4096" in kept


def _recommended() -> tuple[optimize.Explanation, ...]:
    from artefacts import found

    return found(gpu="a100-sxm-80g", load="single").explanations


def test_what_is_missing_is_added_as_the_author_writes() -> None:
    """Added options follow the author's equals sign; nothing is added if the number of words is unknown."""
    made, _ = optimized(f"{SERVE} --session-len=512\n")
    assert re.search(r"--session-len=\d+ --", made)
    assert re.search(r" --max-batch-size=\d+", made)
    unsure, _ = optimized(f'{SERVE} --session-len 512 "$@"\n')
    assert "--max-batch-size" not in unsure


def test_without_a_stated_load_nothing_is_rewritten() -> None:
    """The message names the missing option."""
    made, said = optimized(AUTHORS, load="")
    assert made == AUTHORS
    assert said == ["4: not optimized: pass --load"]


def test_one_literal_for_two_values_is_left() -> None:
    """A variable that two options share is not changed."""
    made, said = optimized(f"N=512\n{SERVE} --session-len $N --max-batch-size $N\n")
    assert made == f"N=512\n{SERVE} --session-len $N --max-batch-size $N\n"
    assert any("sets another value too" in each for each in said)


def test_a_server_of_more_gpus_than_the_host_has_stays() -> None:
    """Four GPUs a server on a host of two fit nothing: the note says so, and the text stays."""
    source = Source("serve.sh", "lmdeploy serve api_server Qwen/Qwen2.5-72B-Instruct-AWQ --tp 4\n")
    look = looking(gpu="L4:2", load="16")
    made, said = optimize.optimize(source, look(source), look)
    assert made.whole == source.whole
    assert said == ["1: not optimized: no configuration fits; recommend shows the nearest change"]


@pytest.mark.parametrize(("load", "gpu"), [("single", "L4"), ("16", "A100-80G"), ("high", "H100"), ("64", "A100-80G")])
def test_an_optimized_script_is_what_recommend_gives_one_server(load: str, gpu: str) -> None:
    """If the recommendation is one server, the script has its settings."""
    from artefacts import answer

    from recommender.choose.recommend import Recommendation
    from recommender.request.request import Request

    made, said = optimized(f"{SERVE}\n", gpu=gpu, load=load)
    known = answer(Request(gpu, load="" if load.isdigit() else load, concurrency=int(load) if load.isdigit() else 0))
    assert isinstance(known, Recommendation)
    assert said
    if known.config.servers == 1:
        for explanation in known.explanations:
            if (
                explanation.kind == "flag"
                and explanation.emitted
                and explanation.option in ("session-len", "max-batch-size", "quant-policy")
            ):
                assert f"{explanation.name} {explanation.value}" in made


def test_where_nothing_fits_nothing_is_changed() -> None:
    """The message says so."""
    made, said = optimized("lmdeploy serve api_server internvl3-78b --session-len 512\n", gpu="T4")
    assert made.endswith("--session-len 512\n")
    assert "not optimized" in said[0]


@pytest.mark.parametrize("form", ["bash", "python", "docker"])
@pytest.mark.parametrize(
    "asked",
    [
        {"gpu": "a100-sxm-80g", "load": "single"},
        {"gpu": "l4", "concurrency": 16, "images": 1, "image_width": 1280, "image_height": 720},
        {"gpu": "h100-sxm-80g", "load": "high", "lmdeploy": "0.10.2"},
        {"gpu": "a100-sxm-80g", "gpu_count": 2, "load": "medium", "model": "internvl3-38b"},
    ],
)
def test_an_artefact_of_ours_is_optimal_already(form: str, asked: dict[str, object]) -> None:
    """With the request from its header, a generated file is not rewritten."""
    from artefacts import found

    from recommender.common.errors import RequestError
    from recommender.render.formats import render

    known = found(**({"load": ""} | asked))
    try:
        text = render(known, form)
    except RequestError:  # one container holds one server
        return
    source = Source("serve.py" if form == "python" else "serve.sh", text)

    def look(each: Source) -> engine.Review:
        return engine.review(each.path, each.text)

    made, said = optimize.optimize(source, look(source), look)
    assert (made.whole, said) == (text, [])


def optimized_file(folder: Path, name: str, text: str) -> tuple[str, list[str]]:
    """Return a file of another kind with recommended values, and the messages."""
    (folder / name).write_text(text)
    source = read(str(folder / name))
    told = {"gpu": "A100-80G", "load": "16", "lmdeploy": "0.18.0"}

    def look(each: Source) -> engine.Review:
        return engine.review(each.path, each.text, told)

    made, said = optimize.optimize(source, look(source), look)
    return made.whole, said


def test_a_command_that_two_services_share_is_changed_once(tmp_path: Path) -> None:
    """An anchor's command is one text, however many services run it; merged variables are not added again."""
    service = "command: lmdeploy serve api_server Qwen/Qwen2.5-VL-7B-Instruct --max-batch-size 64"
    text = (
        f"services:\n  a: &a\n    image: openmmlab/lmdeploy:v0.18.0-cu12.8\n    environment: &e\n"
        f"      OMP_NUM_THREADS: 4\n    {service}\n  b:\n    <<: *a\n    environment:\n      <<: *e\n      A: b\n"
    )
    made, _ = optimized_file(tmp_path, "compose.yaml", text)
    assert made.count("--max-prefill-token-num") == 1
    assert made.count("OMP_NUM_THREADS") == 1


def test_a_variable_of_a_unit_does_not_reach_its_container(tmp_path: Path) -> None:
    """So none is added; what has no effect is never added again and again."""
    run = "/usr/bin/docker run --rm --gpus all openmmlab/lmdeploy:v0.18.0-cu12.8"
    text = f"[Service]\nExecStart={run} lmdeploy serve api_server Qwen/Qwen2.5-VL-7B-Instruct --max-batch-size 8\n"
    made, _ = optimized_file(tmp_path, "x.service", text)
    assert "OMP_NUM_THREADS" not in made
    assert "--max-batch-size 16" in made


PIPE = "from lmdeploy import TurbomindEngineConfig, pipeline\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{PIPE}c = TurbomindEngineConfig()\nc.tp = 1\npipeline('Qwen/Qwen3-8B', backend_config=c)\n", "by hand"),
        (f"{PIPE}c = TurbomindEngineConfig(tp=1)\nif a:\n    c.tp = 2\npipeline('Qwen/Qwen3-8B', backend_config=c)\n",
         "several configurations"),
    ],
)  # fmt: skip
def test_no_keyword_is_put_behind_an_assignment(text: str, said: str, tmp_path: Path) -> None:
    """``c.tp = 1, max_batch_size=16`` would be a tuple; branches need values of their own."""
    made, messages = optimized_file(tmp_path, "x.py", text)
    assert made == text
    assert any(said in each for each in messages)


@pytest.mark.parametrize("added", ['append("--enable-prefix-caching")', 'extend(["--enable-prefix-caching"])'])
def test_options_are_not_added_in_a_branch(added: str, tmp_path: Path) -> None:
    """They belong to the list that always runs."""
    text = (
        'import subprocess\ncmd = ["lmdeploy", "serve", "api_server", "Qwen/Qwen3-8B", "--max-batch-size", "8"]\n'
        f"if caching:\n    cmd.{added}\nsubprocess.run(cmd)\n"
    )
    made, _ = optimized_file(tmp_path, "x.py", text)
    assert '"--max-batch-size", "32", "--cache-max-entry-count", ' in made
    assert f"    cmd.{added}\n" in made


def test_options_of_a_sourced_variable_are_not_repaired(tmp_path: Path) -> None:
    """The name is in another file: writing it here would drop the other words of the variable."""
    (tmp_path / "x.env").write_text('EXTRA="--enable-prefix-cache --log-level ERROR"\n')
    text = "#!/bin/bash\n. ./x.env\nlmdeploy serve api_server Qwen/Qwen3-8B $EXTRA\n"
    (tmp_path / "x.sh").write_text(text)

    def look(each: Source) -> engine.Review:
        return engine.review(each.path, each.text, {"lmdeploy": "0.18.0"})

    made = fix.repair(read(str(tmp_path / "x.sh")), look)
    assert [each.rule.id for each in made.review.findings if each.severity == "error"] == ["LMD101"]
    assert made.source.whole == text
