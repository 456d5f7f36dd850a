"""``recommend mcp``: the recommender as tools of chatbots and other programs, by the Model Context Protocol."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import click

from recommender.commands.short_help import ShortCommand
from recommender.common.errors import MaintenanceError

HELP = """\b
The tools are recommend, estimate, review, explain, compare and diff. The
server speaks MCP on stdin and stdout and opens no port. It needs the MCP SDK:
pip install 'mcp>=2'.

\b
Examples:
  claude mcp add lmdeploy -- recommend mcp
  recommend mcp --skill ~/.claude/skills/lmdeploy
"""
INSTRUCTIONS = (
    "Facts about serving models with LMDeploy's TurboMind engine: settings with reasons, predictions with ranges, and "
    "reviews of launch scripts. Answers end with sources, or say that they are unverified. Pass on ranges and "
    "warnings, and do not recall options or numbers that a tool can give."
)


@click.command("mcp", cls=ShortCommand, epilog=HELP)
@click.option("--skill", metavar="DIR", type=click.Path(path_type=Path), help="Write the agent skill to DIR and exit.")
def command(skill: Path | None) -> None:
    """Serve the recommender as tools to a chatbot or another program (MCP)."""
    if skill:
        _write_skill(skill)
        return
    try:
        import anyio
        from mcp.server.lowlevel import Server
        from mcp.server.stdio import stdio_server
    except ImportError:  # also a release before 2, which has these under other names
        raise MaintenanceError("mcp needs the MCP SDK; run: pip install 'mcp>=2'") from None
    from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations

    from recommender import __version__
    from recommender.commands.mcp_tools import TOOLS, call

    async def list_tools(_context: object, _page: object) -> ListToolsResult:
        hints = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
        return ListToolsResult(
            tools=[
                Tool(name=name, description=each.__doc__, input_schema=each.model_json_schema(), annotations=hints)
                for name, each in TOOLS.items()
            ]
        )

    async def call_tool(_context: object, asked: CallToolRequestParams) -> CallToolResult:
        text, failed = call(asked.name, asked.arguments or {})  # here, in the main thread: reviews set a timer
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)

    server = Server(
        "lmdeploy-recommender",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )

    async def serve() -> None:
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    gc.enable()  # this process stays
    if sys.stdin.isatty():
        click.echo("recommend mcp: waiting for a client on stdin; Ctrl-C ends it", err=True)
    anyio.run(serve)


def _write_skill(folder: Path) -> None:
    """Write the skill's files to a folder. Raises OSError."""
    from recommender.common import atomic_write
    from recommender.knowledge.load import data_root

    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((data_root() / "templates" / "skill").glob("*.md")):
        atomic_write.write(folder / path.name, path.read_text("utf-8"))
        click.echo(str(folder / path.name))
