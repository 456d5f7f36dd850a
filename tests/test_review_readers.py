"""The readers of ``recommend review``: small texts and what must come out, each value at its place in the file."""

from __future__ import annotations

import ast
import dataclasses
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cpu_time import is_within
from hypothesis import given, settings
from hypothesis import strategies as st
from scripts import given_options, only_launch, text_at
from seeds import ROOT, Seeds, blocks, option_id, read_script

from recommender.review import engine
from recommender.review.readers.detect_kind import MOST_CHARACTERS, kind_of, read
from recommender.review.script import launches
from recommender.review.script.model import Kind, Script, Span, Word

CORPUS = sorted((ROOT / "tests" / "reviews" / "corpus").glob("*.yaml"))


# --- where values come from

# Text, option, its value, what stands where it is used, and the literal that gives it (None: no single one does).
VALUES: list[tuple[str, str, str | None, str, str | None]] = [
    ("lmdeploy serve api_server m --tp 2", "--tp", "2", "2", "2"),
    ("lmdeploy serve api_server m --tp=2", "--tp", "2", "2", "2"),
    ("lmdeploy serve api_server m --tp='2'", "--tp", "2", "'2'", "2"),
    ('lmdeploy serve api_server m "--tp=2"', "--tp", "2", "2", "2"),
    ("TP=4\nlmdeploy serve api_server m --tp $TP", "--tp", "4", "$TP", "4"),
    ('TP="4"\nlmdeploy serve api_server m --tp "${TP}"', "--tp", "4", '"${TP}"', "4"),
    ('export TP=${TP:-"4"}\nlmdeploy serve api_server m --tp ${TP}', "--tp", "4", "${TP}", "4"),
    ("lmdeploy serve api_server m --tp ${TP:-8}", "--tp", "8", "${TP:-8}", "8"),
    ("lmdeploy serve api_server m --tp ${TP-8}", "--tp", "8", "${TP-8}", "8"),
    (": ${TP:=8}\nlmdeploy serve api_server m --tp $TP", "--tp", "8", "$TP", "8"),
    ("lmdeploy serve api_server m --tp ${TP:-}", "--tp", None, "${TP:-}", None),
    ("lmdeploy serve api_server m --tp $TP", "--tp", None, "$TP", None),
    ("lmdeploy serve api_server m --tp $(nvidia-smi -L | wc -l)", "--tp", None, "$(nvidia-smi -L | wc -l)", None),
    ("lmdeploy serve api_server m --tp $((N+1))", "--tp", None, "$((N+1))", None),
    ("TP=2\nTP=4\nlmdeploy serve api_server m --tp $TP", "--tp", "4", "$TP", "4"),
    ("if a; then TP=2; else TP=4; fi\nlmdeploy serve api_server m --tp $TP", "--tp", None, "$TP", None),
    ("if a; then TP=2; else TP=2; fi\nlmdeploy serve api_server m --tp $TP", "--tp", "2", "$TP", None),
    ("TP=2\nif a; then TP=4; fi\nlmdeploy serve api_server m --tp $TP", "--tp", None, "$TP", None),
    ("TP=2\na && TP=4\nlmdeploy serve api_server m --tp $TP", "--tp", None, "$TP", None),
    ("case $1 in a) TP=2;; *) TP=4;; esac\nlmdeploy serve api_server m --tp $TP", "--tp", None, "$TP", None),
    ('[ -z "$TP" ] && TP=2\nlmdeploy serve api_server m --tp $TP', "--tp", "2", "$TP", "2"),
    ('if [ -z "$TP" ]; then TP=2; fi\nlmdeploy serve api_server m --tp $TP', "--tp", "2", "$TP", "2"),
    ("TP=2\n(TP=4)\nlmdeploy serve api_server m --tp $TP", "--tp", "2", "$TP", "2"),
    ("TP=2\nsource env.sh\nlmdeploy serve api_server m --tp $TP", "--tp", None, "$TP", None),
    ("TP=2\nsource .venv/bin/activate\nlmdeploy serve api_server m --tp $TP", "--tp", "2", "$TP", "2"),
    ("TP=2\nread TP\nlmdeploy serve api_server m --tp $TP", "--tp", None, "$TP", None),
    ("while :; do lmdeploy serve api_server m --tp $TP; TP=2; done", "--tp", None, "$TP", None),
    ("TP=1\nwhile :; do lmdeploy serve api_server m --tp $TP; TP=2; done", "--tp", None, "$TP", None),
    ("while :; do TP=2; lmdeploy serve api_server m --tp $TP; done", "--tp", "2", "$TP", "2"),
    ("for g in 0 1; do lmdeploy serve api_server m --tp $g; done", "--tp", None, "$g", None),
    ('ARGS=(--tp 2 --log-level INFO)\nlmdeploy serve api_server m "${ARGS[@]}"', "--tp", "2", "2", "2"),
    ('A=()\nA+=(--tp 2)\nlmdeploy serve api_server m ${A[@]+"${A[@]}"}', "--tp", "2", "2", "2"),
    ('OPTS="--eager-mode --tp 2"\nlmdeploy serve api_server m $OPTS', "--tp", "2", "2", "2"),
    ("start() { lmdeploy serve api_server m --tp $1; }\nstart 2", "--tp", "2", "$1", "2"),
    ("start() { lmdeploy serve api_server m --tp $1; }", "--tp", None, "$1", None),
    ("f() { local TP=2; }\nTP=4\nf\nlmdeploy serve api_server m --tp $TP", "--tp", "4", "$TP", "4"),
    ("P=1\nlmdeploy serve api_server m --proxy-url http://h:$P", "--proxy-url", "http://h:1", "http://h:$P", None),
    ("lmdeploy serve api_server m --server-name {ip}", "--server-name", "{ip}", "{ip}", "{ip}"),
    ("lmdeploy serve api_server m --tp 2\\\n  --ssl", "--tp", "2", "2", "2"),
    ("lmdeploy serve api_server m --model-name a\\ b", "--model-name", "a b", "a\\ b", None),
    ('M=é\nlmdeploy serve api_server m --model-name "$M" # ü', "--model-name", "é", '"$M"', "é"),
    ("lmdeploy serve api_server m > log --tp 2", "--tp", "2", "2", "2"),
    (
        "lmdeploy serve api_server m --hf-overrides '{\"a\": 1}'",
        "--hf-overrides",
        '{"a": 1}',
        "'{\"a\": 1}'",
        '{"a": 1}',
    ),
]


@pytest.mark.parametrize(("text", "option", "value", "used", "literal"), VALUES)
def test_a_value_and_the_literal_that_gives_it(
    text: str, option: str, value: str | None, used: str, literal: str | None
) -> None:
    """A value is known if the text determines it; its literal's place is where a repair would go."""
    launch = only_launch(text)
    (found,) = [each for each in launch.options if each.name == option]
    (word,) = found.values
    assert word.value == value
    assert text_at(text, word.place) == used == word.raw
    assert (text_at(text, word.literal) if word.literal else None) == literal
    assert text_at(text, found.place) == option
    assert text_at(text, found.whole).startswith(option) or text[found.whole.start - 1] == '"'


# --- how options and values are told apart

