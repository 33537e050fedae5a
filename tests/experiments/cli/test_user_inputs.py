"""A user's own sentences, encoder, teachers and evaluation set on the command line."""

import json
import re
import shutil
import statistics
from pathlib import Path

import pytest
import tyro
from transformers import BertConfig, BertModel

from cse_core.data import own_pairs
from cse_core.data.synthetic import pairs, sentences
from cse_core.evaluation import suite
from cse_core.evaluation.scorers import Cosine, Ranked, Whitened
from cse_core.methods import rankcse
from cse_core.methods.rankcse import RankCSE
from cse_core.models.encoder import Encoder
from cse_core.models.pretrained import ASSETS, encoder_hash
from cse_core.run import Pretrained, Run
from experiments import run as run_command
from experiments.cli.user_inputs import encoder_size, pooling_text, read_encoder
from experiments.run import build_all, make_plan, say_settings, untrained_scoring
from experiments.schema.recipes import simcse_run
from experiments.schema.scales import SCALES, scale_for
from experiments.storage.needed_inputs import weight_bytes
from tests.experiments.cli.run_words import built, parsed
from tests.support.families import change, plain_folder


def pool_by_mean(folder: Path) -> None:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')


def list_modules(folder: Path, **paths: str) -> None:
    """Write the list of sentence-transformers' modules, given with their paths."""
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in paths.items()]
    (folder / "modules.json").write_text(json.dumps(modules))


def test_the_pooling_of_an_encoder_is_printed_with_its_reason(tmp_path: Path) -> None:
    plain, other = plain_folder(tmp_path / "plain", "bert"), plain_folder(tmp_path / "other", "albert")
    none = "as its folder states none and its model type is"
    assert pooling_text(str(plain), None) == f"pooling: cls, {none} bert; --pooling gives another"
    assert pooling_text(str(other), None) == f"pooling: mean, {none} albert"
    assert pooling_text(str(plain), "mean") == "pooling: mean, by --pooling"
    change(other / "config.json", architectures=["AlbertForCausalLM"])
    assert pooling_text(str(other), None) == f"pooling: lasttoken, {none} albert"
    pool_by_mean(plain)
    assert pooling_text(str(plain), None) == "pooling: mean, as its folder says"
    list_modules(plain, Transformer="", Dropout="")
    assert pooling_text(str(plain), None).startswith("vectors: those of sentence-transformers, as its modules are sent")


def test_an_older_folder_of_sentence_transformers_holds_its_encoder_in_a_subfolder(tmp_path: Path) -> None:
    plain_folder(tmp_path / "old/0_Transformer", "bert")
    pool_by_mean(tmp_path / "old")
    list_modules(tmp_path / "old", Transformer="0_Transformer", Pooling="1_Pooling")
    assert encoder_size(str(tmp_path / "old")) == (2, 32)
    assert weight_bytes(read_encoder(str(tmp_path / "old"))) > 1_000_000


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "mine.txt").write_text("\n".join(sentences(200)) + "\n")
    return tmp_path / "mine.txt"


def write_pairs(path: Path, count: int = 60, header: bool = False) -> Path:
    rows = pairs("dev")[:count]
    lines = [f"{first}\t{second}\t{score}" for _, first, second, score in rows]
    path.write_text("\n".join((["first\tsecond\tscore"] if header else []) + lines) + "\n")
    return path


def test_all_needed_runs_train_on_a_users_corpus(texts: Path) -> None:
    run = built("rankcse", "--corpus", str(texts))
    assert (run.corpus.lines, run.corpus.name) == (200, str(texts))
    assert [nested.corpus for nested in run.nested()] == [run.corpus] * 2
    assert built("consert", "--corpus", str(texts)).corpus == run.corpus  # which trains on the STS sets by default
    few = built("simcse", "--corpus", str(texts), "--corpus-lines", "100")
    assert few.corpus.lines == 100
    assert few.key != built("simcse", "--corpus", str(texts)).key
    copy = texts.with_name("copy.txt")
    copy.write_text(texts.read_text())
    assert built("rankcse", "--corpus", str(copy)).key == run.key  # known by its content
    copy.write_text(texts.read_text() + "One more.\n")
    assert built("rankcse", "--corpus", str(copy)).key != run.key
    named = built("simcse", "--corpus", "wiki_sentences_1m", "--corpus-lines", "64").corpus
    assert (named.name, named.lines) == ("wiki_sentences_1m", 64)


