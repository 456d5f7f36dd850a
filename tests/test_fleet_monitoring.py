"""Alerts, dashboards and autoscalers of fleets: by Prometheus' own tool, kustomize, and the metrics that exist."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from artefacts import command, found, need, run_program, write_files
from packaging.version import Version
from test_fleet_kubernetes import LAYOUTS, VERSIONS, documents, files, kustomized, layout, manifests, validator

from recommender.api import plan as planned
from recommender.fleet import front, kubernetes, monitoring
from recommender.fleet.layout import Layout, lay_out
from recommender.request.request import Request

CASES = Path(__file__).parent / "cases" / "metrics"
COMPONENTS = ("monitoring", "keda", "hpa")
EVERY = pytest.mark.parametrize("at", range(len(LAYOUTS)))
ITS_OWN = {"up", "process_start_time_seconds"}
"""Prometheus' own metric, and one of prometheus_client, in the sample below."""
LABELS = {"namespace", "pod", "goal"} | {"proxy", "code", "server"} | {"le", "engine", "model_name"}
"""Those that the operator and the rules set, HAProxy's, and LMDeploy's."""


@cache
def plan(gpu: str = "L40S:4", **asked: Any) -> tuple[Any, Layout]:
    """A fleet as sized, and its layout."""
    asked = {"rps": 200.0, "p99_ms": 800.0, **asked}
    made = planned(Request(gpu=gpu.partition(":")[0], **asked), [gpu])
    return made.fleets[0], lay_out(made.fleets[0], made)


def component(texts: Any, name: str, kind: str) -> Any:
    (read,) = [each for each in documents(texts[name]) if each["kind"] == kind]
    return read


