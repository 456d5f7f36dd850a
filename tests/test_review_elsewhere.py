"""What a server gets from another place of its file: a container, a call, a file that is written, a requirement."""

import pytest
from scripts import given_options, only_launch, rules_found

from recommender.review.context import context
from recommender.review.engine import review
from recommender.review.readers.detect_kind import read
from recommender.review.script.batch_job import gpus

SERVE = "lmdeploy serve api_server Qwen/Qwen3-8B"
RUN = "docker run -d --gpus device=0 --name llm -p 23333:23333 openmmlab/lmdeploy:v0.12.0-cu12 sleep infinity\n"


def release(path: str, text: str) -> str | None:
    """Return the release that a file names for its only server; None if it names none."""
    script = read(path, text)
    (launch,) = script.launches
    known = context(script, launch, {})
    return known.resolved.release.id if "lmdeploy" in known.answered else None


@pytest.mark.parametrize(("name", "rules"), [("llm", ["LMD110"]), ("other", [])])
def test_docker_exec_runs_in_the_container_of_that_name(name: str, rules: list[str]) -> None:
    """Its image and its GPUs are the server's; those of another container are not."""
    text = f"#!/bin/bash\n{RUN}docker exec -d {name} {SERVE} --tp 2\n"
    shared = ["LMD609"] if rules else []
    assert rules_found("x.sh", text) == sorted(rules + shared)
    assert release("x.sh", text) == ("0.12.0" if rules else None)


@pytest.mark.parametrize(("options", "known"), [("$OPTIONS", True), ("-v $HOME:/root", True), ("", True)])
def test_an_image_behind_unknown_options_is_found(options: str, known: bool) -> None:
    """A variable with options is not taken for the image."""
    text = f"#!/bin/bash\ndocker run {options} openmmlab/lmdeploy:v0.12.0 {SERVE}\n"
    assert (release("x.sh", text) == "0.12.0") is known


REQUIRED = '# /// script\n# dependencies = ["lmdeploy==0.12.0"]\n# ///\nimport lmdeploy\nlmdeploy.pipeline("m")\n'


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("x.sh", f"apptainer pull a.sif docker://openmmlab/lmdeploy:v0.12.0\napptainer exec a.sif {SERVE}\n", "0.12.0"),
        ("x.sh", f"echo docker://openmmlab/lmdeploy:v0.12.0\napptainer exec a.sif {SERVE}\n", None),
        ("x.py", REQUIRED, "0.12.0"),
        ("x.py", '# needs "lmdeploy==0.12.0"\nimport lmdeploy\nlmdeploy.pipeline("m")\n', None),
    ],
)
def test_what_is_pulled_or_required_names_the_release(path: str, text: str, expected: str | None) -> None:
    """An image that the job fetches, and a script's own requirements; what is printed or only said does not."""
    assert release(path, text) == expected


CALLED = "import subprocess\ndef go(m):\n    subprocess.Popen(['lmdeploy', 'serve', 'api_server', m])\n"


def test_each_call_of_a_function_is_judged() -> None:
    """One of several models is wrong: it is found where it is given."""
    text = f"{CALLED}go('OpenGVLab/InternVL3-8B')\ngo('Qwen/Qwen3-8B')\n"
    errors = [each for each in review("x.py", text, {}).findings if each.severity == "error"]
    assert [(each.rule.id, each.place.line) for each in errors] == [("LMD108", 4)]
    assert len(read("x.py", text).launches) == 1


