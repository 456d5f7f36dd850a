"""The house: which module may import which, how long things are, and that records, not code, know the flags."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from artefacts import KNOWLEDGE

import recommender

PACKAGE = Path(recommender.__file__).parent
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("__"))
# The smoke run stands behind the flow: it uses it, and only the command line knows it.
REVIEW = sorted(
    str(path.relative_to(PACKAGE).with_suffix(""))
    for path in PACKAGE.glob("review/**/*.py")
    if not path.stem.startswith("__")
)
FLEET = sorted(f"fleet/{path.stem}" for path in PACKAGE.glob("fleet/*.py") if not path.stem.startswith("__"))
SMOKE = sorted(f"smoke/{path.stem}" for path in PACKAGE.glob("smoke/*.py") if not path.stem.startswith("__"))

# A request flows down this list; a module imports only from above itself.
FLOW = (
    "files",
    "records",
    "measured",
    "request",
    "store",
    "compiling",
    "conditions",
    "configuration",
    "shapes",
    "tokens",
    "facts",
    "checkpoint",
    "detect",
    "covered",
    "memory",
    "stations",
    "reductions",
    "ranges",
    "speed",
    "nearby",
    "candidates",
    "constraints",
    "choose",
    "nearest",
    "explain",
    "follow",
    "pipeline",
    "arguments",
    "container",
    "rendered",
    "checked",
    "render",
    "colour",
    "terminal",
    "report",
    "publish",
    "changes",
    "about",
    "beside",
)
# What reads a command line: its help shows options of LMDeploy in examples.
COMMANDS = ("cli", "estimate", "compare", "explaining", "diff", "listing", "checking")
# Maintenance stands beside the flow: it reads records and wheels, and no run-time module needs it.
MAINTENANCE = (
    "progress",
    "extracted",
    "drift",
    "parser",
    "stubbed",
    "extract",
    "verify",
    "drafts",
    "base",
    "linters",
    "check",
    "maintain",
    "build_hook",
)
# The two that compose, and what the list above lets them import.
COMPOSERS = ("pipeline", "cli")
# Imports made inside a function, against the order, each for a reason.
LATE = {
    ("store", "compiling"): "YAML and the checked types are loaded only when no current index is there",
    ("render", "report"): "one table of formats, each loaded only when asked for",
    ("render", "publish"): "one table of formats, each loaded only when asked for",
}


@cache
def tree(module: str) -> ast.Module:
    """A module's syntax tree."""
    return ast.parse((PACKAGE / f"{module}.py").read_text("utf-8"))


def typing_only(module: str) -> set[ast.AST]:
    """The nodes that only a type checker reads."""
    return {
        inner
        for node in ast.walk(tree(module))
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }


def imports(module: str) -> Iterator[tuple[str, bool]]:
    """Modules of the package that a module imports, and whether on top (not in a function)."""
    top = set(tree(module).body)
    skipped = typing_only(module)
    for node in ast.walk(tree(module)):
        if node in skipped or not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        first, _, rest = node.module.partition(".")
        if first != "recommender":
            continue
        for name in [rest] if rest else [alias.name for alias in node.names]:
            if name in MODULES:
                yield name, node in top


def test_every_module_has_its_place() -> None:
    """Each module stands in the flow, in maintenance, or is the command line."""
    assert set(MODULES) - set(COMMANDS) <= set(FLOW) | set(MAINTENANCE), "say where the new module stands"
    assert not set(FLOW) & set(MAINTENANCE)


@pytest.mark.parametrize("module", [name for name in FLOW if name in MODULES])
def test_the_flow_is_one_way(module: str) -> None:
    """A module of the flow imports only modules above it, but for the late imports that are listed with a reason."""
    above = FLOW[: FLOW.index(module)]
    against = {name for name, top in imports(module) if name not in above and (top or (module, name) not in LATE)}
    assert not against, f"{module} imports {against}"


