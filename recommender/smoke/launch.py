"""Reads an artefact: what it was made for, and what it will run, without running it."""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recommender.candidates import PORT
from recommender.checkpoint import CheckpointError
from recommender.facts import within
from recommender.request import Request, RequestError
from recommender.store import UnknownName

if TYPE_CHECKING:
    from recommender import records as r
    from recommender.facts import Facts
    from recommender.pipeline import Recommendation
    from recommender.store import Store

HEAD = re.compile(r"^# request: (\{.*\})$", re.MULTILINE)
ASSIGNED = re.compile(r"^(export )?([A-Z][A-Z0-9_]*)=\$\{\2:-(.*)\}$", re.MULTILINE)
PASSED = re.compile(r'^  (--[a-z0-9-]+) "\$([A-Z0-9_]+)"$', re.MULTILINE)
SWITCH = re.compile(r"^if \[\[ \$([A-Z0-9_]+) == true \]\]; then args\+=\((--[a-z0-9-]+)\); fi$", re.MULTILINE)
# A script of another hand: its server's command line, and the variables in it.
COMMAND = re.compile(r"^(?!\s*#).*?\bapi_server\s+(.*)$", re.MULTILINE)
SET = re.compile(r"^\s*(?:export )?([A-Za-z_]\w*)=(?!\()(.*)$", re.MULTILINE)
ENDS = re.compile(r"[;|]|&&?|\|\||\d?[<>].*")
USED = re.compile(r"\$\{(\w+)(?::?-([^{}]*))?\}|\$(\w+)")
ENGINE = "TurbomindEngineConfig"
FOLLOW = ("follow", "with", "without")


