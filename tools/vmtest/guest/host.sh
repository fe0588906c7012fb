#!/bin/busybox sh
# host WORD...: sends a request to the host, waits for the answer, and prints it.
printf '{"event":"ask","what":"%s"}\n' "$(printf %s "$*" | base64 -w 0)" >/dev/ttyS1
read -r answer said </dev/ttyS1
if [ "$answer" = ok ]; then
    printf '%s\n' "$said"
else
    echo "$answer $said" >&2
    exit 1
fi
