"""Compose files of a host: valid by the specification, clean in review, and no name breaks out of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from functools import cache
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from artefacts import recommend_here
from hypothesis import given, settings
from layouts import GRID, flag_words, hostile, layout, names, variables

from recommender.common.errors import RequestError
from recommender.fleet import compose, front
from recommender.fleet.layout import Layout
from recommender.knowledge.startup_times import longest_start
from recommender.render.quoting import variable


@cache
def schema() -> Any:
    path = resources("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    return json.loads(path.read_text("utf-8"))


def read(made: Layout) -> Any:
    """A compose file as its reader sees it, valid by the specification's schema."""
    document = yaml.safe_load(compose.files(made)[compose.NAME])
    valid(document)
    return document


def valid(document: Any) -> None:
    jsonschema.validators.validator_for(schema())(schema()).validate(document)


def filled(text: str, **environment: str) -> str:
    """A scalar after compose replaced its variables."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return environment.get(match[1]) or match[2] or ""

    return re.sub(r"\$\$|\$\{(\w+)(?::-([^{}]*))?\}", value, text)


@pytest.mark.parametrize("name", GRID)
def test_the_file_is_a_compose_file(name: str) -> None:
    """It validates against the specification's schema, and every server has cards and a port of its own."""
    made = layout(name)
    services = read(made)["services"]
    config = made.recommendation.config
    cards, ports = [], []
    for number in range(config.servers):
        service = services[f"server{number}"]
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert len(device["device_ids"]) == config.tp
        cards += [filled(each) for each in device["device_ids"]]
        ports += [filled(each).split(":")[-2] for each in service["ports"]]
    assert cards == [str(card) for card in range(config.cards)]
    assert ports == [str(config.port + number) for number in range(config.servers)]
    listed = front.files(made)[front.NAME]
    assert all(f':{port}"\n' in listed for port in ports)


def test_the_schema_finds_mistakes() -> None:
    """The check is no formality: a misspelt key is refused."""
    document = read(layout("two-servers"))
    document["services"]["front"]["heathcheck"] = {}
    with pytest.raises(jsonschema.ValidationError):
        valid(document)


@pytest.mark.parametrize("name", GRID)
def test_review_finds_nothing(tmp_path: Path, name: str) -> None:
    """recommend review reads each server's launch and has no error and no warning."""
    path = tmp_path / compose.NAME
    path.write_text(compose.files(layout(name))[compose.NAME])
    request = layout(name).recommendation
    gpu = f"{request.request.gpu}:{request.request.gpu_count}"
    words = ["--gpu", gpu, "--load", str(request.resolved.concurrency), "--format", "text"]
    done = recommend_here("review", str(path), *words)
    said = done.stdout.decode()
    assert done.returncode == 0, said
    assert f" {request.config.servers} launch" in said


@pytest.mark.parametrize("name", GRID)
def test_a_server_gets_what_was_recommended(name: str) -> None:
    """The words of its command are the recommendation's options and values, but for the proxy and the address."""
    made = layout(name)
    words = [filled(each, REVISION="abc") for each in read(made)["services"]["server0"]["command"]]
    expected = flag_words(made.recommendation)
    assert words[:4] == ["lmdeploy", "serve", "api_server", made.recommendation.resolved.model_source]
    assert words[4 : 4 + len(expected)] == expected
    assert words[-4:] == ["--server-name", "0.0.0.0", "--server-port", str(made.recommendation.config.port)]
    assert "--max-concurrent-requests" not in words
    environment = read(made)["services"]["server0"]["environment"]
    expected_environment = variables(made.recommendation)
    assert {name: filled(environment[name]) for name in expected_environment} == expected_environment


def test_every_decided_value_can_be_overridden() -> None:
    """A variable named like the option takes the place of its value."""
    made = layout("two-servers")
    command = read(made)["services"]["server1"]["command"]
    names = [
        each for each in made.recommendation.explanations if each.emitted and each.kind == "flag" and not each.switch
    ]
    seen = [each.name for each in names if each.name in command and not each.name.startswith("--server-")]
    for each in names:
        if each.name in seen:
            written = command[command.index(each.name) + 1]
            assert filled(written, **{variable(each.option): "other"}) == "other"
    assert len(seen) >= 5


def test_reasons_and_sources_stand_beside_values() -> None:
    """Above each option stands why, and where that was read."""
    made = layout("two-servers")
    lines = compose.files(made)[compose.NAME].splitlines()
    for each in made.recommendation.explanations:
        if each.emitted and each.kind == "flag" and f"    - {each.name}" in lines and each.name[:8] != "--server":
            at = lines.index(f"    - {each.name}")
            assert lines[at - 1].startswith("    # "), each.name
            assert lines[at - 2].startswith("    # "), each.name


def test_every_setting_of_the_load_balancer_reaches_it() -> None:
    """What haproxy.cfg has a default or a condition for; a file of the host is mounted where its variable says."""
    for name in GRID:
        made = layout(name)
        config = compose.files(made)[front.NAME]
        read_there = set(re.findall(r"presetenv ([A-Z_]+)|defined\((\w+)\)", config))
        settings_ = {first or second for first, second in read_there} - {"FRONT_LUA"}
        document = read(made)
        service = document["services"]["front"]
        listed = dict(each.partition("=")[::2] for each in service["environment"])
        assert settings_ <= listed.keys()
        assert {each for each in settings_ if each.endswith("_FILE")} == {
            "API_KEYS_FILE", "TLS_FILE", "PRIORITY_FILE"
        }  # fmt: skip
        for each in settings_:
            if each.endswith("_FILE"):
                (secret,) = re.findall(rf"^\$\{{{each}\+/run/secrets/(\w+)\}}$", listed[each])
                assert secret in service["secrets"]
                assert document["secrets"][secret]["file"] == f"${{{each}:-/dev/null}}"


