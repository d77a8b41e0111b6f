"""The table of Claude Code's tools (2.1.197, 2.1.330 and older) that run, read, write or fetch.

Other tools keep their name, also as a permission: CronCreate, CronDelete, ScheduleWakeup, RemoteTrigger ... Calls that need no
permission are in `universal.claude_code.UNCHECKED`. Source: the tools that both versions offer their model, and `sdk-tools.d.ts`.
"""

from __future__ import annotations

from universal.tools.row import Row

_PATH = {"file_path": "filePath"}

TOOLS: dict[str, Row] = {
    "Read": Row("read", _PATH),
    "Edit": Row("edit", {**_PATH, "old_string": "oldString", "new_string": "newString", "replace_all": "replaceAll"}),
    "MultiEdit": Row("edit", _PATH),
    "Write": Row("write", _PATH),
    "NotebookEdit": Row("edit", {"notebook_path": "filePath", "new_source": "newString"}),
    "Bash": Row("bash"),
    "PowerShell": Row("bash"),
    "Monitor": Row("bash", permission="monitor"),
    "EnterWorktree": Row("EnterWorktree", permission="bash"),
    "ExitWorktree": Row("ExitWorktree", permission="bash"),
    "Glob": Row("glob"),
    "Grep": Row("grep", {"glob": "include"}),
    "LS": Row("list"),
    "NotebookRead": Row("read", {"notebook_path": "filePath"}),
    "LSP": Row("lsp", permission="read"),
    "ReadMcpResource": Row("ReadMcpResource", permission="mcp_resource"),
    "ReadMcpResourceTool": Row("ReadMcpResourceTool", permission="mcp_resource"),
    "ListMcpResources": Row("ListMcpResources", permission="mcp_resource"),
    "ListMcpResourcesTool": Row("ListMcpResourcesTool", permission="mcp_resource"),
    "WebFetch": Row("webfetch"),
    "WebSearch": Row("websearch"),
    "TodoWrite": Row("todowrite"),
    "TaskCreate": Row("todowrite", changes=True),
    "TaskUpdate": Row("todowrite", changes=True),
    "TaskList": Row("todowrite", changes=True),
    "TaskGet": Row("todowrite", changes=True),
    "Agent": Row("task"),
    "Task": Row("task"),
    "SendMessage": Row("SendMessage", permission="task"),
    "TeamCreate": Row("TeamCreate", permission="task"),
    "Workflow": Row("Workflow", permission="task"),
    "AskUserQuestion": Row("question"),
    "Skill": Row("skill", {"skill": "name"}),
    "SlashCommand": Row("skill", {"command": "name"}),
    "ExitPlanMode": Row("plan_exit"),
}
