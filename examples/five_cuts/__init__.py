"""An agent reserves a spare part; orchestrator and warehouse each have a database of their own."""
