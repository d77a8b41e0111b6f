"""Git: repositories, worktrees, snapshots, and the projects that they are."""
