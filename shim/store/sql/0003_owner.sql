-- Which server a session belongs to, and the order in which sessions were stored: `version` grows with each change of a session,
-- so that another server reads only what is new. A row whose session is gone says that it was deleted.
CREATE TABLE session_owner (
    session_id  TEXT    NOT NULL PRIMARY KEY,
    server      TEXT    NOT NULL,
    version     INTEGER NOT NULL
);
CREATE INDEX session_owner_version ON session_owner (version);
