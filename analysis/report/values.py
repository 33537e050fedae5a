"""Values inside the pages' sentences: `<!-- value NAME [PART] -->8<!-- -->`, from the record or from printed tables.

NAME is a claim of the plan, such as R1, one of its controls, such as teachers.positive, or a key of VALUES. Without a
PART it is the absolute value. Parts: `signed`; `estimate`, with its interval; `interval`; `seeds`. A plan's contrast
also has `verdict`, `published`, and `result`, which is all together. A1 to A4 and D1 to D5 are the second plan's.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import correlation, stdev

from analysis.cells import Cell
from analysis.report.blocks import Record, block
from analysis.report.bootstrap_tables import pairs_and_seeds, what_it_excludes
from analysis.report.comparison_tables import summaries
from analysis.report.formats import DASH, interval, number
from analysis.report.plan_tables import STAGES, one_look_text
from analysis.report.reproduction_tables import (
    BASELINE,
    MANY,
    detectable_gain,
    many_dev_scores,
    many_seeds,
    planned_level,
    read_reproductions,
)
from analysis.stats import contrast_tests
from analysis.stats.bootstrap import dose_response
from analysis.stats.estimate import Estimate
from analysis.stats.significance import expected_choice, expected_maximum, summary
from analysis.verdicts.comparison import Summary, Tuned, summarise
from analysis.verdicts.estimates import published_effect
from analysis.verdicts.plan import judge_stage
from analysis.verdicts.verdict import BETTER, EQUIVALENT, WORSE, Verdict
from cse_core.data.senteval import STS_TEST
from experiments.comparison.comparison import PUBLISHED
from experiments.plan.ladder import LOSSES, RUNGS, SHUFFLED, student_label, teacher_label
from experiments.schema.contrasts import NEGATIVE, POSITIVE, Contrast
from experiments.schema.scales import PLANNED_SEEDS
from experiments.schema.study import PUBLISHED_FOLDER, published_lines

SCALE = "small"
STS, DISJOINT, DEV = "sts_avg", "sts_disjoint_avg", "stsb_dev"
TUNED = ("rankcse", "rankencoder", "whitenedcse", "compcse")  # stage B's primaries
FIGURE_1, UNTRAINED = "whitenedcse-figure1", "untrained, mean"
W, DROPOUT, WC, CC = "WhitenedCSE", "WhitenedCSE, dropout views", "whitenedcse-controls", "compcse-controls"
ORDERED = tuple(rung for rung in RUNGS if rung != SHUFFLED)
Found = Estimate | float | str | None
Make = Callable[[Record], Found]


@dataclass(frozen=True)
class Value:
    """How a value is made, and the number of decimals of its absolute value."""

    make: Make
    digits: int = 1


def cell(record: Record, study: str, row: str, column: str = STS, scale: str = SCALE) -> Cell:
    """Return a row's cell in a study, also in a column that the study's table does not show."""
    return record.in_column(study, column, scale).cells[row, column]


def _mean(record: Record, *place: str) -> float | None:
    summary = cell(record, *place).summary
    return summary.mean if summary else None


def _gain(
    record: Record, study: str, better: str, worse: str, column: str = STS, scale: str = SCALE, *, paired: bool = False
) -> Estimate | None:
    ours, theirs = (cell(record, study, row, column, scale).scores for row in (better, worse))
    return contrast_tests.difference(ours, theirs, paired=paired)


def mean(study: str, row: str, column: str = STS, digits: int = 1, scale: str = SCALE) -> Value:
    """Return a row's mean over seeds."""
    return Value(lambda record: _mean(record, study, row, column, scale), digits)


def welch(study: str, better: str, worse: str, column: str = STS, scale: str = SCALE) -> Value:
    """Return how far a row is ahead of another, by Welch's test."""
    return Value(lambda record: _gain(record, study, better, worse, column, scale), 1)


