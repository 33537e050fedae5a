"""Encoders that several rooms need."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from cse_core.data import synthetic


@pytest.fixture(scope="session")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small RoBERTa: positions that start at 2, byte-level tokens."""
    from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaModel  # takes seconds

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
