"""Threads of BLAS while threads of ours run."""

from __future__ import annotations

import pytest
from threadpoolctl import ThreadpoolController

from querywise.runtime.threads import one_blas_thread


def threads() -> list[int]:
    return [each.num_threads for each in ThreadpoolController().select(user_api="blas").lib_controllers]


def test_blas_keeps_to_one_thread_inside_the_block_and_has_its_own_again_after_it() -> None:
    before = threads()
    with one_blas_thread():
        assert before
        assert set(threads()) == {1}
        with one_blas_thread():
            assert set(threads()) == {1}
        assert set(threads()) == {1}
    assert threads() == before


def test_blas_has_its_threads_again_after_an_error() -> None:
    before = threads()
    with pytest.raises(ValueError, match="stop"), one_blas_thread():
        raise ValueError("stop")
    assert threads() == before
