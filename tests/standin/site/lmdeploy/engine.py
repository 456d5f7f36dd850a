"""Stand-in for the engine: its settings, its log at start, its arithmetic, its answers and its faults."""

from __future__ import annotations

import ast
import base64
import enum
import hashlib
import importlib.metadata
import io
import json
import math
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, make_dataclass, replace
from pathlib import Path
from typing import Any

from recommender.knowledge.load import data_root
from recommender.maintenance.wheel_facts import load_extracted

MIB = 2**20
PAGE = 32 * MIB
CARD_MIB, IDLE_MIB, WEIGHTS_MIB, REQUEST_MIB = 81559, 480, 8155, 24
STEPS = (8, 16, 32, 48, *(2**power * step for power in range(6, 16) for step in (1, 1.5)), 65536)
LEVELS = {"DEBUG": 0, "INFO": 1, "WARN": 2, "WARNING": 2, "ERROR": 3, "FATAL": 4, "CRITICAL": 4}
ARCHITECTURES = ("InternVLChatModel", *(f"{name}ForCausalLM" for name in ("Qwen2", "Qwen3", "Llama", "InternLM2")))
RELEASE = importlib.metadata.version("lmdeploy")
SERIES = tuple(int(part) for part in RELEASE.split("+")[0].split(".")[:2])
FACTS = load_extracted(data_root() / "knowledge" / "extracted" / "api_server.json")
FAULT, *ARGUMENTS = os.environ.get("STANDIN_FAULT", "").split(":")
ARGUMENT = ARGUMENTS[0] if ARGUMENTS else ""
# The order in which 0.18.0 prints them; fields of other releases come behind.
ORDER = """dtype gemm_input_dtype model_format tp dp cp ep device_num attn_tp_size attn_cp_size attn_dp_size mlp_tp_size
mlp_dp_size outer_dp_size nnodes node_rank dist_init_addr devices session_len max_batch_size cache_max_entry_count
cache_chunk_size cache_block_seq_len enable_prefix_caching cache_checkpoint_interval cache_prompt
cache_prompt_boundary_skip cache_generation quant_policy rope_scaling_factor use_logn_attn download_dir revision
max_prefill_token_num num_tokens_per_iter max_prefill_iters async_ empty_init language_model_only communicator
moe_a2a_backend hf_overrides enable_metrics"""


class QuantPolicy(enum.IntEnum):
    """Bits of the KV cache, as releases from 0.13.0 print them."""

    NONE = 0
    INT4 = 4
    INT8 = 8


def _configuration() -> Any:
    """The release's TurbomindEngineConfig, from the extracted facts."""
    found = {item.field: item.default for item in FACTS.release(RELEASE.split("+")[0]).fields
             if item.config == "TurbomindEngineConfig"}  # fmt: skip
    order = ORDER.split()
    names = sorted(found, key=lambda name: order.index(name) if name in order else len(order))
    return make_dataclass("TurbomindEngineConfig", [(name, Any, ast.literal_eval(found[name])) for name in names])


TurbomindEngineConfig = _configuration()


