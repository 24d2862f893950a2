"""The page on runs, live and past: what is measured, beside what is predicted, and what to do about it."""
