"""IFEval's checkable instructions under their ids, decided by code.

The kinds and their arguments are those of Zhou et al. 2023 (arXiv 2311.07911), section 2 and
table 1; how each is decided is labelkit's own, stricter where the public checker counts what a
careful reader would not (a keyword inside another word, a separator's empty neighbour). An unknown
id or argument is an error, never a pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, JsonValue, ValidationError, validate_call

from labelkit.codec import strict_loads
from labelkit.scorers import wording
from labelkit.spec import nearest


class Held(NamedTuple):
    """Whether an instruction is followed (None: cannot be told), and what shows it."""

    holds: bool | None
    evidence: str


Relation = Literal["at least", "less than"]
Count = Annotated[int, Field(ge=0)]
Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[Text], Field(min_length=1)]

_KINDS: dict[str, Callable[..., Held]] = {}


def instruction(id_: str, kwargs: dict[str, JsonValue]) -> Callable[[str], Held]:
    """The check of one instruction. Null arguments count as absent, as published files hold them.

    Raises ValueError for an unknown id and for arguments that do not fit.
    """
    check = _KINDS.get(id_)
    if check is None:
        guess = nearest(id_, list(_KINDS))
        raise ValueError(f"unknown instruction `{id_}`" + (f"; `{guess}`?" if guess else ""))
    given = {name: value for name, value in kwargs.items() if value is not None}
    try:
        check("", **given)
    except ValidationError as error:
        item = error.errors(include_url=False)[0]
        at = ".".join(map(str, item["loc"]))
        said = str(item["msg"]).removeprefix("Input ")
        shown = "" if item["type"] == "missing_keyword_only_argument" else f"{item['input']!r}: "
        raise ValueError(f"{id_}: {at}: {shown}{said[:1].lower()}{said[1:]}") from None
    return lambda text: check(text, **given)


def _kind(*ids: str) -> Callable[[Callable[..., Held]], Callable[..., Held]]:
    def register(check: Callable[..., Held]) -> Callable[..., Held]:
        checked = validate_call(check)
        _KINDS.update(dict.fromkeys(ids, checked))
        return check

    return register


def _related(count: int, relation: Relation, bound: int, what: str) -> Held:
    holds = count >= bound if relation == "at least" else count < bound
    return Held(holds, f"{count} {what}, {relation} {bound}")


@_kind("keywords:existence")
def _existence(text: str, *, keywords: Texts) -> Held:
    absent = [word for word in keywords if not wording.occurrences(word, text)]
    return Held(not absent, f"without {', '.join(absent)}" if absent else "all keywords")


@_kind("keywords:frequency")
def _frequency(text: str, *, keyword: Text, frequency: Count, relation: Relation) -> Held:
    count = wording.occurrences(keyword, text)
    return _related(count, relation, frequency, f"times {keyword!r}")


@_kind("keywords:forbidden_words")
def _forbidden_words(text: str, *, forbidden_words: Texts) -> Held:
    found = [word for word in forbidden_words if wording.occurrences(word, text)]
    return Held(not found, f"has {', '.join(found)}" if found else "no forbidden word")


@_kind("keywords:letter_frequency", "letters:letter_frequency")
def _letter_frequency(
    text: str,
    *,
    letter: Annotated[str, Field(min_length=1, max_length=1)],
    let_frequency: Count,
    let_relation: Relation,
) -> Held:
    count = text.casefold().count(letter.casefold())
    return _related(count, let_relation, let_frequency, f"times {letter!r}")


@_kind("language:response_language")
def _response_language(text: str, *, language: Text) -> Held:
    identifier = _languages()
    expected = _FAMILIES.get(language.lower(), {language.lower()})
    known = set(identifier.labels)
    if not expected & known:
        raise ValueError(f"unknown language `{language}`")
    ranked = identifier.rank(text)
    likely = sum(float(share) for name, share in ranked if name in expected)
    first, share = str(ranked[0][0]), float(ranked[0][1])
    evidence = f"{language} with {likely:.2f}, {first} with {share:.2f}"
    if likely >= 0.6:
        return Held(True, evidence)
    return Held(False if share >= 0.9 else None, evidence)


# The identifier tells varieties apart that an instruction does not name.
_FAMILIES = {
    "zh": {"zh", "wuu", "yue"},
    "zh-cn": {"zh", "wuu", "yue"},
    "zh-tw": {"zh", "wuu", "yue"},
    "ar": {"ar", "ary", "arz"},
    "no": {"no", "nn"},
    "nb": {"no", "nn"},
    "en": {"en", "pcm"},
    "pt-br": {"pt"},
}


def language_library() -> str | None:
    """The version of what tells languages, None where it is not installed."""
    try:
        return version("py3langid")
    except PackageNotFoundError:
        return None


@cache
def _languages() -> Any:
    """py3langid's identifier with its probabilities; loading takes about a second, once."""
    try:
        langid = import_module("py3langid.langid")
    except ImportError:
        raise ValueError("telling languages needs py3langid: pip install py3langid") from None
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)


