"""``recommend mcp``: the recommender as tools of chatbots and other programs, by the Model Context Protocol."""

from __future__ import annotations

import gc
import signal
import sys
from pathlib import Path

import click

from recommender.commands.short_help import ShortCommand
from recommender.common.errors import MaintenanceError
from recommender.common.text import masked

HELP = """\b
The tools are recommend, estimate, review, explain, compare and diff. The
server speaks MCP on stdin and stdout and opens no port. It needs the MCP SDK:
pip install 'mcp>=2'.

\b
Examples:
  claude mcp add lmdeploy -- recommend mcp
  recommend mcp --skill skills/lmdeploy
"""
SDK = ("mcp", "mcp_types", "anyio")
"""Modules of the SDK; mcp_types is of release 2."""


@click.command("mcp", cls=ShortCommand, epilog=HELP)
@click.option("--skill", metavar="DIR", type=click.Path(path_type=Path), help="Write the agent skill to DIR and exit.")
@click.option("--force", is_flag=True, help="With --skill: overwrite files that differ.")
def command(skill: Path | None, force: bool) -> None:
    """Serve the recommender as tools to a chatbot or another program (MCP)."""
    if force and skill is None:
        raise click.UsageError("--force needs --skill")
    if skill is not None:
        try:
            _write_skill(skill, force)
        except (FileExistsError, NotADirectoryError):
            raise click.UsageError(f"--skill {masked(str(skill))}: a file; name a folder") from None
        return
    try:
        from recommender.commands.mcp.server import serve
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in SDK:
            raise
        raise MaintenanceError("mcp needs the MCP SDK; run: pip install 'mcp>=2'") from None
    gc.enable()  # this process stays
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C would wait for the thread that reads stdin
    if sys.stdin.isatty():
        click.echo("recommend mcp: waiting for a client on stdin; Ctrl-C ends it", err=True)
    serve()


def _write_skill(folder: Path, force: bool) -> None:
    """Write the skill's files to a folder; without ``force`` none that would replace another text. Raises OSError."""
    from recommender.commands.output import require_no_work
    from recommender.common import atomic_write
    from recommender.knowledge.load import data_root

    folder.mkdir(parents=True, exist_ok=True)
    source = data_root() / "templates" / "skill"
    texts = {folder / path.name: path.read_text("utf-8") for path in sorted(source.glob("*.md"))}
    for path, text in texts.items() if not force else ():
        require_no_work("--skill", path, text)
    for path, text in texts.items():
        atomic_write.write(path, text)
        click.echo(str(path))
