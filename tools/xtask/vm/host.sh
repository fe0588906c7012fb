#!/bin/busybox sh
# host WORD...: asks the machine outside to do something, and waits until it has.
printf '{"event":"ask","what":"%s"}\n' "$*" >/dev/ttyS1
read -r answer </dev/ttyS1
case $answer in
ok) exit 0 ;;
*)
    echo "$answer" >&2
    exit 1
    ;;
esac
