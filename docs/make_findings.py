"""Write the stored results of studies; those that train run over several seeds. `make findings`.

    python docs/make_findings.py [STUDY]...

Each result is written when it is done, and trained models are cached: an interrupted call, made
again, trains only what is missing.
"""

import sys
from pathlib import Path

from regard.files import write_file
from regard.studies.registry import all_studies, find_study
from regard.studies.study import STORED_SEEDS

FOLDER = Path(__file__).parents[1] / "src" / "regard" / "studies" / "findings"


def main(names: list[str]) -> None:
    """Run the studies named, or all."""
    for study in [find_study(name) for name in names] or all_studies():
        finding = study.over_seeds(STORED_SEEDS) if study.trains else study()
        write_file(FOLDER / f"{study.name}.json", finding.json())
        print(f"{study.name}: {finding.conclusion}, {finding.seconds:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
