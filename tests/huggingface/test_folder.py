"""An imported folder computes what it did, and what doesn't fit together is refused."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from safetensors.torch import load_file, save_file
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from transformers import BertForMaskedLM, GPT2LMHeadModel, PreTrainedTokenizerFast

from killed import require_repeatable
from plans import plan_finetuning
from regard import api
from regard.errors import NonFiniteError, UserError
from regard.huggingface.convert.folder import import_folder, load_start, load_tokenizer
from regard.huggingface.convert.tokenizer import known_text, read_tokenizer, template_of
from regard.runs.run import Run
from regard.text.template import TemplateConfig
from regard.text.tokenizer import OutOfVocabularyError, SpecialTokens, Tokenizer
from tiny import BIOGRAPHIES, QUESTIONS
from tiny_folders import (
    BERT_SPECIAL,
    END,
    bert_folder,
    bert_pieces,
    edit,
    gpt2_folder,
    gpt2_pieces,
    with_tokenizer,
)
from tiny_hugging_face import tiny_bert, tiny_gpt2

TEXT = BIOGRAPHIES[0]
PIECES = {"gpt2": gpt2_pieces(), "bert": bert_pieces()}
FAMILIES = pytest.mark.parametrize("family", ["gpt2", "bert"])
any_text = st.text(st.characters(codec="utf-8"), max_size=30).filter(lambda text: "[" not in text)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each family and a run made of it. Not to be changed: see `folder_of`."""
    path = tmp_path_factory.mktemp("hugging-face")
    gpt2_folder(path / "gpt2", PIECES["gpt2"], {})
    bert_folder(path / "bert", PIECES["bert"])
    for family in PIECES:
        import_folder(path / family, path / f"{family}-run")
    return path


@pytest.fixture
def folder_of(folders: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of the folder of a family, to be changed."""
    return lambda family: Path(shutil.copytree(folders / family, tmp_path / family))


@torch.inference_mode()
def logits(run: Run, text: str = TEXT) -> Tensor:
    out: Tensor = run.model(torch.tensor([run.encode(text)[0]]))
    return out


# What the run computes


@FAMILIES
def test_a_run_is_what_was_saved_and_tells_its_folder(
    folders: Path, tmp_path: Path, family: str
) -> None:
    run = import_folder(folders / family, tmp_path / "run")
    again = Run.load(tmp_path / "run")
    assert not run.model.training
    # Exact: the same operations on the same shapes.
    assert torch.equal(logits(run), logits(again))
    assert (run.recipe, run.origin) == (again.recipe, again.origin)
    assert run.tokenizer.fingerprint == again.tokenizer.fingerprint
    weights = (folders / family / "model.safetensors").read_bytes()
    assert run.origin["stage"] == "import"
    assert run.origin["folder"] == str(folders / family)
    assert hashlib.sha256(weights).hexdigest().startswith(run.origin["fingerprint"])


@FAMILIES
def test_a_folder_is_loaded_without_being_saved(folders: Path, family: str) -> None:
    before = sorted(path.name for path in (folders / family).iterdir())
    run = api.load(f"hf:{folders / family}", device="cpu")
    # Exact: the same operations on the same shapes.
    assert torch.equal(logits(run), logits(Run.load(folders / f"{family}-run")))
    assert not run.model.training
    assert sorted(path.name for path in (folders / family).iterdir()) == before


def test_a_folder_may_be_named_from_home(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shells leave the "~" after "hf:" as it is."""
    monkeypatch.setenv("HOME", str(folders))
    run = load_start("hf:~/gpt2")
    assert load_tokenizer("hf:~/gpt2").fingerprint == run.tokenizer.fingerprint
    with pytest.raises(UserError, match="nobody-of-that-name/x"):
        load_start("hf:~nobody-of-that-name/x")


def test_weights_of_half_precision_are_imported_as_they_are(
    folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = folder_of("bert")
    path = folder / "model.safetensors"
    half = {name: tensor.bfloat16() for name, tensor in load_file(path).items()}
    save_file(half, path)
    run = import_folder(folder, tmp_path / "half")
    save_file({name: tensor.float() for name, tensor in half.items()}, path)
    assert torch.equal(logits(run), logits(import_folder(folder, tmp_path / "whole")))


def test_weights_in_several_files_are_those_of_one(
    folder_of: Callable[[str], Path], folders: Path, tmp_path: Path
) -> None:
    folder = folder_of("gpt2")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    shards = {name: f"part-{i % 3}.safetensors" for i, name in enumerate(tensors)}
    for shard in set(shards.values()):
        save_file({n: t for n, t in tensors.items() if shards[n] == shard}, folder / shard)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards}), encoding="utf-8")
    run = import_folder(folder, tmp_path / "run")
    assert torch.equal(logits(run), logits(Run.load(folders / "gpt2-run")))
    (folder / "part-1.safetensors").unlink()
    says = "part-1.safetensors: is missing; restore it from a copy"
    assert says in refusal(folder, tmp_path / "other")


