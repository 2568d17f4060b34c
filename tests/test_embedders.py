"""Embedders: of the collection itself, of a token table, and behind an address; and that another one is refused."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from querywise.data.collections import Document
from querywise.errors import DataError, Hint, ModelFileError
from querywise.retrieval.embedders.lsa import LsaEmbedder, dimension_of, lsa_of
from querywise.retrieval.embedders.named import check_name, embedded, find_embedder, require_allowed
from querywise.retrieval.embedders.remote import KEY, RemoteEmbedder
from querywise.retrieval.embedders.sentences import check_model_folder
from querywise.retrieval.embedding import EmbedderRecord, query_embedders, query_vector, record_of, with_embedded
from querywise.retrieval.index import Index, build_index, load_index, save_index
from querywise.retrieval.indexed_vectors import vectors_of
from querywise.runtime.arrays import Floats
from querywise.runtime.threads import Job, working_for
from tests.embedding import Service, embedding_service
from tests.support.embedders import NAMED

TEXTS = ("the boundary layer of a wing", "heat in a boundary layer", "a wing in the wind", "cats and dogs", "dogs bark")


def index_of(texts: tuple[str, ...] = TEXTS) -> Index:
    return build_index(documents_of(texts))


def documents_of(texts: tuple[str, ...] = TEXTS) -> list[Document]:
    return [Document(f"D{place}", "", text) for place, text in enumerate(texts)]


def cosine(first: Floats, second: Floats) -> float:
    return float(first @ second / np.sqrt((first @ first) * (second @ second)))


# Latent semantic analysis


def test_lsa_spans_what_a_dense_svd_spans() -> None:
    rng = np.random.default_rng(0)
    words = [f"w{number}" for number in range(300)]
    texts = tuple(" ".join(rng.choice(words[: 20 + 5 * (place % 50)], 12)) for place in range(250))
    embedder = lsa_of(index_of(texts))
    from querywise.retrieval.embedders.lsa import _weighted  # the table itself is what the definition speaks of

    table = _weighted(index_of(texts)).toarray()
    values = np.linalg.svd(table, compute_uv=False)
    rank = embedder.projection.shape[1]
    assert rank == 128
    reached = np.linalg.norm(table @ embedder.projection.astype(np.float64)) ** 2
    assert reached >= 0.999 * (values[:rank] ** 2).sum()
    np.testing.assert_allclose(embedder.projection.T @ embedder.projection, np.eye(rank), atol=1e-5)


def test_lsa_finds_alike_what_shares_words_with_the_same_others() -> None:
    embedder = lsa_of(index_of())
    query, same, other = embedder(["wings", "a wing in the wind", "dogs bark"])
    assert cosine(query, same) > 0.5
    assert abs(cosine(query, other)) < 1e-6
    assert not embedder(["zebra", ""]).any()


def test_lsa_is_the_same_each_time_and_as_it_was_kept(tmp_path: Path) -> None:
    made = with_embedded(index_of(), documents_of(), "lsa")
    save_index(made, tmp_path / "index")
    kept = load_index(tmp_path / "index")

    assert lsa_of(index_of()).projection.tobytes() == lsa_of(kept).projection.tobytes()
    vectors = vectors_of(kept)
    assert vectors is not None
    np.testing.assert_allclose(vectors.of(np.array([3])), lsa_of(kept)([TEXTS[3]]), rtol=1e-6)
    assert query_vector(kept, "wings").tolist() == lsa_of(kept)(["wings"]).astype(np.float32).tolist()[0]


def test_lsa_of_documents_without_words_has_zeros() -> None:
    made = with_embedded(index_of(("the", "cats")), documents_of(("the", "cats")), "lsa")
    vectors = vectors_of(made)
    assert vectors is not None
    assert vectors.lengths[0] == 0


# Which embedder it was


def test_another_embedder_is_refused() -> None:
    made = with_embedded(index_of(), documents_of(), "lsa")
    other = with_embedded(index_of(TEXTS[::-1][:4]), documents_of(TEXTS[::-1][:4]), "lsa")
    turned = LsaEmbedder(index_of(), -lsa_of(index_of()).projection[:, ::-1].copy())
    record = record_of(lsa_of(index_of()), "lsa")

    record.require(record_of(lsa_of(index_of()), "lsa"), "m")
    with pytest.raises(DataError, match="is not the embedder that made the vectors of m, lsa"):
        record.require(record_of(turned, "other"), "m")
    with pytest.raises(DataError, match=r"lsa makes vectors of \d numbers; those of m have \d, from lsa"):
        query_vector(other, "wings", trained={"embedder": made.notes["embedder"]}, model="m")
    with pytest.raises(DataError, match="m was trained with vectors of 384"):
        query_vector(made, "wings", trained={"embedder": None, "dimension": 384}, model="m")


def test_what_is_said_of_an_embedder_is_checked() -> None:
    sound = EmbedderRecord("lsa", 2, (1.0, 0.5))
    assert EmbedderRecord.from_json(sound.as_json(), "m") == sound
    for broken in (
        {},
        {"name": 1},
        {**sound.as_json(), "probe": [1.0]},
        {**sound.as_json(), "probe": [1.0, "x"]},
        None,
    ):
        with pytest.raises(ModelFileError, match="m: "):
            EmbedderRecord.from_json(broken, "m")  # type: ignore[arg-type]


def test_names_that_no_embedder_has_are_refused() -> None:
    for name in ("", "lsi", "static:", "sentence-transformers", "ftp://host/v1/embeddings"):
        with pytest.raises(DataError, match=r"there is no such embedder\. Known: lsa, static"):
            check_name(name)
    for name in ("http://", "http://host:no/v1/embeddings"):
        with pytest.raises(DataError, match="expected an address like"):
            check_name(name)
    with pytest.raises(DataError, match="has a name or password in it") as error:
        check_name("http://me:secret@host/v1/embeddings")
    assert "secret" not in str(error.value)
    with pytest.raises(DataError, match="has a parameter 'api_key' in it, which would be written") as error:
        check_name("https://host/v1/embeddings?version=2&api_key=secret#m")
    assert "secret" not in str(error.value)
    with pytest.raises(DataError, match="expected an address like") as error:
        check_name("http://me:secret@host:no/v1/embeddings")
    assert "secret" not in str(error.value)
    check_name("https://host/v1/embeddings?api-version=2#m")


@pytest.mark.parametrize("allowed", ["", "http://localhost:9", "static:/models,lsa"])
def test_what_an_index_alone_names_is_not_looked_for(allowed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERYWISE_EMBEDDINGS_ALLOW", allowed)
    made = with_embedded(index_of(), documents_of(), "lsa")
    known = made.notes["embedder"]
    assert isinstance(known, dict)
    asked: list[object] = []
    _WATCHED.append(asked)
    for name in [*NAMED, "", "lsa ", "lsa\0", "static\n", "x" * 100_000]:
        with pytest.raises(DataError) as error:
            query_embedders(replace(made, notes={**made.notes, "embedder": {**known, "name": name}}))
        assert len(str(error.value)) < 1_000
    _WATCHED.clear()
    assert asked == []


_WATCHED: list[list[object]] = []


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    acts = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.listdir", "os.scandir", "glob.glob")
    if _WATCHED and (event in acts or (event == "import" and str(arguments[0]).startswith(("sentence_tr", "wordll")))):
        _WATCHED[0].append((event, arguments))


sys.addaudithook(_watch)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("modules.json", b'[{"type": "subprocess.Popen", "path": ""}]', "names the class 'subprocess.Popen'"),
        ("modules.json", b'[{"type": "modeling_evil.Evil", "path": ""}]', "names the class 'modeling_evil.Evil'"),
        ("modules.json", b'[{"type": "sentence_transformersevil.X"}]', "names the class"),
        ("modules.json", b'[{"type": "sentence_transformers.models.Router", "path": ""}]', "names the class"),
        ("modules.json", b'[{"type": "sentence_transformers.models.WordEmbeddings"}]', "names the class"),
        ("modules.json", b'[{"type": "sentence_transformers.models.Pooling", "path": "../x"}]', "is not in the folder"),
        ("modules.json", b'[{"type": "sentence_transformers.models.Pooling", "path": "/x"}]', "is not in the folder"),
        ("modules.json", b"[5]", "names the class 5"),
        ("modules.json", b"5", "names the class 5"),
        ("modules.json", b"{", "cannot be read"),
        ("modules.json", b"[" * 2_000, "cannot be read"),
        ("pytorch_model.bin", b"\x80\x04.", "pytorch_model.bin is a pickle"),
        ("2_Dense/pytorch_model.bin", b"\x80\x04.", "2_Dense/pytorch_model.bin is a pickle"),
    ],
)
def test_a_model_of_sentences_that_could_run_code_is_refused(
    tmp_path: Path, file: str, content: bytes, said: str
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_bytes(content)
    (tmp_path / "openvino").mkdir()
    (tmp_path / "openvino" / "openvino_model.bin").write_bytes(b"no pickle")
    with pytest.raises(DataError, match=said):
        find_embedder(f"sentence-transformers:{tmp_path}", index_of(), [f"sentence-transformers:{tmp_path}"])


@pytest.mark.parametrize(
    ("activation", "fine"),
    [
        (None, True),
        ("torch.nn.modules.activation.Tanh", True),
        ("torch.nn.modules.linear.Identity", True),
        ("os.system", False),
        ("torch.nn.modules.activation.Tanh.x", False),
        (["torch.nn"], False),
    ],
)
def test_the_activation_of_a_dense_module_is_one_of_torch(tmp_path: Path, activation: object, fine: bool) -> None:
    (tmp_path / "2_Dense").mkdir()
    modules = [{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "2_Dense" / "config.json").write_text(json.dumps({"activation_function": activation}))
    with contextlib.nullcontext() if fine else pytest.raises(DataError, match="not one of torch"):
        check_model_folder(tmp_path)


def test_another_safetensors_file_does_not_excuse_a_pickle(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    (tmp_path / "unrelated.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match="is a pickle"):
        check_model_folder(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    check_model_folder(tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("wordllama") is not None, reason="wordllama is installed")
def test_without_the_packages_there_is_a_hint() -> None:
    with pytest.raises(DataError, match=r"wordllama is not installed: pip install 'querywise\[static\]'"):
        find_embedder("static", index_of(), [])


def test_a_static_table_gives_the_mean_of_the_tokens(tmp_path: Path) -> None:
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({"wing": 0, "dog": 1, "[UNK]": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    save_file({"table": np.array([[1, 0], [0, 3], [0, 0]], np.float16)}, tmp_path / "table.safetensors")

    found = find_embedder(f"static:{tmp_path}", index_of(), [f"static:{tmp_path}"])(["wing dog", "", "dog"])

    assert found.tolist() == [[0.5, 1.5], [0, 0], [0, 3]]


def test_what_an_embedder_gives_is_checked() -> None:
    for given, said in (
        (np.ones((1, 2)), "2 texts became"),
        (np.ones(2), "2 texts became"),
        (np.ones((2, 3)), "vectors of 3 numbers; those before had 2"),
        (np.array([[1.0, 1.0], [np.nan, 1.0]]), "the vector of 'b' has a number that is not finite"),
        (
            np.array([[1.0, 1.0], [3e38, 1.0]]),
            r"the vector of 'b' has 3e\+38 as its largest number; its length must be",
        ),
    ):
        with pytest.raises(DataError, match=said):
            embedded(lambda texts, given=given: given, ["a", "b"], name="ours", dimension=2)


# Behind an address


@pytest.fixture
def service() -> Iterator[Service]:
    with embedding_service() as server:
        yield server


def asking(service: Service, cache: Path, **how: float) -> RemoteEmbedder:
    return RemoteEmbedder(service.address, cache=cache, pause=0.01, **how)  # type: ignore[arg-type]


def test_texts_are_sent_in_batches_and_only_once(service: Service, tmp_path: Path) -> None:
    texts = [f"text {'x' * (place % 70)}" for place in range(150)]

    found = asking(service, tmp_path)([*texts, ""])

    assert found.tolist() == [*([float(len(text)), 1.5] for text in texts), [0, 0]]
    assert [len(batch) for batch in service.asked] == [64, 6]
    assert service.models == ["small", "small"]
    again = asking(service, tmp_path)([texts[5], "new"])
    assert again.tolist() == [[len(texts[5]), 1.5], [3, 1.5]]
    assert service.asked[2:] == [["new"]]


def test_a_service_that_is_late_busy_or_cut_short_is_asked_again(service: Service, tmp_path: Path) -> None:
    service.wrong = ["late", 503, "cut", 429]
    assert asking(service, tmp_path, timeout=0.3)(["abc"]).tolist() == [[3, 1.5]]
    assert len(service.asked) == 5


@pytest.mark.parametrize("how", ["trickle", "trickling headers"])
def test_one_that_sends_a_byte_now_and_then_is_cut_off(service: Service, tmp_path: Path, how: str) -> None:
    service.wrong = [how]
    assert asking(service, tmp_path / "once", deadline=0.4)(["abc"]).tolist() == [[3, 1.5]]
    service.wrong = [how] * 2
    embedder = asking(service, tmp_path / "ever", deadline=0.2, attempts=2)
    told = r"no answer in 2 attempts \(the whole answer did not come within 0\.2 seconds\)"
    with pytest.raises(DataError, match=told):
        embedder(["abc"])


def test_one_that_never_answers_is_given_up_and_nothing_is_lost(service: Service, tmp_path: Path) -> None:
    embedder = asking(service, tmp_path, attempts=2)
    embedder(["a", "b"])
    service.wrong = [500, 500]
    with pytest.raises(DataError, match=r"/v1/embeddings: no answer in 2 attempts \(status 500"):
        embedder(["a", "c"])
    assert asking(service, tmp_path)(["b"]).tolist() == [[1, 1.5]]
    assert service.asked == [["a", "b"], ["c"], ["c"]]


def test_an_address_where_nobody_is_is_named(tmp_path: Path) -> None:
    embedder = RemoteEmbedder("http://127.0.0.1:9/v1/embeddings", cache=tmp_path, attempts=2, pause=0.01)
    with pytest.raises(DataError, match=r"http://127\.0\.0\.1:9/v1/embeddings: no answer in 2 attempts"):
        embedder(["a"])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b'{"data": [{"embedding": [1, 2]}]}', "1 vectors for 2 texts"),
        (b'{"data": [{"embedding": [1, 2]}, {"embedding": [1]}]}', "not what /v1/embeddings gives"),
        (b'{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}', "has the index 0"),
        (b'{"data": [{"embedding": [1, "x"]}, {"embedding": [1, 2]}]}', "not what /v1/embeddings gives"),
        (b'{"data": [{"embedding": [1, NaN]}, {"embedding": [1, 2]}]}', "finite numbers"),
        (b'{"data": [{"embedding": [1, 1e300]}, {"embedding": [1, 2]}]}', "finite numbers"),
        (
            b'{"data": [{"embedding": [1, 2]}, {"embedding": [3e38, 3e38]}]}',
            "the length of vector 1 is out of range: its largest number is 3e",
        ),
        (
            b'{"data": [{"embedding": [1e-45, 0]}, {"embedding": [1, 2]}]}',
            "the length of vector 0 is out of range: its largest number is 1.4013e-45",
        ),
        (b'{"data": [{"embedding": ["1", "2"]}, {"embedding": [1, 2]}]}', "a vector is not a list of numbers"),
        (b'{"data": [{"embedding": [true, 2]}, {"embedding": [1, 2]}]}', "a vector is not a list of numbers"),
        (b'{"data": [{"embedding": null}, {"embedding": null}]}', "a vector is not a list of numbers"),
        (b'{"data": [{"embedding": []}, {"embedding": []}]}', "vectors of 0 numbers"),
        (b'{"error": "no"}', "not what /v1/embeddings gives"),
        (b"[" * 100_000, "not what /v1/embeddings gives"),
        (b"<html>", "not what /v1/embeddings gives"),
    ],
)
def test_an_answer_that_is_short_or_odd_is_refused(service: Service, tmp_path: Path, answer: bytes, said: str) -> None:
    service.wrong = [answer]
    with pytest.raises(DataError, match=said):
        asking(service, tmp_path)(["a", "b"])
    assert list(tmp_path.rglob("*.npy")) == []


def test_vectors_of_another_dimension_than_before_are_refused(service: Service, tmp_path: Path) -> None:
    embedder = asking(service, tmp_path)
    embedder(["a"])
    service.wrong = [b'{"data": [{"embedding": [1, 2, 3]}]}']
    with pytest.raises(DataError, match="vectors of 3 numbers; those before had 2"):
        embedder(["b"])


def test_the_key_is_sent_and_written_nowhere(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "sesame-77")
    service.wrong = [401]
    with pytest.raises(DataError, match=f"status 401: .*Put the key into the environment variable {KEY}") as error:
        asking(service, tmp_path)(["a"])
    assert "sesame" not in str(error.value)
    asking(service, tmp_path)(["a"])
    assert service.keys == ["Bearer sesame-77"] * 2
    assert all(b"sesame" not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert "sesame" not in repr(record_of(asking(service, tmp_path), service.address))


def test_a_key_that_http_cannot_send_is_refused_without_a_word_of_it(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("sesame\nX-Evil: 1", "sésame—77"):
        monkeypatch.setenv(KEY, key)
        with pytest.raises(DataError, match="the value of Authorization has a character that HTTP headers") as error:
            asking(service, tmp_path)(["a"])
        assert "same" not in str(error.value)
    assert service.asked == []


def test_a_redirect_is_not_followed_and_nothing_is_sent_elsewhere(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, "sesame-77")
    with embedding_service() as other:
        service.wrong = [f"{other.address}?key=sesame-77"]
        where = other.address.split("/")[2]
        with pytest.raises(DataError, match=f"status 307, a redirect to {where}, which is not followed") as error:
            asking(service, tmp_path)(["a"])
        assert "sesame" not in str(error.value)
        assert (len(service.asked), other.asked, other.keys) == (1, [], [])


def test_an_answer_larger_than_the_vectors_of_the_texts_is_refused_early(service: Service, tmp_path: Path) -> None:
    asking(service, tmp_path)(["a"])  # now the dimension is known: 2
    service.wrong = ["endless"]
    with pytest.raises(DataError, match=r"/v1/embeddings: the answer has more than \d{5} bytes\."):
        asking(service, tmp_path)(["b"])
    assert len(service.asked) == 2, "it is not asked again"
    assert service.sent < 10_000_000, "only what the buffers of the connection took"
    service.wrong = ["endless"]
    with pytest.raises(DataError, match=r"the answer has more than \d{6} bytes\."):
        asking(service, tmp_path / "new")(["b"])


@pytest.mark.parametrize("answer", [b'{"data": [' + b"[]," * 50_000 + b"0]}", b"[" + b"1," * 200_000 + b"1]"])
def test_an_answer_of_many_small_values_is_refused_before_they_are_made(
    service: Service, tmp_path: Path, answer: bytes
) -> None:
    service.wrong = [answer]
    with pytest.raises(DataError, match="more values than 1 vectors have"):
        asking(service, tmp_path)(["a"])


def test_all_attempts_fit_into_the_time_of_whoever_waits(service: Service, tmp_path: Path) -> None:
    service.wrong = ["late", 503, 503, "late", 503]
    begun = time.monotonic()
    with working_for(Job(begun + 0.6)), pytest.raises(DataError, match="no answer in"):
        RemoteEmbedder(service.address, cache=tmp_path, pause=0.2)(["a"])
    assert time.monotonic() - begun < 2


def test_documents_are_embedded_behind_an_address(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    documents = [*documents_of(), Document("T", "title", "text")]

    made = with_embedded(build_index(documents), documents, service.address)

    vectors = vectors_of(made)
    assert vectors is not None
    assert vectors.titles is not None
    assert vectors.of(np.array([0, 5])).tolist() == [[len(TEXTS[0]), 1.5], [len("title. text"), 1.5]]
    assert vectors.titles.of(np.array([0, 5])).tolist() == [[0, 0], [5, 1.5]]
    assert query_vector(made, "abc", embed=[service.address]).tolist() == [3, 1.5]
    assert query_vector(made, " ", embed=[service.address]).tolist() == [0, 0]


def test_a_service_keeps_the_last_answers_in_memory_alone(service: Service, tmp_path: Path) -> None:
    embedder = asking(service, tmp_path, most=2)
    for text in ("a", "bb", "ccc", "bb", "a"):
        assert embedder([text]).tolist() == [[len(text), 1.5]]
    assert service.asked == [["a"], ["bb"], ["ccc"], ["a"]]
    assert list(tmp_path.iterdir()) == []
    assert embedder(["x", "yy", "zzz", ""])[:, 0].tolist() == [1, 2, 3, 0], "more at once than are kept"


def test_a_damaged_cache_counts_as_not_there(service: Service, tmp_path: Path) -> None:
    asking(service, tmp_path)(["a"])
    kept = next(tmp_path.rglob("*.npy"))
    kept.write_bytes(kept.read_bytes()[:-3])
    (kept.parent / ".half.npy.part").write_bytes(b"x")

    assert asking(service, tmp_path)(["a"]).tolist() == [[1, 1.5]]
    assert service.asked == [["a"], ["a"]]


def _poisoned(folder: Path, texts: list[str], vectors: Floats) -> Path:
    """A file of kept vectors as anybody could write it, with the name that its content asks for."""
    keys = [np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8) for text in texts]
    content = io.BytesIO()
    np.save(content, np.hstack([np.array(keys), vectors.astype("<f4").view(np.uint8)]))
    path = folder / f"{hashlib.sha256(content.getvalue()).hexdigest()[:32]}.npy"
    path.write_bytes(content.getvalue())
    return path


def _kept_folder(service: Service, cache: Path) -> Path:
    """The folder of vectors that were kept of one text."""
    RemoteEmbedder(service.address, cache=cache)(["one"])
    [folder] = cache.iterdir()
    return folder


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 3e38, 1e-45])
def test_kept_vectors_that_are_not_finite_or_of_no_usual_length_count_as_not_there(
    service: Service, tmp_path: Path, number: float
) -> None:
    folder = _kept_folder(service, tmp_path)
    dimension = RemoteEmbedder(service.address, cache=tmp_path)(["one"]).shape[1]
    _poisoned(folder, ["two"], np.full((1, dimension), number))
    before = len(service.asked)
    assert RemoteEmbedder(service.address, cache=tmp_path)(["two"]).tolist() == [[3, 1.5]]
    assert len(service.asked) == before + 1


@pytest.mark.parametrize("most", [None, 10], ids=["on disk", "in memory"])
def test_vectors_of_zeros_are_taken_and_not_kept(service: Service, tmp_path: Path, most: int | None) -> None:
    embedder = RemoteEmbedder(service.address, cache=tmp_path, most=most)
    service.wrong = [b'{"data": [{"embedding": [0, 0]}]}', b'{"data": [{"embedding": [0, 0]}, {"embedding": [1, 2]}]}']
    assert embedder(["one"]).tolist() == [[0, 0]]
    assert embedder(["one", "two"]).tolist() == [[0, 0], [1, 2]]
    assert embedder(["one", "two"]).tolist() == [[3, 1.5], [1, 2]]
    assert service.asked == [["one"], ["one", "two"], ["one"]]


def test_pipes_large_files_and_files_elsewhere_in_a_cache_are_never_read(service: Service, tmp_path: Path) -> None:
    folder = _kept_folder(service, tmp_path / "cache")
    outside = _poisoned(tmp_path, ["two"], np.full((1, 3), 7.0))
    (folder / outside.name).symlink_to(outside)
    os.mkfifo(folder / "pipe.npy")
    (folder / "zero.npy").symlink_to("/dev/zero")
    with (folder / "large.npy").open("wb") as large:
        large.truncate(10**12)
    before = len(service.asked)
    RemoteEmbedder(service.address, cache=tmp_path / "cache")(["one", "two"])
    assert len(service.asked) == before + 1


@pytest.mark.skipif(os.name == "nt", reason="folders have other permissions there")
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o730])
def test_a_cache_that_others_may_write_to_is_not_read(service: Service, tmp_path: Path, mode: int) -> None:
    folder = _kept_folder(service, tmp_path)
    folder.chmod(mode)
    before = len(service.asked)
    with pytest.warns(Hint, match="other users may write to"):
        again = RemoteEmbedder(service.address, cache=tmp_path)
    again(["one"])
    again(["one"])
    assert len(service.asked) == before + 1


def test_lsa_has_as_many_dimensions_as_are_asked_for() -> None:
    index = index_of()
    assert find_embedder("lsa:2", index, [])(TEXTS[:1]).shape == (1, 2)
    assert find_embedder("lsa", index, [])(TEXTS[:1]).shape[1] > 2
    whole, two = (find_embedder(name, index, [])(TEXTS) for name in ("lsa", "lsa:2"))
    np.testing.assert_allclose(np.abs(two), np.abs(whole[:, :2]), atol=1e-6)
    for name in ("lsa:", "lsa:0", "lsa:x", "lsa:5000", "lsa:99999999999", "lsa:-3"):
        with pytest.raises(DataError, match="expected lsa, or lsa:DIMENSION"):
            check_name(name)
    require_allowed("lsa:64")


@pytest.mark.parametrize(
    ("documents", "expected"),
    [(0, 128), (9, 128), (2_559, 128), (2_560, 256), (5_119, 256), (5_120, 512), (6_000, 512), (10_000_000, 512)],
)
def test_lsa_has_a_tenth_of_the_documents_down_to_a_power_of_two(documents: int, expected: int) -> None:
    assert dimension_of("lsa", documents) == expected
    assert dimension_of("lsa:64", documents) == 64
