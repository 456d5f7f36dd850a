"""The release that a review judges by: the image of a job, a range of an installation, a file beside the script.

--trust-remote-code is new in 0.13.0, so a release before it rejects the option; the newest release takes it.
"""

from pathlib import Path

import pytest
from packaging.version import Version

from recommender.knowledge.load import load
from recommender.review.engine import Review, review
from recommender.review.output.text import summary

COMMAND = "lmdeploy serve api_server /models/chat --trust-remote-code"
IMAGE = "openmmlab/lmdeploy:v0.12.3-cu12"
NEWEST = max(load().releases, key=Version)


def errors(found: Review) -> list[str]:
    """Return the rules that report errors."""
    return [finding.rule.id for finding in found.findings if finding.severity == "error"]


def said(found: Review) -> str:
    """Return what the summary says."""
    return " ".join("\n".join(summary([found])).split())


NAMED = [
    f"singularity exec --nv docker://{IMAGE} {COMMAND}",
    f"singularity exec --nv --bind /data:/data docker://docker.io/{IMAGE} {COMMAND}",
    f"apptainer run --nv docker://{IMAGE} {COMMAND}",
    f"apptainer exec --nv docker-daemon://{IMAGE} {COMMAND}",
    f"apptainer exec docker-daemon:{IMAGE} {COMMAND}",
    f"IMG=docker://{IMAGE}\nsingularity exec --nv $IMG {COMMAND}",
    f"IMG=/images/lmdeploy_v0.12.3-cu12.sif\nsingularity exec --nv $IMG {COMMAND}",
    f"singularity exec --nv $HOME/lmdeploy-v0.12.3.sif {COMMAND}",
    f'singularity exec --nv "$SCRATCH/lmdeploy_0.12.3.simg" {COMMAND}',
    f"apptainer exec docker://{IMAGE} bash -c '{COMMAND}'",
    f"apptainer exec docker://{IMAGE} env A=b {COMMAND}",
    f"srun -n 1 apptainer exec docker://{IMAGE} {COMMAND}",
    f"apptainer exec docker://{IMAGE} bash <<'EOF'\n{COMMAND}\nEOF",
    f"apptainer exec docker://{IMAGE} python3 -m {COMMAND.replace('lmdeploy serve ', 'lmdeploy.serve.openai.')}",
    f"srun --gres=gpu:1 --container-image={IMAGE} {COMMAND}",
    f"srun --container-image docker://{IMAGE} {COMMAND}",
    f"srun --container-image=docker.io#{IMAGE} {COMMAND}",
    f"srun --container-image=nvcr.io#lmdeploy:0.12.3 {COMMAND}",
    f"srun --container-image=/enroot/openmmlab+lmdeploy+v0.12.3-cu12.sqsh {COMMAND}",
    f"srun --container-image={IMAGE} bash -lc '{COMMAND}'",
    f'sbatch --container-image={IMAGE} --wrap="{COMMAND}"',
    f"#!/bin/bash\n#SBATCH --container-image={IMAGE}\n{COMMAND}",
    f"#!/bin/bash\n#SBATCH --container-image docker://{IMAGE}\nsrun {COMMAND}",
    f"kubectl run l --image={IMAGE} --restart=Never -- {COMMAND}",
    f"kubectl run l --image {IMAGE} --command -- {COMMAND}",
    f"shifter --image=docker:{IMAGE} {COMMAND}",
    f"podman run --device nvidia.com/gpu=all {IMAGE} {COMMAND}",
    f"nerdctl run --gpus all {IMAGE} {COMMAND}",
    f"docker run --gpus all $REGISTRY/lmdeploy:v0.12.3 {COMMAND}",
    f"apptainer build l.sif docker://{IMAGE}\napptainer exec l.sif {COMMAND}",
    f"IMG={IMAGE}\napptainer pull l.sif docker://$IMG\napptainer exec l.sif {COMMAND}",
    f"apptainer instance start docker://{IMAGE} llm\napptainer exec instance://llm {COMMAND}",
]


