"""The tokenizer of a synthetic folder: one token a byte, and the family's special tokens at their own ids.

Ids no text reaches are filler words, so that every id a random model generates can be decoded. The chat
template writes roles as one letter: each of its parts is then one token, as in the real vocabulary, and
one user turn takes exactly the tokens that the model record says (``chat_tokens``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recommender.smoke.layout import CHAT_LAYOUT, HF_LAYOUT, WeightsError, family

if TYPE_CHECKING:
    from recommender.records import Model

IMAGE_WORDS = ("<img>", "</img>", "<IMG_CONTEXT>", "<quad>", "</quad>", "<ref>", "</ref>", "<box>", "</box>")
IMAGE_MEAN, IMAGE_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def _run(first: int, words: str) -> dict[str, int]:
    return {word: first + place for place, word in enumerate(words.split())}


@dataclass(frozen=True)
class Specials:
    """A family's special tokens and which of them begin, end and pad; images' tokens follow at ``images``."""

    ids: Mapping[str, int]
    bos: str
    eos: tuple[str, ...]
    pad: str
    turn: tuple[str, str, str, str]
    """What stands before a role, after it, after a turn, and before everything."""
    images: int


_QWEN = _run(
    151643,
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> "
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|>",
)
_PIECES = {"<unk>": 0, "<s>": 1, "</s>": 2}
_CHATML = ("<|im_start|>", "\n", "<|im_end|>\n", "")
_LLAMA_3 = {"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001, "<|finetune_right_pad_id|>": 128004}
_LLAMA_3 |= {"<|start_header_id|>": 128006, "<|end_header_id|>": 128007, "<|eom_id|>": 128008, "<|eot_id|>": 128009}
_LLAMA_3 |= {"<|python_tag|>": 128010}

FAMILIES: Mapping[str, Specials] = {
    "qwen3": Specials(
        _QWEN | _run(151665, "<tool_response> </tool_response> <think> </think>"),
        "<|endoftext|>", ("<|im_end|>", "<|endoftext|>"), "<|endoftext|>", _CHATML, 151669,
    ),
    "qwen2": Specials(_QWEN, "<|endoftext|>", ("<|im_end|>", "<|endoftext|>"), "<|endoftext|>", _CHATML, 151665),
    "llama3": Specials(
        _LLAMA_3, "<|begin_of_text|>", ("<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"), "<|finetune_right_pad_id|>",
        ("<|start_header_id|>", "<|end_header_id|>\n", "<|eot_id|>", "<|begin_of_text|>"), 128256,
    ),
    "llama": Specials(_PIECES, "<s>", ("</s>",), "</s>", ("", "\n", "</s>", "<s>"), 32000),
    "internlm2": Specials(
        _PIECES | _run(92538, "<|plugin|> <|interpreter|> <|action_end|> <|action_start|> <|im_end|> <|im_start|>"),
        "<s>", ("<|im_end|>", "</s>"), "</s>", (*_CHATML[:3], "<s>"), 92544,
    ),
    "internlm3": Specials(
        _PIECES | _run(128130, "<|im_start|> <|im_end|>"), "<s>", ("<|im_end|>", "</s>"), "</s>",
        (*_CHATML[:3], "<s>"), 128132,
    ),
}  # fmt: skip


def specials(model: Model) -> Specials:
    """The special tokens of a model's family, the image tokens included where it sees images.

    Raises WeightsError for a family nobody wrote down or a vocabulary that does not reach them.
    """
    found = next((each for prefix, each in FAMILIES.items() if family(model).startswith(prefix)), None)
    if found is None:
        raise WeightsError(
            f"{model.id}: special tokens of text.family {model.text.family!r} are unknown; "
            f"it should begin with one of {', '.join(FAMILIES)}"
        )
    ids = dict(found.ids)
    if model.vision:
        ids |= {word: found.images + place for place, word in enumerate(IMAGE_WORDS)}
    if max(ids.values()) >= model.text.vocab or len(ids) + 256 > model.text.vocab:
        raise WeightsError(
            f"{model.id}: text.vocab {model.text.vocab} does not hold the family's special ids up to "
            f"{max(ids.values())}; mend the record"
        )
    return Specials(ids, found.bos, found.eos, found.pad, found.turn, found.images)


def ids(model: Model) -> dict[str, Any]:
    """Ids that config.json and generation_config.json name."""
    found = specials(model)
    named: dict[str, Any] = {"bos": found.ids[found.bos], "pad": found.ids[found.pad]}
    named["eos"] = [found.ids[word] for word in found.eos]
    if model.vision:
        named["image"] = found.ids["<IMG_CONTEXT>"]
    return named


# --- vocabulary -----------------------------------------------------------------------------


def _byte_letters() -> list[str]:
    """The letter that stands for each byte in a byte-level vocabulary: itself if printable, else one past 255."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    rest = iter(range(256, 512))
    return [chr(byte if byte in printable else next(rest)) for byte in range(256)]


