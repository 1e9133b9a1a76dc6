-- name: create_threads
CREATE TABLE IF NOT EXISTS threads (
    id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    selection TEXT NOT NULL,             -- JSON: arguments for the tool that answers
    created_at TEXT NOT NULL,
    changed_at TEXT NOT NULL
) WITHOUT ROWID

-- name: create_threads_by_change
CREATE INDEX IF NOT EXISTS threads_by_change ON threads (changed_at, id)

-- name: create_messages
-- AUTOINCREMENT: the id of a deleted message is not used again, because addresses name it.
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    thread_id TEXT NOT NULL,
    at TEXT NOT NULL,
    question TEXT NOT NULL,
    selection TEXT NOT NULL,
    status TEXT NOT NULL,                -- unanswered | answered | failed
    tool TEXT,
    answer TEXT                          -- JSON: the answer, or the error
)

-- name: create_messages_by_thread
CREATE INDEX IF NOT EXISTS messages_by_thread ON messages (thread_id, id)

-- name: list_threads
SELECT id, title, selection, created_at, changed_at FROM threads
WHERE (changed_at, id) < (?, ?) ORDER BY changed_at DESC, id DESC LIMIT ?

-- name: thread
SELECT id, title, selection, created_at, changed_at FROM threads WHERE id = ?

-- name: count_threads
SELECT count(*) FROM threads

-- name: put_thread
INSERT INTO threads (id, title, selection, created_at, changed_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET title = excluded.title, selection = excluded.selection, changed_at = excluded.changed_at

-- name: delete_thread
DELETE FROM threads WHERE id = ?

-- name: delete_messages
DELETE FROM messages WHERE thread_id = ?

-- name: count_messages
SELECT count(*) FROM messages WHERE thread_id = ?

-- name: list_messages
-- The newest before one, newest first.
SELECT id, at, question, selection, status, tool, answer FROM messages
WHERE thread_id = ? AND id < ? ORDER BY id DESC LIMIT ?

-- name: earlier_questions
SELECT question FROM messages WHERE thread_id = ? ORDER BY id DESC LIMIT ?

-- name: add_message
INSERT INTO messages (thread_id, at, question, selection, status) VALUES (?, ?, ?, ?, 'unanswered') RETURNING id

-- name: answer_message
-- The thread may have been deleted meanwhile.
UPDATE messages SET status = ?, tool = ?, answer = ? WHERE id = ?
