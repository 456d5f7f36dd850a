"""Manifests of fleets: against Kubernetes' schemas, against each other, by kustomize, and their script in a shell."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from artefacts import BASH, Machine, finish, found, need, parser, run_program, wait_for, write_files
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from kubernetes_validate import utils as schemas
from packaging.version import Version

from recommender.common.errors import RequestError
from recommender.fleet import front, kubernetes
from recommender.fleet.layout import Layout
from recommender.knowledge.startup_times import longest_start
from recommender.review import engine

Manifest = dict[str, Any]

VERSIONS = tuple(dict.fromkeys(".".join(each.split(".")[:2]) for each in schemas.all_versions()))[-4:]
QUALITY = re.compile(r"^[\w./-]+:v?\d+\.\d+(\.\d+)?[\w.-]*$")
LAYOUTS: tuple[tuple[dict[str, Any], int], ...] = (
    ({"gpu": "l4", "load": "single"}, 1),
    ({"gpu": "l4", "gpu_count": 2, "load": "low"}, 3),
    ({"gpu": "l40s", "gpu_count": 4, "load": "high"}, 5),
    ({"gpu": "l40s", "gpu_count": 8, "load": "medium", "model": "qwen2.5-7b-instruct", "images": 0}, 40),
    ({"gpu": "a10", "gpu_count": 1, "load": "medium"}, 12),
    ({"gpu": "a10g", "gpu_count": 4, "load": "medium", "model": "qwen2.5-7b-instruct-awq"}, 2),
    ({"gpu": "a100-sxm-80g", "gpu_count": 8, "load": "medium", "model": "internvl3-38b"}, 4),
    ({"gpu": "a100-sxm-80g", "gpu_count": 2, "load": "low", "model": "internvl3-38b", "lmdeploy": "0.16.0"}, 2),
    ({"gpu": "a100-sxm-80g", "gpu_count": 4, "load": "low", "tp": 4}, 6),
    ({"gpu": "a100-pcie-40g", "gpu_count": 4, "load": "high", "lmdeploy": "0.14.0"}, 7),
    ({"gpu": "a100-sxm-40g-mig-3g", "load": "low", "model": "internvl3-2b"}, 9),
    ({"gpu": "h100-sxm-80g", "gpu_count": 8, "load": "high"}, 20),
    ({"gpu": "h100-sxm-80g", "model": "internvl3-2b-awq", "load": "", "concurrency": 64}, 3),
    ({"gpu": "h100-sxm-80g", "model": "internvl3-1b", "load": "", "concurrency": 16}, 1),
    (
        {
            "gpu": "h100-sxm-80g",
            "gpu_count": 2,
            "load": "medium",
            "tp": 2,
            "images": 1,
            "image_width": 1280,
            "image_height": 720,
        },
        8,
    ),
    ({"gpu": "h100-sxm-80g-mig-1g", "load": "single", "model": "internvl3-1b", "lmdeploy": "0.12.0"}, 40),
    ({"gpu": "h200-sxm", "gpu_count": 4, "load": "low", "model": "qwen2.5-72b-instruct", "cpus": 64}, 2),
    ({"gpu": "h200-sxm", "gpu_count": 8, "load": "high", "cpus": 192}, 10),
    ({"gpu": "rtx-4090", "gpu_count": 2, "load": "low", "lmdeploy": "0.9.2"}, 2),
    ({"gpu": "rtx-4090", "load": "single", "cpus": 1}, 1),
    ({"gpu": "v100-sxm2-32g", "gpu_count": 4, "load": "low", "model": "qwen2.5-7b-instruct"}, 3),
    ({"gpu": "t4", "gpu_count": 4, "load": "low", "model": "qwen2.5-7b-instruct-awq"}, 3),
    ({"gpu": "b200", "gpu_count": 8, "load": "high", "model": "qwen3-32b"}, 2),
    ({"gpu": "gh200-96g", "load": "high", "model": "internvl3-8b-hf"}, 16),
)
EVERY = pytest.mark.parametrize("at", range(len(LAYOUTS)))


class Strict(yaml.SafeLoader):
    """As Kubernetes reads YAML: a key that comes twice is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"twice: {keys}"
        return super().construct_mapping(node, deep)


@cache
def layout(at: int) -> Layout:
    asked, hosts = LAYOUTS[at]
    return Layout(found(**asked), hosts)


@cache
def files(at: int) -> Mapping[str, str]:
    return kubernetes.files(layout(at))