TABLE = 'T = {"a": ("OpenGVLab/InternVL3-8B", 1), "b": ("Qwen/Qwen3-8B", 2)}\n'
START = "subprocess.Popen(['lmdeploy', 'serve', 'api_server', m, '--server-port', str(p)])\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{TABLE}def go(key):\n    m, p = T[key]\n    {START}go(name())\n",
        f"{TABLE}for key, (m, p) in T.items():\n    {START}",
        f"for m, p in [('Qwen/Qwen3-8B', 1), ('OpenGVLab/InternVL3-8B', 2)]:\n    {START}",
        f"A = ['OpenGVLab/InternVL3-8B', 'Qwen/Qwen3-8B']\nB = [1, 2]\nfor m, p in zip(A, B):\n    {START}",
    ],
)
def test_each_row_of_a_table_is_judged(text: str) -> None:
    """By a key that only a run knows, or in a loop; every value is known, so nothing is said to be unread."""
    assert rules_found("x.py", f"import subprocess\n{text}") == ["LMD108"]
    (launch,) = read("x.py", f"import subprocess\n{text}").launches
    both = [given_options(each)["--server-port"][0] for each in (launch, *launch.alternatives)]
    assert sorted(map(str, both)) == ["1", "2"]


def test_rows_of_another_form_are_unknown() -> None:
    """A table with one odd row, and one that somebody else fills."""
    for table in ('{"a": ("m", 1), "b": "n"}', "load()"):
        text = f"import subprocess\nT = {table}\ndef go(key):\n    m, p = T[key]\n    {START}go(name())\n"
        assert rules_found("x.py", text) == ["LMD002"]


def test_a_call_may_leave_out_what_the_programs_arguments_give() -> None:
    """``main(*sys.argv[1:])`` is the default's; of any other list nothing is known."""
    for spread, model in (("sys.argv[1:]", "m"), ("names", None)):
        text = f"import sys\n{CALLED.replace('go(m)', 'go(m=chr(109))').replace('chr(109)', repr('m'))}go(*{spread})\n"
        assert only_launch(text, "python", "x.py").model.value == model


def test_a_template_may_be_the_first_argument() -> None:
    """So in every release; positional arguments of an engine stay unknown."""
    head = "from lmdeploy import *\n"
    launch = only_launch(f"{head}pipeline('m', chat_template_config=ChatTemplateConfig('x'))\n", "python", "x.py")
    assert given_options(launch) == {"ChatTemplateConfig.model_name": ["x"]}
    assert not launch.unsure
    assert only_launch(f"{head}pipeline('m', backend_config=TurbomindEngineConfig('x'))\n", "python", "x.py").unsure


def test_an_environment_may_be_made_by_a_function() -> None:
    """What it returns, and what it adds to that."""
    text = (
        "import os, subprocess\ndef made():\n    env = os.environ.copy()\n    env['CUDA_VISIBLE_DEVICES'] = '0'\n"
        "    return env\nsubprocess.run(['lmdeploy', 'serve', 'api_server', 'm', '--tp', '2'], env=made())\n"
    )
    assert rules_found("x.py", text) == ["LMD110"]


def test_a_script_with_values_is_read() -> None:
    """A text of several lines in an f-string: tools and servers in it are read at their places."""
    text = f'M = "m"\nBash(command=f"""\nset -e\n{SERVE.replace("Qwen/Qwen3-8B", "{M}")} --nope 1\n""")\n'
    finding = next(each for each in review("x.py", text, {}).findings if each.rule.id == "LMD101")
    assert finding.place.line == 4


def test_each_list_that_a_program_sets_is_a_command() -> None:
    """A later branch does not hide an earlier one; a list that holds the one before is the same command."""
    text = (
        'if (a) { x = ["lmdeploy", "serve", "api_server", m, "--tp", "2"] } else { x = ["vllm", "serve", m] }\nrun(x)\n'
    )
    assert given_options(only_launch(text, "program", "x.ts")) == {"--tp": ["2"]}
    again = 'x = ["lmdeploy", "serve", "api_server", "m"]\nx = ["nohup", ...x]\nrun(x)\n'
    assert len(read("x.ts", again).launches) == 1


JOB = """apiVersion: ray.io/v1
kind: RayJob
spec:
  entrypoint: >-
    lmdeploy serve api_server m
    --tp 2
  rayClusterSpec:
    headGroupSpec:
      template: {spec: {containers: [{name: head, image: "openmmlab/lmdeploy:v0.12.0", resources: {limits: {nvidia.com/gpu: 1}}}]}}
"""  # noqa: E501


