"""What a run answers to questions, and the signals that may tell recall from invention."""

from collections.abc import Sequence
from math import exp

import msgspec
import torch
from torch import Tensor

from regard.data.batch import pad_rows
from regard.decoding import Generated, generate
from regard.decoding.prompts import begin_answers
from regard.errors import UserError
from regard.metrics import exact_match
from regard.runs.environment import ExecutionEnvironment
from regard.runs.run import Run
from regard.tasks.encoding import encode_questions
from regard.tasks.examples import Example, subjects

SIGNALS = {
    "probability": "probability of the whole answer under the model",
    "weakest token": "probability of the answer's least probable token",
    "familiarity": "log-probability of the name that is asked about, as the start of a text",
    "agreement": "share of differently worded questions that get the same answer",
}
"""What each signal is; for all of them, higher should mean more trustworthy."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, what should have been answered, and what was."""

    question: str
    expected: str | None
    answered: str
    signals: dict[str, float]

    @property
    def correct(self) -> bool:
        """Whether the answer is the expected one; False where none is known."""
        return self.expected is not None and exact_match(self.answered, self.expected)


def answer_questions(
    run: Run,
    questions: Sequence[Example],
    environment: ExecutionEnvironment,
    *,
    paraphrases: Sequence[str] = (),
    max_new_tokens: int = 32,
    batch: int = 256,
) -> list[Answer]:
    """Answer greedily, in batches, with all signals.

    `paraphrases` are other wordings, with {} where the subject belongs.

    Familiarity and agreement need to know what a question is about: several questions of one
    wording show it.

    Raises:
        UserError: a question can't be encoded or is too long, or a paraphrase can't be used.
    """
    for wording in paraphrases:
        if "{}" not in wording:
            raise UserError(f"paraphrase {wording!r}: has no {{}} where the subject belongs")
    if not questions:
        return []
    about = subjects([question.text for question in questions])
    if paraphrases and not about:
        raise UserError(
            f"{questions[0].where}: paraphrases need several questions of one wording, which show "
            "what each is about"
        )
    answers = _greedy(run, questions, environment, max_new_tokens, batch)
    decoded = [run.tokenizer.decode(answer.ids).strip() for answer in answers]
    familiarity = name_log_probabilities(run, about, environment, batch)
    others = []
    for wording in paraphrases:
        asked = [
            Example(text=wording.replace("{}", subject), where=question.where)
            for subject, question in zip(about, questions, strict=True)
        ]
        others.append(
            [
                run.tokenizer.decode(answer.ids).strip()
                for answer in _greedy(run, asked, environment, max_new_tokens, batch)
            ]
        )
    result = []
    for i, (question, answer) in enumerate(zip(questions, answers, strict=True)):
        signals = {
            "probability": exp(sum(answer.log_probabilities)),
            "weakest token": exp(min(answer.log_probabilities)),
        }
        if about:
            signals["familiarity"] = familiarity[i]
        if others:
            signals["agreement"] = _agreement([decoded[i], *(other[i] for other in others)])
        result.append(
            Answer(
                question=question.text,
                expected=question.answer,
                answered=decoded[i],
                signals=signals,
            )
        )
    return result


@torch.inference_mode()
def name_log_probabilities(
    run: Run, names: Sequence[str], environment: ExecutionEnvironment, batch: int = 256
) -> list[float]:
    """log P(name) at the start of a text: would the model write it?

    Where nothing begins a text, the first token can't be predicted and is left out.
    """
    result: list[float] = []
    for start in range(0, len(names), batch):
        chosen = names[start : start + batch]
        ids = [run.tokenizer.encode(name)[: run.max_text_tokens] for name in chosen]
        rows = [run.text_affixes.around(name) for name in ids]
        limit, padding = run.recipe.model.context_length, run.tokenizer.special.padding
        padded = pad_rows(rows, padding, limit=limit).to(environment.device)
        with environment.autocast():
            logits = run.language_model(padded)
        scores = logits[:, :-1].float().log_softmax(-1).gather(-1, padded[:, 1:, None]).squeeze(-1)
        result += [_sum_first(s, len(row) - 1) for s, row in zip(scores, rows, strict=True)]
    return result


def _sum_first(row: Tensor, n: int) -> float:
    return float(row[:n].sum())


def _greedy(
    run: Run,
    questions: Sequence[Example],
    environment: ExecutionEnvironment,
    max_new_tokens: int,
    batch: int,
) -> list[Generated]:
    block = run.recipe.model.context_length
    prompts = encode_questions(run.template, questions, block)
    answers: list[Generated] = []
    for start in range(0, len(prompts), batch):
        model, rows = begin_answers(run, prompts[start : start + batch], environment.device)
        fitting = block + 1 - max(map(len, rows))
        with environment.autocast():
            answers += generate(
                model,
                rows,
                max_new_tokens=min(max_new_tokens, fitting),
                stop_ids=run.tokenizer.special.stop_ids,
                device=environment.device,
            )
    return answers


def _agreement(answers: Sequence[str]) -> float:
    """Share of pairs of answers that are the same."""
    pairs = [(a, b) for i, a in enumerate(answers) for b in answers[i + 1 :]]
    return sum(a == b for a, b in pairs) / len(pairs)
