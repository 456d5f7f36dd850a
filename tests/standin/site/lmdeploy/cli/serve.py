"""Stand-in for the class that holds the parsers of ``lmdeploy serve``."""

from __future__ import annotations

import argparse
from types import SimpleNamespace

from lmdeploy.engine import FACTS, RELEASE
from recommender.maintenance.argparse_rebuild import rebuild_parser


class SubCliServe:
    """``subparsers.choices`` holds the api_server's parser once ``add_parsers`` was called."""

    subparsers = SimpleNamespace(choices={})

    @staticmethod
    def add_parsers() -> None:
        """Makes the parser of the release."""
        SubCliServe.subparsers.choices["api_server"] = api_server_parser()


def api_server_parser() -> argparse.ArgumentParser:
    """The release's parser, rebuilt from the extracted facts."""
    return rebuild_parser(FACTS, RELEASE.split("+")[0])