@pytest.mark.parametrize("text", NAMED, ids=range(len(NAMED)))
def test_the_image_of_a_job_names_the_release(text: str) -> None:
    """Of Apptainer, Slurm's pyxis and its batch jobs, kubectl and others."""
    found = review("x.sh", text + "\n")
    assert errors(found) == ["LMD102"]
    assert any("LMDeploy 0.12.3 has no" in finding.message for finding in found.findings)


def test_an_image_without_a_shell_names_the_release() -> None:
    """A list of words in Python."""
    words = ["apptainer", "exec", f"docker://{IMAGE}", *COMMAND.split()]
    assert errors(review("x.py", f"import subprocess\nsubprocess.run({words})\n")) == ["LMD102"]


def test_each_launch_has_its_own_image() -> None:
    """That of a step goes before that of the job, and of another step."""
    newer = IMAGE.replace("0.12.3", "0.13.0")
    job = f"#!/bin/bash\n#SBATCH --container-image={IMAGE}\nsrun --container-image={{}} {COMMAND}\n"
    assert errors(review("x.sh", job.format(newer))) == []
    assert errors(review("x.sh", job.format("$OTHER"))) == []
    two = f"srun --container-image={{}} {COMMAND} &\nsrun --container-image={{}} {COMMAND} --server-port 1\n"
    assert errors(review("x.sh", two.format(IMAGE, newer))) == ["LMD102"]


@pytest.mark.parametrize(
    "text",
    [
        f"singularity exec docker://nvcr.io/nvidia/pytorch:24.01-py3 {COMMAND}",
        f"srun --comment=x/lmdeploy:v0.12.3 {COMMAND}",
        f"singularity exec --bind /src/lmdeploy-0.12.3:/opt/lmdeploy img.sif {COMMAND}",
        f"srun --container-image=x/vllm:v0.12.3 {COMMAND}",
        f"#!/bin/bash\n##SBATCH --container-image={IMAGE}\n{COMMAND}",
        f"singularity exec docker://openmmlab/lmdeploy:latest {COMMAND}",
        f"srun --container-image=/img/my_lmdeploy_tools.sqsh {COMMAND}",
        f"docker build -t me/lmdeploy:v0.12.3 .\n{COMMAND}",
    ],
)
def test_what_names_no_release(text: str) -> None:
    """Another image, a comment, a folder of sources, a tag that moves."""
    found = review("x.sh", text + "\n")
    assert errors(found) == []
    assert "Assuming LMDeploy" in said(found)


RANGES = [
    ("'lmdeploy>=0.9,<0.13'", "0.12.3", ["LMD102"]),
    ('"lmdeploy[all] >= 0.9, < 0.13"', "0.12.3", ["LMD102"]),
    ("lmdeploy~=0.12.0", "0.12.3", ["LMD102"]),
    ("'lmdeploy<0.12.3'", "0.12.2", ["LMD102"]),
    ("'lmdeploy<=0.12.1'", "0.12.1", ["LMD102"]),
    ("lmdeploy==0.12.*", "0.12.3", ["LMD102"]),
    ("lmdeploy==0.12", "0.12.0", ["LMD102"]),
    ("'lmdeploy<0.13,!=0.12.3'", "0.12.2", ["LMD102"]),
    ("'lmdeploy<0.15'", "0.14.0", []),
]


@pytest.mark.parametrize(("asked", "release", "found"), RANGES, ids=range(len(RANGES)))
@pytest.mark.parametrize("path", ["x.sh", "Dockerfile", "x.yml", "x.py"])
def test_the_newest_release_of_a_range_is_installed(path: str, asked: str, release: str, found: list[str]) -> None:
    """As pip does; the summary says which range it is."""
    install = f"pip install {asked}"
    text = {
        "x.sh": f"{install}\n{COMMAND}\n",
        "Dockerfile": f"FROM python:3.11\nRUN {install}\nCMD {COMMAND}\n",
        "x.yml": f"steps:\n  - run: |\n      {install}\n      {COMMAND}\n",
        "x.py": f"import os\nos.system({install!r})\nos.system('{COMMAND}')\n",
    }[path]
    made = review(path, text)
    assert errors(made) == found
    assert f"LMDeploy {release}, the newest" in said(made)
    assert asked.strip("\"'").replace(" ", "") in said(made)


