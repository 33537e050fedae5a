"""RankCSE's loss in a training loop of your own.

    python examples/own_loop.py --steps 40

`method.loss` is what this project trains with: it makes its own passes through the student, adds the terms that have a
weight and returns them one by one. The loop, the optimiser and the teacher are yours.
"""

import argparse

import torch

from cse_core import Encoder, Pretrained, RankCSE, Teacher, cosine_matrix, make_batch
from cse_core.data.synthetic import sentences


def main(steps: int, batch_size: int = 32) -> list[float]:
    """Train a student to rank as its teacher does, and return the loss of each step."""
    torch.manual_seed(0)  # dropout
    texts = sentences(steps * batch_size)  # put your own list here
    teacher = Encoder.from_pretrained("wiki-mini", pooling="mean")
    student = Encoder.from_pretrained("wiki-tiny", dropout=0.3).train()  # contrast is between two dropout masks

    # Here the teacher only says how many there are and their shares: the loop embeds with it.
    method = RankCSE(teachers=(Teacher(Pretrained("wiki-mini")),), teacher_temperature=0.025, student_temperature=0.05)
    modules = method.modules(student, torch.Generator().manual_seed(0))  # the tanh head, left out afterwards
    optimizer = torch.optim.AdamW([*student.parameters(), *modules.parameters()], lr=3e-4)
    losses = []
    for step in range(steps):
        some = texts[step * batch_size : (step + 1) * batch_size]
        batch = make_batch(method, some, student, seed=step)
        loss = method.loss(student, batch, modules, {"teacher_0": teacher.encode(some)})
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
        losses.append(float(loss.total.detach()))
        if step % 10 == 0:
            print(step, {name: round(float(term.detach()), 3) for name, term in loss.terms.items()})

    vectors = student.encode(["A man plays a guitar.", "Someone makes music.", "The river is cold."])
    print(cosine_matrix(vectors, vectors))
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    main(parser.parse_args().steps)
