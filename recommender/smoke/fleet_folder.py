"""Read a rendered fleet folder: servers with their options and ports, and HAProxy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from recommender.common.errors import RequestError
from recommender.common.text import count
from recommender.common.user_file import name_in_errors, read_text
from recommender.render.artefact import Artefact
from recommender.render.head import HeadError, read_head
from recommender.review.script.sibling_files import environment_file
from recommender.smoke.fleet_service import (
    LOOPBACK,
    VARIABLE,
    expand,
    host_model,
    parse_port,
    port_option,
    service_gpus,
    service_variables,
    services,
    use_published_port,
)

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.request.resolved_request import ResolvedRequest

FRONT, LUA = "haproxy.cfg", "front.lua"
FILES = {"compose.yaml": "compose", "lmdeploy@.service": "systemd", "kustomization.yaml": "k8s"}
"""The file that identifies a format."""
READ = {
    "compose": re.compile(r"compose\.yaml|\.env|haproxy\.cfg|front\.(sh|lua)|rollout\.sh"),
    "systemd": re.compile(
        r"(lmdeploy.*\.(service|target)(\.d/order\.conf)?)|(server(-\d+)?|front)\.env|haproxy\.cfg|front\.(sh|lua)|rollout\.sh"
    ),
}
"""The files read of each format; others are ignored."""
DOTENV, FRONT_ENV = ".env", "front.env"
OWN = frozenset({"--server-name", "--server-port", "--revision"})
"""Options that differ from server to server, and --revision, which a local model does not need."""
STARTS = ("serve", "api_server")
PRESET = re.compile(r'^[^\S\n]*presetenv\s+(\w+)\s+"?([^\s"]+)', re.MULTILINE)
SERVER = re.compile(r'^[^\S\n]*server\s+(\S+)\s+"?(?:\$\{HOST_1\}|127\.0\.0\.1|localhost):(\d+)\b', re.MULTILINE)
"""A server of this host in HAProxy's configuration: name and port."""
HOSTS = re.compile(r'"\$\{(HOST_\d+)\}:')
KEY_VARIABLES = ("API_KEYS", "API_KEYS_FILE")
NOWHERE = "127.255.255.254"
"""A loopback address without servers: connections fail at once, and no gateway answers."""


@dataclass(frozen=True, slots=True)
class FleetServer:
    """A server: words after ``api_server`` (model first), environment, GPUs and port."""

    name: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    cards: str
    port: int