def _longer(row: str) -> Value:
    """Return how far eight epochs are ahead of one epoch's last checkpoint, seed by seed.

    Their own first dev score is at that checkpoint, so a better one within the epoch is no part of them.
    """

    def make(record: Record) -> Estimate | None:
        eight = cell(record, "plan2-first-plan", f"{row}, 8 epochs").scores
        return contrast_tests.difference(eight, cell(record, "plan-orders", f"{row}, last").scores, paired=True)

    return Value(make, 1)


def taught_by(teacher: str, epochs: str, column: str = STS, loss: str = "ListMLE") -> Value:
    """Return how far RankCSE with this teacher is ahead of SimCSE of as many epochs."""
    return welch("plan2-teachers", f"{loss} taught by {teacher}, {epochs}", f"SimCSE, {epochs}", column)


def paired(study: str, better: str, worse: str, column: str = STS, digits: int = 1, scale: str = SCALE) -> Value:
    """Return how far a row is ahead of another, seed by seed."""
    return Value(lambda record: _gain(record, study, better, worse, column, scale, paired=True), digits)


def over(choose: Callable[[Sequence[float]], float], values: Sequence[Value], digits: int = 1) -> Value:
    """Reduce several values to a number, such as the largest; None unless all are recorded."""

    def make(record: Record) -> float | None:
        found = [each.make(record) for each in values]
        sizes = [each.mean if isinstance(each, Estimate) else each for each in found]
        return choose([float(size) for size in sizes if isinstance(size, float)]) if None not in sizes else None

    return Value(make, digits)


def largest(*values: Value, digits: int = 1) -> Value:
    """Return the largest absolute value."""
    return over(lambda sizes: max(map(abs, sizes)), values, digits)


def difference(first: Value, second: Value) -> Value:
    """Return the first value minus the second."""
    return over(lambda sizes: sizes[0] - sizes[1], [first, second])


def spread(values: Sequence[Value], digits: int = 1) -> Value:
    """Return the largest value minus the smallest."""
    return over(lambda sizes: max(sizes) - min(sizes), values, digits)


def printed(table: str, method: str, backbone: str, heading: str = "Avg", *, std: bool = False) -> Value:
    """Return a published number."""
    found = [
        line["std" if std else "value"]
        for line in published_lines(table)
        if (line["method"], line["backbone"], line["task"]) == (method, backbone, heading)
    ]
    return Value(lambda record: found[0])


def _number(table: str, method: str, backbone: str = "BERT-base") -> Value:
    """Return a published average as a number."""
    text = printed(table, method, backbone)
    return Value(lambda record: float(str(text.make(record))))


def reproduced(make: Callable[[], float | str]) -> Value:
    """Return a number from other people's runs."""
    return Value(lambda record: make(), 2)


def order_among(loss: str, rungs: Callable[[Record], Iterable[str]]) -> Value:
    """Return Spearman's rho of teachers' scores and the scores of their students with a loss."""

    def make(record: Record) -> Estimate | None:
        chosen = list(rungs(record))
        doses = [_mean(record, "ladder", teacher_label(rung)) or 0.0 for rung in chosen]
        students = [list(cell(record, "ladder", student_label(loss, rung)).scores.values()) for rung in chosen]
        return dose_response(doses, students)

    return Value(make, 2)


def _near_simcse(record: Record) -> list[str]:
    score = _mean(record, "ladder", teacher_label("SimCSE")) or 0.0
    return [rung for rung in ORDERED if abs((_mean(record, "ladder", teacher_label(rung)) or 0.0) - score) <= 3]


def _slug(text: str) -> str:
    return text.replace(" + ", "+").replace(",", "").replace(" ", "-")


def taught(loss: str, rung: str) -> Value:
    """Return how far the ladder's students of a teacher are ahead of SimCSE."""
    return welch("ladder", student_label(loss, rung), "SimCSE")


