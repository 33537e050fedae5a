"""Parts of studies are chosen by rows, backbones and seeds, and their runs can be cut short."""

from dataclasses import replace
from itertools import islice

import pytest

from cse_core.methods.rankencoder import RankEncoder
from cse_core.run import Corpus, Run
from experiments.execution.plan import jobs_of
from experiments.schema.scales import PILOT_SEEDS, PLANNED_SEEDS, SCALES, SEARCH_SEEDS, seed_stream
from experiments.schema.study import Study
from experiments.schema.study_parts import Parts, choose_parts, shorten
from experiments.studies.catalogue import choose_studies, single

TABLE4 = single("rankcse-table4", "small")


def labels(*names: str, studies: tuple[Study, ...] = (TABLE4,), **more: object) -> list[list[str]]:
    found = choose_parts(studies, Parts(rows=names, **more))  # ty: ignore[invalid-argument-type]
    return [[row.label for row in study.rows] for study in found]


def test_without_parts_studies_are_as_declared() -> None:
    assert choose_parts([TABLE4], Parts()) == [TABLE4]


def test_a_label_chooses_its_row_and_a_part_of_labels_every_row_that_has_it() -> None:
    assert labels("SimCSE") == [["SimCSE"]]  # and not the second teacher, a SimCSE too
    (found,) = labels("SimCSE", "ListNet")
    assert found == ["SimCSE", *(row.label for row in TABLE4.rows if row.label.startswith("RankCSE-listNet"))]
    assert labels("second") == [["second teacher: SimCSE BERT-large"]]


def test_backbones_are_chosen_by_the_papers_names() -> None:
    assert labels(backbones=("bert-large-uncased",)) == [["second teacher: SimCSE BERT-large"]]
    with pytest.raises(ValueError, match=r"unknown backbone 'bert-bas' \(did you mean bert-base-uncased\?\)"):
        labels(backbones=("bert-bas",))
    with pytest.raises(ValueError, match="unknown row 'ListNet'; known: second teacher: SimCSE BERT-large"):
        labels("ListNet", backbones=("bert-large-uncased",))


def test_an_unknown_row_is_named_with_similar_ones_and_all() -> None:
    with pytest.raises(ValueError, match=r"unknown row 'Simcsee' \(did you mean .*SimCSE.*; known: SimCSE; RankCSE-l"):
        labels("Simcsee")
    with pytest.raises(ValueError, match=r"unknown row 'listNett' \(did you mean RankCSE-listNet"):
        labels("SimCSE", "listNett")
    with pytest.raises(ValueError, match=r"unknown row 'SimCES' \(did you mean SimCSE\?\)"):
        labels("SimCES")


def test_of_several_studies_those_without_the_row_are_left_out() -> None:
    studies = tuple(choose_studies(["rankcse-table4", "rankcse-table2"], "small"))
    assert labels("listNet full", studies=studies) == [["RankCSE-listNet full"]]


def test_tests_of_rows_that_are_left_out_are_left_out_and_columns_stay() -> None:
    """Without these columns, a run of a part would miss scores that the whole study needs."""
    for study in choose_studies(["all", "plan"], "small"):
        (part,) = choose_parts([study], Parts(rows=tuple(row.label for row in study.rows[:2])))
        assert part.tasks == study.tasks
        assert {label for each in part.tested for label, _ in each.cells} <= {row.label for row in part.rows}
        (whole,) = choose_parts([study], Parts(rows=tuple(row.label for row in study.rows)))
        assert whole.tested == study.tested


def test_runs_of_a_part_have_the_keys_of_the_whole() -> None:
    (part,) = choose_parts([TABLE4], Parts(rows=("ListNet",), seeds=(2,)))
    assert jobs_of([part]).keys() <= jobs_of([TABLE4]).keys()


def test_the_stream_of_seeds_begins_with_the_declared_and_draws_none_that_is_kept() -> None:
    for scale in SCALES.values():
        drawn = list(islice(seed_stream(scale.seeds), 400))
        assert tuple(drawn[: len(scale.seeds)]) == scale.seeds
        assert len(set(drawn)) == 400
        assert not {*SEARCH_SEEDS, *PILOT_SEEDS, *PLANNED_SEEDS} & set(drawn)
    assert list(islice(seed_stream((42, 1, 2)), 6)) == [42, 1, 2, 3, 4, 5]
    assert list(islice(seed_stream((42,)), 3)) == [42, 1, 2]
    assert list(islice(seed_stream((301, 302)), 4)) == [301, 302, 1, 2]


def test_one_number_counts_seeds_and_several_are_seeds() -> None:
    def seeds(*given: int) -> tuple[int, ...]:
        return choose_parts([TABLE4], Parts(rows=("SimCSE",), seeds=given))[0].rows[0].seeds

    assert seeds(2) == (42, 1)
    assert seeds(5) == (42, 1, 2, 3, 4)
    assert seeds(7, 1) == (7, 1)
    assert seeds(7, 7) == (7,)
    with pytest.raises(ValueError, match="--seeds: 201 is kept for searches, pilots or the plan; row SimCSE has 42, 1"):
        seeds(7, 201)
    planned = choose_studies(["plan"], "small")[0]
    (kept,) = choose_parts([planned], Parts(seeds=(301, 302)))
    assert {row.seeds for row in kept.rows if isinstance(row.encoder, Run)} == {(301, 302)}


def test_runs_cut_short_and_those_that_they_need_have_keys_of_their_own() -> None:
    declared = jobs_of([TABLE4]).keys()
    for parts in (Parts(max_steps=5), Parts(corpus_lines=200), Parts(max_steps=5, corpus_lines=200)):
        jobs = jobs_of(choose_parts([TABLE4], parts))
        runs = [job.encoder for job in jobs.values() if isinstance(job.encoder, Run)]
        assert not declared & jobs.keys()
        assert len(jobs) == len(declared)
        assert {run.max_steps for run in runs} == {parts.max_steps}
        assert {run.corpus.lines for run in runs} == {parts.corpus_lines or 16_384}


def test_a_corpus_is_cut_to_what_there_is_and_no_more_of_it_is_ranked() -> None:
    runs = [run for row in single("rankencoder-table1", "small").rows for run in row.runs()]
    run = next(run for run in runs if isinstance(run.method, RankEncoder))
    short = shorten(run, 0, 3000)
    assert isinstance(run.method, RankEncoder)
    assert isinstance(short.method, RankEncoder)
    assert (run.method.corpus_size, short.method.corpus_size) == (10_000, 3000)
    assert short.corpus == Corpus(run.corpus.name, 3000)
    assert shorten(run, 0, 10**7) == run
    assert replace(shorten(run, 4, 0), max_steps=0).corpus == run.corpus


def test_fewer_sentences_than_a_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="--corpus-lines 30: expected at least 64, a batch of row SimCSE"):
        choose_parts([TABLE4], Parts(corpus_lines=30))


def test_more_sentences_than_there_are_would_cut_nothing_and_are_refused() -> None:
    with pytest.raises(ValueError, match="--corpus-lines 16385: expected at most 16384, the lines of the largest corp"):
        choose_parts([TABLE4], Parts(corpus_lines=16_385))
    assert choose_parts([TABLE4], Parts(corpus_lines=16_384))
