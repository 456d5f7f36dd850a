"""A small run of the fuzzing, as fuzz_reviews.py makes a large one; and that nothing of a text is ever run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import fuzz_reviews
import pytest

from recommender.review import engine, fix
from recommender.review.script.source import Source

SCRIPTS, FILES, SEED = 1650, 350, 20261121
LIMIT = 5.0
"""A hang is more than a second; a machine that others work on must not make one."""
COMMANDS = ("lmdeploy", "docker", "bash", "sh", "python", "python3", "nvidia-smi", "touch", "git", "conda", "sudo")
HOSTILE = {
    "serve.sh": "#!/bin/bash\n$(touch sprung)\n`touch sprung`\ntouch sprung\nsource ./other.sh\n"
    'X=$(touch sprung)\nlmdeploy serve api_server "$(touch sprung)" --tp $(touch sprung; echo 2)\n'
    "trap 'touch sprung' EXIT\neval 'touch sprung'\nbash -c 'touch sprung; lmdeploy serve api_server a/b'\n"
    "lmdeploy serve api_server a/b --tp $((a[$(touch sprung)])) > sprung\n",
    "serve.py": "import os, lmdeploy, other\nopen('sprung', 'w')\nos.system('touch sprung')\n"
    "pipe = lmdeploy.pipeline(open('sprung', 'w'), tp=os.system('touch sprung'))\n"
    "__import__('other')\nexec(\"open('sprung', 'w')\")\nf'{open(\"sprung\", \"w\")}'\n",
    "compose.yaml": "services:\n  a:\n    image: openmmlab/lmdeploy\n    command: !!python/object/apply:os.system"
    " ['touch sprung']\n  b:\n    env_file: sprung\n    command: sh -c '$(touch sprung) lmdeploy serve api_server a'\n",
    "deployment.yaml": "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - command: !!python/name:os.system\n"
    "    args: !!python/object/new:os.system ['touch sprung']\n    image: lmdeploy\n",
    "Makefile": "X := $(shell touch sprung)\nserve:\n\ttouch sprung\n"
    "\tlmdeploy serve api_server $(X) --tp `touch sprung`\n",
    "playbook.yaml": "- hosts: all\n  tasks:\n  - command: lmdeploy serve api_server a\n"
    "  - shell: touch sprung; lmdeploy serve api_server {{ lookup('pipe', 'touch sprung') }}\n",
    "Dockerfile": "FROM x\nADD sprung sprung\nRUN touch sprung\nCMD lmdeploy serve api_server $(touch sprung)\n",
}
REVIEW = """
import sys
from recommender.cli import main
for more in ("", "--format sarif", "--diff", "--fix", "--optimize --diff"):
    sys.argv[1:] = ["review", FILE, "--gpu", "A100-80G", "--load", "4", *more.split()]
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    print("\\nended:", code, flush=True)
"""
TRIPWIRE = "open('sprung', 'w').close()\n"


@pytest.fixture
def trapped(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder where whatever is run or imported leaves a file, and an environment that leads there only."""
    work = tmp_path / "work"
    (tmp_path / "bin").mkdir()
    work.mkdir()
    for name in COMMANDS:
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n: > {work}/sprung\n", encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    for name in ("lmdeploy.py", "other.py"):
        (work / name).write_text(TRIPWIRE, encoding="utf-8")
    (work / "other.sh").write_text("touch sprung\n", encoding="utf-8")
    return work, {**os.environ, "PATH": str(tmp_path / "bin"), "PYTHONPATH": str(work), "PYTHONDONTWRITEBYTECODE": "1"}


def test_mutated_texts_neither_crash_nor_hang_nor_run(trapped: tuple[Path, dict[str, str]]) -> None:
    """Two thousand of them; the full run has 120,000."""
    work, environment = trapped
    command = [sys.executable, fuzz_reviews.__file__, "--scripts", str(SCRIPTS), "--files", str(FILES)]
    command += ["--seed", str(SEED), "--jobs", "2", "--limit", str(LIMIT)]
    run = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{SCRIPTS} scripts and {FILES} files reviewed" in run.stdout
    assert not (work / "sprung").exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_of_a_file_is_run(name: str, trapped: tuple[Path, dict[str, str]]) -> None:
    """Neither its commands, nor its imports, nor what its YAML would make, with every option that does anything."""
    work, environment = trapped
    (work / name).write_text(HOSTILE[name], encoding="utf-8")
    before = {path.name for path in work.iterdir()}
    command = [sys.executable, "-c", f"FILE = {name!r}{REVIEW}"]
    run = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    ends = re.findall("^ended: (.*)", run.stdout, re.MULTILINE)
    assert (len(ends), set(ends) <= {"0", "1"}) == (5, True), run.stdout + run.stderr
    assert "defect" not in run.stderr
    assert {path.name for path in work.iterdir()} == before


def test_the_watch_sees_what_is_run() -> None:
    """The fuzzing's own alarm reports processes and written files."""
    kept, fuzz_reviews.STARTED[:] = list(fuzz_reviews.STARTED), []
    fuzz_reviews._watch("subprocess.Popen", ("touch",))
    fuzz_reviews._watch("open", ("sprung", "w", 0))
    fuzz_reviews._watch("open", ("read", "r", 0))
    told, fuzz_reviews.STARTED[:] = list(fuzz_reviews.STARTED), kept
    assert [each.split()[0] for each in told] == ["subprocess.Popen", "opens"]


def test_a_number_is_the_same_text_again() -> None:
    """A number and a seed reproduce a text; others give other texts."""
    assert fuzz_reviews.made(1, "scripts", 5) == fuzz_reviews.made(1, "scripts", 5)
    texts = {fuzz_reviews.made(seed, "files", number)[1] for seed in (0, 1) for number in range(20)}
    assert len(texts) > 30


NOT_FINITE = ("nan", "inf", "-inf", "1e999", "9" * 400, "²", "٣", "1_000", "½")
OPTIONS = ("--session-len", "--tp", "--cache-max-entry-count", "--max-batch-size", "--max-prefill-token-num")


@pytest.mark.parametrize("value", NOT_FINITE)
def test_a_number_that_is_none_is_no_crash(value: str) -> None:
    """Rules compute with values; odd ones must not crash them."""
    for option in (*OPTIONS, "--quant-policy", "--server-port", "--max-concurrent-requests", "--dp", "--max-log-len"):
        for loop in ("", f"set -- a b\nshift {value}\n"):
            text = f"{loop}CUDA_VISIBLE_DEVICES={value} lmdeploy serve api_server internlm/internlm3-8b-instruct"
            text += f" {option} {value} {option}={value}\n"
            found = engine.review("x.sh", text, {"gpu": "A100-80G:2", "load": "16"})
            assert not found.defects, (option, value)
            assert not fix.repair(Source("x.sh", text), lambda each: engine.review("x.sh", each.text)).review.defects
