"""Read an artefact: its request, and what it will run, without running it."""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recommender.common.errors import RequestError
from recommender.common.parse import parse_python
from recommender.common.user_file import Unreadable, name_in_errors, read_text
from recommender.knowledge import option_values
from recommender.knowledge.engines import LABELS
from recommender.knowledge.eras import within
from recommender.render.head import HeadError, parse_head, read_head
from recommender.render.seal import SEAL
from recommender.request.request import Request

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation, Setup
    from recommender.knowledge import records
    from recommender.knowledge.store import Store
    from recommender.request.resolved_request import ResolvedRequest

ASSIGNED = re.compile(r"^(export )?([A-Z][A-Z0-9_]*)=\$\{\2:-(.*)\}$", re.MULTILINE)
PASSED = re.compile(r'^  --[a-z0-9-]+ "\$[A-Z0-9_]+"$', re.MULTILINE)
ARGUMENTS = re.compile(r"^args=\(\n(.*?)^\)$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)\}?")
SWITCH = re.compile(r"^if \[\[ \$([A-Z0-9_]+) == true \]\]; then args\+=\((--[a-z0-9-]+)\); fi$", re.MULTILINE)
BOOLEANS = dict.fromkeys(("1", "on", "true", "yes"), "true") | dict.fromkeys(("0", "off", "false", "no"), "false")
"""What a script takes for a switch (templates/shell/switches.j2)."""
# In a script that recommend did not write: the server's command line, and its variables.
COMMAND = re.compile(r"^(?![^\S\n]*#).*?\bapi_server(?:[^\S\n]+(.*))?$", re.MULTILINE)
SET = re.compile(r"^[^\S\n]*(?:export )?([A-Za-z_]\w*)=(?!\()(.*)$", re.MULTILINE)
ENDS = re.compile(r"[;|]|&&?|\|\||\d?[<>].*")
USED = re.compile(r"\$\{(\w+)(?::?-([^{}]*))?\}|\$(\w+)")
CONFIGS = (*(label.config_class for label in LABELS.values()), "ChatTemplateConfig")
"""Classes whose keywords are options of the server, in a script that recommend wrote."""
MOST_BITS = 128
LONGEST = 100_000
"""Characters of a command line with its variables replaced, and of a value; the system takes no longer word."""
FOLLOW = ("follow", "with", "without", "comments")
"""What a head has besides the request."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """A launch script, or a fleet's files (fleet_folder.py).

    ``head``: its request; None if others wrote it.
    """

    kind: Literal["bash", "python", "compose", "systemd"]
    name: str
    text: str
    head: Mapping[str, Any] | None

    @property
    def sha256(self) -> str:
        """Digest of its bytes."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def foreign(self) -> bool:
        """Whether others wrote it: a shell script with the options on the server's command line."""
        return self.kind == "bash" and self.head is None and not PASSED.search(self.text)

    def values(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return each overridable value: the environment's, else the script's."""
        if self.kind == "python":
            return {name: environment.get(name) or value for name, value in _python_values(self.text).items()}
        values = {name: environment.get(name) or _word(text) for _, name, text in ASSIGNED.findall(self.text)}
        switches = {name for name, _ in SWITCH.findall(self.text)}
        return values | {name: BOOLEANS.get(values[name].lower(), values[name]) for name in switches & values.keys()}

    def exported(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """Return what it sets for the server, as NAME=value."""
        if self.kind == "python":
            names = {name for name in _python_values(self.text) if name != "MODEL"}
        else:
            names = {name for export, name, _ in ASSIGNED.findall(self.text) if export}
        values = self.values(environment)
        return tuple(f"{name}={values[name]}" for name in sorted(names))

    def words(self, resolved: ResolvedRequest, environment: Mapping[str, str]) -> tuple[str, ...]:
        """Return the server's options as words, also for a Python script."""
        if self.kind == "python":
            return _python_words(self.text, resolved)
        if self.foreign:
            words = self.command_line(environment) or ()
            return words[1:] if self.model(environment) else words
        values = self.values(environment)
        block = ARGUMENTS.search(self.text)
        try:
            written = shlex.split(block[1], comments=True) if block else []
        except ValueError:  # a quote that does not end
            written = []
        passed = (NAMED.sub(lambda name: values.get(name[1], ""), word) for word in written)
        return (*passed, *(option for name, option in SWITCH.findall(self.text) if values.get(name) == "true"))

    def command_line(self, environment: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return what follows api_server in a foreign script; None if unreadable."""
        command = COMMAND.search(self.text.replace("\\\n", " "))
        if not command:
            return None
        known = {name: _word(text) for name, text in SET.findall(self.text) if len(text) <= LONGEST}
        left = LONGEST - len(command[1] or "")

        @cache
        def value_of(name: str) -> str:
            # NAME=${NAME:-value}, as well as a plain assignment, which nothing from outside changes
            return USED.sub(lambda used: environment.get(used[1] or used[3]) or used[2] or "", known.get(name, ""))

        def value(match: re.Match[str]) -> str:
            nonlocal left
            text = value_of(match[1] or match[3]) or environment.get(match[1] or match[3]) or match[2] or ""
            left -= len(text)
            return text if left > 0 else ""

        try:
            line = USED.sub(value, command[1] or "") if left > 0 else ""
            words = shlex.split(line, comments=True)
        except ValueError:
            return None
        if left <= 0:
            return None
        return tuple(itertools.takewhile(lambda word: not ENDS.fullmatch(word), words))

    def model(self, environment: Mapping[str, str]) -> str:
        """Return the model it serves, a folder or a name on the hub; empty if that cannot be read."""
        if self.foreign:
            first = next(iter(self.command_line(environment) or ()), "")
            return "" if first.startswith("-") else first
        return self.values(environment).get("MODEL", "")

    def launch_sha256(self, resolved: ResolvedRequest) -> str:
        """Return a digest of what it runs, without its comments."""
        plain = json.dumps([self.exported({}), self.words(resolved, {})])
        return hashlib.sha256(plain.encode()).hexdigest()

    def overridden(self, environment: Mapping[str, str]) -> list[str]:
        """Return the variables of the environment that change its values."""
        values = self.values(environment)
        return [name for name, value in self.values({}).items() if value != values[name]]


def _word(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError:
        words = [text]
    return words[0] if words else ""


def read(path: Path) -> Artefact:
    """Read an artefact from its file. Raises RequestError."""
    with name_in_errors(path, "name a launch script that recommend wrote"):
        return parse(read_text(path), str(path))


def parse(text: str, name: str) -> Artefact:
    """Read an artefact from its text. Raises RequestError."""
    first = text.split("\n", 1)[0]
    python = name.endswith(".py") or "python" in first
    if not python and not (name.endswith(".sh") or (first.startswith("#!") and "sh" in first)):
        raise RequestError(f"{name}: neither a shell nor a Python script; name a serve.sh or a pipeline.py")
    try:
        head = read_head(text)
        if python:
            parse_python(text)
    except (HeadError, Unreadable) as error:
        raise RequestError(f"{name}: {error}") from None
    except SyntaxError as error:
        raise RequestError(f"{name}:{error.lineno}: not Python: {error.msg}") from None
    sealed = SEAL.search(text)
    if sealed and sealed[1] not in ("bash", "python"):
        raise RequestError(f"{name}: a file of --format {sealed[1]} is not launched; render it as bash or python")
    artefact = Artefact("python" if python else "bash", name, text, head)
    if artefact.foreign and artefact.command_line({}) is None:
        raise RequestError(f"{name}: no 'lmdeploy serve api_server' in it, so its port and settings are unknown")
    return artefact


def parse_request(artefact: Artefact, changed: Mapping[str, Any]) -> tuple[Request, Mapping[str, Any]]:
    """Return an artefact's request with ``changed`` fields, and its adviser.

    Raises RequestError.
    """
    head = dict(artefact.head or {})
    follow: dict[str, Any] = {name: head.pop(name) for name in FOLLOW if name in head}
    if {"load", "concurrency", "rps"} & changed.keys():
        head = {name: value for name, value in head.items() if name not in ("load", "concurrency", "rps")}
    head |= changed
    unknown = sorted(head.keys() - changed.keys() - {field.name for field in fields(Request)})
    if unknown or "gpu" not in head:
        what = f"unknown: {', '.join(unknown)}" if unknown else "it names no GPU"
        raise RequestError(f"{artefact.name}: the request in its head cannot be used ({what}); render it anew")
    return Request(**head), follow


def remake(request: Request, follow: Mapping[str, Any]) -> Recommendation:
    """Return the recommendation or adviser's configuration of an artefact."""
    from recommender.choose import recommend

    if "follow" not in follow:
        return recommend.recommend(request)
    return recommend.recommend_adviser(request, follow["follow"], follow.get("with", {}), follow.get("without", ()))


UNUSABLE = (RequestError, ValueError, KeyError)
"""What ``rebuild_setup`` raises for an unusable record; the last two if smoke did not write its text."""


def rebuild_setup(run: records.SmokeRun, store: Store) -> Setup:
    """Return a record's configuration, from its own command and environment. Raises as ``read_run``."""
    from recommender.choose import recommend

    request, given = read_run(run, store)
    return recommend.configure_adviser(request, "defaults", given, store=store)[0]


def read_run(run: records.SmokeRun, store: Store) -> tuple[Request, dict[str, str]]:
    """Return the request of a record, and its values by option.

    Raises one of UNUSABLE; RequestError for a command that LMDeploy would not take.
    """
    words, given = iter(run.command), {}
    for word in words:
        name, _, value = word.removeprefix("--").partition("=")
        option = store.flags.get(name.replace("_", "-"))
        if option is None:
            raise RequestError(f"the command has {word[:40]!r}, which is no option of LMDeploy's server")
        given[option.id] = value or ("true" if option.eras[-1].type == "bool" else next(words, ""))
        if not given[option.id]:
            raise RequestError(f"the command's {word} has no value")
    variables = {variable.name: variable.id for variable in store.environment.values()}
    environment = dict(setting.split("=", 1) for setting in run.environment if "=" in setting)
    given |= {variables[name]: value for name, value in environment.items() if name in variables}
    head = parse_head(run.request)
    given |= {name: value for name, value in head.get("with", {}).items() if name in store.client}
    request, _ = parse_request(Artefact(run.kind, run.id, "", head), {})
    return request, given


def identify_setup(setup: Setup, checkpoint: str, pin: str) -> tuple[str, ...]:
    """Return what decides a run besides its options, such as model and GPUs."""
    resolved, tiles = setup.resolved, setup.config.max_tiles
    sizes = (resolved.request.gpu_count, tiles, resolved.prompt_tokens, resolved.output_tokens)
    lengths = (resolved.prompts, resolved.outputs, resolved.prefix_tokens, resolved.turns, resolved.max_context)
    drawn = [str((*lengths, resolved.image_sizes))] if resolved.varies or resolved.image_sizes else []
    return resolved.model.id, resolved.gpu.id, str(resolved.version), *map(str, sizes), *drawn, checkpoint, pin


def settings(resolved: ResolvedRequest, words: tuple[str, ...]) -> dict[str, str]:
    """Return the settings that options give; the release's default if one is not given. Raises RequestError."""
    given: dict[str, str] = {}
    for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
        if word.startswith("--"):
            name, _, value = word.partition("=")
            given[name.replace("_", "-")] = value or ("true" if following.startswith("--") else following or "true")
    decoded = {}
    for name, era in resolved.options.items():
        flag = resolved.store.flags[name]
        if flag.setting:
            text = given.get(flag.option, era.default)
            if text:
                option_values.check(flag.option, era, text)
            decoded[flag.setting] = next((known.value for known in flag.encodings if known.text == text), text)
    return decoded


def require_server_port(script: Artefact, resolved: ResolvedRequest) -> None:
    """Raise RequestError if copies of the artefact would all listen on one port."""
    if settings(resolved, script.words(resolved, {"SERVER_PORT": "1"})).get("port") != "1":
        option = next(flag.option for flag in resolved.store.flags.values() if flag.setting == "port")
        raise RequestError(
            "--copies: this script does not take its port from SERVER_PORT, so all copies would use the same one; "
            f'give it {option} "$SERVER_PORT", and --follow another --with {option.removeprefix("--")}=23333'
        )


def _keywords(text: str) -> dict[tuple[str, str], ast.expr]:
    """Return the values that configurations get in a Python artefact, by class and keyword."""
    calls = [node for node in ast.walk(parse_python(text)) if isinstance(node, ast.Call)]
    names = [getattr(call.func, "id", getattr(call.func, "attr", "")) for call in calls]
    return {
        (name, keyword.arg): keyword.value
        for name, call in zip(names, calls, strict=True)
        for keyword in call.keywords
        if name in CONFIGS and keyword.arg
    }


def _python_words(text: str, resolved: ResolvedRequest) -> tuple[str, ...]:
    """Return the keywords of the configurations as options."""
    given = _keywords(text)
    words: list[str] = []
    for flag in resolved.store.flags.values():
        for field in flag.fields:
            value = given.get((field.config, field.field))
            if within(field.since, field.until, resolved.version) and value is not None:
                plain = value.value if isinstance(value, ast.Constant) else None
                if isinstance(plain, int) and plain.bit_length() > MOST_BITS:
                    raise RequestError(f"{field.field} is no number of a sensible size; fix it there")
                words += [flag.option] if plain is True else [] if plain in (None, False) else [flag.option, str(plain)]
    return tuple(words)


def _python_values(text: str) -> dict[str, str]:
    """Return the environment variables that a Python artefact sets a default for, and MODEL."""
    values = {}
    for node in ast.walk(parse_python(text)):
        if isinstance(node, ast.Call) and _of_environment(node) == "setdefault" and len(node.args) > 1:
            name, value = (word.value if isinstance(word, ast.Constant) else "" for word in node.args[:2])
            if isinstance(name, str) and isinstance(value, str):
                values[name] = value
        if isinstance(node, ast.BoolOp) and _of_environment(node.values[0]) == "get":
            model, otherwise = node.values[0].args[:1], node.values[-1]  # type: ignore[attr-defined]
            if model and getattr(model[0], "value", "") == "MODEL" and isinstance(otherwise, ast.Constant):
                values["MODEL"] = str(otherwise.value) if isinstance(otherwise.value, str) else ""
    return values


def _of_environment(node: ast.expr) -> str:
    """Return the method of ``os.environ`` that a node calls; empty for anything else."""
    function = node.func if isinstance(node, ast.Call) else None
    whose = function.value if isinstance(function, ast.Attribute) else None
    environ = isinstance(whose, ast.Attribute) and whose.attr == "environ"
    ours = environ and isinstance(whose.value, ast.Name) and whose.value.id == "os"  # type: ignore[union-attr]
    return function.attr if ours and isinstance(function, ast.Attribute) else ""
