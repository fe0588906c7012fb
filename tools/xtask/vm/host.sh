#!/bin/busybox sh
# host WORD...: asks the machine outside to do something, waits until it has, and prints what it says.
printf '{"event":"ask","what":"%s"}\n' "$(printf %s "$*" | base64 -w 0)" >/dev/ttyS1
read -r answer said </dev/ttyS1
if [ "$answer" = ok ]; then
    printf '%s\n' "$said"
else
    echo "$answer $said" >&2
    exit 1
fi
