"""Templates around a sentence, as PromptBERT and SNCSE use them: the vector is the state at the template's mask.

A template is a text with `{}` where the sentence goes and `[MASK]` after it, in BERT's spelling whatever the tokenizer.
Its two sides are tokenised by themselves, so that a sentence is cut without losing the mask.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SENTENCE, MASK = "{}", "[MASK]"
# What closes a sentence. Released evaluators differ: PromptBERT's adds a full stop after "!" too, SNCSE's after no
# ASCII punctuation. 78 of the STS sets' 26,104 sentences end in "!", 365 in other punctuation.
FINAL = (".", "?", "!", '"', "'")


def check_template(template: str) -> None:
    """Refuse a template without one place for the sentence and one mask after it."""
    before, _, after = template.partition(SENTENCE)
    if template.count(SENTENCE) != 1 or before.count(MASK) or after.count(MASK) != 1:
        raise ValueError(f"a template has one {SENTENCE} and one {MASK} after it, got {template!r}")


def sides(template: str, tokenizer: "PreTrainedTokenizerBase") -> tuple[list[int], list[int]]:
    """Ids before the sentence, the first special token included, and ids after it, the last one included."""
    check_template(template)
    before, _, after = template.partition(SENTENCE)
    marked = after.replace(MASK, str(tokenizer.mask_token))
    # A blank before the sentence belongs to its first word where blanks are part of words (RoBERTa).
    left, right = (tokenizer(side, add_special_tokens=False)["input_ids"] for side in (before.rstrip(), marked))
    return [tokenizer.cls_token_id, *left], [*right, tokenizer.sep_token_id]


def prompted(texts: Sequence[str], template: str, tokenizer: "PreTrainedTokenizerBase", words: int) -> list[list[int]]:
    """Ids of each text inside the template, the text cut to `words` word pieces, the template whole."""
    left, right = sides(template, tokenizer)
    if words < 1:
        raise ValueError(f"{template!r} leaves room for {words} word pieces of the sentence, expected at least one")
    blank = " " if template.partition(SENTENCE)[0].endswith(" ") else ""
    inner = tokenizer([blank + text for text in texts], add_special_tokens=False, truncation=True, max_length=words)
    return [left + ids + right for ids in inner["input_ids"]]


def with_final_period(text: str, template: str) -> str:
    """The text closed by a full stop if nothing else closes it, set off as the template sets off its own."""
    if not text.strip() or text.rstrip().endswith(FINAL):
        return text
    return text.rstrip() + (" ." if template.endswith(" .") else ".")


def closed_and_prompted(
    texts: Sequence[str], template: str, tokenizer: "PreTrainedTokenizerBase", length: int
) -> list[list[int]]:
    """Ids of each text, closed by a full stop, inside the template; `length` counts the template's tokens as well."""
    room = length - sum(map(len, sides(template, tokenizer)))
    return prompted([with_final_period(text, template) for text in texts], template, tokenizer, room)
