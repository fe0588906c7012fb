//! The seed corpus of the fuzz targets: small legal inputs. After a format has changed
//! `UPDATE_SEEDS=1 cargo test -p fpga-firmware --test it fuzz_seeds` writes it again.

#![expect(clippy::unwrap_used, reason = "an unexpected value in a test helper fails the test")]

use crate::samples;

use std::fs;
use std::path::PathBuf;

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::generated::{Capabilities, Flags};
use fpga_firmware::identity;
use fpga_firmware::window::{CommandFields, MAX_HEADER_BLOCK, WindowHeader, WindowKind};
use fpga_firmware::wire::{Packet, trim};
use fpga_firmware::{NodeId, OpNumber, TransferId};
use fpga_registers::CardAddr;
use samples::{GOLDEN, Sample, bitwise_crc, sample, with_crc};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus")
}

const COMMAND: CommandFields =
    CommandFields { number: 4097, priority: 2, timeout_ns: 5_000_000, scheme: None };

fn window(kind: WindowKind, packet_count: u16, path_list: bool) -> Vec<u8> {
    let header = WindowHeader {
        sequence: 1,
        flags: Flags::NOTIFY_RECEIVER,
        destination: NodeId::new(2),
        transfer: TransferId::new(9),
        oldest_live: TransferId::new(7),
        segment: 0,
        segment_count: 1,
        segment_length: 300,
        base: CardAddr::new(0x1000),
        key: 5,
        transfer_base: CardAddr::new(0x1000),
        transfer_length: 300,
        first_packet: 0,
        packet_count,
        packet_size_log2: 6,
        kind,
        segment_packets: 5,
        tries: 1,
        path: 0,
        path_list,
        command: if kind == WindowKind::Command { COMMAND } else { CommandFields::NONE },
        link: fpga_firmware::window::LinkFields::NONE,
    };
    let ops: Vec<_> = (0..packet_count).map(|slot| OpNumber::from_parts(slot, 1)).collect();
    let mut buffer = [0; MAX_HEADER_BLOCK];
    let paths: Vec<_> = (3..).take(ops.len()).collect();
    let length = header.encode(&ops, &paths, &mut buffer).unwrap();
    buffer[..length].to_vec()
}

fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut seeds = Vec::new();
    for (kind, body) in GOLDEN {
        // The value and the bytes agree: that is another test's business, but a seed has to be right.
        assert!(matches!(
            sample(kind),
            Sample::Data(..) | Sample::Control(_) | Sample::Message(..) | Sample::Link(_)
        ));
        assert_ne!(bitwise_crc(body), 0);
        let mut packet = with_crc(body);
        seeds.push((format!("wire_packet/{}", kind.name()), packet.clone()));
        if let Some(length) = trim(&mut packet) {
            packet.truncate(length);
            seeds.push((format!("wire_packet/{}Trimmed", kind.name()), packet));
        }
    }
    seeds.push(("window_header/data".into(), window(WindowKind::Data, 5, false)));
    seeds.push(("window_header/paths".into(), window(WindowKind::Data, 5, true)));
    seeds.push(("window_header/arrival".into(), window(WindowKind::Arrival, 0, false)));
    seeds.push(("window_header/command".into(), window(WindowKind::Command, 0, false)));
    for kind in EventKind::ALL {
        let reason = u8::from(matches!(kind, EventKind::Nack | EventKind::Fault | EventKind::Sent));
        let event = Event { sequence: 1, reason, ..Event::new(*kind) };
        seeds.push((format!("event/{}", kind.name()), event.encode().to_vec()));
    }
    let words = identity::encode(1, Capabilities::ALL, &identity::usual_blocks());
    seeds.push(("identity/usual".into(), words.iter().flat_map(|word| word.to_le_bytes()).collect()));
    seeds
}

#[test]
fn fuzz_seeds_match_golden_packets() {
    let update = std::env::var_os("UPDATE_SEEDS").is_some();
    for (name, bytes) in seeds() {
        let path = corpus().join(&name);
        if update {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &bytes).unwrap();
        }
        let committed = fs::read(&path).unwrap_or_default();
        assert_eq!(committed, bytes, "{name} is stale: see the head of this file");
        if name.starts_with("wire_packet") {
            assert!(Packet::parse(&bytes).is_ok());
        }
    }
}
