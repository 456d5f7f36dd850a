"""Kinds of files and ways of writing commands: a small text each, and the server that it starts."""

import json
import subprocess
from pathlib import Path

import pytest
from artefacts import need
from scripts import given_options, only_launch, rules_found, text_at

from recommender.review.engine import review
from recommender.review.readers.detect_kind import kind_of, read
from recommender.review.script import batch_job
from recommender.review.script.model import Launch

SERVE = "lmdeploy serve api_server m"
DATACLASS = """
import subprocess
class C:
    n: int = 2
def f(c: C):
    subprocess.run(["lmdeploy", "serve", "api_server", "m", "--tp", str(c.n)])
"""
TYRO = """
import tyro, subprocess
class C:
    n: int = 2
def f(c: C):
    subprocess.run(["lmdeploy", "serve", "api_server", "m", "--tp", str(c.n)])
f(tyro.cli(C))
"""
FIELDS = """
from dataclasses import fields
import subprocess
class C:
    model: str = "m"
    n: int | None = None
    tp: int = 2
    def run(self):
        c = ["lmdeploy", "serve", "api_server", self.model]
        {0}:
            if {1} == "model":
                continue
            c += ["--" + {1}, str({2})]
        subprocess.run(c)
"""
SIDECAR = f"""
apiVersion: v1
kind: Pod
spec:
  initContainers:
    - {{name: a, restartPolicy: Always, image: x, args: [{SERVE.replace(" ", ", ")}, --tp, "2"]}}
  containers: [{{name: b, image: client}}]
"""
CONFIGURED = f"""
services:
  a: {{image: x, entrypoint: [sh, /go.sh], environment: {{TP: "2"}}, configs: [{{source: go, target: /go.sh}}]}}
configs: {{go: {{content: "set -e\\nexec {SERVE} --tp $$TP"}}}}
"""
CLICK = """
import click, os
@click.option("--n", default=2)
def f(n):
    os.execvp("lmdeploy", ["lmdeploy", "serve", "api_server", "m", "--tp", str(n)])
"""
INPUTS = f"""
on: {{workflow_dispatch: {{inputs: {{tp: {{default: 2}}}}}}}}
run: {SERVE} --tp ${{{{ inputs.tp }}}}
"""
TASK = json.dumps({"command": ["sh", "-c", f"{SERVE} --tp $TP"], "environment": [{"name": "TP", "value": "2"}]})

TEKTON = f"""
apiVersion: tekton.dev/v1
kind: Task
spec:
  steps:
    - image: openmmlab/lmdeploy:v0.18.0
      script: |
        #!/bin/sh
        {SERVE} --tp 2
"""


def launch_in(text: str, path: str) -> Launch:
    return only_launch(text, None, path)


