"""Text → terms: words in any script, folded, without stop words, stemmed."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import cache, partial
from itertools import chain

from querywise.errors import DataError

ENGLISH = "english"  # the default language of text
# Stop words: function words and little else.
_GRAMMAR = """
a about above after again all also am an and any are as at be because been before being below between both but
by can could d did do does doing done down during each either few for from further had has have having he her
here hers him his how i if in into is it its itself just ll m may me might more most must my neither no nor not
of off on once only or other our ours out over own per rather re s same shall she should since so some such t
than that the their theirs them then there these they this those though through thus to too under until up upon
ve very was we were what when where whether which while who whom whose why will with within without would yet
you your yours
"""
STOP_WORDS = frozenset(_GRAMMAR.split())
# Scripts written without spaces between words: their terms are pairs of adjacent characters.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WIDE = "\U00020000-\U0003ffff"
# Soft hyphens and joiners inside a word are ignored.
_INVISIBLE = dict.fromkeys([0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF])
# Plain text without a pattern: letters become lower case, and everything but letters and digits a space.
_ASCII = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}


class Tokeniser:
    """Splits text into terms, in the same way for documents and queries.

    `language` selects the stemmer (a Snowball name such as "english", "german"; None does not stem). `stop_words` says
    whether common English words are dropped. Words are runs of letters, digits and their accents, compatibility forms
    unified and case folded; `snake_case` is two words.

    >>> Tokeniser().terms("The Wing's aeroelastic models, of 1958")
    ['wing', 'aeroelast', 'model', '1958']
    """

    def __init__(self, language: str | None = ENGLISH, *, stop_words: bool = True) -> None:
        self.language = language
        self.stop_words = stop_words
        self._stemmed = _stemmer(language)
        self._known: dict[str, tuple[str, ...]] = {}

    def __reduce__(self) -> tuple[partial[Tokeniser], tuple[str | None]]:
        # A stemmer cannot be sent to another process, so it is made there.
        return partial(Tokeniser, stop_words=self.stop_words), (self.language,)

    def words(self, text: str) -> list[str]:
        """Return the words of a text in order, folded."""
        if text.isascii():
            return text.translate(_ASCII).split()
        return _word().findall(unicodedata.normalize("NFKC", text).translate(_INVISIBLE).casefold())

    def terms_of(self, word: str) -> tuple[str, ...]:
        """Return the terms of a folded word: none, its stem, or, in scripts without spaces, pairs of characters."""
        if self.stop_words and word in STOP_WORDS:
            return ()
        if word.isascii() or not _unspaced().search(word):
            return (sys.intern(self._stemmed(word) or word),)  # some stemmers reduce a short word to nothing
        parts = [part for part in _unspaced().split(word) if part]
        return tuple(
            chain.from_iterable(_pairs(part) if _unspaced().match(part) else self.terms_of(part) for part in parts)
        )

    def terms(self, text: str) -> list[str]:
        """Return the terms of a text, in order."""
        known = self._known
        found: list[str] = []
        for word in self.words(text):
            terms = known.get(word)
            if terms is None:
                terms = self.terms_of(word)
                if len(known) < 1_000_000:
                    known[word] = terms
            found += terms
        return found


def _pairs(run: str) -> Iterable[str]:
    return [run] if len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]


def _stemmer(language: str | None):  # type: ignore[no-untyped-def]
    if language is None:
        return str
    import Stemmer

    try:
        return Stemmer.Stemmer(language, 0).stemWord
    except (KeyError, UnicodeEncodeError):
        known = ", ".join(Stemmer.algorithms())
        raise DataError(f"There is no stemmer for {language!r}. Known: {known}; or none.") from None


@cache
def _word() -> re.Pattern[str]:
    """Return a pattern for letters and digits with their combining marks, which Python's word characters exclude."""
    marks = "".join(map(re.escape, filter(_is_mark, map(chr, chain(range(0x300, 0x20000), range(0xE0100, 0xE01F0))))))
    return re.compile(rf"[^\W_]+(?:[{marks}]+[^\W_]*)*")


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


@cache
def _unspaced() -> re.Pattern[str]:
    return re.compile(rf"([{_UNSPACED}{_WIDE}]+)")
