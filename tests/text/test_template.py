"""Templates are parsed once; fields are encoded apart and never parsed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import convert
from regard.errors import UserError
from regard.text.config import BytePairsConfig, CharactersConfig, SpecialTokensConfig
from regard.text.template import Affixes, Template, TemplateConfig
from regard.text.tokenizer import train_tokenizer

NAMES = SpecialTokensConfig(pad="<pad>", bos="<s>", eos="</s>", sep="<sep>", cls="", mask="")
TOKENIZER = train_tokenizer(BytePairsConfig(size=300, special_tokens=NAMES), ["Q: A: born"])
PAD, BOS, EOS, SEP = range(4)
encode = TOKENIZER.encode


def test_the_default_is_a_question_and_its_answer() -> None:
    template = Template(TemplateConfig(), TOKENIZER)
    assert template.document == Affixes((BOS,), (EOS,))
    assert template.open_answer(template.prompt.around([9])) == [BOS, 9, SEP]
    assert template.completion.around([9]) == [SEP, 9, EOS]
    assert template.target.around([9]) == [9, EOS]
    assert template.source == Affixes()


def test_fixed_texts_and_braces_are_encoded_apart() -> None:
    config = TemplateConfig(prompt="{bos}Q: {question}{sep}", completion="{{A}}:{answer}{eos}")
    template = Template(config, TOKENIZER)
    assert template.prompt == Affixes((BOS, *encode("Q: ")), (SEP,))
    assert template.completion == Affixes(tuple(encode("{A}:")), (EOS,))
    assert len(template.prompt) == 2 + len(encode("Q: "))


@given(st.text(st.characters(codec="utf-8")) | st.sampled_from(["{eos}", "</s>", "{question}"]))
def test_a_field_is_never_parsed(text: str) -> None:
    template = Template(TemplateConfig(), TOKENIZER)
    row, _ = template.join(template.prompt, encode(text))
    assert row == [BOS, *encode(text)]
    assert TOKENIZER.decode(row[1:]) == text
    assert not TOKENIZER.special.ids & set(row[1:])


def test_two_texts_are_joined_in_the_place_of_one() -> None:
    template = Template(TemplateConfig(), TOKENIZER)
    assert template.join(template.prompt, [7, 8]) == ([BOS, 7, 8], [0, 0, 0])
    joined = template.join(template.prompt, [7, 8], [9])
    assert joined == ([BOS, 7, 8, SEP, 9], [0, 0, 0, 1, 1])
    bert = TemplateConfig(prompt="{bos}{question}{sep}", pair=("{first}{sep}", "{second}"))
    template = Template(bert, TOKENIZER)
    joined = template.join(template.prompt, [7, 8], [9])
    assert joined == ([BOS, 7, 8, SEP, 9, SEP], [0, 0, 0, 0, 1, 1])


@pytest.mark.parametrize(
    ("field", "text", "reason"),
    [
        ("prompt", "{bos}", r"'{bos}': {question} must occur once"),
        ("prompt", "{question}{question}", r"{question} must occur once"),
        ("completion", "{question}{answer}", r"{question} is neither field nor role"),
        ("document", "{document}{end}", r"allowed: document, pad, bos, eos, sep, cls, mask, unk"),
        ("source", "{source", r"expected '}'"),
        ("source", "{source!r}", r"a field has no format; write {source}"),
        ("document", "{bos:3}{document}", r"a field has no format; write {bos}"),
        ("pair", ["{first}", "{first}"], r"{first} is neither field nor role"),
    ],
)
def test_a_template_that_cannot_be_parsed_is_refused_by_its_field(
    field: str, text: object, reason: str
) -> None:
    with pytest.raises(UserError, match=reason):
        convert({field: text}, TemplateConfig, where="my.toml")


def test_a_role_or_text_that_the_tokenizer_lacks_is_named_only_where_it_is_used() -> None:
    characters = train_tokenizer(CharactersConfig(special_tokens=NAMES), ["ab"])
    template = Template(TemplateConfig(document="{cls}{document}", target="c{target}"), characters)
    assert template.prompt.around([9]) == [BOS, 9]
    with pytest.raises(UserError, match="no cls token"):
        _ = template.document
    with pytest.raises(UserError, match=r"template around \{target\}: the vocabulary has no 'c'"):
        _ = template.target
