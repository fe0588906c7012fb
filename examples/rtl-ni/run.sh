#!/bin/sh
# Builds two cards with network interface, sends 256 KiB from one to the other over a network with losses, and shows counters. Arguments are
# plusargs of the simulation, such as +fpga_network=loss=0.05.
set -eu
cd "$(dirname "$0")"
rtl=../../firmware-bindings/rtl
fpgactl rtl build top.sv $rtl/ni/ni_pkg.sv $rtl/ni/fpga_ni.sv $rtl/ni/ni_[!p]*.sv $rtl/reference/ni_card.sv \
    $rtl/reference/card_engines.sv $rtl/reference/axi_crossbar.sv $rtl/reference/axi_ram.sv $rtl/reference/axi_split.sv \
    $rtl/reference/axi_widen.sv $rtl/check/axi_checker.sv $rtl/check/stream_checker.sv --top top --card-file card.yaml -o model
sockets=$(mktemp -d)
fpgactl rtl run model --socket "$sockets/first" +fpga_socket.1="$sockets/second" +fpga_card.1=card.yaml "$@" &
trap 'kill $!; wait; rm -r "$sockets"' EXIT
until [ -S "$sockets/first" ] && [ -S "$sockets/second" ]; do sleep 0.1; done
# An answer takes milliseconds of the host's time: the transfer is given up after 40 s without one instead of after one second.
fpgactl transfer --card vfio-user:"$sockets/first" --peer vfio-user:"$sockets/second" --size 256KiB --round-trip 5s
fpgactl stats --card vfio-user:"$sockets/second"
