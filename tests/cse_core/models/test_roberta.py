"""A RoBERTa made here: positions that start at 2, byte-level tokens. It trains and is scored like a BERT."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaModel

from cse_core.data import synthetic
from cse_core.methods.simcse import SimCSE
from cse_core.models.encoder import Encoder
from cse_core.run import Corpus, Pretrained, Run
from cse_core.training.train import train


@pytest.fixture(scope="module")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("roberta")
    special: dict[str, Any] = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    special["mask_token"] = "<mask>"
    raw: Any = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=list(special.values()), initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    raw.train_from_iterator(synthetic.sentences(300), trainer)
    raw.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    PreTrainedTokenizerFast(tokenizer_object=raw, cls_token="<s>", sep_token="</s>", **special).save_pretrained(folder)
    torch.manual_seed(0)
    size: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    config = RobertaConfig(vocab_size=600, max_position_embeddings=42, type_vocab_size=1, pad_token_id=1, **size)
    RobertaModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


def test_texts_are_cut_where_the_position_table_ends(roberta: Path) -> None:
    encoder = Encoder.from_pretrained(roberta)
    assert encoder.max_length == 40  # two of the 42 positions are never used
    assert encoder.pad_id == 1
    assert encoder.encode(["word " * 500, "short"]).isfinite().all()


def test_padding_does_not_move_a_sentence(roberta: Path) -> None:
    encoder = Encoder.from_pretrained(roberta)
    alone = encoder.encode(["The dog runs."])
    beside = encoder.encode(["The dog runs.", "A much longer sentence that stands in the same batch as the dog."])[:1]
    assert torch.allclose(alone, beside, atol=1e-6)


def test_it_trains(roberta: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    run = Run(
        method=SimCSE(),
        backbone=Pretrained(str(roberta)),
        corpus=Corpus("synthetic", 256),
        batch_size=32,
        learning_rate=3e-3,
        epochs=2,
        eval_steps=8,
    )
    history = train(run, tmp_path, keep=("synthetic_dev", "last"))
    losses = [loss for _, loss in history.curves["loss"]]
    assert sum(losses[-4:]) < sum(losses[:4])
    assert Encoder.from_pretrained(tmp_path / run.key / "last").encode(["a"]).shape == (1, 32)
