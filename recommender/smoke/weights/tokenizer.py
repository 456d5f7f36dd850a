"""A synthetic folder's tokenizer: one token a byte or a word, special tokens at their own ids.

Unused ids are words, each with a blank before it: every id a random model generates can be decoded, and its answer,
sent back in the next turn, takes the same tokens. The chat template writes roles as one letter: each part is then one
token, as in the real vocabulary, and a user turn takes exactly the ``chat_tokens`` of the model record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from recommender.smoke.filler import WORDS, made_up_words
from recommender.smoke.weights import glm4v, llama4, llava, omni, phi3v
from recommender.smoke.weights.layouts import (
    CHAT_LAYOUT,
    GEMMA3,
    GLM4V,
    LLAMA4,
    LLAVA,
    MINICPM,
    OMNI,
    PHI3V,
    TILED,
    WeightsError,
    by_family,
)
from recommender.smoke.weights.processors import PIXEL_PROCESSORS, processors

if TYPE_CHECKING:
    from recommender.knowledge.records import Model

IMAGE_WORDS = ("<img>", "</img>", "<IMG_CONTEXT>", "<quad>", "</quad>", "<ref>", "</ref>", "<box>", "</box>")
BLANK = "\u0120"
"""The letter of a blank in byte-level vocabularies."""


def _consecutive_ids(first: int, words: str) -> dict[str, int]:
    return {word: first + place for place, word in enumerate(words.split())}


@dataclass(frozen=True)
class SpecialTokens:
    """A family's special tokens and their roles; image tokens start at id ``images``."""

    ids: Mapping[str, int]
    bos: str
    eos: tuple[str, ...]
    pad: str
    turn: tuple[str, str, str, str]
    """Texts before a role, after a role, after a turn, and at the start of a conversation."""
    images: int


