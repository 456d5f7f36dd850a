"""Puts a question about each picture of a folder to a launched server, and keeps every answer."""

from __future__ import annotations

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

from recommender.request import RequestError
from recommender.smoke.answers import Form, Unread
from recommender.smoke.checks import Server, question
from recommender.smoke.failures import Failure
from recommender.smoke.run import SINGLE, Session, run
from recommender.smoke.taken import Asked, Say, Taken

SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})
OTHERS = frozenset({".bmp", ".gif", ".heic", ".tif", ".tiff", ".webp"})
KINDS = {"JPEG": "jpeg", "MPO": "jpeg", "PNG": "png"}  # a phone's photo may be an MPO: a JPEG with more behind it
TICK_S = 0.2
LAST_S = 2.0  # how long answers may still come in once one request broke
# Failures that are one picture's: they are counted, and the next one is asked.
COUNTED = SINGLE | {"out-of-memory-image"}


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture file: its path inside the folder, where it is, what it is, and the digest of its bytes."""

    name: str
    path: Path
    kind: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Folder:
    """The pictures to ask about in the order of their names, and the files that are none after all.

    ``names`` are all that the folder has; ``passed_by`` counts pictures of other formats.
    """

    names: tuple[str, ...]
    pictures: tuple[Picture, ...]
    unreadable: Mapping[str, str]
    passed_by: int


@dataclass(frozen=True, slots=True)
class Question:
    """What each picture is asked, and how often. ``max_tiles`` 0 leaves the detail to the model."""

    prompt: str
    form: Form
    max_tiles: int
    max_tokens: int
    in_flight: int
    rounds: int

    def body(self, model: str, kind: str, data: bytes) -> dict[str, Any]:
        """The request for one picture."""
        image = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
        schema = self.form.schema if self.form.held else None
        return question(model, self.prompt, image, self.max_tiles, self.max_tokens, schema)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one question: a value, or the failure that is its ``cause``, with its words."""

    value: Any = None
    text: str = ""
    ms: float = 0.0
    cause: str = ""
    said: str = ""


@dataclass(slots=True)
class Round:
    """One pass over the pictures, in the order of the answers; ``window_s`` from the first question to the last."""

    answers: dict[str, Answer] = field(default_factory=dict)
    window_s: float = 0.0
    peak_mib: int = 0


@dataclass(slots=True)
class Sitting:
    """One artefact as asked, and what it gave; ``taken`` None where it could not even begin."""

    asked: Asked
    question: Question
    rounds: list[Round] = field(default_factory=list)
    taken: Taken | None = None
    failure: Failure | None = None


