//! Operations of a host on transmit windows, and what the interface has to do for them by `WindowHeader`.

use std::path::{Path, PathBuf};

use fpga_firmware::event::{EventKind, FaultReason};
use fpga_firmware::generated::{LINK_WHOLE, Scheme};
use fpga_firmware::window::{CommandFields, LinkFields, MAX_HEADER_BLOCK, WindowHeader, WindowKind};
use fpga_firmware::wire::{Control, Flags, MAX_PACKET_LENGTH};
use fpga_firmware::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_ni_tests::{Model, start};
use fpga_registers::CardAddr;

use crate::frames::{Record, records, run};
use crate::random::Random;

/// Sources of the transmit side.
pub(crate) const FILES: [&str; 10] = [
    "ni_fifo.sv",
    "ni_crc32c.sv",
    "ni_crc32c_end.sv",
    "ni_ranges.sv",
    "ni_tx.sv",
    "ni_windows.sv",
    "ni_transmit_check.sv",
    "ni_transmit_header.sv",
    "ni_transmit_report.sv",
    "ni_transmit.sv",
];

pub(crate) const COMMIT_OFFSET: usize = 0x0fc0;
const PAYLOAD_OFFSET: usize = 0x1000;
const NODE: u32 = 0x0a0b_0c0d;
const INCARNATION: u32 = 77;

/// Parameters of a build.
#[derive(Clone, Copy)]
pub(crate) struct Build {
    pub(crate) bus: usize,
    pub(crate) packet_log2: u8,
    pub(crate) mask_bits: usize,
    pub(crate) windows: usize,
}

impl Build {
    pub(crate) fn program(self, name: &str, folder: &Path) -> Result<Option<PathBuf>, String> {
        let bench = fpga_process::workspace_root().join("tests/rtl/sv/transmit_bench.sv");
        let files = FILES.map(|file| folder.join(file).to_str().unwrap().to_owned());
        let mut files: Vec<&str> = files.iter().map(String::as_str).collect();
        files.push(bench.to_str().unwrap());
        let model = Model {
            name,
            top: "transmit_bench",
            files: &files,
            parameters: &[
                ("BUS", self.bus as u64),
                ("PACKET_LOG2", self.packet_log2.into()),
                ("MASK_BITS", self.mask_bits as u64),
                ("WINDOWS", self.windows as u64),
            ],
            driver: "transmit.cpp",
        };
        model.build()
    }

    pub(crate) fn default_program(self) -> Option<PathBuf> {
        let name = format!("transmit_{}_{}", self.bus, self.packet_log2);
        self.program(&name, &fpga_ni_tests::sources()).unwrap()
    }

    const fn payload(self) -> usize {
        self.mask_bits << self.packet_log2
    }

    const fn stride(self) -> usize {
        (PAYLOAD_OFFSET + self.payload()).next_power_of_two()
    }
}

/// Operations of the driver, and what the interface has to do for them.
pub(crate) struct Scenario {
    pub(crate) build: Build,
    pub(crate) random: Random,
    pub(crate) input: Vec<u8>,
    /// Memory of each window.
    pub(crate) memory: Vec<Vec<u8>>,
    sequence: u32,
    freed: u32,
    node: u32,
    frames: Vec<Vec<u8>>,
    events: Vec<[u8; 64]>,
    pub(crate) faults: Vec<[u8; 64]>,
    link_packets: [u32; 2],
}

