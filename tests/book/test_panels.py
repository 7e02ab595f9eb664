"""Figures in pages."""

import re

from regard.book.panels import first_figure, is_wide, same_figure
from regard.studies.single_head.attention_maps import masking
from regard.studies.single_head.one_head import averaging


def test_panels_stand_in_the_columns_of_the_figure_and_a_scale_below_all() -> None:
    finding = masking()
    html = first_figure(finding, finding.panels())
    assert "--columns: 2; --rows: 2;" in html
    assert html.count("<svg ") == 5
    assert html.index('class="legend"') > html.index('id="figure-masking-4"')
    assert not is_wide(finding, finding.panels())


def test_a_figure_is_shown_again_by_reference_to_its_panels() -> None:
    finding = averaging()
    first, again = (show(finding, finding.panels()) for show in (first_figure, same_figure))
    ids = re.findall(r'<svg [^>]*\bid="([^"]*)"', first)
    assert re.findall(r'<use href="#([^"]*)"', again) == ids == ["figure-averaging-1"]
    assert len(again) < len(first) / 4
