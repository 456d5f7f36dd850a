"""Find the server behind wrappers: sudo, env, numactl, docker run, bash -c."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from recommender.common.pattern import pattern
from recommender.review.script.docker_run import ASSIGNED, DOCKERS, DockerRun
from recommender.review.script.images import image_before, image_word
from recommender.review.script.launches import MODULES, NO_MODULE
from recommender.review.script.model import Container, ReadProblem, Starts, Word
from recommender.review.script.placeholders import FILLED, fill, with_arguments
from recommender.review.script.source_map import Field, SourceText

_WRAPPERS = """
    sudo doas nohup setsid time command builtin exec ionice nice chrt taskset numactl stdbuf timeout srun mpirun
    mpiexec conda mamba micromamba uv uvx poetry pipenv pdm apptainer singularity nsys strace ltrace gosu su-exec
    tini dumb-init unbuffer catchsegv screen tmux env proxychains proxychains4 xvfb-run systemd-run flock chroot
    unshare cgexec runuser su accelerate kubectl oc ssh eval torchrun hatch rye pixi script watch xargs
    start-stop-daemon sbatch salloc pipx parallel ansible gcloud pdsh clush wsl bsub qsub at
"""
WRAPPERS = frozenset(_WRAPPERS.split())
SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ash", "ksh"})
# Programs whose arguments may name a server without starting it.
_QUIET = """
    echo printf grep egrep pgrep pkill kill killall which type cat tee logger ls pip pip3 test [ [[ man help sed awk
    log info warn error die apt apt-get brew npm git alias export read ps rm cp mv touch mkdir cd curl wget
    systemctl journalctl supervisorctl nc python3-config conda-lock watch tail head less lsof fuser nvidia-smi jq
    source . : say Write-Host Write-Output unset local declare set shift trap return exit basename dirname
"""
QUIET = frozenset(_QUIET.split())
PYTHON = pattern(r"(?:pypy|python)[\d.]*")
PINNED = pattern(r"lmdeploy(?:\[[\w,-]*\])?(?:@|={2,3})[\w.]+")
TOOLS = frozenset({"lite", "chat", "convert", "check_env"})
DEEPEST = 12


@dataclass
class Unwrapped:
    """The words from the program on, or a script that another shell runs."""

    fields: list[Field]
    environment: dict[str, Word]
    container: Container | None = None
    image: Word | None = None
    """That of Slurm or Apptainer."""
    starts: Starts | None = None
    nested: Field | None = None
    background: bool = False
    server: bool = False
    unread: list[ReadProblem] = field(default_factory=list)
    arguments: list[Field] | None = field(default_factory=list)
    """The words behind the script, which it has as $0, $1…; None if whoever runs it later gives them."""
    filled: bool = False
    """Another program puts words into the command, so that it is not written as it runs."""
    container_name: str = ""
    """The container that docker starts, or in which it runs the words."""


def program(field: Field) -> str:
    """Return a program's name without its folder, and without a pinned release (``lmdeploy==0.18.0`` of uvx, pipx)."""
    name = (field.value or "").rpartition("/")[2]
    return "lmdeploy" if PINNED.fullmatch(name) else name


def unwrap(page: SourceText, fields: Sequence[Field], environment: dict[str, Word]) -> Unwrapped:
    """Remove wrappers; ``server`` is set if lmdeploy or a module of it remains."""
    unwrapped = Unwrapped(list(fields), environment)
    for _ in range(DEEPEST):
        if not unwrapped.fields or unwrapped.server or unwrapped.nested:
            break
        before = unwrapped.fields
        _step(page, unwrapped)
        kept = 0 if unwrapped.nested else len(unwrapped.fields)
        if unwrapped.container is None:
            unwrapped.image = image_before(page, before[: len(before) - kept]) or unwrapped.image
        if unwrapped.fields is before:
            break
    return unwrapped


def _step(page: SourceText, unwrapped: Unwrapped) -> None:
    """Remove one wrapper."""
    name = program(unwrapped.fields[0])
    if name in DOCKERS:
        _docker(page, unwrapped)
    elif name in SHELLS:
        _shell(unwrapped)
    elif name == "lmdeploy":
        unwrapped.server = True
    elif PYTHON.fullmatch(name) or (name == "" and _module(unwrapped.fields) is not None):
        _python(unwrapped)
    elif name in WRAPPERS:
        _wrapper(page, unwrapped, name)
    elif _serves(unwrapped.fields, 0):
        unwrapped.server = True  # "$BIN" serve api_server
    elif name not in QUIET:
        at = next((at for at in range(1, len(unwrapped.fields)) if _serves(unwrapped.fields, at)), 0)
        if at and program(unwrapped.fields[at]) == "lmdeploy":
            unwrapped.fields, unwrapped.server = unwrapped.fields[at:], True


def _serves(fields: Sequence[Field], at: int) -> bool:
    """Return whether ``lmdeploy serve`` or ``$BIN serve`` is here."""
    if at + 1 >= len(fields) or fields[at + 1].value != "serve":
        return False
    third = fields[at + 2].value if at + 2 < len(fields) else None
    if program(fields[at]) == "lmdeploy":
        return at == 0 or third in ("api_server", "proxy", "gradio")
    return fields[at].value is None and third in ("api_server", "proxy")


def _module(fields: Sequence[Field]) -> int | None:
    """Return the index of the module after ``-m``."""
    for at, word in enumerate(fields[1:-1], 1):
        if word.value == "-m":
            return at + 1
        if word.value is None or not word.value.startswith("-"):
            if fields[at - 1].value in ("-X", "-W"):
                continue
            return None
    return None


def _python(unwrapped: Unwrapped) -> None:
    at = _module(unwrapped.fields)
    value = unwrapped.fields[at].value if at is not None else None
    if at is None:  # a path to the program: python3 /opt/py3/bin/lmdeploy serve
        at = next((at for at in range(1, min(4, len(unwrapped.fields))) if _serves(unwrapped.fields, at)), None)
        value = "lmdeploy" if at else None
    if at is None or value is None:
        return
    if value == "lmdeploy" or value in MODULES or NO_MODULE.fullmatch(value):
        unwrapped.starts = MODULES.get(value, "api_server" if value != "lmdeploy" else None)
        unwrapped.fields, unwrapped.server = unwrapped.fields[at:], True


def _shell(unwrapped: Unwrapped) -> None:
    """Unwrap ``bash -c SCRIPT``, also ``bash -lc`` and ``sh -e -c``."""
    for at, word in enumerate(unwrapped.fields[1:], 1):
        text = word.value or ""
        if not text.startswith(("-", "+")):
            return
        if "c" in text and not text.startswith("--"):
            if at + 1 < len(unwrapped.fields):
                unwrapped.nested, unwrapped.arguments = unwrapped.fields[at + 1], unwrapped.fields[at + 3 :]
            return


WRAP = pattern(r"--wrap=")
RETURNS = pattern(r"-d[A-Za-z]*|send(?:-keys)?|stuff")
"""``tmux new -d``, ``screen -dmS`` and keys that are sent return at once."""
HEADS = WRAPPERS | SHELLS | DOCKERS | {"lmdeploy"}


def _wrapper(page: SourceText, unwrapped: Unwrapped, name: str) -> None:
    """Skip the wrapper's own options to the first known program."""
    environment = dict(unwrapped.environment)
    if name in ("tmux", "screen") and any(RETURNS.fullmatch(field.known_prefix) for field in unwrapped.fields[1:]):
        unwrapped.background = True
    if name in FILLED and _fill(page, unwrapped, name):
        return
    texts = [field.value for field in unwrapped.fields]
    if (name == "sudo" and not {"-E", "--preserve-env"} & set(texts)) or (name == "env" and {"-i", "-"} & set(texts)):
        environment = {}
    for at in range(1, len(unwrapped.fields)):
        field = unwrapped.fields[at]
        assigned = ASSIGNED.match(field.known_prefix)
        wrapped = WRAP.match(field.known_prefix)
        if wrapped:
            unwrapped.nested, unwrapped.environment = field.after(wrapped.end(), page.text), environment
            return
        if assigned and name in ("env", "sudo", "doas"):
            environment[assigned[1]] = page.word(field.after(assigned.end(), page.text))
        elif _starts(unwrapped.fields, at, texts):
            unwrapped.fields, unwrapped.environment = unwrapped.fields[at:], environment
            return
        elif _is_command(field) and name not in ("watch", "script"):
            unwrapped.nested, unwrapped.environment = field, environment
            return
    if name == "eval" and len(unwrapped.fields) > 1:
        unwrapped.nested = unwrapped.fields[1]


def _fill(page: SourceText, unwrapped: Unwrapped, name: str) -> bool:
    """Go on with the command of parallel or xargs; return whether there is one."""
    filling = fill(unwrapped.fields, name)
    unwrapped.filled = unwrapped.filled or filling.changed
    words = filling.command
    while (
        name == "parallel"
        and words
        and (assigned := ASSIGNED.match(words[0].known_prefix))
        and " " not in words[0].known_prefix
    ):
        value = page.word(words[0].after(assigned.end(), page.text))
        unwrapped.environment, words = {**unwrapped.environment, assigned[1]: value}, words[1:]
    if name == "parallel" and words and _is_command(words[0]):
        unwrapped.nested = with_arguments(words[0]) if words[1:] else words[0]
        unwrapped.arguments = words[1:]
    unwrapped.fields = words or unwrapped.fields
    return bool(words)


def _is_command(field: Field) -> bool:
    """Return whether a word is a command of LMDeploy, whatever a run puts into it."""
    text = "".join(piece.text or "" for piece in field.pieces)
    return "lmdeploy" in text and " " in text and (field.value is not None or field.inner is not None)


def _starts(fields: list[Field], at: int, texts: list[str | None]) -> bool:
    """Return whether a known program is here, not an option's value."""
    name = program(fields[at])
    if name == "lmdeploy":  # or the name of an environment: `conda run -n lmdeploy lmdeploy serve`
        return _serves(fields, at) or (at + 1 < len(fields) and fields[at + 1].value in TOOLS)
    if fields[at].value is None:
        return _serves(fields, at) or (name == "" and _serves(fields[at:], 0)) or _python_at(fields, at)
    if PYTHON.fullmatch(name):
        return _python_at(fields, at)
    return (name in HEADS and not (texts[at - 1] or "").startswith("-")) or (name in SHELLS and "-c" in texts[at:])


def _python_at(fields: list[Field], at: int) -> bool:
    module = _module(fields[at:])
    if module is None:
        return any(_serves(fields, place) for place in range(at + 1, min(at + 4, len(fields))))
    return (fields[at + module].value or "").startswith("lmdeploy")


# --- docker


def _docker(page: SourceText, unwrapped: Unwrapped) -> None:
    texts = [field.value for field in unwrapped.fields]
    at = next((at for at, text in enumerate(texts[:8]) if text in ("run", "exec", "create")), 0)
    if not at:
        return
    if "compose" in texts[:at]:
        at = next((index for index in range(at, len(texts)) if _starts(unwrapped.fields, index, texts)), 0)
        unwrapped.fields = unwrapped.fields[at:] if at else unwrapped.fields
        return
    docker = program(unwrapped.fields[0])
    options = DockerRun(page, unwrapped.environment, page.place(unwrapped.fields[0].start, unwrapped.fields[0].end))
    rest = options.read(unwrapped.fields[at + 1 :])
    if not rest:
        return
    entrypoint, name = options.given.get("--entrypoint"), options.given.get("--name")
    command, entered = [*([entrypoint] if entrypoint else ()), *rest[1:]], texts[at] == "exec"
    unwrapped.container_name = (rest[0].value if entered else name and name.value) or ""
    image, without = image_word(page, rest[0]), options.container.without_gpus and docker != "nvidia-docker"
    unwrapped.container = None if entered else options.container._replace(image=image, without_gpus=without)
    if not command:
        return
    unwrapped.fields, unwrapped.environment = command, options.environment
    unwrapped.background = unwrapped.background or options.detached
    unwrapped.unread += options.unread
