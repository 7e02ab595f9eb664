"""That the corpus index is measured as the benchmark says, on a small text; no times asserted."""

from pathlib import Path

from benchmark_files import corpus_index


def test_an_index_is_measured(tmp_path: Path) -> None:
    text = corpus_index.fictional_text(20_000)
    measured = corpus_index.measure(text, 20_000, tmp_path, number=5)
    assert 0 < 20_000 - measured.text < 1_000
    assert measured.file <= 9 * measured.text
    assert len(measured.queries) == 10
    assert corpus_index.table(measured).count("\n") == 9
