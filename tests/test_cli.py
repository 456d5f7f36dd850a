"""The command: streams, exit codes, files, and what a run imports."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import bench
import pytest
from artefacts import BASH, KNOWLEDGE, Machine, command, recommend_process

from recommender.cli import COMMANDS
from recommender.common.version import __version__

ROOT = KNOWLEDGE.parent
MAIN = ("--gpu", "A100-80G", "--load", "single")


def env(**changed: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8", **changed}


# --- streams


def test_the_artefact_is_stdout_and_the_report_stderr(tmp_path: Path) -> None:
    """stdout is a script and nothing else; stderr tells each option's reason; status 0."""
    done = recommend_process(*MAIN)
    assert done.returncode == 0
    script = tmp_path / "serve.sh"
    script.write_bytes(done.stdout)
    subprocess.run([BASH, "-n", str(script)], check=True)
    assert done.stdout.startswith(b"#!")
    report = done.stderr.decode()
    for option in ("--session-len", "--cache-max-entry-count", "--max-batch-size", "OMP_NUM_THREADS"):
        assert option in report


def test_quiet_says_nothing() -> None:
    """-q leaves stderr empty."""
    assert recommend_process(*MAIN, "-q").stderr == b""


def test_the_report_format_goes_to_stdout() -> None:
    """--format report writes the whole report to stdout and does not repeat it on stderr."""
    done = recommend_process(*MAIN, "--format", "report")
    assert done.returncode == 0
    assert b"--session-len" in done.stdout
    assert done.stderr == b""


def test_the_report_is_plain_text_of_80_columns_off_a_terminal() -> None:
    """Without a terminal there are no escapes, and no line is wider than 80 unless it is one long word."""
    for words in (MAIN, (*MAIN, "--follow", "claude"), ("--gpu", "L4:4", "--load", "high", "--image", "1280x720")):
        for extra in ((), ("--format", "report")):
            done = recommend_process(*words, *extra)
            text = (done.stdout if extra else done.stderr).decode()
            assert "\x1b" not in text
            wide = [line for line in text.splitlines() if len(line) > 80 and len(line.split()) > 1]
            assert not wide, wide


# --- help and version


def test_help_shows_examples_that_work() -> None:
    """--help names each option and shows commands; each of them that needs no GPU here is answered."""
    done, whole = recommend_process("--help"), recommend_process("--help-all")
    assert done.returncode == whole.returncode == 0
    text = whole.stdout.decode()
    for option in (
        "--gpu",
        "--model",
        "--load",
        "--rps",
        "--image",
        "--text-only",
        "--goal",
        "--p99",
        "--vram",
        "--kv",
    ):
        assert option in text
    examples = [line.strip() for line in text.splitlines() if re.match(r" *recommend --", line)]
    assert len(examples) >= 4
    for line in examples:
        words = shlex.split(line.partition(" > ")[0])[1:]
        if "auto" in words:
            continue
        if "-o" in words:
            at = words.index("-o")
            del words[at : at + 2]
        assert recommend_process(*words, "-q").returncode == 0, line


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_every_page_of_help_fits_80_columns(name: str) -> None:
    """Also what follows the options."""
    code, out, _ = command(*([name] if name else []), "--help-all")
    assert code == 0
    assert [line for line in out.splitlines() if len(line) > 80] == []


def test_the_examples_of_estimate_are_configurations_that_run() -> None:
    """Their exit code is 0: no example shows a server that stops."""
    _, out, _ = command("estimate", "--help-all")
    examples = re.findall(r"^ +recommend (estimate .*)$", out.replace("\\\n", " "), re.MULTILINE)
    assert len(examples) >= 3
    for line in examples:
        assert command(*shlex.split(line))[0] == 0, line