def _ahead(record: Record) -> str:
    """Name the teachers with a student whose mean is ahead of SimCSE's."""
    found = {rung: [taught(loss, rung).make(record) for loss in LOSSES] for rung in RUNGS}
    return ", ".join(
        rung for rung, gains in found.items() if any(isinstance(each, Estimate) and each.mean > 0 for each in gains)
    )


def teacher(rung: str, digits: int = 1) -> Value:
    """Return a teacher's score."""
    return mean("ladder", teacher_label(rung), STS, digits)


def _not_held(record: Record) -> str:
    """Name the plan's decided claims that the interval over seeds and pairs does not support."""
    needed = {BETTER: "excludes 0, ", WORSE: "excludes 0, ", EQUIVALENT: ", within the margin"}
    return ", ".join(
        verdict.contrast.claim
        for verdict, both in pairs_and_seeds(record.plan(SCALE), record.pairs(SCALE))
        if needed.get(verdict.word, "") not in what_it_excludes(both.estimate.interval, verdict.contrast.margin)
    )


def _part_of_mean_gain(record: Record) -> float | None:
    found = _gain(record, "plan-orders", W, "SimCSE")
    return found.mean / 4 if found else None


def _whitening_adds(record: Record, row: str) -> float:
    """Return the most that whitening adds, over seeds, to dropout's spread of positives, in percent."""
    both, dropout = (cell(record, FIGURE_1, row, name).scores for name in ("spread_both", "spread_dropout"))
    return max(100 * (both[seed] / value - 1) for seed, value in dropout.items())


def _detectable(deviation: Callable[[], float]) -> Value:
    """Return the gain that ten seeds detect in the plan at the published scale."""
    return Value(lambda record: detectable_gain(deviation(), 10, planned_level("paper")), 2)


def _published_gain(claim: str) -> Value:
    """Return the printed gain of a paper's first claim, as the plan has it at the published scale."""

    def make(record: Record) -> float | None:
        for study in record.studies(["plan"], "paper"):
            for contrast in study.contrasts:
                if contrast.claim == claim:
                    return published_effect(record.of(study), contrast)
        return None

    return Value(make, 2)


def _of_tuned(
    method: str, make: Callable[[Summary, Tuned], Found], digits: int = 2, comparison: str = "tuned"
) -> Value:
    """Return a value of what stage B found for a method, or another comparison; None until the method is complete."""

    def found(record: Record) -> Found:
        for compared in summaries(record, SCALE):
            for each in compared.tuned if compared.comparison.name == comparison else ():
                if each.entrant.name == method and not each.no_gain:
                    return make(compared, each)
        return None

    return Value(found, digits)


def _tuned_gain(summary: Summary, method: str, measure: int = 0) -> Estimate | None:
    gain = summary.gains.get((method, list(summary.comparison.measures)[measure]))
    return gain.estimate if gain else None


def _tuned_dev_gain(summary: Summary, tuned: Tuned) -> float | None:
    ours, theirs = tuned.mean(tuned.dev), summary.tuned[0].mean(summary.tuned[0].dev)
    return None if ours is None or theirs is None else ours - theirs


def _sd_of_searches(summary: Summary, tuned: Tuned) -> float:
    return stdev(tuned.search_means(next(iter(tuned.measures.values()))).values())


def _tuned_on(method: str, tasks: tuple[str, ...]) -> Value:
    """Return a method's gain in the mean of some test sets, in place of a comparison's measures."""

    def gain(record: Record) -> Found:
        compared = next((each.comparison for each in summaries(record, SCALE) if each.comparison.name == "tuned"), None)
        if compared is None:
            return None
        kept = tuple(each for each in compared.entrants if each.name in (compared.entrants[0].name, method))
        asked = replace(compared, entrants=kept, tested=(method,), measures={"chosen sets": tasks})
        return _tuned_gain(summarise(asked, record.mlruns), method)

    return Value(gain)


def _gain_untuned(summary: Summary, tuned: Tuned) -> Estimate | None:
    """Return a method's gain over the baseline, both with their published settings."""
    ours, theirs = (next(iter(each.measures.values()))[PUBLISHED] for each in (tuned, summary.tuned[0]))
    return contrast_tests.difference(ours, theirs, paired=False)


