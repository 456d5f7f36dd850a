"""Reviews mutated launch scripts and files by the thousand: no crash, no hang, nothing of them is run.

``python tests/fuzz_reviews.py --scripts 100000 --files 20000 --seed 0`` prints the counts, and of each failure the
words that show it again: ``--only scripts:123``. A text is made of a published command, a row of a rule's table or
an artefact of ``recommend``, changed at bytes, tokens and lines. It then goes through the whole review: reader,
rules, every output, and the repairs. More than a second of processor time for either counts as a hang. The
texts hold commands that would leave a file behind if anything ran them; the workers also report every process that
is started, every connection, and every file that is opened to be written.
"""

import argparse
import json
import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from scripts import PATHS

from recommender.choose.recommend import recommend
from recommender.common.user_file import Unreadable, decode
from recommender.render.formats import render
from recommender.request.request import Request
from recommender.review import engine, fix
from recommender.review.output import json_output, text
from recommender.review.output.sarif import as_sarif
from recommender.review.script.model import Span
from recommender.review.script.source import Source

REVIEWS = Path(__file__).parent / "reviews"
SCRIPTS, FILES = "scripts", "files"
SHELL = frozenset({"bash", "command"})
CONTEXTS: tuple[dict[str, Any], ...] = (
    {},
    {"gpu": "A100-80G", "load": "single"},
    {"gpu": "H100-80G:2", "load": "16", "image": "1280x720"},
    {"gpu": "L4", "model": "internvl3-8b-awq", "load": "high"},
    {"gpu": "V100-16G", "model": "internlm2.5-7b-chat", "lmdeploy": "0.9.2", "load": "4"},
)
LIMIT = [1.0]
"""Seconds of processor time that one text may take; a busy machine makes them longer."""
LOST_AFTER = 120
CHUNK = 20
TRAP = "sprung"
# What leaves a file behind if it is run, and what is odd where a value, a word or a line is expected.
TRAPS = (
    f"$(touch {TRAP})",
    f"`touch {TRAP}`",
    f"; touch {TRAP};",
    f"<(touch {TRAP})",
    f"${{X:-$(touch {TRAP})}}",
    f"$((x[$(touch {TRAP})]))",
    f"| tee {TRAP}",
    f"> {TRAP}",
    f"\nopen('{TRAP}', 'w')\n",
    f"\n__import__('os').system('touch {TRAP}')\n",
    f"eval 'touch {TRAP}'",
    f"!!python/object/apply:os.system ['touch {TRAP}']",
    f"{{{{ open('{TRAP}', 'w') }}}}",
    f'f"{{open({TRAP!r}, 1)}}"',
)
NUMBERS = (
    *("0", "-1", "1", "2", "16", "0.0", "1.0", "-0.5", "nan", "inf", "-inf", "1e999", "1e-999", "9" * 30, "9" * 5000),
    *("0x10", "1_000", "²", "٣", "½", "১", "", '""', "None", "True", "int8", "16g", "1e3", "+3", "08", "3.0.0"),
)
ODD = (
    *("\x00", "\r", "\r\n", "\t", "\x1b[31m", "\ufeff", "\u2028", "é", "字", "😀", "\ud83d"[:0], "\\", "\\\n", "\\\\"),
    *("'", '"', "`", "$", "${", "}", "$(", ")", "((", "))", "[[", "]]", "{", "}", "[", "]", "<<EOF", "<<<", "<>", ">&"),
    *("|", "||", "&", "&&", ";", ";;", "#", "# ", "!", "*", "@", "%", ":", "- ", "---", "...", "&a", "*a", "<<: *a"),
    *("--", "-", "=", "--=", "--tp", "--tp=", "--session-len", "--quant-policy", "--max-prefill-token-num", "lmdeploy"),
    *("lmdeploy serve api_server", "lmdeploy serve proxy", "docker run", "bash -c", "sudo", "exec", "env", "eval"),
    *("$@", '"$@"', "${A[@]}", "${A[*]:1:2}", "${!A}", "${A//x/y}", "$((1+", "$1", "$0", "shift ²", "set -e", "export"),
    *("while true; do", "done", "for i in 1 2; do", "if", "then", "fi", "case x in", "esac", "f() {", "until"),
    *("# recommend: ignore LMD101 because x", "# recommend: ignore", "# Made by lmdeploy-recommender 0.1.0."),
    *('# request: {"gpu": "H100-80G"}', '# request: {"gpu": 3, "model": []}', "# request: {}", "# request: [" * 50),
    *("from lmdeploy import pipeline", "pipeline(", "**x", "*x", "lambda:", "TurbomindEngineConfig(", "tp=", "f'{"),
    *("services:", "command:", "args:", "env:", "image: openmmlab/lmdeploy:v0.9.2", "shm_size:", "resources:", "? :"),
    *("FROM x", "CMD [", "ENTRYPOINT", "ENV A", "HEALTHCHECK --interval=", "CUDA_VISIBLE_DEVICES="),
    *("a" * 3000, "(" * 300),
)


