"""Ask a launched server about each image of a folder and keep the answers."""

import base64
import hashlib
import io
import queue
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from recommender.common.errors import RequestError
from recommender.common.user_file import Unreadable, read_bytes
from recommender.smoke.bench.answers import Form, UnreadableAnswer
from recommender.smoke.client.checks import Server, chat_body
from recommender.smoke.failures import Failure
from recommender.smoke.result import RunRequest, RunResult, Say
from recommender.smoke.run import run
from recommender.smoke.session import SINGLE, Session

SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})
OTHERS = frozenset({".bmp", ".gif", ".heic", ".tif", ".tiff", ".webp"})
KINDS = {"JPEG": "jpeg", "MPO": "jpeg", "PNG": "png"}  # phone photos may be MPO: a JPEG with further images
MOST_PICTURE_BYTES = 64 * 2**20
TICK_S = 0.2
LAST_S = 2.0  # seconds for open answers once a request broke
# Failures of one image: counted, then the next is asked.
COUNTED = SINGLE | {"out-of-memory-image"}


@dataclass(frozen=True, slots=True)
class PictureFile:
    """An image file: name within the folder, path, format and SHA-256."""

    name: str
    path: Path
    kind: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Folder:
    """The images to ask about, sorted by name, and the unreadable files.

    ``names`` lists all images of the folder; ``passed_by`` counts images of other formats.
    """

    names: tuple[str, ...]
    pictures: tuple[PictureFile, ...]
    unreadable: Mapping[str, str]
    passed_by: int


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask about each image and how often; ``max_tiles`` 0 is the model's default."""

    prompt: str
    form: Form
    max_tiles: int
    max_tokens: int
    concurrency: int
    rounds: int

    def body(self, model: str, kind: str, data: bytes) -> dict[str, Any]:
        """Return the request for one image."""
        image = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
        schema = self.form.schema if self.form.enforced else None
        return chat_body(model, self.prompt, image, self.max_tiles, self.max_tokens, schema)


@dataclass(frozen=True, slots=True)
class ImageAnswer:
    """The answer to one question: a value, or a failure's ``cause`` and message."""

    value: Any = None
    text: str = ""
    ms: float = 0.0
    cause: str = ""
    message: str = ""


@dataclass(slots=True)
class Round:
    """One pass over the images in answer order; ``window_s`` spans first to last."""

    answers: dict[str, ImageAnswer] = field(default_factory=dict)
    window_s: float = 0.0
    peak_mib: int = 0


@dataclass(slots=True)
class ScriptRun:
    """One script's run; ``result`` is None if the launch did not begin."""

    request: RunRequest
    question: Question
    rounds: list[Round] = field(default_factory=list)
    result: RunResult | None = None
    failure: Failure | None = None


