"""The Helm chart of a fleet's folder: Helm's documents against those that the folder's files hold."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from artefacts import need, run_program, write_files
from test_fleet_kubernetes import (
    HOSTILE,
    LAYOUTS,
    VERSIONS,
    Manifest,
    by_name,
    documents,
    environment,
    files,
    kind_of,
    manifests,
    named,
    pod,
    validator,
)

from recommender.fleet import front, kubernetes

EVERY = pytest.mark.parametrize("at", range(len(LAYOUTS)))
SERVER, FRONT = ("Deployment", "lmdeploy-server"), ("Deployment", "lmdeploy-front")
Documents = dict[tuple[str, str], Manifest]


def helm(folder: Path, values: Any = None, namespace: str = "vision") -> subprocess.CompletedProcess[str]:
    tool = need("helm")
    own = folder.parent / "mine.yaml"
    own.write_text(yaml.safe_dump(values or {}))
    words = [tool, "template", "fleet", str(folder), "--namespace", namespace, "--values", str(own)]
    return run_program(words, timeout=60)


def charted(folder: Path, values: Any = None, namespace: str = "vision") -> Documents:
    done = helm(folder, values, namespace)
    assert done.returncode == 0, done.stderr
    return by_name(done.stdout)


def listed(texts: Any, folder: str = "") -> Documents:
    """What a folder's kustomization.yaml lists, without kustomize: documents, and generated ConfigMaps."""
    (kustomization,) = documents(texts[f"{folder}kustomization.yaml"])
    read = [each for name in kustomization["resources"] for each in documents(texts[folder + name])]
    for each in kustomization.get("configMapGenerator", ()):
        pairs = [(key, name or key) for key, _, name in (file.partition("=") for file in each["files"])]
        metadata = {"name": each["name"], "labels": each.get("options", {}).get("labels", {})}
        data = {key: texts[folder + name] for key, name in pairs}
        read.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    return {(each["kind"], each["metadata"]["name"]): each for each in read}


def without_checksum(made: Documents) -> Documents:
    """Helm rolls out a change of the load balancer's configuration by its checksum, kustomize by the name."""
    checksum = made[FRONT]["spec"]["template"]["metadata"].pop("annotations")
    assert checksum.keys() == {"checksum/config"}
    return made


# --- without Helm


@EVERY
def test_default_values_are_those_of_the_manifests(at: int) -> None:
    """Each value, where the manifests have it; the schema knows every value, and refuses others."""
    texts, every = files(at), manifests(at)
    values, schema = yaml.safe_load(texts["values.yaml"]), json.loads(texts["values.schema.json"])
    server = every[SERVER]
    container = pod(server)["containers"][0]
    variables, resources = environment(container), container["resources"]
    assert values["replicas"] == server["spec"]["replicas"]
    assert values["image"] == container["image"]
    assert values["model"] == variables["MODEL"]
    assert values.get("revision") == variables.get("REVISION")
    assert (values["cpu"], values["memory"]) == (resources["requests"]["cpu"], resources["requests"]["memory"])
    assert values["gpu"]["resource"] in resources["limits"]
    terms = pod(server).get("affinity", {}).get("nodeAffinity", {})
    products = [
        value
        for term in terms.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
        for value in term["matchExpressions"][0]["values"]
    ]
    assert values["gpu"]["products"] == products
    (claim,) = [each for (kind, _), each in every.items() if kind == "PersistentVolumeClaim"]
    assert values["storage"] == {"class": "", "size": claim["spec"]["resources"]["requests"]["storage"]}
    volumes = {each["name"]: each for each in pod(server)["volumes"]}
    assert values["keysSecret"] == volumes["keys"]["secret"]["secretName"]
    assert ("download" in values) == ("download.yaml" in texts)
    assert not any(part["enabled"] for part in values.values() if isinstance(part, dict) and "enabled" in part)
    checker = jsonschema.Draft7Validator(schema)
    checker.check_schema(schema)
    assert not list(checker.iter_errors(values))
    assert schema["properties"].keys() == values.keys() | {"global"}
    for name, value in values.items():
        assert list(checker.iter_errors({**values, f"{name}s": value}))
        if isinstance(value, dict) and name != "env":
            assert list(checker.iter_errors({**values, name: {**value, "more": 1}}))
            assert schema["properties"][name]["properties"].keys() == value.keys()


@EVERY
def test_the_chart_has_no_second_copy_of_a_manifest(at: int) -> None:
    """Its template is the same for every fleet; what it prints comes from the files."""
    template = files(at)["templates/fleet.tpl"]
    assert template == files(0)["templates/fleet.tpl"]
    assert "apiVersion:" not in template
    assert template.count("{{") == template.count("}}")


