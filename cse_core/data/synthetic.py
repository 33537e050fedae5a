"""Synthetic sentences of known similarity, on which `quickstart` trains and scores without data or network.

A meaning is an actor, an action, an object and, optionally, a place, a time and a manner. Each of these slots holds an
atom; atoms lie in categories and have several surface forms each ("bought", "purchased", "acquired"). A sentence is a
meaning put into a frame (active in three tenses, or passive; place or time fronted or not) with some determiners. The
similarity of two meanings, in [0, 5], is

    5 * sum(w[s] * m[s]) / sum(w[s])   over the slots s that at least one of the two fills,

with m = 1 for the same atom, `NEAR` for two atoms of one category, 0 otherwise, and the weights w in `WEIGHTS`. The
wording does not count: a paraphrase scores 5, while another actor costs up to half of the score.

Scores on this grammar can show that training, selection, scoring, tracking and tables work end to end, and that
training changes similarity in the right direction. They cannot show anything about English, about the papers' claims
or about BERT. The weights, the frames and the mix of pairs were chosen by looking at the scores of these very test
pairs: the bundled backbone starts between chance and solved, and the first steps of a plain contrastive run improve it.
So an improvement here is no evidence for a method, and methods must not be ranked by it. The gain comes within about
100 steps of 64 sentences and is mostly gone by 256: checkpoints need selection on dev.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple
from zlib import crc32

# What contrastive training changes most has most weight: the actor, next to [CLS], then the object, with many atoms.
WEIGHTS = {"actor": 3.0, "action": 1.0, "object": 2.0, "place": 0.75, "time": 1.0, "manner": 0.5}
NEAR = 0.2
TRIPLES = "synthetic_triples"  # the name of the corpus with the columns text, positive and negative
OPTIONAL = ("place", "time", "manner")
MOST_LINES = 1_000_000
SIZES = {"dev": 500, "test": 1000}

# Per slot and category: atoms between commas, the forms of an atom between bars. The words are common ones in an
# encyclopaedia, because the bundled vocabulary was learnt from one. Verbs are past tense, "/" before the participle.
_LEXICON = {
    "actor": {
        "family": "man|gentleman|fellow, woman|lady, boy|lad, girl|young woman, child|kid, mother|mom, father|dad",
        "learned": "doctor|physician, teacher|professor|lecturer, scientist|researcher, lawyer|attorney, student|pupil",
        "armed": "soldier|trooper|warrior, officer|commander, sailor|seaman, policeman|police officer",
        "noble": "king|monarch, queen|princess, lord|nobleman, priest|minister|clergyman, bishop|church leader",
        "artist": "writer|author|novelist, singer|vocalist, artist|painter, musician|band member, actor|performer",
        "trade": "farmer|peasant, merchant|dealer|businessman, engineer|machine builder, servant|house worker",
    },
    "action": {
        "trade": "bought|purchased|acquired, sold|traded away, took/taken|seized|captured, gathered|collected",
        "look": "watched|viewed|observed, drew/drawn|painted|sketched, described|wrote about/written about, "
        "studied|examined|investigated, found|discovered|located",
        "carry": "carried|moved|transported, hid/hidden|put away, lost|left behind, sent away|shipped off, "
        "protected|guarded",
        "harm": "destroyed|demolished|wrecked, damaged|broke/broken, burned|set fire to, "
        "threw away/thrown away|abandoned",
        "make": "built|constructed, designed|planned, repaired|fixed|restored, decorated|adorned",
        "kitchen": "prepared|made ready, ate/eaten|consumed, mixed|blended, served|handed out",
        "music": "played|performed on, tuned|adjusted, practiced on|rehearsed with",
        "text": "read|looked through, translated|interpreted, published|printed|issued, edited|revised|corrected",
        "beast": "fed|looked after, hunted|pursued|chased, killed|slaughtered, trained|taught",
        "drive": "drove/driven|steered, stopped|brought to a stop, tested|took/taken for a test",
    },
    "object": {
        "animal": "dog|hound, horse|pony, cat|kitten, cow|ox, sheep|lamb, wolf|wild dog, bird|hawk, snake|serpent",
        "vehicle": "car|automobile, truck|lorry, ship|vessel, boat|ferry, train|locomotive, "
        "airplane|aircraft, bus|coach",
        "food": "piece of meat|cut of beef, loaf|piece of bread, fish|salmon, bowl of soup|pot of broth, "
        "apple|piece of fruit, cake|pie, sack of rice|bag of grain, meal|dish",
        "instrument": "guitar|bass, violin|fiddle, piano|keyboard, drum|set of drums, "
        "flute|pipe, trumpet|horn, organ|church organ",
        "text": "book|volume, letter|message, newspaper|journal, poem|verse, map|chart, novel|story, contract|treaty",
        "clothes": "coat|jacket, dress|gown, hat|cap, shirt|blouse, crown|royal ring, mask|face cover, suit|costume",
        "building": "house|home, church|chapel, castle|fortress, bridge|crossing, "
        "wall|fence, tower|high tower, temple|shrine",
        "tool": "gun|rifle, sword|blade, hammer|axe, lamp|light, clock|watch, camera|telescope, computer|machine",
        "furniture": "box|chest, table|desk, chair|seat, bed|sleeping place, mirror|glass, door|gate, statue|sculpture",
    },
    "place": {
        "nature": "near the river|by the stream, in the forest|among the trees, on the hill|on the mountain, "
        "on the beach|by the sea|on the coast",
        "urban": "in the city|in town, on the street|by the road, at the market|in the shop|at the store, "
        "at the station|on the platform",
        "indoors": "in the kitchen|in the cooking room, at school|in the college, in the hospital|at the clinic, "
        "in the office|at work",
    },
    "time": {
        "day": "in the morning|at dawn, at night|after dark, in the afternoon|after twelve, in the evening|at sunset",
        "year": "in winter|in the cold season, in summer|in the hot months, in spring|when the flowers opened, "
        "in autumn|during the fall",
        "event": "during the war|while the fighting went on, during the festival|at the public feast, "
        "after the storm|once the wind had dropped, before the election|ahead of the vote",
    },
    "manner": {
        "pace": "slowly|at a slow pace|without speed, quickly|rapidly|at great speed, suddenly|all at once",
        "care": "carefully|with great care, poorly|badly|without skill, easily|with little effort",
        "mood": "happily|with joy|with great pleasure, angrily|in anger, proudly|with pride, secretly|in secret",
    },
}

# The objects an action may take; an action category that is not listed takes any object.
_TAKES = {
    "make": ("vehicle", "instrument", "clothes", "building", "tool", "furniture"),
    "kitchen": ("food",),
    "music": ("instrument",),
    "text": ("text",),
    "beast": ("animal",),
    "drive": ("vehicle",),
}

# "{a}" actor, "{v}" past tense, "{p}" participle, "{o}" object, "{x}" the adjuncts that are not fronted, "{f}" the
# fronted one. Tense and determiners do not change the meaning. The passive is rare, as it is in running text.
_ACTIVE = ("{f}{a} {v} {o}{x}", "{f}{a} has {p} {o}{x}", "{f}{a} had {p} {o}{x}")
_FRAMES = _ACTIVE * 3 + ("{f}{o} was {p} by {a}{x}",)
_DETERMINERS = ("a", "the", "this", "one")


class Meaning(NamedTuple):
    """An atom per slot, named by its first form; None where an optional slot is empty."""

    actor: str
    action: str
    object: str
    place: str | None = None
    time: str | None = None
    manner: str | None = None


class _Style(NamedTuple):
    """How a meaning is worded: the form of each slot's atom, the frame, the fronted slot, the determiners."""

    forms: tuple[int, ...]
    frame: int
    front: str | None
    determiners: tuple[str, str]