def test_a_corpus_of_several_columns_is_for_methods_that_take_them(tmp_path: Path) -> None:
    path = tmp_path / "nli.csv"
    path.write_text("sent0,sent1,hard_neg\n" + "".join(f'"{text}",yes,no\n' for text in sentences(80)))
    refusal = "method esimcse: expected sentences in one column, got sent0, sent1, hard_neg"
    with pytest.raises(ValueError, match=refusal):
        built("esimcse", "--corpus", str(path))
    one = built("esimcse", "--corpus", str(path), "--columns", "sent0").corpus
    plain = path.with_suffix(".txt")
    plain.write_text("\n".join(sentences(80)) + "\n")
    assert one.identity == built("esimcse", "--corpus", str(plain)).corpus.identity
    with pytest.raises(ValueError, match="--columns sent0: requires --corpus"):
        built("esimcse", "--columns", "sent0")


def test_columns_of_pairs_are_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("a,b,c,d\n" + "".join(f'0,"{a}","{b}",{score}\n' for _, a, b, score in pairs("dev")[:9]))
    plan = make_plan(parsed("simcse", "--dev", str(path), "--evaluate", str(path), "--pair-columns", "b", "c", "d"))
    assert plan.rules == (*plan.tasks, "last")
    assert own_pairs.find(plan.tasks[0]).rows == tuple(("all", *row[1:]) for row in pairs("dev")[:9])
    with pytest.raises(ValueError, match="expected sentence, sentence, score, got"):
        make_plan(parsed("simcse", "--dev", str(path)))
    with pytest.raises(ValueError, match="--pair-columns b c d: requires a file in --dev or --evaluate"):
        make_plan(parsed("simcse", "--pair-columns", "b", "c", "d"))


def test_a_users_backbone_with_another_config_or_tokenizer_is_another_run(tmp_path: Path) -> None:
    mine = shutil.copytree(ASSETS / "wiki-tiny", tmp_path / "mine")
    keys = [built("simcse", "--backbone", "wiki-tiny").key, built("simcse", "--backbone", str(mine)).key]
    assert keys[0] == keys[1]  # known by its content
    for file, name, value in (
        ("config.json", "num_attention_heads", 4),
        ("config.json", "hidden_act", "relu"),
        ("tokenizer_config.json", "model_max_length", 7),
    ):
        change(mine / file, **{name: value})
        keys.append(built("simcse", "--backbone", str(mine)).key)
    assert len(set(keys)) == 4


def test_a_users_backbone_has_its_own_pooling_unless_another_is_given(tmp_path: Path) -> None:
    Encoder.from_pretrained("wiki-tiny", pooling="mean").save_pretrained(tmp_path / "mine")
    run = built("rankcse", "--backbone", str(tmp_path / "mine"))
    assert run.backbone == Pretrained(str(tmp_path / "mine"), encoder_hash(tmp_path / "mine"))
    assert run.pooling == "mean"
    (base,) = built("rankencoder", "--backbone", str(tmp_path / "mine")).nested()
    assert (base.pooling, base.backbone) == ("mean", run.backbone)
    assert [nested.backbone for nested in run.nested()] == [run.backbone]
    assert run.learning_rate == built("rankcse").learning_rate
    assert built("simcse", "--backbone", str(tmp_path / "mine"), "--pooling", "cls").pooling == "cls"
    assert built("promptbert", "--backbone", str(tmp_path / "mine")).pooling == "mask"  # the method's
    assert built("isbert", "--backbone", str(tmp_path / "mine")).pooling == "ngrams"  # the method trains it


