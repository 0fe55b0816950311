"""Show: pictures, and the report. They draw what `explain` and `evaluate` say."""