def _parse_atoms(atoms: str) -> dict[str, list[str]]:
    """Return the atoms of one category: first form to all forms."""
    return {forms[0].split("/")[0]: forms for forms in (atom.split("|") for atom in atoms.split(", "))}


_CATEGORIES = {slot: {name: _parse_atoms(text) for name, text in table.items()} for slot, table in _LEXICON.items()}
FORMS = {slot: {a: f for atoms in table.values() for a, f in atoms.items()} for slot, table in _CATEGORIES.items()}
_CATEGORY_OF = {slot: {a: c for c, atoms in table.items() for a in atoms} for slot, table in _CATEGORIES.items()}
_MEMBERS = {slot: {c: tuple(atoms) for c, atoms in table.items()} for slot, table in _CATEGORIES.items()}
_KINDS = tuple(_MEMBERS["object"])
_ROWS = {slot: tuple(table.values()) for slot, table in _MEMBERS.items()}
_SUITED = {
    kind: tuple(action for action in _MEMBERS["action"] if kind in _TAKES.get(action, _MEMBERS["object"]))
    for kind in _MEMBERS["object"]
}


def similarity(first: Meaning, second: Meaning) -> float:
    """Return the similarity of two meanings in [0, 5] by the module's formula; exactly 5 for equal meanings."""
    matched = total = 0.0
    for slot, weight in WEIGHTS.items():
        a, b = getattr(first, slot), getattr(second, slot)
        if a is None and b is None:
            continue
        total += weight
        if a == b:
            matched += weight
        elif a is not None and b is not None and _CATEGORY_OF[slot][a] == _CATEGORY_OF[slot][b]:
            matched += weight * NEAR
    return 5.0 * matched / total


