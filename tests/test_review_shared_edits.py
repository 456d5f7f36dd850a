"""Repairs of values that something else depends on, too: made where only this launch reads them, else left."""

import pytest

from recommender.review import engine, fix, optimize
from recommender.review.script.source import Source

MODEL = "Qwen/Qwen2.5-7B-Instruct"
SERVE = f"lmdeploy serve api_server {MODEL}"
IMAGE = "openmmlab/lmdeploy:v0.18.0-cu12.8"
OLD_IMAGE = "openmmlab/lmdeploy:v0.10.2-cu12"
UNIT = f"[Service]\nEnvironment=LOG=info\n{{}}ExecStart=/opt/bin/{SERVE} --log-level $LOG\n"
PYTHON = "import subprocess\n"
LIST = f'"lmdeploy", "serve", "api_server", "{MODEL}"'
POD = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n"
    f"    image: {IMAGE}\n    resources: {{limits: {{nvidia.com/gpu: 1}}}}\n"
)
ENV = "    env: [{name: LOG, value: info}]\n"


def mended(path: str, text: str) -> tuple[str, engine.Review]:
    """Return a text with its safe repairs, and what is found then."""

    def look(source: Source) -> engine.Review:
        told = {} if "v0." in text else {"lmdeploy": "0.18.0"}
        return engine.review(path, source.text, told).at_severity("warning")

    made = fix.repair(Source(path, text), look)
    return made.source.text, made.review