# Path, text, and the values of --tp.
TEXTS = [
    ("x.sh", f"conda run -n lmdeploy {SERVE} --tp 2", "2"),
    ("x.sh", f"uvx --from lmdeploy {SERVE} --tp 2", "2"),
    ("x.sh", f"declare -A N=([a]=2 [b]=4)\nK=b\n{SERVE} --tp ${{N[$K]}}", "4"),
    ("x.sh", f"N=(1 2)\n{SERVE} --tp ${{N[1]}}", "2"),
    ("x.sh", f'TP=2\nwhile getopts "t:" o; do case $o in t) TP=$OPTARG ;; esac; done\n{SERVE} --tp $TP', "2"),
    ("x.sh", f'TP=2\nwhile [ $# -gt 0 ]; do case $1 in --tp) TP="$2"; shift 2 ;; esac; done\n{SERVE} --tp $TP', "2"),
    ("x.sh", f'TP=2\n[ -n "$1" ] && TP=$1\n{SERVE} --tp $TP', "2"),
    ("x.sh", f'f() {{ {SERVE} "${{@:2}}"; }}\nf 0 --tp 2', "2"),
    ("x.sh", f'A=(--tp 2 --tp 4)\n{SERVE} "${{A[@]:2:2}}"', "4"),
    ("x.sh", f"TP=2\nTP=$1\n{SERVE} --tp $TP", None),
    ("Makefile", f"TP = 2\nFLAGS = --tp\nFLAGS += $(TP)\nserve:\n\t{SERVE} $(FLAGS)\n", "2"),
    ("justfile", f'tp := env("TP", "2")\nserve:\n    {SERVE} --tp {{{{ tp }}}}\n', "2"),
    ("justfile", f"tp := `nproc`\nserve:\n    {SERVE} --tp {{{{ tp }}}}\n", None),
    ("llm.conf", f"[program:llm]\ncommand={SERVE}\n  --tp 2\n", "2"),
    ("crontab", f"@reboot cd /srv && {SERVE} --tp 2\n", "2"),
    ("crontab", f"*/5 0-3 * * * {SERVE} --tp 2\n", "2"),
    ("x.json", json.dumps({"entryPoint": SERVE.split(), "command": ["--tp", "2"]}), "2"),
    ("x.json", TASK, "2"),
    ("x.json", f'{{\n  // a comment\n  "run": "{SERVE} --tp 2" /* one more */\n}}', "2"),
    ("x.yml", INPUTS, "2"),
    ("Makefile", f"serve: ; {SERVE} --tp 2\nall: serve proxy\n", "2"),
    ("pyproject.toml", f'[tool.pdm.scripts]\nserve = "{SERVE} --tp 2"  # lmdeploy serve api_server\n', "2"),
    ("pixi.toml", f'[tasks]\nserve = {{ cmd = "{SERVE} --tp 2", description = "{SERVE}" }}\n', "2"),
    ("mise.toml", f'[tasks.serve]\nrun = """\n{SERVE} \\\\\n  --tp 2\n"""\n', "2"),
    ("x.toml", f"cmd = {json.dumps([*SERVE.split(), '--tp', '2'])}\n", "2"),
    ("x.toml", f"cmd = '{SERVE} --tp 2", "2"),
    ("process-compose.yaml", f"processes: {{llm: {{command: {SERVE} --tp 2}}}}\n", "2"),
    ("task.yaml", TEKTON, "2"),
    ("x.ps1", '$a = @("serve", "api_server", "m", "--tp", "2")\nStart-Process lmdeploy -Args $a -Wait\n', "2"),
    ("x.ps1", 'Start-Process -Wait -FilePath lmdeploy -ArgumentList "serve", "api_server", "m", "--tp", "2"\n', "2"),
    ("x.ps1", 'Start-Process lmdeploy -ArgumentList "serve api_server m --tp 2" -NoNewWindow\n', "2"),
    ("x.yml", f"parameters: [{{name: tp, default: 2}}]\nsteps: [bash: '{SERVE} --tp ${{{{ parameters.tp }}}}']\n", "2"),
    ("x.yml", f"resources: {{accelerators: 'L4:8'}}\nrun: {SERVE} --tp $SKYPILOT_NUM_GPUS_PER_NODE\n", "8"),
    ("x.yml", f"vars: {{tp: 2}}\ncontent: |\n  [Service]\n  ExecStart=/bin/{SERVE} --tp {{{{ tp }}}}\n", "2"),
    ("x.tfvars", 'command = ["lmdeploy", "serve", "api_server", "m", "--tp", "2"]\n', "2"),
    ("Dockerfile", f"ARG N=2\nFROM x\nARG N=2\nENV TP=$N\nCMD {SERVE} --tp $TP\n", "2"),
    ("Dockerfile", f"FROM x AS base\nARG N=2\nENV TP=$N\nFROM base\nCMD {SERVE} --tp $TP\n", "2"),
    ("Dockerfile", f"FROM x AS base\nENV TP=2\nFROM y\nCMD {SERVE} --tp $TP\n", None),
    ("Dockerfile", f'FROM x\nCOPY <<EOF /go.sh\n{SERVE} --tp 2\nEOF\nCMD ["/go.sh"]\n', "2"),
    ("x.container", f"[Container]\nImage=x\nExec={SERVE} --tp 2\n", "2"),
    ("x.rst", f"Text\n\n.. code-block:: bash\n\n   {SERVE} --tp 2\n\nMore\n", "2"),
    ("x.ps1", f'param([int]$Tp = 2)\n$env:A = "b"\n{SERVE} `\n  --tp $Tp\n', "2"),
    ("x.ps1", "$a = @(\n  'serve', 'api_server', 'm',\n  '--tp', 2\n)\n& lmdeploy @a\n", "2"),
    ("x.ps1", f"if (Test-Path x) {{\n  $env:A = 'b'\n}} else {{\n  throw 'no'\n}}\n{SERVE} --tp 2\n", "2"),
    ("x.bat", f"@echo off\nset TP=2\n{SERVE} ^\n  --tp %TP%\n", "2"),
    ("x.cmd", f'if "%TP%"=="" set TP=2\ncmd /k "{SERVE} --tp %TP%"\n', "2"),
    ("x.py", f'import os\nm, n = "m", 2\nos.system(f"""{SERVE} \\\\\n  --tp {{n}}""")\n', "2"),
    ("config.yml", f"parameters: {{tp: {{default: 2}}}}\nrun: {SERVE} --tp << parameters.tp >> --dp 1\n", "2"),
    ("tox.ini", f"[testenv:serve]\ncommands =\n    python -V\n    {SERVE} --tp {{posargs:2}}\n", "2"),
    ("circus.ini", f"[watcher:llm]\ncmd = lmdeploy\nargs = {SERVE.removeprefix('lmdeploy ')} --tp 2\n", "2"),
    ("x.nix", f'{{ ExecStart = "/bin/{SERVE} --tp 2"; }}\n', "2"),
    ("Tiltfile", f"local_resource('llm', serve_cmd='{SERVE} --tp 2')\n", "2"),
    ("x.rst", f"Start it::\n\n   {SERVE} --tp 2\n\nMore\n", "2"),
    ("noxfile.py", 'session.run("lmdeploy", "serve", "api_server", "m", "--tp", "2", *session.posargs)\n', "2"),
    ("x.py", TYRO, "2"),
    ("x.py", DATACLASS, "2"),
    ("x.py", CLICK, "2"),
    ("x.py", FIELDS.format("for f in fields(self)", "f.name", "getattr(self, f.name)"), "2"),
    ("x.py", FIELDS.format("for k, v in vars(self).items()", "k", "v"), "2"),
    ("pod.yaml", SIDECAR, "2"),
    ("compose.yaml", CONFIGURED, "2"),
    ("x.ps1", f"$s = @'\n{SERVE} --tp 2\n'@\n$s -replace '`r', '' | wsl -d x -- bash -s\n", "2"),
    ("x.sh", f"seq 2 | xargs -I{{}} sh -c 'A={{}} {SERVE} --tp 2'", "2"),
    ("x.sh", f"seq 2 | xargs -I{{}} sh -c '{SERVE} --tp {{}}'", None),
    ("x.sh", f"TP=2\nbash -c \"# it's so\n{SERVE} --tp '$TP'\"\n", "2"),
    ("x.sh", f'TP=2\nbash -c "{SERVE} --hf-overrides \'{{\\"a\\": 1}}\' --tp \'${{TP}}\'"\n', "2"),
    ("x.sh", f"TP=2\nbash -c \"{SERVE} --tp '\\$TP'\"\n", "$TP"),
    ("x.sh", f"TP=2\ncat > run.sh <<END\n{SERVE} --tp '$TP'\nEND\n", "2"),
    ("x.sh", f"TP=2\ncat > run.sh <<'END'\n{SERVE} --tp '$TP'\nEND\n", "$TP"),
    ("x.sh", f"ssh a bash -s -- 2 <<'END'\n{SERVE} --tp $1\nEND\n", "2"),
    ("x.sh", f"ssh a 'bash -s' -- 2 <<'END'\n{SERVE} --tp $1\nEND\n", None),
    ("x.sh", f"sudo -E bash -eo pipefail -s \"$X\" 2 <<'END'\n{SERVE} --tp $2\nEND\n", "2"),
    ("x.sh", f"cat <<'END' | sudo -u a bash -eu\n{SERVE} --tp 2\nEND\n", "2"),
    ("x.sh", f"TP=1\nlet TP=N/8\n{SERVE} --tp $TP\n", None),
    ("x.sh", f'TP=1\nfor i in 1 2 3; do\n{SERVE} --tp $TP &\nlet "TP *= 2"\ndone\n', None),
    ("x.bat", f"{SERVE} > log 2>&1 --tp 2\n", "2"),
    ("x.bat", f"for /f \"tokens=*\" %%c in ('ps \"%LMDEPLOY_ID%\"') do (\n  stop %%c\n)\n{SERVE} --tp 2\n", "2"),
    ("Makefile", f"N ?= 2\nserve:\n\t{SERVE} $(if $(M),--eager-mode) $(if $(N),--tp $(N))\n", "2"),
    ("prod.makefile", f"N ?= 2\nserve:\n\t{SERVE} --tp $(N)\n", "2"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "text", "value"), TEXTS, ids=range(len(TEXTS)))
