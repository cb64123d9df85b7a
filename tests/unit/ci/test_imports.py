"""Files of the tuner, unlike import-linter's contracts, which are about packages."""

from __future__ import annotations

from graphlib import TopologicalSorter

import grimp


def test_no_file_imports_itself_by_way_of_others() -> None:
    """Those that are imported inside functions count as well; the error names the circle."""
    graph = grimp.build_graph("tuner", cache_dir=None)
    imports = {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}
    in_order = list(TopologicalSorter(imports).static_order())
    assert in_order.index("tuner.errors") < in_order.index("tuner.programs.run.run")
