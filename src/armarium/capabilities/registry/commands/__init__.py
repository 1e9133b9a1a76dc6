"""`armarium registry`: files, findings, issues and scanner reports from the command line."""
