"""The training loop: the same seed gives the same bits, killed or not; checkpoints are kept by rule; NaN ends a run."""

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Normalize
from transformers import AutoConfig, ByT5Tokenizer, T5Config, T5EncoderModel

from cse_core import api
from cse_core.api import make_batch
from cse_core.data import own_pairs, synthetic
from cse_core.data.corpora import corpus_of_file, lines_hash, sentences
from cse_core.data.examples import examples
from cse_core.data.senteval import pairs
from cse_core.method import COLUMNS
from cse_core.methods.baselines.arccse import ArcCSE
from cse_core.methods.baselines.consert import ConSERT
from cse_core.methods.baselines.esimcse import ESimCSE
from cse_core.methods.baselines.l2pcsr import L2PCSR
from cse_core.methods.baselines.pcl import PCL
from cse_core.methods.compcse import CompCSE
from cse_core.methods.diffcse import DiffCSE
from cse_core.methods.mlm import MLM
from cse_core.methods.promptbert import TEMPLATES, PromptBERT
from cse_core.methods.rankcse import RankCSE, Teacher
from cse_core.methods.simcse import SimCSE
from cse_core.methods.whitenedcse import WhitenedCSE
from cse_core.models.encoder import Encoder
from cse_core.models.foreign import ForeignEncoder, open_encoder
from cse_core.models.loading import set_dropout
from cse_core.run import Corpus, Pretrained
from cse_core.seeding import generator_for
from cse_core.training.checkpoint import MANIFEST
from cse_core.training.dev_scoring import DevScore, DevSet
from cse_core.training.loop import DivergedError
from cse_core.training.optimization import schedule_of
from cse_core.training.run_state import UNFINISHED, finished_history
from cse_core.training.teacher_embeddings import TargetEncoder
from cse_core.training.train import train
from tests.support import forked
from tests.support.families import FAMILIES, OTHERS, change, model, modules_folder, plain_folder
from tests.support.method_steps import encoder_for
from tests.support.polling import until
from tests.support.training import KEEP, TINY, Trained, equal, train_noting_steps, weights


@pytest.mark.slow
def test_the_run_is_what_was_declared(undisturbed: Trained) -> None:
    history = undisturbed.history
    assert history.steps == 2 * 7  # 100 sentences in batches of 16, the last one of 4
    assert [step for step, _ in history.curves["loss"]] == list(range(1, 15))
    assert [step for step, _ in history.curves["dev/synthetic_dev"]] == [4, 8, 12]
    assert history.curves["loss"] == history.curves["loss/contrastive"]
    assert sum(loss for _, loss in history.curves["loss"][-5:]) < sum(loss for _, loss in history.curves["loss"][:5])


@pytest.mark.slow
def test_how_many_texts_were_cut_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = [f"{'word ' * (i % 12)}number {i}" for i in range(48)]
    pairs_file = tmp_path / "pairs.tsv"
    pairs_file.write_text("".join(f"{'word ' * (10 * i)}one {i}\tb {i}\t{i}\n" for i in range(9)))
    rule = own_pairs.add(pairs_file)
    (tmp_path / "mine.txt").write_text("\n".join(texts) + "\n")
    run = replace(TINY, corpus=corpus_of_file(tmp_path / "mine.txt"), max_length=8, epochs=1)
    history = train(run, tmp_path, rules=[rule, "last"])
    encoder = Encoder.from_pretrained("wiki-tiny")
    lengths = [len(ids) for ids in encoder.tokenizer(texts)["input_ids"]]
    full = sum(length >= 8 for length in lengths)
    assert 0 < full < 48
    assert f"{full} of 48 training examples fill the limit of 8 tokens (max_length)" in caplog.text
    found = [row[1] for row in own_pairs.find(rule).rows]
    cut = sum(len(ids) > encoder.max_length for ids in encoder.tokenizer(found)["input_ids"])
    assert history.warnings == [f"{rule}: {cut} of 18 texts are longer than {encoder.max_length} tokens and were cut"]