def test_a_value_is_read(path: str, text: str, value: str | None) -> None:
    """The server and the value of its option are found; a value that only a run knows is unknown."""
    assert given_options(launch_in(text, path))["--tp"] == [value]


def notebook(*cells: str) -> str:
    """A notebook whose other parts mention a server too."""
    text = {"cell_type": "markdown", "source": [f"run {SERVE}"]}
    code = [
        {"cell_type": "code", "source": cell.splitlines(keepends=True), "outputs": [{"text": [f"{SERVE} --tp 3\n"]}]}
        for cell in cells
    ]
    return json.dumps({"cells": [text, *code]}, indent=1)


def test_cells_of_a_notebook_are_read() -> None:
    """Lines for the shell, cells of bash and Python; what was printed starts nothing."""
    text = notebook(
        "%env TP=2\n%pip install lmdeploy",
        f'if True:\n    !{SERVE} \\\n      --tp $TP --model-name "a b"',
        f"%%bash\n{SERVE} --tp 4",
        "from lmdeploy import pipeline, TurbomindEngineConfig",
        'p = pipeline("m", backend_config=TurbomindEngineConfig(tp=8))',
    )
    script = read("x.ipynb", text)
    assert [given_options(launch) for launch in script.launches] == [
        {"--tp": ["2"], "--model-name": ["a b"]},
        {"--tp": ["4"]},
        {"tp": ["8"]},
    ]
    assert not script.problems
    assert text_at(text, script.launches[2].options[0].whole) == "tp=8"
    assert text_at(text, script.launches[1].options[0].whole) == "--tp 4"


def test_python_names_fill_in_the_lines_for_the_shell() -> None:
    """IPython puts their values for ``{name}``; what a cell computes is unknown."""
    text = notebook(
        "PORT = 8000  # @param\nconfig = dict(tp=2)\nfor dp in (1, 2): pass",
        f'!{SERVE} --server-port {{PORT}} --tp {{config["tp"]}} --dp {{dp}} --hf-overrides \'{{"a": 1}}\'',
    )
    (launch,) = read("x.ipynb", text).launches
    assert given_options(launch) == {
        "--server-port": ["8000"],
        "--tp": [None],
        "--dp": [None],
        "--hf-overrides": ['{"a": 1}'],
    }
    assert "PORT" not in launch.environment


@pytest.mark.parametrize("text", ["[1", "{}", '{"cells": 1}', notebook("lmdeploy serve ("), notebook("%%html\n<b>")])
def test_a_broken_notebook_is_no_crash(text: str) -> None:
    """Whatever it holds, a review comes out."""
    assert not review("x.ipynb", text).defects


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("x.ipynb", notebook(f"!{SERVE} --cache-max-entry-count 2 --num_tokens 1")),
        ("x.ps1", f"{SERVE} `\n --enable-metrics\n"),
        ("x.bat", f"{SERVE} ^\n --enable-metrics\n"),
    ],
)
def test_texts_that_are_not_written_as_they_run_are_not_repaired(path: str, text: str) -> None:
    """A repair there would break the notebook's JSON or the other shell's lines."""
    found = review(path, text, {"lmdeploy": "0.18.0"})
    assert found.findings
    assert not any(finding.fix for finding in found.findings)


def test_a_dockerfiles_script_is_followed(tmp_path: Path) -> None:
    """A script beside it runs with the image's variables; its findings are at the instruction that runs it."""
    (tmp_path / "go.sh").write_text(f'#!/bin/sh\nexec {SERVE} --tp "$TP" --enable-metrics\n')
    text = 'FROM openmmlab/lmdeploy:v0.18.0\nENV TP=2\nCOPY go.sh /\nENTRYPOINT ["/go.sh"]\n'
    found = review(str(tmp_path / "Dockerfile"), text)
    assert [given_options(launch)["--tp"] for launch in found.script.launches] == [["2"]]
    assert {(finding.rule.id, finding.place.line) for finding in found.findings if finding.severity == "error"} == {
        ("LMD102", 4)
    }
    assert not any(finding.fix for finding in found.findings)


@pytest.mark.parametrize("context", [".", "./serve", ".docker", "./.docker/"])
def test_a_service_runs_what_its_dockerfile_starts(tmp_path: Path, context: str) -> None:
    """The Dockerfile lies in the build's context, also in a folder whose name begins with a dot."""
    (tmp_path / context).mkdir(exist_ok=True)
    start = '["lmdeploy", "serve", "api_server"]'
    (tmp_path / context / "Dockerfile").write_text(f"FROM openmmlab/lmdeploy:v0.18.0\nENTRYPOINT {start}\n")
    text = f'services:\n  llm:\n    build: {context}\n    command: ["Qwen/Qwen3-8B", "--tp", "2"]\n'
    launches = review(str(tmp_path / "compose.yaml"), text).script.launches
    assert [given_options(launch)["--tp"] for launch in launches] == [["2"]]


@pytest.mark.parametrize("path", ["Vagrantfile", "x.rb", "x.lua", "x.php"])
def test_other_languages_are_never_green(path: str) -> None:
    """Their servers are reported as not read."""
    assert kind_of(path, "") == "other"
    assert [finding.rule.id for finding in review(path, f"sh '{SERVE}'").findings] == ["LMD002"]


def test_a_list_in_an_unknown_language_is_not_taken_for_read() -> None:
    """The words of the command are strings of their own, which no shell runs."""
    found = review("x.unknown", 'run = ["lmdeploy", "serve", "api_server", "m"]\nx = 1\n')
    assert "LMD002" in {finding.rule.id for finding in found.findings}


def test_an_option_that_the_caller_may_set_is_no_finding() -> None:
    """A variable that a script uses only if it is set need not be known."""
    text = f'A=()\n[[ -n "${{N:-}}" ]] && A+=(--session-len "$N")\n{SERVE} "${{A[@]}}"\n'
    assert not [finding for finding in review("x.sh", text).findings if finding.rule.id == "LMD002"]
    assert review("x.sh", text.replace("-n", "-f")).findings