def _gain_by_tuning(tuned: Tuned, measure: int = 0) -> Estimate | None:
    """Return how far the searches' winners are ahead of the published settings: means of searches against seeds."""
    scores = list(tuned.measures.values())[measure]
    return contrast_tests.difference(tuned.search_means(scores), scores[PUBLISHED], paired=False)


def ahead_on_six_layers(method: str, *rows: tuple[str, str], published: bool = False) -> Value:
    """Return how far a method's winners on wiki-medium are ahead of all runs of these rows, by study and label.

    With `published`, it is how far the method's published settings are ahead, in the two seeds beside the winners.
    """

    def make(record: Record) -> Found:
        cells = [cell(record, study, row) for study, row in rows]
        others = {seed: score for each in cells for seed, score in each.scores.items()}

        def gain(_: Summary, tuned: Tuned) -> Estimate | None:
            scores = next(iter(tuned.measures.values()))
            ours = scores[PUBLISHED] if published else tuned.search_means(scores)
            return contrast_tests.difference(ours, others, paired=False)

        return None if any(each.missing for each in cells) else _of_tuned(method, gain, comparison=MEDIUM).make(record)

    return Value(make, 1)


def _in_new_seeds(method: str) -> Value:
    """Return a method's gain on six layers where nothing is tuned, in the seeds that were trained after stage C."""

    def make(record: Record) -> Estimate | None:
        ours, theirs = (
            {seed: score for seed, score in cell(record, *SIX_LAYERS[name]).scores.items() if seed in PLANNED_SEEDS}
            for name in (method, "simcse")
        )
        return contrast_tests.difference(ours, theirs, paired=False)

    return Value(make, 1)


def _dev_gain_by_tuning(_: Summary, tuned: Tuned) -> Estimate | None:
    return contrast_tests.difference(tuned.search_means(tuned.dev), tuned.dev[PUBLISHED], paired=False)


def _detectable_when_tuned(summary: Summary, tuned: Tuned) -> float | None:
    gain = summary.gain(tuned.entrant.name)
    return gain.detectable if gain else None


def _mean_of_searches(_: Summary, tuned: Tuned) -> float | None:
    return tuned.mean(next(iter(tuned.measures.values())))


def _all_reproductions() -> str:
    return str(len((PUBLISHED_FOLDER / "_reproductions.csv").read_text().splitlines()) - 1)