@pytest.mark.parametrize("given", [{}, {"TLS_FILE": "/t"}, {"API_KEYS_FILE": "/k", "PRIORITY_FILE": "/p"}], ids=str)
def test_a_file_that_is_not_given_is_not_set(tmp_path: Path, given: dict[str, str]) -> None:
    """HAProxy asks whether a variable is there; Compose can only leave it empty."""
    command = [each.replace("$$", "$") for each in read(layout("one-card"))["services"]["front"]["command"]]
    (tmp_path / "front.sh").write_text("env")
    at = command.index("-c") + 1
    command[at] = command[at].replace("/usr/local/etc/haproxy", str(tmp_path))
    files = ("API_KEYS_FILE", "TLS_FILE", "PRIORITY_FILE")
    environment = {"PATH": os.environ["PATH"], **dict.fromkeys(files, ""), **given}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert {name: found[name] for name in files if name in found} == given


def test_the_volume_is_read_only_and_images_are_pinned() -> None:
    """Weights cannot be written by a server, no image is latest, nothing is privileged, no key stands in the text."""
    for name in GRID:
        document = read(layout(name))
        services = document["services"]
        assert all(volume["read_only"] for volume in services["server0"]["volumes"])
        for service in services.values():
            image = filled(service["image"])
            assert re.search(r":v?\d+\.\d+", image), image
            assert "privileged" not in service
            assert re.fullmatch(r"on-failure:\d+|no", filled(service["restart"]))
        assert document["secrets"]["api_keys"]["file"] == "${API_KEYS_FILE:-/dev/null}"


def test_patience_covers_every_measured_start() -> None:
    """A server may take longer than any start that was measured, the longer the larger its weights."""
    small, large = (layout(name).recommendation for name in ("two-servers", "tp-2"))
    assert compose.patience_s(large) > compose.patience_s(small) > 2 * longest_start() > 20
    health = read(layout("tp-2"))["services"]["server0"]["healthcheck"]
    assert filled(health["start_period"]) == f"{compose.patience_s(large)}s"
    assert health["test"][-1].endswith("/health")


def test_servers_of_one_card_start_one_after_the_other() -> None:
    """Two servers on a card share it under CUDA MPS, and the second waits until the first is healthy."""
    made = layout("shared")
    services = read(made)["services"]
    assert [filled(services[f"server{n}"]["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"][0])
            for n in range(4)] == ["0", "1", "0", "1"]  # fmt: skip
    assert services["server2"]["depends_on"] == {"server0": {"condition": "service_healthy"}}
    assert "depends_on" not in services["server1"]
    assert services["server3"]["ipc"] == "host"


def test_a_local_checkpoint_is_mounted() -> None:
    """A folder of this host is mounted read-only and nothing is fetched."""
    made = layout("two-servers").recommendation
    local = Layout(replace(made, resolved=replace(made.resolved, model_source="/srv/a model", weight_bytes=10**9)))
    services = read(local)["services"]
    (volume,) = services["server0"]["volumes"]
    assert (filled(volume["source"]), volume["target"], volume["read_only"]) == ("/srv/a model", "/model", True)
    assert services["server0"]["command"][3] == "/model"
    assert "fetch" not in services


def test_the_same_request_gives_the_same_bytes() -> None:
    """Nothing of the moment or the machine is in the files."""
    assert compose.files(layout("tp-2")) == compose.files(layout("tp-2"))


# --- hostile names

NASTY = names(
    "\"'\\${}:-#\n\r\t &*!|>%@`[],?\u2028\x85\x00\ufeff",
    *('"\n  evil: 1', "${HOME}", "$$", "$(id)", "a}b", "${A:-b}", "- x", "\\", '\\"', "a: b # c", "\U0001f600"),
)


@cache
def usual() -> Any:
    """The two servers' file with a name that harms nobody."""
    return read(layout("two-servers"))


def blank(node: Any, name: str) -> Any:
    """The same document with a dash for each word that is this name once compose has read it."""
    if isinstance(node, dict):
        return {key: blank(value, name) for key, value in node.items()}
    if isinstance(node, list):
        return [blank(value, name) for value in node]
    return "-" if isinstance(node, str) and filled(node) == name else node


@settings(max_examples=30, deadline=None)
@given(NASTY.filter(lambda name: name.strip() and "\0" not in name and name[0] != "/"))
def test_no_name_breaks_out_of_the_file(name: str) -> None:
    """Whatever a model is called, the command holds it as one word and the file's shape stays as it was."""
    made = layout("two-servers").recommendation
    try:
        document = read(hostile(name))
    except RequestError:
        assert any(0xD800 <= ord(each) <= 0xDFFF for each in name)
        return
    assert filled(document["services"]["server0"]["command"][3]) == name
    assert blank(document, name) == blank(blank(usual(), made.resolved.model_source), name)


@settings(max_examples=200, deadline=None)
@given(NASTY)
def test_a_quoted_text_is_read_back(text: str) -> None:
    """YAML's reader gets every text back as it was."""
    try:
        assert yaml.safe_load(compose.quoted(text)) == text
    except RequestError:
        assert any(0xD800 <= ord(each) <= 0xDFFF for each in text)