/// Event of 64 bytes without its time: kind, reason, index, node, transfer, segment, count.
pub(crate) fn event(kind: EventKind, reason: u8, index: usize, names: [u32; 3], count: u32) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..2].copy_from_slice(&[kind.value(), reason]);
    bytes[2..4].copy_from_slice(&u16::try_from(index).unwrap().to_le_bytes());
    for (at, value) in [(4, names[0]), (12, names[1]), (16, names[2]), (24, count)] {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

impl Scenario {
    pub(crate) fn new(build: Build, seed: u64) -> Self {
        let mut scenario = Self {
            build,
            random: Random::new(seed),
            input: Vec::new(),
            memory: vec![vec![0; PAYLOAD_OFFSET + build.payload()]; build.windows],
            sequence: 0,
            freed: 0,
            node: NODE,
            frames: Vec::new(),
            events: Vec::new(),
            faults: Vec::new(),
            link_packets: [0; 2],
        };
        scenario.set_node(NODE);
        for window in 0..build.windows {
            scenario.write(window, 0, &[0; 2048]);
            scenario.write(window, COMMIT_OFFSET, &[0; 4]);
        }
        scenario
    }

    pub(crate) fn set_node(&mut self, node: u32) {
        self.node = node;
        self.input.push(b'N');
        self.input.extend(node.to_le_bytes());
        self.input.extend(INCARNATION.to_le_bytes());
    }

    pub(crate) fn set_enable(&mut self, enable: bool) {
        self.input.extend([b'E', u8::from(enable)]);
    }

    pub(crate) fn set_pace(&mut self, pace: u16) {
        self.input.push(b'P');
        self.input.extend(pace.to_le_bytes());
    }

    pub(crate) fn wait(&mut self, cycles: u32) {
        self.input.push(b'I');
        self.input.extend(cycles.to_le_bytes());
    }

    pub(crate) fn drain(&mut self) {
        self.input.push(b'Q');
    }

    pub(crate) fn write(&mut self, window: usize, offset: usize, data: &[u8]) {
        self.memory[window][offset..offset + data.len()].copy_from_slice(data);
        self.input.push(b'W');
        self.input.extend(u32::try_from(window * self.build.stride() + offset).unwrap().to_le_bytes());
        self.input.extend(u32::try_from(data.len()).unwrap().to_le_bytes());
        self.input.extend(data);
    }

    /// A header that keeps the rules of its kind; the build may not be able to send it.
    pub(crate) fn header(&mut self, kind: WindowKind) -> WindowHeader {
        let random = &mut self.random;
        let packet_size_log2 = match random.within(0, 15) {
            0 => u8::try_from(random.within(6, 13)).unwrap(),
            1..6 => u8::try_from(random.within(6, self.build.packet_log2.into())).unwrap(),
            _ => self.build.packet_log2,
        };
        let size = 1_u64 << packet_size_log2;
        let packets = if random.one_in(4) { random.within(1, 256) } else { random.within(1, 12) };
        let segment_length = (packets - 1) * size + random.length(size);
        let (base, transfer_base, transfer_length, segment, segment_count) = random.segment(segment_length);
        let transfer = random.word();
        let behind = if random.one_in(3) { 0 } else { random.word() >> 1 };
        let is_data = kind == WindowKind::Data;
        let most = if random.one_in(2) { 0 } else { packets - 1 };
        let first = random.within(0, most);
        let count = random.within(1, packets - first);
        self.sequence += 1;
        WindowHeader {
            sequence: self.sequence,
            flags: random.pick(&[Flags::NONE, Flags::SILENT, Flags::NOTIFY_RECEIVER, Flags::NO_NOTICE]),
            destination: NodeId::new(random.word() & !1),
            transfer: TransferId::new(transfer),
            oldest_live: TransferId::new(transfer.wrapping_sub(behind)),
            segment,
            segment_count,
            segment_length: u32::try_from(segment_length).unwrap(),
            base: CardAddr::new(base),
            key: random.long(),
            transfer_base: CardAddr::new(transfer_base),
            transfer_length,
            first_packet: u16::try_from(first).unwrap(),
            packet_count: if is_data { u16::try_from(count).unwrap() } else { 0 },
            packet_size_log2,
            kind,
            segment_packets: u16::try_from(packets).unwrap(),
            tries: random.word().to_le_bytes()[0],
            path: random.word().to_le_bytes()[0],
            path_list: is_data && random.one_in(2),
            command: CommandFields::NONE,
            link: LinkFields::NONE,
        }
    }

    pub(crate) fn any_header(&mut self) -> WindowHeader {
        let kind = match self.random.within(0, 9) {
            0 => WindowKind::Arrival,
            1 => WindowKind::LinkInquiry,
            2 => WindowKind::LinkActive,
            3 => WindowKind::Command,
            _ => WindowKind::Data,
        };
        let mut header = self.header(kind);
        let random = &mut self.random;
        match kind {
            WindowKind::Command => {
                // The source is a range of the transfer's length.
                header.base = CardAddr::new(random.within(0, u64::MAX - header.transfer_length));
                header.command = CommandFields {
                    number: random.word(),
                    priority: random.word().to_le_bytes()[0],
                    timeout_ns: random.long(),
                    scheme: random.pick(&[None, Some(Scheme::ReceiverWindow), Some(Scheme::Selective)]),
                };
            }
            WindowKind::LinkInquiry => header.link.number = random.word(),
            WindowKind::LinkActive => {
                header.link = LinkFields {
                    number: random.word(),
                    receiver: random.word() & !1,
                    rate: u16::try_from(random.within(0, LINK_WHOLE.into())).unwrap(),
                    queue: u16::try_from(random.within(0, LINK_WHOLE.into())).unwrap(),
                };
            }
            _ => {}
        }
        header
    }

    /// Header block with op numbers and path identifiers, and the payload of its packets.
    pub(crate) fn block(&mut self, header: &WindowHeader) -> (Vec<u8>, Vec<u8>) {
        let ops: Vec<_> = (0..header.packet_count).map(|_| OpNumber::new(self.random.word())).collect();
        let paths = self.random.bytes(ops.len());
        let mut block = vec![0; MAX_HEADER_BLOCK];
        let length = header.encode(&ops, &paths, &mut block).unwrap();
        block.truncate(length);
        let payload = usize::try_from(header.payload_length()).unwrap().min(self.build.payload());
        (block, self.random.bytes(payload))
    }

    pub(crate) fn fill(&mut self, window: usize, block: &[u8], payload: &[u8]) {
        self.write(window, 0, block);
        if !payload.is_empty() {
            self.write(window, PAYLOAD_OFFSET, payload);
        }
    }

    /// Writes the commit word of a free window, and adds what follows.
    pub(crate) fn commit(&mut self, window: usize, word: u32) {
        self.write(window, COMMIT_OFFSET, &word.to_le_bytes());
        if word == 0 {
            return;
        }
        let fault =
            |reason: FaultReason, names, count| event(EventKind::Fault, reason.value(), window, names, count);
        let ram = &self.memory[window];
        let sequence = u32::from_le_bytes(*ram.first_chunk().unwrap());
        let mut packets = Vec::new();
        if sequence != word {
            self.faults.push(fault(FaultReason::TornHeader, [0; 3], word));
        } else if let Ok((header, ops)) = WindowHeader::decode(ram) {
            let is_possible = self.node != NodeId::ANY.get()
                && header.kind != WindowKind::Command
                && (header.kind != WindowKind::Data
                    || header.packet_size_log2 <= self.build.packet_log2
                        && header.payload_length() as usize <= self.build.payload());
            if is_possible {
                let ops: Vec<_> = ops
                    .iter()
                    .zip(0_usize..)
                    .map(|(op, index)| (op, ops.paths().get(index).copied().unwrap_or(header.path)))
                    .collect();
                packets = frames_of(&header, &ops, ram, self.node);
                match header.kind {
                    WindowKind::LinkInquiry => self.link_packets[0] += 1,
                    WindowKind::LinkActive => self.link_packets[1] += 1,
                    _ => {}
                }
            } else {
                let names = [header.destination.get(), header.transfer.get(), header.segment];
                self.faults.push(fault(FaultReason::BadHeader, names, 0));
            }
        } else {
            self.faults.push(fault(FaultReason::BadHeader, [0; 3], 0));
        }
        self.frames.extend(packets);
        self.freed += 1;
        self.events.push(event(EventKind::WindowFree, 0, window, [0; 3], self.freed));
    }

    /// Runs the operations and returns the first difference.
    pub(crate) fn run(
        self,
        program: &Path,
        seed: u32,
        reports: u32,
        host_reads: u32,
    ) -> Result<Vec<Record>, String> {
        self.run_planted(program, seed, reports, host_reads, None)
    }

    /// Runs the operations with a planted fault.
    pub(crate) fn run_planted(
        self,
        program: &Path,
        seed: u32,
        reports: u32,
        host_reads: u32,
        plant: Option<&str>,
    ) -> Result<Vec<Record>, String> {
        let arguments = [seed, reports, host_reads].map(|number| number.to_string());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(plant).collect();
        let found = records(&run(start(program, seed, &arguments).unwrap(), self.input));
        let of = |kind| found.iter().filter(move |record| record.0 == kind).map(|record| record.1.clone());
        let frames: Vec<_> = of('M').map(|frame| frame[8..].to_vec()).collect();
        differ("frame", &frames, &self.frames)?;
        let timeless = |kind| -> Vec<Vec<u8>> {
            of(kind)
                .map(|mut event| {
                    event[48..56].fill(0);
                    event
                })
                .collect()
        };
        let expected = |events: &[[u8; 64]]| events.iter().map(|event| event.to_vec()).collect::<Vec<_>>();
        differ("event", &timeless('E'), &expected(&self.events))?;
        differ("fault", &timeless('F'), &expected(&self.faults))?;
        let all = 1_u32.checked_shl(u32::try_from(self.build.windows).unwrap()).unwrap_or(0).wrapping_sub(1);
        if of('Q').any(|free| free != all.to_le_bytes()) {
            return Err("a window is not free".to_owned());
        }
        let counts = [u32::try_from(frames.len()).unwrap(), self.link_packets[0], self.link_packets[1]];
        let counts: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        if of('N').next() != Some(counts.clone()) {
            return Err(format!("counts {:?}, expected {counts:?}", of('N').next()));
        }
        Ok(found)
    }
}

pub(crate) fn differ(subject: &str, found: &[Vec<u8>], expected: &[Vec<u8>]) -> Result<(), String> {
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        if found != expected {
            return Err(format!("{subject} {index}:\n{found:02x?}, expected\n{expected:02x?}"));
        }
    }
    if found.len() == expected.len() {
        return Ok(());
    }
    Err(format!("{} {subject}s, expected {}", found.len(), expected.len()))
}

/// Frames of a checked window, as the encoder makes them.
pub(crate) fn frames_of(
    header: &WindowHeader,
    ops: &[(OpNumber, u8)],
    ram: &[u8],
    node: u32,
) -> Vec<Vec<u8>> {
    let (source, incarnation) = (NodeId::new(node), Incarnation::new(INCARNATION));
    let mut buffer = vec![0; MAX_PACKET_LENGTH];
    if let Some(arrived) = header.arrival(source, incarnation) {
        let length = Control::Arrived(arrived).encode(&mut buffer).unwrap();
        return vec![buffer[..length].to_vec()];
    }
    if let Some(packet) = header.link_packet(source, incarnation) {
        let length = packet.encode(&mut buffer).unwrap();
        return vec![buffer[..length].to_vec()];
    }
    ops.iter()
        .zip(0..)
        .map(|((op, path), index)| {
            let packet = header.packet(index, *op, *path, source, incarnation).unwrap();
            let range = header.payload_range(index).unwrap();
            let payload = &ram[PAYLOAD_OFFSET + range.start as usize..PAYLOAD_OFFSET + range.end as usize];
            let length = packet.encode(payload, &mut buffer).unwrap();
            buffer[..length].to_vec()
        })
        .collect()
}