# Tokens


@pytest.fixture(scope="module")
def runs(folders: Path) -> dict[str, Run]:
    return {family: Run.load(folders / f"{family}-run") for family in PIECES}


@FAMILIES
@settings(max_examples=40)
@given(text=any_text)
def test_texts_have_the_ids_of_the_folder(runs: dict[str, Run], family: str, text: str) -> None:
    tokenizer, theirs = runs[family].tokenizer, PIECES[family]
    ids = tokenizer.encode(text)
    assert ids == theirs.encode(text, add_special_tokens=False).ids
    assert runs[family].encode(text)[0] == theirs.encode(text).ids
    assert tokenizer.size == theirs.get_vocab_size()
    assert tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=False)


@FAMILIES
def test_each_token_is_of_its_word_and_marks_are_of_none(folders: Path, family: str) -> None:
    tokenizer, text = Tokenizer.load(folders / f"{family}-run"), "Ada  Finch was\tborn. "
    ids, words = tokenizer.encode_words(text)
    assert ids == tokenizer.encode(text)
    said = [
        tokenizer.decode([i for i, of in zip(ids, words, strict=True) if of == number]).strip()
        for number in range(4)
    ]
    assert [word.lower() for word in said] == ["ada", "finch", "was", "born."]
    assert set(words) <= {-1, 0, 1, 2, 3}


def test_two_texts_are_joined_as_each_family_joins_them(folders: Path) -> None:
    gpt2, bert = (Run.load(folders / f"{family}-run") for family in ("gpt2", "bert"))
    one, other = gpt2.tokenizer.encode("Ada"), gpt2.tokenizer.encode("was")
    end = gpt2.tokenizer.special.require("eos")
    assert gpt2.encode("Ada", "was")[0] == [*one, end, *other]
    ids, parts = bert.encode("Ada", "was")
    cls, *inner, sep = bert.encode("was")[0]
    assert ids == [*bert.encode("Ada")[0], *inner, sep]
    assert [cls, sep] == [bert.tokenizer.special.cls, bert.tokenizer.special.sep]
    assert parts == [0] * len(bert.encode("Ada")[0]) + [1] * (len(inner) + 1)


