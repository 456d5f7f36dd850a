"""A machine of stand-ins for tests of ``recommend smoke``: cards, LMDeploy and its tools, without any of them.

``Standin(tmp_path)`` makes the folders; ``environment()`` is what to run a command with. Faults are named by the
``fault`` field (STANDIN_FAULT), ``name`` or ``name:argument``:

absent, other-release[:VERSION]   no LMDeploy for python3, or another one than asked for
crash-start, oom-start, few-blocks, hang-start, slow-start:SECONDS, unsupported-model, fallback, garbage-log    at start
settings                          runs with half the session length
oom-image[:N[:die|500|abort]]     no memory for the N-th picture
die-under-load:N, hang-requests:N, error-200[:N]   after N requests
malformed-json                    answers to a schema are cut in half
stubborn, forks                   ignores SIGTERM and SIGINT; leaves a daemon that holds the port

With STANDIN_SEES set, answers to a schema depend on the picture's colour and on the settings: see Engine.look.

By nature, without a fault: a taken port, a KV region too small for the warm-up (hangs), a card that others fill
(out of memory), an input that fills the session (HTTP 400), a folder without config.json, custom code without
--trust-remote-code, and the proxy's HTTP 200 for a dead server.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from recommender.smoke.weights.write import MADE_BY

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


@dataclass
class Standin:
    """One machine in a folder. ``cards`` 0: no GPU. ``step_ms``: time of one output token."""

    folder: Path
    version: str = "0.18.0"
    fault: str = ""
    cards: int = 1
    step_ms: float = 1.0
    variables: dict[str, str] = field(default_factory=dict)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        """Makes the folders, the tools and the installed packages."""
        for name in ("bin", "home", "state", "work", "site"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for tool in (HERE / "bin").iterdir():
            shutil.copy(tool, self.folder / "bin" / tool.name)
        self.tool("python3", f'#!/bin/bash\nexec "{sys.executable}" "$@"\n')
        (self.folder / "site" / "pynvml.py").symlink_to(HERE / "site" / "pynvml.py")
        name, _, argument = self.fault.partition(":")
        if name == "absent":
            return
        version = (argument or "0.17.0") if name == "other-release" else self.version
        self.tool("lmdeploy", f"#!{sys.executable}\nfrom lmdeploy.__main__ import run\nrun()\n")
        (self.folder / "site" / "lmdeploy").symlink_to(HERE / "site" / "lmdeploy")
        about = self.folder / "site" / f"lmdeploy-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: lmdeploy\nVersion: {version}\n")

    def tool(self, name: str, body: str) -> None:
        """Puts an executable on the PATH."""
        path = self.folder / "bin" / name
        path.write_text(body, encoding="utf-8")
        path.chmod(0o755)

    def environment(self, **changed: str) -> dict[str, str]:
        """A bare environment: no variable of the tester's own is in it."""
        return {
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "PYTHONPATH": f"{self.folder / 'site'}:{REPOSITORY}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(self.folder / "home"),
            "LC_ALL": "C.UTF-8",
            "STANDIN_STATE": str(self.folder / "state"),
            "STANDIN_CARDS": str(self.cards),
            "STANDIN_FAULT": self.fault,
            "STANDIN_STEP_MS": str(self.step_ms),
            "STANDIN_TOKEN": self.token,
            **self.variables,
            **changed,
        }

    def model(self, name: str = "model", *, synthetic: bool = True, **changed: object) -> Path:
        """A model folder with an InternVL3-8B-AWQ's config.json and no weights."""
        text = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 3584,
                "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
                "num_key_value_heads": 4, "max_position_embeddings": 32768, "vocab_size": 151674,
                "tie_word_embeddings": False, "torch_dtype": "float16"}  # fmt: skip
        vision = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
                  "image_size": 448, "patch_size": 14}  # fmt: skip
        made = {"architectures": ["InternVLChatModel"], "model_type": "internvl_chat", "llm_config": text,
                "vision_config": vision, "torch_dtype": "float16", "downsample_ratio": 0.5, "max_dynamic_patch": 12,
                "min_dynamic_patch": 1, "use_thumbnail": True, "dynamic_image_size": True, "force_image_size": 448,
                "auto_map": {"AutoConfig": "configuration_synthetic.SyntheticChatConfig"},
                "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}  # fmt: skip
        mark = {"synthetic": {"model": "internvl3-8b-awq", "seed": 0, "made_by": MADE_BY}} if synthetic else {}
        folder = self.folder / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(mark | made | changed))
        return folder

    def start(self, *words: str, log: Path | None = None, **variables: str) -> subprocess.Popen[bytes]:
        """Starts a command of this machine in a session of its own, its output in a file."""
        with (log or self.folder / "log").open("wb") as output:
            return subprocess.Popen(
                words,
                env=self.environment(**variables),
                cwd=self.folder / "work",
                executable=shutil.which(words[0], path=self.environment()["PATH"]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def processes(self) -> dict[int, str]:
        """Every live process that was started from this machine's environment, with its command line."""
        mark, found = f"STANDIN_TOKEN={self.token}".encode(), {}
        for path in Path("/proc").iterdir():
            if not path.name.isdigit() or int(path.name) == os.getpid():
                continue
            try:  # a zombie's environment reads as empty
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    words = (path / "cmdline").read_bytes().split(b"\0")
                    found[int(path.name)] = b" ".join(words).decode("utf-8", "replace")
            except OSError:
                continue
        return found
