"""Read one server of a rendered fleet: variables, and a compose service's model, GPUs and port."""

import re
from collections.abc import Mapping
from typing import Any

from recommender.common.errors import RequestError
from recommender.common.parse import parse_yaml
from recommender.common.text import one_line
from recommender.common.user_file import Unreadable

VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?:(:?[-?+])([^{}]*))?\}")
LONGEST = 100_000
LOOPBACK = "127.0.0.1"
"""Servers and HAProxy listen here, whatever the files say, so that only this machine reaches them."""


def expand(text: str, environment: Mapping[str, str], where: str) -> str:
    """Expand compose variables; raise RequestError for a required one that is unset."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        current, operator, operand = environment.get(match[1], ""), match[2] or "", match[3] or ""
        if operator.endswith("+"):
            return operand if current else ""
        if not current and operator.endswith("?"):
            raise RequestError(f"{where}: {match[1]} is not set: {operand or 'it must be'}")
        return current or (operand if operator else "")

    left = LONGEST

    def counted(match: re.Match[str]) -> str:
        nonlocal left
        new = value(match)
        left -= len(new)
        if left < 0:
            raise RequestError(f"{where}: more than {LONGEST:,} characters in a word; render it again")
        return new

    return VARIABLE.sub(counted, text)


def host_model(model: str, service: Mapping[str, Any], environment: Mapping[str, str], where: str) -> str:
    """Return the model's path outside the container: its bind mount, or smoke's MODEL."""
    for volume in service.get("volumes") or ():
        if isinstance(volume, dict) and volume.get("target") == model:
            return environment.get("MODEL") or expand(str(volume.get("source", "")), environment, where)
    return model


def service_variables(service: Mapping[str, Any], environment: Mapping[str, str], where: str) -> dict[str, str]:
    """Return a service's environment, written as a mapping or as a list."""
    declared = service.get("environment") or {}
    if not isinstance(declared, dict):
        declared = {
            name: value if separator else None
            for name, separator, value in (str(entry).partition("=") for entry in declared)
        }
    values = {
        str(name): environment.get(str(name)) if value is None else str(value) for name, value in declared.items()
    }
    return {name: expand(value, environment, where) for name, value in values.items() if value is not None}


def services(text: str, where: str) -> dict[str, Any]:
    """Return the services of a compose file by name; raise RequestError."""
    try:
        services = parse_yaml(text)["services"]
        return {str(name): service for name, service in services.items() if isinstance(service, dict)}
    except (Unreadable, KeyError, TypeError, AttributeError) as error:
        raise RequestError(f"{where}: cannot be read ({one_line(error)[:200]}); render it again") from None


def service_gpus(service: Mapping[str, Any], environment: Mapping[str, str], where: str) -> str:
    """Return the GPUs that a service reserves, as CUDA_VISIBLE_DEVICES lists them."""
    try:
        devices = service["deploy"]["resources"]["reservations"]["devices"]
        return ",".join(
            expand(str(device_id), environment, where) for device in devices for device_id in device["device_ids"]
        )
    except (KeyError, TypeError):
        raise RequestError(f"{where}: a server reserves no GPU by index; render it again") from None


def use_published_port(words: list[str], published: list[str], where: str) -> int:
    """Make the server listen on its published host port, and return that port."""
    parts = published[0].rsplit(":", 2) if len(published) == 1 else []
    if len(parts) != 3:
        raise RequestError(f"{where}: a server publishes no port as ADDRESS:PORT:PORT; render it again")
    port_option(words, where)
    words[words.index("--server-port") + 1] = parts[1]
    if "--server-name" in words[:-1]:
        words[words.index("--server-name") + 1] = LOOPBACK
    return parse_port(parts[1], f"{where}: a server's published port")


def port_option(words: list[str], where: str) -> int:
    """Return the value of --server-port; raise RequestError without a port."""
    following = words[words.index("--server-port") + 1 :] if "--server-port" in words else []
    return parse_port(following[0] if following else "", f"{where}: a server's --server-port")


def parse_port(text: str, where: str) -> int:
    """Return a port number; raise RequestError if it is none."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise RequestError(f"{where} is {text[:40]!r}; use a port from 1 to 65535, or render it again")
    return int(text)
