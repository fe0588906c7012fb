# Every tool of the vendor's driver, and its test script, on a memory-mapped card: run in the directory of the vendor's tests.
set -e
./run_test.sh
for file in user control h2c_0 c2h_0 events_0; do ../tools/test_chrdev /dev/xdma0_$file; done
head -c 262144 /dev/urandom > sent
../tools/dma_to_device -d /dev/xdma0_h2c_0 -f sent -s 262144 -a 4096 -c 3 -o 7
../tools/dma_from_device -d /dev/xdma0_c2h_0 -f received -s 262144 -a 4096 -o 7
cmp sent received
../tools/dma_to_device -d /dev/xdma0_h2c_0 -f sent -s 262144 -a 0 -k 65536
tail -c 65536 sent > last
../tools/dma_from_device -d /dev/xdma0_c2h_0 -f received -s 65536 -a 0
cmp last received
../tools/reg_rw /dev/xdma0_control 0x90 w 0x6
../tools/reg_rw /dev/xdma0_control 0x90 w | grep -q 'Read.*: 0x00000006'
../tools/reg_rw /dev/xdma0_control 0x90 b | grep -q 'Read.*: 0x06'
