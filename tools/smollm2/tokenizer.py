"""tokenizer.json and its companions, rebuilt from the GGUF's vocabulary and merges.

The checkpoint's pre-tokenizer ("smollm") splits digits one by one, then applies GPT-2's byte-level pattern.
"""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tools.smollm2.checkpoint import Vocabulary

CONTROL = 3  # ggml token type of special tokens


def build_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """A byte-level BPE tokenizer with the checkpoint's ids; special tokens are matched in text before splitting."""
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    left_right = [(left, right) for left, right in (merge.split(" ", 1) for merge in vocabulary.merges)]
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=left_right))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials(vocabulary)])
    return tokenizer


def specials(vocabulary: Vocabulary) -> list[str]:
    """The control tokens in id order."""
    pairs = zip(vocabulary.tokens, vocabulary.kinds, strict=True)
    return [token for token, kind in pairs if kind == CONTROL]


def write_text_files(folder: Path, vocabulary: Vocabulary, context_length: int) -> None:
    """Write tokenizer.json, tokenizer_config.json (with the chat template) and generation_config.json."""
    build_tokenizer(vocabulary).save(str(folder / "tokenizer.json"))
    tokens = vocabulary.tokens
    _write(
        folder / "tokenizer_config.json",
        {
            "add_bos_token": False,
            "add_prefix_space": False,
            "additional_special_tokens": specials(vocabulary),
            "bos_token": tokens[vocabulary.bos],
            "chat_template": vocabulary.chat_template,
            "clean_up_tokenization_spaces": False,
            "eos_token": tokens[vocabulary.eos],
            "model_max_length": context_length,
            "pad_token": tokens[vocabulary.padding],
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": tokens[vocabulary.unknown],
        },
    )
    _write(
        folder / "generation_config.json",
        {
            "bos_token_id": vocabulary.bos,
            "do_sample": False,
            "eos_token_id": vocabulary.eos,
            "pad_token_id": vocabulary.padding,
        },
    )


def _write(path: Path, data: dict[str, object]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
