"""Units of a host: systemd's own check passes, environment files hold any name, nothing is left open."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from pathlib import Path

import pytest
from artefacts import BASH, need, run_program, write_files
from hypothesis import given, settings
from layouts import GRID, flag_words, hostile, layout, names, variables

from recommender.common.errors import RequestError
from recommender.fleet import front, systemd
from recommender.fleet.layout import Layout
from recommender.review import engine


def written(folder: Path, made: Layout) -> Path:
    return write_files(folder, systemd.files(made))


def verified(folder: Path, servers: int) -> subprocess.CompletedProcess[str]:
    """systemd's own check of all units of a folder. Where HAProxy is missing, a stand-in has its place."""
    tool = need("systemd-analyze")
    if not os.access("/usr/sbin/haproxy", os.X_OK):
        pytest.skip("haproxy is not installed; .ci/run installs it (apt-get install haproxy)")
    units = [str(path) for path in folder.glob("*.service") if "@" not in path.name]
    units += [
        str(folder / "lmdeploy.target"),
        *(str(folder / f"lmdeploy@{number}.service") for number in range(servers)),
    ]
    return run_program(
        [tool, "verify", "--man=no", *units],
        env={"PATH": "/usr/sbin:/usr/bin:/bin", "SYSTEMD_UNIT_PATH": f"{folder}:"},
        timeout=60,
    )


@pytest.mark.parametrize("name", [*GRID, "shared"])
def test_systemd_accepts_the_units(tmp_path: Path, name: str) -> None:
    """systemd-analyze verify has nothing to say."""
    made = layout(name)
    done = verified(written(tmp_path, made), made.recommendation.config.servers)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_check_finds_mistakes(tmp_path: Path) -> None:
    """The check is no formality: a misspelt setting is told."""
    path = written(tmp_path, layout("two-servers")) / "lmdeploy@.service"
    path.write_text(path.read_text().replace("NoNewPrivileges=", "NoNewPriviledges="))
    assert "NoNewPriviledges" in verified(tmp_path, 2).stderr


# --- what recommend review says of them


def reviewed(folder: Path, name: str = "lmdeploy@.service") -> engine.Review:
    """The review of a unit with the files that stand beside it."""
    return engine.review(str(folder / name), (folder / "lmdeploy@.service").read_text("utf-8"))


@pytest.mark.parametrize("name", [*GRID, "shared"])
def test_the_units_review_clean(tmp_path: Path, name: str) -> None:
    """The one launch is found with the values of server.env, in the template and in each instance."""
    made = layout(name)
    written(tmp_path, made)
    for each in (
        "lmdeploy@.service",
        *(f"lmdeploy@{number}.service" for number in range(made.recommendation.config.servers)),
    ):
        found = reviewed(tmp_path, each)
        assert len(found.script.launches) == 1, each
        assert not found.script.problems, each
        assert not found.defects, each
        (launch,) = found.script.launches
        assert launch.model.value == made.recommendation.resolved.model_source
        given = {option.name: option.values[0].value for option in launch.options if option.values}
        assert given["--session-len"] == str(made.recommendation.config.session_len)
        assert given["--server-port"] == (
            None if each == "lmdeploy@.service" and made.recommendation.config.servers > 1 else launch_port(made, each)
        )
        said = {finding.rule.id for finding in found.findings}
        assert not said, (each, said)
    for path in tmp_path.glob("*.service"):
        if "@" not in path.name:
            other = engine.review(str(path), path.read_text("utf-8"))
            assert (other.script.launches, other.findings) == ((), ()), path.name


def launch_port(made: Layout, name: str) -> str:
    """The port of an instance; the only one's of a template that has one."""
    number = re.search(r"@(\d+)", name)
    return str(made.recommendation.config.port + (int(number[1]) if number else 0))