@dataclass(frozen=True)
class Text:
    """A text to be changed, and what kind of file it is."""

    kind: str
    path: str
    text: str


@dataclass(frozen=True)
class Failure:
    """What went wrong with one text."""

    name: str
    what: str
    about: str


class Hang(BaseException):
    """More processor time than a text may take. No handler of ours may take it for an error."""


# --- the texts


@cache
def originals() -> dict[str, tuple[Text, ...]]:
    """The texts before they are changed: those of the shell, and all other files."""
    found: list[Text] = []
    for path in sorted((REVIEWS / "corpus").glob("*.yaml")):
        row = yaml.safe_load(path.read_text("utf-8"))
        found.append(Text(row["kind"], PATHS[row["kind"]], row["text"]))
    for path in sorted((REVIEWS / "rules").glob("*.yaml")):
        for row in yaml.safe_load(path.read_text("utf-8")):
            kind = row.get("kind", "bash")
            found.append(Text(kind, row.get("path") or PATHS[kind], row["text"]))
    for path in sorted((REVIEWS / "files").glob("*.yaml")):
        row = yaml.safe_load(path.read_text("utf-8"))
        kind = "bash" if row["path"] == "-" or row["path"].endswith(".sh") else "labelled"
        found.append(Text(kind, row["path"], row["text"]))
    for request in (Request("h100-sxm-80g", load="single"), Request("h100-sxm-80g", 2, load="high")):
        made = recommend(request)
        for form, kind in (("bash", "bash"), ("python", "python"), ("env", "bash"), ("client", "python")):
            found.append(Text(kind, PATHS[kind], render(made, form)))
    shell = tuple(each for each in found if each.kind in SHELL)
    return {SCRIPTS: shell, FILES: tuple(each for each in found if each.kind not in SHELL)}


def made(seed: int, group: str, number: int) -> tuple[Text, bytes, dict[str, Any]]:
    """The text of a number: what it was, its bytes, and what is told of it."""
    chance = random.Random(f"{seed}:{group}:{number}")
    source = chance.choice(originals()[group])
    text = source.text
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 5, 9))):
        text = chance.choice(CHANGES)(chance, text, group)
    data = text.encode("utf-8", "surrogatepass")
    if chance.random() < 0.15:
        data = _bytes(chance, data)
    return source, data, chance.choice(CONTEXTS)


def _bytes(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(changed))
        new = bytes(chance.randrange(256) for _ in range(chance.randint(0, 2)))
        changed[at : at + chance.choice((0, 1, 1, 3))] = new
    return bytes(changed)


def _characters(chance: random.Random, text: str, group: str) -> str:
    """One stretch away, twice, backwards, or something odd in its place."""
    first = chance.randint(0, len(text))
    last = min(len(text), first + chance.choice((0, 1, 1, 2, 5, 20)))
    part = text[first:last]
    new = chance.choice(("", part * 2, part[::-1], chance.choice(ODD), chr(chance.randrange(1, 0xD800))))
    return text[:first] + new + text[last:]


def _tokens(chance: random.Random, text: str, group: str) -> str:
    """One word gives way to another of the text, or to something odd, or goes."""
    words = text.split(" ")
    at = chance.randrange(len(words))
    words[at : at + 1] = chance.choice(
        ([], [words[at]] * 2, [chance.choice(words)], [chance.choice(ODD)], [words[at], chance.choice(ODD)])
    )
    return " ".join(words)


def _numbers(chance: random.Random, text: str, group: str) -> str:
    """One number gives way to one that nobody expects."""
    found = list(re.finditer(r"\d+(?:\.\d+)?", text))
    if not found:
        return _tokens(chance, text, group)
    match = chance.choice(found)
    return text[: match.start()] + chance.choice(NUMBERS) + text[match.end() :]


