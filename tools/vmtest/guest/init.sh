#!/bin/busybox sh
# First program of a guest: mounts file systems, loads modules, runs the steps one after the other and reports each of them on
# the second serial line (see tools/vmtest/src/protocol.rs).
export PATH=/bin:/usr/bin HOME=/ TMPDIR=/tmp
/bin/busybox mkdir -p /dev /proc /sys /tmp
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
ulimit -l unlimited

# Kept open, so that the line keeps its settings. Raw: no echo of input, no carriage returns in output.
exec 3<>/dev/ttyS1
stty raw -echo <&3
say() {
    printf '%s\n' "$1" >&3
}
# The last 256 KiB of an output: errors are at its end.
encoded() {
    tail -c 262144 "$1" | base64 -w 0
}

while read -r module; do
    insmod "/modules/$module.ko" || echo "init: cannot load $module"
done </modules/order

. /environment
# Clear the log: later messages are about the steps.
dmesg -c >/dev/null
say "{\"event\":\"boot\",\"kernel\":\"$(uname -r)\"}"
failed=0
while read -r step seconds; do
    say "{\"event\":\"begin\",\"step\":\"$step\"}"
    echo "init: step $step"
    timeout -s KILL "$seconds" sh -e "/steps/$step" >/tmp/stdout 2>/tmp/stderr </dev/null 3>&-
    status=$?
    [ $status -eq 0 ] || failed=1
    say "{\"event\":\"end\",\"step\":\"$step\",\"status\":$status,\"stdout\":\"$(encoded /tmp/stdout)\",\"stderr\":\"$(encoded /tmp/stderr)\"}"
done </steps/order

# After a failure, print the kernel's log on the console.
[ $failed -eq 0 ] || dmesg
say '{"event":"done"}'
# Power off only after the line above has arrived.
read -r answer <&3
poweroff -f