@pytest.mark.slow
def test_another_seed_gives_other_losses(tmp_path: Path, undisturbed: Trained) -> None:
    assert train(replace(TINY, seed=1), tmp_path).curves["loss"] != undisturbed.history.curves["loss"]


def test_the_best_dev_checkpoint_and_the_last_one_are_kept(undisturbed: Trained) -> None:
    store, history = undisturbed.store, undisturbed.history
    scores = dict(history.curves["dev/synthetic_dev"])
    best = max(scores.values())
    kept = history.kept["synthetic_dev"]
    assert (kept.score, kept.step) == (best, min(step for step, score in scores.items() if score == best))
    encoder = Encoder.from_pretrained(store / TINY.key / "synthetic_dev")
    assert DevSet(encoder, pairs("synthetic_dev")).measure(encoder).score == best
    assert history.kept["last"].step == 14
    assert not equal(weights(store, TINY, "last"), weights(store, TINY, "synthetic_dev"))
    assert "head.0.weight" not in weights(store, TINY, "last")


@pytest.mark.slow
@pytest.mark.parametrize("at", [4, 13])
def test_a_run_stopped_after_any_step_ends_with_the_same_bits(tmp_path: Path, undisturbed: Trained, at: int) -> None:
    undisturbed.leave(at, tmp_path)
    history, steps = train_noting_steps(TINY, tmp_path, rules=KEEP)
    assert steps[0] == at + 1
    undisturbed.assert_same(tmp_path, history)


@pytest.mark.slow
def test_a_checkpoint_younger_than_the_state_starts_the_run_again(
    tmp_path: Path, undisturbed: Trained, caplog: pytest.LogCaptureFixture
) -> None:
    """A kill between the export and its state must not leave weights that the history does not speak of."""
    undisturbed.leave(6, tmp_path)
    manifest = tmp_path / TINY.key / UNFINISHED / "synthetic_dev" / MANIFEST
    manifest.write_text(manifest.read_text().replace('"step": 4', '"step": 8'))
    undisturbed.assert_same(tmp_path, train(TINY, tmp_path, rules=KEEP))
    assert "does not fit its folder" in caplog.text


@pytest.mark.slow
def test_a_collapsed_encoder_is_trained_to_its_end_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undefined = DevScore(*[float("nan")] * 3)
    monkeypatch.setattr(DevSet, "measure", lambda self, encoder: undefined)
    history = train(replace(TINY, epochs=1), tmp_path, rules=KEEP)
    assert history.warnings == ["synthetic_dev undefined at step 4: every pair has the same cosine"]
    assert "dev/synthetic_dev" not in history.curves
    assert (history.kept["synthetic_dev"].step, history.kept["synthetic_dev"].score) == (4, None)


SCRIPT = """
import sys, torch
from pathlib import Path
from cse_core.training.loop import Execution
from cse_core.training.train import train
from tests.support.training import KEEP, TINY, few_dev_pairs
torch.set_num_threads(1)
with few_dev_pairs():
    place = Execution(Path(sys.argv[1]), save_seconds=0.0)
    train(TINY, place, rules=KEEP, on_step=lambda step, history: print(step, flush=True))
"""


