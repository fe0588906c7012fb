# Constraints template: Alveo U50, part xcu50-fsvh2104-2-e. NOT BUILT BY US. Check every pin against the vendor's file for your board.

set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]
set_operating_conditions -design_power_budget 63

# Slot: 100 MHz reference clock of the 16 lanes (quad 225), and PERST#.
set_property PACKAGE_PIN AF9 [get_ports {pcie_refclk_clk_p[0]}]
set_property PACKAGE_PIN AF8 [get_ports {pcie_refclk_clk_n[0]}]
create_clock -name pcie_refclk -period 10.000 [get_ports {pcie_refclk_clk_p[0]}]
set_property -dict {PACKAGE_PIN AW27 IOSTANDARD LVCMOS18 PULLTYPE PULLUP} [get_ports pcie_reset_n]
set_false_path -from [get_ports pcie_reset_n]

# The board switches off while this pin is high.
set_property -dict {PACKAGE_PIN J18 IOSTANDARD LVCMOS18 PULLTYPE PULLDOWN} [get_ports hbm_cattrip]
set_false_path -to [get_ports hbm_cattrip]