def _lines(chance: random.Random, text: str, group: str) -> str:
    """One line away, twice, moved, joined to the next, indented, or the rest cut off."""
    lines = text.split("\n")
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    turn = chance.randrange(7)
    if turn == 0:
        del lines[at]
    elif turn == 1:
        lines[at:at] = [lines[at]] * chance.choice((1, 1, 2, 100))
    elif turn == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif turn == 3:
        lines[at : at + 2] = [" ".join(lines[at : at + 2])]
    elif turn == 4:
        lines[at] = chance.choice(("  ", "\t", "\\", "#", "")) + lines[at] + chance.choice(("", "\\", "\r", " &", " #"))
    elif turn == 5:
        lines = lines[: at + 1]
    else:
        lines[at:at] = [chance.choice(ODD)]
    return "\n".join(lines)


def _spliced(chance: random.Random, text: str, group: str) -> str:
    """The beginning of one text and the end of another."""
    other = chance.choice(originals()[group]).text
    return text[: chance.randint(0, len(text))] + other[chance.randint(0, len(other)) :]


def _trapped(chance: random.Random, text: str, group: str) -> str:
    """A command that leaves a file behind, between two words or characters."""
    at = chance.randint(0, len(text))
    return text[:at] + chance.choice(TRAPS) + text[at:]


CHANGES = (_characters, _tokens, _tokens, _numbers, _numbers, _lines, _lines, _spliced, _trapped)


# --- one review


def alarm() -> None:
    """Ends what goes on in so many seconds of processor time."""
    signal.setitimer(signal.ITIMER_PROF, LIMIT[0])


def problems(
    path: str, source: Source, context: dict[str, Any], again: Callable[[], None] = lambda: None
) -> Iterator[str]:
    """The whole review of a text, and what is wrong with it; ``again`` sets the alarm anew."""
    found = engine.review(path, source.text, context)
    yield from (f"defect in {defect.rule}: {defect.error}" for defect in found.defects)
    yield from _outside(found)
    json.loads(json_output.as_json([found]))
    json.loads(as_sarif([found]))
    json_output.as_github([found])
    for _ in text.text([found]):
        pass

    def look(each: Source) -> engine.Review:
        return found if each.whole == source.whole else engine.review(path, each.text, context)

    again()  # the repairs look again, so they have a second of their own
    mended = fix.repair(source, look)
    yield from (f"defect after the repairs in {defect.rule}: {defect.error}" for defect in mended.review.defects)
    "".join(fix.patch(source, mended.source))


def _outside(found: engine.Review) -> Iterator[str]:
    """Places that are none of the text."""
    text = found.script.text
    places = [(finding.rule.id, finding.place) for finding in found.findings]
    places += [(finding.rule.id, place) for finding in found.findings if finding.fix for place, _ in finding.fix.edits]
    for launch in found.script.launches:
        places += [("launch", launch.place), *(("option", option.whole) for option in launch.options)]
        places += [("word", word.literal or word.place) for option in launch.options for word in option.values]
    places += [("comment", comment.place) for comment in found.script.comments]
    places += [("problem", problem.place) for problem in found.script.problems]
    for what, place in places:
        if not 0 <= place.start <= place.end <= len(text) or not _agrees(text, place):
            yield f"{what}: a place outside the text: {place}"
            return


def _agrees(text: str, place: Span) -> bool:
    """Whether line and column say the same as the offset."""
    start = text.rfind("\n", 0, place.start) + 1
    return place.column == place.start - start + 1 and place.line == text.count("\n", 0, place.start) + 1


def run(seed: int, group: str, number: int) -> tuple[list[Failure], float]:
    """Makes and reviews one text; what failed, and the processor time it took."""
    name = f"{group}:{number}"
    original, data, context = made(seed, group, number)
    STARTED.clear()
    began = time.process_time()
    alarm()
    found: list[Failure] = []
    try:
        source = Source(original.path, decode(data))
        found += [
            Failure(name, problem.split(":")[0], problem) for problem in problems(original.path, source, context, alarm)
        ]
    except Unreadable:
        pass
    except Hang:
        found.append(Failure(name, "hang", f"more than {LIMIT[0]:g} s"))
    except Exception as error:
        found.append(Failure(name, "crash", f"{type(error).__name__}: {error}"))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    found += [Failure(name, "ran something", each) for each in STARTED]
    return found, time.process_time() - began


# --- workers