@pytest.mark.parametrize("module", [name for name in MODULES if name in MAINTENANCE])
def test_maintenance_stays_out_of_the_flow(module: str) -> None:
    """Maintenance uses records, the store and its own modules; of the flow's steps only what describes them."""
    allowed = {*MAINTENANCE, "files", "records", "store", "compiling", "conditions", "configuration", "publish"}
    assert {name for name, _ in imports(module)} <= allowed
    users = {other for other in FLOW if other in MODULES and module in {name for name, _ in imports(other)}}
    assert not users


def test_only_the_command_line_knows_the_smoke_run() -> None:
    """No other module imports the smoke run, and the command line only when it is called."""
    users = {
        module: node in set(tree(module).body)
        for module in MODULES
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("recommender.smoke")
    }
    # arguments: --calibrate reads smoke runs; checking: the smoke run knows how an artefact's request is read.
    assert users == {"cli": False, "arguments": False, "checking": False}


def test_only_two_modules_compose() -> None:
    """pipeline.py and cli.py alone tie the steps together; no other module reaches most of them."""
    steps = {
        "request",
        "facts",
        "candidates",
        "constraints",
        "choose",
        "explain",
        "follow",
        "memory",
        "speed",
        "nearest",
    }
    reach = {module: len(steps & {name for name, _ in imports(module)}) for module in FLOW if module in MODULES}
    assert reach.pop("pipeline") >= 7
    assert max(reach.values()) <= 7, reach


def test_the_late_imports_are_still_needed() -> None:
    """Each listed exception is still in the code; one that went away goes from the list."""
    for module, name in LATE:
        assert (name, False) in set(imports(module)), (module, name)


# --- sizes

LONG_MODULES = {
    "records": "the record types are one vocabulary, read from top to bottom as documentation",
    "linters": "one small function a rule; splitting would only scatter the rules",
}
LONG_FUNCTIONS = {
    ("constraints", "fact_values"): "one line a name of the condition vocabulary; a table in all but syntax",
    ("facts", "gather"): "resolves each answer once, in order",
    ("publish", "published"): "one line a field of the published form",
    ("candidates", "_complete"): "one line a decided setting",
    ("render", "context"): "one line a name that templates see",
    ("follow", "configuration"): "one line a setting's LMDeploy default",
    ("smoke/record", "record"): "one line a field of the record",
}


@pytest.mark.parametrize("module", [*MODULES, *FLEET, *SMOKE, *REVIEW])
def test_modules_and_functions_are_short(module: str) -> None:
    """350 lines a module, 40 a function; what is longer is listed with its reason."""
    length = len((PACKAGE / f"{module}.py").read_text("utf-8").splitlines())
    assert length <= 350 or module in LONG_MODULES
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.FunctionDef):
            lines = node.end_lineno - node.lineno + 1  # type: ignore[operator]
            assert lines <= 40 or (module, node.name) in LONG_FUNCTIONS, f"{module}.{node.name}: {lines} lines"