@_kind("length_constraints:number_words")
def _number_words(text: str, *, num_words: Count, relation: Relation) -> Held:
    return _related(len(wording.words(text)), relation, num_words, "words")


@_kind("length_constraints:number_sentences")
def _number_sentences(text: str, *, num_sentences: Count, relation: Relation) -> Held:
    return _related(len(wording.sentences(text)), relation, num_sentences, "sentences")


@_kind("length_constraints:number_paragraphs")
def _number_paragraphs(text: str, *, num_paragraphs: Count) -> Held:
    """Paragraphs stand between the markdown divider `***`."""
    parts = [part.strip() for part in re.split(r"(?<!\*)\*{3}(?!\*)", text)]
    if parts and not parts[0]:
        parts = parts[1:]
    if parts and not parts[-1]:
        parts = parts[:-1]
    holds = len(parts) == num_paragraphs and all(parts)
    return Held(holds, f"{len(parts)} paragraphs, expected {num_paragraphs}")


@_kind("length_constraints:nth_paragraph_first_word")
def _nth_paragraph(
    text: str,
    *,
    num_paragraphs: Count,
    nth_paragraph: Annotated[int, Field(ge=1)],
    first_word: Text,
) -> Held:
    parts = wording.paragraphs(text)
    if len(parts) != num_paragraphs or nth_paragraph > len(parts):
        return Held(False, f"{len(parts)} paragraphs, expected {num_paragraphs}")
    opening = next(iter(wording.words(parts[nth_paragraph - 1])), "")
    holds = wording.plain(opening) == wording.plain(first_word.strip())
    return Held(holds, f"paragraph {nth_paragraph} starts with {opening!r}")


@_kind("detectable_content:number_placeholders")
def _placeholders(text: str, *, num_placeholders: Count) -> Held:
    """`[name]`: in brackets, with a letter, and not the text of a link."""
    found = re.findall(r"\[([^\[\]\n]+)\](?!\()", text)
    count = sum(any(map(str.isalpha, name)) for name in found)
    return _related(count, "at least", num_placeholders, "placeholders")


@_kind("detectable_content:postscript")
def _postscript(text: str, *, postscript_marker: Text) -> Held:
    """The marker stands at the start of a line or after a space, and something follows it."""
    letters = [re.escape(char) for char in postscript_marker if char.isalnum()]
    dotted = r"\.?\s?".join(letters) if letters else re.escape(postscript_marker.strip())
    after = r"(?![^\W_])[.:]*+[*_\s]*+(?=\S)"
    found = re.search(rf"(?:^|(?<=[\s*_(])){dotted}{after}", text, re.IGNORECASE | re.MULTILINE)
    return Held(found is not None, f"{postscript_marker} is {'there' if found else 'missing'}")


@_kind("detectable_format:number_bullet_lists")
def _bullets(text: str, *, num_bullets: Count) -> Held:
    count = count_bullets(text)
    return Held(count == num_bullets, f"{count} bullets, expected {num_bullets}")


def count_bullets(text: str) -> int:
    """Lines that start with `*` or `-` and a space and say something."""
    return len(re.findall(r"^[ \t]*[*-][ \t]+(?=[^\s*-]|[*-]+[^\s*-])", text, re.MULTILINE))


@_kind("detectable_format:constrained_response")
def _constrained(text: str) -> Held:
    found = [said for said in _OPTIONS if said.lower() in " ".join(text.lower().split())]
    return Held(len(found) == 1, f"{len(found)} of the three options")


_OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


@_kind("detectable_format:number_highlighted_sections")
def _highlights(text: str, *, num_highlights: Count) -> Held:
    """`*so*` or `**so**`, with nothing but text inside."""
    found = re.findall(r"(?<!\*)(\*{1,2})(?![\s*])[^*\n]+(?<!\s)\1(?!\*)", text)
    return _related(len(found), "at least", num_highlights, "highlights")