_QWEN_WORDS = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> "
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|>"
)
_QWEN = _consecutive_ids(151643, _QWEN_WORDS)
_QWEN_END = ("<|im_end|>", "<|endoftext|>")
_PIECES = {"<unk>": 0, "<s>": 1, "</s>": 2}
_QWEN_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
_IMAGE_MARKS = {**dict.fromkeys(TILED, "<img><IMG_CONTEXT></img>\n"), GEMMA3: "<start_of_image>", LLAVA: "<image>\n"}
_IMAGE_MARKS |= {GLM4V: "<|begin_of_image|><|image|><|end_of_image|>", LLAMA4: "<|image|>"}
_CHATML = ("<|im_start|>", "\n", "<|im_end|>\n", "")
_GLM_WORDS = "<|endoftext|> [MASK] [gMASK] [sMASK] <sop> <eop> <|system|> <|user|> <|assistant|> <|observation|>"
_GEMMA = {"<pad>": 0, "<eos>": 1, "<bos>": 2, "<unk>": 3}
_GEMMA_IMAGE = {"<start_of_image>": 255999, "<end_of_image>": 256000, "<image_soft_token>": 262144}
_DEEPSEEK = _consecutive_ids(
    100000, "<\uff5cbegin\u2581of\u2581sentence\uff5c> <\uff5cend\u2581of\u2581sentence\uff5c>"
)
_TEMPLATE_V32 = {"<think>": 128798, "</think>": 128799, "<\uff5cUser\uff5c>": 128803}
_TEMPLATE_V32 |= {"<\uff5cAssistant\uff5c>": 128804}
_OWN_TOKENS: Mapping[str, Mapping[str, int]] = {
    "DeepseekV32ForCausalLM": _TEMPLATE_V32,  # LMDeploy writes this template itself
    GLM4V: glm4v.TOKENS, LLAMA4: llama4.TOKENS, LLAVA: llava.TOKENS, OMNI: omni.TOKENS,
    PHI3V: phi3v.TOKENS,
}  # fmt: skip
_LLAMA_3 = {"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001, "<|finetune_right_pad_id|>": 128004}
_LLAMA_3 |= {"<|start_header_id|>": 128006, "<|end_header_id|>": 128007, "<|eom_id|>": 128008, "<|eot_id|>": 128009}
_LLAMA_3 |= {"<|python_tag|>": 128010}
_LLAMA_4 = {"<|begin_of_text|>": 200000, "<|end_of_text|>": 200001, "<|header_start|>": 200005}
_LLAMA_4 |= {"<|header_end|>": 200006, "<|eom|>": 200007, "<|eot|>": 200008, "<|finetune_right_pad|>": 200018}

_HARMONY = {"<|startoftext|>": 199998, "<|endoftext|>": 199999, "<|return|>": 200002, "<|constrain|>": 200003}
_HARMONY |= {"<|channel|>": 200005, "<|start|>": 200006, "<|end|>": 200007, "<|message|>": 200008, "<|call|>": 200012}

FAMILIES: Mapping[str, SpecialTokens] = {
    "qwen3": SpecialTokens(
        _QWEN | _consecutive_ids(151665, "<tool_response> </tool_response> <think> </think>"),
        "<|endoftext|>", ("<|im_end|>", "<|endoftext|>"), "<|endoftext|>", _CHATML, 151669,
    ),
    "qwen3.5": SpecialTokens(
        _consecutive_ids(248044, _QWEN_WORDS), "<|endoftext|>", _QWEN_END, "<|endoftext|>", _CHATML, 248066
    ),
    "glm4moelite": SpecialTokens(
        _consecutive_ids(154820, _GLM_WORDS), "<|endoftext|>", ("<|endoftext|>", "<|user|>", "<|observation|>"),
        "<|endoftext|>", ("", "", "", "[gMASK]<sop>"), 154856,
    ),
    "glm4": SpecialTokens(
        _consecutive_ids(151329, _GLM_WORDS), "<|endoftext|>", ("<|endoftext|>", "<|user|>", "<|observation|>"),
        "<|endoftext|>", ("", "", "", "[gMASK]<sop>"), 151343,
    ),
    "deepseek": SpecialTokens(
        _DEEPSEEK, "<\uff5cbegin\u2581of\u2581sentence\uff5c>", ("<\uff5cend\u2581of\u2581sentence\uff5c>",),
        "<\uff5cend\u2581of\u2581sentence\uff5c>", ("", "\n", "<\uff5cend\u2581of\u2581sentence\uff5c>",
        "<\uff5cbegin\u2581of\u2581sentence\uff5c>"), 100002,
    ),
    "gemma2": SpecialTokens(
        _GEMMA | {"<start_of_turn>": 106, "<end_of_turn>": 107}, "<bos>", ("<end_of_turn>", "<eos>"), "<pad>",
        ("<start_of_turn>", "\n", "<end_of_turn>\n", "<bos>"), 108,
    ),
    "gemma3": SpecialTokens(
        _GEMMA | {"<start_of_turn>": 105, "<end_of_turn>": 106} | _GEMMA_IMAGE, "<bos>", ("<end_of_turn>", "<eos>"),
        "<pad>", ("<start_of_turn>", "\n", "<end_of_turn>\n", "<bos>"), 262145,
    ),
    "gptoss": SpecialTokens(
        _HARMONY, "<|startoftext|>", ("<|return|>", "<|endoftext|>", "<|call|>"), "<|endoftext|>",
        ("<|start|>", "<|message|>", "<|end|>", ""), 200019,
    ),
    **dict.fromkeys(
        ("llama", "mistral", "mixtral", "phi3"),
        SpecialTokens(_PIECES, "<s>", ("</s>",), "</s>", ("", "\n", "</s>", "<s>"), 32000),
    ),
    "qwen2": SpecialTokens(_QWEN, "<|endoftext|>", ("<|im_end|>", "<|endoftext|>"), "<|endoftext|>", _CHATML, 151665),
    "llama3": SpecialTokens(
        _LLAMA_3, "<|begin_of_text|>", ("<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"), "<|finetune_right_pad_id|>",
        ("<|start_header_id|>", "<|end_header_id|>\n", "<|eot_id|>", "<|begin_of_text|>"), 128256,
    ),
    "llama4": SpecialTokens(
        _LLAMA_4, "<|begin_of_text|>", ("<|eot|>", "<|end_of_text|>", "<|eom|>"), "<|finetune_right_pad|>",
        ("<|header_start|>", "<|header_end|>\n", "<|eot|>", "<|begin_of_text|>"), 200093,
    ),
    "internlm2": SpecialTokens(
        _PIECES
        | _consecutive_ids(92538, "<|plugin|> <|interpreter|> <|action_end|> <|action_start|> <|im_end|> <|im_start|>"),
        "<s>", ("<|im_end|>", "</s>"), "</s>", (*_CHATML[:3], "<s>"), 92544,
    ),
    "internlm3": SpecialTokens(
        _PIECES | _consecutive_ids(128130, "<|im_start|> <|im_end|>"), "<s>", ("<|im_end|>", "</s>"), "</s>",
        (*_CHATML[:3], "<s>"), 128132,
    ),
}  # fmt: skip


def special_tokens(model: Model) -> SpecialTokens:
    """Return a family's special tokens, with the image tokens of a vision model.

    Raise WeightsError for an unknown family or a vocabulary that is too small.
    """
    family_tokens = FAMILIES.get(by_family(model, FAMILIES))
    if family_tokens is None:
        raise WeightsError(
            f"{model.id}: special tokens of text.family {model.text.family!r} are unknown; "
            f"it should begin with one of {', '.join(FAMILIES)}"
        )
    ids = dict(family_tokens.ids)
    ids |= _OWN_TOKENS.get(model.architecture, {})
    if model.architecture in TILED:
        ids |= {word: family_tokens.images + place for place, word in enumerate(IMAGE_WORDS)}
    if max(ids.values()) >= model.text.vocab or len(ids) + 256 > model.text.vocab:
        raise WeightsError(
            f"{model.id}: text.vocab {model.text.vocab} does not hold the family's special ids up to "
            f"{max(ids.values())}; fix the record"
        )
    # LMDeploy writes an image as padding tokens, which must not end a sequence.
    pad = {LLAVA: "<pad>", PHI3V: "<|endoftext|>"}.get(model.architecture, family_tokens.pad)
    return replace(family_tokens, ids=ids, pad=pad)


def role_ids(model: Model) -> dict[str, Any]:
    """Return the ids that config.json and generation_config.json name."""
    tokens = special_tokens(model)
    ids_by_role: dict[str, Any] = {"bos": tokens.ids[tokens.bos], "pad": tokens.ids[tokens.pad]}
    ids_by_role["eos"] = [tokens.ids[word] for word in tokens.eos]
    if model.architecture == GEMMA3:
        roles = {"image": "<image_soft_token>", "image_start": "<start_of_image>", "image_end": "<end_of_image>"}
        ids_by_role |= {role: tokens.ids[word] for role, word in roles.items()}
    elif model.vision:
        words = {**dict.fromkeys(TILED, "<IMG_CONTEXT>"), **dict.fromkeys((GLM4V, PHI3V), "<|image|>")}
        words |= {LLAMA4: "<|patch|>", LLAVA: "<image>"}
        ids_by_role["image"] = tokens.ids[words.get(model.architecture, "<|image_pad|>")]
    return ids_by_role


# --- vocabulary -----------------------------------------------------------------------------


def _byte_letters() -> list[str]:
    """Return each byte's letter: itself if printable, else one above 255."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    substitutes = iter(range(256, 512))
    return [chr(byte if byte in printable else next(substitutes)) for byte in range(256)]


def vocabulary(model: Model) -> dict[str, int]:
    """Return words by id: special tokens; at the free ids 256 bytes, the words of prompts, made-up words."""
    words = made_up_words(BLANK, model.text.vocab)
    special_words = {number: word for word, number in special_tokens(model).ids.items() if number < len(words)}
    spoken = llava.WORDS.split() if model.architecture == LLAVA else ()
    free = (number for number in range(len(words)) if number not in special_words)
    usual = zip(free, [*_byte_letters(), *(BLANK + word for word in dict.fromkeys((*WORDS, *spoken)))], strict=False)
    for number, word in (*usual, *special_words.items()):
        words[number] = word
    return {word: number for number, word in enumerate(words)}


def tokenizer_json(model: Model) -> dict[str, Any]:
    """Return tokenizer.json: byte-level BPE without merges; a blank and a word of the vocabulary are one token."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    in_order = sorted(special_tokens(model).ids.items(), key=lambda item: item[1])
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
            "ignore_merges": True,
            "vocab": vocabulary(model),
            "merges": [],
        },
    }