OPEN = [
    "pip install 'lmdeploy>=0.9'",
    "pip install 'lmdeploy!=0.12.3'",
    "pip install lmdeploy",
    "pip install lmdeploy<0.12",  # a redirection
    "# pip install 'lmdeploy<0.12'",
    "echo 'lmdeploy<0.12'",
    "pip install 'my-lmdeploy<0.12'",
    "pip install 'lmdeploy-tools<0.12'",
    "pip install lmdeploy==0.12.3\npip install -U lmdeploy",
    "pip install lmdeploy==0.12.3\npip install --upgrade --no-cache-dir 'lmdeploy[all]'",
    "pip install lmdeploy==0.12.3\npip install -qU transformers lmdeploy",
    "pip install lmdeploy==0.12.3\nuv pip install --upgrade \\\n  lmdeploy",
    "pip install 'lmdeploy<0.12'\npip install -U lmdeploy && python -V",
]


@pytest.mark.parametrize("installs", OPEN, ids=range(len(OPEN)))
def test_a_range_with_the_newest_release_is_none(installs: str) -> None:
    """The newest release is assumed, as without a pin; so it is after an upgrade."""
    found = review("x.sh", f"{installs}\n{COMMAND}\n")
    assert errors(found) == []
    assert "Assuming LMDeploy" in said(found)


PINNED = [
    "pip install -U lmdeploy\npip install lmdeploy==0.12.3",
    "pip install -U lmdeploy==0.12.3",
    "pip install 'lmdeploy<0.13'\npip install lmdeploy==0.12.3",
    "pip install lmdeploy==0.12.3\npip install -U pip",
    "pip install lmdeploy==0.12.3\npip install lmdeploy",
    "pip install lmdeploy==0.12.3\n# pip install -U lmdeploy",
    "pip install lmdeploy==0.12.3\npip install -U lmdeploy-tools",
    "pip install lmdeploy==0.12.3\npip install -U 'lmdeploy<0.13'",
    "uvx --from 'lmdeploy<0.13' \\",
    "conda install -y lmdeploy=0.12",
]


@pytest.mark.parametrize("installs", PINNED, ids=range(len(PINNED)))
def test_the_last_installation_counts(installs: str) -> None:
    """An upgrade before the pin, or of something else, changes nothing."""
    assert errors(review("x.sh", f"{installs}\n{COMMAND}\n")) == ["LMD102"]


OWN = "uvx --from lmdeploy==0.12.3 {0} &\nuv run \\\n  --with lmdeploy==0.18.0 {0} --server-port 8001\n"


def test_a_command_that_installs_what_it_runs_has_its_own_release() -> None:
    """The other command of the file has the other release."""
    found = review("x.sh", OWN.format(COMMAND))
    places = [finding.place.line for finding in found.findings if finding.rule.id == "LMD102"]
    assert places == [1]
    assert "Assuming" not in said(found)


UNPINNED = [
    "uvx --from lmdeploy==0.12.3 {0} &",
    "uv run --with 'lmdeploy<0.13' {0} &",
    "pipx run --spec lmdeploy==0.12.3 {0} &",
    "V=0.12.3\nuvx --from lmdeploy==$V {0} &",
    "uvx lmdeploy@0.12.3 serve api_server /models/chat --trust-remote-code &",
]


