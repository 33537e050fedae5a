"""Score public checkpoints of the papers and their baselines, and compare them with the printed numbers.

Nothing is trained. The names are those that the methods' own repositories link to, unless a note says otherwise.
`[CLS]` is the state before the trained head, called cls_before_pooler in SimCSE's evaluation.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cse_core.evaluation.scorers import Cosine, Scorer
from cse_core.methods.promptbert import TEMPLATES
from cse_core.run import Pretrained
from experiments.schema.columns import STS, TRANSFER
from experiments.schema.published_rows import lines_of
from experiments.schema.recipes import BACKBONES
from experiments.schema.rows import AS_IS, BASE, LARGE, TRANSFER_AVG
from experiments.schema.study import Published, Row, Scale, Study, StudyAt, named

ROBERTA = "roberta-base"
CLS, MEAN = Cosine("cls"), Cosine("mean")
TITLES = {title: name for name, title in BACKBONES.items()}
NO_WEIGHTS = "its repository names no weights"
ON_HUB = "its repository links to Google Drive, and this is a hub model of its name"
UNNAMED = ""  # instead of a table's name: scored, but no table here prints the numbers


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method as the tables spell it, the tables that print its scores, and its checkpoints' hub names by backbone.

    A hub name is OWNER/NAME, and the folder of the weights if they are in one. If the hub has no checkpoint for a
    table's backbone, the row is not run; `why` is the reason. If a study's table is None, it leaves out the method.
    """

    title: str
    sts: str | None = None
    transfer: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    scorer: Scorer = CLS
    label: str = ""  # instead of the title
    which: str = ""  # of several checkpoints on one backbone
    why: str = NO_WEIGHTS
    note: str = ""
    runs: int = 1  # how many runs the printed number is the mean of


def _on_each(pattern: str, *backbones: str) -> dict[str, str]:
    return {name: pattern.format(name) for name in backbones or BACKBONES}


RANKCSE: dict[str, Any] = {
    "sts": "rankcse_table2",
    "transfer": "rankcse_table3",
    "why": "the authors released no weights, and a third party's are of BERT-base",
    "note": "a third party's re-implementation (perceptiveshawty/RankCSE), not the paper's own model",
}
COMPCSE: dict[str, Any] = {"sts": "compcse_table1", "transfer": UNNAMED, "why": "released on three backbones only"}
DIFFCSE = (BASE, ROBERTA)