OPTIONS: list[tuple[str, str | None, dict[str, list[str | None]], list[str], bool]] = [
    ("--eager-mode m", "m", {"--eager-mode": []}, [], False),
    ("--eager-mod m", "m", {"--eager-mod": []}, [], False),
    ("--tp 2 m --ssl", "m", {"--tp": ["2"], "--ssl": []}, [], False),
    ("m --api-keys a b --tp 1", "m", {"--api-keys": ["a", "b"], "--tp": ["1"]}, [], False),
    ("m --server_name h --server_port 1", "m", {"--server_name": ["h"], "--server_port": ["1"]}, [], False),
    ("m --cache-max 0.5", "m", {"--cache-max": ["0.5"]}, [], False),
    ("m --server-name --server-port 1", "m", {"--server-name": [], "--server-port": ["1"]}, [], False),
    ("m --unknown-thing 3", "m", {"--unknown-thing": ["3"]}, [], False),
    ("m --num -1", "m", {"--num": ["-1"]}, [], False),
    ("m -- adapters x", "m", {}, ["adapters", "x"], False),
    ("m more", "m", {}, ["more"], False),
    ('m "$@"', "m", {}, [], True),
    ("m $EXTRA_ARGS", "m", {}, [], True),
    ("m ${X:+--tp 2}", "m", {"--tp": ["2"]}, [], False),
    ('m --tp 2 "${ARGS[@]}"', "m", {"--tp": ["2"]}, [], True),
    ("$MODEL --tp 2", None, {"--tp": ["2"]}, [], False),
    ("m --tp $TP --ssl", "m", {"--tp": [None], "--ssl": []}, [], False),
    ("m --$X", "m", {}, [], True),
]


@pytest.mark.parametrize(("words", "model", "options", "extra", "unsure"), OPTIONS)
def test_options_are_taken_apart_as_the_parser_does(
    words: str, model: str | None, options: dict[str, list[str | None]], extra: list[str], unsure: bool
) -> None:
    """Switches take nothing, lists take all, an unknown number of words makes the launch unsure."""
    launch = only_launch(f"lmdeploy serve api_server {words}")
    assert launch.model.value == model
    assert given_options(launch) == options
    assert [word.raw for word in launch.extra] == extra
    assert launch.unsure is unsure


def test_what_takes_several_values_is_what_lmdeploys_parser_takes() -> None:
    """The reader's tables match the facts extracted from the wheels."""
    resolved = json.loads((ROOT / "knowledge" / "extracted" / "api_server.json").read_text("utf-8"))
    several = {each["options"][0] for each in resolved["definitions"] if each["nargs"] in ("*", "+")}
    switches = {each["options"][0] for each in resolved["definitions"] if each["action"] == "store_true"}
    for name in several:
        assert launches._takes(name, "serve api_server") is None, name
    for name in switches:
        assert launches._takes(name, "serve api_server") == 0, name
    for each in resolved["definitions"]:
        if each["options"] and each["options"][0] not in several | switches:
            assert launches._takes(each["options"][0], "serve api_server") == 1, each["options"]


# --- what stands around a server

STARTS = [
    "lmdeploy serve api_server m",
    "/opt/py3/bin/lmdeploy serve api_server m",
    "python -m lmdeploy serve api_server m",
    "python3.11 -u -X faulthandler -m lmdeploy serve api_server m",
    "$PYTHON -m lmdeploy serve api_server m",
    '"$LMDEPLOY" serve api_server m',
    "python -m lmdeploy.serve.openai.api_server m",
    "exec lmdeploy serve api_server m",
    "sudo -u bob lmdeploy serve api_server m",
    "sudo -E nohup lmdeploy serve api_server m > log 2>&1",
    "env -u X A=1 lmdeploy serve api_server m",
    "numactl -N 0 -m 0 taskset -c 0-7 lmdeploy serve api_server m",
    "timeout -k 5 60 stdbuf -oL lmdeploy serve api_server m",
    "time setsid lmdeploy serve api_server m",
    "srun -n 1 --gres=gpu:2 lmdeploy serve api_server m",
    "conda run -n x --no-capture-output lmdeploy serve api_server m",
    "uv run lmdeploy serve api_server m",
    'bash -c "lmdeploy serve api_server m"',
    "sh -lc 'lmdeploy serve api_server m'",
    'nohup bash -c "cd /x && lmdeploy serve api_server m"',
    'ssh host "lmdeploy serve api_server m"',
    'tmux new -d -s x "lmdeploy serve api_server m"',
    'eval "lmdeploy serve api_server m"',
    "bash <<'EOF'\nlmdeploy serve api_server m\nEOF",
    'CMD="lmdeploy serve api_server m"\n$CMD',
    'CMD="lmdeploy serve api_server m"\neval $CMD',
    'cmd=(lmdeploy serve api_server m)\n"${cmd[@]}"',
    'run() { "$@"; }\nrun lmdeploy serve api_server m',
    "if true; then lmdeploy serve api_server m; fi",
    "case x in x) lmdeploy serve api_server m;; esac",
    "docker run --gpus all -p 1:1 image lmdeploy serve api_server m",
    "docker exec -it box lmdeploy serve api_server m",
    "docker run --entrypoint lmdeploy image serve api_server m",
    'podman run -itd image bash -c "lmdeploy serve api_server m"',
    "docker compose run svc lmdeploy serve api_server m",
    "MODEL_NAME='x\nlmdeploy serve api_server m",
    "python - <<'E'\nimport os\nos.system('lmdeploy serve api_server m')\nE",
    "cat > a.py <<'E'\nimport os\nos.system('lmdeploy serve api_server m')\nE\npython a.py",
    "cat <<'END' | sudo tee x.service > /dev/null\n[Service]\nExecStart=lmdeploy serve api_server m\nEND",
    "cat <<E | envsubst > x.yml\nservices:\n  a:\n    command: lmdeploy serve api_server m\nE",
    "cat <<E | ssh host bash -s\nlmdeploy serve api_server m\nE",
    "kubectl apply -n a -f - <<E\nspec:\n  containers:\n  - command: [sh, -c, lmdeploy serve api_server m]\nE",
    "docker build -t a - <<E\nFROM b\nCMD lmdeploy serve api_server m\nE",
    "docker compose -f - up <<E\nservices:\n  a:\n    command: lmdeploy serve api_server m\nE",
]


@pytest.mark.parametrize("text", STARTS)
def test_a_server_is_found_behind_what_starts_it(text: str) -> None:
    """The server is found in wrappers, other shells, containers, functions and quoted commands."""
    launch = only_launch(text)
    assert launch.starts == "api_server"
    assert launch.model.value == "m"
    assert text_at(text, launch.place).endswith("m")


CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
data:
  start.sh: |
    export CUDA_VISIBLE_DEVICES=0
    exec lmdeploy serve api_server m --tp 2
---
apiVersion: v1
kind: Pod
spec:
  containers:
    - {name: a, image: "openmmlab/lmdeploy:v0.16.0", command: [bash, /scripts/NAME]}
"""


@pytest.mark.parametrize("name", ["start.sh", "other.sh"])
def test_a_script_of_a_config_map_runs_in_the_container_that_names_it(name: str) -> None:
    """Its server is read whichever it is; the image, and the release, are only those of that container."""
    (launch,) = read("pod.yaml", CONFIG_MAP.replace("NAME", name)).launches
    assert launch.environment["CUDA_VISIBLE_DEVICES"].value == "0"
    assert (launch.container is not None) == (name == "start.sh")


MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {{name: {name}}}
data:
  start.sh: |
    export X=1
    exec lmdeploy serve api_server {name} --tp $TP
---"""
POD = """
apiVersion: v1
kind: Pod
spec:
  containers:
    - {{name: {name}, command: [bash, /scripts/start.sh], env: [{{name: TP, value: "{tp}"}}]}}
  volumes: [{volume}]
---"""


