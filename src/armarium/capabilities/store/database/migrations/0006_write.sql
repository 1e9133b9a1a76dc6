-- Nothing: the function of a write, which databases may have from here, is in 0017. An empty statement has no status,
-- which the driver needs.
SELECT TRUE;