# The file, what is replaced by what, and the rule that finds it at the unit's line with the text.
BROKEN = [
    ("lmdeploy@.service", "--session-len ", "--sesion-len ", "LMD101", "--sesion-len"),
    ("lmdeploy@.service", "--disable-fastapi-docs", "--disable-fastapi-docs true", "LMD103", "--disable-fastapi-docs"),
    ("lmdeploy@.service", " ${MODEL} \\\n", " ${MODEL}\n", "LMD002", "--backend ${BACKEND}"),
    ("lmdeploy@.service", "--revision ${REVISION}", "--revision", "LMD103", "--revision"),
    ("server.env", 'SESSION_LEN="4096"', 'SESSION_LEN="many"', "LMD104", "${SESSION_LEN}"),
    ("server.env", 'QUANT_POLICY="0"', 'QUANT_POLICY="7"', "LMD104", "${QUANT_POLICY}"),
    ("server.env", 'BACKEND="turbomind"', 'BACKEND="turbomin"', "LMD104", "${BACKEND}"),
    ("server.env", 'CACHE_MAX_ENTRY_COUNT="', 'CACHE_MAX_ENTRY_COUNT="7', "LMD106", "${CACHE_MAX_ENTRY_COUNT}"),
    ("server.env", "REVISION=\n", "REVISON=main\n", "LMD002", "${REVISION}"),
    ("server.env", "REVISION=\n", "REVISION=main\n", "LMD506", "${REVISION}"),
    ("server.env", "SERVER_NAME=127.0.0.1", "SERVER_NAME=0.0.0.0", "LMD501", "${SERVER_NAME}"),
]


@pytest.mark.parametrize(("file", "old", "new", "rule", "at"), BROKEN)
def test_a_broken_copy_is_found(tmp_path: Path, file: str, old: str, new: str, rule: str, at: str) -> None:
    """A mistake in the unit or in server.env, at the unit's line that it concerns."""
    path = written(tmp_path, layout("two-servers")) / file
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    lines = (tmp_path / "lmdeploy@.service").read_text("utf-8").split("\n")
    said = [each.diagnostic for each in reviewed(tmp_path).findings if each.rule.id == rule]
    assert said, {each.rule.id for each in reviewed(tmp_path).findings}
    assert at in lines[said[0].place.line - 1]