@pytest.mark.parametrize("order", [("small", "big"), ("big", "small")])
@pytest.mark.parametrize(
    "volume",
    ["{{name: s, configMap: {{name: {0}}}}}", "{{name: s, projected: {{sources: [{{configMap: {{name: {0}}}}}]}}}}"],
)
def test_a_script_runs_in_the_pod_that_mounts_its_config_map(order: tuple[str, str], volume: str) -> None:
    """Two maps have a script of one name; each gets the variables of its own pod, in whatever order they come."""
    tp = {"small": "1", "big": "4"}
    pods = [POD.format(name=name, tp=tp[name], volume=volume.format(name)) for name in order]
    found = read("pods.yaml", "".join([MAP.format(name="small"), MAP.format(name="big"), *pods])).launches
    assert {launch.model.value: launch.options[0].values[0].value for launch in found} == tp


def test_a_text_that_is_added_up_is_a_command() -> None:
    """However many pieces, and whatever function makes one of them."""
    pieces = " + ".join(f'" --p{n} " + str({n})' for n in range(20))
    (launch,) = read("x.py", f'import os\nos.system("lmdeploy serve api_server " + model + {pieces})\n').launches
    assert launch.model.value is None
    assert [option.values[0].value for option in launch.options] == [str(n) for n in range(20)]


NO_SERVERS = [
    "echo lmdeploy serve api_server m",
    "cat <<EOF\nlmdeploy serve api_server m\nEOF",
    "cat <<EOF | grep m\nlmdeploy serve api_server m\nEOF",
    'pkill -f "lmdeploy serve"',
    "grep lmdeploy serve api_server",
    "# lmdeploy serve api_server m",
    "lmdeploy chat m",
    "lmdeploy lite auto_awq m",
    "pip install lmdeploy",
    'log() { echo "$@"; }\nlog lmdeploy serve api_server m',
    "X=$(lmdeploy --version)",
    "docker build -t lmdeploy .",
    "docker pull openmmlab/lmdeploy",
]


@pytest.mark.parametrize("text", NO_SERVERS)
def test_what_only_names_a_server_starts_none(text: str) -> None:
    """Printing, searching, stopping or documenting a command is no launch."""
    assert read("x.sh", text).launches == ()


@pytest.mark.parametrize(
    ("words", "instead", "model"),
    [
        ("org/model --tp 2", "org/model", "org/model"),
        ("gradio ./m --server_name x", "gradio", "./m"),
        ("api_server m", None, "m"),
    ],
)
def test_a_subcommand_that_is_none_is_told(words: str, instead: str | None, model: str) -> None:
    """``lmdeploy serve MODEL`` and unknown subcommands are recorded."""
    launch = only_launch(f"lmdeploy serve {words}")
    assert (launch.instead.value if launch.instead else None, launch.model.value) == (instead, model)


def test_the_environment_is_what_holds_at_the_command() -> None:
    """Exports, prefixes and the variables of env, sudo and docker count; later ones do not."""

    def seen(text: str) -> dict[str, str | None]:
        return {name: word.value for name, word in only_launch(text).environment.items()}

    serve = "lmdeploy serve api_server m"
    assert seen(f"export A=1 B\nC=2\n{serve}\nexport D=1") == {"A": "1"}
    assert seen(f"C=2\nexport C\nB=1 {serve}") == {"C": "2", "B": "1"}
    assert seen(f"set -a\nC=2\n{serve}") == {"C": "2"}
    assert seen(f'declare -x A=1\nexport "B=2"\n{serve}') == {"A": "1", "B": "2"}
    assert seen(f"export A=1\nenv B=2 {serve}") == {"A": "1", "B": "2"}
    assert seen(f"export A=1\nenv -i B=2 {serve}") == {"B": "2"}
    assert seen(f"export A=1\nsudo B=2 {serve}") == {"B": "2"}
    assert seen(f"export A=1\nsudo -E {serve}") == {"A": "1"}
    assert seen(f"export A=1 C=3\ndocker run -e B=2 -e A -e D image {serve}") == {"B": "2", "A": "1"}
    assert seen(f"f() {{ CUDA_VISIBLE_DEVICES=$1 {serve}; }}\nf 3") == {"CUDA_VISIBLE_DEVICES": "3"}


def test_a_container_is_read_from_docker_run() -> None:
    """Image, memory, GPUs, ports and restarts are read; the rest is unknown."""
    text = (
        "docker run -d --rm --gpus '\"device=0,3\"' --shm-size=16g --ipc host --restart=always -p 80:23333 \\\n"
        "  -v a:b image:1 lmdeploy serve api_server m"
    )
    launch = only_launch(text)
    box = launch.container
    assert (box.image.value, box.shm_bytes, box.host_ipc, box.gpus) == ("image:1", 16 * 2**30, True, 2)
    assert (box.restart.value, [word.value for word in box.published]) == ("always", ["80:23333"])
    assert launch.background
    box = only_launch("docker run --gpus all -v /dev/shm:/dev/shm i lmdeploy serve api_server m").container
    assert (box.gpus, box.shm_bytes, box.shm_known) == (None, None, False)
    assert only_launch("lmdeploy serve api_server m").container is None


LOOPS = [
    ("while true; do lmdeploy serve api_server m; sleep 5; done", True, True),
    ("while :; do lmdeploy serve api_server m; done", True, False),
    ("until false; do lmdeploy serve api_server m; done", True, False),
    ("while [ 1 ]; do lmdeploy serve api_server m; sleep 0; done", True, False),
    ("while ((1)); do lmdeploy serve api_server m; done", True, False),
    ("for ((;;)); do lmdeploy serve api_server m; sleep 1; done", True, True),
    ("until lmdeploy serve api_server m; do sleep 1; done", True, True),
    ("while ! lmdeploy serve api_server m; do :; done", True, False),
    ("f() { lmdeploy serve api_server m; }\nwhile true; do if f; then break; else sleep 5; fi; done", True, True),
    ("for i in 1 2 3; do lmdeploy serve api_server m; done", False, False),
    ("while [ $n -lt 3 ]; do lmdeploy serve api_server m; done", False, False),
    ("for ((i=0;i<3;i++)); do lmdeploy serve api_server m; done", False, False),
    ("lmdeploy serve api_server m\nwhile true; do sleep 1; done", False, True),
]


@pytest.mark.parametrize(("text", "endless", "pauses"), LOOPS)
def test_an_endless_loop_around_a_server(text: str, endless: bool, pauses: bool) -> None:
    """The launch has the endless loop around it, and whether anything in it waits."""
    launch = only_launch(text)
    assert (launch.loop is not None) is endless
    if launch.loop is not None:
        assert launch.loop.pauses is pauses
    assert [loop.pauses for loop in read("x.sh", text).loops] == [pauses]


GUARDS = [
    ("lmdeploy serve api_server m", False, False),
    ("if lmdeploy serve api_server m; then :; fi", True, False),
    ("if a; then lmdeploy serve api_server m; fi", False, False),
    ("lmdeploy serve api_server m || true", True, False),
    ("a && lmdeploy serve api_server m", False, False),
    ("! lmdeploy serve api_server m", True, False),
    ("lmdeploy serve api_server m | tee log", True, False),
    ("set -o pipefail\nlmdeploy serve api_server m | tee log", False, False),
    ("f() { lmdeploy serve api_server m; }\nf || echo", True, False),
    ("lmdeploy serve api_server m &", False, True),
    ("{ a; lmdeploy serve api_server m; } &", False, True),
    ("f() { lmdeploy serve api_server m & }\nf", False, True),
]