@pytest.mark.parametrize(("more", "too_many"), [("", True), ("    workerGroupSpecs: [{replicas: 2}]\n", False)])
def test_the_entry_point_of_a_ray_job_runs_in_its_head(more: str, too_many: bool) -> None:
    """With its image and its GPUs; workers may have more."""
    assert ("LMD110" in rules_found("x.yaml", JOB + more)) is too_many
    assert release("x.yaml", JOB + more) == "0.12.0"


def test_a_service_of_openrc_runs_its_command() -> None:
    """The same variables in another script start nothing."""
    text = 'command="/opt/bin/lmdeploy"\ncommand_args="serve api_server m --tp 2"\nexport CUDA_VISIBLE_DEVICES=0\n'
    assert rules_found("x", f"#!/sbin/openrc-run\n{text}") == ["LMD110"]
    assert not read("x.sh", f"#!/bin/sh\n{text}").launches


UNIT = "[Service]\nEnvironmentFile=/etc/x.env\nExecStart=/bin/lmdeploy serve api_server m --server-port ${PORT}\n"


@pytest.mark.parametrize(("file", "port"), [("/etc/x.env", "8000"), ("/etc/y.env", None)])
def test_a_unit_has_the_environment_that_its_file_writes(file: str, port: str | None) -> None:
    """A here-document and cloud-init write both; another file's variables are not the unit's."""
    heredocs = f"cat > {file} <<'EOF'\nPORT=8000\nEOF\ncat > /etc/systemd/system/x.service <<'EOF'\n{UNIT}EOF\n"
    written = "".join(
        f"  - path: {path}\n    content: |\n" + "".join(f"      {line}\n" for line in text.splitlines())
        for path, text in ((file, "PORT=8000\n"), ("/etc/systemd/system/x.service", UNIT))
    )
    for path, text in (("x.sh", heredocs), ("x.yaml", f"#cloud-config\nwrite_files:\n{written}")):
        (launch,) = read(path, text).launches
        assert given_options(launch) == {"--server-port": [port]}, path


@pytest.mark.parametrize(
    ("cards", "count"),
    [("{H100: 2, A100-80GB: 2}", 2), ("{H100: 2, L4: 4}", None), ("[H100:2, 'A100:2']", 2), ("[L4]", 1)],
)
def test_a_choice_of_cards_has_a_count_if_all_agree(cards: str, count: int | None) -> None:
    """SkyPilot takes whichever it gets."""
    assert gpus(read("x.yaml", f"resources:\n  accelerators: {cards}\nrun: |\n  {SERVE}\n")) == count


def test_a_batch_file_has_windows_line_ends() -> None:
    """In a shell's script they break the command."""
    line = f"{SERVE} --server-name 127.0.0.1"
    assert [rules_found(path, f"{line}\r\n{line}\r\n") for path in ("x.bat", "x.cmd")] == [[], []]
    assert "LMD129" in rules_found("x.sh", f"#!/bin/bash\r\n{line}\r\n")


@pytest.mark.parametrize(("shell", "rules"), [("", ["LMD604"]), ("      shell: bash {0}\n", [])])
def test_steps_end_at_the_first_failure(shell: str, rules: list[str]) -> None:
    """GitHub's shell has -e, so a request after a fixed pause may end the job; a shell of its own has not."""
    steps = f"jobs:\n  a:\n    runs-on: x\n    steps:\n    - run: |\n        {SERVE} --server-name 127.0.0.1 &\n"
    text = f"{steps}        sleep 60\n        curl -f http://127.0.0.1:23333/health\n{shell}"
    assert rules_found("x.yml", text) == rules


POD = """apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
    - name: a
      image: openmmlab/lmdeploy:v0.12.0
      command: [python3, -c]
      args:
        - |
          from lmdeploy import pipeline, TurbomindEngineConfig
          pipeline("m", backend_config=TurbomindEngineConfig(tp=2))
      resources: {limits: {nvidia.com/gpu: 1}}
"""