def unit(made: Layout, name: str) -> dict[str, list[str]]:
    """The settings of a unit by name, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", systemd.files(made)[name])
    settings: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            settings.setdefault(key, []).append(value)
    return settings


def environment(text: str) -> dict[str, str]:
    """An environment file as a shell reads it, which for its quotes is as systemd does."""
    done = subprocess.run(
        [BASH, "-c", 'set -a; eval "$1"; exec env -0', "bash", text],
        env={},
        capture_output=True,
        timeout=20,
        check=True,
    )
    return dict(each.split("=", 1) for each in done.stdout.decode().split("\0") if "=" in each)  # type: ignore[misc]


@pytest.mark.parametrize("name", GRID)
def test_a_server_gets_what_was_recommended(name: str) -> None:
    """The unit's options, filled from the environment files, are the recommendation's."""
    made = layout(name)
    texts = systemd.files(made)
    known = environment(texts["server.env"]) | environment(texts["server-0.env"])
    (start,) = unit(made, "lmdeploy@.service")["ExecStart"]
    words = [re.sub(r"\$\{(\w+)\}", lambda match: known[match[1]], word) for word in start.split()]
    assert words[:3] == ["/usr/bin/env", "--", "/opt/lmdeploy/bin/lmdeploy"]
    assert words[3:6] == ["serve", "api_server", made.recommendation.resolved.model_source]
    expected = flag_words(made.recommendation)
    assert known.items() >= variables(made.recommendation).items()
    assert words[6 : 6 + len(expected)] == expected
    assert words[-2:] == ["--server-port", str(made.recommendation.config.port)]


def test_cards_and_ports_are_each_server_s_own() -> None:
    """No card and no port is given twice, and the front has the same ports."""
    made = layout("tp-2")
    texts = systemd.files(made)
    known = [environment(texts[f"server-{number}.env"]) for number in range(made.recommendation.config.servers)]
    cards = [card for each in known for card in each["CUDA_VISIBLE_DEVICES"].split(",")]
    assert cards == [str(card) for card in range(made.recommendation.config.cards)]
    for each in known:
        assert f'"${{HOST_3}}:{each["SERVER_PORT"]}"' in texts[front.NAME]


def test_units_are_hardened_and_restarts_end() -> None:
    """Both units give up privileges, see the system read-only, and stop trying after some failures."""
    for name in ("lmdeploy@.service", "lmdeploy-front.service"):
        settings = unit(layout("two-servers"), name)
        for key, value in {
            "NoNewPrivileges": "yes",
            "ProtectSystem": "strict",
            "ProtectHome": "yes",
            "PrivateTmp": "yes",
            "DynamicUser": "yes",
            "CapabilityBoundingSet": "",
            "Restart": "on-failure",
            "StartLimitBurst": "5",
        }.items():
            assert settings[key] == [value], (name, key)
        assert int(settings["StartLimitIntervalSec"][0]) > 5 * int(settings["RestartSec"][0])
        assert int(settings["LimitNOFILE"][0]) > 4096
    assert unit(layout("two-servers"), "lmdeploy@.service")["DeviceAllow"] == ["char-nvidia* rw"]
    assert unit(layout("two-servers"), "lmdeploy@.service")["DevicePolicy"] == ["closed"]


def test_the_target_starts_everything() -> None:
    """It wants each server and the front; units stop with it."""
    made = layout("shared")
    (wants,) = unit(made, "lmdeploy.target")["Wants"]
    servers = {f"lmdeploy@{number}.service" for number in range(4)}
    assert set(wants.split()) == servers | {"lmdeploy-front.service", "lmdeploy-mps.service"}
    assert unit(made, "lmdeploy@.service")["PartOf"] == ["lmdeploy.target"]
    assert "After=lmdeploy@0.service" in systemd.files(made)["lmdeploy@2.service.d/order.conf"]


def test_no_key_stands_in_a_file() -> None:
    """The keys' file holds a comment only, and the front reads it as a credential."""
    texts = systemd.files(layout("two-servers"))
    assert all(line.startswith("#") for line in texts["api-keys"].splitlines())
    assert "LoadCredential=api-keys:/etc/lmdeploy/api-keys\n" in texts["lmdeploy-front.service"]


@settings(max_examples=60, deadline=None)
@given(
    names(
        "\"'\\${}%:-#;=\n\r\t &*!|`[]\u2028\x85",
        *('"\nLMDEPLOY=/bin/evil', "$(id)", "`id`", "%h", "a\\", "#", "${PATH}", "'", "a b"),
    ).filter(lambda name: name.strip() and "\0" not in name)
)
def test_no_name_breaks_out_of_the_files(name: str) -> None:
    """Whatever a model is called, it is one variable's value and the units' settings stay as they were."""
    try:
        texts = systemd.files(hostile(name))
    except RequestError:
        assert not name.isprintable()
        return
    usual = systemd.files(layout("two-servers"))
    assert environment(texts["server.env"]) == environment(usual["server.env"]) | {"MODEL": name}
    for file in usual.keys() - {"server.env"}:
        kept = [line for line in texts[file].splitlines() if not line.startswith(("#", "    #"))]
        assert kept == [line for line in usual[file].splitlines() if not line.startswith(("#", "    #"))], file


def test_units_have_sections_that_a_reader_finds() -> None:
    """Each unit is an INI file with the sections that its kind has."""
    for name, text in systemd.files(layout("shared")).items():
        if name.endswith((".service", ".target")):
            parser = configparser.RawConfigParser(strict=False)
            parser.read_string(re.sub(r"\\\n", " ", text))
            assert {"Unit"} <= set(parser.sections()) <= {"Unit", "Service", "Install"}
