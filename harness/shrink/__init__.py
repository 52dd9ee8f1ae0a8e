"""`prozess shrink`: from a run that was violated to the smallest plan found that still is, and how often it is.

`smaller`: plans with less in them. `reduce`: which of them to try. `chance`: how often to try each. `search`: both together.
Pure; only `runner` and `command` touch processes and files.
"""
