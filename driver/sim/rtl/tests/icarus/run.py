"""Builds a test bench with Icarus Verilog, and runs its cocotb tests.

    python run.py BENCH FOLDER RTL [RECORD]

BENCH is checker or replay, FOLDER receives the model, RTL is firmware-bindings/rtl, RECORD a record to replay.
"""

import os
import sys
from pathlib import Path

from cocotb.runner import get_runner

HERE = Path(__file__).parent
SOURCES = {
    "checker": ["check/axi_checker.sv"],
    "replay": ["check/axi_checker.sv", "reference/reference_registers.sv", "xdma/fpga_replay.sv", "xdma/fpga_xdma.sv"],
}


def main() -> None:
    bench, folder, rtl = sys.argv[1], Path(sys.argv[2]).absolute(), Path(sys.argv[3]).absolute()
    plusargs = []
    if len(sys.argv) > 4:
        os.environ["RECORD"] = sys.argv[4]
        plusargs = [f"+fpga_replay={sys.argv[4]}", "+fpga_replay_finish=0"]
    runner = get_runner("icarus")
    runner.build(
        verilog_sources=[*(rtl / name for name in SOURCES[bench]), HERE / f"{bench}_bench.sv"],
        hdl_toplevel=f"{bench}_bench",
        build_dir=folder,
        defines={"FPGA_REPLAY": 1},
        build_args=["-g2012"],
        timescale=("1ps", "1ps"),
        always=True,
    )
    results = runner.test(
        hdl_toplevel=f"{bench}_bench", test_module=f"test_{bench}", test_dir=HERE, plusargs=plusargs, results_xml=f"{folder}/results.xml"
    )
    if "<failure" in Path(results).read_text():
        sys.exit("the test bench failed: see above")


if __name__ == "__main__":
    main()