@_kind("detectable_format:multiple_sections")
def _sections(text: str, *, section_spliter: Text, num_sections: Count) -> Held:
    mark = r"\s+".join(map(re.escape, section_spliter.split()))
    found = re.findall(rf"^[ \t#*_>\[(]*{mark}\s?(?:\d+|[IVXLC]+\b)", text, re.MULTILINE)
    return _related(len(found), "at least", num_sections, f"{section_spliter} marks")


@_kind("detectable_format:json_format")
def json_format(text: str) -> Held:
    """The whole text, or its only fence, is a JSON object or array."""
    inner = re.sub(r"\A\s*```(?:json)?[ \t]*\n|\n?```\s*\Z", "", text, flags=re.IGNORECASE)
    try:
        value = strict_loads(inner.strip("\ufeff \t\r\n"))
    except ValueError as error:
        return Held(False, f"not JSON: {error}")
    return Held(isinstance(value, dict | list), f"JSON {type(value).__name__}")


@_kind("detectable_format:title")
def _title(text: str) -> Held:
    titles = re.findall(r"<<([^<>\n]+)>>", text)
    found = next((title for title in titles if title.strip()), None)
    return Held(found is not None, f"<<{found}>>" if found else "no <<title>>")


@_kind("combination:two_responses")
def _two_responses(text: str) -> Held:
    parts = [" ".join(part.split()) for part in re.split(r"(?<!\*)\*{6}(?!\*)", text)]
    inner = [part for i, part in enumerate(parts) if part or 0 < i < len(parts) - 1]
    holds = len(inner) == 2 and all(inner) and inner[0] != inner[1]
    return Held(holds, f"{len(inner)} responses" + (", the same" if inner[1:] == inner[:1] else ""))


@_kind("combination:repeat_prompt")
def _repeat_prompt(text: str, *, prompt_to_repeat: Text) -> Held:
    said = " ".join(text.translate(wording.QUOTES).casefold().split())
    asked = " ".join(prompt_to_repeat.translate(wording.QUOTES).casefold().split())
    holds = said.startswith(asked)
    return Held(holds, "starts with the request" if holds else "does not repeat the request first")


@_kind("startend:end_checker")
def _end_phrase(text: str, *, end_phrase: Text) -> Held:
    said = " ".join(text.translate(wording.QUOTES).casefold().split()).strip('"')
    phrase = " ".join(end_phrase.translate(wording.QUOTES).casefold().split()).strip('"')
    holds = bool(phrase) and said.endswith(phrase)
    return Held(holds, f"ends with {text.strip()[-60:]!r}")


@_kind("startend:quotation")
def _quotation(text: str) -> Held:
    said = text.strip()
    holds = len(said) > 2 and (said[0], said[-1]) in (('"', '"'), ("“", "”"))
    return Held(holds, f"from {said[:1]!r} to {said[-1:]!r}")


@_kind("change_case:capital_word_frequency")
def _capital_words(text: str, *, capital_frequency: Count, capital_relation: Relation) -> Held:
    count = sum(1 for word in wording.words(text) if word.isupper())
    return _related(count, capital_relation, capital_frequency, "words in capitals")


@_kind("change_case:english_capital")
def _english_capital(text: str) -> Held:
    return _cased(text, next((char for char in text if char.islower()), None), "lower")


@_kind("change_case:english_lowercase")
def _english_lowercase(text: str) -> Held:
    return _cased(text, next((char for char in text if char.isupper()), None), "upper")


def _cased(text: str, wrong: str | None, case: str) -> Held:
    if wrong is not None:
        return Held(False, f"{wrong!r} is {case} case")
    if not any(map(str.isalpha, text)):
        return Held(False, "no letters")
    english = wording.looks_english(text)
    return Held(english, f"no {case} case" + ("" if english else ", not English"))


@_kind("punctuation:no_comma")
def no_comma(text: str) -> Held:
    found = re.search("[,،،、，､﹐﹑︐︑]", text)
    return Held(found is None, f"comma at {found.start()}" if found else "no comma")


@_kind("ratio:sentence_words")
def _sentence_words(text: str) -> Held:
    """IFBench: three sentences of equal length in characters, no word used twice."""
    found = wording.sentences(text)
    lengths = sorted({len(sentence) for sentence in found})
    said = [wording.plain(word) for word in wording.words(text)]
    repeated = len(said) - len(set(said))
    holds = len(found) == 3 and len(lengths) == 1 and not repeated
    return Held(holds, f"{len(found)} sentences of {lengths} characters, {repeated} words again")
