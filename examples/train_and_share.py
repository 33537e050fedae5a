"""Train on your own sentences, score the encoder, export it with a model card, open it in other libraries.

    python examples/train_and_share.py my_sentences.txt my-encoder
    python examples/train_and_share.py my_sentences.txt my-encoder --data FOLDER

With --data (see docs/data.md) it is also scored on STS-B and TREC, as an encoder of ours and as sentence-transformers
opens it: the numbers are the same.
"""

import argparse
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from cse_core import SimCSE, evaluate, export, train

TEXTS = ["A man plays a guitar.", "Someone makes music.", "The river is cold."]


def main(sentences: Path, folder: Path, data: Path | None, store: Path) -> None:
    """Train, score, export and open again."""
    trained = train(SimCSE(), sentences, "wiki-tiny", store=store, learning_rate=3e-4, dropout=0.3)
    losses = trained.history.curves["loss"]
    print(f"{len(losses)} steps, loss {losses[0][1]:.2f} to {losses[-1][1]:.2f}: {trained.folder}")

    scores = evaluate(trained.encoder, ["stsb", "trec"] if data else ["synthetic"], data=data)
    print(scores)
    export(trained.encoder, folder, run=trained.run, scores=scores)

    model = SentenceTransformer(str(folder), device="cpu")
    print("sentence-transformers:", model.similarity(model.encode(TEXTS), model.encode(TEXTS)))
    if data:
        print("scored as sentence-transformers opens it:", evaluate(model, ["stsb", "trec"], data=data))

    tokenizer, bert = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    tokens = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")  # ty: ignore[not-callable]
    with torch.no_grad():
        vectors = bert(**tokens).last_hidden_state[:, 0]  # SimCSE pools by [CLS]
    print("transformers:", torch.nn.functional.cosine_similarity(vectors[:1], vectors))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sentences", type=Path, help="a text file with one sentence a line")
    parser.add_argument("folder", type=Path, help="where the encoder is exported to")
    parser.add_argument("--data", type=Path, help="the folder with SentEval's sets")
    parser.add_argument("--store", type=Path, default=Path("runs"), help="where the run is kept, and found again")
    options = parser.parse_args()
    main(options.sentences, options.folder, options.data, options.store)