@dataclass(frozen=True, slots=True)
class FleetArtefact(Artefact):
    """A folder of --format compose or systemd.

    ``texts`` maps file names to contents; ``text`` is all of them joined.
    """

    texts: Mapping[str, str] = field(default_factory=dict)

    def read_servers(self, environment: Mapping[str, str]) -> tuple[FleetServer, ...]:
        """Return the servers of one host; raise RequestError if they cannot be read."""
        read = _read_compose if self.kind == "compose" else _read_systemd
        try:
            servers = read(self, {"HOST_ADDRESS": LOOPBACK} | self.dotenv | dict(environment))
        except (TypeError, AttributeError, LookupError, ValueError) as error:  # edited by hand
            raise RequestError(f"{self.name}: its servers cannot be read ({error!s:.80}); render it again") from None
        if not servers:
            raise RequestError(f"{self.name}: it starts no server; render it again")
        ports, dealt = sorted(server.port for server in servers), sorted(port for port, _ in self.front_servers())
        if ports != dealt:
            listening, proxied = (", ".join(map(str, numbers)) or "none" for numbers in (ports, dealt))
            raise RequestError(
                f"{self.name}: its servers listen on {listening}, but {FRONT} names {proxied}; render it again"
            )
        return servers

    def servers(self, recommendation: Recommendation, environment: Mapping[str, str]) -> tuple[FleetServer, ...]:
        """Return the servers; raise RequestError if their number is not the predicted one."""
        servers, wanted = self.read_servers(environment), recommendation.config.servers
        if len(servers) != wanted:
            raise RequestError(
                f"{self.name}: it starts {count(len(servers), 'server')}, "
                f"but its request gets {wanted}; render it again"
            )
        return servers

    def front_servers(self) -> list[tuple[int, str]]:
        """Return port and HAProxy name of each server of this host."""
        found = [(int(port), name) for name, port in SERVER.findall(self.texts[FRONT])]
        return list(dict.fromkeys(found))  # both backends name the same servers

    @property
    def dotenv(self) -> dict[str, str]:
        """Return the variables of the .env file next to compose.yaml."""
        return environment_file(self.texts.get(DOTENV, ""))

    def values(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the values that the files take from variables, by variable."""
        front = self.front(environment)
        limits = {name: front[name] for name in LIMITS if name in front}
        if self.kind == "systemd":
            return limits | environment_file(self.texts.get("server.env", ""))
        variables = (match for match in VARIABLE.findall(self.texts["compose.yaml"]) if match[1] in ("-", ":-"))
        environment = self.dotenv | dict(environment)
        return limits | {name: environment.get(name) or value for name, _, value in variables if name not in _AROUND}

    def exported(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """Return settings exported to all servers as NAME=value, without any secrets."""
        from recommender.knowledge.load import load

        first = self.read_servers(ANYWHERE | dict(environment))[0]
        known = {variable.name for variable in load().environment.values()} - _AROUND
        return tuple(f"{name}={value}" for name, value in sorted(first.environment.items()) if name in known)

    def words(self, resolved: ResolvedRequest, environment: Mapping[str, str]) -> tuple[str, ...]:
        """Return the options that all servers share."""
        words = self.read_servers(ANYWHERE | dict(environment))[0].words[1:]
        return tuple(word for word, before in zip(words, ("", *words), strict=False) if not {word, before} & OWN)

    def model(self, environment: Mapping[str, str]) -> str:
        """Return the model that the servers load."""
        return self.read_servers(ANYWHERE | dict(environment))[0].words[0]

    def front(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        """Return HAProxy's variables: environment first, then the files.

        Addresses of other hosts become unreachable ones. Raise RequestError for an invalid port.
        """
        text = self.texts[FRONT]
        preset = dict(PRESET.findall(text))
        file_values = self.dotenv if self.kind == "compose" else environment_file(self.texts.get(FRONT_ENV, ""))
        variables = {name: environment.get(name) or file_values.get(name) or value for name, value in preset.items()}
        for name in ("FRONT_PORT", "STATS_PORT"):
            variables[name] = str(parse_port(variables.get(name, ""), f"{self.name}/{FRONT}: {name}"))
        variables |= dict.fromkeys(("FRONT_ADDRESS", "STATS_ADDRESS"), LOOPBACK)
        hosts = dict.fromkeys(HOSTS.findall(text), NOWHERE)
        return variables | hosts | ({"HOST_1": LOOPBACK} if hosts else {})

    def key_variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of HAProxy's API keys; a unit's file is a systemd credential and is skipped."""
        given = self.dotenv | dict(environment)
        return {name: given[name] for name in KEY_VARIABLES if name in given}

    @property
    def hosts(self) -> int:
        """Return the number of hosts behind HAProxy."""
        return max(1, len(set(HOSTS.findall(self.texts[FRONT]))))


_AROUND = frozenset({
    "IMAGE", "HF_HOME", "HF_HUB_OFFLINE", "HF_MODULES_CACHE", "SHM_SIZE", "RESTARTS", "STOP_GRACE", "START_PERIOD",
    "FRONT_IMAGE", "NAME", "LMDEPLOY", "PYTHON", "PYTHONUNBUFFERED", "MODEL", "REVISION", "SERVER_NAME",
    "SERVER_PORT", "CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", *KEY_VARIABLES,
})  # fmt: skip
"""Variables that locate a server's program, weights and GPU; they are no settings."""
ANYWHERE = {"REVISION": "main"}
"""Required variables that no setting depends on."""
LIMITS = ("SERVER_LIMIT", "QUEUE_LIMIT", "QUEUE_TIMEOUT", "ANSWER_TIMEOUT", "BODY_LIMIT", "HASH_BYTES", "HASH_HEADER")
"""HAProxy's variables that may affect a measurement."""


def read(folder: Path) -> FleetArtefact:
    """Read a fleet folder; raise RequestError if it cannot be used."""
    main_files = [name for name in FILES if (folder / name).is_file()]
    if not main_files:
        raise RequestError(f"{folder}: it has no {', '.join(FILES)}; name a folder that --format wrote, or a script")
    if len(main_files) > 1:
        raise RequestError(f"{folder}: it has {' and '.join(main_files)}; render each format into its own folder")
    kind = FILES[main_files[0]]
    if kind == "k8s":
        raise RequestError(
            f"{folder}: Kubernetes starts these pods, not this machine; render the same fleet with --format systemd, "
            "and test the pods with the script of --format client"
        )
    texts = {}
    with name_in_errors(folder, "it must be readable"):
        paths = sorted([*folder.iterdir(), *folder.glob("*.d/*")])
    for path in paths:
        name = path.relative_to(folder).as_posix()
        if READ[kind].fullmatch(name) and not path.is_dir():
            with name_in_errors(path, "it must be readable", ", or render the folder again"):
                texts[name] = read_text(path)
    return from_texts(texts, kind, str(folder))


def from_texts(texts: Mapping[str, str], kind: str, name: str) -> FleetArtefact:
    """Build a fleet from file contents by name; raise RequestError if unusable."""
    main = next(file for file, form in FILES.items() if form == kind)
    try:
        head = read_head(texts[main])
    except HeadError as error:
        raise RequestError(f"{name}: {error}") from None
    if head is None or FRONT not in texts:
        what = f"recommend did not write {main} (no line '# request: ...')" if head is None else f"it has no {FRONT}"
        raise RequestError(f"{name}: {what}; render it again")
    whole = "".join(f"== {file}\n{text}" for file, text in sorted(texts.items()))
    return FleetArtefact(kind, name, whole, head, texts)  # type: ignore[arg-type]


def _read_compose(fleet: FleetArtefact, environment: Mapping[str, str]) -> tuple[FleetServer, ...]:
    where = f"{fleet.name}/compose.yaml"
    servers = []
    for name, service in services(fleet.texts["compose.yaml"], where).items():
        words = service.get("command") or ()
        if tuple(words[1:3]) != STARTS:
            continue
        options = [expand(str(word), environment, where) for word in words[3:]]
        options[:1] = [host_model(word, service, environment, where) for word in options[:1]]
        published = [expand(str(entry), environment, where) for entry in service.get("ports") or ()]
        port = use_published_port(options, published, where)
        variables = service_variables(service, environment, where)
        servers.append(FleetServer(name, tuple(options), variables, service_gpus(service, environment, where), port))
    return tuple(servers)


def _read_systemd(fleet: FleetArtefact, environment: Mapping[str, str]) -> tuple[FleetServer, ...]:
    """Return the units' servers; ``environment`` may only set MODEL and REVISION."""
    where = f"{fleet.name}/lmdeploy@.service"
    line = re.search(r"^ExecStart=(.*)$", fleet.texts["lmdeploy@.service"].replace("\\\n", " "), re.MULTILINE)
    try:
        words = shlex.split(line[1]) if line else []
    except ValueError as error:
        raise RequestError(f"{where}: ExecStart cannot be read ({str(error).lower()}); render it again") from None
    if STARTS[1] not in words:
        raise RequestError(f"{where}: ExecStart starts no api_server; render it again")
    words = words[words.index(STARTS[1]) + 1 :]
    common, servers = environment_file(fleet.texts.get("server.env", "")), []
    needed = [match[0] for word in words for match in VARIABLE.findall(word)]
    for file, text in sorted(fleet.texts.items()):
        number = re.fullmatch(r"server-(\d+)\.env", file)
        if number:
            unit_variables = common | environment_file(text)
            unit_variables["SERVER_NAME"] = LOOPBACK
            variables = unit_variables | {name: value for name, value in environment.items() if name in _SET}
            lacking = next((name for name in needed if not variables.get(name)), "")
            if lacking:
                raise RequestError(f"{fleet.name}/server.env: {lacking} is not set but lmdeploy@.service uses it")
            options = [expand(word, variables, where) for word in words]
            cards, port = unit_variables.get("CUDA_VISIBLE_DEVICES", ""), port_option(options, where)
            servers.append(FleetServer(f"lmdeploy@{number[1]}", tuple(options), unit_variables, cards, port))
    return tuple(servers)


_SET = frozenset({"MODEL", "REVISION"})
"""Variables that smoke may override: the weights, and a revision that a local folder ignores."""
