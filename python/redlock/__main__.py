"""`python -m redlock` is the program `redlock`."""

from redlock._command_line import main

if __name__ == "__main__":
    main()