def by_name(text: str) -> dict[tuple[str, str], Manifest]:
    """The manifests of a text by kind and name, which no two share."""
    read = documents(text)
    made = {(each["kind"], each["metadata"]["name"]): each for each in read}
    assert len(made) == len(read)
    return made


def kustomized(folder: Path) -> dict[tuple[str, str], Manifest]:
    """What kustomize makes of a folder."""
    done = run_program([need("kubectl"), "kustomize", str(folder)], timeout=60)
    assert done.returncode == 0, done.stderr
    return by_name(done.stdout)


def documents(text: str) -> list[Manifest]:
    return [each for each in yaml.load_all(text, Strict) if each is not None]


@cache
def manifests(at: int) -> dict[tuple[str, str], Manifest]:
    """Those of the base; see test_fleet_monitoring.py for the others, and test_fleet_helm.py for the chart."""
    base = {name: text for name, text in files(at).items() if name.endswith(".yaml") and "/" not in name}
    base = {name: text for name, text in base.items() if name not in kubernetes.CHART}
    read = [each for text in base.values() for each in documents(text)]
    return {(each["kind"], each.get("metadata", {}).get("name", "")): each for each in read}


def pod(manifest: Manifest) -> Manifest:
    made: Manifest = manifest["spec"]["template"]["spec"]
    return made


def server(at: int) -> Manifest:
    made: Manifest = pod(manifests(at)["Deployment", "lmdeploy-server"])["containers"][0]
    return made


def pods(at: int) -> Iterator[tuple[str, Manifest]]:
    for (kind, name), each in manifests(at).items():
        if kind in ("Deployment", "Job"):
            yield name, pod(each)


def environment(container: Manifest) -> dict[str, str]:
    """Variables as the container sees them."""
    made: dict[str, str] = {}
    for each in container["env"]:
        if "value" in each:
            made[each["name"]] = expanded(each["value"], made)
    return made


def expanded(text: str, known: Mapping[str, str]) -> str:
    """Kubernetes' own replacing: $(NAME) by what is known, $$ by one."""
    return re.sub(
        r"\$(?:(\$)|\(([^)]*)\))", lambda match: "$" if match[1] else known.get(match[2] or "", match[0]), text
    )


def gib(quantity: str) -> float:
    number, unit = re.fullmatch(r"(\d+)(Gi|Mi)", quantity).groups()  # type: ignore[union-attr]
    return int(number) / (1 if unit == "Gi" else 1024)


@cache
def validator(version: str, kind: str) -> Any:
    """The schema of a kind in which unknown fields are mistakes."""
    import jsonschema
    from referencing import Registry, Resource

    (full,) = [each for each in schemas.all_versions() if each.startswith(f"{version}.")][-1:]
    folder = f"kubernetes-json-schema/v{full}-local-strict"
    schema = schemas.schema_contents(f"{folder}/{kind}.json", version)
    shared = schemas.schema_contents(f"{folder}/_definitions.json", version)
    registry = Resource.from_contents(shared) @ (Resource.from_contents(schema) @ Registry())
    return jsonschema.Draft202012Validator(schema, registry=registry)


def kind_of(manifest: Manifest) -> str:
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", manifest["apiVersion"])
    return f"{manifest['kind'].lower()}-{group}"


# --- the schemas


def test_the_grid_is_wide() -> None:
    """Many cards and models, one to 40 hosts, shared cards and shared models, images and text."""
    assert len(LAYOUTS) >= 20
    assert len(VERSIONS) == 4
    made = [layout(at) for at in range(len(LAYOUTS))]
    assert {each.recommendation.config.tp for each in made} >= {1, 2, 4}
    assert {each.hosts for each in made} >= {1, 40}
    assert any(each.recommendation.config.share > 1 for each in made)
    assert {bool(each.recommendation.resolved.images) for each in made} == {True, False}


@EVERY
@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_fit_the_schemas(at: int, version: str) -> None:
    """The last four minor releases accept every manifest, and know every field of it."""
    for (kind, name), manifest in manifests(at).items():
        if kind != "Kustomization":
            problems = [each.message for each in validator(version, kind_of(manifest)).iter_errors(manifest)]
            assert not problems, (kind, name, problems)


def test_the_schemas_refuse_what_they_do_not_know() -> None:
    """A misspelt field, a wrong type and a missing one are found: the test above tests something."""
    good = manifests(0)["Deployment", "lmdeploy-server"]
    lacking = {name: value for name, value in good["spec"].items() if name != "selector"}
    for wrong in ({**good["spec"], "replica": 1}, {**good["spec"], "replicas": "many"}, lacking):
        assert list(validator(VERSIONS[-1], "deployment-apps-v1").iter_errors({**good, "spec": wrong}))


