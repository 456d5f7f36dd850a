"""Reads a fleet's folder that recommend wrote: each server's command line, environment and port, and the front."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recommender.request import RequestError
from recommender.review.unitwords import environment_file
from recommender.smoke.launch import HEAD, Artefact

if TYPE_CHECKING:
    from recommender.facts import Facts
    from recommender.pipeline import Recommendation

FRONT = "haproxy.cfg"
FILES = {"compose.yaml": "compose", "lmdeploy@.service": "systemd", "kustomization.yaml": "k8s"}
"""The file by which a form is known."""
READ = {
    "compose": re.compile(r"compose\.yaml|\.env|haproxy\.cfg"),
    "systemd": re.compile(r"(lmdeploy.*\.(service|target)(\.d/order\.conf)?)|(server(-\d+)?|front)\.env|haproxy\.cfg"),
}
"""What is read of a form; what else lies there is somebody else's."""
DOTENV, FRONT_ENV = ".env", "front.env"
OWN = frozenset({"--server-name", "--server-port", "--revision"})
"""Options that the files give each server: where it listens, and what a local model does not need."""
STARTS = ("serve", "api_server")
VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?:(:?[-?+])([^{}]*))?\}")
PRESET = re.compile(r'^\s*presetenv\s+(\w+)\s+"?([^\s"]+)', re.MULTILINE)
SERVER = re.compile(r'^\s*server\s+(\S+)\s+"?(?:\$\{HOST_1\}|127\.0\.0\.1|localhost):(\d+)\b', re.MULTILINE)
"""A server of this host, as the front calls it, and its port."""
HOSTS = re.compile(r'"\$\{(HOST_\d+)\}:')
LOOPBACK = "127.0.0.1"
"""Where servers and front listen here, whatever the files say: nobody but this machine is to reach them."""
NOWHERE = "127.255.255.254"
"""An address of this machine on which no server listens: a connection fails at once, and no gateway answers it."""


@dataclass(frozen=True, slots=True)
class Part:
    """One server: what follows ``api_server`` (the model first), what is set for it, its cards and its port."""

    name: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    cards: str
    port: int