def test_help_loads_no_knowledge() -> None:
    """--help imports neither pydantic, yaml, jinja2 nor rich, and reads no record."""
    code = (
        "import sys\n"
        "sys.argv = ['recommend', '--help']\n"
        "from recommender.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=env(), cwd=ROOT, capture_output=True, text=True, timeout=60)
    loaded = set(re.findall(r"'([^']+)'", done.stderr))
    assert "recommender.cli" in loaded
    assert not loaded & {
        "pydantic", "yaml", "jinja2", "rich", "recommender.knowledge.records", "recommender.knowledge.store",
    }  # fmt: skip


def test_version_is_the_packages() -> None:
    """--version prints the version of the package."""
    assert recommend_process("--version").stdout.decode().split()[-1] == __version__


def test_the_installed_command_is_the_module() -> None:
    """`recommend` and `python -m recommender` are the same program."""
    command = shutil.which("recommend") or str(Path(sys.executable).with_name("recommend"))
    if not Path(command).is_file():
        pytest.skip("the package is not installed; only python -m recommender was run")
    done = subprocess.run([command, *MAIN], capture_output=True, timeout=60)
    assert done.stdout == recommend_process(*MAIN).stdout


# --- nothing fits


@pytest.mark.parametrize(
    "words",
    [
        ("--gpu", "T4", "--model", "internvl3-78b"),
        ("--gpu", "L4", "--model", "internvl3-14b", "--load", "high"),
        ("--gpu", "A100-80G", "--vram", "6"),
        ("--gpu", "A100-80G", "--p99", "5"),
        ("--gpu", "A100-80G", "--ttft", "1"),
        ("--gpu", "L4", "--rps", "5000"),
        ("--gpu", "A100-80G", "--lmdeploy", "0.7.0", "--model", "qwen3-8b"),
        ("--gpu", "A10", "--load", "4096", "--image", "4000x3000", "--kv", "fp16"),
    ],
    ids=" ".join,
)
def test_nothing_fits_names_the_change_that_does(words: tuple[str, ...]) -> None:
    """Status 1, nothing on stdout, the binding constraint, and a change under which it does fit."""
    done = recommend_process(*words)
    assert (done.returncode, done.stdout) == (1, b"")
    text = done.stderr.decode()
    assert "nothing fits" in text
    assert "Traceback" not in text
    said = re.search(r"nearest that fits: ((?:--\S+ \S+ ?)+)\(", " ".join(text.split()))
    if said is None:
        assert "no single change" in text
        assert words[1:3] in (("L4", "--rps"), ("A100-80G", "--ttft"))  # the only ones here that nothing cures
        return
    changed = dict(zip(words[::2], words[1::2], strict=True))
    change = said[1].split()
    changed |= dict(zip(change[::2], change[1::2], strict=True))
    again = recommend_process(*(word for pair in changed.items() for word in pair), "-q")
    assert again.returncode == 0, (said[1], again.stderr.decode())


def test_nothing_fits_as_json() -> None:
    """With --format json stdout says why, as stderr does; status 1."""
    done = recommend_process("--gpu", "T4", "--model", "internvl3-78b", "--format", "json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["nothing_fits"]["message"] in " ".join(done.stderr.decode().split())


# --- files


def test_output_is_written_with_its_mode(tmp_path: Path) -> None:
    """A new script may be run, new JSON may not; an existing file keeps its mode; nothing else is left behind."""
    for name, form, mode in (("serve.sh", "bash", 0o755), ("plan.json", "json", 0o644)):
        command = (
            f"umask 022; {shlex.quote(sys.executable)} -m recommender {shlex.join(MAIN)} -q --format {form} -o {name}"
        )
        again = subprocess.run([BASH, "-c", command.replace("-o ", f"-o {tmp_path}/")], env=env(), cwd=ROOT, timeout=60)
        assert again.returncode == 0
        assert (tmp_path / name).stat().st_mode & 0o777 == mode
    script = tmp_path / "serve.sh"
    script.chmod(0o600)
    script.write_text("old")
    done = recommend_process(*MAIN, "-q", "-o", str(script), "--force")
    assert (done.returncode, done.stdout) == (0, b"")
    assert script.read_bytes() == recommend_process(*MAIN, "-q").stdout
    assert script.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["plan.json", "serve.sh"]


@pytest.mark.parametrize("where", ["", "no/such/folder/x.sh", "file/x.sh"])
def test_output_that_cannot_be_written_is_one_line(tmp_path: Path, where: str) -> None:
    """A folder, a missing folder or a file as folder: status 3, one line, nothing left behind."""
    (tmp_path / "file").write_text("kept")
    done = recommend_process(*MAIN, "-q", "-o", str(tmp_path / where))
    assert (done.returncode, done.stdout) == (3, b"")
    assert len(done.stderr.splitlines()) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "kept"


def test_a_wrong_request_leaves_the_file_alone(tmp_path: Path) -> None:
    """A request that is refused does not touch the output file."""
    target = tmp_path / "serve.sh"
    target.write_text("kept")
    assert recommend_process("--gpu", "A100-80G", "--load", "0", "-o", str(target)).returncode == 2
    assert target.read_text() == "kept"


@pytest.mark.parametrize("command", [(), ("smoke",), ("estimate",), ("compare",)])
def test_of_two_cards_none_is_dropped_silently(command: tuple[str, ...]) -> None:
    """Two kinds of cards are refused in one line, which names both and what compares them."""
    done = recommend_process(*command, "--gpu", "H100-80G", "--gpu", "L4")
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().splitlines()
    assert "--gpu is given 2 times (H100-80G, L4)" in line
    assert "recommend plan" in line


# --- this machine's GPU


def test_gpu_auto_asks_the_driver(machine: Machine) -> None:
    """--gpu auto takes name and number from nvidia-smi."""
    machine.variables = {"PYTHONPATH": str(ROOT), "GPU_NAME": "NVIDIA H100 80GB HBM3", "CARDS": "2"}
    done = recommend_process("--gpu", "auto", "-q", "--format", "json", environment=machine.environment())
    case = json.loads(done.stdout)["case"]
    assert (case["gpu"], case["gpu_count"]) == ("h100-sxm-80g", 2)


@pytest.mark.parametrize(
    ("name", "cards", "code"), [("", "0", 3), ("NVIDIA Strange 9000", "1", 2)], ids=["none", "unknown"]
)
def test_gpu_auto_without_a_known_gpu_is_one_line(machine: Machine, name: str, cards: str, code: int) -> None:
    """No GPU is status 3, one that the knowledge lacks is status 2; both one line."""
    machine.variables = {"PYTHONPATH": str(ROOT), "GPU_NAME": name, "CARDS": cards}
    done = recommend_process("--gpu", "auto", environment=machine.environment())
    assert (done.returncode, done.stdout) == (code, b""), done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_gpu_auto_without_a_driver_is_one_line(tmp_path: Path) -> None:
    """No nvidia-smi at all: status 3 and what to do."""
    done = recommend_process("--gpu", "auto", environment={"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"nvidia-smi" in done.stderr
    assert len(done.stderr.splitlines()) == 1


# --- broken knowledge


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("recommender", "knowledge", "templates"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("memory_mib:", "memory_mb:", "memory_m"),
        ("memory_mib: ", "memory_mib: about ", "memory_mib"),
        ("id: ", "id: other-", "id"),
        ("memory_mib: ", "memory_mib: .nan # ", "memory_mib"),
        ("rates:", "rates: [", ""),
    ],
    ids=["unknown field", "word for a number", "wrong id", "no number", "not YAML"],
)
def test_a_broken_record_is_named(checkout: Path, old: str, new: str, named: str) -> None:
    """Status 4 and one line with the file, the field and what to do; nothing on stdout."""
    record = checkout / "knowledge" / "gpus" / "l4.yaml"
    whole = record.read_text(encoding="utf-8")
    record.write_text(whole.replace(old, new, 1), encoding="utf-8")
    try:
        done = recommend_process(*MAIN, environment=env(PYTHONPATH=str(checkout)), cwd=checkout)
    finally:
        record.write_text(whole, encoding="utf-8")
    assert (done.returncode, done.stdout) == (4, b""), done.stderr
    (line,) = done.stderr.decode().splitlines()
    assert "gpus/l4.yaml" in line
    assert named in line
    assert re.search(r"(;|: )\s*(add|remove|write|put|use|name|mend|fix|not readable)", line), line


# --- what a run costs: about twice what it does, in units that other work on the machine slows as much


def test_a_run_is_quick() -> None:
    """The main job takes less than 42 bare starts of Python, --help less than 12; by CPU time, the best of five."""
    tried = [[bench.cpu_seconds(words) for words in (bench.NOTHING, bench.HELP, bench.MAIN)] for _ in range(5)]
    nothing, shown, whole = map(min, zip(*tried, strict=True))
    assert whole < 42 * nothing
    assert shown < 12 * nothing


def test_a_run_is_small() -> None:
    """The main job stays under 120 MB."""
    assert bench.peak_mb() < 120


def test_many_recommendations_are_quick() -> None:
    """Over a mixed grid, one costs no more than 1.2 times a fixed piece of work; without coverage."""
    code = "import bench; print(bench.rate()[3])"
    environment = {**os.environ, "PYTHONPATH": f"{bench.ROOT}:{bench.ROOT / 'tests'}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert float(done.stdout) < 1.2


def test_an_interrupt_is_no_traceback() -> None:
    """Ctrl-C ends the command without a traceback."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import recommender.cli as c, recommender.choose.recommend as p, os, signal, time\n"
         "p.recommend = lambda request: (os.kill(os.getpid(), signal.SIGINT), time.sleep(5))\nc.main()", *MAIN],
        env=env(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _, said = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in said