def pictures(folder: Path, limit: int) -> Folder:
    """The pictures below a folder; of more than ``limit`` (0: all) so many, evenly spread. Raises RequestError."""
    if not folder.is_dir():
        raise RequestError(f"--images {folder}: no folder; name one with jpg, jpeg or png files")
    inside = ((path.relative_to(folder), path) for path in folder.rglob("*"))
    # A hidden file is no photo: some systems keep a shadow of each under such a name.
    files = [(part.as_posix(), path) for part, path in inside if not any(name[0] == "." for name in part.parts)]
    named = sorted(each for each in files if each[1].suffix.lower() in SUFFIXES and each[1].is_file())
    passed_by = sum(path.suffix.lower() in OTHERS for _, path in files)
    if not named:
        more = f" ({passed_by} pictures of another format: convert them)" if passed_by else ""
        raise RequestError(f"--images {folder}: no jpg, jpeg or png file in it{more}")
    count = min(limit or len(named), len(named))
    found, unreadable = [], {}
    for name, path in (named[number * len(named) // count] for number in range(count)):
        try:
            data = path.read_bytes()
            found.append(Picture(name, path, _kind(data), hashlib.sha256(data).hexdigest()))
        except (OSError, ValueError) as error:
            unreadable[name] = getattr(error, "strerror", None) or str(error)
    if not found:
        raise RequestError(f"--images {folder}: none of its {count} files can be read as a picture")
    return Folder(tuple(name for name, _ in named), tuple(found), unreadable, passed_by)


def _kind(data: bytes) -> str:
    """Whether the bytes are a JPEG or a PNG. Raises ValueError."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its size: the server decides what is too large
            with Image.open(io.BytesIO(data)) as opened:
                kind = KINDS.get(opened.format or "")
    except Exception:  # Pillow raises many kinds for broken files
        raise ValueError("no picture") from None
    if not kind:
        raise ValueError("neither JPEG nor PNG inside")
    return kind


def sit(name: str, asked: Asked, question: Question, images: Sequence[Picture], say: Say) -> Sitting:
    """Launches an artefact, asks it about every picture, and stops it; a failure is in the result."""
    made = Sitting(asked, question)
    try:
        made.taken = run(asked, lambda text: say(f"{name}: {text}" if text else ""), partial(Interview, made, images))
        made.failure = made.taken.failure
    except Failure as failure:  # before the launch, or in the middle of its end
        made.failure = failure
    return made


class Interview(Session):
    """One launch that is asked about pictures."""

    def __init__(self, sitting: Sitting, images: Sequence[Picture], *launch: Any) -> None:
        super().__init__(*launch)
        self.sitting, self.images, self.question = sitting, images, sitting.question

    def go(self) -> None:
        """The whole run; what single requests of the checks failed by will be counted over the pictures."""
        self.before()
        self.start()
        self.read_back()
        server = self.servers()[0]
        model = server.model()
        self.prove(server, model)  # it warms the server up, too
        for number in range(1, self.question.rounds + 1):
            self.round(server, model, "" if number == 1 else ", again")

    def round(self, server: Server, model: str, which: str) -> None:
        """Asks about every picture once. Raises Failure where the server is gone or stuck; answers are kept."""
        made = Round()
        self.sitting.rounds.append(made)
        self.watch.reset()
        desk = _Desk(server, model, self.question, self.images)
        try:
            desk.open()
            while desk.wait(TICK_S):
                self.say(f"{len(desk.answers)} of {len(self.images)} images asked{which}")
        finally:
            made.answers, made.window_s = desk.close()
            made.peak_mib = self.watch.peak()
        if isinstance(desk.broken, Failure):
            raise self.judged(desk.broken)
        if desk.broken is not None:
            raise desk.broken


class _Desk:
    """Keeps so many questions in flight until all pictures were asked, or a request breaks."""

    def __init__(self, server: Server, model: str, question: Question, images: Sequence[Picture]) -> None:
        self.server, self.model, self.question = server, model, question
        self.answers: dict[str, Answer] = {}
        self.broken: BaseException | None = None
        self._todo: queue.SimpleQueue[Picture] = queue.SimpleQueue()
        for each in images:
            self._todo.put(each)
        self._count = min(question.in_flight, len(images))
        self._lock, self._over = threading.Lock(), threading.Event()
        self._begun = self._last = time.perf_counter()
        self._until = 0.0
        # Daemons: a request that hangs must not hold this process back from its end.
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._count)]

    def open(self) -> None:
        """Begins."""
        self._begun = time.perf_counter()
        for each in self._threads:
            each.start()

    def wait(self, seconds: float) -> bool:
        """Waits for a while; False once all is over, or what is still in flight is not worth waiting for."""
        self._over.wait(seconds)
        live = any(each.is_alive() for each in self._threads)
        if live and self.broken is not None:
            self._until = self._until or time.perf_counter() + LAST_S
            live = time.perf_counter() < self._until
            time.sleep(TICK_S / 4 if live else 0)
        return live

    def close(self) -> tuple[dict[str, Answer], float]:
        """Lets no more start; the answers so far, and how long they took."""
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
            except Exception as error:  # told by the main thread, not on this one's way out
                self.broken = self.broken or error
                break
            with self._lock:
                self.answers[picture.name], self._last = answer, time.perf_counter()
        with self._lock:
            self._count -= 1
            if not self._count or self.broken is not None:
                self._over.set()

    def _one(self, picture: Picture) -> Answer:
        """Asks about one picture."""
        try:
            data = picture.path.read_bytes()
        except OSError as error:
            return Answer(cause="picture-changed", said=f"it cannot be read any more: {error.strerror}")
        if hashlib.sha256(data).hexdigest() != picture.sha256:
            return Answer(cause="picture-changed", said="the file has other bytes than at the start")
        body = self.question.body(self.model, picture.kind, data)
        begun = time.perf_counter()
        try:
            text, ended = self.server.chat(body, "an image")
        except Failure as failure:
            if failure.kind.name not in COUNTED:
                self.broken = self.broken or failure
            return Answer(cause=failure.kind.name, said=failure.said)
        took = (time.perf_counter() - begun) * 1e3
        try:
            return Answer(self.question.form.value(text), text, took)
        except Unread as error:
            return Answer(None, text, took, "malformed-json", f"{error}; it ended with {ended or 'nothing'}")