# --- the manifests against each other and against the prediction


@EVERY
def test_names_and_labels_agree(at: int) -> None:
    """Selectors select the pods that are meant, and what is mounted or listed is there."""
    every = manifests(at)
    labels = {name: every["Deployment", f"lmdeploy-{name}"]["spec"]["template"]["metadata"]["labels"]
              for name in ("server", "front")}  # fmt: skip
    selectors = {
        "server": [
            every["Deployment", "lmdeploy-server"]["spec"]["selector"]["matchLabels"],
            every["PodDisruptionBudget", "lmdeploy-server"]["spec"]["selector"]["matchLabels"],
            every["NetworkPolicy", "lmdeploy-server"]["spec"]["podSelector"]["matchLabels"],
            every["Service", kubernetes.SERVERS]["spec"]["selector"],
            pod(every["Deployment", "lmdeploy-server"])["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
            every["NetworkPolicy", "lmdeploy-front"]["spec"]["egress"][0]["to"][0]["podSelector"]["matchLabels"],
        ],
        "front": [
            every["Deployment", "lmdeploy-front"]["spec"]["selector"]["matchLabels"],
            every["PodDisruptionBudget", "lmdeploy-front"]["spec"]["selector"]["matchLabels"],
            every["NetworkPolicy", "lmdeploy-front"]["spec"]["podSelector"]["matchLabels"],
            every["Service", "lmdeploy"]["spec"]["selector"],
            every["NetworkPolicy", "lmdeploy-server"]["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"],
        ],
    }
    for name, meant in selectors.items():
        for selector in meant:
            assert [each for each in labels if selector.items() <= labels[each].items()] == [name]
    listed = every["Kustomization", ""]
    mounted = listed["configMapGenerator"][0]["files"]
    assert mounted == [front.NAME, front.STARTER, front.LUA]
    assert {*listed["resources"], *mounted} <= set(files(at))
    base = {name for name in files(at) if "/" not in name}
    assert base - {*kubernetes.CHART} - {*listed["resources"], *mounted, "kustomization.yaml"} <= {
        "README.md",
        "secret.example.yaml",
        "download.yaml",
    }
    for name, each in pods(at):
        volumes = {volume["name"]: volume for volume in each["volumes"]}
        for container in each["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes), name
        for volume in volumes.values():
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in every
            if "configMap" in volume:
                assert volume["configMap"]["name"] == listed["configMapGenerator"][0]["name"]


@EVERY
def test_ports_agree(at: int) -> None:
    """Script, container, Service, policies and the front's configuration have the same ports."""
    every, container = manifests(at), server(at)
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert list(ports.values()) == [
        layout(at).recommendation.config.port + number for number in range(layout(at).recommendation.config.share)
    ]
    script = container["args"][0]
    assert [int(each) for each in re.findall(r"--server-port (\d+)", script)] == list(ports.values())
    service = every["Service", kubernetes.SERVERS]["spec"]
    assert service["clusterIP"] == "None"
    assert {each["targetPort"]: each["port"] for each in service["ports"]} == ports
    allowed = every["NetworkPolicy", "lmdeploy-server"]["spec"]["ingress"]
    passed = every["NetworkPolicy", "lmdeploy-front"]["spec"]["egress"][0]
    for rule in (*allowed, passed):
        assert [each["port"] for each in rule["ports"]] == list(ports.values())
    assert len(allowed) == 2
    assert allowed[1]["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    balanced = re.findall(
        r'^ +server-template \S+ (\d+) "([^"]+)" resolvers (\w+)', files(at)[front.NAME], re.MULTILINE
    )
    address = f"{kubernetes.SERVERS}.${{POD_NAMESPACE}}.svc.${{CLUSTER_DOMAIN}}"
    # Both backends: the servers that answer well, and all of them.
    assert [where for _, where, _ in balanced] == 2 * [f"{address}:{port}" for port in ports.values()]
    assert all(int(slots) > every["Deployment", "lmdeploy-server"]["spec"]["replicas"] for slots, _, _ in balanced)
    assert {f"resolvers {each}" for _, _, each in balanced} <= set(files(at)[front.NAME].splitlines())
    before = pod(every["Deployment", "lmdeploy-front"])["containers"][0]
    bound = {each["name"]: each["containerPort"] for each in before["ports"]}
    assert bound == {"http": front.PORT, "figures": front.STATS_PORT}
    assert [each["port"] for each in every["Service", "lmdeploy"]["spec"]["ports"]] == [front.PORT]
    opened = every["NetworkPolicy", "lmdeploy-front"]["spec"]["ingress"]
    assert [[each["port"] for each in rule["ports"]] for rule in opened] == [[front.PORT], [front.STATS_PORT]]
    variables = environment(before)
    assert {variables[each] for each in ("FRONT_ADDRESS", "STATS_ADDRESS")} == {"0.0.0.0"}
    presets = set(re.findall(r"presetenv (\w+)", files(at)[front.NAME]))
    assert variables.keys() - {"CLUSTER_DOMAIN", "API_KEYS_FILE"} <= presets, "the front reads what it is given"


def test_dns_names_no_more_pods_than_the_front_accepts() -> None:
    """An answer with an address of 16 bytes for each pod, a header, the question and EDNS; more pods are refused."""
    (accepted,) = re.findall(r"accepted_payload_size (\d+)", files(2)[front.NAME])
    question = len(f"{kubernetes.SERVERS}.{'n' * 63}.svc.cluster.local") + 2 + 4
    assert 12 + question + 16 * kubernetes.MOST_PODS + 11 <= int(accepted)
    recommendation = layout(0).recommendation
    assert kubernetes.files(Layout(recommendation, 500))
    with pytest.raises(RequestError, match="at most 500 pods"):
        kubernetes.files(Layout(recommendation, 501))


@EVERY
def test_resources_are_those_of_the_plan(at: int) -> None:
    """As many pods as cards allow, cores of no more than a host has, and memory for the weights."""
    every, container, planned = manifests(at), server(at), layout(at)
    config, resolved = planned.recommendation.config, planned.recommendation.resolved
    replicas, resources = every["Deployment", "lmdeploy-server"]["spec"]["replicas"], container["resources"]
    assert replicas * config.share == planned.servers
    a_host = replicas // planned.hosts
    assert a_host * config.tp == config.cards
    assert resources["requests"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"] == str(config.tp)
    milli = int(resources["requests"]["cpu"].removesuffix("m"))
    assert a_host * milli < 1000 * planned.recommendation.request.cpus
    assert "cpu" not in resources["limits"]
    weights = resolved.weight_bytes / 2**30
    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    assert gib(resources["limits"]["memory"]) > weights + config.share * 4 + config.tp
    volumes = {each["name"]: each for each in pod(every["Deployment", "lmdeploy-server"])["volumes"]}
    assert volumes["shm"]["emptyDir"]["medium"] == "Memory"
    assert gib(volumes["shm"]["emptyDir"]["sizeLimit"]) >= config.tp
    (claim,) = [each for (kind, _), each in every.items() if kind == "PersistentVolumeClaim"]
    assert gib(claim["spec"]["resources"]["requests"]["storage"]) > weights
    terms = pod(every["Deployment", "lmdeploy-server"]).get("affinity", {})
    if resolved.gpu.nvml_names:
        needed = terms["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        values = needed[0]["matchExpressions"][0]["values"]
        assert {each.replace(" ", "-") for each in resolved.gpu.nvml_names} == set(values)
        assert all(re.fullmatch(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", each) for each in values)


def test_page_locked_buffers_are_counted_in_the_releases_that_have_them() -> None:
    """0.16.0 pins memory for each token of a pass on each card; 0.18.0 does not."""
    asked = {"gpu": "a100-sxm-80g", "gpu_count": 2, "load": "low", "model": "internvl3-38b"}
    sizes = []
    for release in ("0.16.0", "0.18.0"):
        made = Layout(found(**asked, lmdeploy=release), 1)
        (deployed,) = documents(kubernetes.files(made)["deployment.yaml"])
        sizes.append(gib(pod(deployed)["containers"][0]["resources"]["limits"]["memory"]))
        tokens = made.recommendation.config.prefill_tokens + made.recommendation.config.max_batch_size
    assert sizes[0] - sizes[1] >= 2 * tokens * 2 * 3 * 448**2 * 2 / 2**30


@EVERY
def test_probes_wait_for_the_start_and_for_a_full_server(at: int) -> None:
    """The startup probe outlasts a start from a slow volume; nothing sends a health check behind a limit."""
    container, planned = server(at), layout(at)
    begins, lives, ready = (container[f"{each}Probe"] for each in ("startup", "liveness", "readiness"))
    patience = begins["periodSeconds"] * begins["failureThreshold"]
    share = planned.recommendation.config.share
    assert patience >= share * 2 * longest_start() + planned.recommendation.resolved.weight_bytes / 200e6
    assert "max-concurrent-requests" not in container["args"][0]
    # LMDeploy answers within its own 10 s, and counts as ill after 90 s.
    for probe in (begins, lives, ready):
        assert probe["timeoutSeconds"] > 10
    assert lives["periodSeconds"] * lives["failureThreshold"] > 90
    probes_engine = planned.recommendation.resolved.version >= Version("0.14.0")
    assert ("tcpSocket" in lives) != probes_engine
    if share > 1:
        ports = [str(each["containerPort"]) for each in container["ports"]]
        assert all(port in begins["exec"]["command"][2] for port in ports)
        assert begins["timeoutSeconds"] > 10 * share


@EVERY
def test_servers_drain_and_updates_spare_the_fleet(at: int) -> None:
    """A pod outlives its slowest request; updates and drains take no more than the spare, and no card more."""
    every = manifests(at)
    spec = every["Deployment", "lmdeploy-server"]["spec"]
    sleep = int(server(at)["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod(every["Deployment", "lmdeploy-server"])["terminationGracePeriodSeconds"] > (
        sleep + front.client_timeout_s(layout(at).recommendation)
    )
    rolling = spec["strategy"]["rollingUpdate"]
    assert rolling["maxSurge"] == 0
    assert rolling["maxUnavailable"] == 1
    assert every["PodDisruptionBudget", "lmdeploy-server"]["spec"]["maxUnavailable"] == 1
    for name in ("server", "front"):
        assert every["PodDisruptionBudget", f"lmdeploy-{name}"]["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    probe = server(at)["startupProbe"]
    assert spec["progressDeadlineSeconds"] > probe["periodSeconds"] * probe["failureThreshold"]
    assert spec["revisionHistoryLimit"] > 0


@pytest.mark.parametrize("hosts", [1, 2, 3, 20])
@pytest.mark.parametrize("spare", [0, 1, 2, 3, 30])
@pytest.mark.parametrize("at", [0, 2, 12])
def test_updates_take_no_more_than_is_spare(at: int, hosts: int, spare: int) -> None:
    """The spare hosts less one, which is kept for a failure; one pod at a time where that leaves none."""
    made = Layout(layout(at).recommendation, hosts, spare)
    a_host = made.recommendation.config.servers // made.recommendation.config.share
    texts = kubernetes.files(made)
    (deployment,) = [each for each in documents(texts["deployment.yaml"]) if each["kind"] == "Deployment"]
    budget = next(each for each in documents(texts["pdb.yaml"]) if each["metadata"]["name"] == "lmdeploy-server")
    out = deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"]
    assert budget["spec"]["maxUnavailable"] == out
    assert deployment["spec"]["replicas"] == hosts * a_host
    real = min(spare, hosts - 1)
    assert out == max(1, (real - 1) * a_host)
    assert hosts == 1 or out < hosts * a_host
    assert f"one host, {a_host}," in texts["pdb.yaml"]
    comments = [line for line in texts["pdb.yaml"].splitlines() if "spare" in line]
    assert len(comments) == 1
    assert len(comments[0]) <= 80
    assert ("kept for a failure" in comments[0]) == (real > 0)


def test_a_layout_has_one_host_to_spare_by_itself() -> None:
    """Whoever names only the hosts gets the plan's own default."""
    found = layout(2).recommendation
    assert Layout(found, 3) == Layout(found, 3, 1)
    assert kubernetes.files(Layout(found)) == kubernetes.files(Layout(found, 1, 0))


@pytest.mark.parametrize("at", [0, 2, 12])
def test_the_front_is_that_of_hosts_but_for_its_servers(at: int) -> None:
    """One template has both: only the servers differ, what asks DNS for them, and in the head how to check it."""
    hosts = front.files(Layout(layout(at).recommendation))[front.NAME].splitlines()
    pods = kubernetes.files(Layout(layout(at).recommendation))[front.NAME]
    shared, _, resolvers = pods.partition("\nresolvers ")
    assert resolvers.startswith("cluster\n")
    assert "server-template" in shared
    assert not re.search(r"^ +server ", pods, re.MULTILINE)
    own = [line for line in hosts if not line.startswith("    server ")]
    theirs = [line for line in shared.splitlines() if "server-template" not in line and "every ready pod" not in line]
    settings = "# Each presetenv is a default: the environment variable of the same name overrides it."
    assert own[own.index(settings) :] == theirs[theirs.index(settings) :]


@EVERY
def test_pods_are_restricted(at: int) -> None:
    """Each field that the restricted Pod Security Standard looks at, a read-only root, and no token."""
    for name, each in pods(at):
        context = each["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] > 0
        assert context["fsGroup"] > 0
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert each["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & each.keys()
        kinds = {kind for volume in each["volumes"] for kind in volume if kind != "name"}
        assert kinds <= {"emptyDir", "secret", "configMap", "persistentVolumeClaim"}, name
        for container in each["containers"]:
            own = container["securityContext"]
            assert own == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert not any("hostPort" in port for port in container.get("ports", ()))
            assert QUALITY.match(container["image"]), container["image"]
            assert "latest" not in container["image"]
    account = manifests(at)["ServiceAccount", "lmdeploy"]
    assert account["automountServiceAccountToken"] is False
    assert pod(manifests(at)["Deployment", "lmdeploy-server"])["enableServiceLinks"] is False


@EVERY
def test_caches_have_a_place_and_the_model_has_not(at: int) -> None:
    """HOME and the caches below it lie on a volume that can be written; the model's cannot."""
    container = server(at)
    mounts = {each["mountPath"]: each.get("readOnly", False) for each in container["volumeMounts"]}
    variables = environment(container)
    for name in ("HOME", "HF_HOME"):
        assert mounts["/" + variables[name].split("/")[1]] is False, name
    assert mounts["/tmp"] is False
    assert mounts["/models"] is True
    assert variables["HF_HUB_OFFLINE"] == "1"
    assert variables["HF_HUB_CACHE"].startswith("/models/")


@EVERY
def test_no_key_stands_in_a_file(at: int) -> None:
    """Keys are files of a Secret that no manifest makes."""
    every = manifests(at)
    assert every["Secret", "lmdeploy-api-keys"]["data"] == {"keys": ""}
    assert "secret.example.yaml" not in every["Kustomization", ""]["resources"]
    for name, each in pods(at):
        for container in each["containers"]:
            assert not any("secretKeyRef" in one.get("valueFrom", {}) for one in container["env"])
        secrets = [volume["secret"]["secretName"] for volume in each["volumes"] if "secret" in volume]
        assert secrets == ["lmdeploy-hub-token" if name == "lmdeploy-download" else "lmdeploy-api-keys"]


@EVERY
def test_manifests_review_clean(at: int) -> None:
    """recommend review finds the servers and nothing to say of them."""
    for name, text in files(at).items():
        if name.endswith(".yaml"):
            reviewed = engine.review(name, text)
            said = [(each.rule.id, each.place.line, each.message) for each in reviewed.findings]
            assert not said, (name, said)
            assert not reviewed.defects
            launches = layout(at).recommendation.config.share if name == "deployment.yaml" else 0
            assert len(reviewed.script.launches) == launches, name


@EVERY
def test_every_value_has_its_reason(at: int) -> None:
    """A comment with a source stands before each variable that carries an option."""
    lines = files(at)["deployment.yaml"].splitlines()
    names = [each.option.upper().replace("-", "_") for each in layout(at).recommendation.explanations if each.emitted]
    for number, line in enumerate(lines):
        match = re.fullmatch(r" +- name: ([A-Z_]+)", line)
        if match and match[1] in names:
            assert re.fullmatch(r" +# \[.+\]", lines[number - 1]), line


# --- the script


def run_script(machine: Machine, container: Manifest, **changed: str) -> tuple[int, str]:
    """Runs the container's command as Kubernetes hands it over."""
    variables = environment(container) | {"REVISION": "abc"} | changed
    if "API_KEYS_FILE" not in changed:
        del variables["API_KEYS_FILE"]
    command = [expanded(each, variables) for each in (*container["command"], *container["args"])]
    done = run_program([BASH, *command[1:]], env=machine.environment() | variables, timeout=30)
    return done.returncode, done.stderr


SINGLE = [at for at, (asked, _) in enumerate(LAYOUTS) if asked["load"]]
"""Of the others a pod has several servers."""


@pytest.mark.parametrize("at", SINGLE)
def test_the_script_starts_what_was_chosen(at: int, tmp_path: Path) -> None:
    """The release's own parser understands the command, and gets the values of the plan."""
    machine, planned = Machine(tmp_path), layout(at).recommendation
    status, said = run_script(machine, server(at))
    assert status == 0, said
    (call,) = machine.calls()
    asked = parser(planned.resolved.release.id).parse_args(call.words[3:])
    assert asked.model_path == planned.resolved.model_source
    assert (asked.server_name, asked.server_port) == ("0.0.0.0", planned.config.port)
    assert int(asked.max_batch_size) == planned.config.max_batch_size
    assert int(asked.session_len) == planned.config.session_len
    assert asked.proxy_url is None
    assert asked.api_keys is None
    assert call.environment["OMP_NUM_THREADS"] == str(planned.config.omp_threads)


def test_keys_come_from_the_file(tmp_path: Path) -> None:
    """Each line is a key; a missing or empty file ends the start with a word about it."""
    machine, keys = Machine(tmp_path), tmp_path / "keys"
    status, said = run_script(machine, server(0), API_KEYS_FILE=str(keys))
    assert status == 3
    assert said.count("\n") == 1
    assert "lmdeploy-api-keys" in said
    keys.write_text("\n \n")
    status, said = run_script(machine, server(0), API_KEYS_FILE=str(keys))
    assert (status, "no key in" in said) == (3, True)
    keys.write_text("one\r\n\ntwo * $(x)\n")
    status, said = run_script(machine, server(0), API_KEYS_FILE=str(keys))
    assert status == 0, said
    (call,) = machine.calls()
    assert call.words[call.words.index("--api-keys") + 1 :][:2] == ["one", "two * $(x)"]


def test_remote_code_wants_a_revision(tmp_path: Path) -> None:
    """Without one the start ends and says where to name it."""
    status, said = run_script(Machine(tmp_path), server(0), REVISION="")
    assert status == 3
    assert "REVISION" in said
    assert "deployment.yaml" in said


LISTENS = f"""#!{sys.executable}
import pathlib, os, signal, socket, sys, time
port = int(sys.argv[sys.argv.index("--server-port") + 1])
made = socket.create_server(("127.0.0.1", port))
pathlib.Path(os.environ["RECORD"], str(port)).write_text(str(os.getpid()))
signal.pause()
"""
WAITS = "#!/bin/bash\nexec sleep 600\n"


def test_servers_of_a_card_start_one_after_the_other_and_end_together(tmp_path: Path) -> None:
    """MPS first, then each server once the one before listens; when one dies, the pod does."""
    at = next(each for each in range(len(LAYOUTS)) if layout(each).recommendation.config.share > 1)
    machine, container = Machine(tmp_path), server(at)
    machine.tool("lmdeploy", LISTENS)
    machine.tool("nvidia-cuda-mps-control", WAITS)
    script, ports = container["args"][0], []
    for each in container["ports"]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
        script = script.replace(str(each["containerPort"]), str(ports[-1]))
    variables = environment(container) | {"REVISION": "abc"}
    del variables["API_KEYS_FILE"]
    variables["CUDA_MPS_PIPE_DIRECTORY"] = str(tmp_path / "mps")
    process = subprocess.Popen(
        [BASH, "-c", expanded(script, variables)],
        env=machine.environment() | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        made = [tmp_path / "record" / str(port) for port in ports]
        wait_for(lambda: all(each.is_file() and each.read_text() for each in made))
        times = [each.stat().st_mtime_ns for each in made]
        assert times == sorted(times)
        assert process.poll() is None
        os.kill(int(made[-1].read_text()), signal.SIGKILL)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 3, said
        assert "all stopped" in said
    finally:
        finish(process)


# --- the tools


@pytest.mark.parametrize("at", [0, 6, 12])
def test_kustomize_builds_it_and_a_site_overrides_it(at: int, tmp_path: Path) -> None:
    """The example in the head, as it stands there, is a working overlay."""
    base = write_files(tmp_path / "lmdeploy", files(at))
    head = files(at)["kustomization.yaml"]
    shown = re.search(r"(?:^#   (?:  )*\S.*\n)+(?=#\n# No namePrefix)", head, re.MULTILINE)
    overlay = textwrap.dedent(re.sub(r"^#", "", shown[0], flags=re.MULTILINE))
    overlay = overlay.replace(re.search(r"OMP_NUM_THREADS, value: (\S+)}", overlay)[1], '"7"')  # type: ignore[index]
    site = write_files(tmp_path / "site", {"kustomization.yaml": overlay})
    for folder in (base, site):
        made = kustomized(folder)
        for manifest in made.values():
            assert not list(validator(VERSIONS[-1], kind_of(manifest)).iter_errors(manifest))
        container = pod(made["Deployment", "lmdeploy-server"])["containers"][0]
        wanted = environment(server(at)) | ({"OMP_NUM_THREADS": "7"} if folder == site else {})
        assert environment(container) == wanted
        (config,) = [name for kind, name in made if kind == "ConfigMap"]
        volumes = pod(made["Deployment", "lmdeploy-front"])["volumes"]
        assert config in [each.get("configMap", {}).get("name") for each in volumes]
        assert {each["metadata"]["namespace"] for each in made.values()} == {"vision" if folder == site else "lmdeploy"}


@pytest.mark.parametrize("at", [0, 3, 12])
def test_haproxy_takes_the_configuration(at: int, tmp_path: Path) -> None:
    """With the variables of its pod."""
    haproxy, config, keys = need("haproxy"), tmp_path / front.NAME, tmp_path / "keys"
    for name in (front.NAME, front.LUA):
        (tmp_path / name).write_text(files(at)[name], encoding="utf-8")
    keys.write_text("one\n")
    container = pod(manifests(at)["Deployment", "lmdeploy-front"])["containers"][0]
    own = {"POD_NAMESPACE": "vision", "API_KEYS_FILE": str(keys), "FRONT_LUA": str(tmp_path / front.LUA)}
    variables = environment(container) | own
    done = run_program([haproxy, "-c", "-f", str(config)], env=variables, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


# --- names as data

HOSTILE = (
    "x$(HOSTNAME)y", "$$(MODEL)$$", 'a": {b: "c', "two\nlines: [", "--- # \t'", "\x85\u2028\u202e\x7f\x1b",
    "{{ 7 * 7 }}{% endraw %}", "*anchor &x !tag |", "naïve café 模型 \U0001f600", "-rf --trust-remote-code",
)  # fmt: skip
NAME = st.text(
    st.one_of(
        st.sampled_from("$()`'\"\\{}[]<>|&;!#*?:,~=%@- \n\r\t\x1b\u202e\u2028\x85é"),
        st.characters(codec="utf-8", exclude_characters="\0"),
    ),
    min_size=1,
    max_size=24,
)


def named(name: str) -> Layout:
    """A layout whose model has this name; only its text matters here."""
    made = layout(2)
    return replace(
        made,
        recommendation=replace(made.recommendation, resolved=replace(made.recommendation.resolved, model_source=name)),
    )


def hostile(test: Any) -> Any:
    for name in HOSTILE:
        test = example(name=name)(test)
    return settings(max_examples=40, deadline=None)(given(name=NAME)(test))


@hostile
def test_a_hostile_name_is_one_value(name: str) -> None:
    """Whatever a model is called, only the value of MODEL differs, and the container sees that very name."""
    assume(not name.startswith(("/", "./", "../", "~")) and not Path(name).is_dir())
    made, plain = kubernetes.files(named(name)), files(2)
    assert made.keys() == plain.keys()
    for file, text in made.items():
        if file == "values.yaml":
            assert yaml.safe_load(text) == {**yaml.safe_load(plain[file]), "model": name}
            continue
        if file not in ("deployment.yaml", "download.yaml", "cache/server.yaml"):
            assert text == plain[file], file
            continue
        (read,) = documents(text)
        container = pod(read).get("initContainers", pod(read)["containers"])[0]
        assert environment(container)["MODEL"] == name
        given = next(each for each in container["env"] if each["name"] == "MODEL")
        given["value"] = layout(2).recommendation.resolved.model_source
        assert [read] == documents(plain[file]), file


def test_a_folder_is_one_of_the_volume() -> None:
    """Its last part is kept, nothing is downloaded, and comments cannot be broken out of."""
    made = kubernetes.files(named("/data/with\nbreak: [$(X)"))
    assert "download.yaml" not in made
    (deployed,) = documents(made["deployment.yaml"])
    variables = environment(pod(deployed)["containers"][0])
    assert variables["MODEL"] == "/models/with\nbreak: [$(X)"
    assert "HF_HUB_CACHE" not in variables
    assert {each["kind"] for each in documents(made["models.yaml"])} == {"PersistentVolumeClaim"}


@pytest.mark.parametrize("name", ["a\udcffb", "a\0b"])
def test_what_is_no_text_is_refused(name: str) -> None:
    """One clear line instead of a manifest that Kubernetes cannot read."""
    with pytest.raises(RequestError, match="rename its folder"):
        kubernetes.files(named(name))
