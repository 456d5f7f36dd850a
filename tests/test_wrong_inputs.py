"""Wrong inputs of every command: one line that says what, where and how to repair it, and the exit code of its kind."""

from __future__ import annotations

import gc
import re
import shlex
import sys
from pathlib import Path

import pytest

from recommender.cli import main

# Exit code, command line, and what its line says.
CASES = """
2 | --load single | --gpu is missing, such as --gpu A100-80G
2 | --gpu A100-80G qwen3-8b | no such command 'qwen3-8b': did you mean --model qwen3-8b?
2 | A100:2 | no such command 'A100:2': did you mean --gpu A100:2?
2 | -gpu L4 | no such option -g; did you mean --gpu?
2 | --gpu L4 --backend vllm | --backend 'vllm': use one of auto, turbomind, pytorch
2 | --gpu L4 --load many | use a number, or one of single, low, medium, high
2 | --gpu | '--gpu' requires an argument; see recommend --help
2 | --gpu A1000 | unknown GPU 'A1000': did you mean A100
2 | --gpu MI300X | --gpu: unknown GPU 'MI300X': only some NVIDIA GPUs are covered; see recommend list gpus
2 | --gpu gaudi3 | only some NVIDIA GPUs are covered
2 | plan --rps 4 --gpu L4 --price MI300X=3 | --price: unknown GPU 'MI300X': only
2 | --gpu L4 --max-model-len 4096 | LMDeploy's is --session-len, set here by --max-context; for a value of yours:
2 | --gpu L4 --gpu-memory-utilization 0.9 | LMDeploy's is --cache-max-entry-count, set here by --vram
2 | --gpu L4 --tp 2 | it is LMDeploy's own, set here by --gpu NAME:COUNT
2 | --gpu L4 --quant-policy 8 | set here by --kv
2 | --gpu L4 --trust-remote-code | chosen here
2 | --gpu L4 --reasoning-parser qwen | it belongs in the launch script; see recommend explain reasoning-parser
2 | plan --gpu L4 --rps 3 --tensor-parallel-size 2 | did you mean --tp?
2 | review a.sh --tp 2 | it belongs in the launch script
2 | explain gpu-memory-utilization | another server has it; in LMDeploy use --cache-max-entry-count
2 | explain quux | unknown option 'quux': see recommend list flags
2 | --gpu L4 --follow gemini --with max-num-seqs=4 | has no option 'max-num-seqs'; use --max-batch-size
2 | --gpu L4 --load single --load 16 | --load is given 2 times
2 | --gpu L4 --load 4 --concurrency 16 | is given 2 times; keep one
2 | --gpu L4 --json --format bash | --json and --format bash exclude each other
2 | plan --rps 3 --gpu L4 --json --format text | --json and --format text exclude each other
2 | --gpu L4 -v -q | -v and -q exclude each other
2 | --gpu L4 --force | name it with -o, or leave --force out
2 | explain tp --short --json | --short and --json exclude each other
2 | diff 0.9.2 0.18.0 --short --json | --short and --json exclude each other
2 | compare --gpu L4 --short --json | --short and --json exclude each other
2 | --gpu L4 --burstiness 2 | --burstiness: only arrivals have gaps between them; add --rps
2 | --gpu L4 --follow gemini --kv int8 | --kv steers our own choice
2 | --gpu L4 --follow gemini --goal memory | --goal steers our own choice
2 | smoke --gpu L4 --dry-run --json | --json prints a run, and --dry-run makes none
2 | mcp --force | --force needs --skill
3 | --gpu L4 -q -o own.sh | -o own.sh: it exists and has no seal of recommend, so it may be your own work
3 | --gpu L4 -q --format report -o own.sh | name another file, or add --force
3 | mcp --skill skill | --skill skill/SKILL.md: it exists
2 | --gpu A100-80G:0 | --gpu count '0': use a whole number from 1 to 64
2 | --gpu A100-80G:x | --gpu count 'x': use a whole number
2 | --gpu A100-80G:3:4 | write NAME or NAME:COUNT
2 | --gpu A100-80G --gpu H100 | --gpu is given 2 times
2 | --gpu A100-80G,H100 | recommend plan takes several --gpu
2 | --gpu L4 --laod single | no such option --laod; did you mean --load
2 | --gpu L4 --load singel | unknown load 'singel': did you mean single?
2 | --gpu L4 --concurrency -1 | --concurrency '-1': use a whole number from 1
2 | --gpu L4 --load 99999999999999999999 | --load '99999999999999999999': use a whole number from 1 to 4096
2 | --gpu L4 --rps inf | --rps 'inf': use a number above 0
2 | --gpu L4 --rps abc | --rps 'abc': use a number
2 | --gpu L4 --model qwen2.5-7b-instrct | did you mean qwen2.5-7b-instruct
2 | --gpu L4 --model me/llama-3-tuned | pass its folder with config.json: --model path/to/it
2 | --gpu L4 --model openbmb/MiniCPM3-4B | with its PyTorch engine only
2 | --gpu L4 --model ./nowhere | './nowhere' is not a folder with a config.json
2 | --gpu L4 --model '' | --model: the name is missing
2 | --gpu L4 --model other | architecture 'FooForCausalLM' is not supported
2 | --gpu L4 --model broken | invalid JSON
2 | --gpu L4 --workload chatt | --workload 'chatt': use one of agent
2 | --gpu L4 --model qwen2.5-7b-instruct --image 448x448 | is a text model; remove --image
2 | --gpu L4 --image 448 | write WIDTHxHEIGHT
2 | --gpu L4 --image 100000x100000 | LMDeploy's server refuses images above 178,956,970 pixels
2 | --gpu L4 --image 448x448:0.5,100x100:0.1 | the shares add up to 0.6
2 | --gpu L4 --text-only --image 448x448 | exclude each other; remove one
2 | --gpu L4 --isl 512:100 | p99 is below p50
2 | --gpu L4 --isl 5000000 | use a whole number from 1 to 2000000
2 | --gpu L4 --max-context 10 | an answer alone may take 16 tokens; allow more
2 | --gpu L4 --p99 1h | use a number above 0, such as 500, 500ms or 2s
2 | --gpu L4 --ttft p98:2s | write mean, p50, p90 or p99, a colon
2 | --gpu L4 --goal fast | use one of latency
2 | --gpu L4 --vram 200 | ask for less
2 | --gpu L4 --kv int3 | use one of auto
2 | --gpu L4 --lmdeploy latest | covered are 0.7.0 to 0.18.0
2 | --gpu L4 --lmdeploy 0.12 | did you mean 0.12.3
2 | --gpu L4 --trace nowhere.jsonl | name an existing file that you may read
2 | --gpu L4 --trace . | a folder, not a regular file
2 | --gpu L4 --trace binary | a binary file
2 | --gpu L4 --schema broken/config.json | invalid JSON
2 | --gpu L4 --calibrate nowhere.yaml | write one: recommend smoke --save-evidence
2 | --gpu L4 --follow gemni | did you mean gemini?
2 | --gpu L4 --with tp=2 | --with needs --follow
2 | --gpu L4 --format jsn | --format 'jsn': use one of bash, command
2 | --gpu L4 --json --format env | exclude each other; remove one
2 | --gpu L4 --format k8s -o - | name a folder for them, such as -o fleet
2 | --gpu L4 -o '' | -o: the name is empty; name a file
3 | --gpu L4 -q -o nowhere/a.sh | cannot write nowhere/a.sh: No such file or directory
3 | --gpu L4 -q -o . | cannot write .: Is a directory
3 | --gpu L4 -q -o /dev/full | No space left on device
3 | --gpu L4 -q -o edited.sh | edited by hand; recommend check edited.sh shows the edits
3 | --gpu L4 --format compose -o edited.sh | cannot write edited.sh: a file; name a writable folder
2 | reviw a.sh | no such command 'reviw': did you mean review?
2 | list | KIND is missing: one of gpus, models
2 | list gpu | KIND 'gpu': use one of gpus
2 | knowledge | name a command: check
2 | knowledge chek | no such command 'chek': did you mean check
2 | explain | FLAG is missing; see recommend explain --help
2 | explain sesion-len | did you mean --session-len
2 | diff 0.9.2 | NEW is missing; see recommend diff --help
2 | diff 0.9.2 0.18.1 | did you mean 0.18.0
2 | check edited.sh --dry | no such option --dry; see recommend check --help
2 | check nowhere | nowhere: cannot be read: No such file
2 | check broken/config.json | not written by recommend
2 | review | name a script, a folder, or - for stdin
2 | review nowhere.sh | nowhere.sh: cannot be read: No such file
2 | review edited.sh --fix --diff | --diff and --fix exclude each other
2 | review edited.sh --gpu L44 | unknown GPU 'L44'
2 | estimate --gpu L4 --session-len 4096 | write it after --, as in recommend estimate --gpu L4 -- --session-len
2 | estimate --gpu L4 --kv int8 | no such option --kv
2 | estimate --gpu L4 -- --max-model-len 4096 | has no '--max-model-len'; use --session-len
2 | estimate --gpu L4 -- --sesion-len 4096 | did you mean --session-len
2 | estimate --gpu L4 -- --session-len abc | expected a whole number, got 'abc'
2 | estimate --gpu L4 -- stray | write options as --name value
2 | plan --gpu L40S:4 | --rps is needed
2 | plan --rps 20 | --gpu is missing; name a host
2 | plan --rps 20 --gpu L40S:4 --spare -1 | --spare '-1': use a whole number from 0
2 | smoke | name a script that recommend wrote, or pass --gpu
2 | smoke edited.sh --phase abc --dry-run | --phase 'abc': use N, Nrps
2 | schema nosuch | unknown schema 'nosuch'
2 | mcp --skill edited.sh | --skill edited.sh: a file; name a folder
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the command lines name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "own.sh").write_text("echo important\n")
    (tmp_path / "skill").mkdir()
    (tmp_path / "skill" / "SKILL.md").write_text("mine\n")
    for name, text in (("other", '{"architectures": ["FooForCausalLM"]}'), ("broken", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    return tmp_path


def run(words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command line."""
    monkeypatch.setattr(sys, "argv", ["recommend", *shlex.split(words)])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    finally:
        gc.enable()
    return 0


@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_a_wrong_input_gets_one_line(
    case: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, with nothing on stdout and no file written or changed."""
    code, words, said = case.split(" | ")
    if "/dev/full" in words and not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    if "edited.sh" in words:
        assert run("--gpu L4 -q -o edited.sh", monkeypatch) == 0
        edited = re.sub("SERVER_PORT:-23333", "SERVER_PORT:-8000", (folder / "edited.sh").read_text())
        (folder / "edited.sh").write_text(edited)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert run(words, monkeypatch) == int(code)
    out, err = capsys.readouterr()
    assert said in err
    assert (out, err.count("\n")) == ("", 1)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
