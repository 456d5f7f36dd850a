"""Stand-in for the command: ``lmdeploy serve api_server MODEL ...`` and ``lmdeploy serve proxy ...``."""

from __future__ import annotations

import argparse
import os
import sys


def run() -> None:
    """Runs one of the two."""
    match sys.argv[1:]:
        case ["serve", "api_server", *words]:
            api_server(words)
        case ["serve", "proxy", *words]:
            proxy(words)
        case _:
            print("usage: lmdeploy serve {api_server,proxy} ...", file=sys.stderr)
            sys.exit(2)


def api_server(words: list[str]) -> None:
    """Serves a model; the options are what the release takes."""
    from lmdeploy import server
    from lmdeploy.cli.serve import api_server_parser
    from lmdeploy.engine import TurbomindEngineConfig

    args = api_server_parser().parse_args(words)
    os.environ.setdefault("TM_LOG_LEVEL", args.log_level.upper())
    config = TurbomindEngineConfig()
    for name in vars(config).keys() & vars(args).keys():
        setattr(config, name, getattr(args, name))
    kinds = {"int4": 4, "int8": 8, "none": 0}
    config.quant_policy = kinds[args.quant_policy] if args.quant_policy in kinds else int(args.quant_policy)
    server.serve(args, config)


def proxy(words: list[str]) -> None:
    """Forwards to registered servers."""
    from lmdeploy import proxy as front

    parser = argparse.ArgumentParser(prog="lmdeploy serve proxy")
    parser.add_argument("--server-name", default="0.0.0.0")
    parser.add_argument("--server-port", type=int, default=8000)
    parser.add_argument("--routing-strategy", default="min_expected_latency")
    parser.add_argument("--serving-strategy", default="Hybrid")
    parser.add_argument("--disable-cache-status", action="store_true")
    parser.add_argument("--api-keys", nargs="*")
    parser.add_argument("--log-level", default="WARNING")
    front.serve(parser.parse_args(words))


if __name__ == "__main__":
    run()
