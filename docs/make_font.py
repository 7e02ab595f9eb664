"""Write the book's mathematics font: a part of STIX Two Math, which has a table for formulas.

    python docs/make_font.py STIXTwoMath-Regular.ttf

The font, https://github.com/stipub/stixfonts at version 2.11 b159, is under the Open Font License.
"""

import sys
from pathlib import Path

from fontTools import subset

FONT = Path(__file__).parents[1] / "src/regard/book/static/STIXTwoMath.woff"
CHARACTERS = (
    # Latin and Greek, accents, punctuation
    "20-7E,A0-FF,131,237,2B0-2FF,300-30C,332,338,391-3C9,3D1,3D5,3D6,3F1,3F5,2009-2016,2018-201D,"
    "2020-2022,2026,2032-2037,2044,2057,2061-2064,2070-2079,207A-208E,20D0,20D1,20D6,20D7,20DB,"
    # letters, arrows, operators, delimiters
    "2102,210B,210D,210E,2110-2113,2115,2119-211D,2124,212C,2130,2131,2133,2190-2199,21A6,21D0-21D4,"
    "2200-222E,2234-223C,2243,2245,2248,2250,2254,225C,2260-2265,226A,226B,2272,2273,227A,227B,"
    "2282-2287,2295-2299,22A2-22A5,22BA,22C0-22C6,22EE-22F1,2308-230B,23B4,23B5,23DC-23DF,25A1,25CB,"
    "2713,2717,27E8-27EB,27F5-27FA,2A7D,2A7E,"
    # mathematical alphabets: bold, italic, script and double-struck capitals, italic Greek
    "1D400-1D454,1D456-1D467,1D49C-1D4B5,1D538-1D551,1D6A4,1D6A5,1D6E2-1D71B,1D7CE-1D7D7"
)


def main(source: str) -> None:
    """Keep these characters, and the variants of their sizes."""
    subset.main(
        [
            source,
            f"--unicodes={CHARACTERS}",
            "--layout-features=ssty,dtls,flac,kern,ccmp,mark,mkmk",
            "--name-IDs=0,1,2,4,5,6,7,13,14",
            "--no-hinting",
            "--drop-tables+=DSIG",
            "--flavor=woff",
            f"--output-file={FONT}",
        ]
    )
    print(f"{FONT}: {FONT.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