def vocabulary(model: Model) -> dict[str, int]:
    """Every id from 0 to vocab - 1 once: the special tokens, 256 bytes at the first free ids, filler words."""
    taken = {number: word for word, number in specials(model).ids.items()}
    letters = iter(_byte_letters())
    words = {}
    for number in range(model.text.vocab):
        word = taken.get(number) or next(letters, "") or f"w{number:06d}"
        words[word] = number
    return words


def tokenizer_json(model: Model) -> dict[str, Any]:
    """tokenizer.json: byte-level BPE without a single merge."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    in_order = sorted(specials(model).ids.items(), key=lambda item: item[1])
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": word, **flags} for word, number in in_order],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary(model),
            "merges": [],
        },
    }


# --- chat template --------------------------------------------------------------------------


def chat_template(model: Model) -> str:
    """A Jinja template whose marks around one user turn are ``chat_tokens`` tokens."""
    found = specials(model)
    before, after, end, first = found.turn
    marks = 2 * (_length(before, found) + 1 + _length(after, found)) + _length(end, found) + _length(first, found)
    # the real template's system prompt, which a request without one gets, as so many bytes
    preface = "\n" * max(0, model.chat_tokens - marks)
    opening, closing = _quoted(before), _quoted(after)
    return (
        f"{{{{ {_quoted(first)} }}}}"
        f"{{% if messages[0]['role'] != 'system' %}}{{{{ {_quoted(preface)} }}}}{{% endif %}}"
        f"{{% for message in messages %}}{{{{ {opening} + message['role'][0] + {closing} }}}}"
        "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
        "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
        "{% elif part['type'] in ('image', 'image_url') %}{{ '<img><IMG_CONTEXT></img>\\n' }}{% endif %}{% endfor %}"
        f"{{% endif %}}{{{{ {_quoted(end)} }}}}{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{{{{ {opening} + 'a' + {closing} }}}}{{% endif %}}"
    )


def _length(text: str, found: Specials) -> int:
    """Tokens of a part of the template: special tokens count one, everything else its bytes."""
    count = 0
    for word in found.ids:
        count += text.count(word)
        text = text.replace(word, "")
    return count + len(text.encode())


def _quoted(text: str) -> str:
    return "'" + text.replace("\n", "\\n") + "'"


# --- files ----------------------------------------------------------------------------------


def files(model: Model) -> dict[str, Any]:
    """The tokenizer's and processors' JSON files by name."""
    found, named = specials(model), ids(model)
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.text.max_positions,
        "clean_up_tokenization_spaces": False,
        "bos_token": found.bos,
        "eos_token": found.eos[0],
        "pad_token": found.pad,
        "chat_template": chat_template(model),
    }
    if model.architecture == HF_LAYOUT:
        settings |= _image_words(found) | {"processor_class": "InternVLProcessor"}
    generation = {"bos_token_id": named["bos"], "eos_token_id": named["eos"], "pad_token_id": named["pad"]}
    plain = {
        "generation_config.json": generation,
        "tokenizer.json": tokenizer_json(model),
        "tokenizer_config.json": settings,
    }
    return plain | _processors(model)


def _image_words(found: Specials) -> dict[str, Any]:
    """The names Transformers' InternVL processor asks its tokenizer for."""
    words = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}
    words["video_token"] = "<|video_pad|>" if "<|video_pad|>" in found.ids else "<quad>"
    return {"extra_special_tokens": words, **words}


def _processors(model: Model) -> dict[str, Any]:
    if not model.vision:
        return {}
    vision = model.vision[0]
    colours = {"do_normalize": True, "image_mean": IMAGE_MEAN, "image_std": IMAGE_STD, "do_resize": True, "resample": 3}
    if model.architecture == CHAT_LAYOUT:
        clip = {"image_processor_type": "CLIPImageProcessor", "crop_size": vision.image, "size": vision.image}
        return {"preprocessor_config.json": clip | colours | {"do_center_crop": True}}
    size = {"height": vision.image, "width": vision.image}
    common = colours | {"size": size, "do_rescale": True, "rescale_factor": 1 / 255, "do_convert_rgb": True}
    common["processor_class"] = "InternVLProcessor"
    tiles = {"crop_to_patches": True, "min_patches": vision.min_tiles, "max_patches": vision.max_tiles}
    return {
        "preprocessor_config.json": common | tiles | {"image_processor_type": "GotOcr2ImageProcessorFast"},
        "video_preprocessor_config.json": common | {"video_processor_type": "InternVLVideoProcessor"},
        "processor_config.json": {
            "processor_class": "InternVLProcessor",
            "image_seq_length": vision.tokens_per_tile,
        },
    }
