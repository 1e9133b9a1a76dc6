-- Run for a new registry, and for one of version 1 to 3, whose findings were recognised by their line.
ALTER TABLE findings ADD COLUMN category TEXT NOT NULL DEFAULT ''; -- which of the scanner's reports it is from
ALTER TABLE findings ADD COLUMN context BLOB NOT NULL DEFAULT x'';   -- hashes of the content around it, if known
ALTER TABLE files ADD COLUMN sketch BLOB NOT NULL DEFAULT x'';     -- hashes of lines, to recognise a renamed file
