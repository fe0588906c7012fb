# Constraints template: KC705, part xc7k325tffg900-2. NOT BUILT BY US. Check every pin against the vendor's file for your board.

set_property CFGBVS VCCO [current_design]
set_property CONFIG_VOLTAGE 2.5 [current_design]
set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]

# Slot: 100 MHz reference clock, and PERST#.
set_property PACKAGE_PIN U8 [get_ports {pcie_refclk_clk_p[0]}]
set_property PACKAGE_PIN U7 [get_ports {pcie_refclk_clk_n[0]}]
create_clock -name pcie_refclk -period 10.000 [get_ports {pcie_refclk_clk_p[0]}]
set_property -dict {PACKAGE_PIN G25 IOSTANDARD LVCMOS25 PULLTYPE PULLUP} [get_ports pcie_reset_n]
set_false_path -from [get_ports pcie_reset_n]
