"""Builds the network interface with Icarus Verilog, and runs the cocotb tests of its ports.

    python run.py FOLDER SOURCES [SEED]

FOLDER receives the model, SOURCES is firmware-bindings/rtl/ni.
"""

import os
import sys
from pathlib import Path

from cocotb.runner import get_runner

HERE = Path(__file__).parent


def main() -> None:
    folder, sources = Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute()
    os.environ["RANDOM_SEED"] = sys.argv[3] if len(sys.argv) > 3 else "1"
    # Bytes that were never written; the bench refuses other unknown signals.
    os.environ["COCOTB_RESOLVE_X"] = "RANDOM"
    package = sources / "ni_pkg.sv"
    runner = get_runner("icarus")
    runner.build(
        verilog_sources=[package, *sorted(set(sources.glob("*.sv")) - {package}), HERE / "ni_ports_bench.sv"],
        hdl_toplevel="ni_ports_bench",
        build_dir=folder,
        build_args=["-g2012"],
        timescale=("1ns", "1ps"),
        always=True,
    )
    results = runner.test(
        hdl_toplevel="ni_ports_bench", test_module="test_ni_ports", test_dir=HERE, results_xml=f"{folder}/results.xml"
    )
    if "<failure" in Path(results).read_text():
        sys.exit("the test bench failed: see above")


if __name__ == "__main__":
    main()