STARTED: list[str] = []
"""What the interpreter did that no review may do."""
FORBIDDEN = ("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "socket.connect", "pty.")


def _watch(event: str, given: tuple[Any, ...]) -> None:
    if event.startswith(FORBIDDEN):
        STARTED.append(f"{event} {given!r}"[:200])
    elif event == "open" and isinstance(given[1], str) and set(given[1]) & set("wax+"):
        STARTED.append(f"opens {given[0]!r} to write")


def _hang(_: int, __: FrameType | None) -> None:
    raise Hang


def prepare() -> None:
    """Loads what a first review loads, and sets the watch; in a worker, since it cannot be taken away again."""
    originals()
    for group in (SCRIPTS, FILES):
        for number in range(3):
            _, data, context = made(-1, group, number)
            list(problems("x.sh", Source("x.sh", data.decode("utf-8", "replace")), context))
    signal.signal(signal.SIGPROF, _hang)
    sys.addaudithook(_watch)


def _chunk(task: tuple[int, str, int, int]) -> tuple[str, int, list[Failure], float, float]:
    seed, group, first, last = task
    done = [run(seed, group, number) for number in range(first, last)]
    failures = [each for found, _ in done for each in found]
    return group, last - first, failures, sum(spent for _, spent in done), max(spent for _, spent in done)


@dataclass
class Tally:
    """What a run came to."""

    reviewed: Counter[str]
    failures: list[Failure]
    seconds: float = 0.0
    slowest: float = 0.0
    sprung: tuple[str, ...] = ()


def fuzz(counts: dict[str, int], seed: int, jobs: int, minutes: float = 0.0) -> Tally:
    """Reviews so many texts of each group, in workers, where a file left behind would be seen."""
    tally = Tally(Counter(), [])
    tasks = [
        (seed, group, first, min(first + CHUNK, count))
        for group, count in counts.items()
        for first in range(0, count, CHUNK)
    ]
    random.Random(seed).shuffle(tasks)
    began, here = time.monotonic(), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            with multiprocessing.get_context("fork").Pool(jobs, prepare) as pool:
                found = pool.imap_unordered(_chunk, tasks)
                for _ in tasks:
                    group, number, failures, spent, longest = found.next(LOST_AFTER)
                    tally.reviewed[group] += number
                    tally.failures += failures
                    tally.seconds += spent
                    tally.slowest = max(tally.slowest, longest)
                    if minutes and time.monotonic() - began > 60 * minutes:
                        break
            tally.sprung = tuple(sorted(path.name for path in Path(folder).iterdir()))
        finally:
            os.chdir(here)
    return tally


def main(arguments: list[str] | None = None) -> int:
    """The command; exit code 1 if anything failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scripts", type=int, default=2000)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after so long")
    parser.add_argument("--limit", type=float, default=LIMIT[0], help="seconds that one text may take")
    parser.add_argument("--only", help="show one text and what is wrong with it, such as scripts:123")
    options = parser.parse_args(arguments)
    LIMIT[0] = options.limit  # the workers are forks
    if options.only:
        return _shown(options.seed, options.only)
    began = time.monotonic()
    tally = fuzz({SCRIPTS: options.scripts, FILES: options.files}, options.seed, options.jobs, options.minutes)
    wall = time.monotonic() - began
    for failure in sorted(tally.failures, key=lambda one: (one.what, one.name)):
        print(f"{failure.what}: --seed {options.seed} --only {failure.name}: {failure.about}"[:300])
    number = sum(tally.reviewed.values())
    print(f"{tally.reviewed[SCRIPTS]} scripts and {tally.reviewed[FILES]} files reviewed, seed {options.seed}")
    print(f"{wall:.0f} s, {number / wall:.0f} a second; at most {tally.slowest:.2f} s of processor time for one")
    kinds = Counter(failure.what for failure in tally.failures)
    print(f"failures: {', '.join(f'{count} {what}' for what, count in kinds.most_common()) or 'none'}")
    print(f"files left behind: {', '.join(tally.sprung) or 'none'}")
    return 1 if tally.failures or tally.sprung else 0


def _shown(seed: int, name: str) -> int:
    """One text again, with the traceback of what is wrong with it."""
    group, _, number = name.partition(":")
    original, data, context = made(seed, group, int(number))
    print(f"{original.path} {context}\n{data!r}")
    os.environ["RECOMMEND_DEBUG"] = "1"
    began = time.process_time()
    found = list(problems(original.path, Source(original.path, decode(data)), context))
    print(f"{time.process_time() - began:.2f} s", *found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
