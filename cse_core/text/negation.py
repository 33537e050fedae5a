"""Soft negatives by rule-based negation (SNCSE, Wang and Dou, 2022): a sentence and its negation share most words.

The paper's rule, over spaCy's en_core_web_sm, is the first of these that applies: drop "not" or "n't"; put "not" after
the first token that is aux or auxpass; put "not" after a root that is a modal or a form of be; replace a VBP/VBZ/VBD
root by do/does/did + "not" + lemma; put "Not" before the sentence. The authors' released script is not followed: it
looks for aux up to the root only, and gives "did not ask them to leave" where the rule gives "asked them to not leave".

"words" replaces the parser by closed word lists. On 60 invented sentences, labelled by hand and held out from tuning,
it equals the rule on 57. On 4,000 sentences of Wikipedia it agreed with spaCy 3.8.18 and a copy of en_core_web_sm 3.8.0
on 3,613; this was measured once and is not tested.
"""

import importlib
import re
from collections import namedtuple
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

from cse_core.text.word_lists import (
    ADVERB,
    ADVERBIAL,
    AUXILIARY,
    BASE,
    BE,
    BREAK,
    DETERMINER,
    FINITE_BE,
    FUNCTION,
    LINK,
    MISLEADING,
    MODAL,
    NUMBER,
    ONLY_PAST,
    OPENER,
    PARTICIPLE,
    PAST,
    PREPOSITION,
    SUBJECT,
    WITH_ARE,
    WITH_IS,
)

_CUT_SHORT = {"ca": "can", "wo": "will", "sha": "shall"}  # what "n't" leaves
_SUPPORT = {"VBP": "do", "VBZ": "does", "VBD": "did"}
_TOKEN = re.compile(
    r"(?i)(['\u2019](?:s|re|m|ve|d|ll)\b|can(?=not\b)|\w+?(?=n['\u2019]t\b)|n['\u2019]t\b|\w+(?:[.,-]\w+)*|[^\w\s])(\s*)"
)
Token = namedtuple("Token", "text whitespace_ dep_ tag_ lemma_")


def negations(texts: Sequence[str], how: str = "words") -> list[str]:
    """Return the negation of each text: the paper's rule over word lists ("words") or spaCy's parse ("spacy")."""
    if how not in ("words", "spacy"):
        raise ValueError(f"how must be one of words, spacy, got {how!r}")
    parses: Iterable[Any] = map(guess_parse, texts) if how == "words" else _english().pipe(texts)
    return [negate(list(parse)) for parse in parses]


def negate(tokens: Sequence[Any]) -> str:
    """Apply the paper's rule to one parsed text: tokens with spaCy's text, whitespace_, dep_, tag_ and lemma_."""
    texts, blanks = [token.text for token in tokens], [token.whitespace_ for token in tokens]
    low = [text.lower().replace("\u2019", "'") for text in texts]
    auxiliary = next((i for i, token in enumerate(tokens) if token.dep_ in ("aux", "auxpass")), None)
    root = next((i for i, token in enumerate(tokens) if token.dep_ == "ROOT"), None)
    if "not" in low or "n't" in low:
        _drop(texts, blanks, next(i for i, word in enumerate(low) if word in ("not", "n't")))
    elif auxiliary is not None:
        texts[auxiliary] += " not"
    elif root is not None and (tokens[root].tag_ == "MD" or low[root] in FINITE_BE):
        texts[root] += " not"
    elif root is not None and tokens[root].tag_ in _SUPPORT:
        support = f"{_SUPPORT[tokens[root].tag_]} not {tokens[root].lemma_}"
        texts[root] = support.capitalize() if texts[root][0].isupper() else support
    else:
        first = [text.lower() if text.lower() in FUNCTION - {"i"} else text for text in texts[:1]]
        texts, blanks = ["Not", *first, *texts[1:]], [" " if texts else "", *blanks]
    return "".join(text + blank for text, blank in zip(texts, blanks, strict=True))


def _drop(texts: list[str], blanks: list[str], i: int) -> None:
    if i == 0 and len(texts) > 1:
        texts[1] = texts[1][0].upper() + texts[1][1:]
    elif i:
        texts[i - 1] = _CUT_SHORT.get(texts[i - 1], texts[i - 1])
        # "didn't go" and "cannot go" keep the blank after; "was not, (not" keep one if both are there.
        glued = not blanks[i - 1] and texts[i - 1][-1].isalnum()
        blanks[i - 1] = blanks[i] if glued else blanks[i - 1] and blanks[i]
    del texts[i], blanks[i]


