"""Say what becomes of a server's option that was given to ``recommend`` itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

INSTEAD = {
    "backend": "--backend",
    "cache_ratio": "--vram",
    "kv_bits": "--kv",
    "max_batch_size": "--load",
    "model_format": "--model",
    "revision": "--revision",
    "session_len": "--max-context",
    "tp": "--gpu NAME:COUNT",
}
"""By a setting: the option of ``recommend`` that steers it."""


def explain_server_option(name: str, command: click.Command) -> str:
    """Return what to do with an option of LMDeploy's server or of another server; empty if it is neither."""
    from recommender.knowledge.load import load
    from recommender.knowledge.other_servers import closest_option

    other = closest_option(name).partition(" ")[0]
    named = (other, name.replace("_", "-"))
    flag = next((each for each in load().flags.values() if each.option in named), None)
    if flag is None:
        return ""
    if any(flag.option in each.opts for each in command.params):
        return f"did you mean {flag.option}?"
    theirs = f"LMDeploy's is {flag.option}" if other else "it is LMDeploy's own"
    asking = {each.name for each in command.params} >= {"gpu", "model"}
    if command.name == "estimate":
        return f"{theirs}: write it after --, as in recommend estimate --gpu L4 -- {flag.option} ..."
    if command.name == "review" or not (asking and flag.setting):
        return f"{theirs}: it belongs in the launch script; see recommend explain {flag.id}"
    steer = f"set here by {INSTEAD[flag.setting]}" if flag.setting in INSTEAD else "chosen here"
    return f"{theirs}, {steer}; for a value of yours: recommend estimate --gpu L4 -- {flag.option} ..."
