"""What each family generates, from its prompts and back to text; beams of what reads a source."""

import re
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from refusals import refusal
from regard import api
from regard.decoding.generate import encode_prompts, generate_answers
from regard.errors import UserError
from regard.evaluation.answers import answer
from regard.evaluation.tasks import predict
from regard.models.builders import SequenceToSequence
from regard.runs.run import Run
from regard.tasks.examples import Example
from regard.training.sources import probe
from regard.uncertainty.signals import quick_signals
from tiny import MASK, PAD
from tiny_tasks import CONTINUING, CPU, EMBEDDING, LABELING, WRITING, sharp_run, task_recipe

PROMPTS = ["ab", "c ba b", "cccc"]
ANSWERS = ["ab c", "ab c", "c"]
EXAMPLES = [Example(text=x, answer=y, where="") for x, y in zip(PROMPTS, ANSWERS, strict=True)]
PADDING = "<pad>"
READING = {
    "encoder-decoder": ("model.encoder.context_length=24", "model.decoder.context_length=12"),
    "rnn-encoder-decoder": ("model.context_length=12",),
    "rnn-encoder-decoder, attention": ("model.context_length=12", "model.attention.kind=softmax"),
    "encoder-decoder, elu": (
        *("model.encoder.context_length=24", "model.decoder.context_length=12"),
        *("model.encoder.attention.kind=elu", "model.decoder.attention.kind=elu"),
    ),
}
"""What reads a source, with a short block."""


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PROBE_ROWS", 4)


def answering(family: str, *settings: str) -> Run:
    return sharp_run(
        task_recipe("translation", family, "model.context_length=24", *settings), EXAMPLES
    )


def reading(family: str) -> Run:
    """A run in float64 that reads a source."""
    name, _, _ = family.partition(",")
    run = sharp_run(task_recipe("translation", name, *READING[family]), EXAMPLES)
    run.model.double()
    return run


def without_task(run: Run) -> Run:
    """The same run as if it had been trained on texts."""
    return Run(run.path, msgspec.structs.replace(run.recipe, task=None), run.tokenizer, run.model)


# beginnings


def test_a_language_model_continues_its_prompts() -> None:
    run = without_task(answering("decoder"))
    ids = [run.tokenizer.encode(prompt) for prompt in PROMPTS]
    asked = encode_prompts(run, PROMPTS)
    assert asked.starts == [[MASK, *row] for row in ids]
    assert asked.shown == ids
    assert asked.max_new_tokens == 24 + 1 - (1 + 6)
    assert asked.text(1, run.tokenizer.encode("a bc"), None) == "c ba ba bc"
    assert asked.text(1, run.tokenizer.encode("a bc"), " b") == "c ba ba"


def test_a_single_text_is_no_list_of_its_letters() -> None:
    run = answering("decoder")
    for ask, name in ((api.generate, "prompts"), (api.answer, "questions")):
        with pytest.raises(UserError, match=f"{name}: expected a list of texts"):
            ask(run, "ab")


def test_after_a_task_it_answers_behind_its_prompts() -> None:
    run = answering("decoder")
    asked = encode_prompts(run, PROMPTS, max_new_tokens=5)
    assert asked.starts == [[MASK, *run.tokenizer.encode(prompt), MASK] for prompt in PROMPTS]
    assert asked.max_new_tokens == 5
    assert asked.text(1, run.tokenizer.encode("a bc"), " b") == "a"


def test_after_a_probe_it_goes_on_as_the_rows_do() -> None:
    # BUG: a ⁇ before and behind, which no row of a probe has.
    run = sharp_run(task_recipe("copy", "decoder"))
    asked = encode_prompts(run, ["3 5 4 2 0 3"])
    ids = run.tokenizer.encode("3 5 4 2 0 3")
    assert asked.starts == asked.shown == [ids]
    assert asked.text(0, run.tokenizer.encode("5"), None) == "3 5 4 2 0 3 5"


@pytest.mark.parametrize("family", READING)
def test_what_reads_its_prompts_writes_from_the_beginning(family: str) -> None:
    run = reading(family)
    asked = encode_prompts(run, PROMPTS)
    assert asked.starts == [[MASK]] * 3
    assert asked.max_new_tokens == 12
    assert asked.text(2, run.tokenizer.encode("ab c"), None) == "ab c"


def test_what_gives_no_tokens_writes_nothing() -> None:
    for family in LABELING | EMBEDDING:
        with pytest.raises(UserError, match="this needs a causal language model") as error:
            encode_prompts(answering(family), PROMPTS)
        assert "\n" not in str(error.value)


UNFIT: dict[str, list[tuple[list[str], int | None, str]]] = {
    "decoder": [
        (["a", ""], None, "prompt 2: is empty"),
        (["a" * 23], None, "prompt 1: takes 25 tokens, which is more than .* of 24"),
        (["a", "a" * 20], 4, "prompt 2: takes 22 tokens, and with 4 new ones"),
        (["x"], None, "prompt 1: the vocabulary has no 'x'"),
        (["a"], 0, "the number of new tokens must be ≥ 1, not 0"),
        (["a"], -2, "the number of new tokens must be ≥ 1, not -2"),
        ([], None, "prompts: expected one or more, not an empty list"),
    ],
    "encoder-decoder": [
        (["a", ""], None, "prompt 2: is empty"),
        (["a" * 25], None, "prompt 1: takes 25 tokens, which .* of 24"),
        (["a"], 13, "prompt 1: takes 1 tokens, and with 13 .* of 12"),
    ],
    "rnn-encoder-decoder": [(["a" * 13], None, "prompt 1: takes 13 tokens, which .* of 12")],
}