@dataclass(frozen=True, slots=True)
class Artefact:
    """A launch script, or a fleet's files (folder.py). ``head``: the request in it; None where others wrote it."""

    kind: Literal["bash", "python", "compose", "systemd"]
    name: str
    text: str
    head: Mapping[str, Any] | None

    @property
    def sha256(self) -> str:
        """Over its bytes."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def foreign(self) -> bool:
        """Whether it is a shell script of another hand, whose options stand on the server's command line."""
        return self.kind == "bash" and self.head is None and not PASSED.search(self.text)

    def values(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Every value that a variable can override, by the variable: the environment's, else the script's."""
        if self.kind == "python":
            return {name: environment.get(name) or value for name, value in _python_values(self.text).items()}
        return {name: environment.get(name) or _word(text) for _, name, text in ASSIGNED.findall(self.text)}

    def exported(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """What it sets for the server, as NAME=value."""
        if self.kind == "python":
            names = {name for name in _python_values(self.text) if name != "MODEL"}
        else:
            names = {name for export, name, _ in ASSIGNED.findall(self.text) if export}
        values = self.values(environment)
        return tuple(f"{name}={values[name]}" for name in sorted(names))

    def words(self, facts: Facts, environment: Mapping[str, str]) -> tuple[str, ...]:
        """The server's options as words of its command line; of a Python script, the same settings as options."""
        if self.kind == "python":
            return _python_words(self.text, facts)
        if self.foreign:
            words = self.command_line(environment) or ()
            return words[1:] if self.model(environment) else words
        values = self.values(environment)
        passed = [word for option, name in PASSED.findall(self.text) for word in (option, values.get(name, ""))]
        return (*passed, *(option for name, option in SWITCH.findall(self.text) if values.get(name) == "true"))

    def command_line(self, environment: Mapping[str, str]) -> tuple[str, ...] | None:
        """What follows api_server in a script of another hand; None where that cannot be seen."""
        found = COMMAND.search(self.text.replace("\\\n", " "))
        if not found:
            return None
        known = {name: _word(text) for name, text in SET.findall(self.text)}

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[3]
            own = known.get(name, "")
            # NAME=${NAME:-value}, as well as a plain assignment, which nothing from outside changes
            told = USED.sub(lambda each: environment.get(each[1] or each[3]) or each[2] or "", own)
            return told or environment.get(name) or match[2] or ""

        try:
            words = shlex.split(USED.sub(value, found[1]), comments=True)
        except ValueError:
            return None
        return tuple(itertools.takewhile(lambda word: not ENDS.fullmatch(word), words))

    def model(self, environment: Mapping[str, str]) -> str:
        """The model it serves: a folder, or a name on the hub; empty where that cannot be seen."""
        if self.foreign:
            first = next(iter(self.command_line(environment) or ()), "")
            return "" if first.startswith("-") else first
        return self.values(environment).get("MODEL", "")

    def launch_sha256(self, facts: Facts) -> str:
        """Over what it runs as it stands, whatever its comments say."""
        plain = json.dumps([self.exported({}), self.words(facts, {})])
        return hashlib.sha256(plain.encode()).hexdigest()

    def overridden(self, environment: Mapping[str, str]) -> list[str]:
        """Variables of the environment that change its values."""
        kept, now = self.values({}), self.values(environment)
        return [name for name in kept if kept[name] != now[name]]


def _word(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError:
        words = [text]
    return words[0] if words else ""


def read(path: Path) -> Artefact:
    """An artefact from its file. Raises RequestError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}; name a launch script that recommend wrote") from None
    except UnicodeDecodeError:
        raise RequestError(f"{path}: not a text in UTF-8; name a launch script that recommend wrote") from None
    return of(text, str(path))


def of(text: str, name: str) -> Artefact:
    """An artefact from its text. Raises RequestError."""
    first = text.split("\n", 1)[0]
    python = name.endswith(".py") or "python" in first
    if not python and not (name.endswith(".sh") or (first.startswith("#!") and "sh" in first)):
        raise RequestError(f"{name}: neither a shell nor a Python script; name a serve.sh or a pipeline.py")
    found = HEAD.search(text)
    try:
        head = json.loads(found[1]) if found else None
        if python:
            ast.parse(text)
    except ValueError as error:
        raise RequestError(f"{name}: the request in its head cannot be read ({error}); render it anew") from None
    except SyntaxError as error:
        raise RequestError(f"{name}:{error.lineno}: not Python: {error.msg}") from None
    made = Artefact("python" if python else "bash", name, text, head)
    if made.foreign and made.command_line({}) is None:
        raise RequestError(f"{name}: no 'lmdeploy serve api_server' in it, so its port and settings cannot be told")
    return made


def asked(artefact: Artefact, changed: Mapping[str, Any]) -> tuple[Request, Mapping[str, Any]]:
    """The request of an artefact's head with ``changed`` fields on top, and whom it follows. Raises RequestError."""
    head = dict(artefact.head or {})
    follow: dict[str, Any] = {name: head.pop(name) for name in FOLLOW if name in head}
    if {"load", "concurrency", "rps"} & changed.keys():
        head = {name: value for name, value in head.items() if name not in ("load", "concurrency", "rps")}
    known = {each.name for each in fields(Request)}
    odd = head.keys() - known
    if odd or "gpu" not in (head | dict(changed)):
        what = f"unknown: {', '.join(sorted(odd))}" if odd else "it names no GPU"
        raise RequestError(f"{artefact.name}: the request in its head cannot be used ({what}); render it anew")
    try:
        return Request(**(head | dict(changed))), follow
    except TypeError:
        raise RequestError(f"{artefact.name}: the request in its head has a wrong value; render it anew") from None


def remake(request: Request, follow: Mapping[str, Any]) -> Recommendation:
    """The recommendation, or the followed configuration, that an artefact was rendered from."""
    from recommender import pipeline

    if "follow" not in follow:
        return pipeline.recommend(request)
    return pipeline.recommend_adviser(request, follow["follow"], follow.get("with", {}), follow.get("without", ()))


UNUSABLE = (RequestError, UnknownName, CheckpointError, ValueError, KeyError)
"""What is raised of a record that nothing can be said of: the last two where its text is not what smoke writes."""


def ran(run: r.SmokeRun, store: Store) -> Recommendation:
    """What a record's server ran with, from its own command and environment: no choice is made anew for it.

    Raises one of UNUSABLE; RequestError for a command that LMDeploy would not take.
    """
    from recommender import pipeline

    words, given = iter(run.command), {}
    for word in words:
        name, _, value = word.removeprefix("--").partition("=")
        option = store.flags.get(name.replace("_", "-"))
        if option is None:
            raise RequestError(f"the command has {word[:40]!r}, which is no option of LMDeploy's server")
        given[option.id] = value or ("true" if option.eras[-1].type == "bool" else next(words, ""))
        if not given[option.id]:
            raise RequestError(f"the command's {word} has no value")
    variables = {each.name: each.id for each in store.environment.values()}
    given |= {
        variables[name]: value
        for name, _, value in (each.partition("=") for each in run.environment)
        if name in variables
    }
    given |= {name: value for name, value in json.loads(run.request).get("with", {}).items() if name in store.client}
    head = {name: value for name, value in json.loads(run.request).items() if name not in FOLLOW}
    request, _ = asked(Artefact(run.kind, run.id, "", head), {})
    return pipeline.recommend_adviser(request, "defaults", given, store=store)


def meant(found: Recommendation, checkpoint: str, pin: str) -> tuple[str, ...]:
    """What besides the options decides what a run measures: model, cards, release, tiles, tokens, weights, cores."""
    facts = found.facts
    sizes = (facts.request.gpu_count, found.config.max_tiles, facts.prompt_tokens, facts.output_tokens)
    return facts.model.id, facts.gpu.id, str(facts.version), *map(str, sizes), checkpoint, pin


def settings(facts: Facts, words: tuple[str, ...]) -> dict[str, str]:
    """What the options mean, by setting; a release's default where an option is not given. Raises RequestError."""
    given: dict[str, str] = {}
    for place, word in enumerate(words):
        if word.startswith("--"):
            name, _, value = word.partition("=")
            following = words[place + 1] if place + 1 < len(words) else ""
            given[name.replace("_", "-")] = value or ("true" if following.startswith("--") else following or "true")
    found = {}
    for name, era in facts.options.items():
        flag = facts.store.flags[name]
        if flag.setting:
            text = given.get(flag.option, era.default)
            pattern = {"int": r"\d+", "float": r"[\d.]+(e-?\d+)?"}.get(era.type, "")
            if pattern and text and not re.fullmatch(pattern, text):
                raise RequestError(f"{flag.option} is {text[:40]!r}, which is no number")
            found[flag.setting] = next((each.value for each in flag.encodings if each.text == text), text)
    if not 0 < int(found.get("port") or PORT) < 65536:
        raise RequestError(f"--server-port is {found['port']}; use a port from 1 to 65535")
    return found


def needs_ports(script: Artefact, facts: Facts) -> None:
    """Raises RequestError where copies of the artefact would all listen on one port."""
    if settings(facts, script.words(facts, {"SERVER_PORT": "1"})).get("port") != "1":
        raise RequestError(
            "--copies: this script does not take its port from SERVER_PORT, so all copies would want the same; "
            'give it --server-port "$SERVER_PORT", and --follow another --with server-port=23333'
        )


def _engine_call(text: str) -> ast.Call | None:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == ENGINE:
            return node
    return None


def _python_words(text: str, facts: Facts) -> tuple[str, ...]:
    """The keywords of the engine's configuration as options."""
    call = _engine_call(text)
    given = {each.arg: each.value for each in call.keywords if each.arg} if call else {}
    words: list[str] = []
    for flag in facts.store.flags.values():
        for field in flag.fields:
            value = given.get(field.field)
            if field.config == ENGINE and within(field.since, field.until, facts.version) and value is not None:
                plain = ast.literal_eval(value) if isinstance(value, ast.Constant) else None
                words += [flag.option] if plain is True else [] if plain in (None, False) else [flag.option, str(plain)]
    return tuple(words)


def _python_values(text: str) -> dict[str, str]:
    """Environment variables that a Python artefact sets a default for, and MODEL."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "os.environ.setdefault":
            name, value = (each.value if isinstance(each, ast.Constant) else "" for each in node.args[:2])
            found[str(name)] = str(value)
        if isinstance(node, ast.BoolOp) and ast.unparse(node.values[0]) == "os.environ.get('MODEL')":
            found["MODEL"] = str(getattr(node.values[-1], "value", ""))
    return found