def rules(texts: Any) -> list[dict[str, Any]]:
    groups = component(texts, "monitoring/rules.yaml", "PrometheusRule")["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions(texts: Any) -> Iterator[str]:
    """Every PromQL expression of a fleet's files."""
    yield from (rule["expr"] for rule in rules(texts))
    for panel in json.loads(texts["monitoring/dashboard.json"])["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield component(texts, "keda/scaledobject.yaml", "ScaledObject")["spec"]["triggers"][0]["metadata"]["query"]
    yield component(texts, "hpa/hpa.yaml", "HorizontalPodAutoscaler")["spec"]["metrics"][0]["external"]["metric"][
        "name"
    ].replace("lmdeploy_requests", "lmdeploy_fleet:requests:sum")


def names(expression: str) -> set[str]:
    """The metrics of an expression: what is no function, no label, no text and no number."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    bare = re.sub(r"\[[^\]]*\]", "", bare)
    bare = re.sub(r"\b(by|on|without|ignoring) *\([^)]*\)", "", bare)
    bare = re.sub(r"\{[^}]*\}", "", bare)
    words = re.findall(r"(?<![\w.])[A-Za-z_:][\w:]*(?! *\()(?![\w:])", bare)
    return {word for word in words if word not in ("and", "or", "unless", "sum", "max", "min", "by")}


@cache
def released() -> dict[str, frozenset[str]]:
    """The metrics of each release, as they are exposed."""
    made = {}
    kinds = dict(re.findall(r"^# TYPE lmdeploy:(\w+) (\w+)", (CASES / "lmdeploy-0.18.0.prom").read_text(), re.M))
    for group in yaml.safe_load((CASES / "lmdeploy.yaml").read_text()):
        exposed = {f"lmdeploy:{name}" for name in group["names"]}
        for name in group["names"]:
            if kinds.get(name) == "histogram":
                exposed |= {f"lmdeploy:{name}_{part}" for part in ("bucket", "sum", "count")}
        made |= dict.fromkeys(group["releases"], frozenset(exposed))
    return made


# --- names


def test_the_sample_is_of_the_names() -> None:
    """What a logger of the wheel exposed is what its source names."""
    text = (CASES / "lmdeploy-0.18.0.prom").read_text()
    exposed = set(re.findall(r"^(lmdeploy:\w+)\{", text, re.M))
    assert exposed <= released()["0.18.0"]
    assert len(exposed) > 50
    assert "process_start_time_seconds" in text


@EVERY
def test_every_metric_is_one_of_the_release(at: int) -> None:
    """LMDeploy's by its source, HAProxy's by a scrape, recorded ones by a rule; each label is one that they have."""
    release = layout(at).recommendation.resolved.release.id
    theirs = released().get(release, frozenset())
    if Version(release) >= Version(monitoring.SINCE):
        assert theirs, f"the metrics of {release} are not in tests/cases/metrics"
    balancer = set((CASES / "haproxy-2.6.txt").read_text().split())
    recorded = {rule["record"] for rule in rules(files(at)) if "record" in rule}
    used: set[str] = set()
    for expression in expressions(files(at)):
        used |= names(expression)
        assert set(re.findall(r"(\w+) *=~?", re.sub(r'"[^"]*"', '""', expression))) <= LABELS | {""}, expression
        for inside in re.findall(r"by \(([^)]*)\)", expression):
            assert set(inside.split(", ")) <= LABELS
    if not theirs:
        assert not any(name.startswith("lmdeploy:") for name in used)
        used -= {"process_start_time_seconds", "up"}
    assert used <= theirs | balancer | recorded | ITS_OWN, used - theirs - balancer - recorded
    assert any(name.startswith("lmdeploy:") for name in used) == bool(theirs)


def test_names_of_expressions() -> None:
    """The reader of names above finds a wrong one."""
    text = 'sum by (namespace) (rate(lmdeploy:a_bucket{le=~"0[.]8"}[5m])) / b and up{pod=~"x"} == 0 > 1e3'
    assert names(text) == {"lmdeploy:a_bucket", "b", "up"}


def test_lines_that_are_cited_say_it() -> None:
    """In the wheel, where it is unpacked at LMDEPLOY_SOURCE."""
    root = os.environ.get("LMDEPLOY_SOURCE")
    cited = [*monitoring.CITES.values(), *(source for _, _, source in monitoring.HISTOGRAMS.values())]
    for each in cited:
        match = re.fullmatch(r"0\.18\.0 (lmdeploy/[\w/]+\.py):(\d+)", each)
        assert match, each
        if root:
            line = Path(root, match[1]).read_text().splitlines()[int(match[2]) - 1]
            assert re.search(r"lmdeploy:|_force_log|RequestStats\(|REGISTRY|stream_response=True", line), (each, line)


def test_buckets_are_those_of_the_release() -> None:
    """A goal between two of them counts as the next; as Prometheus 2 and 3 write it."""
    text = (CASES / "lmdeploy-0.18.0.prom").read_text()
    for metric, buckets, _ in monitoring.HISTOGRAMS.values():
        bounds = re.findall(rf'^{metric}_bucket\{{.*le="([^"]+)"', text, re.M)
        assert [str(each) for each in buckets] == bounds[:-1]
        for bound in bounds[:-1]:
            watch = monitoring.Watched("", metric, "", 0, float(bound))
            hits = [each for each in bounds if re.fullmatch(watch.bucket, each)]
            assert hits == [bound]
            assert re.fullmatch(watch.bucket, f"{float(bound):g}")


@pytest.mark.alone
def test_haproxy_exposes_them(tmp_path: Path) -> None:
    """A scrape of the installed one, with a fleet's own configuration."""
    import socket
    import time
    from urllib.request import urlopen

    haproxy, ports = need("haproxy"), []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(str(free.getsockname()[1]))
    made = front.files(Layout(layout(2).recommendation))
    write_files(tmp_path, made)
    variables = {"FRONT_PORT": ports[0], "STATS_PORT": ports[1], "FRONT_LUA": str(tmp_path / front.LUA)}
    process = subprocess.Popen(
        [haproxy, "-db", "-f", str(tmp_path / front.NAME)],
        env=os.environ | variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(100):
            try:
                with urlopen(f"http://127.0.0.1:{ports[1]}/metrics", timeout=5) as answer:
                    text = answer.read().decode()
                break
            except OSError:
                time.sleep(0.1)
        exposed = set(re.findall(r"^(haproxy_\w+)", text, re.M))
        used = {name for each in expressions(files(2)) for name in names(each) if name.startswith("haproxy_")}
        assert used <= exposed
        assert {"servers", "all-servers", "clients"} <= set(re.findall(r'proxy="([^"]+)"', text))
    finally:
        process.kill()
        process.wait()


# --- the manifests


@EVERY
def test_components_fit_the_base(at: int) -> None:
    """Monitors select the pods and ports that are there; autoscalers, the Deployment; the policy lets both in."""
    every, texts = manifests(at), files(at)
    labels = {
        name: every["Deployment", f"lmdeploy-{name}"]["spec"]["template"]["metadata"]["labels"]
        for name in ("server", "front")
    }
    monitors = documents(texts["monitoring/podmonitor.yaml"])
    with_metrics = layout(at).recommendation.resolved.version >= Version(monitoring.SINCE)
    assert [each["metadata"]["name"] for each in monitors] == ["lmdeploy-server"] * with_metrics + ["lmdeploy-front"]
    for each in monitors:
        name = each["metadata"]["name"].removeprefix("lmdeploy-")
        assert each["spec"]["selector"]["matchLabels"].items() <= labels[name].items()
        (container,) = every["Deployment", f"lmdeploy-{name}"]["spec"]["template"]["spec"]["containers"]
        ports = [port["name"] for port in container["ports"]]
        watched = [endpoint["port"] for endpoint in each["spec"]["podMetricsEndpoints"]]
        assert watched == (ports if name == "server" else ["figures"])
        keyed = ["authorization" in endpoint for endpoint in each["spec"]["podMetricsEndpoints"]]
        assert keyed == [name == "server"] * len(watched)
    assert "--disable-metrics" not in texts["deployment.yaml"]
    scaler = component(texts, "hpa/hpa.yaml", "HorizontalPodAutoscaler")
    for version in VERSIONS:
        assert not list(validator(version, "horizontalpodautoscaler-autoscaling-v2").iter_errors(scaler))
    keda = component(texts, "keda/scaledobject.yaml", "ScaledObject")["spec"]
    for target in (scaler["spec"]["scaleTargetRef"], keda["scaleTargetRef"]):
        assert target["name"] == "lmdeploy-server"
    replicas = every["Deployment", "lmdeploy-server"]["spec"]["replicas"]
    assert 1 <= scaler["spec"]["minReplicas"] <= scaler["spec"]["maxReplicas"] == replicas
    assert (keda["minReplicaCount"], keda["maxReplicaCount"]) == (scaler["spec"]["minReplicas"], replicas)
    assert keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == scaler["spec"]["behavior"]
    (trigger,) = keda["triggers"]
    target = scaler["spec"]["metrics"][0]["external"]["target"]["averageValue"]
    assert trigger["metadata"]["threshold"] == target
    limit = front.limits(layout(at)).at_server * layout(at).recommendation.config.share
    assert 0 < float(target) <= limit
    down = scaler["spec"]["behavior"]["scaleDown"]
    probe = every["Deployment", "lmdeploy-server"]["spec"]["template"]["spec"]["containers"][0]["startupProbe"]
    start = probe["periodSeconds"] * probe["failureThreshold"]
    assert min(3600, start - probe["periodSeconds"]) <= down["stabilizationWindowSeconds"] <= 3600
    assert down["policies"][0]["periodSeconds"] <= 1800
    board = json.loads(texts["monitoring/dashboard.json"])
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.mark.parametrize("at", [0, 3, 12, 18])
@pytest.mark.parametrize("name", COMPONENTS)
def test_kustomize_adds_a_component_only_where_it_is_asked_for(at: int, name: str, tmp_path: Path) -> None:
    """As the head of each shows it; the base is as without, and an autoscaler's number of pods is its own."""
    base = write_files(tmp_path / "lmdeploy", files(at))
    head = files(at)[f"{name}/kustomization.yaml"]
    (listed,) = re.findall(r"^# +components: \[(.+)\]$", head, re.M)
    overlay = {"resources": ["../lmdeploy"], "components": listed.split(", "), "namespace": "vision"}
    site = write_files(tmp_path / "site", {"kustomization.yaml": yaml.safe_dump(overlay)})
    plain, made = kustomized(base), kustomized(site)
    optional = {"PodMonitor", "PrometheusRule", "ScaledObject", "HorizontalPodAutoscaler"}
    assert not optional & {kind for kind, _ in plain}
    assert {each["metadata"]["namespace"] for each in made.values()} == {"vision"}
    added = {kind for kind, _ in made} & optional
    assert added == {"PodMonitor", "PrometheusRule"} | (
        {"keda": {"ScaledObject"}, "hpa": {"HorizontalPodAutoscaler"}}.get(name, set())
    )
    spec = made["Deployment", "lmdeploy-server"]["spec"]
    assert ("replicas" in spec) == (name == "monitoring")
    assert spec.items() <= plain["Deployment", "lmdeploy-server"]["spec"].items()
    board = made["ConfigMap", "lmdeploy-dashboard"]
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(board["data"]["lmdeploy.json"])["uid"] == "lmdeploy-fleet"


@pytest.mark.parametrize("at", [0, 3, 12, 18])
def test_the_gateways_route_leads_to_the_load_balancer(at: int) -> None:
    """Its backend is the Service of the load balancer, and it waits as long as a request may wait and be answered."""
    every, texts = manifests(at), files(at)
    route = component(texts, "gateway/route.yaml", "HTTPRoute")
    (rule,) = route["spec"]["rules"]
    (backend,) = rule["backendRefs"]
    service = every["Service", backend["name"]]
    assert service["spec"]["selector"]["app.kubernetes.io/component"] == "front"
    assert backend["port"] in {port["port"] for port in service["spec"]["ports"]}
    (answer,) = re.findall(r"presetenv ANSWER_TIMEOUT (\d+)s", texts["haproxy.cfg"])
    (queue,) = re.findall(r"presetenv QUEUE_TIMEOUT (\d+)ms", texts["haproxy.cfg"])
    for given in rule["timeouts"].values():
        assert re.fullmatch(r"[0-9]{1,5}s", given)  # the API's form
        assert int(given[:-1]) * 1000 >= int(answer) * 1000 + int(queue)
    listed = yaml.safe_load(texts["gateway/kustomization.yaml"])
    assert (listed["kind"], listed["resources"]) == ("Component", ["route.yaml"])
    head = "\n".join(re.findall(r"^# ( .*)$", texts["gateway/kustomization.yaml"], re.M))
    (patch,) = yaml.safe_load(head)["patches"]
    patched = yaml.safe_load(patch["patch"])
    assert all(patched[key] == route[key] for key in ("apiVersion", "kind"))
    assert patched["metadata"]["name"] == route["metadata"]["name"]
    assert patched["spec"]["parentRefs"][0].keys() >= route["spec"]["parentRefs"][0].keys()


# --- numbers


@pytest.mark.parametrize("gpu", ["L40S:4", "H100:8"])
def test_the_autoscaler_wants_the_plan_at_its_peak(gpu: str) -> None:
    """Requests in the fleet at the peak, by Little's law over the plan's own mean latency, ask for its pods."""
    fleet, made = plan(gpu)
    texts = kubernetes.files(made)
    spec = component(texts, "hpa/hpa.yaml", "HorizontalPodAutoscaler")["spec"]
    target = float(spec["metrics"][0]["external"]["target"]["averageValue"])
    inside = 200 * 1.5 * fleet.at.mean_ms / 1000
    assert inside / target == pytest.approx(spec["maxReplicas"], rel=0.02)
    # The mean rate, with the spare hosts down, is held by the fewest.
    a_host = spec["maxReplicas"] / made.hosts
    holds = fleet.holds * fleet.config.share
    assert (spec["minReplicas"] - made.spare * a_host) * holds >= 200 * 0.99


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({"p99_ms": 800.0}, [("e2e_request_latency_seconds", 0.8, 0.01, 0.144, 0.06)]),
        ({"p99_ms": 850.0}, [("e2e_request_latency_seconds", 1.0, 0.01, 0.144, 0.06)]),
        ({"ttft_ms": 700.0, "ttft_at": "p90", "p99_ms": 0.0}, [("time_to_first_token_seconds", 0.75, 0.1, 0.5, 0.25)]),
        ({"tpot_ms": 60.0, "tpot_at": "p50", "p99_ms": 0.0}, [("time_per_output_token_seconds", 0.075, 0.5, 0.5, 0.5)]),
        ({"latency_ms": 900.0, "p99_ms": 0.0}, [("e2e_request_latency_seconds", 0.0, 0.0, 0.0, 0.0)]),
        ({"p99_ms": 8e6}, []),
    ],
)
def test_goals_become_shares_of_slow_requests(asked: dict[str, Any], wanted: list[Any]) -> None:
    """The next bucket, and multiples of the budget that a share can reach; a mean has neither."""
    made = monitoring.watched(plan(**asked)[1])
    assert [
        (each.metric.removeprefix("lmdeploy:"), each.bucket_s, each.budget, each.fast, each.slow) for each in made
    ] == wanted


def test_without_a_goal_the_prediction_is_one() -> None:
    """And the file says so."""
    made = Layout(found(gpu="l40s", load="high"), 2)
    (watch,) = monitoring.watched(made)
    assert watch.goal_s == pytest.approx(made.recommendation.speed.p99_ms.high / 1000)
    assert "No goal was given" in kubernetes.files(made)["monitoring/rules.yaml"]
    assert "No goal was given" not in kubernetes.files(plan()[1])["monitoring/rules.yaml"]


# --- Prometheus itself

SERVER = 'namespace="n",pod="lmdeploy-server-1"'
E2E = f"lmdeploy:e2e_request_latency_seconds_{{}}{{{{{SERVER}{{}}}}}}"
UP = 'haproxy_backend_active_servers{namespace="n",pod="f",proxy="all-servers"}'
BUSY = {
    f"lmdeploy:num_requests_running{{{SERVER}}}": "8x2000",
    f"lmdeploy:num_requests_waiting{{{SERVER}}}": "0x2000",
    f"lmdeploy:gpu_cache_usage_perc{{{SERVER}}}": "0.99x2000",
    f"lmdeploy:generation_tokens_total{{{SERVER}}}": "0+900x2000",
    f"lmdeploy:prompt_tokens_total{{{SERVER}}}": "0+900x2000",
    f"process_start_time_seconds{{{SERVER}}}": "5x2000",
    f"up{{{SERVER}}}": "1x2000",
    E2E.format("bucket", ',le="0.8"'): "0+100x2000",
    E2E.format("count", ""): "0+100x2000",
    UP: "20x2000",
    'haproxy_backend_current_queue{namespace="n",proxy="servers"}': "3x2000",
    'haproxy_frontend_http_responses_total{namespace="n",proxy="clients",code="2xx"}': "0+100x2000",
    'haproxy_frontend_http_responses_total{namespace="n",proxy="clients",code="5xx"}': "0x2000",
}
"""A busy fleet in which nothing is wrong: values every 15 s, for more than eight hours."""
FAULTS: dict[str, tuple[dict[str, str], set[str]]] = {
    "none": ({}, set()),
    "a server hangs": (
        {
            f"lmdeploy:generation_tokens_total{{{SERVER}}}": "0+900x1900 1710000x100",
            f"lmdeploy:prompt_tokens_total{{{SERVER}}}": "0+900x1900 1710000x100",
        },
        {"LmdeployHangs"},
    ),
    "an idle server": (
        {
            f"lmdeploy:num_requests_running{{{SERVER}}}": "0x2000",
            f"lmdeploy:generation_tokens_total{{{SERVER}}}": "900x2000",
            f"lmdeploy:prompt_tokens_total{{{SERVER}}}": "900x2000",
        },
        set(),
    ),
    "a request after a pause": (
        {
            f"lmdeploy:num_requests_running{{{SERVER}}}": "0x1996 1x4",
            f"lmdeploy:generation_tokens_total{{{SERVER}}}": "900x2000",
            f"lmdeploy:prompt_tokens_total{{{SERVER}}}": "900x2000",
        },
        set(),
    ),
    "the cache is full": ({f"lmdeploy:num_requests_waiting{{{SERVER}}}": "5x2000"}, {"LmdeployCacheFull"}),
    "it restarts": ({f"process_start_time_seconds{{{SERVER}}}": "5x1900 6x20 7x20 8x60"}, {"LmdeployRestarts"}),
    "no metrics": ({f"up{{{SERVER}}}": "0x2000"}, {"LmdeployNoMetrics"}),
    "a fifth is slow": ({E2E.format("bucket", ',le="0.8"'): "0+80x2000"}, {"LmdeployGoalBurns"}),
    "a fifth was slow": ({E2E.format("bucket", ',le="0.8"'): "0+80x1700 136100+100x300"}, set()),
    "a tenth is slow": ({E2E.format("bucket", ',le="0.8"'): "0+90x2000"}, {"LmdeployGoalBurns"}),
    "a fiftieth is slow": ({E2E.format("bucket", ',le="0.8"'): "0+98x2000"}, set()),
    "no server": ({UP: "20x1900 0x100"}, {"LmdeployNoServer", "LmdeployServersMissing"}),
    "half of the servers": ({UP: "20x1900 10x100"}, {"LmdeployServersMissing"}),
    "errors": (
        {'haproxy_frontend_http_responses_total{namespace="n",proxy="clients",code="5xx"}': "0+2x2000"},
        {"LmdeployErrors"},
    ),
    "a queue": ({'haproxy_backend_current_queue{namespace="n",proxy="servers"}': "900x2000"}, {"LmdeployQueue"}),
}


@pytest.fixture(scope="module")
def rule_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rules of a plan as Prometheus reads them: the operator copies the groups."""
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    spec = component(kubernetes.files(plan()[1]), "monitoring/rules.yaml", "PrometheusRule")["spec"]
    path.write_text(yaml.safe_dump({"groups": spec["groups"]}))
    return path


@pytest.mark.parametrize("fault", FAULTS)
def test_alerts_fire_for_their_fault_only(fault: str, rule_file: Path) -> None:
    """promtool computes the rules over made-up series; every alert but those of the fault stays silent."""
    promtool, (changed, wanted) = need("promtool"), FAULTS[fault]
    spec = yaml.safe_load(rule_file.read_text())
    alerts = {rule["alert"] for group in spec["groups"] for rule in group["rules"] if "alert" in rule}
    series = [{"series": name, "values": values} for name, values in {**BUSY, **changed}.items()]
    unit = {"interval": "15s", "input_series": series, "promql_expr_test": []}
    # ALERTS has a sample for each alert that fires.
    for alert in sorted(alerts):
        asked = {"expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) > bool 0', "eval_time": "500m"}
        unit["promql_expr_test"].append({**asked, "exp_samples": [{"value": 1}] if alert in wanted else []})
    path = rule_file.with_name("test.yaml")
    path.write_text(yaml.safe_dump({"rule_files": [str(rule_file)], "evaluation_interval": "1m", "tests": [unit]}))
    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert wanted <= alerts


@pytest.mark.parametrize(("rps", "missing"), [("1", False), ("60", True)])
def test_one_server_has_one_alert_for_its_absence(tmp_path: Path, rps: str, missing: bool) -> None:
    """Where the mean rate needs one server, "servers are missing" would say the same as "no server"."""
    words = ("--gpu", "L4", "--rps", rps, "--spare", "0", "--model", "internvl3-2b")
    assert command("plan", *words, "--format", "k8s", "-o", str(tmp_path / "fleet"))[0] == 0
    text = (tmp_path / "fleet/monitoring/rules.yaml").read_text("utf-8")
    assert "alert: LmdeployNoServer" in text
    assert ("alert: LmdeployServersMissing" in text) == missing


@pytest.mark.parametrize("at", [0, 3, 6, 12, 18])
def test_prometheus_takes_the_rules(at: int, tmp_path: Path) -> None:
    """And every expression of the dashboard."""
    promtool, path = need("promtool"), tmp_path / "rules.yaml"
    spec = component(files(at), "monitoring/rules.yaml", "PrometheusRule")["spec"]
    shown = [each.replace("$namespace", "n") for each in expressions(files(at))]
    spec["groups"].append({"name": "shown", "rules": [{"record": "a", "expr": each} for each in shown]})
    path.write_text(yaml.safe_dump({"groups": spec["groups"]}))
    done = run_program([promtool, "check", "rules", "--lint=none", str(path)])
    assert done.returncode == 0, done.stdout + done.stderr
