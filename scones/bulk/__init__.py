"""Large inputs in shards, on this machine or many: `job` plans and does the work, `rows` reads."""