@pytest.mark.slow
def test_a_process_killed_with_sigkill_resumes_to_the_same_bits(tmp_path: Path, undisturbed: Trained) -> None:
    """A real process, killed three times, a moment after some of its steps, ends as if nothing had happened."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    seen: list[int] = []
    for count, delay in ((1, 0.05), (3, 0.1), (1, 0.15)):
        with (tmp_path / f"steps{len(seen)}").open("w") as steps:
            process = forked.Forked([sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=steps, env=environment)
        shown = Path(steps.name)
        until(lambda: shown.read_text().count("\n") >= count)  # noqa: B023
        seen.append(int(shown.read_text().partition("\n")[0]))
        time.sleep(delay)
        process.kill()
        process.wait()
        assert process.returncode == -signal.SIGKILL
    assert seen[0] == 1
    assert seen[-1] > 1  # it did not start over
    undisturbed.assert_same(tmp_path, train(TINY, tmp_path, rules=KEEP))


def test_a_finished_run_is_not_trained_again(tmp_path: Path, undisturbed: Trained) -> None:
    def never(step: int, history: object) -> None:
        raise AssertionError("trained again")

    assert train(TINY, undisturbed.store, rules=KEEP, on_step=never) == undisturbed.history
    assert finished_history(TINY, undisturbed.store, KEEP) == undisturbed.history
    assert finished_history(TINY, undisturbed.store, ("avg_sts",)) is None
    assert not (undisturbed.store / TINY.key / "state.pt").exists()


@pytest.mark.slow
def test_a_run_is_trained_again_without_a_checkpoint_whose_dev_pairs_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a score of the dev file was corrected."""
    run, file = replace(TINY, max_steps=4), tmp_path / "dev.tsv"
    names = []
    for last in ("3", "2.5"):
        file.write_text(f"A cat.\tA dog.\t1\nA man.\tA boy.\t2\nA car.\tA bus.\t{last}\n")
        names.append(own_pairs.add(file))
        train(run, tmp_path / "store", rules=(names[-1], "last"))
        monkeypatch.delitem(own_pairs._SETS, names[-1])
    assert f"trained again, without its checkpoint by {names[0]}: these pairs are not named" in caplog.text
    history = finished_history(run, tmp_path / "store", ("last",))
    assert history
    assert history.kept.keys() == {names[1], "last"}


@pytest.mark.slow
def test_a_run_ends_after_its_most_steps_with_its_rate_at_nothing(tmp_path: Path, undisturbed: Trained) -> None:
    history, steps = train_noting_steps(replace(TINY, max_steps=3), tmp_path, rules=KEEP)
    assert (history.steps, steps) == (3, [1, 2, 3])
    assert {rule: kept.step for rule, kept in history.kept.items()} == dict.fromkeys(KEEP, 3)
    losses = [[value for _, value in each.curves["loss"]] for each in (history, undisturbed.history)]
    assert losses[0][:1] == losses[1][:1]  # the same first batch; the rate falls sooner
    assert train(replace(TINY, max_steps=99), tmp_path / "all").steps == undisturbed.history.steps


@pytest.mark.slow
def test_a_nan_ends_the_run_by_name_and_leaves_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = SimCSE.loss

    def broken(self: SimCSE, encode: Any, batch: Any, modules: Any, targets: Any) -> Any:
        loss = real(self, encode, batch, modules, targets)
        return replace(loss, terms={"contrastive": loss.total * (float("nan") if 3 in batch.rows else 1)})

    monkeypatch.setattr(SimCSE, "loss", broken)
    with pytest.raises(DivergedError, match=rf"run {TINY.key}: loss/contrastive is nan at step \d of 14"):
        train(TINY, tmp_path, rules=KEEP)
    assert finished_history(TINY, tmp_path, KEEP) is None