@pytest.mark.parametrize("other", UNPINNED, ids=range(len(UNPINNED)))
@pytest.mark.parametrize("runs", ["", "uvx --from lmdeploy ", "pipx run "])
def test_a_command_without_a_release_has_not_that_of_another(other: str, runs: str) -> None:
    """What uvx, uv run and pipx run install serves their command only: the newest is assumed, with its line."""
    found = review("x.sh", f"{other.format(COMMAND)}\n{runs}{COMMAND} --server-port 8001\n")
    assert [finding.place.line for finding in found.findings if finding.rule.id == "LMD102"] == [1 + other.count("\n")]
    assert f"Assuming LMDeploy {NEWEST} for line {2 + other.count(chr(10))} (" in said(found)


def test_uvx_runs_the_newest_whatever_pip_installs() -> None:
    """Unless the tool itself is installed."""
    for installs, old in (("pip install", False), ("uv pip install", False), ("uv tool install", True)):
        found = review("x.sh", f"{installs} lmdeploy==0.12.3\nuvx {COMMAND}\n")
        assert errors(found) == (["LMD102"] if old else []), installs
    assert errors(review("x.sh", f"uv pip install lmdeploy==0.12.3\nuv run {COMMAND}\n")) == ["LMD102"]


BESIDE = [
    ("requirements.txt", "lmdeploy>=0.9,<0.13  # not newer\n"),
    ("requirements.txt", "torch<2.8\nlmdeploy[all] >=0.9 , <0.13 ; python_version > '3.8'\n"),
    ("pyproject.toml", '[project]\ndependencies = ["torch<2", "lmdeploy~=0.12.0"]\n'),
    ("pyproject.toml", '[tool.poetry.dependencies]\nlmdeploy = "^0.12.1"\n'),
    ("pyproject.toml", '[tool.poetry.dependencies]\nlmdeploy = {version = "~0.12", extras = ["all"]}\n'),
    ("pyproject.toml", '[project]\ndependencies = ["lmdeploy (>=0.9,<0.13)"]\n'),
    ("environment.yml", "dependencies:\n  - pip:\n      - lmdeploy<0.13\n"),
    ("environment.yml", "dependencies:\n  - lmdeploy=0.12\n"),
    ("Dockerfile", "FROM python:3.11\nRUN pip install 'lmdeploy<0.13'\n"),
]


@pytest.mark.parametrize(("name", "text"), BESIDE, ids=range(len(BESIDE)))
def test_a_range_beside_the_script(tmp_path: Path, name: str, text: str) -> None:
    """Of pip, poetry and conda."""
    (tmp_path / name).write_text(text)
    found = review(str(tmp_path / "x.sh"), f"{COMMAND}\n")
    assert errors(found) == ["LMD102"]
    assert f"{name} beside it" in said(found)


def test_a_lock_goes_before_a_range(tmp_path: Path) -> None:
    """It says what is installed; an open range leaves it to the next file; an upgrade to no file."""
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["lmdeploy>=0.9,<0.15"]\n')
    (tmp_path / "uv.lock").write_text('[[package]]\nname = "lmdeploy"\nversion = "0.12.3"\n')
    assert errors(review(str(tmp_path / "a.sh"), f"{COMMAND}\n")) == ["LMD102"]
    (tmp_path / "uv.lock").unlink()
    assert errors(review(str(tmp_path / "b.sh"), f"{COMMAND}\n")) == []
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["lmdeploy>=0.9"]\n')
    (tmp_path / "environment.yml").write_text("dependencies:\n  - lmdeploy=0.12\n")
    assert errors(review(str(tmp_path / "c.sh"), f"{COMMAND}\n")) == ["LMD102"]
    assert errors(review(str(tmp_path / "c.sh"), f"pip install -U lmdeploy\n{COMMAND}\n")) == []


def test_a_range_of_uncovered_releases_is_said() -> None:
    """The nearest release is assumed."""
    for asked, release in (("<0.6", "0.7.0"), ("<0.7", "0.7.0"), ("==0.6.*", "0.7.0"), (">=9.1", "0.18.0")):
        found = review("x.sh", f"pip install 'lmdeploy{asked}'\n{COMMAND.replace(' --trust-remote-code', '')}\n")
        unread = [finding for finding in found.findings if finding.rule.id == "LMD002"]
        assert [asked in finding.message for finding in unread] == [True]
        assert {case.resolved.release.id for case in found.cases} == {release}


