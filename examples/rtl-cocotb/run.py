"""Builds the design with the runner of cocotb, and runs its test bench.

    python run.py FOLDER LIBRARY

FOLDER contains xdma_0.sv, sampler_registers.sv and fpga_xdma.sv, and receives the model. LIBRARY is libfpga_rtl.a.
"""

import os
import sys
import tempfile
from pathlib import Path

from cocotb.runner import get_runner

HERE = Path(__file__).parent


def main() -> None:
    folder, library = Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute()
    generated = ["sampler_registers.sv", "xdma_0.sv", "fpga_xdma.sv"]
    runner = get_runner("verilator")
    runner.build(
        verilog_sources=[*(folder / name for name in generated), HERE / "sampler.sv"],
        hdl_toplevel="sampler",
        build_dir=folder / "model",
        # The library of fpga_xdma. xdma_0 takes its clock from the test bench; --timing is for what it does without.
        build_args=["--timing", "-Wno-lint", "-CFLAGS", "-O0", str(library), "-LDFLAGS", "-lpthread -ldl -lm"],
    )
    with tempfile.TemporaryDirectory() as sockets:
        # Time always advances: the test bench acts when the host does not.
        os.environ["FPGA_RTL_CLOCK"] = "free"
        os.environ["FPGA_RTL_SOCKET"] = f"{sockets}/card"
        results = runner.test(hdl_toplevel="sampler", test_module="test_sampler", test_dir=HERE, results_xml=f"{folder}/results.xml")
    if "<failure" in Path(results).read_text():
        sys.exit("the test bench failed: see above")


if __name__ == "__main__":
    main()