def test_a_tokenizer_that_begins_texts_has_a_template_that_does(
    folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, pieces = folder_of("gpt2"), gpt2_pieces()
    end = pieces.token_to_id(END)
    pieces.post_processor = processors.TemplateProcessing(
        single=f"{END} $A", special_tokens=[(END, end)]
    )
    pieces.save(str(folder / "tokenizer.json"))
    run = import_folder(folder, tmp_path / "run")
    assert run.recipe.template.document == "{bos}{document}"
    assert run.encode(TEXT)[0] == [end, *run.tokenizer.encode(TEXT)] == pieces.encode(TEXT).ids


GPT = {"bos": "<s>", "eos": "</s>"}
ROBERTA = {**GPT, "cls": "<s>", "sep": "</s>"}
BERT = {"cls": "<s>", "sep": "</s>"}
BOTH = {"bos": "<s>", "eos": "</s>", "cls": "<cls>", "sep": "<sep>"}


def template(
    kind: str, names: dict[str, str], single: str, generation: dict[str, int], **hf: Any
) -> TemplateConfig:
    """The template of a tokenizer whose special tokens have ids from 0, in this order."""
    vocabulary = {name: i for i, name in enumerate(["<s>", "</s>", "<cls>", "<sep>", "a"])}
    native = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    native.add_special_tokens([*vocabulary][:4])
    special = [(name, i) for name, i in vocabulary.items() if name != "a"]
    native.post_processor = processors.TemplateProcessing(single=single, special_tokens=special)
    return template_of(Tokenizer(native, names), {"model_type": kind, **hf}, generation)


BARE = TemplateConfig(
    document="{document}",
    prompt="{question}",
    completion="{eos}{answer}{eos}",
    pair=("{first}", "{eos}{second}"),
    source="{source}",
    target="{target}{eos}",
)
AROUND = replace(
    BARE,
    document="{bos}{document}{eos}",
    prompt="{bos}{question}{eos}",
    completion="{sep}{answer}{eos}",
    pair=("{first}", "{sep}{second}"),
    source="{bos}{source}{eos}",
)
CLASSIFIED = TemplateConfig(
    document="{cls}{document}{sep}",
    prompt="{cls}{question}{sep}",
    completion="{sep}{answer}{sep}",
    pair=("{first}{sep}", "{second}"),
    source="{cls}{source}{sep}",
    target="{target}{sep}",
)


@pytest.mark.parametrize(
    ("kind", "names", "single", "expected"),
    [
        ("gpt2", GPT, "$A", BARE),
        ("llama", BOTH, "<s> $A </s>", AROUND),
        # BERT's texts have [CLS] and [SEP] even if the tokenizer adds none.
        ("bert", BERT, "$A", CLASSIFIED),
        ("bert", BERT, "<s> $A </s>", CLASSIFIED),
        ("distilbert", BERT, "$A", CLASSIFIED),
        # In RoBERTa, <s> is bos and cls, and </s> is eos and sep; two of them part two texts.
        (
            "roberta",
            ROBERTA,
            "<s> $A </s>",
            replace(AROUND, pair=("{first}{sep}{sep}", "{second}")),
        ),
    ],
)
def test_templates_have_the_tokens_that_the_tokenizer_adds(
    kind: str, names: dict[str, str], single: str, expected: TemplateConfig
) -> None:
    assert template(kind, names, single, {}) == expected


def test_a_forced_first_token_begins_targets() -> None:
    """In generation_config.json, or else in config.json of older files."""
    targets = [
        template("bart", ROBERTA, "<s> $A </s>", {}, forced_bos_token_id=0).target,
        template("bart", BOTH, "$A", {"forced_bos_token_id": 0}, forced_bos_token_id=2).target,
    ]
    assert targets == ["{bos}{target}{eos}"] * 2


def test_a_token_around_texts_that_has_no_role_is_refused(
    folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, pieces = folder_of("gpt2"), gpt2_pieces()
    pieces.post_processor = processors.TemplateProcessing(
        single="a $A", special_tokens=[("a", pieces.token_to_id("a"))]
    )
    pieces.save(str(folder / "tokenizer.json"))
    assert "puts a around each text" in refusal(folder, tmp_path / "run")


@pytest.mark.parametrize(("token", "text"), [("a", "a"), ("b", "b"), ("Ġb", " b")])
def test_a_known_text_is_a_or_a_token_or_what_a_token_is_decoded_to(token: str, text: str) -> None:
    native = tokenizers.Tokenizer(models.WordLevel({token: 0}))
    native.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    native.decoder = decoders.ByteLevel()
    assert known_text(Tokenizer(native, {})) == (text, [0])


def test_a_text_without_tokens_is_no_known_text() -> None:
    native = tokenizers.Tokenizer(models.WordLevel({"b": 0}))
    native.normalizer = normalizers.Replace("a", "")
    assert known_text(Tokenizer(native, {})) == ("b", [0])


def test_text_that_spells_a_special_token_is_ordinary_text(folders: Path) -> None:
    for family, special in [
        ("gpt2", END),
        ("bert", "[MASK]"),
        ("bert", "[PAD]"),
        ("bert", "[CLS]"),
    ]:
        tokenizer = Tokenizer.load(folders / f"{family}-run")
        ids = tokenizer.encode(f"Ada {special} was")
        assert tokenizer.native.token_to_id(special) not in ids
        if family == "gpt2":
            assert tokenizer.decode(ids) == f"Ada {special} was"


def test_bytes_that_are_no_text_are_refused(folders: Path) -> None:
    with pytest.raises(OutOfVocabularyError, match="Unicode"):
        Tokenizer.load(folders / "bert-run").encode("Ada \udcff")


def test_special_tokens_are_those_of_the_files(tmp_path: Path) -> None:
    pieces = gpt2_pieces("<pad>", "<turn>")
    end, padding, turn = (pieces.get_vocab()[name] for name in (END, "<pad>", "<turn>"))
    folder = gpt2_folder(tmp_path / "folder", pieces, {})
    edit(folder / "config.json", pad_token_id=padding, eos_token_id=[end, turn])
    run = import_folder(folder, tmp_path / "run")
    expected = SpecialTokens(pad=padding, bos=end, eos=end, stop_ids=(end, turn))
    assert run.tokenizer.special == expected
    assert Run.load(tmp_path / "run").tokenizer.special == expected


def test_other_roles_are_another_fingerprint(tmp_path: Path) -> None:
    pieces = gpt2_pieces("<pad>")
    plain = import_folder(gpt2_folder(tmp_path / "a", pieces, {}), tmp_path / "a-run").tokenizer
    padded = gpt2_folder(tmp_path / "b", pieces, {"pad": "<pad>"})
    own = import_folder(padded, tmp_path / "b-run").tokenizer
    assert (plain.special.pad, own.special.pad) == (None, pieces.token_to_id("<pad>"))
    assert own.fingerprint != plain.fingerprint


def test_a_tokenizer_that_cuts_and_pads_does_so_no_longer(
    folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, pieces = folder_of("bert"), tokenizers.Tokenizer.from_str(PIECES["bert"].to_str())
    pieces.enable_truncation(4)
    pieces.enable_padding(length=64)
    pieces.save(str(folder / "tokenizer.json"))
    ids, _ = import_folder(folder, tmp_path / "run").encode(TEXT)
    assert len(ids) == len(PIECES["bert"].encode(TEXT).ids)


def test_the_older_files_of_gpt2_make_the_same_tokens(
    folder_of: Callable[[str], Path], folders: Path, tmp_path: Path
) -> None:
    folder = folder_of("gpt2")
    write_older_files(folder, PIECES["gpt2"])
    assert_same_tokens(folder, folders / "gpt2-run", tmp_path / "run")


def write_older_files(folder: Path, pieces: tokenizers.Tokenizer) -> None:
    model = json.loads(pieces.to_str())["model"]
    merges = "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in model["merges"])
    (folder / "vocab.json").write_text(json.dumps(pieces.get_vocab()), encoding="utf-8")
    (folder / "merges.txt").write_text(merges, encoding="utf-8")


@pytest.mark.parametrize("file", ["added_tokens.json", "tokenizer_config.json"])
def test_added_tokens_of_older_files_are_read(file: str, tmp_path: Path) -> None:
    pieces, larger = gpt2_pieces(), gpt2_pieces()
    larger.add_tokens([" born"])
    folder = gpt2_folder(tmp_path / "gpt2", larger, {})
    write_older_files(folder, pieces)
    (folder / "tokenizer.json").unlink()
    number = pieces.get_vocab_size()
    if file == "added_tokens.json":
        (folder / file).write_text(json.dumps({" born": number}), encoding="utf-8")
    else:
        edit(folder / file, added_tokens_decoder={str(number): {"content": " born"}})
    tokenizer = import_folder(folder, tmp_path / "run").tokenizer
    assert tokenizer.encode("ada was born")[-1] == number


def test_an_added_mask_keeps_its_options(tmp_path: Path) -> None:
    pieces = gpt2_pieces("<s>", "</s>", "<pad>", "<unk>", "<mask>")
    write_older_files(tmp_path, pieces)
    mask = pieces.token_to_id("<mask>") or 0
    token = {"content": "<mask>", "lstrip": True, "special": True}
    config = {"mask_token": "<mask>", "added_tokens_decoder": {str(mask): token}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = read_tokenizer(tmp_path, {"model_type": "roberta"}, {})
    assert tokenizer.native.get_added_tokens_decoder()[mask].lstrip


def test_older_files_of_gpt2_may_begin_texts(
    folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = folder_of("gpt2")
    write_older_files(folder, PIECES["gpt2"])
    (folder / "tokenizer.json").unlink()
    edit(folder / "tokenizer_config.json", add_bos_token=True)
    run = import_folder(folder, tmp_path / "run")
    assert run.encode("ada was")[0][0] == run.tokenizer.special.bos


def test_settings_that_differ_from_the_tokenizer_are_a_warning(
    folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = folder_of("bert")
    edit(folder / "tokenizer_config.json", do_lower_case=False, tokenizer_class="BertTokenizer")
    with pytest.warns(UserWarning, match="do_lower_case is False .* lowercase is True"):
        import_folder(folder, tmp_path / "run")


def test_a_folder_may_ask_for_a_space_before_each_text(
    folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, pieces = folder_of("gpt2"), gpt2_pieces()
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    pieces.save(str(folder / "tokenizer.json"))
    tokenizer = import_folder(folder, tmp_path / "run").tokenizer
    assert tokenizer.decode(tokenizer.encode("Ada  was")) == " Ada  was"


def test_the_older_file_of_bert_makes_the_same_tokens(
    folder_of: Callable[[str], Path], folders: Path, tmp_path: Path
) -> None:
    folder, vocabulary = folder_of("bert"), PIECES["bert"].get_vocab()
    lines = "".join(f"{token}\n" for token in sorted(vocabulary, key=lambda t: vocabulary[t]))
    (folder / "vocab.txt").write_text(lines, encoding="utf-8")
    assert_same_tokens(folder, folders / "bert-run", tmp_path / "run")


def assert_same_tokens(folder: Path, known: Path, out: Path) -> None:
    """Without tokenizer.json and what names the special tokens, which have the usual names."""
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    ours, wanted = import_folder(folder, out).tokenizer, Tokenizer.load(known)
    for text in (*BIOGRAPHIES, "Émile  Łódź\n☃ it's"):
        assert ours.encode(text) == wanted.encode(text)
        assert ours.decode(ours.encode(text)) == wanted.decode(wanted.encode(text))
    assert torch.equal(logits(Run.load(out)), logits(Run.load(known)))


def test_a_cased_bert_keeps_capitals(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    folder = folder_of("bert")
    vocabulary = PIECES["bert"].get_vocab()
    words = sorted(vocabulary, key=lambda token: vocabulary[token])
    words[words.index("ada")] = "Ada"
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    (folder / "tokenizer.json").unlink()
    edit(folder / "tokenizer_config.json", do_lower_case=False)
    tokenizer = import_folder(folder, tmp_path / "run").tokenizer
    assert tokenizer.decode(tokenizer.encode("Ada was")) == "Ada was"


# Refusals


def refusal(folder: Path, out: Path) -> str:
    """The one line that refuses a folder, of which nothing is left."""
    with pytest.raises(UserError) as refused:
        import_folder(folder, out)
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith(str(folder))
    assert not out.exists()
    return message


MODEL, TOKENS, WEIGHTS = "config.json", "tokenizer.json", "model.safetensors"
ROLES, INDEX = "tokenizer_config.json", "model.safetensors.index.json"
BAD_FILES: list[tuple[str, dict[str, Any], str]] = [
    # missing
    ("gpt2", {MODEL: None}, "has no config.json"),
    ("gpt2", {WEIGHTS: None}, "has no model.safetensors"),
    ("gpt2", {TOKENS: None}, "neither tokenizer.json nor vocab.json and merges.txt"),
    ("bert", {TOKENS: None}, "neither tokenizer.json nor vocab.txt"),
    # damaged
    *(("gpt2", {MODEL: text}, f"/{MODEL}: ") for text in ("{", "[]")),
    *(("gpt2", {TOKENS: text}, f"/{TOKENS}: ") for text in ("{}", "")),
    ("gpt2", {ROLES: "3"}, f"/{ROLES}: "),
    ("gpt2", {WEIGHTS: "no tensors"}, f"/{WEIGHTS}: "),
    ("gpt2", {WEIGHTS: None, INDEX: "{}"}, "weight_map"),
    # of another model
    *(
        (
            "gpt2",
            {MODEL: {"model_type": kind}},
            f"model_type is {kind}; what can be imported is gpt2, ",
        )
        for kind in ("opt", ["gpt2"], None)
    ),
    ("gpt2", {MODEL: {"n_layer": 3}}, "h.2."),
    ("gpt2", {MODEL: {"n_positions": 31}}, "wpe.weight: has shape (32, 16)"),
    ("bert", {MODEL: {"intermediate_size": 32}}, "intermediate.dense"),
    ("gpt2", {MODEL: {"n_layer": 10**12}}, "n_layers: expected an integer <="),
    ("gpt2", {MODEL: {"n_positions": 10**12}}, "context_length: expected an integer <="),
    # special tokens
    ("gpt2", {MODEL: {"eos_token_id": [10**12]}}, "its special id 1000000000000 is none of a voc"),
    ("gpt2", {MODEL: {"decoder_start_token_id": -3}}, "its special id -3 is none of a vocabulary"),
    ("gpt2", {ROLES: {"eos_token": "</s>"}}, "has no </s>, its eos_token"),
    ("gpt2", {ROLES: {"eos_token": {"content": "</s>"}}}, "has no </s>, its eos_token"),
    ("bert", {ROLES: {"mask_token": "<mask>"}}, "has no <mask>, its mask_token"),
]
"""Families, files with their new text or fields (None: no file), and the reason."""


@pytest.mark.parametrize(("family", "files", "says"), BAD_FILES, ids=str)
def test_files_that_do_not_fit_are_refused(
    folder_of: Callable[[str], Path],
    tmp_path: Path,
    family: str,
    files: dict[str, Any],
    says: str,
) -> None:
    folder = folder_of(family)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for name, content in files.items():
        if isinstance(content, dict):
            edit(folder / name, **content)
        elif content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_text(content, encoding="utf-8")
    assert says in refusal(folder, tmp_path / "run")


@pytest.mark.parametrize("existing", ["folder", "file"])
def test_what_exists_is_not_touched(folders: Path, tmp_path: Path, existing: str) -> None:
    out = tmp_path / "run"
    if existing == "folder":
        out.mkdir()
    else:
        out.write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match="exists; choose another --out"):
        import_folder(folders / "gpt2", out)
    assert not list(out.iterdir()) if existing == "folder" else out.read_text("utf-8") == "mine"


def test_a_killed_import_is_repeated(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(out: Path) -> Run:
        return import_folder(folders / "gpt2", out)

    require_repeatable(write, "config.toml", tmp_path, monkeypatch)


def test_damaged_weights_are_refused(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    folder = folder_of("gpt2")
    tensors = load_file(folder / "model.safetensors")
    next(iter(tensors.values())).view(-1)[0] = float("inf")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(NonFiniteError, match="is NaN or infinite: the weights are damaged"):
        import_folder(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("family", "change", "says"),
    [
        ("gpt2", {"bos_token_id": 10**12}, "bos_token_id is 1000000000000 in config.json, but"),
        (
            "gpt2",
            {"bos_token_id": 5},
            "bos_token_id is 5 in config.json, but the tokenizer has <|e",
        ),
        ("gpt2", {"eos_token_id": 50256}, "eos_token_id is 50256 in config.json"),
        ("bert", {"pad_token_id": 0}, r"the tokenizer has \[PAD\], 4; the tokenizer's is used"),
        ("gpt2", {"pad_token_id": 301}, "pad_token_id is 301 in config.json, .* has no such token"),
        ("bert", {"eos_token_id": "[SEP]"}, r"eos_token_id is \[SEP\] in config.json"),
    ],
)
def test_a_special_id_that_disagrees_with_the_tokenizer_is_a_warning(
    folder_of: Callable[[str], Path],
    folders: Path,
    tmp_path: Path,
    family: str,
    change: dict[str, object],
    says: str,
) -> None:
    folder = folder_of(family)
    edit(folder / "config.json", **change)
    with pytest.warns(UserWarning, match=says):
        run = import_folder(folder, tmp_path / "run")
    assert run.tokenizer.special == Tokenizer.load(folders / f"{family}-run").special


def test_a_tokenizer_that_is_larger_than_the_model_is_refused(
    folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, pieces = folder_of("gpt2"), tokenizers.Tokenizer.from_str(PIECES["gpt2"].to_str())
    size = pieces.get_vocab_size()
    pieces.add_tokens(["<new>"])
    pieces.save(str(folder / "tokenizer.json"))
    message = refusal(folder, tmp_path / "run")
    assert f"has {size + 1} tokens" in message
    assert f"embeddings of {size}" in message


# Odd folders, in float64


def odd_gpt2(folder: Path) -> Path:
    """Special tokens in the middle of the ids, rows without a token, another bos_token_id."""
    words = ["Ada", "was", "<s>", "born", "<|pad|>", "in", "Rome", "."]
    native = tokenizers.Tokenizer(models.WordLevel({w: i + 3 for i, w in enumerate(words)}))
    native.pre_tokenizer = pre_tokenizers.Whitespace()
    native.add_special_tokens(["<s>", "<|pad|>"])
    settings: dict[str, Any] = {"vocab_size": 17, "n_positions": 32, "bos_token_id": 3}
    tiny_gpt2(**settings, eos_token_id=5, pad_token_id=7).save_pretrained(folder)
    return with_tokenizer(folder, native, {"bos": "<s>", "eos": "<s>", "pad": "<|pad|>"})


def odd_bert(folder: Path) -> Path:
    """The same."""
    words = ["Ada", "[SEP]", "was", "[MASK]", "born", "[UNK]", "[PAD]", "in", "[CLS]", "Rome", "."]
    vocabulary = {word: i + 3 for i, word in enumerate(words)}
    native = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    native.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    native.add_special_tokens(list(BERT_SPECIAL.values()))
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    native.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    settings: dict[str, Any] = {"vocab_size": 21, "bos_token_id": 3, "pad_token_id": 9}
    tiny_bert(**settings).save_pretrained(folder)
    return with_tokenizer(folder, native, BERT_SPECIAL | {"bos": "[CLS]"})


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_an_odd_folder_computes_the_same_on_the_same_ids(tmp_path: Path, family: str) -> None:
    """To 1e-10 in float64, where sums of some ten terms are rounded by 1e-15."""
    folder = {"gpt2": odd_gpt2, "bert": odd_bert}[family](tmp_path / "folder")
    with pytest.warns(UserWarning, match="bos_token_id is 3 in config.json, but the tokenizer has"):
        import_folder(folder, tmp_path / "run")
    run = Run.load(tmp_path / "run")
    theirs = PreTrainedTokenizerFast.from_pretrained(tmp_path / "folder")
    kind: Any = GPT2LMHeadModel if family == "gpt2" else BertForMaskedLM
    model = kind.from_pretrained(folder, dtype=torch.float64)
    run.model.double()
    text = "Ada was born in Rome ."
    found = theirs([text, text], return_tensors="pt").input_ids
    assert run.encode(text)[0] == found[0].tolist()
    anything = torch.randint(0, model.config.vocab_size, (2, 9))  # rows without a token too
    with torch.inference_mode():
        for ids in (found, anything):
            torch.testing.assert_close(run.model(ids), model(ids).logits, rtol=0, atol=1e-10)
    if family == "bert":
        pair = theirs("Ada was", "born in", return_tensors="pt", return_token_type_ids=True)
        ids, segments = run.encode("Ada was", "born in")
        assert (ids, segments) == (pair.input_ids[0].tolist(), pair.token_type_ids[0].tolist())
        with torch.inference_mode():
            ours = run.model(pair.input_ids, torch.tensor([len(ids)]), pair.token_type_ids)
            torch.testing.assert_close(ours, model(**pair).logits, rtol=0, atol=1e-10)


def test_an_imported_model_is_finetuned_on_questions_and_answers_them(
    folders: Path, tmp_path: Path
) -> None:
    run = Run.load(folders / "gpt2-run")
    settings = ["training.epochs=1", "training.batch=4"]
    tuned = api.finetune(run, QUESTIONS, out=tmp_path / "tuned", settings=settings)
    end = tuned.tokenizer.special.require("eos")
    batch = plan_finetuning(run, QUESTIONS, tmp_path / "other", settings=settings).sampler.batch(0)
    assert batch.labels.eq(end).sum(1).tolist() == [2] * len(batch.labels)
    (text,) = api.generate(tuned, [QUESTIONS[0].text], max_new_tokens=3)
    assert not text.startswith(QUESTIONS[0].text)
    (raw,) = api.generate(tuned, [QUESTIONS[0].text], max_new_tokens=3, raw=True)
    assert raw.startswith(QUESTIONS[0].text)
    assert Tokenizer.load(tmp_path / "tuned").fingerprint == run.tokenizer.fingerprint