def test_prose_that_mentions_lmdeploy_starts_nothing() -> None:
    """A README of a client is no finding."""
    assert not review("README.md", "For servers such as LMDeploy.\n\n```bash\npip install x\n```\n").findings


def test_variables_of_files_that_are_read_with_this_one(tmp_path: Path) -> None:
    """foreman reads the .env beside a Procfile, make what a Makefile includes; a missing file leaves them unknown."""
    (tmp_path / ".env").write_text("TP=2\n")
    (tmp_path / "config.mk").write_text("TP := 4\nPORT ?= $(OTHER)\n")
    for name, text, value in (
        ("Procfile", f"llm: {SERVE} --tp $TP\n", "2"),
        ("Makefile", f"-include config.mk\nserve:\n\t{SERVE} --tp $(TP)\n", "4"),
        ("Makefile", f"include config.mk\nserve:\n\t{SERVE} --tp $(PORT)\n", None),
        ("Makefile", f"include other.mk\nserve:\n\t{SERVE} --tp $(TP)\n", None),
    ):
        launch = launch_in(text, str(tmp_path / name))
        assert given_options(launch)["--tp"] == [value], text


@pytest.mark.parametrize(
    ("lines", "gpus"),
    [
        ("#SBATCH --gres=gpu:a100:2", 2),
        ("#SBATCH --gres=gpu:2,nvme:1", 2),
        ("#SBATCH -N 1 -G 4", 4),
        ("#SBATCH --gpus-per-node=h100:8\n#SBATCH --nodes=2", 8),
        ("#SBATCH --gpus=8\n#SBATCH --nodes=2", None),
        ("#SBATCH --gres=gpu:a100:2,gpu:l4:1", None),
        ("#SBATCH --gres=gpu:2\nsrun --gres=gpu:1 true", None),
        ("#SBATCH --gpus-per-task=2", None),
        ("# --gres=gpu:2", None),
        ("#PBS -l select=1:ncpus=8:ngpus=2:mem=64gb", 2),
        ("#PBS -l nodes=1:ppn=8:gpus=4", 4),
        ("#PBS -l select=1:ngpus=4+1:ngpus=2", None),
        ("#PBS -l select=1:ncpus=8", None),
        ('#BSUB -gpu "num=4:mode=exclusive_process"', 4),
        ("#BSUB -gpu num=2", 2),
    ],
)
def test_a_batch_job_has_the_gpus_that_it_asks_for(lines: str, gpus: int | None) -> None:
    """Where a step may have others, or the job does not say how many a node has, the number is unknown."""
    assert batch_job.gpus(read("x.sbatch", f"#!/bin/bash\n{lines}\n{SERVE}\n")) == gpus


@pytest.mark.parametrize(
    ("command", "gpus"),
    [
        ("sbatch <<EOF\n#SBATCH --gres=gpu:2\n{}EOF\n", 2),
        ("ssh a sbatch -G 4 << 'END'\n{}END\n", 4),
        ("sbatch --gres=gpu:1 <<EOF\n#SBATCH --gres=gpu:2\n{}EOF\n", None),
        ("{}sbatch <<EOF\n#SBATCH --gres=gpu:2\nls\nEOF\n", None),
    ],
)
def test_a_job_in_a_here_document_has_its_own_gpus(command: str, gpus: int | None) -> None:
    """It counts only for the server in it; what the command and the job both say is left open."""
    script = read("x.sh", f"#!/bin/bash\n{command.format(SERVE + chr(10))}#SBATCH\n")
    assert batch_job.gpus(script, script.launches[0]) == gpus


CONDITIONALS = """BIG ?= 0
ENGINE ?= turbomind
ifeq ($(BIG),1)
ARGS += --tp 4
else
ARGS += --tp 1
endif
ifdef KEYS
ARGS += --api-keys $(KEYS)
endif
ifneq ($(MODE),)
ARGS += --max-log-len $(MODE)
else ifeq ($(ENGINE),turbomind)
ARGS += --quant-policy 8
else
ARGS += --eager-mode
endif
ifndef MODEL
MODEL = m
endif
"""


@pytest.mark.parametrize(
    "text",
    [CONDITIONALS, CONDITIONALS.replace("BIG ?= 0", "BIG = 1"), CONDITIONALS.replace("turbomind\n", "pytorch\n", 1)],
)
def test_conditionals_of_a_makefile_hold_as_make_finds(tmp_path: Path, text: str) -> None:
    """Without variables of the caller; make itself says what it would run."""
    need("make")
    text += f"serve:\n\t{SERVE[:-1]}$(MODEL) $(ARGS)\n"
    (tmp_path / "Makefile").write_text(text)
    shown = subprocess.run(["make", "-n", "-C", str(tmp_path), "--no-print-directory"], capture_output=True, text=True)
    launch = launch_in(text, "Makefile")
    words = [each for name, values in given_options(launch).items() for each in (name, *values)]
    assert shown.stdout.split() == [*SERVE.split(), *words]


def test_a_recipe_may_be_a_program() -> None:
    """Its variables have the justfile's values, and its lines their places."""
    recipe = '    #!/usr/bin/env python3\n    import lmdeploy\n    if True:\n        lmdeploy.pipeline("{{ m }}")\n'
    launch = launch_in(f'm := "org/a"\nrun:\n{recipe}', "justfile")
    assert (launch.model.value, launch.place.line) == ("org/a", 6)


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_target_has_variables_of_its_own(tmp_path: Path, first: str) -> None:
    """Each target makes a launch; make itself says what it would run."""
    need("make")
    text = f"X = --dp 1\na: X := --tp 2\nb: X += --tp 4\nc: X = --tp 8\n{first} a b:\n\t{SERVE} $(X)\n"
    (tmp_path / "Makefile").write_text(text)
    launch = launch_in(text, "Makefile")
    for target in "ab":
        command = ["make", "-n", "-C", str(tmp_path), "--no-print-directory", target]
        words = subprocess.run(command, capture_output=True, text=True).stdout.split()[len(SERVE.split()) :]
        found = [given_options(each) for each in (launch, *launch.alternatives)]
        assert {name: [value] for name, value in zip(words[::2], words[1::2], strict=True)} in found