SIMCSE, MEDIUM = "SimCSE BERT-base", "tuned-medium"
MEDIUM_TEACHERS = "plan2-teachers", "teacher: wiki-medium's SimCSE"
SIX_LAYERS = {
    "simcse": ("plan2-six-layers", "SimCSE"),
    "whitenedcse": ("plan2-six-layers", DROPOUT),
    "compcse": ("plan2-six-layers", "CompCSE"),
}
ONE_EPOCH, EIGHT_EPOCHS = mean("plan-orders", "SimCSE", digits=2), mean("plan-losses", "SimCSE, 8 epochs")
UNTRAINED_MEAN = mean("methods", "untrained, mean")
FIRST_LAST = mean("rankcse-table2", "first-last avg BERT-base")
VALUES: dict[str, Value] = {
    # equal tuning
    "tuned.simcse": _of_tuned("simcse", _mean_of_searches, digits=1),
    **{
        f"tuned.{name}.gain": _of_tuned(name, lambda _, tuned: _gain_by_tuning(tuned))
        for name in ("simcse", "whitenedcse")
    },
    **{
        f"tuned.{name}.gain.disjoint": _of_tuned(name, lambda _, tuned: _gain_by_tuning(tuned, -1))
        for name in ("simcse", "whitenedcse")
    },
    "tuned.simcse.temperature": _of_tuned(
        "simcse", lambda _, tuned: max(float(str(won["temperature"])) for won, _ in tuned.winners.values()), digits=3
    ),
    **{
        f"tuned.{name}": _of_tuned(name, lambda compared, each: _tuned_gain(compared, each.entrant.name))
        for name in (*TUNED, "esimcse")
    },
    **{f"tuned.{name}.untuned": _of_tuned(name, _gain_untuned) for name in ("whitenedcse", "esimcse")},
    "printed.esimcse": difference(_number("compcse_table1", "ESimCSE"), _number("compcse_table1", "SimCSE")),
    "tuned.esimcse.disjoint": _of_tuned("esimcse", lambda compared, each: _tuned_gain(compared, each.entrant.name, -1)),
    "tuned.whitenedcse.chosen": _of_tuned("whitenedcse", lambda _, tuned: tuned.winners[1][1], digits=1),
    "tuned.whitenedcse.fresh": _of_tuned("whitenedcse", lambda _, tuned: tuned.search_means(tuned.dev)[1], digits=1),
    "medium.simcse": _of_tuned("simcse", _mean_of_searches, digits=1, comparison=MEDIUM),
    "medium.simcse.published": mean(*SIX_LAYERS["simcse"]),
    **{
        f"medium.{name}.gain": _of_tuned(name, lambda _, tuned: _gain_by_tuning(tuned), comparison=MEDIUM)
        for name in ("rankcse", "rankencoder")
    },
    **{f"medium.{name}.gain": ahead_on_six_layers(name, place) for name, place in SIX_LAYERS.items()},
    "medium.simcse.gain.every": ahead_on_six_layers("simcse", SIX_LAYERS["simcse"], MEDIUM_TEACHERS),
    **{f"medium.{name}.over": ahead_on_six_layers(name, SIX_LAYERS["simcse"]) for name in TUNED},
    "medium.simcse.lowest": Value(lambda record: min(cell(record, *MEDIUM_TEACHERS).scores.values(), default=None), 1),
    "medium.simcse.dev": _of_tuned("simcse", _dev_gain_by_tuning, comparison=MEDIUM),
    **{
        f"medium.{name}.detectable": _of_tuned(name, _detectable_when_tuned, digits=1, comparison=MEDIUM)
        for name in TUNED
    },
    **{
        f"medium.{name}.untuned": ahead_on_six_layers(name, SIX_LAYERS["simcse"], published=True)
        for name in ("rankcse", "rankencoder")
    },
    **{
        f"medium.{name}.untuned{suffix}": welch(*SIX_LAYERS[name], SIX_LAYERS["simcse"][1], column)
        for name in ("whitenedcse", "compcse")
        for suffix, column in {"": STS, ".disjoint": DISJOINT}.items()
    },
    **{
        f"medium.{name}": _of_tuned(
            name, lambda compared, each: _tuned_gain(compared, each.entrant.name), comparison=MEDIUM
        )
        for name in TUNED
    },
    **{
        f"medium.{name}.disjoint": _of_tuned(
            name, lambda compared, each: _tuned_gain(compared, each.entrant.name, -1), comparison=MEDIUM
        )
        for name in TUNED
    },
    **{f"medium.{name}.untuned.new": _in_new_seeds(name) for name in ("whitenedcse", "compcse")},
    "tuned.rankcse.stsb": _tuned_on("rankcse", ("stsb",)),
    "tuned.rankcse.others": _tuned_on("rankcse", tuple(name for name in STS_TEST if name != "stsb")),
    "tuned.rankcse.dev": _of_tuned("rankcse", _tuned_dev_gain, digits=1),
    **{f"tuned.{name}.sd": _of_tuned(name, _sd_of_searches) for name in ("simcse", *TUNED)},
    # the first page
    "one.ListMLE": welch("plan2-first-plan", "ListMLE, one epoch", "SimCSE, one epoch"),
    **{f"end.{loss}": welch("plan-orders", f"{loss}, last", "SimCSE, last") for loss in LOSSES},
    **{f"longer.{row}": _longer(row) for row in ("SimCSE", *LOSSES)},
    **{f"parts.{loss}": welch("plan-orders", loss, "SimCSE", "sts_avg_wmean") for loss in LOSSES},
    "untrained.mean": UNTRAINED_MEAN,
    "untrained.first-last": FIRST_LAST,
    "training.least": difference(ONE_EPOCH, FIRST_LAST),
    "training.printed": replace(
        difference(_number("rankcse_table2", "SimCSE"), _number("rankcse_table2", "first-last avg")), digits=0
    ),
    "scale.share": over(lambda x: 100 / (x[0] - x[1]), [ONE_EPOCH, UNTRAINED_MEAN], digits=0),
    **{f"disjoint.{loss}": welch("plan2-disjoint", loss, "SimCSE", DISJOINT) for loss in LOSSES},
    "views.channels": paired("plan2-whitening", DROPOUT, "batch norm of each channel"),
    "views.pca": paired("plan2-whitening", DROPOUT, "PCA whitening"),
    "views.others": largest(
        *(paired("plan2-whitening", DROPOUT, row) for row in ("two positives", "sum inside the logarithm"))
    ),
    "views.groups": paired("plan2-whitening", DROPOUT, "groups not shuffled"),
    "wiki-tiny.sd": Value(lambda record: summary(list(cell(record, "plan-orders", "SimCSE").scores.values())).sd, 2),
    "no-whitening": welch("plan2-whitening", "three dropout views, no whitening", "SimCSE"),
    "one.rank.larger.50": mean("plan-orders", "RankEncoder", "rank_larger", 0),
    "baselines.ESimCSE": welch("baselines", "ESimCSE", "SimCSE"),
    "one.rank.larger": mean("rankencoder-table4", "SimCSE, +RankEncoder", "rank_larger"),
    "one.RankEncoder": paired("rankencoder-table4", "SimCSE, +RankEncoder", "SimCSE, base"),
    "one.RankEncoder.50": paired("plan-orders", "RankEncoder", "SimCSE"),
    "scoring.SimCSE": paired("plan2-ranks", "SimCSE by cosine and ranks", "SimCSE by cosine"),
    "scoring.RankEncoder": paired("plan2-ranks", "RankEncoder by cosine and ranks", "RankEncoder by cosine"),
    "crops": welch("plan2-first-plan", "two random crops", "SimCSE, ten seeds"),
    # the small scale
    "printed.large": printed("rankcse_table2", "SimCSE", "BERT-large"),
    "printed.simcse": printed("rankcse_table2", "SimCSE", "BERT-base"),
    "wiki-mini": mean("plan-student", "its larger teacher", digits=2),
    "wiki-tiny": ONE_EPOCH,
    "dev.untrained": mean("methods", "untrained, mean", DEV),
    "dev.last": mean("methods", "SimCSE", DEV),
    "slow": largest(
        *(
            spread([mean(WC, f"{W}, a {share} of the rate"), teacher("untrained [CLS]")])
            for share in ("hundredth", "tenth")
        )
    ),
    "untrained": teacher("untrained [CLS]", 2),
    # RankCSE
    "simcse.8": EIGHT_EPOCHS,
    **{
        f"eight.{loss}.{better}": taught_by(teacher, "8 epochs", loss=loss)
        for loss in LOSSES
        for better, teacher in {"equal": "SimCSE of eight epochs", "better": "wiki-medium's SimCSE"}.items()
    },
    **{
        f"eight.{loss}.better.disjoint": taught_by("wiki-medium's SimCSE", "8 epochs", DISJOINT, loss)
        for loss in LOSSES
    },
    "one.ListMLE.equal": taught_by("SimCSE of eight epochs", "one epoch"),
    "one.ListMLE.equal.disjoint": taught_by("SimCSE of eight epochs", "one epoch", DISJOINT),
    "D1.SimCSE": mean("plan2-quality", "SimCSE", scale="minilm"),
    "D1.ListMLE": welch("plan2-quality", "ListMLE", "SimCSE", scale="minilm"),
    "D1.MiniLM": welch("plan2-quality", "ListNet, MiniLM teaches", "SimCSE", scale="minilm"),
    "D1.MiniLM.ListMLE": welch("plan2-quality", "ListMLE, MiniLM teaches", "SimCSE", scale="minilm"),
    "D5.disjoint": paired("plan2-quality", "CompCSE", "two random crops", DISJOINT, scale="minilm"),
    "D.half": welch("plan2-quality", "first half alone", "SimCSE", scale="minilm"),
    "D.shuffled": welch("plan2-quality", "halves of shuffled words", "SimCSE", scale="minilm"),
    "D2.larger": mean("plan2-quality", "RankEncoder", "rank_larger", 0, scale="minilm"),
    "D2.training.disjoint": paired("plan2-quality", "RankEncoder by cosine", "SimCSE", DISJOINT, scale="minilm"),
    "D2.training": paired("plan2-quality", "RankEncoder by cosine", "SimCSE", scale="minilm"),
    "D1.scoring": paired("plan2-quality", "SimCSE scored as RankEncoder", "SimCSE", scale="minilm"),
    **{
        f"averaged.{row}": paired("plan2-averaged", f"{label}, averaged", label, scale="minilm")
        for row, label in {"SimCSE": "SimCSE", W: DROPOUT, "CompCSE": "CompCSE"}.items()
    },
    **{
        f"both-averaged.{row}": welch("plan2-averaged", f"{label}, averaged", "SimCSE, averaged", scale="minilm")
        for row, label in {W: DROPOUT, "CompCSE": "CompCSE"}.items()
    },
    "both-averaged.disjoint": welch(
        "plan2-averaged", f"{DROPOUT}, averaged", "SimCSE, averaged", DISJOINT, scale="minilm"
    ),
    "consistency": mean("plan-losses", "only consistency, 8 epochs"),
    # RankEncoder
    "rank.larger": mean("plan-ranks", "RankEncoder, 8 epochs", "rank_larger", 0),
    "corpus.stsb": paired("rankencoder-ranks", "SimCSE, ranks of STS-B train sentences", "SimCSE, ranks"),
    "corpus.films": paired("rankencoder-ranks", "SimCSE, ranks of film reviews", "SimCSE, ranks"),
    # WhitenedCSE
    "collapse": mean("plan-whitening", W),
    "collapse.most": largest(
        *(
            mean("plan-whitening", row)
            for row in (
                "two positives",
                "groups not shuffled",
                "sum inside the logarithm",
                "batch norm of each channel",
            )
        )
    ),
    "spread.whitened.start": mean(FIGURE_1, UNTRAINED, "spread_whitened", 3),
    "spread.dropout.start": mean(FIGURE_1, UNTRAINED, "spread_dropout", 2),
    "spread.added.start": Value(lambda record: _whitening_adds(record, UNTRAINED)),
    "spread.added": largest(
        *(Value(lambda record, row=row: _whitening_adds(record, row)) for row in ("SimCSE", DROPOUT))
    ),
    # CompCSE
    "composed.dev": paired("compcse-table2", "w/ composition BERT-base", SIMCSE, DEV),
    "half": mean(CC, "first half alone"),
    "crop": paired(CC, "one random crop", "CompCSE"),
    # our own questions
    "S2.whitened": Value(_part_of_mean_gain),
    "five": spread([mean("plan-orders", row) for row in ("SimCSE", "ListNet", "ListMLE", "RankEncoder", "CompCSE")]),
    "not-held": Value(_not_held),
    **{f"teacher.{_slug(rung)}": teacher(rung) for rung in ("GloVe", "SimCSE", "larger SimCSE", "MiniLM")},
    "ladder.ahead": Value(_ahead),
    **{f"order.{loss}": order_among(loss, lambda record: ORDERED) for loss in LOSSES},
    **{f"order.{loss}.near": order_among(loss, _near_simcse) for loss in LOSSES},
    "printed.teachers": difference(
        _number("rankcse_table2", "SimCSE", "BERT-large"), _number("rankcse_table2", "SimCSE")
    ),
    # the published scale
    "runs.all": reproduced(_all_reproductions),
    "runs.usable": reproduced(lambda: str(len(read_reproductions()))),
    "runs.one-project": reproduced(lambda: str(int(read_reproductions()["source"].str.startswith(MANY).sum()))),
    "runs.correlation": reproduced(
        lambda: correlation(many_dev_scores(read_reproductions()), many_seeds(read_reproductions()))
    ),
    "runs.reached": reproduced(lambda: str(sum(value >= BASELINE for value in many_seeds(read_reproductions())))),
    "best.8": reproduced(lambda: float(expected_maximum(many_seeds(read_reproductions()))[7])),
    "chosen.20": reproduced(
        lambda: float(expected_choice(many_dev_scores(read_reproductions()), many_seeds(read_reproductions()))[19])
    ),
    "detects": _detectable(lambda: stdev(many_seeds(read_reproductions()))),
    "detects.theirs": replace(_detectable(lambda: 1.5), digits=1),
    "E3.printed": _published_gain("E3"),
    "sd.rankencoder": printed("rankencoder_table4", "SimCSE", "BERT-base", std=True),
}