def draw_meaning(rng: Random) -> Meaning:
    """Draw a random meaning whose action suits its object."""
    kind = rng.choice(_KINDS)
    members = _MEMBERS["action"][rng.choice(_SUITED[kind])]
    optional = [_any_atom(slot, rng) if rng.random() < 0.6 else None for slot in OPTIONAL]
    return Meaning(_any_atom("actor", rng), rng.choice(members), rng.choice(_MEMBERS["object"][kind]), *optional)


def _any_atom(slot: str, rng: Random) -> str:
    """Draw a random atom of the slot; all categories are equally likely."""
    return rng.choice(rng.choice(_ROWS[slot]))


def edit(meaning: Meaning, slot: str, *, rng: Random, far: bool) -> Meaning:
    """Change one slot of a meaning: within its category (near), to another or none (far); fill an empty one."""
    old = getattr(meaning, slot)
    if old is None:
        return meaning._replace(**{slot: _any_atom(slot, rng)})
    home = _CATEGORY_OF[slot][old]
    if not far:
        return meaning._replace(**{slot: rng.choice([atom for atom in _MEMBERS[slot][home] if atom != old])})
    if slot in OPTIONAL and rng.random() < 0.3:
        return meaning._replace(**{slot: None})  # ty: ignore[invalid-argument-type]
    others = [name for name in _MEMBERS[slot] if name != home]
    # If an action takes only one kind of object, no other category suits it. Any is used, even if that reads oddly.
    suited = [name for name in others if _suits(meaning, slot, name)] or others
    return meaning._replace(**{slot: rng.choice(_MEMBERS[slot][rng.choice(suited)])})


def _suits(meaning: Meaning, slot: str, category: str) -> bool:
    """Whether an atom of the category suits the meaning's action or object if it fills the slot."""
    if slot == "action":
        return category in _SUITED[_CATEGORY_OF["object"][meaning.object]]
    return slot != "object" or _CATEGORY_OF["action"][meaning.action] in _SUITED[category]


def _draw_style(rng: Random) -> _Style:
    """Draw a random wording."""
    forms = tuple(rng.choices(range(6), k=len(WEIGHTS)))  # 6 = 2 * 3, so an atom's forms are equally likely
    front = rng.choice((None, None, "place", "time"))
    return _Style(forms, rng.randrange(len(_FRAMES)), front, (rng.choice(_DETERMINERS), rng.choice(_DETERMINERS)))


def _restyle(style: _Style, rng: Random) -> _Style:
    """Redraw the frame and the determiners; the forms and the fronted slot stay."""
    return _draw_style(rng)._replace(forms=style.forms, front=style.front)


def _render(meaning: Meaning, style: _Style) -> str:
    """Return the sentence that expresses the meaning in the wording."""
    words = {}
    for slot, atom, form in zip(WEIGHTS, meaning, style.forms, strict=True):
        if atom is not None:
            forms = FORMS[slot][atom]
            words[slot] = forms[form % len(forms)]
    past, _, participle = words["action"].partition("/")
    front = words.pop(style.front, None) if style.front else None
    text = _FRAMES[style.frame].format(
        f=f"{front}, " if front else "",
        a=_noun(words["actor"], style.determiners[0]),
        v=past,
        p=participle or past,
        o=_noun(words["object"], style.determiners[1]),
        x="".join(f" {words[slot]}" for slot in ("manner", "place", "time") if slot in words),
    )
    return f"{text[0].upper()}{text[1:]}."