# --- Helm itself


@EVERY
def test_helm_prints_what_kustomization_lists(at: int, tmp_path: Path) -> None:
    """With the default values each document is that of the file, to the last field."""
    made = without_checksum(charted(write_files(tmp_path / "fleet", files(at))))
    assert made == listed(files(at))
    for manifest in made.values():
        assert not list(validator(VERSIONS[-1], kind_of(manifest)).iter_errors(manifest))


@pytest.mark.parametrize("at", [0, 3, 12, 18])
def test_helm_adds_the_parts_that_are_asked_for(at: int, tmp_path: Path) -> None:
    """Those of their own kustomization.yaml, with the values; an autoscaler's number of pods is its own."""
    folder = write_files(tmp_path / "fleet", files(at))
    base = listed(files(at))
    on = {"enabled": True}
    gateway = {**on, "parentRefs": [{"name": "public", "namespace": "gateways"}], "hostnames": ["models.example.com"]}
    for scaler in ("keda", "hpa"):
        values = {"monitoring": {**on, "labels": {"release": "p"}}, scaler: on, "gateway": gateway}
        made = without_checksum(charted(folder, values))
        parts = {
            key: each
            for part in ("monitoring/", f"{scaler}/", "gateway/")
            for key, each in listed(files(at), part).items()
        }
        assert made.keys() == base.keys() | parts.keys()
        del base[SERVER]["spec"]["replicas"]
        assert made[SERVER] == base[SERVER]
        base = listed(files(at))
        route = made["HTTPRoute", "lmdeploy"]["spec"]
        assert (route["parentRefs"], route["hostnames"]) == (gateway["parentRefs"], gateway["hostnames"])
        for kind, name in parts:
            if kind in ("PodMonitor", "PrometheusRule"):
                own = made[kind, name]["metadata"]["labels"]
                assert own == {**parts[kind, name]["metadata"]["labels"], "release": "p"}
            if kind in ("PrometheusRule", "HorizontalPodAutoscaler", "PodMonitor"):
                assert made[kind, name]["spec"] == parts[kind, name]["spec"]
            if kind == "ConfigMap":
                assert made[kind, name] == parts[kind, name]
        if scaler == "keda":
            (trigger,) = made["ScaledObject", "lmdeploy-server"]["spec"]["triggers"]
            assert 'namespace="vision"' in trigger["metadata"]["query"]


def test_values_reach_the_manifests(tmp_path: Path) -> None:
    """Each of them, at its place and nowhere else."""
    at = 2
    folder = write_files(tmp_path / "fleet", files(at))
    digest = f"registry.example/lmdeploy@sha256:{'a' * 64}"
    values = {
        "replicas": 3,
        "image": digest,
        "model": "own/model $(X)",
        "revision": "abc",
        "download": True,
        "gpu": {"resource": "nvidia.com/mig-3g.40gb", "products": []},
        "cpu": "1500m",
        "memory": "20Gi",
        "storage": {"class": "shared", "size": "50Gi"},
        "keysSecret": "own-keys",
        "env": {"SESSION_LEN": "8192", "NEW": "a$b"},
        "monitoring": {"enabled": True, "namespace": "prometheus", "keySecret": "own-key"},
    }
    made = charted(folder, values)
    server = made[SERVER]["spec"]
    container = pod(made[SERVER])["containers"][0]
    assert server["replicas"] == 3
    wanted = environment(pod(manifests(at)[SERVER])["containers"][0])
    wanted |= {"MODEL": "own/model $(X)", "REVISION": "abc", "SESSION_LEN": "8192", "NEW": "a$b"}
    assert environment(container) == wanted
    requests, limits = container["resources"]["requests"], container["resources"]["limits"]
    assert requests == {"cpu": "1500m", "memory": "20Gi", "nvidia.com/mig-3g.40gb": "1"}
    assert limits == {"memory": "20Gi", "nvidia.com/mig-3g.40gb": "1"}
    assert "affinity" not in pod(made[SERVER])
    job = made["Job", "lmdeploy-download-1"]
    own = pod(job)["containers"][0]
    assert (own["image"], container["image"]) == (digest, digest)
    assert (environment(own)["MODEL"], environment(own)["REVISION"]) == ("own/model $(X)", "abc")
    assert "SESSION_LEN" not in environment(own)
    claim = made["PersistentVolumeClaim", "lmdeploy-models"]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("shared", "50Gi")
    for key in (SERVER, FRONT):
        assert [each["secret"]["secretName"] for each in pod(made[key])["volumes"] if "secret" in each] == ["own-keys"]
        assert "API_KEYS_FILE" in environment(pod(made[key])["containers"][0])
    for name in ("server", "front"):
        sources = [
            each
            for rule in made["NetworkPolicy", f"lmdeploy-{name}"]["spec"]["ingress"]
            for each in rule.get("from", ())
        ]
        spaces = [each["namespaceSelector"]["matchLabels"] for each in sources if "namespaceSelector" in each]
        assert spaces == [{"kubernetes.io/metadata.name": "prometheus"}]
    (endpoint,) = made["PodMonitor", "lmdeploy-server"]["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"]["credentials"]["name"] == "own-key"
    for manifest in (made[SERVER], made[FRONT], job):
        assert not list(validator(VERSIONS[-1], kind_of(manifest)).iter_errors(manifest))


