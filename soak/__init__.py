"""Attempts to break dgmark from outside: real processes, real files, kills, races, bombs and fuzzed inputs."""
