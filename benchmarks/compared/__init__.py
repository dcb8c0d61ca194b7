"""One refund, written in five ways, under five kinds of test: see ../comparison.py."""