def test_no_keys_where_none_are_wanted(tmp_path: Path) -> None:
    """Nothing asks for a key then, nor for one of Prometheus."""
    made = charted(write_files(tmp_path / "fleet", files(2)), {"keysSecret": "", "monitoring": {"enabled": True}})
    for key in (SERVER, FRONT):
        assert "API_KEYS_FILE" not in environment(pod(made[key])["containers"][0])
    (endpoint,) = made["PodMonitor", "lmdeploy-server"]["spec"]["podMetricsEndpoints"]
    assert "authorization" not in endpoint


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replica": 3}, "replica"),
        ({"replicas": 10_000}, "maximum"),
        ({"replicas": 0}, "minimum"),
        ({"env": {"SESSION_LEN": 8192}}, "string"),
        ({"image": "openmmlab/lmdeploy"}, "pattern"),
        ({"monitoring": {"enable": True}}, "enable"),
        ({"keda": {"enabled": True}, "hpa": {"enabled": True}, "monitoring": {"enabled": True}}, "only one of them"),
        ({"keda": {"enabled": True}}, "monitoring.enabled"),
        ({"gateway": {"enabled": True}}, "gateway.parentRefs"),
    ],
)
def test_helm_refuses_wrong_values(values: Any, said: str, tmp_path: Path) -> None:
    """Before anything reaches a cluster, with the value's name or the reason."""
    done = helm(write_files(tmp_path / "fleet", files(2)), values)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_reaches_the_container_whole(name: str, tmp_path: Path) -> None:
    """Or is refused: Go's YAML, which kustomize and Helm share, cannot write a control character."""
    folder = write_files(tmp_path / "fleet", kubernetes.files(named(name)))
    if "\x7f" in name:
        done = helm(folder)
        assert done.returncode != 0
        assert "lmdeploy-server: a value has characters that YAML does not allow" in done.stderr
    else:
        assert environment(pod(charted(folder)[SERVER])["containers"][0])["MODEL"] == name


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    """An edited file that is no YAML is refused, and not left out."""
    done = helm(write_files(tmp_path / "fleet", {**files(2), "pdb.yaml": "a: b: c"}))
    assert done.returncode != 0
    assert "cannot be read" in done.stderr


def test_keys_beside_the_chart_stay_outside(tmp_path: Path) -> None:
    """Helm would keep them in the cluster, where it keeps the chart."""
    tool = need("helm")
    folder = write_files(tmp_path / "fleet", {**files(2), "keys.txt": "secret\n"})
    words = [tool, "package", str(folder), "--destination", str(tmp_path)]
    subprocess.run(words, capture_output=True, check=True, timeout=60)
    (archive,) = tmp_path.glob("*.tgz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert "keys.txt" not in names
    assert {"deployment.yaml", "haproxy.cfg", "monitoring/dashboard.json"} <= names


def test_a_change_of_the_front_is_rolled_out(tmp_path: Path) -> None:
    """The checksum follows the configuration."""
    texts = files(2)
    sums = [
        charted(write_files(tmp_path / str(number), each))[FRONT]["spec"]["template"]["metadata"]["annotations"]
        for number, each in enumerate((texts, texts, {**texts, front.NAME: texts[front.NAME] + "# more\n"}))
    ]
    assert sums[0] == sums[1] != sums[2]


def test_helm_lints_it(tmp_path: Path) -> None:
    """No warning is left, but that of a missing icon, which is only information."""
    tool = need("helm")
    folder = write_files(tmp_path / "fleet", files(2))
    done = run_program([tool, "lint", "--strict", str(folder)], timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
