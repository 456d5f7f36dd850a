"""Stand-in for LMDeploy: the parts of its Python interface that a pipeline artefact uses, with made-up answers."""

from __future__ import annotations

import os
import queue
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from lmdeploy import engine
from lmdeploy.engine import Engine, TurbomindEngineConfig


@dataclass
class GenerationConfig:
    """The fields that artefacts set, and their defaults."""

    max_new_tokens: int = 512
    do_sample: bool = False
    top_p: float = 1.0
    top_k: int = 50
    min_p: float = 0.0
    temperature: float = 0.8
    repetition_penalty: float = 1.0
    ignore_eos: bool = False
    random_seed: int | None = None
    response_format: dict[str, Any] | None = None


@dataclass
class Response:
    """One answer."""

    text: str
    generate_token_len: int
    input_token_len: int
    finish_reason: str
    index: int = 0


class Pipeline:
    """Answers prompts in the process itself; ``backend_config`` and ``async_engine`` tell the settings in effect."""

    def __init__(
        self, model: str, backend_config: Any = None, *, log_level: str = "WARNING", trust_remote_code: bool = False
    ) -> None:
        os.environ.setdefault("TM_LOG_LEVEL", log_level)
        config = backend_config or TurbomindEngineConfig()
        self._engine = Engine(model, config, model, log_level=log_level, trust_remote_code=trust_remote_code)
        self._engine.start()
        self.backend_config = self._engine.config
        self.async_engine = SimpleNamespace(
            backend=self._engine.backend,
            backend_config=self.backend_config,
            session_len=self.backend_config.session_len,
            model_name=model,
            arch=self._engine.arch,
            engine=SimpleNamespace(engine_config=self.backend_config),
        )

    def __call__(self, prompts: Any, gen_config: GenerationConfig | None = None, **_: Any) -> Any:
        """Answers of a list of prompts, or of one."""
        if isinstance(prompts, str | tuple):
            return self._one(prompts, gen_config or GenerationConfig(), 0)
        return [self._one(prompt, gen_config or GenerationConfig(), at) for at, prompt in enumerate(prompts)]

    infer = __call__

    def _one(self, prompt: Any, asked: GenerationConfig, index: int) -> Response:
        text, *images = (prompt,) if isinstance(prompt, str) else prompt
        content = [{"type": "text", "text": text}] + [{"type": "image", "size": each.size} for each in images]
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": asked.max_new_tokens}
        body |= {"ignore_eos": asked.ignore_eos, "response_format": asked.response_format}
        reply = self._engine.prepare(body)
        if reply.hangs:
            queue.Queue().get()
        said = "".join(self._engine.tokens(reply))
        return Response(said, len(reply.text), reply.prompt, reply.finish, index)

    def close(self) -> None:
        """Frees the card."""
        self._engine.leave()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


pipeline = Pipeline
__version__ = engine.RELEASE
