"""Questions before figures, compared with the stored results."""

from collections.abc import Mapping

from regard.book.figure_predictions import FIGURE_PREDICTIONS
from regard.book.page import finding_html
from regard.book.predictions import PREDICTIONS
from regard.studies.figure import Chart
from regard.studies.registry import all_studies, find_study

AS_MANY_HEADS = "accuracy below softmax with as many heads"
Bounds = tuple[tuple[str, float, float], ...]
RIGHT: Mapping[str, Bounds] = {
    "noisy-keys-two-heads": (("variance of two heads / variance of one", 0, 0.1),),
    "designing": (("distance of the nearest average from u_b, relative to β", 0.63, 0.635),),
    "products": (("largest weight by softmax", 1 - 1e-9, 1),),
    "masking": (("mean weight of the masked token, score 0", 0.5 / 8, 2 / 8),),
    "projection": (
        ("error of the same C and D inside softmax", 3, 4),
        ("error of trained Linformer", 0.315, 0.325),
    ),
    "approximations": (
        ("error of Linformer, 512 / 64 features", 0.055, 0.065),
        ("error of BigBird, 512 / 64 features", 0.175, 0.185),
        ("error of Performer, 512 / 64 features", 0.445, 0.455),
    ),
    "block-graph": (
        ("longest path, window", 127, 127),
        ("longest path, with a global block", 2, 2),
        ("longest path, with random blocks", 6, 6),
    ),
    "furthest": (
        ("share found by BigBird in one layer", 0.225, 0.235),
        ("share found by BigBird, layers: 32", 0.975, 0.985),
    ),
    "backpropagation-through-time": (("∂J_t/∂h_i where i > t, largest", 0, 0),),
    "encoder-gradient": (
        ("no attention: gradient, first / last character", 1e-6, 9e-6),
        ("attention: gradient, first / last character", 0.3, 0.37),
    ),
    "bottleneck": (
        ("no attention: letters in the right case, longest", 1, 1),
        ("no attention: right texts, shortest minus longest", 0.2, 1),
    ),
    "probing": (
        ("last state: first half of the text, no attention minus attention", 0.1, 1),
        ("last state: last half of the text, attention minus no attention", 0.02, 1),
    ),
    "roles-of-sequences": (
        ("no attention: first character, teacher forcing minus free running", 0, 0),
        ("no attention: accuracy, teacher forcing minus free running", 0.1, 1),
    ),
    "encodings": (
        ("one-hot: least change of a column by training, 1 − cosine (0 if not learned)", 0.1, 2),
        ("one-hot: largest change of a column that no training text reads", 0, 1e-6),
    ),
    "one-way-or-both": (("future: accuracy, one way", 0.74, 0.76),),
    "fixed-windows": (("window of 4: loss at distance 8", 2.075, 2.085),),
    "permutation": (
        ("largest change of a state, without positions", 0, 1e-12),
        ("largest change of a state, causal, without positions", 0.1, 10),
    ),
    "word-order": (("accuracy without positions", 0.5, 0.5),),
    "masked-autoencoder": (("gap between masks, positions dropped too", 0, 1e-12),),
    "free-labels": (("loss of pairs on held-out text", 2.545, 2.555),),
    "gaussian-identity": (
        ("largest difference of the logarithms of both sides", 0, 1e-12),
        ("largest difference of weights from softmax, K alone", 0.1, 1),
    ),
    "performer": (
        (
            "accuracy lost by replacing softmax after training: FAVOR+, 2 heads, 64 directions",
            2 / 3,
            1,
        ),
        *((f"{AS_MANY_HEADS}: FAVOR+, 2 heads, {n} directions", -1, 0.11) for n in (4, 16, 64)),
    ),
    "architectures": (("classification: encoder minus decoder", -1, -0.01),),
    "different-widths": (
        ("decoder tensors whose shape depends on the encoder's width", 2, 2),
        ("key and value projections of cross-attention among them", 2, 2),
    ),
    "several-summaries": (
        ("ROUGE-L of two summaries, sampling", 0, 0.7),
        ("ROUGE-L of two summaries, beam search", 0.8, 1),
        ("ROUGE-L of two summaries, top-k", 0.8, 1),
    ),
    "heads-as-filters": (("lookup: variance explained by a convolution", 0.06, 0.065),),
    "two-heads": (("accuracy, argmax, one head", 0, 0.25),),
    "pretrained-heads": (("previous token, the same head, words reversed", 0.97, 1),),
    "pretrained-decoder": (
        ("first token: share of heads with a weight above 0.3", 0.815, 0.835),
        ("weight on the first token: first layer", 0.05, 0.15),
        ("weight on the first token: mean of the others", 0.5, 1),
    ),
    "head-patterns": (
        ("encoder: weight on later tokens", 0.45, 0.55),
        ("encoder: weight on earlier tokens", 0.44, 0.55),
        ("decoder: weight on later tokens", 0, 1e-6),
    ),
    "two-meanings": (
        ("first layer: least cosine", 0.9999, 1.0001),
        ("query: same minus other meaning, least of the later layers", 0.03, 1),
    ),
    "structures": tuple(
        (f"{relation}: best head minus best fixed distance", 0.3, 1)
        for relation in ("sentence start", "subject–verb", "verb–object", "pronoun")
    ),
    "three-sentences": (
        ("noun between: the same head → the noun between", 0, 1 / 20),
        ("noun between: word before the verb → subject, best head", 2 / 3, 1),
    ),
    "linear-probe": (("accuracy on other words, untrained", 1 / 12, 1 / 5),),
    "untrained": (("before: standard deviation of scores", 0.0225, 0.0275),),
    "equal-heads": (("distance of two heads, equal weights", 0, 1e-6),),
    "trained-embeddings": (
        ("cross terms / x·x of a word, before training", 1 / 8.5, 1 / 7.5),
        ("cross terms / x·x of a word, after training", 1 / 9.5, 1 / 8.5),
    ),
    "pretraining": (
        ("text without these people", 0, 0.25),
        ("pretrained", 0.75, 1),
    ),
    "recalled": (
        ("mentioned / absent: AUROC of familiarity", 0.99, 1),
        ("mentioned / absent: AUROC of probability", 0.4, 0.6),
        ("mentioned / absent: AUROC of the answer's text", 0.4, 0.6),
    ),
    "fallback": (("other names: mean probability of the answers", 0.8, 1),),
    "bias": (("metric: share among best answers minus share in the data", 0.2, 0.3),),
    "capacity": (
        ("100 exposures: bits per parameter", 1.25, 1.4),
        ("all exposures: bits per parameter", 1.9, 2.1),
    ),
    "counterfactual": (("one of five changed: the new place", 0, 0.1),),
    "reversal": (
        ("name first: accuracy, backward", 0, 0),
        ("name first: accuracy, forward", 0.9, 1),
    ),
    "augmentation": (("mixed: permuted minus one biography", 0.24, 1),),
    "seen-once": (("false, without minus with 5 % repeated", 0.1, 1),),
    "span-corruption": (
        ("mean share of the span", 0.24, 0.26),
        ("mean length of truncated texts", 57.5, 58.5),
    ),
    "concepts": (
        ("13: attention, share of the influence at a long distance", 0.1, 1),
        ("13: RNN, share of the influence at a long distance", 0, 1e-9),
        ("13: window, share of the influence at a long distance", 0, 0),
    ),
    "wrong-options": (("9: sum of outputs over all prefixes", 15.999, 16.001),),
}
"""Measurements of stored results by which the right options are right: least and largest value."""