def test_what_a_loop_of_a_tool_counts_is_no_unknown_port() -> None:
    """Of a Taskfile, and of Ansible; another option of it is."""
    for text in (
        f"tasks: {{a: {{cmds: [{{for: [0, 1], cmd: '{SERVE} --server-port 800{{{{.ITEM}}}}'}}]}}}}",
        f"- hosts: a\n  tasks:\n    - shell: {SERVE} --server-port {{{{ item.port }}}}\n      loop: [{{port: 1}}]\n",
    ):
        assert "LMD002" not in [each.rule.id for each in review("x.yml", text).findings]
        changed = text.replace("server-port", "tp")
        assert "LMD002" in [each.rule.id for each in review("x.yml", changed).findings]


def test_programs_of_supervisord_run_together() -> None:
    """Two programs on one port: the second server cannot open it."""
    text = f"[program:a]\ncommand={SERVE}\n[program:b]\ncommand={SERVE}\n"
    assert "LMD614" in [finding.rule.id for finding in review("llm.conf", text, {}).findings]


@pytest.mark.parametrize(
    ("command", "rules"),
    [
        (f"{SERVE} --tp $TP", {"LMD104"}),
        (f"{SERVE} --tp `nproc`", {"LMD104"}),
        (f"{SERVE} > /var/log/llm.log 2>&1", {"LMD103"}),
        (f"{SERVE} --tp %(ENV_TP)s", set()),
        (f"{SERVE} --chat-template '/etc/a$b.json'", set()),
        (f'bash -c "{SERVE} --tp $TP > /var/log/llm.log"', set()),
    ],
)
def test_no_shell_expands_a_command_of_supervisord(command: str, rules: set[str]) -> None:
    """It splits the command into words (supervisor's documentation of ``command``); a shell that it starts expands."""
    found = review("llm.conf", f'[program:a]\ncommand={command}\nenvironment=TP="2"\n', {"lmdeploy": "0.18.0"})
    assert {finding.rule.id for finding in found.findings if finding.severity != "info"} == rules


@pytest.mark.parametrize("language", ["python", "yaml", "text", "bash", ""])
def test_a_block_that_is_called_otherwise_holds_commands(language: str) -> None:
    """A line that one types is neither Python nor YAML; what lost its backslash is said."""
    text = f"Serve:\n\n```{language}\nconda activate x\n{SERVE} \n--tp 2\n```\n"
    found = review("README.md", text, {"lmdeploy": "0.18.0"})
    assert len(found.script.launches) == 1
    assert [finding.rule.id for finding in found.findings if finding.severity != "info"] == ["LMD317"]


def test_a_manifest_in_a_document_stays_one() -> None:
    """Its keys show that it is YAML, whatever its script is."""
    text = f"```yaml\nservices:\n  llm:\n    image: x/lmdeploy:v0.18.0\n    command: |\n      {SERVE}\n```\n"
    (launch,) = read("README.md", text).launches
    assert launch.container is not None


def test_a_command_that_asks_for_help_is_no_unknown_server() -> None:
    """It starts nothing, so there is no model to know."""
    text = 'import subprocess\nfor c in [["lmdeploy", "serve", "api_server", "--help"]]:\n    subprocess.run(c)\n'
    assert "LMD002" not in [finding.rule.id for finding in review("x.py", text).findings]


def test_a_script_that_echo_writes_in_a_dockerfile_is_read() -> None:
    """The lines end with a line end for echo, and a backslash for Docker; a backslash of the script is doubled."""
    text = (
        "FROM openmmlab/lmdeploy:v0.18.0\nENV TP=2\nRUN echo '#!/bin/bash\\n\\\n"
        'exec lmdeploy serve api_server m \\\\\\n\\\n  --tp ${TP}\\n\\\n\' > /start.sh\nCMD ["/start.sh"]\n'
    )
    (launch,) = read("Dockerfile", text).launches
    assert given_options(launch) == {"--tp": ["2"]}
    assert not launch.extra


@pytest.mark.parametrize("writes", ["cat > run.sh <<'END'\n{}\nEND\n", "echo '{}' > run.sh\n"])
def test_a_script_that_is_written_gets_its_words_later(writes: str) -> None:
    """So its model is unknown, not missing."""
    found = review("x.sh", writes.format('exec lmdeploy serve api_server "$@"'))
    assert [finding.rule.id for finding in found.findings if finding.severity == "error"] == []
    assert len(found.script.launches) == 1


def test_functions_of_make_are_no_shell() -> None:
    """A recipe that starts something else beside a server is no finding."""
    build = 'docker build $(if $(X),--build-arg A="$(X)") -t lmdeploy . && \\\n\techo'
    assert rules_found("Makefile", f"build:\n\t{build}\nserve:\n\t{SERVE} --tp 2\n") == []


def test_the_image_of_a_truss_is_the_release() -> None:
    """It stands in a map beside the command."""
    text = f"base_image:\n  image: openmmlab/lmdeploy:v0.9.1-cu12\ndocker_server:\n  start_command: {SERVE}\n"
    assert "LMD102" in rules_found("config.yaml", text.replace(SERVE, f"{SERVE} --trust-remote-code"))


def test_the_image_that_a_program_names_is_the_release() -> None:
    """As in Modal, where no container is described otherwise."""
    text = (
        f'import os, modal\nimage = modal.Image.from_registry("openmmlab/lmdeploy:v0.9.1-cu12")\nos.system("{SERVE}")\n'
    )
    found = review("x.py", text.replace(SERVE, f"{SERVE} --trust-remote-code"))
    assert "LMD102" in [finding.rule.id for finding in found.findings]


LONG = "1" * 5000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "compose.yaml",
            f"services:\n  a:\n    image: openmmlab/lmdeploy:v0.18.0\n    command: {SERVE} --tp {LONG}\n    gpus: 2\n",
        ),
        (
            "pod.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n    - name: a\n"
            f"      image: openmmlab/lmdeploy:v0.18.0\n      command: [{', '.join(SERVE.split())}]\n"
            f"      livenessProbe: {{httpGet: {{path: /health, port: '{LONG}'}}}}\n",
        ),
        ("run.sh", f"CUDA_VISIBLE_DEVICES=, {SERVE}\n"),
        ("compose.yaml", f"services:\n  a:\n    image: openmmlab/lmdeploy:v0.18.১\n    command: {SERVE}\n"),
    ],
)
def test_odd_numbers_are_no_defect(name: str, text: str) -> None:
    """Numbers too long for Python, digits of other scripts, and a list of GPUs without one."""
    found = review(name, text, {"gpu": "H100-80G:2"})
    assert len(found.script.launches) == 1
    assert not found.defects


