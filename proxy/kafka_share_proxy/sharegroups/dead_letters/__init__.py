"""Dead letters: records that failed, written to a topic of their own (sharegroups/README.md rules 85-94)."""