def _noun(noun: str, determiner: str) -> str:
    """Return the noun with its determiner."""
    return f"an {noun}" if determiner == "a" and noun[0] in "aeiou" else f"{determiner} {noun}"


def _split_of(sentence: str) -> str:
    """Return the only split that may hold the sentence: a hash of the text decides, so no two splits share one."""
    return ("dev", "test", "train")[crc32(sentence.encode()) % 3]


def sentences(n: int, seed: int = 0) -> list[str]:
    """Return the first n training sentences of a seed, the same for any larger n; none is in the other splits."""
    rng = Random(f"synthetic sentences {seed}")
    return [_train_sentence(rng) for _ in range(n)]


def _train_sentence(rng: Random) -> str:
    """Draw a random meaning, and reword it until its sentence falls in the training split."""
    meaning = draw_meaning(rng)
    while _split_of(text := _render(meaning, _draw_style(rng))) != "train":
        pass
    return text


def triples(n: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """Return the first n training examples of a seed: a sentence, a paraphrase of it, and a hard negative.

    The paraphrase has the same meaning in another wording. The hard negative has the sentence's words except in one or
    two slots, so by its words it would be nearer than the paraphrase. All are in the training split.
    """
    rng = Random(f"synthetic triples {seed}")
    return [_train_triple(rng) for _ in range(n)]


def _train_triple(rng: Random) -> tuple[str, str, str]:
    while True:
        meaning = other = draw_meaning(rng)
        for slot in rng.sample(("actor", "action", "object"), rng.choice((1, 2))):
            other = edit(other, slot, rng=rng, far=True)
        style = _draw_style(rng)
        styled = ((meaning, style), (meaning, _draw_style(rng)), (other, _restyle(style, rng)))
        first, second, third = (_render(each, worded) for each, worded in styled)
        if len({first, second}) == 2 and {_split_of(text) for text in (first, second, third)} == {"train"}:
            return first, second, third


def _draw_edits(rng: Random, counts: tuple[int, ...]) -> tuple[Meaning, Meaning]:
    """Draw a meaning and edit some of its slots, near or far; their number is drawn from `counts`."""
    meaning = other = draw_meaning(rng)
    for slot in rng.sample(tuple(WEIGHTS), rng.choice(counts)):
        other = edit(other, slot, rng=rng, far=rng.random() < 0.6)
    return meaning, other


def _draw_unrelated(rng: Random) -> tuple[Meaning, Meaning]:
    """Draw two meanings independently; the second takes up to two slots from the first."""
    meaning, other = draw_meaning(rng), draw_meaning(rng)
    shared = rng.sample(tuple(WEIGHTS), rng.choice((0, 0, 1, 2)))
    return meaning, other._replace(**{slot: getattr(meaning, slot) for slot in shared})


# By part: how to draw two meanings, and how to get the second wording from the first. Edits keep the forms, so that
# words overlap where meanings differ; paraphrases draw new ones, so that words differ where meanings agree.
PARTS: dict[str, tuple[Callable[[Random], tuple[Meaning, Meaning]], Callable[[_Style, Random], _Style]]] = {
    "paraphrases": (lambda rng: _draw_edits(rng, (0, 0, 1, 2, 3, 4)), lambda style, rng: _draw_style(rng)),
    "edits": (lambda rng: _draw_edits(rng, (1, 1, 2, 3, 4)), _restyle),
    "unrelated": (_draw_unrelated, lambda style, rng: _draw_style(rng)),
}


def _pair(part: str, split: str, rng: Random) -> tuple[str, str, float]:
    """Draw a pair of the part until both of its sentences fall in the split."""
    draw, reword = PARTS[part]
    while True:
        first, second = draw(rng)
        style = _draw_style(rng)
        text = _render(first, style)
        if _split_of(text) != split:
            continue
        other = _render(second, reword(style, rng))
        if _split_of(other) == split:
            return text, other, similarity(first, second)


def pairs(split: str) -> list[tuple[str, str, str, float]]:
    """Return (part, sentence1, sentence2, score) of "dev" or "test"; the scores are in [0, 5]."""
    if split not in SIZES:
        raise ValueError(f"unknown split {split!r}: choose one of {', '.join(SIZES)}")
    order = [tuple(PARTS)[number % len(PARTS)] for number in range(SIZES[split])]
    return [(part, *_pair(part, split, Random(f"synthetic pairs {split} {i}"))) for i, part in enumerate(order)]
