# Block design of a card with the network interface, for Vivado 2019.1 or newer:
#
#   vivado -mode batch -source ni_design.tcl
#
# XDMA, AXI CDMA, memory and fpga_ni behind one switch; registers behind another. parameters.tcl, written by `fpgactl rtl board`, has the
# numbers; it sets every variable of the namespace `card` that is used here. NOT BUILT BY US: this project has no vendor tools. Tested: the
# script runs to its end with stand-ins for Vivado's commands, and connects every port of fpga_ni.

set folder [file dirname [file normalize [info script]]]
source [file join $folder parameters.tcl]

proc cell {name vlnv {settings {}}} {
    create_bd_cell -type ip -vlnv $vlnv $name
    if {[llength $settings] > 0} {
        set_property -dict $settings [get_bd_cells $name]
    }
}

# Connects an output pin to input pins.
proc wire {from args} {
    foreach to $args {
        connect_bd_net [get_bd_pins $from] [get_bd_pins $to]
    }
}

proc bus {from to} {
    connect_bd_intf_net [get_bd_intf_pins $from] [get_bd_intf_pins $to]
}

# Maps a slave segment into the address space of a master.
proc place {segment master offset range} {
    assign_bd_address -offset $offset -range $range -target_address_space [get_bd_addr_spaces $master] [get_bd_addr_segs $segment] -force
}

create_project $card::project [file join $folder vivado] -part $card::part -force
add_files [glob [file join $folder rtl *.sv] [file join $folder rtl *.v]]
add_files -fileset constrs_1 [file join $folder $card::constraints]
create_bd_design ni_design

# PCI Express. The reference clock of the slot passes a buffer of the transceivers.
create_bd_intf_port -mode Slave -vlnv xilinx.com:interface:diff_clock_rtl:1.0 pcie_refclk
set_property CONFIG.FREQ_HZ 100000000 [get_bd_intf_ports pcie_refclk]
create_bd_port -dir I -type rst pcie_reset_n
set_property CONFIG.POLARITY ACTIVE_LOW [get_bd_ports pcie_reset_n]
create_bd_intf_port -mode Master -vlnv xilinx.com:interface:pcie_7x_mgt_rtl:1.0 pcie
cell refclk_buffer xilinx.com:ip:util_ds_buf {CONFIG.C_BUF_TYPE IBUFDSGTE}
cell xdma xilinx.com:ip:xdma [list \
    CONFIG.mode_selection Advanced \
    CONFIG.pl_link_cap_max_link_width $card::link_width \
    CONFIG.pl_link_cap_max_link_speed $card::link_speed \
    CONFIG.axi_data_width ${card::data_width}_bit \
    CONFIG.axisten_freq $card::clock_mhz \
    CONFIG.xdma_axi_intf_mm AXI_Memory_Mapped \
    CONFIG.xdma_rnum_chnl $card::h2c_channels \
    CONFIG.xdma_wnum_chnl $card::c2h_channels \
    CONFIG.xdma_num_usr_irq 16 \
    CONFIG.axilite_master_en true \
    CONFIG.axilite_master_scale Kilobytes \
    CONFIG.axilite_master_size 128 \
    CONFIG.pf0_msix_enabled true \
    CONFIG.vendor_id $card::vendor \
    CONFIG.pf0_device_id $card::device \
    CONFIG.pf0_subsystem_vendor_id $card::subsystem_vendor \
    CONFIG.pf0_subsystem_id $card::subsystem_device]
connect_bd_intf_net [get_bd_intf_ports pcie_refclk] [get_bd_intf_pins refclk_buffer/CLK_IN_D]
connect_bd_intf_net [get_bd_intf_pins xdma/pcie_mgt] [get_bd_intf_ports pcie]
connect_bd_net [get_bd_ports pcie_reset_n] [get_bd_pins xdma/sys_rst_n]
if {$card::has_gt_clock} {
    wire refclk_buffer/IBUF_OUT xdma/sys_clk_gt
    wire refclk_buffer/IBUF_DS_ODIV2 xdma/sys_clk
} else {
    wire refclk_buffer/IBUF_OUT xdma/sys_clk
}
set clock xdma/axi_aclk
set reset xdma/axi_aresetn

# Memory, CDMA and the network interface. fpga_ni_bd is the Verilog wrapper that block designs need around SystemVerilog.
cell memory xilinx.com:ip:axi_bram_ctrl [list CONFIG.DATA_WIDTH $card::data_width CONFIG.SINGLE_PORT_BRAM 1]
cell memory_blocks xilinx.com:ip:blk_mem_gen
cell cdma xilinx.com:ip:axi_cdma [list \
    CONFIG.C_INCLUDE_SG 1 \
    CONFIG.C_INCLUDE_DRE 1 \
    CONFIG.C_ADDR_WIDTH 64 \
    CONFIG.C_M_AXI_DATA_WIDTH $card::data_width \
    CONFIG.C_M_AXI_MAX_BURST_LEN 64]