class Refused(Exception):
    """A request that is answered with an HTTP error."""

    def __init__(self, status: int, message: str, kind: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status = status
        self.body = {"message": message, "type": kind, "code": status, "param": None, "object": "error"}


@dataclass(frozen=True)
class Reply:
    """What will be answered: prompt tokens, the text (one token a character), and how it ends."""

    prompt: int
    text: str
    finish: str
    hangs: bool = False


def open_image(data: bytes) -> Any:
    """A decoded image."""
    from PIL import Image

    return Image.open(io.BytesIO(data))


def tiles(width: int, height: int, most: int) -> int:
    """Tiles of 448 x 448 that an InternVL model cuts a picture into, the thumbnail included."""
    grids = sorted({(i, j) for i in range(1, most + 1) for j in range(1, most + 1) if i * j <= most}, key=math.prod)
    best, least = (1, 1), math.inf
    for i, j in grids:
        off = abs(width / height - i / j)
        if off < least or (off == least and width * height > 0.5 * 448 * 448 * i * j):
            best, least = (i, j), off
    return math.prod(best) + (math.prod(best) > 1)


def instance(schema: dict[str, Any], truth: bool = False) -> Any:
    """The plainest value that a JSON schema allows; of a boolean, whether ``truth`` was seen in the picture."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    if kind == "object":
        return {name: instance(each, truth) for name, each in schema.get("properties", {}).items()}
    return {"boolean": truth, "integer": 0, "number": 0, "array": [], "string": "none"}.get(kind)


def use(cards: dict[int, int]) -> None:
    """Writes down the memory that this process holds, in bytes by card."""
    path = Path(os.environ["STANDIN_STATE"]) / str(os.getpid())
    part = path.with_suffix(".part")
    part.write_text(json.dumps(cards))
    part.rename(path)


def die(number: int) -> None:
    """Ends this process as a native crash does, without a core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.flush()
    os.kill(os.getpid(), number)
    time.sleep(10)


class Engine:
    """One engine: ``start`` logs as the real one does and takes memory, ``prepare`` and ``tokens`` answer."""

    def __init__(self, model: str, config: Any, name: str, *, log_level: str, trust_remote_code: bool = True) -> None:
        self.model, self.name, self.backend = model, name, "turbomind"
        self.asked, self.trusted = config, trust_remote_code
        self.level, self.native = LEVELS[log_level], LEVELS.get(os.environ.get("TM_LOG_LEVEL", "").upper(), 2)
        self.lock = threading.Lock()
        self.seen = self.pictures = self.running = self.waiting = self.done = self.failed = 0
        self.prompt_tokens = self.output_tokens = 0
        self.stopping = False
        self.known: set[str] = set()

    def say(self, level: str, place: str, text: str) -> None:
        """A line of LMDeploy's Python log, on standard output."""
        if LEVELS[level] >= self.level:
            now = time.time()
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
            print(f"{stamp},{int(now % 1 * 1000):03d} - lmdeploy - {level} - {place} - {text}", flush=True)

    def tm(self, level: str, place: str, text: str) -> None:
        """A line of TurboMind's log, on standard error."""
        if LEVELS[level] >= self.native:
            now = time.time()
            stamp = time.strftime("%m%d.%H:%M:%S", time.localtime(now))
            print(f"[TM][{level}][{stamp}.{int(now % 1 * 1e6):06d}][{place}] {text}", file=sys.stderr, flush=True)

    def out_of_memory(self, line: int, scope: str) -> None:
        """What TurboMind does when cudaMalloc fails: from 0.14.0 a fatal line, a trace and an abort."""
        if SERIES < (0, 14):
            source = "/opt/lmdeploy/src/turbomind/core/allocator.cc:49"
            raise RuntimeError(f"[TM][ERROR] CUDA runtime error: out of memory {source}")
        self.tm("FATAL", f"allocator.cc:{line}", "CUDA error: out of memory")
        trace = f"  [ 0] TM_CUDA_CHECK @ src/turbomind/core/allocator.cc:{line}\n  [ 1] {scope}\n"
        print(f"*** stacktrace of thread 0x7f3a5cdfe640 ***\n{trace}", end="", file=sys.stderr, flush=True)
        die(signal.SIGABRT)

    def start(self) -> None:
        """Everything up to readiness."""
        self.faults_before()
        self.read_model()
        self.settle()
        if self.backend == "pytorch":
            self.say("INFO", "async_engine.py:133", "input backend=pytorch, backend_config=PytorchEngineConfig(tp=1)")
            use(dict.fromkeys(self.cards, (WEIGHTS_MIB + 60000) * MIB))
            return
        self.say("INFO", "async_engine.py:133", f"input backend=turbomind, backend_config={self.asked}")
        c = self.config
        shown = f"dtype={c.dtype}, state_dtype={c.dtype}, session_len={c.session_len}"
        shown += f", max_batch_size={c.max_batch_size}, devices={self.cards}, tp={c.tp}"
        self.say("INFO", "turbomind.py:271", f"turbomind engine config:\n\n{shown}, dp=1, cp=1, ep=1")
        self.tm("WARN", "turbomind.cc:128", f"`max_context_token_num` is not set, default to {c.session_len}.")
        print(f"\rLoading: 100%|##########| {self.layers}/{self.layers} [00:01<00:00]", file=sys.stderr, flush=True)
        for card in self.cards:
            self.take_cache(card)
        self.hold()
        self.warm_up()
        self.say("INFO", "async_engine.py:168", f"updated backend_config={c}")

    def faults_before(self) -> None:
        """Faults before anything is loaded."""
        if FAULT == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(float(ARGUMENT or 5) if FAULT == "slow-start" else float(os.environ.get("STANDIN_START_S", 0.02)))
        if FAULT == "crash-start":
            raise ValueError("Unrecognized configuration class for this kind of AutoModel: AutoModelForCausalLM.")
        if FAULT == "garbage-log":
            sys.stderr.buffer.write(bytes(range(256)) * 16 + b"\xff\xfe\r\r\x1b[2J\x1b]0;title\x07")
            sys.stderr.buffer.write(b"x" * 5 * MIB + b"\n")
            sys.stderr.flush()

    def read_model(self) -> None:
        """Reads the model's shape; raises what the real one raises where there is none or it is unsupported."""
        path = Path(self.model) / "config.json"
        if not path.is_file():
            raise OSError(f"{self.model} does not appear to have a file named config.json.")
        raw = json.loads(path.read_text())
        if "auto_map" in raw and not self.trusted:
            said = "contains custom code which must be executed to correctly load the model. Please pass the argument"
            raise ValueError(f"The repository {self.model} {said} `trust_remote_code=True`.")
        text = raw.get("llm_config", raw.get("text_config", raw))
        self.arch = "NoSuchForCausalLM" if FAULT == "unsupported-model" else raw["architectures"][0]
        self.layers, self.kv_heads = text["num_hidden_layers"], text.get("num_key_value_heads", 1)
        self.head = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
        self.positions, self.most_tiles = text["max_position_embeddings"], raw.get("max_dynamic_patch", 12)
        self.awq = "awq" in json.dumps(raw.get("quantization_config", text.get("quantization_config", "")))
        if FAULT == "fallback" or self.arch not in ARCHITECTURES:
            said = f"Fallback to pytorch engine because {self.model!r} not supported by turbomind engine."
            self.say("WARNING", "archs.py:38", said)
            self.backend = "pytorch"
        if self.arch not in ARCHITECTURES:
            raise RuntimeError(f"Can not found rewrite for architectures: {[self.arch]}")

    def settle(self) -> None:
        """The settings in effect."""
        asked = self.asked
        session = asked.session_len or self.positions
        asked.max_batch_size = asked.max_batch_size or (512 if SERIES < (0, 10) else 1024)
        there = range(int(os.environ.get("STANDIN_CARDS", 1)))
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        self.cards = (list(there) if shown is None else [int(card) for card in shown.split(",") if card])[: asked.tp]
        daemon = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", ""), "mps", "cards")
        named = daemon.read_text().strip() if daemon.is_file() else ""
        if named and max(self.cards) >= len(named.split(",")):  # MPS numbers the cards that it was given from 0
            raise RuntimeError("No CUDA GPUs are available")
        changed = {
            "dtype": "float16" if self.awq else "bfloat16" if asked.dtype == "auto" else asked.dtype,
            "model_format": asked.model_format or ("awq" if self.awq else None),
            "session_len": session // 2 if FAULT == "settings" else session,
            "quant_policy": QuantPolicy(asked.quant_policy) if SERIES >= (0, 13) else asked.quant_policy,
            "devices": self.cards,
            "device_num": asked.tp,
        }
        parallel = ("attn_cp_size", "attn_dp_size", "mlp_dp_size", "outer_dp_size")
        changed |= dict.fromkeys(parallel, 1) | dict.fromkeys(("attn_tp_size", "mlp_tp_size"), asked.tp)
        names = {field.name for field in fields(asked)}
        self.config = replace(asked, **{name: value for name, value in changed.items() if name in names})
        self.batch = threading.BoundedSemaphore(self.config.max_batch_size)

    def token_bytes(self) -> int:
        """Bytes of a token's keys and values on one card; quantised ones carry two 16-bit parameters a head."""
        bits = {4: 4, 8: 8}.get(int(self.config.quant_policy), 16)
        heads = max(self.kv_heads // self.config.tp, 1)
        return self.layers * heads * 2 * (self.head * bits // 8 + (4 if bits < 16 else 0))

    def take_cache(self, card: int) -> None:
        """The KV region, a share of what is free after the weights, and the slabs it is cut into."""
        c, others = self.config, 0
        for path in Path(os.environ["STANDIN_STATE"]).iterdir():
            if path.name.isdigit() and path.name != str(os.getpid()) and Path("/proc", path.name).exists():
                others += json.loads(path.read_text()).get(str(card), 0)
        free = (CARD_MIB - IDLE_MIB - WEIGHTS_MIB // c.tp) * MIB - others
        use(dict.fromkeys(self.cards, WEIGHTS_MIB // c.tp * MIB))
        self.budget = int(free * c.cache_max_entry_count)
        shown = f"{self.budget / MIB:.2f} MB from free {free / MIB:.2f} MB and ratio {c.cache_max_entry_count:.3f}"
        if free > 0:
            self.tm("INFO", "turbomind.cc:338", f"Object cache budget: {shown}")
        if FAULT == "few-blocks":  # as the PyTorch engine ends
            raise RuntimeError("No enough gpu memory for runtime.")
        if FAULT == "oom-start" or free <= 0:
            self.out_of_memory(85, "CreateEngine() @ src/turbomind/turbomind.cc:283")
        size, slab = c.cache_block_seq_len * self.token_bytes(), PAGE
        while slab < size or (slab // size * size / slab < 0.95 and slab < 1024 * MIB):
            slab *= 2
        ratio = f"{slab // size * size / slab:.8f}".rstrip("0")
        shown = f"slab_size {slab}, object_size {size}, object_count {slab // size}, ratio {ratio}"
        self.tm("WARN", "slab.h:136", shown)
        self.blocks = self.budget // slab * (slab // size)

    def warm_up(self) -> None:
        """Tries the lengths one by one; a KV region too small for one never comes back."""
        c, begun = self.config, time.monotonic()
        longest = -(-(c.max_prefill_token_num + c.max_batch_size) // c.tp) * c.tp
        lengths = [int(step) for step in STEPS if step <= longest]
        lengths += [longest] if lengths[-1] < longest else []
        self.tm("INFO", "turbomind.cc:440", f"Warm-up lengths: {', '.join(map(str, lengths))}")
        for length in lengths:
            stuck = -(-length // c.cache_block_seq_len) > self.blocks and length <= c.session_len
            self.tm("INFO", "turbomind.cc:455", str(length))
            if stuck or FAULT == "hang-start":
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main thread waits inside native code
                signal.pause()
            if length > c.session_len:
                self.tm("ERROR", "turbomind.cc:486", f"Warm-up for {length} tokens failed with status 6")
        self.tm("INFO", "turbomind.cc:492", f"Warm-up finished in {time.monotonic() - begun:.2f} seconds.")

    def hold(self) -> None:
        """Writes down weights, cache and the running requests' share."""
        share = WEIGHTS_MIB // self.config.tp * MIB + self.running * REQUEST_MIB * MIB
        use(dict.fromkeys(self.cards, share + (self.budget if self.backend == "turbomind" else 60000 * MIB)))

    def leave(self) -> None:
        """Frees the card."""
        (Path(os.environ["STANDIN_STATE"]) / str(os.getpid())).unlink(missing_ok=True)

    def count(self, messages: list[dict[str, Any]]) -> tuple[int, int]:
        """Prompt tokens (a byte-level tokenizer with this family's chat template) and pictures."""
        total, pictures = 11, 0
        for message in messages:
            content = message.get("content") or ""
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            total += len(message["role"]) + 4
            for part in parts:
                if part["type"] == "text":
                    total += len(part["text"].encode())
                    continue
                pictures += 1
                link = part.get("image_url", {})
                data = link.get("url", "").partition("base64,")[2]
                size = part.get("size") or open_image(base64.b64decode(data)).size
                total += 3 + 256 * tiles(*size, int(link.get("max_dynamic_patch") or self.most_tiles))
        return total, pictures

    def prepare(self, body: dict[str, Any]) -> Reply:
        """Checks a request, lets faults strike, and settles its answer."""
        try:
            prompt, pictures = self.count(body["messages"])
        except Exception:
            raise Refused(400, "Request preprocessing failed.") from None
        limit = self.config.session_len
        if prompt >= limit:
            said = f"Input length ({prompt}) must be smaller than the model context length ({limit})."
            raise Refused(400, said)
        with self.lock:
            self.seen, self.pictures = self.seen + 1, self.pictures + pictures
            seen, strikes = self.seen, pictures and self.pictures >= int(ARGUMENT or 1) > self.pictures - pictures
        if FAULT == "die-under-load" and seen > int(ARGUMENT or 0):
            die(signal.SIGSEGV)
        if FAULT == "oom-image" and strikes:
            return self.image_fails(prompt)
        text, form = "No accident can be seen.", body.get("response_format") or {}
        ends = form.get("type") == "json_schema"
        if ends:
            truth, whole = self.look(body) if "STANDIN_SEES" in os.environ else (False, True)
            text = json.dumps(instance(form["json_schema"].get("schema", {}), truth) or {"accident_detected": truth})
            text = text[: len(text) // 2] if FAULT == "malformed-json" or not whole else text
        room = limit - prompt
        most = min(body.get("max_completion_tokens") or body.get("max_tokens") or room, room)
        if body.get("ignore_eos") and not ends:
            text = (text * (most // len(text) + 1))[:most]
        whole = len(text) <= most and (ends or not body.get("ignore_eos"))
        hangs = FAULT == "hang-requests" and seen > int(ARGUMENT or 0)
        return Reply(prompt, text[:most], "stop" if whole else "length", hangs)

    def look(self, body: dict[str, Any]) -> tuple[bool, bool]:
        """What STANDIN_SEES in a request's only picture, by its middle colour, and whether the answer is whole.

        Red: yes. Strong green: the other way round where the KV cache is quantised; weak green: where the picture is
        one tile. Strong blue: the other way round when it comes again; weak blue: the answer is cut in half. What was
        asked goes to a file beside the state.
        """
        link = next((part["image_url"] for part in body["messages"][0]["content"] if "image_url" in part), None)
        if not link:
            return False, True
        data = base64.b64decode(link["url"].partition("base64,")[2])
        picture, most = open_image(data).convert("RGB"), link.get("max_dynamic_patch", 0)
        red, green, blue = picture.getpixel((picture.width // 2, picture.height // 2))
        digest, file = hashlib.sha256(data).hexdigest(), Path(os.environ["STANDIN_STATE"]) / "asked"
        with self.lock, file.open("a") as asked:
            again = digest in self.known
            self.known.add(digest)
            told = {"sha256": digest, "tiles": most, "pid": os.getpid(), "kv": int(self.config.quant_policy)}
            asked.write(json.dumps(told | {"text": body["messages"][0]["content"][0]["text"]}) + "\n")
        flips = (green > 191 and self.config.quant_policy) or (64 < green < 192 and most == 1) or (blue > 191 and again)
        return (red > 127) != bool(flips), not 64 < blue < 192

    def image_fails(self, prompt: int) -> Reply:
        """No memory for a picture: the process ends; or HTTP 500; or, in older releases, an empty answer."""
        how = ARGUMENTS[1] if len(ARGUMENTS) > 1 else "die"
        if how == "die":
            self.out_of_memory(49, "InternVit::PatchEmbedding() @ src/turbomind/models/internvit/internvit.cc:297")
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 76.00 MiB. GPU 0 has a total capacity of"
              " 79.19 GiB of which 66.50 MiB is free.", file=sys.stderr, flush=True)  # fmt: skip
        self.failed += 1
        if how == "abort":
            return Reply(prompt, "", "abort")
        said = f'session {self.seen} finished, ResponseType.OUT_OF_MEMORY, reason "error"'
        self.say("ERROR", "async_engine.py:797", said)
        raise Refused(500, "An internal server error occurred.", "server_error")

    def tokens(self, reply: Reply) -> Iterator[str]:
        """The answer's tokens at the pace of one step each, at most a full batch at once."""
        with self.lock:
            self.waiting += 1
        self.batch.acquire()
        self.change(1)
        try:
            for token in reply.text:
                time.sleep(float(os.environ.get("STANDIN_STEP_MS", 1)) / 1000)
                self.output_tokens += 1
                yield token
            self.prompt_tokens += reply.prompt
            self.done += 1
        finally:
            self.change(-1)
            self.batch.release()

    def change(self, by: int) -> None:
        """Counts a request into the batch or out of it, and the memory it needs."""
        with self.lock:
            self.running += by
            self.waiting -= by > 0
            self.hold()
