"""Folders with a tiny GPT-2 or BERT and its tokenizer, as Hugging Face transformers saves them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from tiny import BIOGRAPHIES, QUESTIONS
from tiny_hugging_face import tiny_bert, tiny_gpt2

END = "<|endoftext|>"
BERT_SPECIAL = {role: f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
TEXTS = (*BIOGRAPHIES, *(question.text for question in QUESTIONS))


def gpt2_pieces(*added: str) -> tokenizers.Tokenizer:
    """300 byte pairs, then what ends a text, then what else is added."""
    pieces = tokenizers.Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    pieces.train_from_iterator(TEXTS, trainer)
    pieces.add_special_tokens([END, *added])
    return pieces


def bert_pieces() -> tokenizers.Tokenizer:
    """Uncased word pieces, with no special token where it belongs here."""
    pieces = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer(lowercase=True)
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pieces.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=90,
        special_tokens=["[UNK]", "[CLS]", "[SEP]", "[MASK]", "[PAD]"],
        show_progress=False,
    )
    pieces.train_from_iterator(TEXTS, trainer)
    ends = [(token, pieces.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    pieces.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    return pieces


def gpt2_folder(
    folder: Path, pieces: tokenizers.Tokenizer, roles: Mapping[str, str], **settings: Any
) -> Path:
    """A GPT-2 with this tokenizer, whose roles are such as {"pad": "<pad>"}."""
    marks = {"bos_token_id": pieces.token_to_id(END), "eos_token_id": pieces.token_to_id(END)}
    sizes = {"vocab_size": pieces.get_vocab_size(), "n_positions": 32}
    tiny_gpt2(dtype=torch.float32, **sizes, **marks, **settings).save_pretrained(folder)
    return with_tokenizer(folder, pieces, {"bos": END, "eos": END, **roles})


def bert_folder(folder: Path, pieces: tokenizers.Tokenizer, **settings: Any) -> Path:
    """A BERT with this tokenizer."""
    marks = {"pad_token_id": pieces.token_to_id("[PAD]")}
    size = {"vocab_size": pieces.get_vocab_size()}
    tiny_bert(dtype=torch.float32, **size, **marks, **settings).save_pretrained(folder)
    return with_tokenizer(folder, pieces, BERT_SPECIAL)


def with_tokenizer(folder: Path, pieces: tokenizers.Tokenizer, roles: Mapping[str, str]) -> Path:
    """The folder with tokenizer.json and tokenizer_config.json."""
    pieces.save(str(folder / "tokenizer.json"))
    special = {f"{role}_token": token for role, token in roles.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps(special), encoding="utf-8")
    return folder


def edit(path: Path, **values: Any) -> None:
    """Change fields of a JSON file; those that become None are left out."""
    table = json.loads(path.read_text(encoding="utf-8")) | values
    kept = {name: value for name, value in table.items() if value is not None}
    path.write_text(json.dumps(kept), encoding="utf-8")
