"""Fetch the pinned npm packages that run Python and parse bash in a browser.

The build takes them from the registry that npm would use, checks their hash and keeps them in ``build/.cache/npm``.
Nothing of them is committed.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import tarfile
import urllib.error
import urllib.request
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from recommender.knowledge.load import data_root

REGISTRY = "https://registry.npmjs.org"
TIMEOUT_S = 60


class NotFetched(Exception):
    """A package is neither cached nor can it be fetched; the message says why and what to do."""


@dataclass(frozen=True)
class Package:
    """An npm package: name, exact version, and the SHA-512 of its tarball as ``npm view NAME dist`` prints it."""

    name: str
    version: str
    integrity: str

    @property
    def file_name(self) -> str:
        """Return the name of the tarball."""
        return f"{self.name}-{self.version}.tgz"

    def is_whole(self, tarball: bytes) -> bool:
        """Return whether a tarball has the pinned hash."""
        return self.integrity == f"sha512-{base64.b64encode(hashlib.sha512(tarball).digest()).decode()}"


PYODIDE = Package(
    "pyodide",
    "314.0.7",
    "sha512-0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A==",
)
TREE_SITTER = Package(
    "web-tree-sitter",
    "0.27.2",
    "sha512-ZRo86GKI4aOSBAqOrPmCtriExI3xIzu1sNw/V6v3b4QGxrEmO19FGwbMNdyhw3MJLAZIw0xAV0oSpqX361eAyQ==",
)
BASH_GRAMMAR = Package(
    "tree-sitter-bash",
    "0.25.1",
    "sha512-7hMytuYIMoXOq24yRulgIxthE9YmggZIOHCyPTTuJcu6EU54tYD+4G39cUb28kxC6jMf/AbPfWGLQtgPTdh3xw==",
)


def read_members(package: Package, names: Collection[str]) -> dict[str, bytes]:
    """Return files of a package by name. Raises NotFetched."""
    with tarfile.open(fileobj=io.BytesIO(_tarball(package)), mode="r:gz") as archive:
        members = ((name, archive.extractfile(f"package/{name}")) for name in names)
        return {name: member.read() for name, member in members if member}


def _tarball(package: Package) -> bytes:
    """Return the tarball from the cache, else from the registry."""
    cached = data_root() / "build" / ".cache" / "npm" / package.file_name
    try:
        if package.is_whole(tarball := cached.read_bytes()):
            return tarball
    except OSError:
        pass  # not there yet: fetch it
    address = f"{registry()}/{package.name}/-/{package.file_name}"
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
            tarball = bytes(answer.read())
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise NotFetched(
            f"{address}: {reason}; the site needs it to run the recommender in browsers: put the file into "
            f"{cached.parent}, or build without it by SITE_WITHOUT_RUNTIME=1"
        ) from None
    if not package.is_whole(tarball):
        raise NotFetched(f"{address}: its hash is not that of recommender/site/browser/npm.py; nothing of it was used")
    cached.parent.mkdir(parents=True, exist_ok=True)
    temporary = cached.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(tarball)
    temporary.replace(cached)
    return tarball


def registry() -> str:
    """Return npm's registry, as its environment variable, the user's .npmrc or npm itself has it."""
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        if os.environ.get(name):
            return os.environ[name].rstrip("/")
    try:
        settings = (Path.home() / ".npmrc").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return REGISTRY
    line = re.search(r"^[ \t]*registry[ \t]*=[ \t]*(\S+)", settings, re.MULTILINE)
    return line[1].rstrip("/") if line else REGISTRY
