"""Read the options of ``docker run``, and sizes and health checks as containers have them."""

import re

from recommender.common.pattern import pattern
from recommender.common.units import BYTES
from recommender.review.script import sibling_files
from recommender.review.script.model import Container, Probe, ReadProblem, Span, Word
from recommender.review.script.source_map import Field, SourceText

DOCKERS = frozenset({"docker", "podman", "nerdctl", "nvidia-docker"})
# Options of `docker run` without a value.
_DOCKER_SWITCHES = """
    --rm --detach --interactive --tty --privileged --init --read-only --publish-all --no-healthcheck
    --oom-kill-disable --sig-proxy --disable-content-trust --quiet --use-api-socket --replace --tls --debug
"""
DOCKER_SWITCHES = frozenset(_DOCKER_SWITCHES.split())
DEVICES = frozenset({"--gpus", "--device", "--runtime", "--hooks-dir", "--device-cgroup-rule", "--env-file"})
"""Options that may give a container a GPU."""
DOCKER_LETTERS = frozenset("ditPq")
ASSIGNED = pattern(r"([A-Za-z_]\w*)=")
IMAGE = pattern(r"^[\w.-]+(?:/[\w.-]+)*/lmdeploy(?:[:@]\S+)?$")
SIZE = pattern(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
URL_PATH = pattern(r"https?://[^/\s\"']+(/[^\s\"'|;)]*)")


class DockerRun:
    """Parse the options of ``docker run``."""

    def __init__(self, page: SourceText, outside: dict[str, Word], place: Span) -> None:
        """``outside``: the variables of the shell that runs docker."""
        self.page = page
        self.outside = outside
        self.environment: dict[str, Word] = {}
        self.given: dict[str, Field] = {}
        self.detached = False
        self.unread: list[ReadProblem] = []
        self.container = Container(place=place)

    def read(self, fields: list[Field]) -> list[Field]:
        """Return the image and the words after it."""
        at, unknown = 0, False
        while at < len(fields):
            field = fields[at]
            unknown = unknown or not field.known_prefix
            name, equals, _ = field.known_prefix.partition("=")
            if field.value is None and at + 1 < len(fields) and IMAGE.search(fields[at + 1].known_prefix):
                at += 1  # a variable with options
                continue
            if not name.startswith("-") or name == "-":
                break
            at += 1
            self.detached = self.detached or name in ("-d", "--detach") or _letters(name, "d")
            if name in DOCKER_SWITCHES or _letters(name):
                continue
            if not name.startswith("--") and len(name) > 2:
                self._option(name[:2], field.after(2 + name[2:].startswith("="), self.page.text))
            elif equals:
                self._option(name, field.after(len(name) + 1, self.page.text))
            elif at < len(fields):
                self._option(name, fields[at])
                at += 1
        asked = unknown or not DEVICES.isdisjoint(self.given) or "NVIDIA_VISIBLE_DEVICES" in self.environment
        self.container = self.container._replace(without_gpus=not asked)
        return fields[at:]

    def _option(self, name: str, value: Field) -> None:
        self.given[name] = value
        word, text, now = self.page.word(value), value.value, self.container
        if name in ("-e", "--env"):
            self._variable(value)
        elif name == "--env-file":
            given = sibling_files.read_environment(self.page.script.path, text or "")
            if given is None:
                self.unread.append(ReadProblem(f"{word.raw} is not beside the script and was not read", word.place))
            place = word.place
            self.environment |= {key: Word(word.raw, text, place, variable=key) for key, text in (given or {}).items()}
        elif name == "--shm-size":
            size = size_of(text)
            self.container = now._replace(shm_bytes=size, shm_known=size is not None)
        elif name == "--ipc":
            self.container = now._replace(host_ipc=text == "host", shm_known=now.shm_known and text is not None)
        elif name == "--gpus":
            count, devices = _gpus(text)
            self.container = now._replace(gpus=count, devices=devices)
        elif name in ("-p", "--publish"):
            self.container = now._replace(published=(*now.published, word))
        elif name == "--restart":
            self.container = now._replace(restart=word)
        elif name == "--health-cmd":
            probe = Probe("healthcheck", word.place, path=probe_path(text or ""))
            self.container = now._replace(probes=(*now.probes, probe))
        elif name in ("-v", "--volume", "--mount", "--tmpfs") and "/dev/shm" in value.known_prefix:
            self.container = now._replace(shm_known=False)

    def _variable(self, value: Field) -> None:
        assigned = ASSIGNED.match(value.known_prefix)
        if assigned:
            self.environment[assigned[1]] = self.page.word(value.after(assigned.end(), self.page.text))
        elif value.value in self.outside:
            self.environment[value.value] = self.outside[value.value]


def _letters(name: str, letter: str = "") -> bool:
    """Return whether a word is combined short switches, such as ``-itd``."""
    letters = name[1:]
    return not name.startswith("--") and bool(letters) and set(letters) <= DOCKER_LETTERS and letter in letters


def _gpus(text: str | None) -> tuple[int | None, tuple[str, ...]]:
    """Return the count of ``--gpus``, None if all or unknown, and the GPUs that it names."""
    text = (text or "").strip("\"'")
    if match := re.search(r"device=([\w,:.-]+)", text):
        devices = tuple(device for device in match[1].split(",") if device)
        return len(devices), devices
    match = re.search(r"^(?:.*count=)?(\d{1,6})(?!\d)", text)
    return int(match[1]) if match else None, ()


def size_of(text: str | None) -> int | None:
    """Return a size such as ``16g``, ``512m`` or ``64Gi`` in bytes."""
    match = SIZE.fullmatch((text or "").strip()[:20])
    return int(float(match[1]) * BYTES[match[2].lower()]) if match else None


def probe_path(text: str) -> str:
    """Return the URL path that a health check requests."""
    match = URL_PATH.search(text[:2000])
    return match[1] if match else ""