@dataclass(frozen=True, slots=True)
class Fleet(Artefact):
    """A folder of --format compose or systemd; ``texts`` are its files by name. ``text`` is all of them."""

    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def foreign(self) -> bool:
        """Never: only what recommend wrote is read."""
        return False

    def parts(self, environment: Mapping[str, str]) -> tuple[Part, ...]:
        """The servers of one host, as they start. Raises RequestError for what cannot be read."""
        read = _compose if self.kind == "compose" else _systemd
        made = read(self, {"HOST_ADDRESS": LOOPBACK} | self.dotenv | dict(environment))
        if not made:
            raise RequestError(f"{self.name}: it starts no server; render it anew")
        ports, dealt = sorted(each.port for each in made), sorted(port for port, _ in self.called())
        if ports != dealt:
            here, there = (", ".join(map(str, each)) or "none" for each in (ports, dealt))
            raise RequestError(
                f"{self.name}: its servers listen on {here}, and {FRONT} deals out to {there}; render it anew"
            )
        return made

    def servers(self, found: Recommendation, environment: Mapping[str, str]) -> tuple[Part, ...]:
        """The same, as many as its request gets: what is predicted and kept is of these. Raises RequestError."""
        from recommender.render import count

        made, wanted = self.parts(environment), found.config.servers
        if len(made) != wanted:
            raise RequestError(
                f"{self.name}: it starts {count(len(made), 'server')}, its request gets {wanted} now; render it anew"
            )
        return made

    def called(self) -> list[tuple[int, str]]:
        """The port of each of this host's servers, and the server's name, as the front has them."""
        return [(int(port), name) for name, port in SERVER.findall(self.texts[FRONT])]

    @property
    def dotenv(self) -> dict[str, str]:
        """What the file .env beside a compose file sets."""
        return environment_file(self.texts.get(DOTENV, ""))

    def values(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Every value that a variable gives, by the variable."""
        front = self.front(environment)
        limits = {name: front[name] for name in LIMITS if name in front}
        if self.kind == "systemd":
            return limits | environment_file(self.texts.get("server.env", ""))
        named = (each for each in VARIABLE.findall(self.texts["compose.yaml"]) if each[1] in ("-", ":-"))
        environment = self.dotenv | dict(environment)
        return limits | {name: environment.get(name) or value for name, _, value in named if name not in _AROUND}

    def exported(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """What is set for every server, as NAME=value: settings alone, so that no record holds a token."""
        from recommender.store import load

        first = self.parts(ANYWHERE | dict(environment))[0]
        known = {each.name for each in load().environment.values()} - _AROUND
        return tuple(f"{name}={value}" for name, value in sorted(first.environment.items()) if name in known)

    def words(self, facts: Facts, environment: Mapping[str, str]) -> tuple[str, ...]:
        """The options that all servers have."""
        return _without(self.parts(ANYWHERE | dict(environment))[0].words[1:])

    def model(self, environment: Mapping[str, str]) -> str:
        """The model that its servers load."""
        return self.parts(ANYWHERE | dict(environment))[0].words[0]

    def front(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        """The front's variables: the environment's, else the files'; another host is nowhere. Raises RequestError."""
        text = self.texts[FRONT]
        preset = dict(PRESET.findall(text))
        given = self.dotenv if self.kind == "compose" else environment_file(self.texts.get(FRONT_ENV, ""))
        own = {name: environment.get(name) or given.get(name) or value for name, value in preset.items()}
        for name in ("FRONT_PORT", "STATS_PORT"):
            own[name] = str(_number(own.get(name, ""), f"{self.name}/{FRONT}: {name}"))
        own |= dict.fromkeys(("FRONT_ADDRESS", "STATS_ADDRESS"), LOOPBACK)
        hosts = dict.fromkeys(HOSTS.findall(text), NOWHERE)
        return own | hosts | ({"HOST_1": LOOPBACK} if hosts else {}) | self._keys(environment)

    def _keys(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Where the front's API keys are. A unit's are a credential, which only systemd hands out."""
        found = environment.get("API_KEYS_FILE") or self.dotenv.get("API_KEYS_FILE", "")
        return {"API_KEYS_FILE": str(Path(found).absolute())} if found else {}

    @property
    def hosts(self) -> int:
        """Hosts that the front deals out to."""
        return max(1, len(set(HOSTS.findall(self.texts[FRONT]))))


_AROUND = frozenset(
    (
        "IMAGE", "HF_HOME", "HF_HUB_OFFLINE", "HF_MODULES_CACHE", "SHM_SIZE", "RESTARTS", "STOP_GRACE", "START_PERIOD",
        "FRONT_IMAGE", "NAME", "LMDEPLOY", "PYTHON", "PYTHONUNBUFFERED", "MODEL", "REVISION", "SERVER_NAME",
        "SERVER_PORT", "CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "API_KEYS_FILE",
    )
)  # fmt: skip
"""Variables of the files around a server: where its program, its weights and its card are."""
ANYWHERE = {"REVISION": "main"}
"""What the files want to be told and no setting depends on."""
LIMITS = ("SERVER_LIMIT", "QUEUE_LIMIT", "QUEUE_TIMEOUT", "ANSWER_TIMEOUT", "BODY_LIMIT")
"""The front's variables that what is measured may depend on."""


def _without(words: tuple[str, ...]) -> tuple[str, ...]:
    """Options without those that the files give each server."""
    return tuple(each for each, before in zip(words, ("", *words), strict=False) if not {each, before} & OWN)


def read(folder: Path) -> Fleet:
    """A fleet from its folder. Raises RequestError."""
    there = [name for name in FILES if (folder / name).is_file()]
    if not there:
        raise RequestError(f"{folder}: no {', '.join(FILES)} in it; name a folder that --format wrote, or a script")
    if len(there) > 1:
        raise RequestError(f"{folder}: {' and '.join(there)} are in it; render each form into a folder of its own")
    kind = FILES[there[0]]
    if kind == "k8s":
        raise RequestError(
            f"{folder}: Kubernetes starts these, not this machine; smoke the same fleet as --format systemd, "
            "and probe the pods with the client of --format client"
        )
    texts, path = {}, folder
    try:
        for path in sorted([*folder.iterdir(), *folder.glob("*.d/*")]):
            name = path.relative_to(folder).as_posix()
            if READ[kind].fullmatch(name) and path.is_file():
                texts[name] = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}; it must be readable") from None
    except UnicodeDecodeError:
        raise RequestError(f"{path}: not a text in UTF-8; render the folder anew") from None
    return of(texts, kind, str(folder))


def of(texts: Mapping[str, str], kind: str, name: str) -> Fleet:
    """A fleet from its files by name. Raises RequestError."""
    main = next(file for file, form in FILES.items() if form == kind)
    found = HEAD.search(texts[main])
    if not found or FRONT not in texts:
        what = f"no {FRONT} in it" if found else f"recommend did not write {main} (no line '# request: ...')"
        raise RequestError(f"{name}: {what}; render it anew")
    try:
        head = json.loads(found[1])
    except ValueError as error:
        raise RequestError(f"{name}: the request in its head cannot be read ({error}); render it anew") from None
    whole = "".join(f"== {file}\n{text}" for file, text in sorted(texts.items()))
    return Fleet(kind, name, whole, head, texts)  # type: ignore[arg-type]


# --- compose ---------------------------------------------------------------------------------------


def expanded(text: str, environment: Mapping[str, str], where: str) -> str:
    """A text with compose's variables in it. Raises RequestError for one that must be set and is not."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        own, how, other = environment.get(match[1], ""), match[2] or "", match[3] or ""
        if how.endswith("+"):
            return other if own else ""
        if not own and how.endswith("?"):
            raise RequestError(f"{where}: {match[1]} is not set: {other or 'it must be'}")
        return own or (other if how else "")

    return VARIABLE.sub(value, text)


def _compose(fleet: Fleet, environment: Mapping[str, str]) -> tuple[Part, ...]:
    where = f"{fleet.name}/compose.yaml"
    made = []
    for name, service in _services(fleet.texts["compose.yaml"], where).items():
        words = service.get("command") or ()
        if tuple(words[1:3]) != STARTS:
            continue
        told = [expanded(str(each), environment, where) for each in words[3:]]
        told[:1] = [_on_host(each, service, environment, where) for each in told[:1]]
        published = [expanded(str(each), environment, where) for each in service.get("ports") or ()]
        port = _publish(told, published, where)
        own = _given(service, environment, where)
        made.append(Part(name, tuple(told), own, _cards(service, environment, where), port))
    return tuple(made)


def _on_host(model: str, service: Mapping[str, Any], environment: Mapping[str, str], where: str) -> str:
    """The model where it is outside its container: the folder that is bound there, unless smoke sets another."""
    for each in service.get("volumes") or ():
        if isinstance(each, dict) and each.get("target") == model:
            return environment.get("MODEL") or expanded(str(each.get("source", "")), environment, where)
    return model


def _given(service: Mapping[str, Any], environment: Mapping[str, str], where: str) -> dict[str, str]:
    """A service's environment, in either of its two shapes; a name alone has the caller's value."""
    given = service.get("environment") or {}
    if not isinstance(given, dict):
        given = {name: value if told else None for name, told, value in (str(each).partition("=") for each in given)}
    own = {str(name): environment.get(str(name)) if value is None else str(value) for name, value in given.items()}
    return {name: expanded(value, environment, where) for name, value in own.items() if value is not None}


def _services(text: str, where: str) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(text)["services"]
        return {str(name): service for name, service in found.items() if isinstance(service, dict)}
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise RequestError(f"{where}: cannot be read ({' '.join(str(error).split())[:200]}); render it anew") from None


def _cards(service: Mapping[str, Any], environment: Mapping[str, str], where: str) -> str:
    """The cards that a service reserves, as CUDA_VISIBLE_DEVICES names them."""
    try:
        devices = service["deploy"]["resources"]["reservations"]["devices"]
        return ",".join(expanded(str(each), environment, where) for one in devices for each in one["device_ids"])
    except (KeyError, TypeError):
        raise RequestError(f"{where}: a server reserves no card by its number; render it anew") from None


def _publish(words: list[str], published: list[str], where: str) -> int:
    """The port of the host that a service has; without its container the server must listen there itself."""
    parts = published[0].rsplit(":", 2) if len(published) == 1 else []
    if len(parts) != 3:
        raise RequestError(f"{where}: a server publishes no port as ADDRESS:PORT:PORT; render it anew")
    _port(words, where)
    words[words.index("--server-port") + 1] = parts[1]
    if "--server-name" in words[:-1]:
        words[words.index("--server-name") + 1] = LOOPBACK
    return _number(parts[1], f"{where}: a server's published port")


def _port(words: list[str], where: str) -> int:
    told = words[words.index("--server-port") + 1 :] if "--server-port" in words else []
    return _number(told[0] if told else "", f"{where}: a server's --server-port")


def _number(text: str, what: str) -> int:
    """A port. Raises RequestError."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise RequestError(f"{what} is {text[:40]!r}; use a port from 1 to 65535, or render it anew")
    return int(text)


# --- systemd ---------------------------------------------------------------------------------------


def _systemd(fleet: Fleet, environment: Mapping[str, str]) -> tuple[Part, ...]:
    """A unit's environment comes from its files alone; ``environment`` only adds what smoke sets."""
    where = f"{fleet.name}/lmdeploy@.service"
    line = re.search(r"^ExecStart=(.*)$", fleet.texts["lmdeploy@.service"].replace("\\\n", " "), re.MULTILINE)
    try:
        words = shlex.split(line[1]) if line else []
    except ValueError as error:
        raise RequestError(f"{where}: its ExecStart cannot be read ({str(error).lower()}); render it anew") from None
    if STARTS[1] not in words:
        raise RequestError(f"{where}: its ExecStart starts no api_server; render it anew")
    words = words[words.index(STARTS[1]) + 1 :]
    common, made = environment_file(fleet.texts.get("server.env", "")), []
    wanted = [each[0] for word in words for each in VARIABLE.findall(word)]
    for file, text in sorted(fleet.texts.items()):
        number = re.fullmatch(r"server-(\d+)\.env", file)
        if number:
            own = common | environment_file(text)
            own["SERVER_NAME"] = LOOPBACK
            seen = own | {name: value for name, value in environment.items() if name in _SET}
            lacking = next((name for name in wanted if not seen.get(name)), "")
            if lacking:
                raise RequestError(f"{fleet.name}/server.env: {lacking} is not set, and lmdeploy@.service uses it")
            told = [expanded(each, seen, where) for each in words]
            made.append(
                Part(f"lmdeploy@{number[1]}", tuple(told), own, own.get("CUDA_VISIBLE_DEVICES", ""), _port(told, where))
            )
    return tuple(made)


_SET = frozenset({"MODEL", "REVISION"})
"""What smoke may set where a unit's files say otherwise: which weights, and of a folder no revision."""