@block("value", of=lambda ask: (ask.name, ask.record))
def value_text(name: str, record: Record) -> str:
    """Return a value as text; a dash if nothing of it is recorded."""
    key, _, part = name.partition(" ")
    if key in VALUES:
        return _text(VALUES[key].make(record), part, VALUES[key].digits, name)
    verdicts = _verdicts(record)
    if key not in verdicts:
        raise ValueError(f"value {name!r}: no such value; there are {', '.join((*verdicts, *VALUES))}")
    verdict = verdicts[key]
    more = {"verdict": verdict.text, "published": number(verdict.published), "result": _result(verdict)}
    return more.get(part) or _text(verdict.estimate, part, 1, name)


@cache
def _verdicts(record: Record) -> dict[str, Verdict]:
    """Return the verdicts of the first plan and of the second one's stages so far, by their names."""
    plan, second = record.plan(SCALE), [record.of(study) for study in record.studies(["plan2"], SCALE)]
    stages = [verdict for stage in STAGES for verdict in judge_stage(second, stage)]
    return {_verdict_key(each): each for each in (*plan.contrasts, *plan.others, *stages)}


def _result(verdict: Verdict) -> str:
    """Return an estimate with its seeds and the verdict, or which seeds are missing."""
    if verdict.estimate is None:
        return one_look_text(verdict)
    return f"{_text(verdict.estimate, 'estimate', 2, '')}, {verdict.estimate.n} seeds: **{verdict.with_own_test}**"


def _verdict_key(verdict: Verdict) -> str:
    """Return a claim's id, or a control's family and sign: R1, trained-ranks.positive."""
    tested = verdict.tested
    if isinstance(tested, Contrast) and tested.role in (POSITIVE, NEGATIVE):
        return f"{_slug(tested.family)}.{tested.role.split()[0]}"
    return tested.claim


def _text(found: Found, part: str, digits: int, name: str) -> str:
    if isinstance(found, str) or found is None:
        return found or DASH
    estimate = found if isinstance(found, Estimate) else Estimate(found, None)
    signed, band = number(estimate.mean, sign=True, digits=max(2, digits)), interval(estimate.interval, sign=True)
    parts = {
        "": number(abs(estimate.mean), digits=digits),
        "signed": signed,
        "interval": band,
        "estimate": f"{signed} {band}",
        "seeds": str(estimate.n),
    }
    if part not in parts:
        raise ValueError(f"value {name!r}: no part {part!r}; there are {', '.join(filter(None, parts))}")
    return parts[part]