@pytest.mark.parametrize(("text", "guarded", "background"), GUARDS)
def test_whether_a_failure_is_looked_at_and_the_script_goes_on(text: str, guarded: bool, background: bool) -> None:
    """The command's position decides what ``set -e`` does."""
    launch = only_launch(text)
    assert (launch.guarded, launch.background) == (guarded, background)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("set -e\nlmdeploy serve api_server m", "-e"),
        ("set -euo pipefail\n", "-euo pipefail"),
        ("set -o errexit\n", "-o errexit"),
        ("#!/bin/bash -e\nls", "#!/bin/bash -e"),
        ("set -x\n", None),
        ("set -e\nset +e\nlmdeploy serve api_server m", None),
    ],
)
def test_error_exit(text: str, where: str | None) -> None:
    """The place of ``set -e``, unless ``set +e`` follows before a server starts."""
    found = read("x.sh", text).error_exit
    assert (text_at(text, found) if found else None) == where


def test_several_servers_of_one_function() -> None:
    """Each call is a launch of its own, at the same place with its own values."""
    serve = "lmdeploy serve api_server m"
    text = f'start() {{\n  CUDA_VISIBLE_DEVICES=$1 {serve} --server-port "$2" &\n}}\nstart 0 1\nstart 1 2\n'
    found = read("x.sh", text).launches
    assert [given_options(each)["--server-port"] for each in found] == [["1"], ["2"]]
    assert [each.environment["CUDA_VISIBLE_DEVICES"].value for each in found] == ["0", "1"]


def test_what_a_script_says_beside_its_servers() -> None:
    """Comments, assignments, uses with and without quotes, and other commands."""
    text = (
        '#!/bin/bash\n# GPUs 3 and 5\nexport A=${A:-1} # one\nB=2\necho $A "$B" # two\n'
        "[[ $A == 1 ]] && [ $B = 2 ]\nx=$A\nfoo ${B} <<EOF\n$A # no comment\nEOF\n"
    )
    script = read("x.sh", text)
    assert [comment.text for comment in script.comments] == ["#!/bin/bash", "# GPUs 3 and 5", "# one", "# two"]
    assert [(assignment.name, assignment.word.value, assignment.exported) for assignment in script.assignments] == [
        ("A", "1", True),
        ("B", "2", False),
        ("x", "1", False),
    ]
    assert [(use.name, use.split) for use in script.uses] == [
        ("A", False), ("A", True), ("B", False), ("A", False), ("B", True), ("A", False), ("B", True),
        ("A", False),
    ]  # fmt: skip
    assert [[word.value for word in call.words] for call in script.calls] == [["echo", "1", "2"], ["foo", "2"]]


# --- Python


def test_a_pipeline_and_its_configurations() -> None:
    """The engine's keywords keep their names; those of other classes are prefixed by the class."""
    text = (
        "import os\nfrom lmdeploy import pipeline, TurbomindEngineConfig as T, VisionConfig, GenerationConfig\n"
        "os.environ['CUDA_VISIBLE_DEVICES'] = '0,1'\ntp = 2\n"
        "é = T(tp=tp, session_len=16 * 1024, quant_policy=8)  # ü\né.enable_prefix_caching = True\n"
        "p = pipeline('org/é', backend_config=é, vision_config=VisionConfig(max_batch_size=4), log_level=\"INFO\")\n"
        "p('x', gen_config=GenerationConfig(max_new_tokens=args.n))\n"
    )
    launch = only_launch(text, None, "x.py")
    assert (launch.starts, launch.engine, launch.unsure) == ("pipeline", "TurbomindEngineConfig", False)
    assert (launch.model.value, text_at(text, launch.model.literal)) == ("org/é", "org/é")
    assert given_options(launch) == {
        "tp": ["2"],
        "session_len": ["16384"],
        "quant_policy": ["8"],
        "enable_prefix_caching": ["True"],
        "VisionConfig.max_batch_size": ["4"],
        "log_level": ["INFO"],
        "GenerationConfig.max_new_tokens": [None],
    }
    written = {option.name: option.values[0].literal for option in launch.options}
    assert [text_at(text, written[name]) for name in ("tp", "log_level", "session_len")] == ["2", "INFO", None]
    assert [text_at(text, option.place) for option in launch.options][:3] == ["tp", "session_len", "quant_policy"]
    assert [text_at(text, option.whole) for option in launch.options][:2] == ["tp=tp", "session_len=16 * 1024"]
    assert launch.environment["CUDA_VISIBLE_DEVICES"].value == "0,1"
    assert [comment.text for comment in read("x.py", text).comments] == ["# ü"]


PYTHON = [
    ("from lmdeploy import pipeline\npipeline('m', **kw)", "m", {}, True),
    ("import lmdeploy\nlmdeploy.pipeline(model_path='m', log_level=x)", "m", {"log_level": [None]}, False),
    ("import lmdeploy as l\nl.serve('m', server_name='h')", "m", {"server_name": ["h"]}, False),
    ("from lmdeploy import pipeline\nm = 'a'\nm = 'b'\npipeline(m)", "b", {}, False),
    ("from lmdeploy import pipeline\nm = 'a'\nif x:\n    m = 'b'\npipeline(m)", None, {}, False),
    ("from lmdeploy import pipeline\nfor m in 'a', 'b':\n    pipeline(m)\nm = 'c'", "a", {}, False),
    ("from lmdeploy import pipeline\nm = 'a'\nm = m + 'b'\npipeline(m)", "ab", {}, False),
    ("from lmdeploy import pipeline\ndef f(m):\n    return pipeline(m)", None, {}, False),
    ("from lmdeploy import pipeline\npipeline(os.getenv('M', 'm'))", "m", {}, False),
    ("from lmdeploy import pipeline\npipeline(os.environ.get('M') or 'm')", "m", {}, False),
    ("from lmdeploy import pipeline\na = 'x'\npipeline(f'{a}/m')", "x/m", {}, False),
    ("from lmdeploy import pipeline\npipeline('m', config())", "m", {}, True),
    ("pipeline('m', backend_config=PytorchEngineConfig(tp=int('2')))", "m", {"tp": ["2"]}, False),
    ("e = PytorchEngineConfig(tp=-1)\nEngine(e)", "", {"tp": ["-1"]}, True),
    (
        "import subprocess as s\ns.run(['lmdeploy', 'serve', 'api_server', 'm', '--tp', str(2)])",
        "m",
        {"--tp": ["2"]},
        False,
    ),
    ("c = ['lmdeploy', 'serve', 'api_server', 'm']\nc += x\nPopen(c)", "m", {}, True),
    ("os.system('lmdeploy serve api_server m --tp 2 &')", "m", {"--tp": ["2"]}, False),
    ("m = 'm'\nrun(f'lmdeploy serve api_server {m} --tp {n} > log', shell=True)", "m", {"--tp": [None]}, False),
    ("run('lmdeploy serve api_server m --tp 2'.split())", "m", {"--tp": ["2"]}, False),
]