WORDS = str(SERVE.split()).removesuffix("]")


@pytest.mark.parametrize(
    ("name", "text", "known"),
    [
        ("a.sh", f'P=(1 2)\nfor i in 0 1; do {SERVE} --server-port "${{P[$i]}}" & done\n', True),
        ("a.sh", f'for i in 0 1; do {SERVE} --server-port "${{P[$i]}}" & done\n', False),
        ("a.sh", f'P=$(shuf -i 20000-30000 -n 1)\n{SERVE} --server-port "$P"\n', True),
        ("a.sh", f'N=$(nproc)\n{SERVE} --max-batch-size "$N"\n', False),
        (
            "a.py",
            f"from subprocess import run\nfor p in (1, 2):\n    run({WORDS}, '--server-port', str(8000 + p)])\n",
            True,
        ),
        ("a.py", f"from subprocess import run\ndef f(p):\n    run({WORDS}, '--server-port', f'{{p}}'])\n", True),
        (
            "a.py",
            f"import os, subprocess\np = int(os.environ['P'])\nsubprocess.run({WORDS}, '--server-port', str(p)])\n",
            False,
        ),
        ("a.py", f"from subprocess import run\nfor p in (1, 2):\n    run({WORDS}, '--session-len', str(p)])\n", False),
    ],
)
def test_ports_that_the_script_itself_fills_are_no_unread_text(name: str, text: str, known: bool) -> None:
    """An element of its array, and a loop's variable; not what only the caller sets, nor options that rules judge."""
    (launch,) = review(name, text, {}).script.launches
    assert launch.starts == "api_server"
    unread = [finding for finding in review(name, text, {}).findings if finding.rule.id == "LMD002"]
    assert (unread == []) == known


@pytest.mark.parametrize(
    ("name", "text", "model"),
    [
        ("a.sh", 'D="$(pwd)"\nM="${M:-$D/models/InternVL3-8B}"\nlmdeploy serve api_server "$M"\n', "InternVL3-8B"),
        ("a.sh", 'lmdeploy serve api_server "$MODEL_DIR/InternVL3-8B"\n', "InternVL3-8B"),
        ("a.sh", 'lmdeploy serve api_server "$ORGANISATION/InternVL3-8B"\n', None),
        ("a.sh", 'lmdeploy serve api_server "$MODEL_DIR/InternVL3-$SIZE"\n', None),
        ("a.ps1", '$M = "$PSScriptRoot\\models\\InternVL3-8B"\nlmdeploy serve api_server $M\n', "InternVL3-8B"),
        (
            "a.py",
            "import os\nfrom lmdeploy import pipeline\nD = '/models'\n"
            "pipeline(os.path.expanduser(os.path.join(D, 'InternVL3-8B')))\n",
            "InternVL3-8B",
        ),
        (
            "a.py",
            "from pathlib import Path\nfrom lmdeploy import pipeline\n"
            "pipeline(str(Path(__file__).resolve().parent / 'models' / 'InternVL3-8B'))\n",
            "InternVL3-8B",
        ),
        ("a.py", "from lmdeploy import pipeline\npipeline(r'D:\\models\\InternVL3-8B')\n", "InternVL3-8B"),
    ],
)
def test_a_folder_is_known_by_its_name(name: str, text: str, model: str | None) -> None:
    """Wherever a run finds the folder, its last part names the model; not that of an organisation nobody knows."""
    found = {finding.rule.id: finding.message for finding in review(name, text, {}).findings}
    assert ("LMD108" in found) == (model is not None)
    assert ("LMD002" in found) == (model is None)
    assert model is None or model in found["LMD108"]


@pytest.mark.parametrize(("numbers", "severity"), [("1 2 4", "info"), ("$N", "warning"), ("0.5 0.8", "info")])
def test_a_sweep_is_an_info(numbers: str, severity: str) -> None:
    """The script lists the numbers, so nothing is missing from it: each turn is judged."""
    text = f"for n in {numbers}; do {SERVE} --tp $n --server-port 8000; done\n"
    (finding,) = (finding for finding in review("a.sh", text, {}).findings if finding.rule.id == "LMD002")
    assert finding.severity == severity


def test_branches_that_choose_a_configuration_have_the_model_of_their_pipeline() -> None:
    """Each branch is a pipeline of its own: nothing is unknown, and what every branch lacks is missing."""
    text = (
        "from lmdeploy import PytorchEngineConfig, TurbomindEngineConfig, pipeline\n"
        "def f(eager):\n"
        "    if eager:\n"
        "        c = PytorchEngineConfig(session_lens=1)\n"
        "    else:\n"
        "        c = TurbomindEngineConfig(session_len=8192)\n"
        "    return pipeline('OpenGVLab/InternVL3-8B', backend_config=c)\n"
    )
    found = review("a.py", text, {})
    assert [finding.rule.id for finding in found.findings if finding.severity != "info"] == ["LMD109", "LMD108"]
    assert [launch.engine for launch in found.script.launches] == ["PytorchEngineConfig", "TurbomindEngineConfig"]
    two = f"{text}    return pipeline('m', backend_config=c)\n"
    assert "LMD002" in {finding.rule.id for finding in review("a.py", two, {}).findings}


def test_a_placeholder_of_a_page_is_for_its_reader() -> None:
    """A shell would read two redirections. What is written out is judged."""
    text = "```bash\nlmdeploy serve api_server <model name> --server-port <port> --tp 1 --tensor-parallel 2\n```\n"
    assert rules_found("a.md", text) == ["LMD101"]


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("powershell", "$env:A = '1'\nlmdeploy serve api_server m `\n  --tp 2\n"),
        ("powershell", "lmdeploy serve api_server m \\\n  --tp 2\n"),
        ("ps1", "lmdeploy serve api_server m `\n  --tp 2\n"),
        ("bat", "lmdeploy serve api_server m ^\n  --tp 2\n"),
        ("text", "lmdeploy serve api_server m \\\n  --tp 2\n"),
    ],
)
def test_a_block_of_another_shell_goes_on_in_its_way(language: str, code: str) -> None:
    """Of PowerShell's blocks, some hold what bash takes too."""
    (launch,) = read("a.md", f"```{language}\n{code}```\n").launches
    assert given_options(launch) == {"--tp": ["2"]}