INLINE = """
services:
  llm:
    build:
      context: .
      dockerfile_inline: |
        ARG V=0.12.3
        FROM python:3.11 AS first
        RUN {run}
        FROM {base}
        RUN {run}
    {image}command: {command}
"""


@pytest.mark.parametrize(
    ("base", "run", "image"),
    [
        (IMAGE, "pip install timm", ""),
        ("openmmlab/lmdeploy:v${V}-cu12", "pip install timm", ""),
        (IMAGE, "pip install timm", "image: registry/llm:1\n    "),
        ("python:3.11", "pip install --no-cache-dir lmdeploy==0.12.3", ""),
        ("python:3.11", "pip install 'lmdeploy<0.13'", ""),
    ],
)
def test_a_service_is_built_from_what_its_file_says(base: str, run: str, image: str) -> None:
    """The Dockerfile within a compose file names the release."""
    text = INLINE.format(base=base, run=run, image=image, command=COMMAND)
    assert errors(review("compose.yaml", text)) == ["LMD102"]
    newer = text.replace("0.12.3", "0.14.0").replace("<0.13", "<0.15")
    assert errors(review("compose.yaml", newer)) == []


def test_a_service_runs_what_the_dockerfile_within_starts() -> None:
    """Its ENTRYPOINT takes the words of the service's command."""
    text = INLINE.format(base=IMAGE, run="true", image="", command="/models/chat --trust-remote-code")
    entry = text.replace("    command", '        ENTRYPOINT ["lmdeploy", "serve", "api_server"]\n    command')
    assert errors(review("compose.yaml", entry)) == ["LMD102"]


RUN_OF_LOOP = (
    "for v in v0.6.4 v0.9.0; do\n"
    "  docker run --gpus all -p 127.0.0.1:23333:23333 openmmlab/lmdeploy:$v lmdeploy serve api_server m\ndone\n"
)


@pytest.mark.parametrize(
    "image",
    [
        "openmmlab/lmdeploy:$1",
        "openmmlab/lmdeploy:latest",
        "openmmlab/lmdeploy:latest-cu12",
        "openmmlab/lmdeploy",
        "docker.io/openmmlab/lmdeploy:${TAG}-cu12",
    ],
)
def test_an_image_of_an_unknown_release_is_not_the_one_beside_it(image: str, tmp_path: Path) -> None:
    """LMDeploy's own image with a tag that tells no release: a Dockerfile nearby builds another one."""
    (tmp_path / "Dockerfile").write_text("FROM openmmlab/lmdeploy:v0.10.0\n")
    script = tmp_path / "run.sh"
    for text in (f"docker run --gpus all {image} lmdeploy serve api_server m\n", RUN_OF_LOOP):
        script.write_text(text)
        found = review(str(script), text)
        assert [(case.release_known, case.resolved.release.id) for case in found.cases] == [(False, NEWEST)]


@pytest.mark.parametrize("image", ["$IMAGE", "ours/llm:latest", "registry/ours/lmdeploy-serve:$TAG"])
def test_an_image_that_may_be_built_beside_it_has_its_release(image: str, tmp_path: Path) -> None:
    """A name of one's own is what the Dockerfile builds."""
    (tmp_path / "Dockerfile").write_text("FROM openmmlab/lmdeploy:v0.10.0\n")
    script = tmp_path / "run.sh"
    text = f"docker run --gpus all {image} lmdeploy serve api_server m\n"
    script.write_text(text)
    assert [case.resolved.release.id for case in review(str(script), text).cases] == ["0.10.0"]


