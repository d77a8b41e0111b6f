-- Sessions, their journals, and small values. Times are epoch milliseconds, JSON is text.
CREATE TABLE session (
    id          TEXT    NOT NULL PRIMARY KEY,
    directory   TEXT    NOT NULL,
    project_id  TEXT    NOT NULL,
    parent_id   TEXT,
    created_ms  INTEGER NOT NULL,
    updated_ms  INTEGER NOT NULL,
    data        TEXT    NOT NULL
);

-- The journal. `body` is the event without what has a column of its own here; `raw` is the agent's own payload.
CREATE TABLE event (
    session_id  TEXT    NOT NULL,
    sequence    INTEGER NOT NULL,
    event_id    TEXT    NOT NULL,
    time        TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    source      TEXT    NOT NULL,
    body        TEXT    NOT NULL,
    raw         TEXT,
    PRIMARY KEY (session_id, sequence)
);

CREATE TABLE value (
    namespace   TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    value       TEXT    NOT NULL,
    PRIMARY KEY (namespace, key)
);
