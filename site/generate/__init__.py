"""Writes the pages of the site from the sources of the repository, and checks what MkDocs makes of them."""
