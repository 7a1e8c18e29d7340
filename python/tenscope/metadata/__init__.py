"""How a run was made: command, environment, packages, git state, patches at run time.

Collected at `init` by rank 0, off the caller's path; see `store.MetadataStore`.
"""