def find_pictures(folder: Path, limit: int) -> Folder:
    """Return the images below a folder, at most ``limit`` (0: all), evenly spread.

    Raise RequestError if there are none.
    """
    if not folder.is_dir():
        raise RequestError(f"--images {folder}: not a folder; name one with jpg, jpeg or png files")
    inside = ((path.relative_to(folder), path) for path in folder.rglob("*"))
    # Hidden files are no photos: some systems keep metadata under such names.
    files = [(part.as_posix(), path) for part, path in inside if not any(name[0] == "." for name in part.parts)]
    images = sorted(file for file in files if file[1].suffix.lower() in SUFFIXES and file[1].is_file())
    passed_by = sum(path.suffix.lower() in OTHERS for _, path in files)
    if not images:
        more = f" ({passed_by} images of another format: convert them)" if passed_by else ""
        raise RequestError(f"--images {folder}: no jpg, jpeg or png file in it{more}")
    count = min(limit or len(images), len(images))
    readable, unreadable = [], {}
    for name, path in (images[number * len(images) // count] for number in range(count)):
        try:
            data = read_bytes(path, MOST_PICTURE_BYTES)
            readable.append(PictureFile(name, path, _image_kind(data), hashlib.sha256(data).hexdigest()))
        except (OSError, ValueError) as error:
            unreadable[name] = getattr(error, "strerror", None) or str(error)
    if not readable:
        raise RequestError(f"--images {folder}: none of its {count} files is a readable image")
    return Folder(tuple(name for name, _ in images), tuple(readable), unreadable, passed_by)


def _image_kind(data: bytes) -> str:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its size: the server decides what is too large
            with Image.open(io.BytesIO(data)) as opened:
                kind = KINDS.get(opened.format or "")
    except Exception:  # Pillow raises many kinds for broken files
        raise ValueError("no picture") from None
    if not kind:
        raise ValueError("neither JPEG nor PNG inside")
    return kind


def run_script(
    name: str, request: RunRequest, question: Question, images: Sequence[PictureFile], say: Say
) -> ScriptRun:
    """Launch a script, ask about every image and stop it; failures are in the result."""
    script_run = ScriptRun(request, question)
    try:
        script_run.result = run(
            request, lambda text: say(f"{name}: {text}" if text else ""), partial(ImageSession, script_run, images)
        )
        script_run.failure = script_run.result.failure
    except Failure as failure:  # before the launch, or in the middle of its end
        script_run.failure = failure
    return script_run


class ImageSession(Session):
    """One launch that is asked about images."""

    def __init__(self, sitting: ScriptRun, images: Sequence[PictureFile], *launch: Any) -> None:
        super().__init__(*launch)
        self.sitting, self.images, self.question = sitting, images, sitting.question

    def run(self) -> None:
        """Launch and ask every round; failures of single checks are counted later."""
        self.check_machine()
        self.start()
        self.read_back()
        server = self.servers()[0]
        model = server.model()
        self.check_answers(server, model)  # it warms the server up, too
        for number in range(1, self.question.rounds + 1):
            self.round(server, model, "" if number == 1 else ", again")

    def round(self, server: Server, model: str, which: str) -> None:
        """Ask about every image once; raise Failure if the server is gone or stuck."""
        image_round = Round()
        self.sitting.rounds.append(image_round)
        self.watch.reset()
        desk = _RequestPool(server, model, self.question, self.images)
        try:
            desk.open()
            while desk.wait(TICK_S):
                self.say(f"{len(desk.answers)} of {len(self.images)} images asked{which}")
        finally:
            image_round.answers, image_round.window_s = desk.close()
            image_round.peak_mib = self.watch.peak()
        if isinstance(desk.broken, Failure):
            raise self.classify_failure(desk.broken)
        if desk.broken is not None:
            raise desk.broken


class _RequestPool:
    """Keep a number of questions in flight until all are answered or one breaks."""

    def __init__(self, server: Server, model: str, question: Question, images: Sequence[PictureFile]) -> None:
        self.server, self.model, self.question = server, model, question
        self.answers: dict[str, ImageAnswer] = {}
        self.broken: BaseException | None = None
        self._todo: queue.SimpleQueue[PictureFile] = queue.SimpleQueue()
        for image in images:
            self._todo.put(image)
        self._count = min(question.concurrency, len(images))
        self._lock, self._over = threading.Lock(), threading.Event()
        self._begun = self._last = time.perf_counter()
        self._until = 0.0
        # Daemon threads: a hanging request must not keep this process alive.
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._count)]

    def open(self) -> None:
        """Start the threads."""
        self._begun = time.perf_counter()
        for thread in self._threads:
            thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait a while; return False once all is over or not worth waiting for."""
        self._over.wait(seconds)
        live = any(thread.is_alive() for thread in self._threads)
        if live and self.broken is not None:
            self._until = self._until or time.perf_counter() + LAST_S
            live = time.perf_counter() < self._until
            time.sleep(TICK_S / 4 if live else 0)
        return live

    def close(self) -> tuple[dict[str, ImageAnswer], float]:
        """Start no more; return the answers and the time they took."""
        while not self._todo.empty():
            try:
                self._todo.get_nowait()
            except queue.Empty:
                break
        with self._lock:
            return dict(self.answers), max(0.0, self._last - self._begun)

    def _work(self) -> None:
        while self.broken is None:
            try:
                picture = self._todo.get_nowait()
            except queue.Empty:
                break
            try:
                answer = self._one(picture)
            except Exception as error:  # raised by the main thread
                self.broken = self.broken or error
                break
            with self._lock:
                self.answers[picture.name], self._last = answer, time.perf_counter()
        with self._lock:
            self._count -= 1
            if not self._count or self.broken is not None:
                self._over.set()

    def _one(self, picture: PictureFile) -> ImageAnswer:
        try:
            data = read_bytes(picture.path, MOST_PICTURE_BYTES)
        except (OSError, Unreadable) as error:
            reason = getattr(error, "strerror", None) or error
            return ImageAnswer(cause="picture-changed", message=f"the file became unreadable: {reason}")
        if hashlib.sha256(data).hexdigest() != picture.sha256:
            return ImageAnswer(cause="picture-changed", message="the file changed since the start")
        body = self.question.body(self.model, picture.kind, data)
        begun = time.perf_counter()
        try:
            text, ended = self.server.chat(body, "an image")
        except Failure as failure:
            if failure.kind.name not in COUNTED:
                self.broken = self.broken or failure
            return ImageAnswer(cause=failure.kind.name, message=failure.message)
        took = (time.perf_counter() - begun) * 1e3
        try:
            return ImageAnswer(self.question.form.value(text), text, took)
        except UnreadableAnswer as error:
            return ImageAnswer(None, text, took, "malformed-json", f"{error}; it ended with {ended or 'nothing'}")
