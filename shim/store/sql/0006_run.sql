-- Pieces of one text that came together are one row: `first` is the sequence of the first of them, `sequence` that of the last
-- one, and `body` and `raw` have all of them (`shim.store.runs`). Any other event has no `first`. What `stretch` was for, reading
-- fewer rows, these rows do themselves; all of it was in `event` too.
ALTER TABLE event ADD COLUMN first INTEGER;
DROP TABLE stretch;