@pytest.mark.parametrize(("text", "model", "options", "unsure"), PYTHON)
def test_python_values(text: str, model: str | None, options: dict[str, list[str | None]], unsure: bool) -> None:
    """Names are followed to the last value of their block, else they are unknown; processes read as shell commands."""
    launch = only_launch(text, "python")
    assert (launch.model.value if launch.model else "") == model
    assert given_options(launch) == options
    assert launch.unsure is unsure


@pytest.mark.parametrize(
    "text",
    [
        "from transformers import pipeline\npipeline('x', backend_config=1)",
        "def pipeline(x): ...\npipeline('x')",
        "client.pipeline('x')",
        "print('lmdeploy serve api_server m')",
    ],
)
def test_another_pipeline_is_not_lmdeploys(text: str) -> None:
    """A pipeline imported from elsewhere is ignored."""
    assert read("x.py", text).launches == ()


# --- manifests

COMPOSE = """services:
  api:  # the server
    image: openmmlab/lmdeploy:v0.9.0
    entrypoint: ["lmdeploy"]
    command:
      - serve
      - api_server
      - ${MODEL:-org/m}
      - --tp
      - "2"
    environment:
      - CUDA_VISIBLE_DEVICES=0,1
    shm_size: '16gb'
    ports: ["80:23333"]
    restart: always
    healthcheck: {test: ["CMD", "curl", "http://localhost:23333/health"], interval: 30s, retries: 3,
                  start_period: 1m30s}
    deploy: {resources: {reservations: {devices: [{device_ids: ["0", "1"], capabilities: [gpu]}]}}}
  folded: &folded
    image: x
    ipc: host
    command: >
      bash -c "cd /x &&
      lmdeploy serve api_server org/é
      --tp 4"
  plain:
    <<: *folded
    command: |
      lmdeploy serve api_server org/m
        --tp 8
  script:
    command:
      - sh
      - -c
      - |
        # within
        exec lmdeploy serve api_server "$$MODEL" \\
          --tp 1
    environment: {MODEL: org/x}
"""


def test_a_compose_file() -> None:
    """Commands as lists, texts and scripts are read, with their containers and places."""
    script = read("docker-compose.yml", COMPOSE)
    assert script.kind == "compose"
    found = script.launches
    assert [each.model.value if each.model else "" for each in found] == ["org/m", "org/é", "org/m", "org/x"]
    assert [given_options(each)["--tp"] for each in found] == [["2"], ["4"], ["8"], ["1"]]
    assert [text_at(COMPOSE, each.options[0].values[0].literal) for each in found] == ["2", "4", "8", "1"]
    expected = [["--tp", "-", '"2"'], ["--tp", "4"], ["--tp", "8"], ["--tp", "1"]]
    assert [text_at(COMPOSE, each.options[0].whole).split() for each in found] == expected
    box = found[0].container
    assert (box.shm_bytes, box.gpus, [word.value for word in box.published]) == (16 * 2**30, 2, ["80:23333"])
    (probe,) = box.probes
    expected = ("healthcheck", "/health", 90, 30, 3)
    assert (probe.kind, probe.path, probe.initial_s, probe.period_s, probe.failures) == expected
    assert found[0].environment["CUDA_VISIBLE_DEVICES"].value == "0,1"
    assert [each.container.host_ipc for each in found if each.container] == [False, True, True, False]
    assert [comment.text for comment in script.comments] == ["# the server", "# within"]


KUBERNETES = """apiVersion: v1
kind: Pod
spec:
  restartPolicy: Always
  containers:
    - name: main
      image: "openmmlab/lmdeploy:v0.10.0"
      command: ["lmdeploy", "serve", "api_server"]
      args: [$(MODEL), --tp=$(TP), '--server-port', '8000']
      env:
        - {name: MODEL, value: org/m}
        - {name: TP, value: "4"}
        - {name: KEY, valueFrom: {secretKeyRef: {name: a, key: b}}}
      resources: {limits: {nvidia.com/gpu: 4}}
      livenessProbe: {httpGet: {path: /health, port: 8000}, initialDelaySeconds: 30}
      volumeMounts: [{name: shm, mountPath: /dev/shm}]
  volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}]
---
kind: List
items:
  - kind: Deployment
    spec:
      template:
        spec:
          hostIPC: true
          containers: [{command: [bash, -c, "lmdeploy serve api_server org/\\u00fc --tp 2"]}]
"""


def test_kubernetes() -> None:
    """Nested pods are read, with variables, GPUs, memory and probes."""
    script = read("pod.yaml", KUBERNETES)
    first, second = script.launches
    assert (first.model.value, first.model.raw) == ("org/m", "$(MODEL)")
    assert text_at(KUBERNETES, first.model.literal) == "org/m"
    assert given_options(first) == {"--tp": ["4"], "--server-port": ["8000"]}
    assert {name: word.value for name, word in first.environment.items()} == {"MODEL": "org/m", "TP": "4", "KEY": None}
    box = first.container
    assert (box.gpus, box.shm_bytes, box.probes[0].kind, box.probes[0].initial_s) == (4, 16 * 2**30, "liveness", 30)
    assert box.restart.value == "Always"
    assert (second.model.value, second.model.literal) == ("org/ü", None)
    assert text_at(KUBERNETES, second.options[0].whole) == "--tp 2"
    assert second.container.host_ipc


def test_a_dockerfile() -> None:
    """The last stage's entrypoint and command, as JSON and as a shell's line."""
    text = 'FROM a AS b\nFROM lmdeploy:1\nENV A="b c"\n# é\n'
    text += 'ENTRYPOINT ["lmdeploy", "serve"]\nCMD ["api_server", \\\n "m"]\n'
    launch = only_launch(text, None, "Dockerfile")
    assert (launch.model.value, launch.container.image.value) == ("m", "lmdeploy:1")
    assert launch.environment["A"].value == "b c"
    text = "FROM x\nENV TP=2\nCMD lmdeploy serve api_server ${M:-m} --tp $TP\n"
    assert given_options(only_launch(text, None, "Dockerfile")) == {"--tp": ["2"]}


# --- kinds

KINDS = [
    ("x.sh", "", "bash"),
    ("x.py", "", "python"),
    ("docker-compose.yml", "services: {}", "compose"),
    ("x.yaml", "services:\n  a: {}", "compose"),
    ("x.yaml", "apiVersion: v1", "kubernetes"),
    ("Dockerfile", "", "docker"),
    ("-", "FROM x\nCMD y", "docker"),
    ("-", "lmdeploy serve api_server m", "command"),
    ("-", "lmdeploy serve api_server m \\\n --tp 2", "command"),
    ("-", "a\nb", "bash"),
    ("-", "#!/usr/bin/env python3\n", "python"),
    ("-", "#!/bin/sh\nfrom x import y", "bash"),
    ("-", "from lmdeploy import pipeline\np = pipeline('m')", "python"),
    ("-", "docker run x", "docker"),
    ("-", "apiVersion: v1\nkind: Pod", "kubernetes"),
    ("-", "services:\n  a:\n", "compose"),
    ("start", "", "bash"),
]


@pytest.mark.parametrize(("path", "text", "kind"), KINDS)
def test_the_kind_of_a_file(path: str, text: str, kind: str) -> None:
    """The kind follows from the name, the first line or the content."""
    assert kind_of(path, text) == kind


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("bash", "a 'b"),
        ("bash", "if x; then"),
        ("python", "def f(:"),
        ("compose", "a: [b"),
        ("kubernetes", "a:\n\t- b"),
    ],
)
def test_what_cannot_be_read_is_told(kind: Kind, text: str) -> None:
    """A syntax error becomes a problem with a place."""
    assert read("x", text, kind).problems


