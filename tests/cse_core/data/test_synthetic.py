"""The synthetic grammar: what makes its scores usable, checked from outside."""

import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cse_core.data import synthetic

ROOT = Path(__file__).parents[3]
SEEDS = st.integers(0, 2**32)
DIGEST = (
    "import hashlib; from cse_core.data.synthetic import pairs, sentences; "
    "print(hashlib.sha256(repr((sentences(300), pairs('dev'))).encode()).hexdigest())"
)


def test_triples_are_a_sentence_its_paraphrase_and_a_negative_with_its_words() -> None:
    found = synthetic.triples(600)
    assert found[:50] == synthetic.triples(50)
    assert synthetic.triples(20, seed=1) != found[:20]
    held_out = {text for split in synthetic.SIZES for _, a, b, _ in pairs(split) for text in (a, b)}
    assert not held_out & {text for triple in found for text in triple}

    def shared(a: str, b: str) -> float:
        first, second = (set(re.findall("[a-z]+", text.lower())) for text in (a, b))
        return len(first & second) / len(first | second)

    assert all(sentence not in (positive, negative) for sentence, positive, negative in found)
    positives, negatives = ([shared(row[0], row[k]) for row in found] for k in (1, 2))
    assert sum(negatives) > sum(positives)  # by words the negative is the nearer one


@cache
def train() -> list[str]:
    return synthetic.sentences(16_384)


@cache
def pairs(split: str) -> list[tuple[str, str, str, float]]:
    return synthetic.pairs(split)


def digest(hash_seed: str) -> str:
    """The digest of sentences and pairs in a fresh process with this hash seed."""
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", DIGEST], env=env, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.slow
def test_the_hash_seed_of_the_process_changes_nothing():
    assert len({digest("1"), digest("2")}) == 1


@pytest.mark.parametrize("k", [0, 1, 500])
@pytest.mark.slow
def test_sentences_are_prefix_stable(k):
    assert synthetic.sentences(k) == train()[:k]


def test_another_seed_gives_other_sentences():
    assert not set(synthetic.sentences(500, 1)) & set(synthetic.sentences(500, 2))


@pytest.mark.slow
def test_no_sentence_stands_in_two_splits():
    trained = {*train(), *synthetic.sentences(2000, 1)}
    dev, test = ({text for row in pairs(split) for text in row[1:3]} for split in ("dev", "test"))
    assert (trained & dev, trained & test, dev & test) == (set(), set(), set())


@pytest.mark.slow
def test_few_training_sentences_repeat():
    assert len(set(train())) > 0.98 * len(train())


@pytest.mark.slow
def test_sentences_have_5_to_25_words_and_read_as_sentences():
    texts = train() + [text for row in pairs("test") for text in row[1:3]]
    lengths = [len(text.split()) for text in texts]
    assert min(lengths) >= 5
    assert max(lengths) <= 25
    odd = [text for text in texts if not re.fullmatch(r"[A-Z][a-z]*(,? [a-z]+)+\.", text)]
    assert odd == []
    assert [text for text in texts if re.search(r"\b(a [aeiou]|an [^aeiou])", text.lower())] == []


def test_no_form_means_two_atoms_of_a_slot():
    for slot, atoms in synthetic.FORMS.items():
        counts = Counter(form for forms in atoms.values() for form in forms)
        assert [form for form, count in counts.items() if count > 1] == [], slot
        assert min(len(forms) for forms in atoms.values()) >= 2, slot


@given(SEEDS, SEEDS)
def test_similarity_is_symmetric_and_in_range(one, two):
    first, second = synthetic.draw_meaning(Random(one)), synthetic.draw_meaning(Random(two))
    score = synthetic.similarity(first, second)
    assert score == synthetic.similarity(second, first)
    assert 0 <= score <= 5
    assert (score == 5) == (first == second)


@given(SEEDS, st.permutations(list(synthetic.WEIGHTS)), st.lists(st.booleans(), min_size=6, max_size=6))
def test_each_further_edit_lowers_the_score(seed, slots, far):
    rng = Random(seed)
    meaning = other = synthetic.draw_meaning(rng)
    scores = [synthetic.similarity(meaning, other)]
    for slot, is_far in zip(slots, far, strict=True):
        other = synthetic.edit(other, slot, rng=rng, far=is_far)
        scores.append(synthetic.similarity(meaning, other))
    # An edit of a slot nothing agrees in can only add to the weights, which leaves a score of 0 at 0.
    assert all(after < before or after == before == 0 for before, after in pairwise(scores))
    assert scores[0] == 5


@settings(max_examples=50)
@given(SEEDS, st.sampled_from(list(synthetic.WEIGHTS)))
def test_a_far_edit_costs_more_than_a_near_one(seed, slot):
    meaning = synthetic.draw_meaning(Random(seed))._replace(place="in the city", time="in winter", manner="slowly")
    near, far = (synthetic.edit(meaning, slot, rng=Random(seed), far=far) for far in (False, True))
    assert synthetic.similarity(meaning, far) < synthetic.similarity(meaning, near) < 5


def test_a_score_is_as_worked_out_by_hand():
    weights = synthetic.WEIGHTS
    first = synthetic.Meaning("man", "bought", "dog", place="in the city")
    second = synthetic.Meaning("woman", "bought", "car", time="in winter")
    total = sum(weights[slot] for slot in ("actor", "action", "object", "place", "time"))
    expected = 5 * (synthetic.NEAR * weights["actor"] + weights["action"]) / total
    assert synthetic.similarity(first, second) == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize(("split", "size"), [("dev", 500), ("test", 1000)])
def test_each_part_of_a_split_spreads_its_scores(split, size):
    rows = pairs(split)
    assert len(rows) == size
    parts = defaultdict(list)
    for part, first, second, score in rows:
        assert first != second or score == 5
        parts[part].append(score)
    assert set(parts) == set(synthetic.PARTS)
    for part, scores in parts.items():
        assert len(set(scores)) >= 20, part
        assert max(scores) - min(scores) > 2, part
    bins = Counter(min(4, int(row[3])) for row in rows)
    assert all(bins[level] >= 0.05 * size for level in range(5))


def test_paraphrases_of_one_meaning_score_5_and_share_few_words():
    same = [row for row in pairs("test") if row[0] == "paraphrases" and row[3] == 5]
    shared = [len(set(a.split()) & set(b.split())) / len(set(a.split()) | set(b.split())) for _, a, b, _ in same]
    assert len(same) >= 20
    assert sum(shared) / len(shared) < 0.5


@pytest.mark.slow
def test_pairs_are_the_same_on_every_call():
    assert synthetic.pairs("dev") == pairs("dev")


def test_an_unknown_split_is_refused_with_the_choices():
    with pytest.raises(ValueError, match=r"'train'.*dev, test"):
        synthetic.pairs("train")