def test_teachers_are_encoders_runs_or_scorers_with_their_shares() -> None:
    method = built("rankcse", "--teachers", "wiki-mini:0.25", "wiki-tiny@whitened:0.25", "simcse:0.5").method
    assert isinstance(method, RankCSE)
    mini, whitened, trained = method.teachers
    assert (mini.encoder, mini.weight, mini.scorer) == (read_encoder("wiki-mini"), 0.25, None)
    assert isinstance(whitened.scorer, Whitened)
    assert whitened.scorer.corpus == built("rankcse").corpus
    assert isinstance(trained.encoder, Run)
    assert (trained.encoder.key, trained.select) == (built("simcse").key, "stsb_dev")
    rules = built("rankcse", "--dev", "avg_sts").required_checkpoints().values()
    assert {rule for of_run in rules for rule in of_run} == {"avg_sts"}
    equal = built("rankcse", "--teachers", "wiki-mini", "wiki-tiny@ranks").method
    assert isinstance(equal, RankCSE)
    assert [teacher.weight for teacher in equal.teachers] == [0.5, 0.5]
    assert isinstance(equal.teachers[1].scorer, Ranked)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--corpus", "nowhere.txt"), "--corpus nowhere.txt: no such file; for a corpus of the data folder"),
        (("--backbone", "nowhere"), "backbone 'nowhere': neither embedded"),
        (("--teachers", "wiki-tiny:0.5", "wiki-mini"), "expected a weight for each or for none, got 1"),
        (("--teachers", "wiki-tiny:0.5", "wiki-mini:0.7"), "weights must not be negative and add up to 1"),
        (("--teachers", "wiki-tiny@flow"), "--teachers wiki-tiny@flow: expected @whitened or @ranks"),
        (("--teachers", "nowhere:1"), "'nowhere'"),
    ],
)
def test_unusable_inputs_are_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises((ValueError, OSError), match=re.escape(message)):
        built("rankcse", *arguments)


def test_a_run_has_one_seed_or_several() -> None:
    runs = build_all("simcse", parsed("simcse", "--seeds", "3", "1", "3"))
    assert [run.seed for run in runs] == [3, 1]
    assert runs[1].key == built("simcse", "--seed", "1").key
    with pytest.raises(ValueError, match="--seed 1 and --seeds 2 3: give one of the two"):
        build_all("simcse", parsed("simcse", "--seed", "1", "--seeds", "2", "3"))
    for seeds in (("--seed", "-2"), ("--seeds", "3", "-2")):
        with pytest.raises(ValueError, match=r"--seeds: .*, got -2|seed .*, got -2"):
            build_all("simcse", parsed("simcse", *seeds))


@pytest.mark.slow
def test_tasks_and_rules_are_checked_before_anything_is_trained(tmp_path: Path) -> None:
    plan = make_plan(parsed("simcse", "--evaluate", "sts", "transfer", "--dev", "avg_sts"))
    assert plan.rules == ("avg_sts", "last")
    assert plan.tasks[:2] + plan.tasks[-1:] == ("sts12", "sts13", "mrpc")
    own = write_pairs(tmp_path / "my pairs.tsv", header=True)
    plan = make_plan(parsed("simcse", "--evaluate", str(own), "--dev", str(own)))
    assert plan.rules == (plan.tasks[0], "last")
    assert re.fullmatch(r"own_my_pairs_[0-9a-f]{8}", plan.rules[0])
    assert len(own_pairs.find(plan.rules[0]).rows) == 60
    for name, value in (("--dev", "stsb_def"), ("--evaluate", "stss")):
        with pytest.raises(ValueError, match=f"unknown .*{value}.*did you mean"):
            make_plan(parsed("simcse", name, value))
    with pytest.raises(ValueError, match="stsb_neighbours: neighbours require a corpus, which the scorer cosine lacks"):
        make_plan(parsed("simcse", "--evaluate", "stsb_neighbours"))