def test_a_block_without_a_language_may_go_on_as_powershell_does() -> None:
    """So its server runs in the image that the command names."""
    text = "```\ndocker run --gpus all `\n  openmmlab/lmdeploy:v0.9.1-cu12 `\n  lmdeploy serve api_server m\n```\n"
    (launch,) = read("a.md", text).launches
    assert launch.container is not None
    assert launch.container.image is not None


def test_an_option_with_a_dot_is_the_one_before_it() -> None:
    """So LMDeploy's parser reads it, of tools too."""
    found = review("a.sh", "lmdeploy chat m --tp.x 2\nlmdeploy chat m --server-port.x 2\n", {"lmdeploy": "0.18.0"})
    assert found.defects == ()


def test_a_sentence_that_begins_as_a_command_starts_nothing() -> None:
    """Pages explain a command below it, in one block; a Chinese colon has no blank behind it."""
    text = f"{SERVE}\n\nlmdeploy serve api_server: starts it.\nlmdeploy serve api_server：启动服务。\n"
    (launch,) = review("a.sh", text, {}).script.launches
    assert launch.model.value == "m"


def test_a_command_of_options_below_is_one() -> None:
    """llama-swap joins the lines of ``cmd``; other tools give each line to the shell."""
    for key, options in (("cmd", {"--tp": ["2"]}), ("run", {})):
        text = f"models:\n  m:\n    {key}: |\n      {SERVE}\n      --tp 2\n"
        (launch,) = read("config.yaml", text).launches
        assert given_options(launch) == options


def test_arguments_may_be_one_text() -> None:
    """PM2's file in JSON has the program and a text with the rest."""
    text = json.dumps({"apps": [{"script": "/opt/bin/lmdeploy", "args": "serve api_server m --tp 2"}]})
    (launch,) = read("ecosystem.config.json", text).launches
    assert given_options(launch) == {"--tp": ["2"]}


def test_values_of_a_chart_give_the_cards() -> None:
    """The limits stand beside the command, as the image does."""
    text = (
        "image: {repository: openmmlab/lmdeploy}\ncommand: [lmdeploy, serve, api_server]\n"
        "args: [Qwen/Qwen2.5-7B-Instruct, --tp, '2']\nresources: {limits: {nvidia.com/gpu: 1}}\n"
    )
    (launch,) = read("values.yaml", text).launches
    assert launch.container.gpus == 1


@pytest.mark.parametrize(("kind", "found"), [("Deployment", True), ("Job", False)])
def test_a_manifest_in_a_document_is_judged_as_a_file_of_its_own(kind: str, found: bool) -> None:
    """Only the pods of a workload that serves need a probe."""
    manifest = (
        f"apiVersion: v1\nkind: {kind}\nspec:\n  template:\n    spec:\n      containers:\n"
        "      - name: llm\n        command: [lmdeploy, serve, api_server, Qwen/Qwen2.5-7B-Instruct]\n"
    )
    for name, text in (("a.yaml", manifest), ("a.md", f"# Serve\n\n```yaml\n{manifest}```\n")):
        assert ("LMD605" in {finding.rule.id for finding in review(name, text, {}).findings}) == found


def test_a_word_after_a_switch_is_named_before_the_model() -> None:
    """The parser takes it for the model, and the model is then a word too many."""
    (finding,) = (
        finding
        for finding in review(
            "a.sh", "lmdeploy serve api_server --eager-mode True Qwen/Qwen2.5-7B-Instruct\n", {}
        ).findings
        if finding.rule.id == "LMD103"
    )
    assert "True" in finding.message


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("Field(2, ge=1)", "2"),
        ("Field(default=2)", "2"),
        ("field(default=2)", "2"),
        ("Field(...)", None),
        ("f(2)", None),
    ],
)
def test_a_field_may_declare_its_default_with_a_call(declared: str, value: str | None) -> None:
    """As pydantic, dataclasses and attrs have it; a required field has none."""
    text = f"class S(Base):\n    tp: int = {declared}\n\n\ns = S()\nsubprocess.run({WORDS}, '--tp', str(s.tp)])\n"
    (launch,) = read("a.py", f"import subprocess\n\n\n{text}").launches
    assert given_options(launch) == {"--tp": [value]}


@pytest.mark.parametrize(("declared", "value"), [("typer.Option(2, '--tp')", "2"), ("typer.Option(...)", None)])
def test_a_parameter_may_declare_its_default_with_a_call(declared: str, value: str | None) -> None:
    """As typer has it."""
    text = f"import subprocess\ndef main(tp: int = {declared}):\n    subprocess.run({WORDS}, '--tp', str(tp)])\n"
    (launch,) = read("a.py", text).launches
    assert given_options(launch) == {"--tp": [value]}


def test_digits_without_an_end_are_no_sweep() -> None:
    """A search that tries each way to split them would never end."""
    text = f"import subprocess\nfor n in [{'1' * 5000}\nsubprocess.run({WORDS}, '--tp', str(n)])\n"
    assert {finding.rule.id for finding in review("a.py", text, {}).findings} >= {"LMD002"}
    shell = f"for n in {'1 ' * 5000}x; do {SERVE} --tp $n; done\n"
    assert [finding.severity for finding in review("a.sh", shell, {}).findings if finding.rule.id == "LMD002"] == [
        "warning"
    ]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("x.sh", 'V=0.12.3\npip install "lmdeploy==$V"\n'),
        ("x.sh", "V=${V:-0.12.3}\npip install lmdeploy[all]==${V}\n"),
        ("Dockerfile", "FROM python:3.11\nARG V=0.12.3\nRUN pip install lmdeploy==${V}\nCMD "),
        ("x.yml", "env: {V: 0.12.3}\ninstall: pip install lmdeploy==${{ env.V }}\nrun: "),
    ],
)
def test_a_release_may_be_a_variable(path: str, text: str) -> None:
    """--trust-remote-code is new in 0.13.0, so a release before it rejects the option."""
    command = "lmdeploy serve api_server /models/chat --trust-remote-code\n"
    found = [finding.rule.id for finding in review(path, text + command).findings if finding.severity == "error"]
    assert found == ["LMD102"]
    two = [finding.rule.id for finding in review(path, f"{text}{command}# V=0.16.0\n").findings]
    assert "LMD102" not in two


