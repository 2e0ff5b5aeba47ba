"""All-to-all: every rank has something for every other one."""