def test_each_slider_or_figure_has_a_question_with_one_right_option() -> None:
    assert set(FIGURE_PREDICTIONS) == {study.name for study in all_studies()} - set(PREDICTIONS)
    for name, prediction in {**FIGURE_PREDICTIONS, **PREDICTIONS}.items():
        assert prediction.question.endswith("?"), name
        assert 2 <= len(prediction.options) <= 4, name
        assert [option.right for option in prediction.options].count(True) == 1, name
        assert all(option.why.endswith(".") for option in prediction.options), name


def test_right_options_are_what_the_stored_results_show() -> None:
    assert set(RIGHT) == set(FIGURE_PREDICTIONS)
    for name, bounds in RIGHT.items():
        found = find_study(name).stored_result()
        for measurement, low, high in bounds:
            for value in found.row(measurement).values:
                assert value is not None
                assert low <= value <= high, f"{name}: {measurement}"


def test_the_figure_of_bias_shows_a_third_and_more_than_half() -> None:
    """Of the first seed; its shares are no measurements."""
    (panel,) = find_study("bias").stored_result().figure.panels
    assert isinstance(panel, Chart)
    in_the_data, probability, best, *_ = (value or 0 for value in panel.bars[0].values)
    assert (round(3 * in_the_data), round(3 * probability)) == (1, 1)
    assert best > 0.5


def test_a_notebook_shows_no_question() -> None:
    shown = finding_html(find_study("products").stored_result())
    assert FIGURE_PREDICTIONS["products"].question not in shown
