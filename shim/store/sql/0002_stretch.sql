-- Pieces of growing texts that stand next to each other in a journal (`first` to `last`), as the few events that they add up to.
-- Only for reading faster: all of it is in `event`, and not every run of pieces has a row here.
CREATE TABLE stretch (
    session_id  TEXT    NOT NULL,
    first       INTEGER NOT NULL,
    last        INTEGER NOT NULL,
    rows        TEXT    NOT NULL,
    PRIMARY KEY (session_id, first)
);