# --- the seeds and the corpus


def commands(seeds: Seeds) -> Iterator[tuple[str, dict[str, str], str]]:
    """Each code block with a server: text, its options and its model by a reading of its own."""
    for seed in ("001", "002", "003"):
        for block in blocks(seeds.lines(seed)):
            script = read_script(block.lines) if block.is_shell else None
            if script is not None and script.is_command:
                options = {name: script.expand(value) for name, value in script.options.items()}
                yield block.text, options, script.expand(script.positional)


def test_every_command_of_the_seeds_is_read(seeds: Seeds) -> None:
    """One server a script, with the model and the options that an independent reading finds."""
    found = list(commands(seeds))
    assert len(found) == 6
    for text, options, model in found:
        launch = only_launch(text)
        assert launch.model.value == model
        read_options = {
            option_id(option.name): option.values[0].value if option.values else "true" for option in launch.options
        }
        assert read_options == options
        assert not launch.unsure


ADVISERS = {"gemini": 0, "claude": 1, "kimi": 2, "grok": 3, "guide": 4, "baseline": 5}


@pytest.mark.parametrize("adviser", ADVISERS)
def test_what_an_adviser_advised_is_what_its_script_says(seeds: Seeds, adviser: str) -> None:
    """The adviser's record and the reader agree on each option and variable that the script gives."""
    record = yaml.safe_load((ROOT / "knowledge" / "advisers" / f"{adviser}.yaml").read_text("utf-8"))
    advised = {each["option"]: each["value"] for each in record["settings"] if each.get("final", True)}
    launch = only_launch(list(commands(seeds))[ADVISERS[adviser]][0])
    for option in launch.options:
        value = option.values[0].value if option.values else "true"
        assert advised[option_id(option.name)] == value, option.name
    for name, word in launch.environment.items():
        if option_id(name) in advised:
            assert word.value == advised[option_id(name)], name


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_every_published_command_is_read(path: Path) -> None:
    """Each text of the corpus has its launch, by the kind that the corpus says."""
    entry: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    script = read(path.name, entry["text"], entry["kind"])
    assert script.launches
    check_places(script)


def test_the_kinds_of_published_commands() -> None:
    """The kind is detected; a command of several lines may count as a script."""
    alike = {"bash": {"bash", "command", "docker"}, "command": {"command"}}
    for path in CORPUS:
        entry = yaml.safe_load(path.read_text("utf-8"))
        assert kind_of("-", entry["text"]) in alike.get(entry["kind"], {entry["kind"]}), path.stem


# --- what holds for any text


def parts(thing: object) -> Iterator[object]:
    stack = [thing]
    while stack:
        here = stack.pop()
        yield here
        if dataclasses.is_dataclass(here):
            stack += [getattr(here, field.name) for field in dataclasses.fields(here)]
        elif isinstance(here, tuple | list):
            stack += here
        elif isinstance(here, dict):
            stack += here.values()


def check_places(script: Script) -> None:
    """Assert that each place is within the text and each word is at its place."""
    text = script.text
    for part in parts(script):
        if isinstance(part, Span):
            assert 0 <= part.start <= part.end <= len(text)
            assert part.line == text.count("\n", 0, part.start) + 1
            assert part.column == part.start - (text.rfind("\n", 0, part.start) + 1) + 1
        elif isinstance(part, Word):
            assert text_at(text, part.place) == part.raw
            if part.literal is not None:
                assert text_at(text, part.literal) == part.value


BASES: list[tuple[Kind, str]] = [
    *(("bash", row[0]) for row in VALUES),
    *(("bash", text) for text in STARTS),
    *(("bash", row[0]) for row in LOOPS),
    *(("python", row[0]) for row in PYTHON),
    *[("compose", COMPOSE)] * 12,
    *[("kubernetes", KUBERNETES)] * 12,
    *(("docker", 'FROM x\nENV A=1\nCMD ["lmdeploy", "serve", "api_server", "m"]\n') for _ in range(4)),
]
ODD = ["'", '"', "`", "$", "${", "}", "$(", ")", "((", "\\", "\n", "\r\n", "&", "|", "<<EOF\n", "é", "\u2028", "\0"]
ODD += ["[", "]", "{", ":", "- ", "*a", "&a ", "#", "\t", "@", "=", "+=", ";;", "if ", "done\n", "$@", "\ufeff", "🙂"]
ODD += ["\ud800"]


@st.composite
def mutated(draw: st.DrawFn) -> tuple[Kind, str]:
    """A readable text with a few pieces gone, doubled or put in."""
    kind, text = draw(st.sampled_from(BASES))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.integers(0, 12)))
        piece = draw(st.one_of(st.sampled_from(ODD), st.just(""), st.just(text[at:end] * 2), st.text(max_size=3)))
        text = text[:at] + piece + text[end:]
    return kind, text


@settings(max_examples=400)
@given(mutated())
def test_places_hold_in_any_text(case: tuple[Kind, str]) -> None:
    """A mutated text is read without an exception, and every place is right."""
    kind, text = case
    check_places(read("x", text, kind))


@settings(max_examples=150)
@given(st.text(max_size=300), st.sampled_from(["bash", "python", "docker", "compose", "kubernetes", None]))
def test_any_text_is_read(text: str, kind: Kind | None) -> None:
    """No text raises an exception."""
    check_places(read("x", text, kind))


NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True).filter(lambda name: name not in ("IFS", "_"))
PLAIN = st.text(
    st.characters(codec="utf-8", exclude_characters="'\0\r", exclude_categories=["Cs"]), min_size=1, max_size=12
).filter(lambda text: not text.startswith("-"))  # which LMDeploy's parser takes for an option too


@settings(max_examples=150)
@given(NAMES, PLAIN)
def test_a_quoted_value_comes_out_as_it_went_in(name: str, value: str) -> None:
    """Text in single quotes is the value, also through a variable."""
    text = f"{name}='{value}'\nlmdeploy serve api_server \"${{{name}}}\" --model-name '{value}' --dtype=\"${name}\"\n"
    launch = only_launch(text)
    assert launch.model.value == value
    for option in launch.options:
        assert option.values[0].value == value
        assert text_at(text, option.values[0].literal) == value


LARGE = 200_000
HOSTILE: list[tuple[Kind, str]] = [
    *(
        ("bash", unit)
        for unit in ["(", "$(", "${", '"$(', "`", "if true; then ", "A=(", "a | ", "a && ", "{ ", "<<A ", "'"]
    ),
    *(("bash", unit) for unit in ["A=$A$A\n", "f() { f; f; }\nf\n", "x=1\n", "bash -c 'bash -c ", "2>&1 `", "é "]),
    *(("python", unit) for unit in ["(", "-", "a.", "f(", "x=x\n", "'", "lambda:", "a=f'{a}{a}'\n", "if x:\n "]),
    *(("kubernetes", unit) for unit in ["[", "{", "- ", "&a [*a]\n", "a:\n ", "? ", "- - ", "a: &a {<<: *a}\n"]),
    *(
        ("hcl", unit)
        for unit in [
            "{",
            "a = [",
            "<<A\n",
            '"${',
            "a = b(",
            "a {\n",
            "x = y\n",
            "#",
            "locals { a = local.a }\n",
            "locals { a = [local.a, local.a] }\n",
        ]
    ),
    *(("markdown", unit) for unit in ["```\n", "``` ", "> ~~~\n", "```sh\n$ x\n```\n"]),
    *(("docker", unit) for unit in ["FROM ", 'CMD ["', "ENV A=1 ", "\\\n"]),
]