def test_a_pods_program_has_its_container() -> None:
    """Its GPUs and its image; a text that Python does not run is none."""
    assert "LMD110" in rules_found("x.yaml", POD)
    assert release("x.yaml", POD) == "0.12.0"
    assert not read("x.yaml", POD.replace("python3", "echo")).launches


def test_servers_in_windows_of_tmux_run_at_the_same_time() -> None:
    """Keys that are sent return at once, as a detached session does."""
    windows = [f'tmux send-keys -t {name} "{SERVE} --server-name 127.0.0.1 --server-port {{}}" C-m\n' for name in "ab"]
    ports = [("1", "1"), ("1", "2")]
    texts = ["#!/bin/bash\n" + "".join(map(str.format, windows, pair)) for pair in ports]
    assert ["LMD614" in rules_found("x.sh", text) for text in texts] == [True, False]


@pytest.mark.parametrize("made", ["field(default_factory=Inner)", "Inner()"])
def test_a_setting_within_a_setting_has_its_default(made: str) -> None:
    """A class of settings holds an object of another; what a function makes is unknown."""
    text = (
        "from lmdeploy import pipeline, TurbomindEngineConfig\nclass Inner:\n    tp: int = 2\n"
        "class Outer:\n    inner: Inner = {}\n"
        "def main(c: Outer):\n    pipeline('m', backend_config=TurbomindEngineConfig(tp=c.inner.tp))\n"
    )
    assert given_options(only_launch(text.format(made), "python", "x.py")) == {"tp": ["2"]}
    assert given_options(only_launch(text.format("load()"), "python", "x.py")) == {"tp": [None]}


@pytest.mark.parametrize(("keyword", "rules"), [("command", ["LMD108"]), ("words", [])])
def test_the_command_of_a_container_is_whole(keyword: str, rules: list[str]) -> None:
    """Another list may get more words where it is used."""
    text = f"add('x', {keyword}=['lmdeploy', 'serve', 'api_server', 'OpenGVLab/InternVL3-8B'])\n"
    assert rules_found("x.py", text) == rules


@pytest.mark.parametrize(("port", "rules"), [("8080:23333", []), ("8080:8080", ["LMD619"])])
def test_a_container_of_ansible_publishes_the_servers_port(port: str, rules: list[str]) -> None:
    """Its published port leads to the server, or nowhere."""
    words = ", ".join(SERVE.split())
    container = f"{{image: openmmlab/lmdeploy:v0.18.0, published_ports: ['127.0.0.1:{port}'], command: [{words}]}}"
    assert rules_found("tasks.yml", f"- name: a\n  community.docker.docker_container: {container}\n") == rules


SKY = "resources:\n  accelerators: {}\nrun: lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct\n"
LABELLED = """apiVersion: v1
kind: Pod
spec:
  nodeSelector: {{nvidia.com/gpu.product: {}}}
  containers:
    - name: a
      image: openmmlab/lmdeploy:v0.18.0
      args: [lmdeploy, serve, api_server, Qwen/Qwen2.5-32B-Instruct]
"""


@pytest.mark.parametrize(
    ("path", "text", "card", "rules"),
    [
        ("x.yaml", SKY, "L4:1", ["LMD122"]),
        ("x.yaml", SKY, "H200:1", []),
        ("x.yaml", SKY, "A100:1", []),
        ("x.yaml", SKY, "Unheard:1", []),
        ("x.yaml", LABELLED, "NVIDIA-L4", ["LMD122"]),
        ("x.yaml", LABELLED, "NVIDIA-A100-SXM4-80GB", []),
    ],
)
def test_a_card_that_the_file_names_is_judged(path: str, text: str, card: str, rules: list[str]) -> None:
    """64 GB of weights on 24 GB; a name that may mean several cards is none."""
    assert rules_found(path, text.format(card)) == rules
    given = review(path, text.format(card), {"gpu": "H200"}).findings
    assert "LMD122" not in [each.rule.id for each in given]
