"""Tiny models of Hugging Face of every shape, and folders of them with a tokenizer."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import models, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import PreTrainedModel

from tiny_folders import BERT_SPECIAL, END, TEXTS, bert_pieces, edit, gpt2_pieces, with_tokenizer
from tiny_hugging_face import tiny, tiny_bert, tiny_gpt2

Make = Callable[..., PreTrainedModel]


def gpt2(**settings: Any) -> PreTrainedModel:
    return tiny_gpt2(dtype=torch.float32, **settings).transformer


def bert(**settings: Any) -> PreTrainedModel:
    return tiny_bert(dtype=torch.float32, **settings).bert


def t5(**settings: Any) -> PreTrainedModel:
    return tiny("t5", "plain", dtype=torch.float32, **{"decoder_start_token_id": 0, **settings})


def bart(**settings: Any) -> PreTrainedModel:
    marks = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "forced_eos_token_id": 2}
    marks |= {"decoder_start_token_id": 2}
    return tiny("bart", "plain", dtype=torch.float32, **{**marks, **settings})


def llama(**settings: Any) -> PreTrainedModel:
    """Two query heads share each key head; positions are rotated."""
    shared = {"num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}
    model: Any = tiny("llama", "plain", dtype=torch.float32, **{**shared, **settings})
    body: PreTrainedModel = model.model
    return body


MAKERS: Mapping[str, Make] = {"gpt2": gpt2, "bert": bert, "t5": t5, "bart": bart, "llama": llama}
PAIRED = frozenset({"t5", "bart"})
"""Those that read a source and write a target."""

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [7, 8, 2, 8, 1, 8, 12, 20]])
TARGET = torch.tensor([[3, 5, 8, 9, 7, 9], [3, 3, 8, 4, 6, 2]])


def real_tokens(side: str) -> Tensor:
    """All of the first row, and five of the second; the rest is padding, on that side."""
    keep = torch.ones_like(IDS)
    keep[1, slice(5, None) if side == "right" else slice(None, 3)] = 0
    return keep


def inputs_of(family: str, side: str = "right") -> dict[str, Tensor]:
    """Two rows, of which the second is padded."""
    padded = {"input_ids": IDS, "attention_mask": real_tokens(side)}
    if family not in PAIRED:
        return padded
    return {**padded, "decoder_input_ids": TARGET, "decoder_attention_mask": TARGET.new_ones(2, 6)}


def _word_pieces() -> tokenizers.Tokenizer:
    """BERT's, which put [SEP] between two texts."""
    pieces = bert_pieces()
    pieces.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, pieces.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return pieces


def _spaced() -> tokenizers.Tokenizer:
    """As SentencePiece has them: ▁ stands for the space before a word."""
    pieces = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    pieces.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=90, special_tokens=special, show_progress=False)
    pieces.train_from_iterator(TEXTS, trainer)
    pieces.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 2)]
    )
    return pieces


_SPACED_ROLES = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "unk": "<unk>"}
_TOKENIZERS: Mapping[str, tuple[Callable[[], tokenizers.Tokenizer], Mapping[str, str]]] = {
    "gpt2": (gpt2_pieces, {"bos": END, "eos": END}),
    "bert": (_word_pieces, BERT_SPECIAL),
    "t5": (_spaced, _SPACED_ROLES),
    "bart": (_spaced, _SPACED_ROLES),
    "llama": (_spaced, _SPACED_ROLES),
}


def tiny_folder(
    folder: Path, family: str, *, head: bool = False, words: Sequence[str] = (), **settings: Any
) -> Path:
    """A model with a tokenizer, as `save_pretrained` writes them; GPT-2 and BERT also with head.

    Each of `words` is a token.
    """
    make, roles = _TOKENIZERS[family]
    pieces = make()
    pieces.add_tokens(list(words))
    marks = {role: pieces.token_to_id(token) for role, token in roles.items()}
    known = {f"{r}_token_id": i for r, i in marks.items() if r in ("pad", "bos", "eos")}
    first = {"decoder_start_token_id": marks["pad"]} if family == "t5" else {}
    sizes = {"vocab_size": pieces.get_vocab_size(), **known, **first, **settings}
    with_head: Mapping[str, Make] = {"gpt2": tiny_gpt2, "bert": tiny_bert}
    make_model = partial(with_head[family], dtype=torch.float32) if head else MAKERS[family]
    make_model(**sizes).save_pretrained(folder)
    with_tokenizer(folder, pieces, roles)
    edit(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    return folder
