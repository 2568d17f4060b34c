from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from querywise.errors import DataError
from querywise.retrieval.words import STOP_WORDS, Tokeniser

ENGLISH = Tokeniser()
PLAIN = Tokeniser(None, stop_words=False)


def test_english_words_are_folded_stemmed_and_rid_of_grammar() -> None:
    assert ENGLISH.terms("The Models, and the modelling of WINGS!") == ["model", "model", "wing"]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        pytest.param("中文搜索", ["中文", "文搜", "搜索"], id="Chinese: pairs of neighbours"),
        pytest.param("中", ["中"], id="one Chinese character"),
        pytest.param("東京タワー", ["東京", "京タ", "タワ", "ワー"], id="Japanese"),
        pytest.param("ภาษา", ["ภา", "าษ", "ษา"], id="Thai"),
        pytest.param("हिन्दी में किताबें", ["हिन्दी", "में", "किताबें"], id="Hindi keeps its vowel signs"),
        pytest.param("தமிழ் மொழி", ["தமிழ்", "மொழி"], id="Tamil"),
        pytest.param("اللغة العربية", ["اللغة", "العربية"], id="Arabic"),
        pytest.param("كِتَاب", ["كِتَاب"], id="Arabic with its vowels written"),
        pytest.param("한국어 문장", ["한국어", "문장"], id="Korean"),
        pytest.param("Ελλάδα ΕΛΛΆΔΑ", ["ελλάδα", "ελλάδα"], id="Greek"),
        pytest.param("Ёлка", ["ёлка"], id="Russian"),
        pytest.param("Straße STRASSE", ["strasse", "strasse"], id="sharp s"),
        pytest.param("ＡＢＣ１２", ["abc12"], id="full-width letters"),
        pytest.param("ﾃｽﾄ", ["テス", "スト"], id="half-width kana"),
        pytest.param("ﬁne ①", ["fine", "1"], id="ligatures and circled digits"),
        pytest.param("snake_case __init__", ["snake", "case", "init"], id="snake case"),
        pytest.param("wing's don’t", ["wing", "s", "don", "t"], id="both apostrophes"),
        pytest.param("😀 smile😀y 👩‍👩‍👧", ["smile", "y"], id="emoji are no words"),
        pytest.param("e-mail, 3.14", ["e", "mail", "3", "14"], id="punctuation"),
        pytest.param("\u0301abc", ["abc"], id="a mark that belongs to nothing"),
        pytest.param("", [], id="nothing"),
        pytest.param(" \t\n\u3000_-—。", [], id="no word"),
    ],
)
def test_words_of_any_script(text: str, terms: list[str]) -> None:
    assert PLAIN.terms(text) == terms


@pytest.mark.parametrize(
    "word",
    [
        pytest.param("\U00011104\U0001110b\U00011134\U0001111f\U00011133\U00011126", id="Chakma"),
        pytest.param("\U0001e900\U0001e923\U0001e944\U0001e927", id="Adlam"),
    ],
)
def test_marks_beyond_the_basic_plane_belong_to_their_word(word: str) -> None:
    assert PLAIN.terms(word) == [word.casefold()]


@settings(deadline=None)
@given(text=st.text())
def test_composed_and_decomposed_accents_give_the_same_terms(text: str) -> None:
    forms = [unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text), text]
    assert [ENGLISH.terms(each) for each in forms] == [ENGLISH.terms(text)] * 3


def test_an_accent_is_kept() -> None:
    assert ENGLISH.terms("café") == ENGLISH.terms("cafe\u0301") == ["café"]
    assert ENGLISH.terms("cafe") != ["café"]


@pytest.mark.parametrize(
    ("glued", "alone"), [("iPhone手机", "iphone"), ("Running手机", "running"), ("5models模型", "5models")]
)
def test_a_word_between_chinese_characters_is_the_term_it_is_alone(glued: str, alone: str) -> None:
    assert ENGLISH.terms(glued)[0] == ENGLISH.terms(alone)[0]


def test_a_stop_word_between_chinese_characters_is_left_out() -> None:
    assert ENGLISH.terms("手机the模型") == ["手机", "模型"]


def test_stop_words_are_left_out_in_any_case_unless_they_are_asked_for() -> None:
    assert ENGLISH.terms("To BE or not to be, THE who") == []
    assert ENGLISH.terms(" ".join(sorted(STOP_WORDS))) == []
    assert Tokeniser(None, stop_words=False).terms("To be the who") == ["to", "be", "the", "who"]
    assert Tokeniser(None).terms("the models") == ["models"]


def test_the_language_chooses_the_stemmer() -> None:
    assert Tokeniser("german").terms("Häuser") == Tokeniser("german").terms("Häusern")
    assert Tokeniser(None).terms("models modelling") == ["models", "modelling"]


@pytest.mark.parametrize("language", ["klingon", "", "English ", "français"])
def test_an_unknown_language_is_refused_with_the_known_ones(language: str) -> None:
    with pytest.raises(DataError, match=f"no stemmer for {language!r}.*english.*german.*none"):
        Tokeniser(language)


LANGUAGES = [None, "english", "arabic", "german", "greek", "hindi", "nepali", "porter", "tamil", "turkish"]
TOKENISERS = [Tokeniser(language, stop_words=False) for language in LANGUAGES]
LETTERS = st.characters(min_codepoint=0x20, max_codepoint=0xFFF)
ANY_TEXT = st.text() | st.text(LETTERS) | st.text(st.characters(categories=("L", "M", "N", "Cs", "Cf", "Zs")))


@settings(deadline=None)
@given(text=ANY_TEXT, tokeniser=st.sampled_from(TOKENISERS))
@example(text="ـ", tokeniser=TOKENISERS[LANGUAGES.index("arabic")])
@example(text="εισ", tokeniser=TOKENISERS[LANGUAGES.index("greek")])
@example(text="को", tokeniser=TOKENISERS[LANGUAGES.index("nepali")])
@example(text="s", tokeniser=TOKENISERS[LANGUAGES.index("porter")])
def test_any_text_gives_terms_that_are_not_empty(text: str, tokeniser: Tokeniser) -> None:
    assert all(tokeniser.terms(text))


@settings(deadline=None)
@given(text=ANY_TEXT)
def test_the_same_text_gives_the_same_terms_again(text: str) -> None:
    first = ENGLISH.terms(text)
    assert ENGLISH.terms(text) == first
    assert Tokeniser().terms(text) == first, "whatever the tokeniser has seen before"
    assert [term for word in ENGLISH.words(text) for term in ENGLISH.terms_of(word)] == first


@settings(deadline=None)
@given(texts=st.lists(ANY_TEXT, max_size=3))
def test_the_terms_of_lines_are_the_terms_of_each_line(texts: list[str]) -> None:
    assert ENGLISH.terms("\n".join(texts)) == [term for text in texts for term in ENGLISH.terms(text)]
