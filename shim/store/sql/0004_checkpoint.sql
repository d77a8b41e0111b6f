-- What a session was after the event `sequence` of its journal, so that it is opened without reading what came before. Only for
-- opening faster: a session without a checkpoint, or with one that cannot be read, is made from its journal. `head` and `body` are
-- compressed JSON (`shim.sessions.checkpoints`); a page holds messages that are old.
CREATE TABLE checkpoint (
    session_id  TEXT    NOT NULL PRIMARY KEY,
    sequence    INTEGER NOT NULL,
    head        BLOB    NOT NULL
);
CREATE TABLE checkpoint_page (
    session_id  TEXT    NOT NULL,
    number      INTEGER NOT NULL,
    body        BLOB    NOT NULL,
    PRIMARY KEY (session_id, number)
);
