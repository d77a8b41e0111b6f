"""Applying a patch to the working tree, all of it or nothing. The index is not touched, and no file outside is written.

Source: a live OpenCode 1.18.33 (`POST /vcs/apply`: errors, and that a patch which is applied already is refused).
"""

from __future__ import annotations

from shim.errors import PatchRefused
from shim.host import vcs
from shim.host.git import git

SHOWN_CHARS = 2000
"""Of what git says of a patch that does not fit."""


async def apply(directory: str, patch: str) -> None:
    """Raises PatchRefused, which says what git said."""
    top = await vcs.root(directory)
    if top is None:
        raise PatchRefused("non-git", f"Patch can't be applied because the project is not git-based: {directory}")
    if not patch.strip():
        raise PatchRefused("not-clean", "Patch can't be applied: it is empty")
    # git applies everything or nothing, and refuses paths that lead out of the tree or through links.
    said = patch.encode("utf-8", "surrogateescape")
    done = await git(top, "apply", "--whitespace=nowarn", "-", stdin=said)
    if not done.ok:
        said = done.stderr.decode("utf-8", "replace").strip()[:SHOWN_CHARS]
        raise PatchRefused("not-clean", f"Patch can't be applied: {said or 'git took too long'}")