@pytest.mark.parametrize("module", [*MODULES, *FLEET, *SMOKE, *REVIEW])
def test_each_module_says_what_it_is(module: str) -> None:
    """Each module, public class and public function has a docstring."""
    assert ast.get_docstring(tree(module))
    for node in tree(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{module}.{node.name}"


# --- flags are data


@cache
def flag_records() -> dict[str, str]:
    """Flag id and option of every record."""
    return {
        path.stem: yaml.safe_load(path.read_text("utf-8"))["option"] for path in (KNOWLEDGE / "flags").glob("*.yaml")
    }


def strings(module: str) -> Iterator[str]:
    """The string constants of a module, docstrings left out."""
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


# Words that are a flag's id and mean something else where they stand.
OTHER_MEANINGS = {
    "dtype": "the field of a checkpoint's config.json, or a setting",
    "backend": "a setting",
    "communicator": "a setting",
    "tp": "a setting",
    "device": "no flag here",
    "role": "no flag here",
    "revision": "the revision of a checkpoint",
    "async": "a keyword",
    "adapters": "no flag here",
}


@pytest.mark.parametrize("module", [name for name in MODULES if name in FLOW and name != "records"])
def test_no_step_names_a_flag(module: str) -> None:
    """No module of the flow holds a flag's option string or its id: that is the records' business."""
    known = flag_records()
    options = set(known.values())
    for text in strings(module):
        named = options.intersection(re.findall(r"--[a-z][a-z-]+", text))
        assert not named, f"{module}: {text!r} names {named}"
        assert text not in known or text in OTHER_MEANINGS, f"{module}: {text!r} is a flag's id"


def test_templates_name_no_decided_flag() -> None:
    """The templates write options from the records; they name only those of keys, revision and proxy themselves."""
    known = set(flag_records().values())
    allowed = {"--api-keys", "--revision", "--server-name", "--server-port"}
    for path in sorted((KNOWLEDGE.parent / "templates").glob("*.j2")):
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", path.read_text("utf-8"))) & known
        assert named <= allowed, path.name


# --- no network, no evaluation

NETWORK = {"socket", "ssl", "http", "urllib", "requests", "httpx", "aiohttp", "ftplib", "smtplib", "asyncio", "xmlrpc"}


@pytest.mark.parametrize("module", [*[name for name in MODULES if name in FLOW], "cli"])
def test_no_step_reaches_the_network_or_evaluates_text(module: str) -> None:
    """At run time nothing imports a network module, and nothing is passed to eval, exec or a shell."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            names = {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module or "").partition(".")[0]}
        else:
            names = set()
        assert not names & NETWORK, f"{module} imports {names & NETWORK}"
        if isinstance(node, ast.Call):
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            assert called not in ("eval", "exec", "system", "popen"), f"{module} calls {called}"
            assert not any(each.arg == "shell" for each in node.keywords), module


@pytest.mark.parametrize("module", [name for name in MODULES if name in FLOW and name != "detect"])
def test_only_detect_starts_a_process(module: str) -> None:
    """No step but the GPU's detection starts another program."""
    text = (PACKAGE / f"{module}.py").read_text("utf-8")
    assert "subprocess" not in text


@pytest.mark.parametrize("module", [name for name in MODULES if name in FLOW])
def test_no_step_asks_the_clock_or_the_host(module: str) -> None:
    """What is written depends on request and knowledge alone: no step reads a clock, a host name or chance."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            assert not {alias.name for alias in node.names} & {
                "time",
                "datetime",
                "random",
                "platform",
                "uuid",
                "socket",
            }
        if isinstance(node, ast.ImportFrom):
            assert node.module not in ("time", "datetime", "random", "platform", "uuid", "secrets")


# Files whose tests are told by their names; no file joins them.
TOLD_BY_NAME = {
    "test_seeds.py",
    "test_conditions.py",
    "test_extract.py",
    "test_shapes.py",
    "test_tokens.py",
    "test_verify.py",
}


def test_the_tests_say_what_they_show() -> None:
    """Every test has a docstring that states one behaviour, but in the files listed above."""
    silent = []
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in [] if path.name in TOLD_BY_NAME else ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node):
                silent.append(f"{path.name}: {node.name}")
    assert not silent


def test_the_run_loads_few_modules() -> None:
    """The main job loads neither pydantic nor YAML nor the maintenance modules once the index is there."""
    import subprocess

    code = (
        "import sys\n"
        "sys.argv = ['recommend', '--gpu', 'A100-80G', '-q', '--format', 'bash']\n"
        "import recommender.cli\nrecommender.cli.main()\n"
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=KNOWLEDGE.parent, capture_output=True, text=True, timeout=60
        )
    loaded = set(re.findall(r"'([^']+)'", done.stderr))
    assert "recommender.pipeline" in loaded
    assert not loaded & {"pydantic", "yaml", *(f"recommender.{name}" for name in MAINTENANCE)}