@pytest.mark.slow
def test_a_run_with_a_users_own_inputs_is_trained_on_two_seeds_scored_and_logged(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CSE_DATA", raising=False)  # no data but the user's
    own, mlruns = write_pairs(tmp_path / "pairs.tsv"), tmp_path / "mlruns"
    arguments = ["rankcse", "--corpus", str(texts), "--dev", str(own), "--evaluate", str(own), "--seeds", "1", "2"]
    settings = ["--teachers", "wiki-mini:0.5", "wiki-tiny@whitened:0.5", "--batch-size", "50", "--eval-steps", "2"]
    run_command.main([*arguments, *settings, "--mlruns", str(mlruns)])
    said = capsys.readouterr().out
    every = [json.loads(path.read_text()) for path in mlruns.glob("own/*/result.json")]
    results = [result for result in every if result["method"] != "none"]
    assert sorted(result["seed"] for result in results) == [1, 2]
    (rule,) = {select for result in results for select in result["kept"]} - {"last"}
    scores = {
        result["seed"]: 100 * cell["score"]
        for result in results
        for cell in result["cells"]
        if (cell["select"], cell["metric"]) == (rule, "spearman.all")
    }
    # The checkpoint was chosen on the pairs that it is scored on here, so both numbers are equal.
    assert {result["seed"]: 100 * result["kept"][rule]["score"] for result in results} == pytest.approx(scores)
    shown = [*(scores[seed] for seed in (1, 2)), statistics.mean(scores.values()), statistics.stdev(scores.values())]
    name = own_pairs.add(own)
    plain = suite.evaluate(Encoder.from_pretrained("wiki-tiny", pooling="cls"), Cosine(), [name])
    untrained = 100 * plain[name].metrics["spearman.all"]
    assert re.search(r"\s*│\s*".join([rule, *(f"{value:.2f}" for value in (untrained, *shown))]), said)
    assert f"{rule} selects the checkpoint by pairs that are scored too, in {rule} (60 of 60 pairs)" in said
    for result in results:
        assert f"checkpoint: {mlruns / 'own' / result['key'] / rule}" in said
        assert (mlruns / "own" / result["key"] / rule / "model.safetensors").is_file()
    assert "mlflow ui" in said


def encoder(folder: Path, layers: int, width: int) -> str:
    """Save a BERT of a size, with random weights and wiki-tiny's tokenizer."""
    config = json.loads((ASSETS / "wiki-tiny" / "config.json").read_text())
    size = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": 2, "intermediate_size": 2}
    BertModel(BertConfig(**(config | size))).save_pretrained(folder)
    for pattern in ("*tok*", "vocab*"):
        for path in (ASSETS / "wiki-tiny").glob(pattern):
            shutil.copy(path, folder)
    return str(folder)


@pytest.mark.parametrize(
    ("layers", "width", "like"),
    [
        (2, 128, ("small", "bert-base-uncased")),
        (4, 128, ("small", "bert-base-uncased")),
        (6, 768, ("paper", "bert-base-uncased")),
        (12, 384, ("paper", "bert-base-uncased")),
        (12, 768, ("paper", "bert-base-uncased")),
        (24, 1024, ("paper", "bert-large-uncased")),
        (48, 1600, ("paper", "bert-large-uncased")),
    ],
)
def test_an_encoder_has_the_settings_of_the_nearest_one(layers: int, width: int, like: tuple[str, str]) -> None:
    name, backbone = like
    mine = Pretrained("mine", "0" * 64)
    scale, place = scale_for(mine, layers, width, SCALES["small"].corpus)
    assert place == backbone
    expected = simcse_run(SCALES[name], backbone)
    found = simcse_run(scale, place)
    assert expected
    assert found
    same = ("learning_rate", "dropout", "batch_size", "warmup", "epochs")
    assert [getattr(found, field) for field in same] == [getattr(expected, field) for field in same]
    assert (found.backbone, found.corpus, found.precision) == (mine, SCALES["small"].corpus, "fp32")
    assert found.eval_steps == 32  # eight dev scores on this corpus
    long = simcse_run(scale_for(mine, 12, 768, SCALES["paper"].corpus)[0], "bert-base-uncased")
    assert long
    assert long.eval_steps == 125  # as published


@pytest.mark.slow
def test_a_users_deep_encoder_has_the_settings_of_its_size_unless_others_are_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = encoder(tmp_path / "deep", 12, 192)
    run = built("rankcse", "--backbone", deep)
    published = rankcse.PUBLISHED["list_net", "bert-base-uncased"]
    assert (run.learning_rate, run.dropout) == (published.learning_rate, published.dropout) == (3e-5, 0.1)
    assert {nested.learning_rate for nested in run.nested()} == {3e-5}  # SimCSE's, of the same encoder
    say_settings(run, parsed("rankcse", "--backbone", deep))
    line = "settings of BERT-base: learning rate 3e-05, dropout 0.1, because the encoder has 12 layers of 192"
    assert line in capsys.readouterr().out
    assert built("simcse", "--backbone", deep, "--learning-rate", "1e-4").learning_rate == 1e-4
    words = ("simcse", "--backbone", deep, "--scale", "small")
    small = built(*words)
    assert (small.learning_rate, small.dropout) == (3e-4, 0.3)
    say_settings(small, parsed(*words))
    say_settings(built("simcse"), parsed("simcse"))
    assert capsys.readouterr().out == ""
    words = ("simcse", "--backbone", encoder(tmp_path / "flat", 2, 64))
    flat = built(*words)
    assert flat.learning_rate == 3e-4
    say_settings(flat, parsed(*words))
    assert "settings of scale small: learning rate 0.0003" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["rankcse", "rankencoder", "dclr", "l2pcsr", "mlm", "consert", "ct", "simcse"])