def _english() -> Any:
    try:
        return importlib.import_module("spacy").load("en_core_web_sm", exclude=["ner"])
    except (ImportError, OSError) as error:
        needed = "pip install spacy && python -m spacy download en_core_web_sm"
        raise ImportError(f'negations "spacy" need spaCy and its English model ({needed}): {error}') from error


def guess_parse(text: str) -> list[Token]:
    """Return tokens with spaCy's attributes: "aux" at the first guessed auxiliary, "ROOT" at a main verb before it."""
    parts = _TOKEN.findall(text)
    roles = _Sentence([part for part, _ in parts]).find()
    return [Token(*part, *roles.get(i, ("", "", ""))) for i, part in enumerate(parts)]


class _Sentence:
    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        low = [text.lower().replace("\u2019", "'") for text in texts]
        self.low = low + [""] * 4  # padded, so that i + 3 is a valid index
        # Before each word, the last one that is not an adverb.
        self.back = list(accumulate(self.low, lambda last, low: last if _is_adverb(low) else low, initial=""))
        self.start = self._main_clause_start()

    def find(self) -> dict[int, tuple[str, str, str]]:
        """Return dependency, tag and lemma of the first auxiliary and of the root, by index."""
        root, spare, pending = {}, {}, 0  # pending: clauses opened before the main one, still without a verb
        for i, low in enumerate(self.low[:-4]):
            if self._is_auxiliary(i):
                return root | {i: ("aux", "", "")}
            if root or i < self.start:
                continue
            # "the years he spent" opens one too, "in that town he met" and "that year he left" do not.
            bare = (
                i and low in SUBJECT and self._is_open_class(i - 1) and not {self.low[0], self.low[i - 1]} & ADVERBIAL
            )
            pending += bool(bare or low == "what" or (low in LINK and self.low[i + 1] != ","))
            verb = self._finite_verb(i, need=min(pending, 1))
            if verb and pending:
                pending, spare = pending - 1, {i: verb}
            elif verb:
                root = {i: verb}
        places = [(need, i) for start in (self.start, 0) for need in (1, 2) for i in range(start + 1, len(self.texts))]
        return root or spare or next(({i: verb} for need, i in places if (verb := self._finite_verb(i, need))), {})

    def _main_clause_start(self) -> int:
        """Return where the main clause begins: after a leading quotation, subordinate clause or participle."""
        low = self.low
        if low[0] in ('"', "“"):
            close = next((i for i, text in enumerate(self.texts) if i and text in ('"', "”")), 0)
            return close if low[close - 1] in (",", "?", "!") else 0
        opened = low[0] in OPENER or low[0].endswith("ing") or _looks_like_participle(low[0])
        return low.index(",") if opened and "," in low else 0

    def _skip_adverbs(self, i: int) -> int:
        while _is_adverb(self.low[i]):
            i += 1
        return i + 3 if self.low[i] == "," == self.low[i + 2] and _is_adverb(self.low[i + 1]) else i

    def _in_noun_phrase(self, i: int) -> bool:
        back = self.back[i]
        return back in DETERMINER or back in PREPOSITION or back in NUMBER or back == "'s" or back[:1].isdigit()

    def _is_open_class(self, i: int) -> bool:
        low = self.low[i]
        return self.texts[i].islower() and low[-1].isalpha() and low not in FUNCTION and not _is_adverb(low)

    def _is_auxiliary(self, i: int) -> bool:
        low = self.low[i]
        if low not in AUXILIARY or (low == "'s" and self.low[i - 1] not in WITH_IS):
            return False
        after = self.low[at := self._skip_adverbs(i + 1)]
        if low in MODAL:
            verb = after in BASE or (self.texts[i].islower() and after not in BREAK)
            return verb and self.back[i] not in DETERMINER
        if low not in ("do", "does", "did", "to"):
            ing = low in BE and after.endswith("ing") and len(after) > 4 and after not in MISLEADING
            return ing or _looks_like_participle(after)
        if low != "to" or after in ("be", "have"):
            return after in BASE or self.texts[-1] == "?"
        verb = after in BASE or re.search(r"..(?:ate|i[sz]e|ify)$", after) or self.low[at + 1] in DETERMINER
        return bool(verb) and self._is_open_class(at)

    def _finite_verb(self, i: int, need: int = 0) -> tuple[str, str, str] | None:
        """Return dependency, tag and lemma of a likely finite verb; need 1: a clause has none yet, 2: any will do."""
        low, back, after = self.low[i], self.back[i], self.low[i + 1]
        if low in FINITE_BE:
            return ("ROOT", "VBZ", "be") if low != "'s" or back in WITH_IS else None
        if not self._is_open_class(i):
            return None
        if self._is_past(i):
            return None if not need and self._is_participle(i) else ("ROOT", "VBD", _from_past(low))
        if self._is_surely_finite(i + 1):
            return None
        object_follows, plural = after in DETERMINER, back.endswith("s") and back[-2:] not in ("ss", "us", "is", "'s")
        if low.endswith("s"):
            is_base = _from_third(low) in BASE
            subject = back in ("he", "she", "it") or (back in WITH_IS and is_base)
            free = not self._in_noun_phrase(i) or (object_follows and back[:1].isdigit())
            fits = (is_base and (after != "," or need > 1)) or (object_follows and low[-2:] not in ("ss", "us"))
            if subject or (free and fits):
                return "ROOT", "VBZ", _from_third(low)
        elif back in WITH_ARE or not self._in_noun_phrase(i):
            is_base = low in BASE or (back in SUBJECT and not _looks_like_participle(low))
            if (is_base and (need > 1 or plural or object_follows or back in WITH_ARE)) or (plural and object_follows):
                return "ROOT", "VBP", low
        return None

    def _is_past(self, i: int) -> bool:
        """Whether the word is a past form that no word before it turns into an adjective or a noun."""
        low, back, after = self.low[i], self.back[i], self.low[i + 1]
        if low not in PAST and not (low.endswith("ed") and _looks_like_participle(low)):
            return False
        if back in DETERMINER and back in WITH_IS | WITH_ARE:
            return low in ONLY_PAST or after in PREPOSITION or after in DETERMINER or after in SUBJECT
        return not (back in DETERMINER or back in PREPOSITION or back == "'s")

    def _is_surely_finite(self, i: int) -> bool:
        low = self.low[i]
        return (low in FINITE_BE and low != "'s") or low in MODAL or low == "has" or low in ONLY_PAST

    def _is_participle(self, i: int) -> bool:
        """Whether a past or participle form is a participle: in an aside, before "by", or if another verb follows."""
        before, after = self.low[i - 1], self.low[i + 1]
        if self.low[i] in ONLY_PAST or after in DETERMINER or before in SUBJECT:
            return False
        if after == "by" or before in ("(", '"', "“"):
            return True
        if self.back[i] in BREAK:  # the first comma after the subject opens an aside, the second one closes it
            commas = self.low[self.start + 1 : i].count(",") - (self.low[0] in PREPOSITION and not self.start)
            return commas == 0 or commas % 2 == 1
        for j in range(i + 1, len(self.texts)):
            low = self.low[j]
            if low in BREAK or low in OPENER or low in SUBJECT or low in ("and", "or", "but", "that"):
                return False
            if self._is_surely_finite(j) or (_looks_like_participle(low) and self.low[j + 1] in DETERMINER):
                return True
        return False


def _is_adverb(low: str) -> bool:
    return low in ADVERB or (low.endswith("ly") and low not in BASE and low not in MISLEADING)


def _looks_like_participle(low: str) -> bool:
    return low in PARTICIPLE or (low.endswith("ed") and len(low) > 3 and low not in MISLEADING)


@cache
def _from_third(third: str) -> str:
    stem = third[:-1] if third != "has" else "have"
    return stem if stem in BASE else re.sub(r"(?<=[sxzho])e$", "", re.sub(r"ie$", "y", stem))


@cache
def _from_past(past: str) -> str:
    stem = past[:-2]
    spelled = re.sub(r"i$", "y", re.sub(r"([bdgkmnprt])\1$", r"\1", stem))
    if spelled == stem and re.search(r"(?:[cvuz]|[bdgkptz]l|[^s]s|dg|[nra]g|[^aeo]at|[iu]r|[^aeiou]in)$", stem):
        spelled += "e"
    return next((b for b in (PAST.get(past), stem, stem + "e", stem[:-1], stem[:-1] + "y") if b in BASE), spelled)
