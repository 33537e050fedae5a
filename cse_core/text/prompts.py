"""Templates around a sentence, as in PromptBERT and SNCSE: the vector is the hidden state at the template's mask.

A template is a text with `{}` for the sentence and `[MASK]` after it, in BERT's spelling whatever the tokenizer.
Its two sides are tokenised separately, so that a long sentence is cut without losing the mask.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SENTENCE, MASK = "{}", "[MASK]"
# No full stop is added after these. Released evaluators differ: PromptBERT's adds one after "!" too, SNCSE's adds none
# after any ASCII punctuation. 78 of the STS sets' 26,104 sentences end in "!", 365 in other punctuation.
FINAL = (".", "?", "!", '"', "'")


def check_template(template: str) -> None:
    """Refuse a template without one place for the sentence and one mask after it."""
    before, _, after = template.partition(SENTENCE)
    if template.count(SENTENCE) != 1 or before.count(MASK) or after.count(MASK) != 1:
        raise ValueError(f"a template has one {SENTENCE} and one {MASK} after it, got {template!r}")


def sides(template: str, tokenizer: "PreTrainedTokenizerBase") -> tuple[list[int], list[int]]:
    """Return the ids before and after the sentence, including the cls and the sep token."""
    check_template(template)
    before, _, after = template.partition(SENTENCE)
    marked = after.replace(MASK, str(tokenizer.mask_token))
    # A blank before the sentence belongs to its first word where blanks are part of words (RoBERTa).
    left, right = (tokenizer(side, add_special_tokens=False)["input_ids"] for side in (before.rstrip(), marked))
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise ValueError(f"a template needs a cls and a sep token, the tokenizer of {tokenizer.name_or_path} lacks one")
    return [tokenizer.cls_token_id, *left], [*right, tokenizer.sep_token_id]


def prompt_ids(
    texts: Sequence[str], template: str, tokenizer: "PreTrainedTokenizerBase", words: int
) -> list[list[int]]:
    """Return the ids of each text inside the whole template; the text is cut to `words` word pieces."""
    left, right = sides(template, tokenizer)
    if words < 1:
        raise ValueError(f"{template!r} leaves room for {words} word pieces of the sentence, expected at least one")
    blank = " " if template.partition(SENTENCE)[0].endswith(" ") else ""
    inner = tokenizer([blank + text for text in texts], add_special_tokens=False, truncation=True, max_length=words)
    return [left + ids + right for ids in inner["input_ids"]]


def with_final_period(text: str, template: str) -> str:
    """Add a full stop to a text without final punctuation, with a blank before it if the template's has one."""
    if not text.strip() or text.rstrip().endswith(FINAL):
        return text
    return text.rstrip() + (" ." if template.endswith(" .") else ".")


def closed_prompt_ids(
    texts: Sequence[str], template: str, tokenizer: "PreTrainedTokenizerBase", length: int
) -> list[list[int]]:
    """Return the ids of each text, ended by a full stop, inside the template; `length` includes the template."""
    room = length - sum(map(len, sides(template, tokenizer)))
    return prompt_ids([with_final_period(text, template) for text in texts], template, tokenizer, room)
