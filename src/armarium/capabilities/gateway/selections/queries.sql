-- name: create_table
CREATE TABLE IF NOT EXISTS selections (
    username TEXT NOT NULL,
    session TEXT NOT NULL,
    selection TEXT NOT NULL,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (username, session)
) WITHOUT ROWID

-- name: read
-- The selection of a session and, as session '', the caller's default.
SELECT session, selection FROM selections WHERE username = ? AND session IN (SELECT value FROM json_each(?))

-- name: write
INSERT INTO selections (username, session, selection, changed_at)
VALUES (?, ?, ?, (SELECT coalesce(max(changed_at), 0) + 1 FROM selections WHERE username = ?1))
ON CONFLICT (username, session) DO UPDATE SET selection = excluded.selection, changed_at = excluded.changed_at

-- name: remove_oldest
-- Sessions end without notice, so the oldest make room. The default stays.
DELETE FROM selections WHERE username = ?1 AND session IN (
    SELECT session FROM selections WHERE username = ?1 AND session != '' ORDER BY changed_at DESC LIMIT -1 OFFSET ?2
)

-- name: delete
DELETE FROM selections WHERE username = ? AND session = ?
