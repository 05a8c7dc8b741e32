from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mutcanon._patch import Patch, Site
from mutcanon.errors import VersionError


def stock(x: int) -> int:
    return x


@pytest.fixture
def owner() -> Any:
    return SimpleNamespace(__name__="somebody", function=stock)


@pytest.fixture
def patch(owner: Any) -> Patch:
    def replacement(original: Any, x: int) -> int:
        return original(x) + 100

    return Patch(lambda: Site(owner, "function", lambda f: f is stock), replacement)


def test_nothing_is_replaced_before_and_after(owner: Any, patch: Patch) -> None:
    assert owner.function is stock
    with patch.here():
        assert owner.function(1) == 101
    assert owner.function is stock


def test_it_nests(owner: Any, patch: Patch) -> None:
    with patch.here():
        with patch.here():
            assert owner.function(1) == 101
        assert owner.function(1) == 101
    assert owner.function is stock


def test_it_is_undone_after_an_error(owner: Any, patch: Patch) -> None:
    with pytest.raises(ZeroDivisionError), patch.here():
        raise ZeroDivisionError
    assert owner.function is stock


def test_the_replacement_may_call_the_function_it_replaces(owner: Any) -> None:
    def replacement(original: Any, x: int) -> int:
        return owner.function(x) + 100

    patch = Patch(lambda: Site(owner, "function", lambda f: f is stock), replacement)
    with patch.here():
        assert owner.function(1) == 101


def test_other_threads_see_the_stock_function(owner: Any, patch: Patch) -> None:
    seen: list[int] = []
    with patch.here():
        thread = threading.Thread(target=lambda: seen.append(owner.function(1)))
        thread.start()
        thread.join()
        assert owner.function(1) == 101
    assert seen == [1]


def test_two_threads_overlap(owner: Any, patch: Patch) -> None:
    inside, leave = threading.Event(), threading.Event()
    seen: list[int] = []

    def other() -> None:
        with patch.here():
            inside.set()
            leave.wait(10)
            seen.append(owner.function(1))

    thread = threading.Thread(target=other)
    with patch.here():
        thread.start()
        assert inside.wait(10)
    assert owner.function is not stock, "the other thread still holds it"
    assert owner.function(1) == 1, "this one asked for nothing any more"
    leave.set()
    thread.join()
    assert seen == [101]
    assert owner.function is stock


def test_enabled_everywhere(owner: Any, patch: Patch) -> None:
    seen: list[int] = []
    patch.enable()
    thread = threading.Thread(target=lambda: seen.append(owner.function(1)))
    thread.start()
    thread.join()
    patch.disable()
    assert seen == [101]
    assert owner.function is stock


def test_an_unknown_function_is_refused(owner: Any, patch: Patch) -> None:
    owner.function = lambda x: x
    with pytest.raises(VersionError, match=r"somebody\.function is") as error, patch.here():
        pass
    assert error.value.code == "unknown_function"


def test_a_patch_on_top_of_ours_survives(owner: Any, patch: Patch) -> None:
    with patch.here():
        ours = owner.function
        owner.function = lambda x: ours(x) + 1
    assert owner.function(1) == 2
