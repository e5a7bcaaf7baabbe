"""A job's folder on this machine is its user's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from statefulspark.errors import InvalidInputError
from statefulspark.storage.local.private_folder import check_private, make_private

OTHER = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints" / "clicks"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o755)
    folder.chmod(0o755)
    return folder


def test_missing_folders_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    """Also when the umask would let others read."""
    folder = tmp_path / "home" / "checkpoints" / "clicks"
    check_private(folder)
    before = os.umask(0)
    try:
        make_private(folder)
    finally:
        os.umask(before)
    made = (folder, folder.parent, folder.parent.parent)
    assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [0o700] * 3
    make_private(folder)


def test_an_existing_folder_stays_as_it_is(folder: Path) -> None:
    make_private(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


@pytest.mark.parametrize("which", ["folder", "parent"])
def test_a_folder_that_all_may_write_is_refused(folder: Path, which: str) -> None:
    """Whoever may write the one above may put another one in its place."""
    (folder if which == "folder" else folder.parent).chmod(0o777)
    with pytest.raises(InvalidInputError, match=r"checkpointing\.dir.*--shared-dir"):
        check_private(folder)


def test_the_sticky_bit_protects_what_is_below(folder: Path) -> None:
    """As that of /tmp; on the job's own folder it would let others add files."""
    folder.parent.chmod(0o1777)
    check_private(folder)
    folder.chmod(0o1777)
    with pytest.raises(InvalidInputError):
        check_private(folder)


@needs_root
@pytest.mark.parametrize("which", ["folder", "parent"])
def test_a_folder_of_another_user_is_refused(folder: Path, which: str) -> None:
    os.chown(folder if which == "folder" else folder.parent, OTHER, OTHER)
    with pytest.raises(InvalidInputError, match="belongs to another user"):
        check_private(folder)


@needs_root
def test_a_link_of_another_user_is_refused(folder: Path) -> None:
    """Its owner can point it elsewhere at any time."""
    link = folder.parent / "linked"
    link.symlink_to(folder)
    check_private(link)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(InvalidInputError, match="belongs to another user"):
        check_private(link)


@needs_root
def test_a_group_may_write_only_if_it_is_the_user_s_own(folder: Path) -> None:
    folder.chmod(0o775)
    check_private(folder)
    os.chown(folder, -1, OTHER)
    with pytest.raises(InvalidInputError, match="may write"):
        check_private(folder)