create_bd_cell -type module -reference fpga_ni_bd ni
set_property -dict [list \
    CONFIG.BUS $card::data_width \
    CONFIG.PACKET_LOG2 $card::packet_log2 \
    CONFIG.MASK_BITS $card::mask_bits \
    CONFIG.ENTRIES $card::registry_entries \
    CONFIG.ESCAPE_SLOTS $card::escape_slots \
    CONFIG.MEMORY_WINDOWS $card::memory_windows \
    CONFIG.WINDOWS $card::windows \
    CONFIG.WINDOW_BASE $card::window_base \
    CONFIG.MEMORY_SIZE $card::memory_size \
    CONFIG.CDMA_OFFSET $card::cdma_offset \
    CONFIG.NODE_ID $card::node_id \
    CONFIG.CLOCK_NS [expr {1000 / $card::clock_mhz}]] [get_bd_cells ni]
bus memory/BRAM_PORTA memory_blocks/BRAM_PORTA

cell memory_switch xilinx.com:ip:smartconnect {CONFIG.NUM_SI 4 CONFIG.NUM_MI 2}
bus xdma/M_AXI memory_switch/S00_AXI
bus cdma/M_AXI memory_switch/S01_AXI
bus cdma/M_AXI_SG memory_switch/S02_AXI
bus ni/m_axi memory_switch/S03_AXI
bus memory_switch/M00_AXI memory/S_AXI
bus memory_switch/M01_AXI ni/s_axi
cell register_switch xilinx.com:ip:smartconnect {CONFIG.NUM_SI 1 CONFIG.NUM_MI 2}
bus xdma/M_AXI_LITE register_switch/S00_AXI
bus register_switch/M00_AXI ni/s_axil
bus register_switch/M01_AXI cdma/S_AXI_LITE

# The network. `loopback`: the card reaches itself. `external`: AXI4-Stream ports of the block design, for a MAC.
if {$card::network eq "loopback"} {
    cell loopback xilinx.com:ip:axis_data_fifo {CONFIG.FIFO_DEPTH 512 CONFIG.HAS_TKEEP 1 CONFIG.HAS_TLAST 1}
    bus ni/m_axis loopback/S_AXIS
    bus loopback/M_AXIS ni/s_axis
    wire $clock loopback/s_axis_aclk
    wire $reset loopback/s_axis_aresetn
} else {
    create_bd_intf_port -mode Master -vlnv xilinx.com:interface:axis_rtl:1.0 network_tx
    create_bd_intf_port -mode Slave -vlnv xilinx.com:interface:axis_rtl:1.0 network_rx
    connect_bd_intf_net [get_bd_intf_pins ni/m_axis] [get_bd_intf_ports network_tx]
    connect_bd_intf_net [get_bd_intf_ports network_rx] [get_bd_intf_pins ni/s_axis]
}

wire $clock memory/s_axi_aclk memory_switch/aclk register_switch/aclk cdma/m_axi_aclk cdma/s_axi_lite_aclk ni/clk
wire $reset memory/s_axi_aresetn memory_switch/aresetn register_switch/aresetn cdma/s_axi_lite_aresetn ni/rst_n

# User interrupts: line 0 is that of the CDMA, the others are chosen by the network interface.
cell zeros xilinx.com:ip:xlconstant {CONFIG.CONST_WIDTH 15 CONFIG.CONST_VAL 0}
cell cdma_line xilinx.com:ip:xlconcat {CONFIG.NUM_PORTS 2 CONFIG.IN0_WIDTH 1 CONFIG.IN1_WIDTH 15}
cell lines xilinx.com:ip:util_vector_logic {CONFIG.C_OPERATION or CONFIG.C_SIZE 16}
wire cdma/cdma_introut cdma_line/In0
wire zeros/dout cdma_line/In1
wire cdma_line/dout lines/Op1
wire ni/usr_irq_req lines/Op2
wire lines/Res xdma/usr_irq_req

# Boards with high-bandwidth memory switch off while this pin is high.
if {$card::has_cattrip} {
    create_bd_port -dir O hbm_cattrip
    cell no_cattrip xilinx.com:ip:xlconstant {CONFIG.CONST_WIDTH 1 CONFIG.CONST_VAL 0}
    connect_bd_net [get_bd_pins no_cattrip/dout] [get_bd_ports hbm_cattrip]
}

# One map for all masters, as the driver assumes.
foreach master {xdma/M_AXI cdma/Data cdma/Data_SG ni/m_axi} {
    place memory/S_AXI/Mem0 $master 0 $card::memory_size
}
foreach master {xdma/M_AXI cdma/Data} {
    place ni/s_axi/reg0 $master $card::window_base $card::window_range
}
place ni/s_axil/reg0 xdma/M_AXI_LITE 0 64K
place cdma/S_AXI_LITE/Reg xdma/M_AXI_LITE $card::cdma_offset 4K

validate_bd_design
save_bd_design
make_wrapper -files [get_files ni_design.bd] -top
add_files -norecurse [glob [file join $folder vivado $card::project.* sources_1 bd ni_design hdl ni_design_wrapper.v]]
set_property top ni_design_wrapper [current_fileset]
launch_runs impl_1 -to_step write_bitstream -jobs 4
wait_on_run impl_1
