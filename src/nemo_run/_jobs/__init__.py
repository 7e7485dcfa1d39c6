"""What is remembered of submitted jobs: records, states, lines of logs, and what 0.12 kept."""