# --- chat template --------------------------------------------------------------------------


def chat_template(model: Model) -> str:
    """Return a Jinja template that adds ``chat_tokens`` tokens to one user turn.

    If they are too few for the marks of roles, the model is a base model: its turns have no marks.
    """
    tokens = special_tokens(model)
    before, after, end, first = tokens.turn
    marks = 2 * (_length(before, tokens) + 1 + _length(after, tokens)) + _length(end, tokens) + _length(first, tokens)
    role, answer = "message['role'][0]", "'a'"
    if model.chat_tokens < marks:
        before, after, end, role, answer, marks = "", "", "", "''", "''", _length(first, tokens)
    # As many bytes as the real template's default system prompt has tokens.
    preface = "\n" * max(0, model.chat_tokens - marks)
    opening, closing = _quoted(before), _quoted(after)
    image = _quoted(_IMAGE_MARKS.get(model.architecture, _QWEN_IMAGE))
    return (
        f"{{{{ {_quoted(first)} }}}}"
        f"{{% if messages[0]['role'] != 'system' %}}{{{{ {_quoted(preface)} }}}}{{% endif %}}"
        f"{{% for message in messages %}}{{{{ {opening} + {role} + {closing} }}}}"
        "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
        "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
        f"{{% elif part['type'] in ('image', 'image_url') %}}{{{{ {image} }}}}{{% endif %}}{{% endfor %}}"
        f"{{% endif %}}{{{{ {_quoted(end)} }}}}{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{{{{ {opening} + {answer} + {closing} }}}}{{% endif %}}"
    )