@pytest.mark.parametrize("family", UNFIT)
def test_a_prompt_that_does_not_fit_is_named(family: str) -> None:
    run = reading(family) if family in READING else answering(family)
    for prompts, new, says in UNFIT[family]:
        with refusal(UserError, f"^{says}", says):
            encode_prompts(run, prompts, max_new_tokens=new)


def test_a_source_is_not_continued() -> None:
    with pytest.raises(UserError, match="raw: an encoder–decoder answers a source"):
        encode_prompts(reading("rnn-encoder-decoder"), ["a"], raw=True)


@pytest.mark.parametrize("family", CONTINUING)
def test_an_answer_depends_on_no_other_row(family: str) -> None:
    run = without_task(answering(family))
    rows = [run.template.prompt.around(run.tokenizer.encode(text)) for text in (*PROMPTS, "ab" * 9)]
    for n in (None, 1, 7, 30):
        together = generate_answers(run, rows, max_new_tokens=n)
        alone = [generate_answers(run, [row], max_new_tokens=n)[0] for row in rows]
        assert [answer.ids for answer in together] == [answer.ids for answer in alone], n
        for row, one in zip(rows, together, strict=True):
            room = 24 + 1 - len(row) - 1
            assert one.stopped or len(one.ids) == min(room, n or room), n


def test_the_last_new_token_is_not_read_and_needs_no_place() -> None:
    run = answering("decoder")
    for longest, new in ((22, 1), (20, 3)):
        prompts = ["a" * longest]
        assert encode_prompts(run, prompts, max_new_tokens=new).max_new_tokens == new
        assert encode_prompts(run, prompts).max_new_tokens == new


def questions_run(*settings: str) -> Run:
    """A run that was trained on questions, with a template of its own."""
    template = ("template.prompt=Q: {question}", "template.completion=A{sep}{answer}{eos}")
    run = without_task(answering("decoder", "tokenizer.kind=byte-pairs", *template, *settings))
    run.origin["questions"] = 6
    return run


def test_a_run_of_questions_answers_in_its_template_and_continues_only_raw() -> None:
    run = questions_run()
    encode = run.tokenizer.encode
    asked = encode_prompts(run, PROMPTS)
    assert asked.starts == [[*encode("Q: "), *encode(p), *encode("A"), MASK] for p in PROMPTS]
    assert asked.text(0, encode("ab"), None) == "ab"
    raw = encode_prompts(run, PROMPTS, raw=True)
    assert raw.starts == [[MASK, *encode(p)] for p in PROMPTS]
    assert raw.text(0, encode("ab"), None) == f"{PROMPTS[0]} ab"
    (found,) = answer(
        run, [Example(text=PROMPTS[0])], CPU, signals=quick_signals(), max_new_tokens=4
    )
    (text,) = api.generate(run, [PROMPTS[0]], max_new_tokens=4)
    assert text.strip() == found.answered
    assert api.generate(run, [PROMPTS[0]], max_new_tokens=4, raw=True)[0].startswith(PROMPTS[0])
    column: Any = np.array(PROMPTS[:1], dtype=object)  # as that of a table
    (best,) = api.beam_search(run, column, num_beams=1, max_new_tokens=4, raw=True)
    assert best[0].text.startswith(PROMPTS[0])


# texts


@pytest.mark.parametrize("family", WRITING)
def test_an_answer_is_written_as_it_is_scored(family: str) -> None:
    run = answering(family) if family in CONTINUING else reading(family)
    for question in EXAMPLES:
        ((found,), _) = predict(run, [question], CPU)
        (text,) = api.generate(run, [question.text])
        assert text.strip() == found.text


@pytest.mark.parametrize("family", READING)
def test_samples_are_of_their_own_source(family: str) -> None:
    run = reading(family)
    drawn = api.generate(run, [PROMPTS[0]] * 8, temperature=1.0, seed=3)
    assert len(set(drawn)) > 1
    assert drawn == api.generate(run, [PROMPTS[0]] * 8, temperature=1.0, seed=3)
    beside = api.generate(run, [PROMPTS[0], PROMPTS[1], PROMPTS[0]], temperature=1.0, seed=3)
    assert (beside[0], beside[2]) == (drawn[0], drawn[2])


# beams


@pytest.mark.parametrize("family", READING)
def test_beams_of_each_source_are_as_probable_as_the_model_says(family: str) -> None:
    """Where whole targets are read at once, without any state."""
    run = reading(family)
    assert isinstance(run.model, SequenceToSequence)
    together = api.beam_search(
        run, PROMPTS, num_beams=4, num_return_sequences=4, length_penalty=0.5
    )
    for prompt, found in zip(PROMPTS, together, strict=True):
        source = torch.tensor([run.tokenizer.encode(prompt)])
        assert [beam.score for beam in found] == sorted((b.score for b in found), reverse=True)
        for beam in found:
            pieces = re.findall(f"{PADDING}|.", beam.text)
            ids = [PAD if one == PADDING else run.tokenizer.encode(one)[0] for one in pieces]
            target = torch.tensor([[*ids, MASK][:12]])
            with torch.inference_mode():
                read = torch.cat([torch.tensor([[MASK]]), target[:, :-1]], 1)
                logits = run.model(source, torch.tensor([source.shape[1]]), read)
            loss = F.cross_entropy(logits[0], target[0], reduction="sum")
            assert beam.log_probability == pytest.approx(-float(loss), rel=1e-9)
            assert beam.score == pytest.approx(-float(loss) / target.shape[1] ** 0.5, rel=1e-9)
    assert len({tuple(beam.text for beam in found) for found in together}) > 1
