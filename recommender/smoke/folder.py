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
from recommender.smoke.launch import HEAD, Artefact

if TYPE_CHECKING:
    from recommender.facts import Facts

FRONT = "haproxy.cfg"
FILES = {"compose.yaml": "compose", "lmdeploy@.service": "systemd", "kustomization.yaml": "k8s"}
"""The file by which a form is known."""
OWN = frozenset({"--server-name", "--server-port", "--revision"})
"""Options that the files give each server: where it listens, and what a local model does not need."""
STARTS = ("serve", "api_server")
VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?:(:?[-?+])([^{}]*))?\}")
LINE = re.compile(r"^(?!\s*[#;])\s*(\w+)=(.*)$", re.MULTILINE)
PRESET = re.compile(r"^\s*presetenv (\w+) (\S+)$", re.MULTILINE)
HOSTS = re.compile(r'"\$\{(HOST_\d+)\}:')
NOWHERE = "240.0.0.1"
"""An address of the reserved block 240.0.0.0/4: a connection to it fails at once. [RFC 1112, section 4]"""


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
        made = read(self, environment)
        if not made:
            raise RequestError(f"{self.name}: it starts no server; render it anew")
        return made

    def values(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Every value that a variable gives, by the variable."""
        if self.kind == "systemd":
            return _assigned(self.texts.get("server.env", ""))
        named = (each for each in VARIABLE.findall(self.texts["compose.yaml"]) if each[1] in ("-", ":-"))
        return {name: environment.get(name) or value for name, _, value in named if name not in _AROUND}

    def exported(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """What is set for every server, as NAME=value, without what its command line or its card is told by."""
        first = self.parts(ANYWHERE | dict(environment))[0]
        passed = frozenset(each[0] for each in VARIABLE.findall(self.texts.get("lmdeploy@.service", "")))
        return tuple(
            f"{name}={value}" for name, value in sorted(first.environment.items()) if name not in passed | _AROUND
        )

    def words(self, facts: Facts, environment: Mapping[str, str]) -> tuple[str, ...]:
        """The options that all servers have."""
        return _without(self.parts(ANYWHERE | dict(environment))[0].words[1:])

    def model(self, environment: Mapping[str, str]) -> str:
        """The model that its servers load."""
        return self.parts(ANYWHERE | dict(environment))[0].words[0]

    @property
    def front(self) -> Mapping[str, str]:
        """The front's variables and their defaults; a host that is not this one is nowhere."""
        text = self.texts[FRONT]
        hosts = dict.fromkeys(HOSTS.findall(text), NOWHERE)
        return dict(PRESET.findall(text)) | hosts | ({"HOST_1": "127.0.0.1"} if hosts else {})

    @property
    def hosts(self) -> int:
        """Hosts that the front deals out to."""
        return max(1, len(set(HOSTS.findall(self.texts[FRONT]))))


_AROUND = frozenset(
    (
        "IMAGE", "HF_HOME", "HF_HUB_OFFLINE", "HF_MODULES_CACHE", "SHM_SIZE", "RESTARTS", "STOP_GRACE", "START_PERIOD",
        "FRONT_IMAGE", "NAME", "LMDEPLOY", "PYTHON", "PYTHONUNBUFFERED", "MODEL", "REVISION", "SERVER_NAME",
        "SERVER_PORT", "CUDA_VISIBLE_DEVICES", "API_KEYS_FILE",
    )
)  # fmt: skip
"""Variables of the files around a server: where its program, its weights and its card are."""
ANYWHERE = {"REVISION": "main", "HOST_ADDRESS": "127.0.0.1"}
"""What the files want to be told and no setting depends on."""


def _without(words: tuple[str, ...]) -> tuple[str, ...]:
    """Options without those that the files give each server."""
    return tuple(each for each, before in zip(words, ("", *words), strict=False) if not {each, before} & OWN)


def read(folder: Path) -> Fleet:
    """A fleet from its folder. Raises RequestError."""
    kind = next((kind for name, kind in FILES.items() if (folder / name).is_file()), "")
    if not kind:
        raise RequestError(f"{folder}: no {', '.join(FILES)} in it; name a folder that --format wrote, or a script")
    if kind == "k8s":
        raise RequestError(
            f"{folder}: Kubernetes starts these, not this machine; smoke the same fleet as --format systemd, "
            "and probe the pods with the client of --format client"
        )
    texts = {}
    try:
        for path in sorted(each for each in folder.iterdir() if each.is_file() and each.name != "api-keys"):
            texts[path.name] = path.read_text(encoding="utf-8")
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
        published = [expanded(str(each), environment, where) for each in service.get("ports") or ()]
        port = _publish(told, published, where)
        given = service.get("environment") or {}
        own = {key: expanded(str(value), environment, where) for key, value in given.items()}
        made.append(Part(name, tuple(told), own, _cards(service, environment, where), port))
    return tuple(made)


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
    """The port of the host that a service has; without its container the server must listen on that itself."""
    parts = published[0].split(":") if len(published) == 1 else []
    if len(parts) != 3 or not parts[1].isdecimal():
        raise RequestError(f"{where}: a server publishes no port as ADDRESS:PORT:PORT; render it anew")
    _port(words, where)
    words[words.index("--server-port") + 1] = parts[1]
    words[words.index("--server-name") + 1] = parts[0]
    return int(parts[1])


def _port(words: list[str], where: str) -> int:
    try:
        return int(words[words.index("--server-port") + 1])
    except (ValueError, IndexError):
        raise RequestError(f"{where}: a server without a --server-port that is a number; render it anew") from None


# --- systemd ---------------------------------------------------------------------------------------


def _assigned(text: str) -> dict[str, str]:
    """The variables of an EnvironmentFile, as ours are written: a line each. [systemd.exec(5)]"""
    made = {}
    for name, value in LINE.findall(text):
        try:
            words = shlex.split(value)
        except ValueError:
            words = [value]
        made[name] = words[0] if words else ""
    return made


def _systemd(fleet: Fleet, environment: Mapping[str, str]) -> tuple[Part, ...]:
    """A unit's environment comes from its files alone; ``environment`` only adds what smoke sets."""
    where = f"{fleet.name}/lmdeploy@.service"
    line = re.search(r"^ExecStart=(.*)$", fleet.texts["lmdeploy@.service"].replace("\\\n", " "), re.MULTILINE)
    words = shlex.split(line[1]) if line else []
    if STARTS[1] not in words:
        raise RequestError(f"{where}: its ExecStart starts no api_server; render it anew")
    words = words[words.index(STARTS[1]) + 1 :]
    common, made = _assigned(fleet.texts.get("server.env", "")), []
    wanted = [each[0] for word in words for each in VARIABLE.findall(word)]
    for file, text in sorted(fleet.texts.items()):
        number = re.fullmatch(r"server-(\d+)\.env", file)
        if number:
            own = common | _assigned(text)
            own["SERVER_NAME"] = "127.0.0.1"  # nobody but the front of this machine is to reach it
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