def _length(text: str, tokens: SpecialTokens) -> int:
    """Return the tokens of a template part: one a special token, else its bytes."""
    count = 0
    for word in tokens.ids:
        count += text.count(word)
        text = text.replace(word, "")
    return count + len(text.encode())


def _quoted(text: str) -> str:
    return "'" + text.replace("\n", "\\n") + "'"


# --- files ----------------------------------------------------------------------------------


def tokenizer_files(model: Model) -> dict[str, Any]:
    """Return the tokenizer's and processors' JSON files by name."""
    tokens, ids_by_role = special_tokens(model), role_ids(model)
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.text.max_positions,
        "clean_up_tokenization_spaces": False,
        "bos_token": tokens.bos,
        "eos_token": tokens.eos[0],
        "pad_token": tokens.pad,
        "chat_template": chat_template(model),
    }
    if model.architecture in PIXEL_PROCESSORS:
        settings |= {"processor_class": PIXEL_PROCESSORS[model.architecture]}
        if model.architecture == OMNI:
            settings |= {"extra_special_tokens": omni.WORDS, **omni.WORDS}
    elif model.architecture == GEMMA3:
        words = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
        settings |= {"extra_special_tokens": words, **words, "processor_class": "Gemma3Processor"}
    elif model.architecture in (MINICPM, PHI3V):
        settings |= {"processor_class": llava.PROCESSOR}
    elif model.architecture == LLAVA:
        settings |= {"extra_special_tokens": {"image_token": "<image>"}, "processor_class": llava.PROCESSOR}
    elif model.architecture == LLAMA4:
        settings |= {"processor_class": llama4.PROCESSOR}
    elif model.vision and model.architecture != CHAT_LAYOUT:
        settings |= _image_words(tokens) | {"processor_class": "InternVLProcessor"}
    return {
        "generation_config.json": {f"{role}_token_id": ids_by_role[role] for role in ("bos", "eos", "pad")},
        "tokenizer.json": tokenizer_json(model),
        "tokenizer_config.json": settings,
        **processors(model),
    }


def _image_words(tokens: SpecialTokens) -> dict[str, Any]:
    words = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}
    words["video_token"] = "<|video_pad|>" if "<|video_pad|>" in tokens.ids else "<quad>"
    return {"extra_special_tokens": words, **words}
