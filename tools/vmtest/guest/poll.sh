#!/bin/busybox sh
# poll-transfers BDF MEMORY: transfers data to the card and back by physical addresses, without a driver. Registers are accessed through
# /dev/mem; descriptors and data are in 1 MiB at MEMORY, which the kernel does not use (memmap=1M$MEMORY). The completion of a
# descriptor is read from its write-back (PG195, "Poll Mode").
set -e
device=/sys/bus/pci/devices/$1
memory=$(($2))
echo 1 >"$device/enable"
# The DMA BAR is the second BAR of the default card.
dma=$(sed -n 2p "$device/resource" | cut -d ' ' -f 1)
poke() { devmem $(($1)) 32 $(($2)); }
peek() { echo $(($(devmem $(($1)) 32))); }
bus_master() { # off is 2, on is 6: memory decoding stays
    printf "\\$1\\0" | dd of="$device/config" bs=1 seek=4 conv=notrunc 2>/dev/null
}
word_back=$((memory + 0x1000))

# Each call of a program takes a guest some milliseconds, so constant values are written once: the control word of the only descriptor
# (stop, completed, end of packet), the upper halves of its addresses, and the descriptor and write-back addresses of both channels.
prepare() {
    poke memory 0xAD4B0013
    for zero in 12 20 24 28; do poke memory+$zero 0; done
    for channel in 0 0x1000; do
        poke dma+$channel+0x88 word_back
        poke dma+$channel+0x8C 0
        poke dma+$channel+0x4080 memory
        poke dma+$channel+0x4084 0
        poke dma+$channel+0x4088 0
    done
}

# move CHANNEL LENGTH SOURCE DESTINATION: runs one descriptor of a channel, 0 H2C, 0x1000 C2H. Succeeds if it completes.
move() {
    poke memory+4 "$2"
    poke memory+8 "$3"
    poke memory+16 "$4"
    poke word_back 0
    # Run, error interrupts, write-back: the value that the vendor's driver writes.
    poke dma+"$1"+0x04 0x04F83E19
    polls=0
    until [ "$(peek word_back)" -eq 1 ] || [ $polls -eq 20 ]; do
        polls=$((polls + 1))
    done
    poke dma+"$1"+0x04 0x04F83E18
    [ $polls -lt 20 ]
}

if [ "$(($(peek dma) >> 16))" -ne $((0x1FC0)) ]; then
    echo "no XDMA core at $dma" >&2
    exit 1
fi
bus_master 6
prepare
trips=0
head -c 9001 /dev/urandom >/tmp/pattern
# Length; offsets of the data in a page: in the source, on the card, in the destination.
while read -r length before card after; do
    from=$((memory + 0x10000 + before)) to=$((memory + 0x20000 + after))
    head -c "$length" /tmp/pattern >/tmp/part
    dd if=/tmp/part of=/dev/mem bs=16k seek=$from oflag=seek_bytes conv=notrunc 2>/dev/null
    move 0 "$length" $from $((0x5000 + card))
    move 0x1000 "$length" $((0x5000 + card)) $to
    dd if=/dev/mem of=/tmp/back bs="$length" count=1 skip=$to iflag=skip_bytes 2>/dev/null
    cmp /tmp/part /tmp/back
    trips=$((trips + 1))
done <<EOF
64 0 0 0
4096 0 0 0
1 0 0 0
2 4095 4095 4095
4097 17 4000 4095
9001 513 7 1
EOF
echo "$trips round trips"
bus_master 2
if move 0 64 $((memory + 0x10000)) $((0x5000)); then
    echo "the card completed DMA without being bus master" >&2
    exit 1
fi
echo "refused without bus mastering"
