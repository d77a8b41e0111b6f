"""The texts, images and questions of the mock's scenes."""

from __future__ import annotations

from universal.agents.mock.wire import Frame

PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAAFklEQVR42mOQz39NEmIY1T"
    "CqYfhqAACg0HkQHKvk/AAAAABJRU5ErkJggg=="
)
"""A blue square of 16 x 16 pixels."""

MARKDOWN = """# Markdown

A paragraph with **bold**, *italic*, `code` and a [link](https://example.com).

## Lists

- one
- two
  - two and a half
1. first
2. second

## Table

| name | size |
|---|---:|
| small | 1 |
| large | 1,000 |

## Code

```python
def greet(name: str) -> str:
    return f"Hello, {name}!"
```

> A quotation.
"""

THOUGHTS = (
    "The person wants to see how reasoning looks. ",
    "It comes before the text, in a part of its own. ",
    "It can be long, so a client may fold it. ",
    "Now that this is clear, the answer can be short. ",
)
PLAN = "1. Read the code.\n2. Change it.\n3. Run the tests.\n"
QUESTIONS: tuple[Frame, ...] = (
    {
        "question": "Which colour shall it have?",
        "header": "Colour",
        "options": [
            {"label": "Red", "description": "Like a tomato"},
            {"label": "Green", "description": "Like grass"},
            {"label": "Blue", "description": "Like the sky"},
        ],
    },
    {
        "question": "Which extras do you want?",
        "header": "Extras",
        "multiple": True,
        "options": [
            {"label": "Tests", "description": "A test for each case"},
            {"label": "Docs", "description": "A page in the manual"},
            {"label": "Logs", "description": "A line for each step"},
        ],
    },
)
PLAN_QUESTION: Frame = {
    "question": "Shall I carry out this plan?",
    "header": "Plan",
    "options": [
        {"label": "Yes", "description": "Switch to build and begin"},
        {"label": "No", "description": "Keep planning"},
    ],
}
COMMAND = "git push origin main"
TODOS = ("Look at the code", "Change it", "Run the tests")
