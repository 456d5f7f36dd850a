"""The model on each host's disk: the patch by kustomize and by Helm, and its script on real folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from artefacts import write_files
from test_fleet_helm import SERVER, charted, without_checksum
from test_fleet_kubernetes import (
    VERSIONS,
    documents,
    environment,
    files,
    kind_of,
    kustomized,
    manifests,
    named,
    pod,
    validator,
)

from recommender.fleet import kubernetes

HUB = "models--OpenGVLab--InternVL3-8B-AWQ"
BLOB = "blobs/0123abcd"
LINK = "snapshots/c0ffee/model.safetensors"


def patch(texts: Any) -> dict[str, Any]:
    (read,) = documents(texts["cache/server.yaml"])
    made: dict[str, Any] = pod(read)
    return made


def started(folder: Path, texts: Any) -> subprocess.Popen[str]:
    """The container's program, with folders of this machine as its mounts."""
    (container,) = patch(texts)["initContainers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert container["command"] == ["python3", "-c"]
    script = container["args"][0]
    for name, path in (("models", folder / "volume"), ("cache", folder / "disk")):
        assert script.count(f'Path("{mounts[name]}")') == 1
        script = script.replace(f'Path("{mounts[name]}")', f'Path("{path}")')
    words = [sys.executable, "-c", script]
    return subprocess.Popen(
        words,
        env={**os.environ, **environment(container)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def copied(folder: Path, texts: Any = None) -> tuple[int, str]:
    process = started(folder, texts or files(2))
    out, err = process.communicate(timeout=60)
    return process.returncode, out + err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A volume as the hub's client leaves it, and an empty disk."""
    hub = tmp_path / "volume" / "hub"
    write_files(hub / HUB, {BLOB: "weights" * 1000, "refs/main": "c0ffee"})
    link = hub / HUB / LINK
    link.parent.mkdir(parents=True)
    link.symlink_to(f"../../{BLOB}")
    (hub / "models--other--model").mkdir()
    (hub / "models--other--model" / "big").write_text("x" * 100)
    (tmp_path / "disk").mkdir()
    return tmp_path


def tree(root: Path) -> dict[str, str]:
    """Every file's text and every link's target, by path."""
    found = {}
    for path in root.rglob("*"):
        if path.is_symlink() or path.is_file():
            found[str(path.relative_to(root))] = str(path.readlink()) if path.is_symlink() else path.read_text()
    return found


def test_it_copies_the_model_once(folder: Path) -> None:
    """Links stay links, another model stays away, and the second pod of a host copies nothing."""
    assert copied(folder)[0] == 0
    disk = folder / "disk" / "hub"
    assert tree(disk / HUB) == tree(folder / "volume" / "hub" / HUB)
    assert [each.name for each in disk.iterdir()] == [HUB]
    assert (disk / HUB / LINK).read_text().startswith("weights")
    assert (disk / HUB / BLOB).stat().st_mode & 0o444 == 0o444
    before = (disk / HUB / BLOB).stat().st_ino
    status, said = copied(folder)
    assert (status, said.split(": ")[1].strip()) == (0, "0 files, 0 MiB copied")
    assert (disk / HUB / BLOB).stat().st_ino == before


def test_it_follows_a_new_revision(folder: Path) -> None:
    """What is new or has changed is copied; the earlier revision stays."""
    copied(folder)
    hub = folder / "volume" / "hub" / HUB
    (hub / "refs/main").write_text("decade")
    os.utime(hub / "refs/main", (1, 1))
    (hub / "blobs/ffff").write_text("new")
    (hub / "snapshots/decade").mkdir()
    (hub / "snapshots/decade/model.safetensors").symlink_to("../../blobs/ffff")
    assert copied(folder)[0] == 0
    made = tree(folder / "disk" / "hub" / HUB)
    assert made == tree(hub)
    assert made["refs/main"] == "decade"


def test_an_interrupted_copy_is_done_again(folder: Path) -> None:
    """A file has its name only when it is whole, and what a killed copy left is removed."""
    copied(folder)
    blob = folder / "disk" / "hub" / HUB / BLOB
    blob.rename(blob.with_name(blob.name + ".part"))
    blob.with_name("other.part").write_text("half")
    assert copied(folder)[0] == 0
    assert tree(folder / "disk" / "hub" / HUB) == tree(folder / "volume" / "hub" / HUB)


def test_pods_of_a_host_wait_for_each_other(folder: Path) -> None:
    """Eight at once: one copies, and all find the model whole."""
    (folder / "volume" / "hub" / HUB / BLOB).write_bytes(os.urandom(20_000_000))
    processes = [started(folder, files(2)) for _ in range(8)]
    said = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * 8, said
    assert sum("3 files" in out or "2 files" in out for out, _ in said) == 1
    blob = folder / "disk" / "hub" / HUB / BLOB
    assert blob.read_bytes() == (folder / "volume" / "hub" / HUB / BLOB).read_bytes()


def test_it_says_what_is_missing(folder: Path) -> None:
    """No model on the volume; no room on the disk. Nothing is left half done."""
    with (folder / "volume" / "hub" / HUB / BLOB).open("ab") as large:
        large.truncate(10**13)
    status, said = copied(folder)
    assert status == 1
    assert "are free on the host's disk" in said
    assert "Traceback" not in said
    assert not any(path.is_file() for path in (folder / "disk" / "hub").rglob("*") if not path.is_symlink())
    shutil.rmtree(folder / "volume" / "hub" / HUB)
    status, said = copied(folder)
    assert status == 1
    assert "is the download complete?" in said


def test_a_folder_of_the_volume_is_copied(folder: Path) -> None:
    """A model that is no hub name."""
    (folder / "volume" / "own model").mkdir()
    (folder / "volume" / "own model" / "config.json").write_text("{}")
    texts = kubernetes.files(named("/data/own model"))
    assert copied(folder, texts)[0] == 0
    assert tree(folder / "disk") == {"own model/config.json": "{}", ".lock": ""}


@pytest.mark.parametrize("at", [0, 2, 12])
def test_kustomize_and_helm_patch_alike(at: int, tmp_path: Path) -> None:
    """The server reads the host's disk, only the copying container the volume and as root; all else is as without."""
    write_files(tmp_path / "lmdeploy", files(at))
    overlay = {"resources": ["../lmdeploy"], "components": ["../lmdeploy/cache"]}
    built = kustomized(write_files(tmp_path / "site", {"kustomization.yaml": yaml.safe_dump(overlay)}))[SERVER]
    assert not list(validator(VERSIONS[-1], kind_of(built)).iter_errors(built))
    base, made = pod(manifests(at)[SERVER]), pod(built)
    (copies,), (container,) = made["initContainers"], made["containers"]
    mounts = {each["mountPath"]: (each["name"], each.get("readOnly", False)) for each in container["volumeMounts"]}
    assert mounts["/models"] == ("cache", True)
    own = {each["mountPath"]: (each["name"], each.get("readOnly", False)) for each in copies["volumeMounts"]}
    assert own == {"/shared": ("models", True), "/models": ("cache", False)}
    assert copies["securityContext"]["runAsUser"] == 0
    assert copies["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert made["securityContext"] == base["securityContext"]
    assert environment(copies)["MODEL"] == environment(container)["MODEL"]
    volumes = {each["name"]: each for each in made["volumes"]}
    assert volumes.pop("cache")["hostPath"]["path"] == "/var/lib/lmdeploy-models"
    assert volumes == {each["name"]: each for each in base["volumes"]}
    same = {key: value for key, value in container.items() if key != "volumeMounts"}
    assert same == {key: value for key, value in base["containers"][0].items() if key != "volumeMounts"}

    values = {"cache": {"enabled": True}}
    chart = without_checksum(charted(tmp_path / "lmdeploy", values, "lmdeploy"))[SERVER]["spec"]["template"]["spec"]

    def ordered(spec: Any) -> Any:
        container = spec["containers"][0]
        container = container | {"volumeMounts": sorted(container["volumeMounts"], key=str)}
        return spec | {"volumes": sorted(spec["volumes"], key=str), "containers": [container]}

    assert ordered(chart) == ordered(made)


def test_helm_puts_values_into_both_containers(tmp_path: Path) -> None:
    """The image and the model of the copy are those of the server; other variables are the server's only."""
    values = {"cache": {"enabled": True, "path": "/nvme/models"}, "model": "a/b", "image": "own:1", "env": {"NEW": "1"}}
    made = pod(charted(write_files(tmp_path / "fleet", files(2)), values)[SERVER])
    (copies,), (container,) = made["initContainers"], made["containers"]
    assert (copies["image"], container["image"]) == ("own:1", "own:1")
    assert environment(copies) == {"MODEL": "a/b"}
    assert environment(container)["MODEL"] == "a/b"
    assert environment(container)["NEW"] == "1"
    assert [each["hostPath"]["path"] for each in made["volumes"] if "hostPath" in each] == ["/nvme/models"]


def test_the_disk_is_sized_by_the_checkpoint() -> None:
    """The patch names the GiB that the volume's comment names."""
    text = files(2)["cache/server.yaml"]
    weights = manifests(2) and files(2)["models.yaml"].partition("The checkpoint is about ")[2].partition(" GiB")[0]
    assert f"with {weights} GiB free" in text
