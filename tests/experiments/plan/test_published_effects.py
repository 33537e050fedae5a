"""Published effects that were added after the runs are the papers' numbers, for contrasts that had none."""

import pandas as pd

from analysis.cells import join
from analysis.verdicts.estimates import published_effect
from experiments.results.csv_record import RESULTS
from experiments.studies.catalogue import choose_studies


def test_added_effects_are_the_papers_differences_of_contrasts_that_have_none_in_the_plan() -> None:
    planned = [join(study, pd.DataFrame(columns=RESULTS)) for study in choose_studies(["plan"], "small")]
    contrasts = [(results, each) for results in planned for each in results.study.contrasts if each.added is not None]
    assert {contrast.claim: contrast.added for _, contrast in contrasts} == {
        "R5": round(79.41 - 78.41, 4),
        "R8": round(80.05 - (77.48 + 79.66) / 2, 4),
        "W5": round(78.78 - 77.81 - (76.37 - 76.25), 4),
        "E2": round(48.41 - 46.73, 4),
        "E8": 0.17,
    }
    assert {published_effect(*each) for each in contrasts} == {None}