WHEELS = "https://github.com/InternLM/lmdeploy/releases/download"
INSTALLED = [
    "uvx --from lmdeploy==0.12.3 ",
    "uvx --from 'lmdeploy[all]==0.12.3' ",
    "uv run --with lmdeploy==0.12.3 ",
    "uv tool run --python 3.11 --from lmdeploy@0.12.3 ",
    "pipx run --spec lmdeploy==0.12.3 ",
    "poetry add lmdeploy@0.12.3\n",
    "uv add lmdeploy==0.12.3\n",
    "conda create -y -n serve lmdeploy=0.12.3\n",
    f"pip install {WHEELS}/v0.12.3/lmdeploy-0.12.3+cu118-cp310-cp310-manylinux2014_x86_64.whl\n",
    f"V=0.12.3\nP=310\npip install {WHEELS}/v${{V}}/lmdeploy-${{V}}+cu118-cp${{P}}-cp${{P}}-manylinux2014_x86_64.whl\n",
    "pip install lmdeploy-0.12.3-cp310-cp310-manylinux2014_x86_64.whl\n",
    "pip install git+https://github.com/InternLM/lmdeploy.git@v0.12.3\n",
    "pip install 'lmdeploy @ git+https://github.com/InternLM/lmdeploy@v0.12.3'\n",
    "pip install https://github.com/InternLM/lmdeploy/archive/refs/tags/v0.12.3.zip\n",
    "git clone -b v0.12.3 https://github.com/InternLM/lmdeploy.git && pip install -e lmdeploy\n",
    "git clone --depth=1 --branch v0.12.3 https://github.com/InternLM/lmdeploy\n",
    "git clone https://github.com/InternLM/lmdeploy --depth 1 -b v0.12.3\n",
]


@pytest.mark.parametrize("installed", INSTALLED)
def test_an_installation_names_the_release(installed: str) -> None:
    """Of uv, pipx, poetry and conda; of a wheel, as LMDeploy's own pages have it; of a tag of the source.

    --trust-remote-code is new in 0.13.0.
    """
    command = f"{installed}lmdeploy serve api_server /models/chat --trust-remote-code\n"
    found = [finding for finding in review("x.sh", command).findings if finding.severity == "error"]
    assert [finding.rule.id for finding in found] == ["LMD102"]
    assert "0.12.3" in found[0].message


@pytest.mark.parametrize("program", ["uvx lmdeploy@0.12.3", "pipx run lmdeploy==0.12.3", "uvx 'lmdeploy[all]==0.12.3'"])
def test_a_program_may_name_its_release(program: str) -> None:
    """As uvx and pipx install what they run."""
    for path, text in (("x.sh", "{}\n"), ("Dockerfile", "FROM python:3.11\nCMD {}\n")):
        command = text.format(f"{program} serve api_server /models/chat --trust-remote-code")
        found = [finding for finding in review(path, command).findings if finding.severity == "error"]
        assert [finding.rule.id for finding in found] == ["LMD102"], path


@pytest.mark.parametrize(
    "written",
    [
        "# uvx --from lmdeploy==0.12.3 lmdeploy\n",
        "echo lmdeploy-0.12.3-cp310-none.whl\n",
        "pip install 'lmdeploy!=0.12.3'\n",
        "git clone -b v0.12.3 https://github.com/vllm-project/vllm && pip install lmdeploy\n",
        "pip install https://github.com/InternLM/lmdeploy/archive/main.zip\n",
        "cd lmdeploy-0.12.3\n",
    ],
)
def test_what_is_no_installation_names_no_release(written: str) -> None:
    """A comment, an echo, an open range, another project's tag, a branch, a folder."""
    command = f"{written}lmdeploy serve api_server /models/chat --trust-remote-code\n"
    assert "LMD102" not in {finding.rule.id for finding in review("x.sh", command).findings}


@pytest.mark.parametrize(("cards", "found"), [("L4:1, A10G:1", True), ("L4:2, A10G:2", False), ("L4:1, L40S:2", False)])
def test_machines_of_skypilot_have_cards(cards: str, found: bool) -> None:
    """If each of the machines that it may choose has too few, the server does not start."""
    listed = "".join(f"    - accelerators: {card}\n" for card in cards.split(", "))
    text = f"resources:\n  any_of:\n{listed}run: {SERVE} --tp 2\n"
    assert ("LMD110" in {finding.rule.id for finding in review("x.yaml", text).findings}) == found


def test_commands_of_a_list_run_side_by_side_if_processes_do() -> None:
    """Each in a process of its own; without one they may follow each other."""
    text = f'import os\nC = ["{SERVE} --server-port 1", "{SERVE} --server-port 1"]\n'
    apart = text + "for c in C:\n    os.system(c)\n"
    beside = text + "import multiprocessing as mp\n[mp.Process(target=os.system, args=(c,)).start() for c in C]\n"
    found = ["LMD614" in {finding.rule.id for finding in review("x.py", each).findings} for each in (apart, beside)]
    assert found == [False, True]


@pytest.mark.parametrize(
    "made",
    [
        "config = dict(BASE)\nconfig.update(MORE)\n",
        "config = {**BASE, **MORE}\n",
        "config = dict(BASE, quant_policy=8)\n",
        "config = BASE.copy()\nconfig.update(MORE)\n",
        "import copy\nconfig = copy.deepcopy(BASE)\nconfig['quant_policy'] = 8\n",
    ],
)
def test_a_dictionary_may_copy_another(made: str) -> None:
    """What it copies, and what is added to it."""
    text = "from lmdeploy import TurbomindEngineConfig, pipeline\nBASE = dict(tp=2)\nMORE = {'quant_policy': 8}\n"
    launch = launch_in(f"{text}{made}pipeline('m', backend_config=TurbomindEngineConfig(**config))\n", "x.py")
    assert given_options(launch) == {"tp": ["2"], "quant_policy": ["8"]}


@pytest.mark.parametrize(
    "text", ["(cat <<E\n{}\nE\n) | ssh a", "A=$(cat <<E\n{}\nE\n)\neval $A", "read -d '' A <<E\n{}\nE\nsh -c \"$A\""]
)
def test_a_here_document_that_may_run_is_not_passed_over(text: str) -> None:
    """The file has another server, so that the mention alone would say nothing."""
    assert rules_found("x.sh", f"{text.format(SERVE)}\n{SERVE} --server-port 1\n").count("LMD002") == 1
