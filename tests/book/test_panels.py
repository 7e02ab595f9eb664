"""Figures in pages."""

from regard.book.panels import first_figure, is_wide
from regard.studies.single_head.attention_maps import masking


def test_panels_stand_in_the_columns_of_the_figure_and_a_scale_below_all() -> None:
    finding = masking()
    html = first_figure(finding, finding.panels())
    assert "--columns: 2; --rows: 2;" in html
    assert html.count("<svg ") == 5
    assert html.index('class="legend"') > html.index('id="figure-masking-4"')
    assert not is_wide(finding, finding.panels())
