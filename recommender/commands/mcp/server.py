"""The MCP server on stdin and stdout. Its imports need the SDK."""

from __future__ import annotations

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations

from recommender import __version__
from recommender.commands.mcp.tools import TOOLS, call

INSTRUCTIONS = (
    "Facts about serving models with LMDeploy's TurboMind engine: settings with reasons, predictions with ranges, and "
    "reviews of launch scripts. Answers cite sources, or say that they are unverified. Pass on ranges and warnings, "
    "and do not recall options or numbers that a tool can give. --name in an answer is the argument name of a tool."
)


def serve() -> None:
    """Answer until stdin ends."""
    anyio.run(_serve)


async def _serve() -> None:
    server = Server(
        "lmdeploy-recommender",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
    )
    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())


async def _list_tools(_context: object, _page: object) -> ListToolsResult:
    hints = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    return ListToolsResult(
        tools=[
            Tool(name=name, description=each.__doc__, input_schema=each.model_json_schema(), annotations=hints)
            for name, each in TOOLS.items()
        ]
    )


async def _call_tool(_context: object, params: CallToolRequestParams) -> CallToolResult:
    text, failed = call(params.name, params.arguments or {})  # here, in the main thread: a review sets a timer
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)
