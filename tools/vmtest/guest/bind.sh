#!/bin/busybox sh
# bind BDF: binds a PCI function to vfio-pci, as the kernel's Documentation/driver-api/vfio.rst describes.
device=/sys/bus/pci/devices/$1
if [ ! -e "$device" ]; then
    echo "no PCI function $1; existing functions: $(ls /sys/bus/pci/devices | tr '\n' ' ')" >&2
    exit 1
fi
[ ! -e "$device/driver" ] || echo "$1" >"$device/driver/unbind"
echo vfio-pci >"$device/driver_override"
echo "$1" >/sys/bus/pci/drivers_probe
driver=$(readlink "$device/driver") || driver=none
if [ "${driver##*/}" != vfio-pci ]; then
    echo "$1 is with driver $driver" >&2
    exit 1
fi
