#!/bin/busybox sh
# run-mpi PROGRAM ARGUMENT...: runs an MPI job with one rank on each of two machines, over their cards by libfabric.
# Data has no other way: the layer `cm` has libfabric only, of which it takes the provider of this project only; one-sided operations are
# messages (`pt2pt`). The component `ofi` of the layer `btl` would open a second endpoint.
export OMPI_MCA_plm_rsh_agent=remote OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi OMPI_MCA_mtl_ofi_provider_include=fpga OMPI_MCA_osc=pt2pt OMPI_MCA_btl=self
export FPGA_CARD=$CARD
exec orterun -n 2 --host 10.0.0.1,10.0.0.2 -x FPGA_CARD -x FI_PROVIDER_PATH -x FI_LOG_LEVEL "$@"
