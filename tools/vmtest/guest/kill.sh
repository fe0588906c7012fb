#!/bin/busybox sh
# kill-test COUNT SEED: kills (signal 9) a program that transfers data without end ($HAMMER) after random times. After each kill,
# runs a program that opens and uses the card ($CHECK). The same seed gives the same times.
count=$1 random=$2
number=0
while [ "$number" -lt "$count" ]; do
    number=$((number + 1))
    # Linear congruential generator modulo 2^31; its low bits have short periods.
    random=$(((random * 1103515245 + 12345) & 0x7fffffff))
    # From before the program opens the card until long after its first transfer.
    milliseconds=$(((random >> 8) % 1500))
    # Unquoted: a command line of several words.
    $HAMMER >/dev/null 2>/tmp/hammer.log &
    victim=$!
    usleep $((milliseconds * 1000))
    if ! kill -9 $victim; then
        echo "the program exited before $milliseconds ms (kill $number): $(cat /tmp/hammer.log)" >&2
        exit 1
    fi
    wait $victim 2>/dev/null
    if ! $CHECK >/tmp/check.log 2>&1; then
        echo "after kill $number, $milliseconds ms after the start, the card is not usable: $(cat /tmp/check.log)" >&2
        exit 1
    fi
done
echo "$count kills, each followed by a start that opened and used the card"
