"""One colour for each language, the same on the terminal and in the picture; and those of the faults in the picture."""

LANGUAGE = {"Rust": "#c2571a", "Python": "#2f6fb0", "Node": "#2e9c5b"}
FAULT = "#b3202c"
FROZEN = "#5b7fa6"