METHODS = (
    Method(
        title="SimCSE",
        sts="rankcse_table2",
        transfer="rankcse_table3",
        names=_on_each("princeton-nlp/unsup-simcse-{}"),
    ),
    Method(title="RankCSE-listNet", names={BASE: "perceptiveshawty/rankcse-listnet-bert-base-uncased"}, **RANKCSE),
    Method(title="RankCSE-listMLE", names={BASE: "perceptiveshawty/rankcse-listmle-bert-base-uncased"}, **RANKCSE),
    Method(title="RankEncoder", sts="rankencoder_table1"),
    Method(title="RankEncoder-SimCSE w/ MLM", transfer="rankencoder_table3"),
    Method(
        title="WhitenedCSE",
        sts="whitenedcse_table1",
        transfer="whitenedcse_table2",
        names={
            BASE: "SupstarZh/whitenedcse-bert-base/unsup-whitenedcse-bert-base-uncased",
            LARGE: "SupstarZh/whitenedcse-bert-large/unsup-whitenedcse-bert-large",
        },
        why="released on BERT only",
        note="its page evaluates with the pooler `cls`, which is random unless the file holds a pooler; here without",
    ),
    Method(
        title="SimCSE (w/ comp.)",
        label="CompCSE",
        names={
            BASE: "perceptiveshawty/compositional-bert-base-uncased",
            ROBERTA: "perceptiveshawty/compositional-roberta-base",
        },
        **COMPCSE,
    ),
    Method(
        title="SimCSE (+ subsum.)",
        label="CompCSE",
        names={LARGE: "perceptiveshawty/compositional-bert-large-uncased"},
        note="which of the paper's data it was trained on is not said; the table prints only this row on BERT-large",
        **COMPCSE,
    ),
    Method(
        title="DiffCSE",
        which="for STS",
        sts="rankcse_table2",
        transfer="rankcse_table3",
        names=_on_each("voidism/diffcse-{}-sts", *DIFFCSE),
    ),
    Method(
        title="DiffCSE",
        which="for transfer",
        transfer="rankcse_table10",
        names=_on_each("voidism/diffcse-{}-trans", *DIFFCSE),
    ),
    Method(
        title="PromptBERT",
        sts="rankencoder_table1",
        transfer=UNNAMED,
        names={BASE: "royokong/unsup-PromptBERT"},
        scorer=Cosine("mask", TEMPLATES["bert"][0]),
        runs=10,
        note=f"{ON_HUB}; the printed number is the mean of ten runs, and the checkpoint is the best of them",
    ),
    Method(
        title="PromptRoBERTa",
        sts=UNNAMED,
        transfer=UNNAMED,
        names={ROBERTA: "royokong/unsup-PromptRoBERTa"},
        scorer=Cosine("mask", TEMPLATES["roberta"][0]),
        note=f"{ON_HUB}; no table here prints its scores",
    ),
    Method(title="SNCSE", sts="compcse_table1", why="on Baidu only"),
    Method(title="ESimCSE", sts="compcse_table1", transfer=UNNAMED, names=_on_each("ffgcc/esimcse-{}")),
    Method(
        title="PCL",
        sts="compcse_table1",
        transfer="rankcse_table3",
        names=_on_each("qiyuw/pcl-{}"),
        note="RankCSE's Table 2 prints other STS scores for it",
    ),
    Method(
        title="MoCoSE", sts="compcse_table1", transfer="whitenedcse_table2", why="on Google Drive only, of BERT-base"
    ),
    Method(title="ConSERT", sts="whitenedcse_table1", why="on Google Drive and Baidu only"),
    Method(
        title="CT-BERT",
        sts="whitenedcse_table1",
        transfer=UNNAMED,
        names={BASE: "Contrastive-Tension/BERT-Base-CT"},
        scorer=MEAN,
        note="no source says that the printed row is of this checkpoint",
    ),
    Method(title="DCLR", sts="compcse_table1"),
    Method(title="L2P-CSR", sts="compcse_table1"),
    Method(title="ArcCSE", sts="rankcse_table2", transfer="rankcse_table3", why="no code or weights of its authors"),
    Method(title="IS-BERT", sts="rankcse_table2", transfer="rankcse_table3"),
    Method(
        title="first-last avg",
        sts="whitenedcse_table1",
        names=_on_each("{}", BASE, ROBERTA),
        scorer=Cosine("first_last_mean"),
    ),
    Method(title="last avg", transfer="rankcse_table3", names={BASE: BASE}, scorer=MEAN),
    Method(title="[CLS]", transfer="whitenedcse_table2", names={BASE: BASE}),
)


def _rows(table_of: str, columns: Mapping[str, str]) -> Iterator[Row]:
    """Yield a row for each line of a method's table, or for each checkpoint of a method without a table."""
    for method in METHODS:
        table: str | None = getattr(method, table_of)
        if table is None:
            continue
        lines = [line for line in lines_of(table) if line[1] == method.title] if table else []
        published = {TITLES[line[0]]: Published(table, *line, columns) for line in lines}
        for backbone in published or method.names:
            yield _row(method, backbone, published.get(backbone))


def _row(method: Method, backbone: str, published: Published | None) -> Row:
    """Return the row of a method's checkpoint; one without a tokenizer uses its backbone's."""
    name = method.names.get(backbone, "")
    borrowed = "" if name == backbone else backbone
    words = (method.label or method.title, BACKBONES[backbone], method.which)
    return Row(
        label=" ".join(filter(None, words)),
        encoder=Pretrained(name, tokenizer=borrowed) if name else None,
        backbone=backbone,
        scorer=method.scorer,
        select=AS_IS,
        published=published,
        published_runs=method.runs,
        why="" if name else f"not available: {method.why}",
        note=method.note if name else "",
    )


def released_sts(scale: Scale) -> Study:
    """Public checkpoints on the seven STS sets."""
    return Study(
        source="public checkpoints",
        question="Do public checkpoints have the STS scores that are printed for them?",
        rows=tuple(_rows("sts", {})),
        columns=(*STS, "sts_avg"),
    )


def released_transfer(scale: Scale) -> Study:
    """Public checkpoints on the seven transfer tasks."""
    return Study(
        source="public checkpoints",
        question="Do public checkpoints have the transfer scores that are printed for them?",
        rows=tuple(_rows("transfer", TRANSFER_AVG)),
        columns=(*TRANSFER, "transfer_avg"),
    )


STUDIES: dict[str, StudyAt] = named({"released-sts": released_sts, "released-transfer": released_transfer})
