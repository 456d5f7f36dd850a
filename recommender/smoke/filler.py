"""Write prompts' text: words that differ, because repeated text sends every token to the same experts.

Words are common and of five letters: with the blank before it each is one token of a synthetic vocabulary and usually
of a real one, so texts of the same length have the same tokens.
"""

from __future__ import annotations

from itertools import product
from random import Random
from string import ascii_lowercase
from zlib import crc32

_COMMON = """
about above added admit adult after again agent agree ahead alarm album alert alive allow alone along angle
angry apart apple apply argue arise armed array aside asset audio avoid award aware basic beach began begin
being below bench birth black blame blind block blood board bonus boost bound brain brand bread break brief
bring broad broke brown build built buyer cable candy carry catch cause chain chair chart cheap check chest
chief child china civil claim class clean clear click clock close cloud coach coast count court cover craft
crash cream crime cross crowd crown cycle daily dance death delay depth doing doubt draft drama dream dress
drink drive eager early earth eight elect empty enemy enjoy enter entry equal error event every exact exist
extra faith false fault fiber field fifth fifty fight final first fixed flash fleet floor fluid focus force
forth forty found frame fresh front fruit fully funny giant given glass globe going grace grade grand grant
grass great green gross group grown guard guess guest guide happy heart heavy hence horse hotel house human
ideal image index inner input issue joint judge known label large laser later laugh layer learn lease least
leave legal level light limit local logic loose lower lucky lunch major maker march match maybe mayor meant
media metal might minor model money month moral motor mount mouse mouth movie music needs never night noise
north noted novel nurse occur ocean offer often order other ought paint panel paper party peace phase phone
photo piece pilot pitch place plain plane plant plate point pound power press price pride prime print prior
prize proof proud prove queen quick quiet quite radio raise range rapid ratio reach ready refer right river
round route rural scale scene scope score sense serve seven shall shape share sharp sheet shelf shell shift
shirt shock shoot short shown sight since sixth sixty skill sleep slide small smart smile smoke solid solve
sorry sound south space spare speak speed spend spent split spoke sport staff stage stake stand start state
steam steel stick still stock stone stood store storm story strip study stuff style sugar suite super sweet
table taken taste taxes teach thank theme there these thick thing think third those three throw tight title
today topic total touch tough tower track trade train treat trend trial truck truly trust truth twice under
union unity until upper urban usage usual valid value video virus visit vital voice waste watch water wheel
where which while white whole whose woman women world worry worse worst worth would write wrong young youth
"""
WORDS = tuple(_COMMON.split())
_DRAWN = 8192
_STEP = len(" about")
_TEXT = " ".join(Random(0).choices(WORDS, k=_DRAWN)) + " "
MADE_UP = 6
"""Letters of a made-up word."""


def write_filler(beginning: str, chars: int) -> str:
    """Return text of this many characters that starts with ``beginning``; its words depend on it."""
    start = crc32(beginning.encode()) % _DRAWN * _STEP
    return (beginning + _TEXT[start:] + _TEXT * (chars // len(_TEXT) + 1))[:chars]


def made_up_words(beginning: str, count: int) -> list[str]:
    """Return ``count`` different words that start with ``beginning``; none of them is in WORDS."""
    halves = ["".join(reversed(letters)) for letters in product(ascii_lowercase, repeat=MADE_UP // 2)]
    seconds = halves[: -(-count // len(halves))]
    return [beginning + first + second for second in seconds for first in halves][:count]
