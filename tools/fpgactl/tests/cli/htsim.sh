#!/bin/sh
# Stands for htsim_uec: each flow ends 30.5 us after its start. The seeds 90 to 93 fail, write no counts, do not end, and end no flow.
while [ $# -gt 1 ]; do
    case $1 in
        -tm) list=$2 ;;
        -topo) topology=$2 ;;
        -seed) seed=$2 ;;
    esac
    shift 2
done
[ -r "$topology" ] && [ -r "$list" ] || exit 9
case $seed in
    90) echo "no memory" >&2; exit 3 ;;
    91) echo "Flow Uec_0_1 flowId 1 uecSrc 0 finished at 1"; exit 0 ;;
    92) exec sleep 1000 ;;
    93) echo "New: 100 Rtx: 0"; exit 0 ;;
esac
awk '$2 == "id" { print "Flow Uec flowId", $3, "uecSrc 0 finished at", $5 + 30.5, "total messages 1" }' "$list"
echo "New: 200 Rtx: 3 RTS: 0"