@pytest.mark.slow
def test_an_eigenvalue_problem_that_is_not_finite_is_a_divergence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whitening finds it in the step after the update that made the weights infinite."""
    real, calls = WhitenedCSE.loss, []

    def diverging(self: WhitenedCSE, encode: Any, *given: Any) -> Any:
        calls.append(given)
        if len(calls) == 3:
            torch._foreach_mul_([weight.detach() for weight in encode.parameters()], float("inf"))
        return real(self, encode, *given)

    monkeypatch.setattr(WhitenedCSE, "loss", diverging)
    run = replace(TINY, method=WhitenedCSE(groups=16))
    with pytest.raises(DivergedError, match=f"run {run.key}: weights are not finite after step 2 of 14"):
        train(run, tmp_path, rules=("last",))


def test_a_template_that_leaves_no_positions_is_refused(tmp_path: Path) -> None:
    """PromptBERT adds its words to sentences that have max_length tokens already."""
    long = replace(TINY, method=PromptBERT(), pooling="mask", template=TEMPLATES["bert"][0], max_length=48)
    with pytest.raises(ValueError, match=r"sentences have up to \d+ tokens, and wiki-tiny has 48 positions; expected"):
        train(replace(long, corpus=_long_sentences(tmp_path)), tmp_path)


def _long_sentences(folder: Path) -> Corpus:
    (folder / "long.txt").write_text("".join(f"{'word ' * 99}{i}\n" for i in range(TINY.batch_size)))
    return corpus_of_file(folder / "long.txt")


def test_an_unknown_rule_and_another_backbone_content_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown selection rule .best.; known: last, stsb_dev"):
        train(TINY, tmp_path, rules=("best",))
    other = replace(TINY, backbone=Pretrained("wiki-tiny", "0" * 64))
    with pytest.raises(ValueError, match="backbone wiki-tiny: content e22f4fc2dee1, expected 000000000000"):
        train(other, tmp_path, rules=("last",))
    with pytest.raises(FileNotFoundError, match="backbone 'no-such-model': neither embedded"):
        train(replace(TINY, backbone=Pretrained("no-such-model")), tmp_path)


@pytest.mark.slow
def test_rankcse_trains_on_a_nested_run_and_its_null_setting_is_simcse(tmp_path: Path, undisturbed: Trained) -> None:
    teacher = Teacher(TINY, select="synthetic_dev")
    taught = replace(TINY, method=RankCSE(teachers=(teacher,)), epochs=1)
    assert taught.nested() == (TINY,)
    with pytest.raises(FileNotFoundError, match=f"no synthetic_dev checkpoint of run {TINY.key}; train that run first"):
        train(taught, tmp_path)
    history = train(taught, undisturbed.store)
    assert set(history.curves) == {"loss", "loss/contrastive", "loss/consistency", "loss/rank"}
    null = replace(TINY, method=RankCSE(consistency_weight=0.0, distillation_weight=0.0))
    train(null, tmp_path)
    assert equal(weights(tmp_path, null, "last"), weights(undisturbed.store, TINY, "last"))


@pytest.mark.slow
def test_teachers_do_not_change_and_are_read_without_dropout(undisturbed: Trained) -> None:
    student = Encoder.from_pretrained("wiki-tiny", dropout=0.3)
    table = examples(TINY.corpus, TINY.method, student.tokenizer, TINY.max_length)
    source = TargetEncoder(table, student, undisturbed.store, corpus=TINY.corpus, data=None, device=torch.device("cpu"))
    vectors = source.vectors(TINY, select="last")
    checkpoint = Encoder.from_pretrained(undisturbed.store / TINY.key / "last")
    assert checkpoint.backbone.config.hidden_dropout_prob == 0.3
    assert torch.allclose(vectors, checkpoint.embed(table["text"]), atol=1e-6)


def test_the_history_file_holds_everything(undisturbed: Trained) -> None:
    content = json.loads((undisturbed.store / TINY.key / "history.json").read_text())
    weights = hashlib.sha256((undisturbed.store / TINY.key / "last" / "model.safetensors").read_bytes()).hexdigest()
    assert content["kept"]["last"] == {"step": 14, "score": None, "weights": weights}
    assert content["data"]["backbone"].startswith("e22f4fc2dee1")
    assert content["data"]["corpus"] == lines_hash(synthetic.sentences(100))
    assert content["seconds"] > 0


def test_the_rate_rises_to_the_end_of_the_warmup_and_falls_to_nothing() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule, rates = schedule_of(replace(TINY, warmup=1 / 3), optimizer, 6), []
    for _ in range(7):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([0, 0.5, 1, 0.75, 0.5, 0.25, 0])


LINES = [f"{who} {what} {where}" for who in ("a man", "the dog") for what in ("sat", "ran") for where in ("here", "on")]
OWN_NAMES = {
    **{family: {"hidden_dropout_prob", "attention_probs_dropout_prob"} for family in FAMILIES},
    "distilbert": {"dropout", "attention_dropout"},
    "modernbert": {"embedding_dropout", "mlp_dropout", "attention_dropout"},
    "t5": {"dropout_rate"},
}


@pytest.fixture(autouse=True)
def no_cache(cache: Path) -> None:
    """Nothing of an earlier test is reused."""


def trained(method: Any, backbone: Path, store: Path, **settings: Any) -> api.Trained:
    return api.train(method, LINES, backbone, store=store, batch_size=4, max_length=8, device="cpu", **settings)


def assert_exported(found: api.Trained, texts: Sequence[str] = LINES) -> None:
    """The folder of a trained encoder has its vectors."""
    opened = open_encoder(found.folder)
    torch.testing.assert_close(opened.encode(texts), found.encoder.encode(texts), atol=1e-6, rtol=0)


def losses(found: api.Trained) -> list[float]:
    return [loss for _, loss in found.history.curves["loss"]]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_with_its_own_dropout(family: str, tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "plain", family)
    without, much = (trained(SimCSE(), folder, tmp_path / "store", dropout=rate) for rate in (0.0, 0.5))
    assert losses(without) != losses(much)
    config = AutoConfig.from_pretrained(much.folder).to_dict()
    assert {name for name, value in config.items() if "drop" in name and value == 0.5} == OWN_NAMES[family]
    assert isinstance(open_encoder(much.folder), ForeignEncoder if family in OTHERS else Encoder)
    assert_exported(much)
    views = without.encoder.train()
    tokens = api.make_batch(SimCSE(), LINES, views)["text"]
    torch.testing.assert_close(*views(tokens, tokens))  # no dropout


def test_a_configuration_without_dropout_is_refused() -> None:
    config = AutoConfig.for_model("mamba")
    set_dropout(config, 0.0, Path("folder"))
    with pytest.raises(
        ValueError, match="folder: the configuration of a mamba names no dropout, so it can't be set to"
    ):
        set_dropout(config, 0.1, Path("folder"))


@pytest.mark.parametrize("normalised", [False, True])
def test_training_starts_from_a_folder_with_modules(normalised: bool, tmp_path: Path) -> None:
    plain = plain_folder(tmp_path / "plain", "albert")
    folder = modules_folder(tmp_path / "modules", plain, "cls", *[Normalize()] * normalised)
    change(folder / "sentence_bert_config.json", max_seq_length=6)
    found = trained(SimCSE(), folder, tmp_path / "store")
    assert (found.run.pooling, found.encoder.max_length, found.encoder.normalises) == ("cls", 6, normalised)
    assert_exported(found, ["a man sat on the river and saw a dog", "no"])


DIFFCSE = DiffCSE(generator=Pretrained("wiki-tiny"))


@pytest.fixture
def never_tokenised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cse_core.training.loop.examples", lambda *args: pytest.fail("tokenised"))


def test_a_tokenizer_that_is_written_in_python(tmp_path: Path) -> None:
    folder = tmp_path / "byt5"
    special: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 1}
    torch.manual_seed(0)
    T5EncoderModel(
        T5Config(vocab_size=384, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, **special)
    ).save_pretrained(folder)
    ByT5Tokenizer().save_pretrained(folder)
    assert not Encoder.from_pretrained(folder).tokenizer.is_fast
    found = trained(SimCSE(), folder, tmp_path / "store")
    assert_exported(found)
    for method in (CompCSE(), ESimCSE(), PCL()):
        with pytest.raises(ValueError, match=rf"method {method.name}: edits a text between .* tokenizer of .*byt5"):
            trained(method, folder, tmp_path / "store")
    with pytest.raises(
        ValueError, match=r"backbone .*byt5: its tokenizer has no mask token|method arccse: edits a text"
    ):
        trained(ArcCSE(), folder, tmp_path / "store")


@pytest.mark.parametrize(
    ("method", "family", "message"),
    [
        (ConSERT(), "mpnet", "kept, factors and positions need a model of type bert, .*, got mpnet"),
        (L2PCSR(), "t5", "kept, factors and positions need a model of type bert, .*, got t5"),
        (MLM(), "albert", "model type must be one of bert, roberta, got albert"),
        (DIFFCSE, "t5", "method diffcse: a vector must fit in .*, which a t5 does not"),
        (DIFFCSE, "electra", "method diffcse: a vector must fit .*, which a electra"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
@pytest.mark.usefixtures("never_tokenised")
def test_what_a_method_can_t_do_with_a_family_is_said_before_tokenising(
    method: Any, family: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        trained(method, plain_folder(tmp_path / "plain", family), tmp_path / "store")


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet"])
@pytest.mark.usefixtures("never_tokenised")
def test_a_length_above_the_positions_is_refused_before_tokenising(family: str, tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "plain", family)
    with pytest.raises(ValueError, match=r"max_length must be at most 48, as .*plain has that many positions, got 49"):
        api.train(SimCSE(), LINES, folder, store=tmp_path / "store", batch_size=4, max_length=49, device="cpu")


def test_a_teacher_s_vectors_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "plain", "bert")
    large = shutil.copytree(folder, tmp_path / "large")
    teacher = model("bert", seed=1)
    with torch.no_grad():  # finite weights, whose layer's output is not
        teacher.encoder.layer[1].output.LayerNorm.weight.fill_(3e38)
    teacher.save_pretrained(large)
    method = RankCSE(teachers=(Teacher(Pretrained(str(large))),))
    with pytest.raises(ValueError, match="a teacher's vector of example 0 is not finite"):
        trained(method, folder, tmp_path / "store")


TRIPLES = synthetic.triples(6)


@pytest.mark.parametrize(("columns", "left_out"), [(1, False), (1, True), (2, True), (3, True)])
@pytest.mark.slow
def test_the_first_loss_of_a_run_is_the_methods_own(tmp_path: Path, columns: int, left_out: bool) -> None:
    """One step over all rows, without dropout. A row returns in capitals: leaving duplicates out changes the loss."""
    again = tuple(text.upper() for text in TRIPLES[0])
    rows: list[Any] = [row[:columns] if columns > 1 else row[0] for row in [*TRIPLES, again]]
    method = SimCSE(hard_negative_weight=0.5 if columns == 3 else 0.0)
    about: dict[str, Any] = {"batch_size": 7, "dropout": 0.0, "max_steps": 1, "leave_out_duplicates": left_out}
    trained = api.train(method, rows, "wiki-tiny", store=tmp_path, device="cpu", **about)
    assert trained.run.corpus.columns == (COLUMNS[:columns] if columns > 1 else ())
    encoder = encoder_for(method, dropout=0.0).train()
    modules = method.modules(encoder, generator_for(trained.run.seed, "modules"))
    batch = replace(make_batch(method, rows, encoder), leave_out_duplicates=left_out)
    expected = method.loss(encoder, batch, modules, {}).total.item()
    ((_, found),) = trained.history.curves["loss"]
    assert found == pytest.approx(expected, rel=1e-4)


def test_the_generated_corpus_has_the_columns_that_are_named() -> None:
    table = sentences(Corpus(synthetic.TRIPLES, 6, columns=COLUMNS))
    assert list(zip(*(table[name][:] for name in COLUMNS), strict=True)) == TRIPLES
    assert sentences(Corpus(synthetic.TRIPLES, 6))["text"][:] == [row[0] for row in TRIPLES]
    with pytest.raises(ValueError, match=r"has the columns text, positive, negative, got hard"):
        sentences(Corpus(synthetic.TRIPLES, 6, columns=("text", "hard")))


def test_a_method_of_single_sentences_refuses_it_before_training(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="method rankcse: expected sentences in one column"):
        api.train(RankCSE(distillation_weight=0.0), TRIPLES, "wiki-tiny", store=tmp_path)