def environments(name: str) -> list[tuple[str, str]]:
    """Return ways to install the old release into an environment, and to run a command in it."""
    activated = [f"conda activate {name}", f"source activate {name}", f"micromamba activate '{name}'"]
    activated += [
        f"source /opt/conda/bin/activate {name}",
        f"source envs/{name}/bin/activate",
        f". ~/{name}/bin/activate",
    ]
    ways = [(f"{line}\npip install lmdeploy==0.12.3\n", f"{line}\n{COMMAND}\n") for line in activated]
    runs = f"conda run --no-capture-output -n {name}"
    ways.append((f"{runs} pip install lmdeploy==0.12.3\n", f"nohup {runs} {COMMAND}\n"))
    ways.append(
        (f"conda create -y --name {name} lmdeploy=0.12.3\n", f"mamba run -p /opt/conda/envs/{name} {COMMAND}\n")
    )
    path = f"$HOME/{name}/bin"
    ways.append((f"{path}/pip install 'lmdeploy==0.12.3'\n", f'"{path}/lmdeploy"{COMMAND.removeprefix("lmdeploy")}\n'))
    ways.append((f"V=0.12.3\n{name}/bin/python -m pip install lmdeploy==$V\n", f"{name}/bin/python3 -m {COMMAND}\n"))
    inside = f"bash -c 'source {name}/bin/activate && "
    ways.append((f"{inside}pip install lmdeploy==0.12.3'\n", f"{inside}{COMMAND}'\n"))
    return ways


HERE, THERE = environments("serving"), environments("training")


@pytest.mark.parametrize("at", range(len(HERE)))
def test_a_release_belongs_to_its_environment(at: int) -> None:
    """Whatever enters the environment; that of another environment is not the server's."""
    for (installs, _), (_, runs) in ((HERE[at], other) for other in HERE):
        assert errors(review("x.sh", installs + runs)) == ["LMD102"], installs + runs
    for (installs, _), (_, runs) in ((HERE[at], other) for other in THERE):
        assert errors(review("x.sh", installs + runs)) == [], installs + runs


BOTH = "conda run -n {} pip install lmdeploy==0.12.3\nconda run -n {} pip install lmdeploy==0.18.0\n"
IN_ENVIRONMENTS = [
    (BOTH.format("a", "b") + f"conda run -n a {COMMAND}", ["LMD102"]),
    (BOTH.format("a", "b") + f"conda run -n b {COMMAND}", []),
    (f"pip install lmdeploy==0.18.0\nconda activate a\npip install lmdeploy==0.12.3\n{COMMAND}", ["LMD102"]),
    (f"pip install lmdeploy==0.12.3\nconda run -n a pip install lmdeploy==0.18.0\n{COMMAND}", ["LMD102"]),
    (f"conda activate a\npip install lmdeploy==0.12.3\nconda deactivate\nconda activate b\n{COMMAND}", []),
    (f"conda activate a\npip install lmdeploy==0.12.3\nconda deactivate\n{COMMAND}", []),
    (f"/usr/local/bin/pip install lmdeploy==0.12.3\nsource a/bin/activate\n{COMMAND}", []),
    (f"pip install lmdeploy==0.12.3\nsource a/bin/activate\n{COMMAND}", ["LMD102"]),
    (f"a/bin/pip install lmdeploy==0.12.3\nPATH=$PWD/a/bin:$PATH\n{COMMAND}", ["LMD102"]),
    (f"/usr/bin/pip install lmdeploy==0.12.3\n/usr/local/bin/{COMMAND}", ["LMD102"]),
    (f'E=a\nconda run -n a pip install lmdeploy==0.12.3\nconda activate "$E"\n{COMMAND}', ["LMD102"]),
    (f"conda activate a\npip install lmdeploy==0.12.3\n# conda activate b\n{COMMAND}", ["LMD102"]),
    (f'conda activate a\npip install lmdeploy==0.12.3\necho "conda activate b"\n{COMMAND}', ["LMD102"]),
]


@pytest.mark.parametrize(("text", "found"), IN_ENVIRONMENTS, ids=range(len(IN_ENVIRONMENTS)))
def test_the_release_of_the_servers_own_environment_counts(text: str, found: list[str]) -> None:
    """Where an environment is unknown, it may be the server's."""
    assert errors(review("x.sh", text + "\n")) == found
