"""The paper's experiments: run, stored, judged and reported, from a checkout of the repository."""
