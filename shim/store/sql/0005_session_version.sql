-- The owner and the version of a session are columns of its row: one table and one index less to write for each session and turn.
-- `server` is the server that a session belongs to, or empty. `version` grows with each change of any session, so that another
-- server reads only what is new. A deletion has a version too.
ALTER TABLE session ADD COLUMN server TEXT NOT NULL DEFAULT '';
ALTER TABLE session ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
UPDATE session SET (server, version) = (SELECT server, version FROM session_owner WHERE session_id = id)
WHERE id IN (SELECT session_id FROM session_owner);
CREATE INDEX session_version ON session (version);
CREATE TABLE deleted_session (
    version     INTEGER NOT NULL PRIMARY KEY,
    session_id  TEXT    NOT NULL,
    server      TEXT    NOT NULL
);
INSERT INTO deleted_session (version, session_id, server)
SELECT version, session_id, server FROM session_owner WHERE session_id NOT IN (SELECT id FROM session);
DROP TABLE session_owner;
