//! Contradictions between documents, or with working drivers, and the reading that this package uses.
//!
//! *libxdma* is the vendor's Linux driver (`libxdma.h`, driver 2025.2); *mainline* the Linux kernel's own
//! (`drivers/dma/xilinx/xdma-regs.h`); *embeddedsw* the vendor's bare-metal driver (`xaxicdma_hw.h`). PG344 is the
//! Versal twin of PG195 and repeats its register text; PG194 describes the bridge that shares the interrupt logic.
//!
//! # XDMA
//!
//! | Id | Matter | Sources | Taken, and why |
//! |---|---|---|---|
//! | X1 | Place of the clear alias of a channel's interrupt mask | PG195 and libxdma: 0x98. mainline: 0x9C | 0x98: the register's page and the vendor's driver agree, and 0x9C is in no list of registers |
//! | X2 | Bits 0 and 2 of performance monitor control | PG195: 0 auto, 2 run. libxdma: 0 run, 2 auto | PG195. The driver always sets both, so its names cannot be observed |
//! | X3 | Registers 0xD4 and 0xD8 (pending count) | libxdma only | kept as read-only words without reset value; nothing should rely on them |
//! | X4 | What triggers the poll-mode write-back | PG195 "Poll Mode": `ie_descriptor_completed` and `pollmode_wb_enable`. PG195 control register: `pollmode_wb_enable` and the descriptor's Completed bit. libxdma polls without `ie_descriptor_completed` | open: set both control bits *and* Completed, which satisfies every reading |
//! | X5 | Version in the identifiers | PG195's default column: 0x04 throughout. Its own list: 0x06 since 2017.1; field reports: 0x06 | identifiers have no reset value in the catalogue; [`Identifier::of`](crate::xdma::Identifier::of) says 0x06 |
//! | X6 | Condition of status `descriptor_stopped` | PG195 status: if `ie_magic_stopped` is set. PG195 control: `ie_descriptor_stopped` enables its logging | `ie_descriptor_stopped`: bit 1 would have no function otherwise |
//! | X7 | C2H interrupt mask, bits 3 and 5 | PG195's C2H page omits them; the C2H status and the H2C mask have them; libxdma sets bit 3 for both directions | one value type for both directions, bits kept |
//! | X8 | C2H interrupt mask, bits 23:19 | PG195 describes `im_desc_error` by the words of `im_read_error` | descriptor errors, by name and place |
//! | X9 | Default of status `align_mismatch` | PG195: thirteen bits of zero for one bit | 0 |
//! | X10 | Reset value of the MSI-X vector control | PG195 and PG344: all ones. PG194, the same table: 0 | all ones: the PCI specification wants the mask bit set |
//! | X11 | Access of the MSI-X pending bits | PG194 lists read-write. PCI specification: read-only | read-only |
//! | X12 | Last word of an MSI-X entry | libxdma names it upper data | vector control, as PG195 and the PCI specification |
//! | X13 | Number of vector registers | libxdma: 8 words each. PG195: 4 user (0x80 to 0x8C), 2 channel (0xA0, 0xA4) | PG195: 16 user and 8 channel interrupts need no more |
//! | X14 | Halt registers 0x6010 to 0x6018 | libxdma: padding. PG195: documented | PG195 |
//! | X15 | Control bit 27 | PG195 lists it on the H2C page too, with text about C2H | one value type; it acts on C2H stream channels |
//! | X16 | Control bit 25 on H2C | PG195 says, in both directions, that only `m_axi_araddr` is concerned; an H2C channel has no AXI read | the card side's address is fixed, whichever it is |
//! | X17 | Longest descriptor | the field has 28 bits. libxdma: 2^28 - 1. mainline: 2^28 less a page | [`MAX_LEN`](crate::xdma::descriptor::MAX_LEN) is what the field holds; a driver may want a rounder limit |
//! | X18 | `Nxt_adj` within a block | libxdma fills it in every descriptor, counting down; mainline only in the last of a block | both work on hardware; [`next_adjacent`](crate::xdma::descriptor::next_adjacent) serves either |
//! | X19 | Place of the C2H bits in vectors of engines | PG195 "PCIe to DMA Configuration Registers": right above the H2C bits, in general. PG195 halt and credit mode: bits 19:16 | packed in the interrupt block, fixed in the SGDMA common block, as the registers' own pages say |
//!
//! # AXI CDMA
//!
//! | Id | Matter | Sources | Taken, and why |
//! |---|---|---|---|
//! | C1 | Alignment of descriptors | PG034's pages of NXTDESC_PNTR say 128 bytes; its note on descriptors, CURDESC and embeddedsw say 64 | 64: six reserved address bits are 64 bytes, and the examples (0x40, 0xC0) are not multiples of 128 |
//! | C2 | Width of the length | PG034 4.1: 26 bits. embeddedsw's descriptor mask: 23 bits, from older releases | 26 in the value types; [`MAX_LEN_23_BIT`](crate::cdma::MAX_LEN_23_BIT) for designs that are built with less |
//! | C3 | Reset word of CDMACR and CDMASR | PG034 gives defaults per field only | CDMACR 0x0001_0002 (threshold 1, tail pointer mode 1); CDMASR none: idle and SGIncld depend on the moment and the build |
//! | C4 | Bits of CDMACR | some models carry the positions of AXI *DMA* (run 0, keyhole 3, cyclic 4) | PG034's: SGMode 3, keyhole 4 and 5, cyclic 6 |
