"""Papers: algorithms of the papers that only experiments use, one package per paper, with their tests.

The ordinary test suite only imports these modules. `make test-papers` runs their tests.
"""
