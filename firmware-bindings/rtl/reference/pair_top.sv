// Two cards in one simulation: each is a reference top level.

`timescale 1ps / 1ps

module pair_top;
    reference_top #(.CHANNELS(1)) first ();
    reference_top #(.CHANNELS(2)) second ();
endmodule