def test_a_run_cut_short_needs_only_runs_that_are_cut_short(method: str) -> None:
    run = built(method, "--max-steps", "20", "--corpus-lines", "512")
    for each in (run, *run.required_checkpoints()):
        assert each.max_steps == 20
        assert each.corpus.lines <= 512
        assert getattr(each.method, "corpus_size", 0) <= 512
    inner = built("mlm", "--inner", "rankencoder", "--corpus-lines", "512").method.inner  # ty: ignore[missing-attribute]
    assert inner.corpus_size == 512
    assert built("simcse", "--corpus-lines", "512").corpus.name == built("simcse").corpus.name
    taught = built("rankcse", "--max-steps", "20", "--teachers", "simcse", "wiki-mini")
    assert [nested.max_steps for nested in taught.nested()] == [20]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("rankencoder",),
            "--corpus-size: rankencoder ranks 10,000 sentences of the corpus, but {} has 200; "
            "expected --corpus-size 200 or less, or a larger corpus",
        ),
        (
            ("mlm", "--inner", "rankencoder"),
            "--corpus-size: mlm ranks 10,000 sentences of the corpus, but {} has 200; expected --corpus-lines 200 or",
        ),
        (("simcse", "--temperature", "inf"), "temperature must be finite, got inf"),
        (("rankencoder", "--corpus-size", "201"), "--corpus-size: rankencoder ranks 201 sentences"),
        (("rankencoder", "--corpus-size", "150", "--corpus-lines", "100"), "--corpus-size: rankencoder ranks 150"),
        (
            ("simcse", "--batch-size", "201"),
            "simcse takes 201 sentences at a time (its batch size), but the corpus has",
        ),
        (
            ("rankcse", "--corpus-lines", "60", "--batch-size", "50"),
            "simcse, which it needs, takes 64 sentences at a time (its batch size), but the corpus has 60",
        ),
        (
            ("rankcse", "--rank", "listnet"),
            "--rank must be one of list_net, list_mle, mse, got 'listnet' (did you mean l",
        ),
        (("simcse", "--pooling", "maen"), "got 'maen' (did you mean mean?)"),
        (("simcse", "--optimizer", "adam"), "got 'adam' (did you mean adamw?)"),
        (("compcse", "--compose", "avrage"), "got 'avrage' (did you mean average?)"),
        (("rankencoder", "--base", "simcs"), "unknown method 'simcs' (did you mean simcse"),
        (("mlm", "--inner", "rankcs"), "unknown method 'rankcs' (did you mean rankcse"),
        (("dclr", "--complement", "simcs"), "unknown method 'simcs' (did you mean simcse"),
    ],
)
def test_impossible_settings_are_refused_with_their_option_and_a_likely_value(
    texts: Path, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message.format(texts))):
        built(*arguments, "--corpus", str(texts))


def test_a_ranking_of_fewer_sentences_is_possible_by_option(texts: Path) -> None:
    assert built("rankencoder", "--corpus", str(texts), "--corpus-size", "150").method.corpus_size == 150  # ty: ignore[missing-attribute]


def test_an_untrained_encoder_is_scored_with_the_pooling_of_its_training() -> None:
    plan = make_plan(parsed("simcse", "--evaluate", "synthetic"))

    def scorer(*arguments: str) -> str:
        scoring = untrained_scoring(built(*arguments), plan)
        return str(scoring.scorer) if scoring else "none"

    assert scorer("simcse", "--pooling", "mean") == "cosine mean"
    prompt = built("promptbert")
    assert scorer("promptbert") == f"cosine mask {prompt.template}"
    assert scorer("isbert") == "none"  # its pooling has weights that are not there before training


def test_a_model_without_a_size_is_refused(tmp_path: Path) -> None:
    shutil.copytree(ASSETS / "wiki-tiny", tmp_path, dirs_exist_ok=True)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "clip"}))
    with pytest.raises(ValueError, match="has no attribute 'num_hidden_layers'; expected an encoder of texts"):
        encoder_size(str(tmp_path))


def test_help_shows_choices_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tyro.cli(run_command.options_for("rankcse"), args=["--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--rank {list_net,list_mle,mse} (default: list_net)" in said
    assert "--learning-rate FLOAT (default: 0.0003)" in said
    assert "--scale {quickstart,small,minilm,small-1m,paper}" in said
