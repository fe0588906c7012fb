#!/bin/busybox sh
# kill-test COUNT SEED: kills a program that moves data without end ($HAMMER), without a warning and after a time that is
# different each time, and after each kill runs one that opens the card anew and uses it ($CHECK). The times are the same for
# the same seed.
count=$1 random=$2
number=0
while [ "$number" -lt "$count" ]; do
    number=$((number + 1))
    # Knuth's line in modulo 2^31; its low bits repeat soon.
    random=$(((random * 1103515245 + 12345) & 0x7fffffff))
    # From before the program has opened the card until it has long been at work.
    milliseconds=$(((random >> 8) % 1500))
    # Words, not one: it is a command line.
    $HAMMER >/dev/null 2>/tmp/hammer.log &
    victim=$!
    usleep $((milliseconds * 1000))
    if ! kill -9 $victim; then
        echo "the program did not live $milliseconds ms (kill $number): $(cat /tmp/hammer.log)" >&2
        exit 1
    fi
    wait $victim 2>/dev/null
    if ! $CHECK >/tmp/check.log 2>&1; then
        echo "after kill $number, $milliseconds ms after the start, the card could not be used: $(cat /tmp/check.log)" >&2
        exit 1
    fi
done
echo "$count kills, each followed by a start that opened and used the card"