@pytest.mark.parametrize(("kind", "unit"), HOSTILE)
def test_a_hostile_text_takes_no_longer_than_any(kind: Kind, unit: str) -> None:
    """200 kB of a repeated unit are read or refused within seconds."""
    text = (unit * (LARGE // len(unit) + 1))[:LARGE]
    began = time.process_time()
    read("x", text, kind)
    took = time.process_time() - began
    assert is_within(took, 6)  # under coverage; a quarter of it without


def test_a_text_that_is_too_long_is_not_read() -> None:
    """A text above the limit yields one problem and no launch."""
    script = read("x.sh", "lmdeploy serve api_server m\n" * (MOST_CHARACTERS // 20))
    assert len(script.problems) == 1
    assert not script.launches


def test_an_alias_that_grows_is_read_once() -> None:
    """A YAML whose aliases would unfold to billions of nodes stays as small as its text."""
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 60))]
    assert read("x.yaml", "apiVersion: v1\n" + "\n".join(lines) + "\nspec: {containers: *a59}\n").launches == ()


@pytest.mark.parametrize("folder", ["readers", "script", "shell"])
def test_nothing_of_a_file_is_run(folder: str) -> None:
    """The readers import nothing that starts a process, evaluates text or opens a file."""
    paths = sorted((ROOT / "recommender" / "review" / folder).glob("*.py"))
    assert len(paths) > 3
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", "") or ""}
                assert not {name.partition(".")[0] for name in names} & {"subprocess", "socket", "runpy", "pickle"}
            if isinstance(node, ast.Call):
                callee = getattr(node.func, "id", "")
                assert callee not in ("eval", "exec", "compile", "open", "__import__"), path.name


# --- what stands in the way of a launch


@pytest.mark.parametrize(
    "line",
    [
        'exec 3<>"/dev/tcp/127.0.0.1/23333"',
        "cat 3<>$fifo",
        'if (exec 3<>"/dev/tcp/${HOST:-localhost}/$port") 2>/dev/null; then echo up; fi',
        "echo '<>' \"<>\"",
    ],
)
def test_a_file_that_is_read_and_written_is_no_trouble(line: str) -> None:
    """The grammar lacks this redirection; the text after it is still read."""
    script = read("start.sh", f"{line}\nlmdeploy serve api_server m --tp 2 --model-name 'a<>b'\n", "bash")
    assert script.problems == ()
    assert given_options(script.launches[0]) == {"--tp": ["2"], "--model-name": ["a<>b"]}


@pytest.mark.parametrize("start", ["bash -c", "sudo sh -c", "docker run --gpus all img bash -c"])
def test_a_command_in_double_quotes_goes_on_behind_a_backslash(start: str) -> None:
    """The outer shell removes the escaped line end; every option keeps its place in the file."""
    text = f'{start} "cd /srv && \\\n  lmdeploy serve api_server \\$MODEL \\\n    --tp 2 \\\n    --session-len 8192"\n'
    launch = only_launch(text)
    assert given_options(launch) == {"--tp": ["2"], "--session-len": ["8192"]}
    assert [text_at(text, option.whole) for option in launch.options] == ["--tp 2", "--session-len 8192"]
    assert launch.model.value is None


def test_an_array_that_a_branch_appends_to_is_read_whole() -> None:
    """The words that one branch appends are read too, as if it were always taken."""
    text = 'args=(--tp 2)\nif a; then args+=(--session-len 8); fi\nlmdeploy serve api_server m "${args[@]}"\n'
    launch = only_launch(text)
    assert given_options(launch) == {"--tp": ["2"], "--session-len": ["8"]}
    assert not launch.unsure
    assert text_at(text, launch.options[0].whole) == "--tp 2"
    other = only_launch('if a; then args=(--tp 2); else args=(--dp 2); fi\nlmdeploy serve api_server m "${args[@]}"\n')
    assert (given_options(other), other.unsure) == ({"--tp": ["2"]}, False)
    assert [given_options(each) for each in other.alternatives] == [{"--dp": ["2"]}]


def test_servers_of_a_loop_behind_a_proxy_are_found() -> None:
    """The program's array is unknown; the words after it show that it serves."""
    text = """\
lmdeploy=(lmdeploy)
if [[ -n $PYTHON ]]; then lmdeploy=("$PYTHON" -m lmdeploy); fi
front=("${lmdeploy[@]}" serve proxy --server-port 8000)
if ((${#keys[@]})); then front+=(--api-keys "${keys[@]}"); fi
"${front[@]}" &
for ((server = 0; server < 2; server++)); do
  CUDA_VISIBLE_DEVICES=$server "${lmdeploy[@]}" serve api_server "$MODEL" --tp 1 --server-port $((23333 + server)) &
done
wait
"""
    proxy, server = read("start.sh", text, "bash").launches
    assert (proxy.starts, given_options(proxy)) == ("proxy", {"--server-port": ["8000"], "--api-keys": [None]})
    assert (server.starts, given_options(server)) == ("api_server", {"--tp": ["1"], "--server-port": [None]})
    assert server.background


def test_a_keyword_tells_whose_it_is() -> None:
    """``callee`` separates pipeline()'s keywords from the engine's, also for later assignments."""
    text = (
        "from lmdeploy import pipeline, TurbomindEngineConfig as T, GenerationConfig\n"
        "engine = T(tp=2)\nengine.session_len = 8\n"
        "pipe = pipeline('m', backend_config=engine, trust_remote_code=True, log_level='INFO')\n"
        "pipe('x', gen_config=GenerationConfig(top_k=1))\n"
    )
    launch = only_launch(text, "python", "serve.py")
    assert {option.name: option.callee for option in launch.options} == {
        "tp": "TurbomindEngineConfig",
        "session_len": "TurbomindEngineConfig",
        "trust_remote_code": "pipeline",
        "log_level": "pipeline",
        "GenerationConfig.top_k": "GenerationConfig",
    }


@pytest.mark.parametrize("use", ["${00}", "${01}", "${00001}", "${999999}", "$0"])
def test_an_argument_of_any_number_is_no_crash(use: str) -> None:
    """Arguments count from 1; those after the last are empty."""
    text = f"f() {{ lmdeploy serve api_server m --tp {use}; }}\nf\nf 2\n"
    assert read("start.sh", text, "bash").launches


def test_two_dollars_of_a_pod_are_one() -> None:
    """In a script of arguments too. [Kubernetes API, Container v1 core, args]"""
    script = read(
        "pod.yaml",
        """apiVersion: v1
kind: Pod
metadata: {name: m}
spec:
  containers:
    - name: server
      command: [sh, -c]
      args: ['exec lmdeploy serve api_server "$$MODEL" --tp 1 --model-name "$${NAME}"']
      env:
        - {name: MODEL, value: org/x}
        - {name: NAME, value: given}
""",
    )
    (launch,) = script.launches
    assert launch.model.value == "org/x"
    assert given_options(launch) == {"--tp": ["1"], "--model-name": ["given"]}


def deployment(replicas: str) -> str:
    return f"""apiVersion: apps/v1
kind: Deployment
metadata: {{name: m}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{a: b}}}}
  template:
    metadata: {{labels: {{a: b}}}}
    spec:
      containers:
        - name: server
          command: [lmdeploy, serve, api_server, OpenGVLab/InternVL3-8B-AWQ, --max-batch-size, "8"]
"""


@pytest.mark.parametrize(("replicas", "number"), [("1", 1), ("4", 4), ("$(COUNT)", None)])
def test_how_many_of_a_container_there_are(replicas: str, number: int | None) -> None:
    """Replicas are counted; with several, a batch below the whole load is not reported."""
    text = deployment(replicas)
    container = read("deployment.yaml", text).launches[0].container
    assert container.replicas == number
    found = engine.review("deployment.yaml", text, {"gpu": "H100-80G", "load": "32"})
    assert ("LMD206" in {finding.rule.id for finding in found.findings}) == (number == 1)


def test_how_many_of_a_service_there_are() -> None:
    """deploy.replicas or scale sets the count; the default is 1."""
    text = "services:\n" + "".join(
        f"  s{number}:\n    command: lmdeploy serve api_server org/m\n{more}"
        for number, more in enumerate(("", "    scale: 3\n", "    deploy: {replicas: 2}\n"))
    )
    containers = [launch.container for launch in read("compose.yaml", text).launches]
    assert [container and container.replicas for container in containers] == [1, 3, 2]


TERRAFORM = """\
# lmdeploy in containers and on an instance
locals { model = "Qwen/Qwen3-8B" }
variable "tp" {
  type    = number
  default = 2
}
resource "aws_ecs_task_definition" "llm" {
  container_definitions = jsonencode([{
    image   = "openmmlab/lmdeploy:v0.18.0"
    command = ["lmdeploy", "serve", "api_server", local.model, "--tp", tostring(var.tp), "--dtype", var.other]
  }])
}
resource "aws_instance" "llm" {
  user_data = <<-EOT
    #!/bin/bash
    MODEL=${local.model}
    lmdeploy serve api_server $${MODEL} --tp ${var.tp} \\
      --eager-mode
  EOT
}
output "command" { value = join(" ", ["lmdeploy", "serve", "api_server", "é", "--model-name", "a\\"b"]) }
"""


def test_hcl_gives_its_words_their_places() -> None:
    """Lists, here-documents and join; variables and locals have the values that the file gives, at their places."""
    script = read("main.tf", TERRAFORM)
    listed, written, joined = script.launches
    for launch in (listed, written):
        assert launch.model.value == "Qwen/Qwen3-8B"
        assert text_at(TERRAFORM, launch.model.literal) == "Qwen/Qwen3-8B"
        assert given_options(launch)["--tp"] == ["2"]
    assert listed.container.image.value == "openmmlab/lmdeploy:v0.18.0"
    assert joined.model.value == "é"
    assert [text_at(TERRAFORM, launch.model.place) for launch in script.launches] == [
        '"Qwen/Qwen3-8B"',
        "$${MODEL}",
        '"é"',
    ]
    (problem,) = script.problems
    assert "var.other" in problem.message
    assert text_at(TERRAFORM, problem.place) == "var.other"
    comments = [comment.text for comment in script.comments]
    assert comments == ["# lmdeploy in containers and on an instance", "#!/bin/bash"]


def test_locals_that_use_each_other_are_counted() -> None:
    """Each twice the one before, and one itself: without a limit that is 2^27 values."""
    doubled = "".join(f"  b{number} = [local.b{number - 1}, local.b{number - 1}]\n" for number in range(1, 28))
    text = f'locals {{\n  a = [local.a, local.a]\n  b0 = "lmdeploy"\n{doubled}}}\nx "y" {{ command = local.b27 }}\n'
    began = time.process_time()
    script = read("a.tf", text)
    assert is_within(time.process_time() - began, 6)
    assert not script.launches
    assert script.problems


def test_what_is_not_hcl_is_said() -> None:
    """And what can be read beside it is."""
    script = read("a.nomad", 'task "x" {\n  config { args = ["lmdeploy", "serve", "api_server", "m"] }\n}\n}}} = [\n')
    assert [launch.model.value for launch in script.launches] == ["m"]
    assert any(problem.message == "this is not valid HCL" for problem in script.problems)


MARKDOWN = """\
Run `lmdeploy serve api_server nothing`, or as here:

```bash
lmdeploy serve api_server one \\
  --tp 2
```

1. At a prompt

   ```console
   $ lmdeploy serve api_server two --tp 3
   INFO started
   ```

~~~python
from lmdeploy import pipeline
pipe = pipeline("three")
~~~

```text
lmdeploy serve api_server four
```

```diff
+lmdeploy serve api_server five
```
"""


def test_markdown_starts_what_its_blocks_start() -> None:
    """By the block's language, at its place; of plain text, what begins as a command; prose starts nothing."""
    script = read("README.md", MARKDOWN)
    models = [launch.model for launch in script.launches]
    assert [model.value for model in models] == ["one", "two", "three", "four"]
    assert [text_at(MARKDOWN, model.literal) for model in models] == ["one", "two", "three", "four"]
    (problem,) = script.problems
    assert problem.place.line == MARKDOWN[: MARKDOWN.index("five")].count("\n") + 1


def test_a_recipe_of_just_knows_its_variables() -> None:
    """Those of the file, and the defaults of its parameters."""
    text = 'model := "a"\n\nserve port="8000":\n    @lmdeploy serve api_server {{model}} --server-port {{ port }}'
    text += " --tp {{tp}}\n"
    script = read("justfile", text)
    (launch,) = script.launches
    assert launch.model.value == "a"
    assert given_options(launch)["--server-port"] == ["8000"]
    assert "{{tp}}" in script.problems[0].message


@pytest.mark.parametrize("end", range(1, 6))
def test_a_batch_file_may_end_anywhere(end: int) -> None:
    """Also in the middle of a command that sets a variable, without a line end."""
    lines = ["@echo off", "setlocal", "set MODEL=org/m", "set OMP_NUM_THREADS=4", "lmdeploy serve api_server %MODEL%"]
    script = read("serve.bat", "\n".join(lines[:end]))
    assert [launch.model.value for launch in script.launches] == ["org/m"] * (end == len(lines))


@pytest.mark.parametrize(
    "total", ["BASE + 1", "$BASE+2", "${BASE} + 3 * N", "BASE - 10*N - 1", "7", "2 * BASE", "N", "BASE + 0"]
)
def test_a_sum_is_what_bash_makes_of_it(total: str) -> None:
    """Of known variables and numbers."""
    head = "BASE=8000\nN=4\n"
    expected = subprocess.run(["bash", "-c", f"{head}echo $(({total}))"], capture_output=True, text=True, check=True)
    launch = only_launch(f"{head}lmdeploy serve api_server m --server-port $(({total}))\n")
    assert given_options(launch) == {"--server-port": [expected.stdout.strip()]}


@pytest.mark.parametrize("total", ["BASE + OTHER", "BASE / 3", "$1 + 1", "010 + 1", "BASE++", "RANDOM + 1"])
def test_other_sums_are_unknown(total: str) -> None:
    """A caller's variable, an octal number, a change or a chance."""
    launch = only_launch(f"BASE=8000\nlmdeploy serve api_server m --server-port $(({total}))\n")
    assert given_options(launch) == {"--server-port": [None]}