SHARED = [
    ("x.sh", f"LOG=info\nuvicorn app:app --log-level $LOG &\n{SERVE} --log-level $LOG --server-port 1\n"),
    ("x.sh", f'LOG=info\nuvicorn app:app --log-level $LOG &\n{SERVE} --log-level "${{LOG}}"\n'),
    ("x.sh", f"LOG=info\nLEVEL=$LOG\n{SERVE} --log-level $LOG\nexec uvicorn app:app --log-level $LEVEL\n"),
    ("x.sh", f"LOG=info\nARGS=(--log-level $LOG)\n{SERVE} ${{ARGS[@]}} &\nuvicorn app:app --log-level=$LOG\n"),
    ("x.sh", f"LOG=info\n{SERVE} --log-level $LOG &\ncat > c.yaml <<EOF\nlevel: $LOG\nEOF\n"),
    ("x.sh", f"LOG=info\n{SERVE} --log-level $LOG &\necho level=$LOG > gateway.env\n"),
    ("x.sh", f"LOG=info\n{SERVE} --log-level $LOG &\ndocker run -e LOG=$LOG gateway\n"),
    ("x.sh", f"LOG=info\n{SERVE} --log-level $LOG --server-name host-$LOG\n"),
    ("x.sh", f"LOG=info\n{SERVE} --log-level $LOG &\n[ $LOG = info ] && ./verbose\n"),
    ("x.sh", f"s() {{\n  uvicorn a:a --log-level $1 &\n  {SERVE} --log-level $1\n}}\ns info\n"),
    ("x.sh", f'L=1\ns() {{\n  local log=$1\n  ./gw $log &\n  {SERVE} --log-level "$log"\n}}\ns info\n'),
    ("x.service", UNIT.format("ExecStartPre=/usr/bin/prep --log $LOG\n")),
    ("Makefile", f"LOG := info\nserve:\n\t{SERVE} --log-level $(LOG)\ngw:\n\tgateway --log-level $(LOG)\n"),
    ("justfile", f'LOG := "info"\nserve:\n    {SERVE} --log-level {{{{LOG}}}}\ngw:\n    gateway -l {{{{LOG}}}}\n'),
    ("x.py", f'{PYTHON}LOG = "info"\nsubprocess.Popen([{LIST}, "--log-level", LOG])\nuvicorn.run(a, log_level=LOG)\n'),
    ("x.py", f'{PYTHON}LOG = "info"\nlog = LOG\nsubprocess.Popen([{LIST}, "--log-level", LOG])\ngo(log)\n'),
    ("x.py", f'{PYTHON}LOG = "info"\ncmd = [{LIST}] + ["--log-level", LOG]\nsubprocess.run(cmd)\nrun(f"gw {{LOG}}")\n'),
    (
        "compose.yaml",
        f"x-level: &level info\nservices:\n  a:\n    image: {IMAGE}\n"
        f"    command: [lmdeploy, serve, api_server, {MODEL}, --log-level, *level]\n"
        "  gw:\n    image: gw\n    command: [gateway, --log-level, *level]\n",
    ),
    (
        "compose.yaml",
        f"x-env: &env\n  LOG: info\nservices:\n  a:\n    image: {IMAGE}\n    environment: *env\n"
        f"    command: [sh, -c, '{SERVE} --log-level $$LOG']\n"
        "  gw:\n    image: gw\n    environment: *env\n    command: [gateway]\n",
    ),
    ("pod.yaml", f'{POD}    command: [sh, -c, "gw $LOG & {SERVE} --log-level $LOG"]\n{ENV}'),
    ("Dockerfile", f"FROM {IMAGE}\nENV LOG=info\nRUN prep --log $LOG\nCMD {SERVE} --log-level $LOG\n"),
    (
        ".github/workflows/w.yml",
        "on: push\nenv:\n  LOG: info\njobs:\n  a:\n    runs-on: x\n    steps:\n"
        f"    - run: uvicorn a:a --log-level $LOG &\n    - run: {SERVE} --log-level ${{{{ env.LOG }}}}\n",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("path", "text"), SHARED)
def test_what_another_program_reads_too_stays(path: str, text: str) -> None:
    """The value is written in this launch, and the other program keeps its own."""
    made, review = mended(path, text)
    before, after = text.splitlines(), made.splitlines()
    changed = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    assert len(changed) == 1, made
    assert "INFO" in after[changed[0]]
    assert "--log-level" in after[changed[0]]
    assert not [each for each in review.findings if each.rule.id == "LMD104"]


OWN = [
    ("x.sh", f"LOG=info\n{SERVE} --log-level $LOG --server-port 1\n"),
    ("x.sh", f'LOG=info\necho "level $LOG"\n{SERVE} --log-level $LOG &\n{SERVE} --log-level $LOG\n'),
    ("x.sh", f"LOG=info\n[ -n \"$LOG\" ] || exit 1\nARGS=(--log-level $LOG)\n{SERVE} ${{ARGS[@]}}  # with $LOG\n"),
    ("x.sh", f"LOG=info\n{SERVE} --log-level $LOG &\nLOG=debug\nuvicorn a:a --log-level $LOG\n"),
    ("x.sh", f"LOG=info\nLEVEL=$LOG\nEXTRA=\"--log-level $LEVEL\"\n{SERVE} $EXTRA\n"),
    ("x.sh", f's() {{\n  local log=$1\n  {SERVE} --log-level "$log"\n}}\nt() {{\n  echo $1 | gw $1\n}}\ns info\n'),
    ("x.sh", f's() {{\n  {SERVE} --log-level $1\n}}\nLOG=info\ns $LOG\n'),
    ("x.sh", f"LOG=info\ndocker run -e LOG=$LOG {IMAGE} {SERVE} --log-level $LOG\n"),
    ("x.service", UNIT.format("")),
    ("Makefile", f"LOG := info\nserve:\n\t@echo $(LOG)\n\t{SERVE} --log-level $(LOG)\n"),
    ("x.py", f'{PYTHON}LOG = "info"\nprint(LOG)\nsubprocess.Popen([{LIST}, "--log-level", LOG])\n'),
    ("x.py", f'{PYTHON}LOG = "info"\ncmd = [{LIST}] + ["--log-level", LOG]\nprint(cmd)\nsubprocess.run(cmd)\n'),
    ("x.py", f'{PYTHON}LOG = "info"\ndef s(log):\n    subprocess.run([{LIST}, "--log-level", log])\ns(LOG)\n'),
    ("pod.yaml", f'{POD}    command: [sh, -c, "{SERVE} --log-level $LOG"]\n{ENV}'),
    ("Dockerfile", f"FROM {IMAGE}\nARG L=info\nENV LOG=$L\nCMD {SERVE} --log-level $LOG\n"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "text"), OWN)
def test_what_only_launches_read_is_changed_where_it_is_written(path: str, text: str) -> None:
    """What is printed, tested for being set, or in a comment depends on nothing."""
    made, review = mended(path, text)
    assert made == text.replace("info", "INFO", 1)
    assert not [each for each in review.findings if each.rule.id == "LMD104"]


DOCKER = "docker run --gpus all --ipc host"
LEFT = [
    ("x.sh", f'args="--server-port 1 --enable-metrics"\n{DOCKER} {OLD_IMAGE} {SERVE} $args\n'
             f"{DOCKER} {IMAGE} {SERVE} $args\n", "LMD102"),
    ("x.sh", f"args=(--server-port 1 --enable-metrics)\n{DOCKER} {OLD_IMAGE} {SERVE} ${{args[@]}} &\n"
             f"{DOCKER} {IMAGE} {SERVE} ${{args[@]}}\n", "LMD102"),
    ("compose.yaml", f"x-common: &c\n  command: {SERVE} --enable-metrics\nservices:\n"
                     f"  a:\n    image: {OLD_IMAGE}\n    <<: *c\n  b:\n    image: {IMAGE}\n    <<: *c\n", "LMD102"),
    ("x.sh", f'args="--server-port 1 --log-level info"\n{SERVE} $args &\ngateway $args\n', "LMD104"),
    ("x.py", f'{PYTHON}ARGS = ["--log-level", "info"]\nsubprocess.Popen([{LIST}, *ARGS])\n'
             'subprocess.run(["gateway", *ARGS])\n', "LMD104"),
    ("x.py", f'{PYTHON}LOG = "info"\nsubprocess.run(f"{SERVE} --log-level {{LOG}}", shell=True)\ngw(LOG)\n', "LMD104"),
    ("Dockerfile", f"FROM {IMAGE}\nARG L=info\nENV LOG=$L\nRUN prep --log $L\nCMD {SERVE} --log-level $LOG\n",
     "LMD104"),
    ("x.sh", f"LOG=${{LOG:-info}}\n./gateway --log $LOG &\n{SERVE} --log-level $LOG\n", "LMD104"),
    ("Makefile", f"LOG ?= info\nserve:\n\t{SERVE} --log-level $(LOG)\ngw:\n\tgw $(LOG)\n", "LMD104"),
    ("x.py", f'{PYTHON}import argparse\np = argparse.ArgumentParser()\np.add_argument("--log", default="info")\n'
             f'a = p.parse_args()\nsubprocess.Popen([{LIST}, "--log-level", a.log])\ngw(a.log)\n', "LMD104"),
    ("x.py", f'{PYTHON}import os\nLOG = os.environ.get("LOG", "info")\n'
             f'subprocess.Popen([{LIST}, "--log-level", LOG])\ngw(LOG)\n', "LMD104"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "text", "rule"), LEFT)
def test_what_another_launch_needs_is_left(path: str, text: str, rule: str) -> None:
    """Nothing changes, and the finding says why there is no repair.

    A default of a variable that the caller may set is not written into the launch, which would then not follow.
    """
    made, review = mended(path, text)
    assert made == text
    found = [each for each in review.findings if each.rule.id == rule]
    assert found
    assert all(each.fix is None for each in found)
    assert any("by hand" in each.diagnostic.why for each in found)


def optimized(text: str) -> tuple[str, list[str]]:
    """Return a script with recommended values, and the messages."""

    def look(source: Source) -> engine.Review:
        told = {"lmdeploy": "0.18.0", "gpu": "A100-80G", "load": "16"}
        return engine.review("x.sh", source.text, told).at_severity("warning")

    source = Source("x.sh", text)
    made, said = optimize.optimize(source, look(source), look)
    return made.text, said


def test_an_optimized_value_is_not_another_programs() -> None:
    """The recommended number of requests is of LMDeploy; the other server keeps its own."""
    text = f"N=4\nvllm serve x --max-num-seqs $N &\n{SERVE} --max-batch-size $N\n"
    made, _ = optimized(text)
    assert made.startswith("N=4\nvllm serve x --max-num-seqs $N &\n")
    assert "--max-batch-size $N" not in made
    made, said = optimized(f'args="--max-batch-size 4"\nother $args &\n{SERVE} $args\n')
    assert made.startswith('args="--max-batch-size 4"\n')
    assert any("another program reads the same literal" in each for each in said)


def test_a_share_that_stays_is_told() -> None:
    """A session length of the author's keeps the share; a line says so."""
    made, said = optimized(f"{SERVE} --cache-max-entry-count 0.7 --session-len 8192\n")
    assert "--cache-max-entry-count 0.7" in made
    assert any("--cache-max-entry-count 0.7 stays" in each for each in said)
