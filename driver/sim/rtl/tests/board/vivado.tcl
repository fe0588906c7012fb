# Stand-ins for the commands of Vivado that ni_design.tcl uses: they check names, and record what is connected and mapped. Arguments: the
# script, and a file for the record.

set cells [dict create]
set ports [dict create]
set connected [list]
set mapped [list]
set properties [dict create]

# Interfaces and pins of the cells, by IP or module.
set interfaces {
    util_ds_buf {CLK_IN_D} xdma {pcie_mgt M_AXI M_AXI_LITE} axi_cdma {M_AXI M_AXI_SG S_AXI_LITE} axi_bram_ctrl {S_AXI BRAM_PORTA}
    blk_mem_gen {BRAM_PORTA} smartconnect {S00_AXI S01_AXI S02_AXI S03_AXI M00_AXI M01_AXI} axis_data_fifo {S_AXIS M_AXIS}
    fpga_ni_bd {s_axil s_axi m_axi s_axis m_axis}
}
set pins {
    util_ds_buf {IBUF_OUT IBUF_DS_ODIV2} xdma {sys_clk sys_clk_gt sys_rst_n axi_aclk axi_aresetn usr_irq_req}
    axi_cdma {cdma_introut m_axi_aclk s_axi_lite_aclk s_axi_lite_aresetn} axi_bram_ctrl {s_axi_aclk s_axi_aresetn}
    smartconnect {aclk aresetn} axis_data_fifo {s_axis_aclk s_axis_aresetn} xlconstant {dout} xlconcat {In0 In1 dout}
    util_vector_logic {Op1 Op2 Res} fpga_ni_bd {clk rst_n usr_irq_req}
}

proc kind {cell} {
    if {![dict exists $::cells $cell]} { error "there is no cell $cell" }
    dict get $::cells $cell
}
proc checked {table what path} {
    lassign [split $path /] cell name
    set kind [kind $cell]
    if {![dict exists $table $kind] || $name ni [dict get $table $kind]} { error "$what $path does not exist on $kind" }
    return $path
}
proc port {name} {
    if {![dict exists $::ports $name]} { error "there is no port $name" }
    return $name
}
proc create_bd_cell {args} {
    set name [lindex $args end]
    if {[dict exists $::cells $name]} { error "cell $name exists" }
    set kind [dict get [lrange $args 0 end-1] [expr {"-vlnv" in $args ? "-vlnv" : "-reference"}]]
    if {[string match xilinx.com:ip:* $kind]} { set kind [lindex [split $kind :] 2] }
    dict set ::cells $name $kind
}
proc set_property {args} {
    if {[lindex $args 0] eq "-dict"} {
        lassign $args - settings target
        if {[llength $settings] % 2} { error "odd settings of $target" }
        foreach {name value} $settings { dict set ::properties $target $name $value }
    } else {
        lassign $args name value target
        dict set ::properties $target $name $value
    }
}
proc create_bd_port {args} { dict set ::ports [lindex $args end] pin }
proc create_bd_intf_port {args} { dict set ::ports [lindex $args end] interface }
proc get_bd_cells {name} { kind $name; return $name }
proc get_bd_ports {name} { port $name }
proc get_bd_intf_ports {name} { port $name }
proc get_bd_pins {path} { checked $::pins pin $path }
proc get_bd_intf_pins {path} { checked $::interfaces interface $path }
proc get_bd_addr_spaces {name} { return $name }
proc get_bd_addr_segs {name} { kind [lindex [split $name /] 0]; return $name }
proc connect_bd_net {args} { lappend ::connected {*}$args }
proc connect_bd_intf_net {from to} {
    foreach end [list $from $to] { if {$end in $::connected} { error "$end is connected twice" } }
    lappend ::connected $from $to
}
proc assign_bd_address {args} {
    set segment [lindex $args end-1]
    set options [lrange $args 0 end-2]
    lappend ::mapped [list [dict get $options -target_address_space] $segment [dict get $options -offset] [dict get $options -range]]
}
foreach name {create_project add_files create_bd_design validate_bd_design save_bd_design make_wrapper launch_runs wait_on_run} {
    proc $name {args} {}
}
proc get_files {name} { return $name }
proc current_fileset {} { return sources_1 }
# The wrapper of the block design does not exist here.
rename glob real_glob
proc glob {args} { if {[catch {real_glob {*}$args} found]} { return [lindex $args end] }; return $found }

lassign $argv script record
source $script
set out [open $record w]
foreach {cell kind} $cells {
    foreach name [expr {[dict exists $interfaces $kind] ? [dict get $interfaces $kind] : {}}] {
        if {$kind in {fpga_ni_bd xdma axi_cdma} && "$cell/$name" ni $connected} { error "$cell/$name is not connected" }
    }
    foreach name [expr {[dict exists $pins $kind] ? [dict get $pins $kind] : {}}] {
        if {$kind in {fpga_ni_bd axi_cdma smartconnect} && "$cell/$name" ni $connected} { error "$cell/$name is not connected" }
    }
}
foreach line $mapped { puts $out "map $line" }
dict for {name value} [dict get $properties ni] { puts $out "ni $name $value" }
dict for {name value} [dict get $properties xdma] { puts $out "xdma $name $value" }
close $out
