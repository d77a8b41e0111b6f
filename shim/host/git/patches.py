"""Applies a patch to the working tree, completely or not at all. It changes neither the index nor any file outside.

Source: a live OpenCode 1.18.33 (`POST /vcs/apply`: its errors, and its refusal of a patch that was applied before).
"""

from __future__ import annotations

from shim.host.git import vcs
from shim.host.git.git_command import git
from shim.lib.errors import PatchRefused

SHOWN_CHARS = 2000
"""Maximum characters of git's message that are shown."""


async def apply(directory: str, patch: str) -> None:
    """Apply a patch. Raises PatchRefused with git's message."""
    top = await vcs.root(directory)
    if top is None:
        raise PatchRefused("non-git", f"Patch can't be applied because the project is not git-based: {directory}")
    if not patch.strip():
        raise PatchRefused("not-clean", "Patch can't be applied: it is empty")
    # git applies everything or nothing, and refuses paths that lead out of the tree or through links.
    result = await git(top, "apply", "--whitespace=nowarn", "-", stdin=patch.encode("utf-8", "surrogateescape"))
    if not result.ok:
        message = result.stderr.decode("utf-8", "replace").strip()[:SHOWN_CHARS]
        raise PatchRefused("not-clean", f"Patch can't be applied: {message or 'git took too long'}")
