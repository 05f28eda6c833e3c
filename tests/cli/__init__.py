"""The program `redlock`, driven as people and machines drive it: by shells, terminals, cron, signals and crashes."""
