"""Vectors from files: three layouts give the same table, and what is wrong with one is said with its place."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from querywise.data.vectors import CollectionVectors, Numbers, as_vectors, read_vectors
from querywise.errors import DataError

IDS = ["D1", "D2", "D3"]
VALUES = np.array([[3.0, 4.0], [0.0, 0.0], [-1.0, 0.5]])


def write_npy(folder: Path, name: str = "documents", values: Numbers = VALUES, ids: list[str] | None = None) -> None:
    np.save(folder / f"{name}.npy", values)
    (folder / f"{name}.json").write_text(json.dumps(IDS if ids is None else ids))


def write_parquet(folder: Path, rows: list[list[float] | None], kind: pa.DataType | None = None) -> None:
    table = {"_id": IDS, "vector": pa.array(rows, kind or pa.list_(pa.float32()))}
    pq.write_table(pa.table(table), folder / "documents.parquet")


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_the_three_layouts_give_the_same_vectors(tmp_path: Path, kind: type[np.float16]) -> None:
    values = VALUES.astype(kind)
    folders = [tmp_path / name for name in ("npy", "beside", "inside", "lists", "fixed")]
    for folder in folders:
        folder.mkdir()
    write_npy(folders[0], values=values)
    save_file({"vectors": values}, folders[1] / "documents.safetensors")
    (folders[1] / "documents.json").write_text(json.dumps(IDS))
    save_file({"any": values}, folders[2] / "documents.safetensors", metadata={"ids": json.dumps(IDS)})
    write_parquet(folders[3], values.astype(float).tolist(), pa.list_(pa.from_numpy_dtype(kind)))
    write_parquet(folders[4], values.astype(float).tolist(), pa.list_(pa.from_numpy_dtype(kind), 2))

    for folder in folders:
        found = read_vectors(folder).documents
        assert found.ids == tuple(IDS)
        assert found.values.dtype == kind
        assert found.values.tolist() == VALUES.tolist()
        assert found.lengths[0] == 5.0
        assert found.zeros == 1
        assert found.of(["D3", "D1"], "x").tolist() == [[-1.0, 0.5], [3.0, 4.0]]


def test_npy_and_safetensors_are_mapped_and_not_read(tmp_path: Path) -> None:
    write_npy(tmp_path)
    save_file({"vectors": VALUES}, tmp_path / "titles.safetensors", metadata={"ids": json.dumps(IDS)})
    found = read_vectors(tmp_path)

    def base(values: NDArray[np.generic]) -> object:
        return base(values.base) if isinstance(values.base, np.ndarray) else values.base

    assert found.titles is not None
    assert type(base(found.documents.values)).__name__ == type(base(found.titles.values)).__name__ == "mmap"


def test_numbers_of_the_other_byte_order_are_read(tmp_path: Path) -> None:
    write_npy(tmp_path, values=VALUES.astype(">f4"))
    assert read_vectors(tmp_path).documents.of(["D1"], "x").tolist() == [[3.0, 4.0]]


def test_whole_numbers_as_ids_are_their_digits(tmp_path: Path) -> None:
    write_npy(tmp_path)
    (tmp_path / "documents.json").write_text("[1, 2, 3]")
    assert read_vectors(tmp_path).documents.ids == ("1", "2", "3")


def bad(values: Numbers = VALUES, ids: list[str] | None = None) -> str:
    with pytest.raises(DataError) as error:
        as_vectors(IDS if ids is None else ids, values, where="v.npy")
    return str(error.value)


def test_a_number_that_is_not_finite_is_named_with_row_id_and_column() -> None:
    values = VALUES.copy()
    values[2, 1] = np.nan
    assert bad(values) == (
        "v.npy: row 3 (document 'D3'), column 2 is nan; every number must be finite. Create it again."
    )


def test_a_vector_too_long_or_too_short_for_products_is_refused() -> None:
    for size in (1e300, 1e30, 1e-30, 1e-300, 5e-324):
        assert "row 1 (document 'D1')" in bad(np.full((3, 2), size))
        assert "Divide all vectors by a constant." in bad(np.full((3, 2), size))


def test_ids_are_as_many_as_rows_and_none_twice() -> None:
    assert "3 rows but 2 ids" in bad(ids=["a", "b"])
    assert "document 'a' has two vectors, in rows 1 and 3" in bad(ids=["a", "b", "a"])


def test_other_types_and_shapes_are_refused() -> None:
    assert "float16, float32 or float64" in bad(np.ones((3, 2), np.int64))
    assert "the shape (3,)" in bad(np.ones(3))
    assert "the shape (3, 0)" in bad(np.ones((3, 0)))


def test_a_missing_vector_is_named() -> None:
    vectors = as_vectors(IDS, VALUES, where="v.npy")
    with pytest.raises(DataError, match=r"v\.npy: 1 of 2 documents in corpus have no vector here; the first is 'D9'"):
        vectors.of(["D1", "D9"], "corpus")


def test_an_unknown_vector_is_named() -> None:
    vectors = as_vectors(IDS, VALUES, where="v.npy")
    with pytest.raises(DataError, match=r"v\.npy: row 2 is the vector of document 'D2', which is not in corpus"):
        vectors.refuse_unknown(["D1", "D3"], "corpus")


def test_documents_and_queries_have_the_same_dimension() -> None:
    documents = as_vectors(IDS, VALUES, where="d.npy")
    queries = as_vectors(["q"], np.ones((1, 3)), where="q.npy", what="query")
    with pytest.raises(DataError, match=r"q\.npy: the vectors have 3 numbers; those of d\.npy have 2"):
        CollectionVectors(documents, queries)


def test_folders_and_files_that_hold_no_vectors_are_refused(tmp_path: Path) -> None:
    def said() -> str:
        with pytest.raises(DataError) as error:
            read_vectors(tmp_path)
        return str(error.value)

    assert "there are no vectors of documents here" in said()
    (tmp_path / "documents.npy").write_bytes(b"")
    assert "documents.npy: the file is empty" in said()
    (tmp_path / "documents.npy").write_bytes(b"nothing like it")
    assert "documents.npy: not a .npy file of numbers" in said()
    np.save(tmp_path / "documents.npy", VALUES)
    content = (tmp_path / "documents.npy").read_bytes()
    (tmp_path / "documents.npy").write_bytes(content.replace(b"(3, 2), }   ", b"(3, True), }"))
    assert "documents.npy: not a .npy file of numbers" in said()
    (tmp_path / "documents.npy").write_bytes(content)
    assert "documents.json: there is no such file. Expected the ids" in said()
    (tmp_path / "documents.json").write_text("[1, ")
    assert "documents.json: this is not JSON" in said()
    (tmp_path / "documents.json").write_text('{"D1": 0}')
    assert "expected the ids as a list" in said()
    (tmp_path / "documents.json").write_text('["D1", null, "D3"]')
    assert "documents.json: id 2 is None" in said()
    content = (tmp_path / "documents.npy").read_bytes()
    (tmp_path / "documents.npy").write_bytes(content[:-8])
    assert "cut short" in said()
    (tmp_path / "documents.safetensors").write_bytes(b"x")
    assert "there is documents.safetensors beside it" in said()
    (tmp_path / "documents.npy").unlink()
    assert "not a safetensors file, or cut short" in said()


@pytest.mark.parametrize(
    "header",
    [
        "[]",
        "{}",
        '{"a": {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 1000]}}',
        '{"a": {"dtype": "I64", "shape": [3, 2], "data_offsets": [0, 24]}}',
        '{"a": {"dtype": "F32", "shape": [-3, 2], "data_offsets": [0, 24]}}',
        '{"a": 7}',
        "{",
    ],
)
def test_a_crafted_safetensors_header_is_refused(tmp_path: Path, header: str) -> None:
    content = len(header).to_bytes(8, "little") + header.encode() + bytes(24)
    (tmp_path / "documents.safetensors").write_bytes(content)
    with pytest.raises(DataError, match=r"documents\.safetensors: "):
        read_vectors(tmp_path)


def test_lists_of_other_lengths_and_missing_ones_are_named_with_their_row(tmp_path: Path) -> None:
    write_parquet(tmp_path, [[1.0, 2.0], [1.0], [1.0, 2.0]])
    with pytest.raises(DataError, match=r"documents\.parquet: row 2 has 1 numbers; the first has 2"):
        read_vectors(tmp_path)
    write_parquet(tmp_path, [[1.0, 2.0], [1.0, 2.0], None])
    with pytest.raises(DataError, match=r"documents\.parquet: row 3 has no vector"):
        read_vectors(tmp_path)
    write_parquet(tmp_path, [[1.0, 2.0], [1.0, None], [1.0, 1.0]])  # type: ignore[list-item]
    with pytest.raises(DataError, match=r"row 2 \(document 'D2'\), column 2 is nan"):
        read_vectors(tmp_path)
    pq.write_table(pa.table({"id": IDS}), tmp_path / "documents.parquet")
    with pytest.raises(DataError, match="there is no column '_id'; expected _id and vector"):
        read_vectors(tmp_path)
    write_parquet(tmp_path, [[1], [2], [3]], pa.list_(pa.int64()))
    with pytest.raises(DataError, match="expected lists of float or double"):
        read_vectors(tmp_path)
