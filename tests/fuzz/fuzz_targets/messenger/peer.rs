//! The fuzzed peer.

use super::*;

/// Arguments of actions.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u64 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        (*first).into()
    }

    /// A number at or near a limit, or any number of 16 bits.
    fn number(&mut self, limit: u64) -> u64 {
        match self.byte() {
            0 => limit,
            1 => limit.wrapping_sub(1),
            2 => limit.wrapping_add(1),
            3 => u64::MAX,
            4 => u64::MAX - self.byte(),
            5..=15 => self.byte() << 8 | self.byte(),
            small => small - 16,
        }
    }
}

struct Peer<'a> {
    world: &'a mut World,
    endpoint: Endpoint,
    granted: Granted,
    /// Position of the next record in the ring.
    at: u64,
    /// Transfers that have not ended.
    sent: usize,
    /// Requests of the messenger that have not completed, and claimed messages.
    waiting: HashSet<u64>,
    claimed: Vec<(u64, bool)>,
}

fn open_endpoint(world: &mut World) -> Endpoint {
    let mut options = EndpointOptions::default();
    // Without waiting for the clock.
    world.starts += 1;
    options.incarnation = Some(world.starts);
    let mut endpoint = Endpoint::open_with(&world.card, &options).expect("an endpoint");
    endpoint.open_region_with_key(NodeId::ANY, SLOTS, HELLO_KEY).expect("a window");
    endpoint
}

fn checksum(bytes: &[u8], endpoint: &Endpoint) -> u64 {
    let sender = [endpoint.node().get(), endpoint.incarnation().get()];
    let all = bytes.iter().copied().chain(sender.into_iter().flat_map(u32::to_le_bytes));
    all.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Fields of a hello.
#[derive(Clone, Copy)]
struct Fields {
    /// Address of the area, key, address of the hello slots.
    long: [u64; 3],
    /// Length, ring, landing slots, bytes of the ring and of a landing slot, credit for messages without receive.
    short: [u32; 6],
}

fn hello(fields: Fields, endpoint: &Endpoint) -> Vec<u8> {
    let mut bytes = b"FPMS\x03\0\0\0".to_vec();
    fields.long.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    fields.short.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.extend(checksum(&bytes, endpoint).to_le_bytes());
    bytes
}

const USUAL: Fields = Fields {
    long: [OFFERED.start.get(), 0, SLOTS.start.get()],
    short: [OFFERED.length as u32, 4 << 20, 256 << 10, 256 << 10, 128 << 10, 16_384],
};

/// Plays an input: the peer begins a session, does what the input says, and breaks the protocol at the end, so that the session ends.
pub(super) fn play(world: &mut World, input: &[u8]) {
    let mut endpoint = open_endpoint(world);
    let key = endpoint.open_region(NodeId::ANY, OFFERED).expect("a window").remote.key;
    let node = world.address.node();
    let slots = RemoteRegion { node, address: endpoint.usable_memory().start, length: 4096, key: HELLO_KEY };
    let none = RemoteRegion { length: 0, ..slots };
    let granted = Granted { region: none, ring: 0, landing: 0 };
    let (waiting, claimed) = Default::default();
    let mut peer = Peer { world, endpoint, granted, at: 0, sent: 0, waiting, claimed };
    let mut fields = USUAL;
    fields.long[1] = key;
    let greeting = hello(fields, &peer.endpoint);
    peer.transfer(&slots, 0, &greeting, 64);
    let begun = Instant::now();
    while peer.granted.region.length == 0 {
        peer.step();
        assert!(begun.elapsed() < PATIENCE, "no answer to a hello: {:?}", peer.world.victim.messenger);
    }
    let mut input = Input(input);
    while !input.0.is_empty() {
        peer.act(&mut input, &slots, fields);
    }
    peer.end();
}

impl Peer<'_> {
    /// Sends bytes from this card's memory.
    fn transfer(&mut self, target: &RemoteRegion, offset: u64, bytes: &[u8], length: u64) {
        if self.sent >= 64 {
            self.settle();
        }
        // Each transfer has a source of its own until it has ended.
        let source = SOURCE.checked_add(self.sent as u64 * (512 << 10)).expect("inside the memory");
        self.world.network.with_card(0, |card| card.poke(source, bytes).expect("memory"));
        if self.endpoint.send(source, target, offset, length, SendOptions::default()).is_ok() {
            self.sent += 1;
        }
    }

    fn step(&mut self) -> usize {
        let mut work = self.world.victim.progress();
        self.endpoint.relax();
        work += self.endpoint.poll().expect("the card works");
        let mut ended = 0;
        while self.endpoint.next_completion().is_some() {
            ended += 1;
        }
        self.sent = if ended >= self.sent { 0 } else { self.sent };
        self.world.other.progress();
        while let Some(arrived) = self.endpoint.next_notification() {
            if arrived.address < OFFERED.start && self.granted.region.length == 0 {
                let mut bytes = [0; 64];
                self.world.network.with_card(0, |card| card.peek(arrived.address, &mut bytes).expect("memory"));
                let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
                let short = |at: usize| word(at) & 0xffff_ffff;
                let region = RemoteRegion {
                    node: arrived.node,
                    address: CardAddr::new(word(8)),
                    length: short(32),
                    key: word(16),
                };
                self.granted = Granted { region, ring: short(36), landing: short(40) };
            }
        }
        for done in self.world.victim.done.drain(..) {
            assert!(self.waiting.remove(&done.token.context), "completed twice: {done:?}");
        }
        work
    }

    /// Waits until nothing moves.
    fn settle(&mut self) {
        let begun = Instant::now();
        let mut quiet = 0;
        while quiet < 4 || !self.endpoint.is_idle() {
            quiet = if self.step() > 0 { 0 } else { quiet + 1 };
            let (messenger, transfers) = (&self.world.victim.messenger, || self.endpoint.transfers());
            assert!(begun.elapsed() < PATIENCE, "it does not rest: {messenger:?}, {quiet}, {:?}", transfers());
        }
        self.sent = 0;
    }

    fn act(&mut self, input: &mut Input<'_>, slots: &RemoteRegion, fields: Fields) {
        let Granted { region, ring, landing } = self.granted;
        match input.byte() % 8 {
            0..=2 => self.record(input),
            // Any doorbell, at most 4 KiB long.
            3 => {
                let area = input.byte();
                let offset = match area % 4 {
                    0 => input.number(4096),
                    1 if area & 32 == 0 => input.number(8).wrapping_add(8 << 10),
                    1 => input.number(4096).wrapping_add(12 << 10),
                    kind => input.number(16).wrapping_add((16 << 10) + ((kind - 2) * 2 + (area >> 4) % 3) * 65536),
                };
                let length = if area & 8 == 0 { 1 } else { 1 + input.byte() * 16 };
                self.transfer(&region, offset % (256 << 10), &[0; 64], length);
            }
            // A landing slot.
            4 => {
                let (slot, length) = (input.byte() % 10, input.number(CHUNK).min(2 * CHUNK));
                self.transfer(&region, landing + slot * CHUNK + input.byte() % 2 * 64, &[slot as u8; 64], length);
            }
            // Any place of the ring.
            5 => {
                let (offset, length) = (input.number(RING) % (RING + 64), input.number(64).min(MAX_RECORD + 64));
                self.transfer(&region, ring + offset, &[0x11; 64], length);
            }
            6 if input.byte() & 1 == 0 => self.settle(),
            6 => {
                let mut changed = fields;
                let at = input.byte() as usize;
                if let Some(word) = changed.long.get_mut(at % 8) {
                    *word = input.number(*word);
                } else if let Some(word) = changed.short.get_mut((at >> 3 & 3) + at % 8 - 3) {
                    *word = input.number((*word).into()) as u32;
                }
                let mut bytes = hello(changed, &self.endpoint);
                bytes[6] = (at >> 5 & 1) as u8;
                let sum = checksum(&bytes[..56], &self.endpoint);
                bytes[56..].copy_from_slice(&sum.to_le_bytes());
                if at & 0x80 != 0 {
                    bytes[input.byte() as usize % 64] ^= 1;
                }
                self.transfer(slots, input.byte() % 64 * 64, &bytes, 64);
            }
            _ => self.request(input),
        }
    }

    /// The next record, or one at a wrong position.
    fn record(&mut self, input: &mut Input<'_>) {
        let Granted { region, ring, .. } = self.granted;
        let (kind, flags) = (input.byte() % 12, input.byte());
        let length = input.number(MAX_RECORD - 64);
        let data = if flags & 8 == 0 { length } else { input.number(MAX_RECORD - 64) }.min(MAX_RECORD);
        // Large kinds have no data.
        let data = if matches!(kind, 2 | 3 | 5 | 6 | 7) && flags & 16 == 0 { 0 } else { data };
        let mut bytes = vec![kind as u8, flags as u8 & 7];
        let credit = if flags & 32 != 0 { input.number(4096) } else { 0 };
        bytes.extend((credit as u16).to_le_bytes());
        bytes.extend((input.number(65536) as u32).to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend(if flags & 64 == 0 { KEY } else { input.number(KEY) }.to_le_bytes());
        bytes.extend(7_u64.to_le_bytes());
        bytes.extend(input.number(REGION).to_le_bytes());
        bytes.extend((input.number(65536) as u32).to_le_bytes());
        bytes.extend([(input.byte() & 3) as u8, 1, input.byte() as u8 % 10, 0]);
        for slot in 0..8_u64 {
            bytes.extend((if flags & 128 == 0 { slot } else { input.number(8) } as u16).to_le_bytes());
        }
        let total = 64 + data;
        let offset = self.at;
        if total <= MAX_RECORD {
            let next = offset + total.next_multiple_of(64);
            self.at = if RING - next < MAX_RECORD { 0 } else { next };
        }
        self.transfer(&region, ring + offset, &bytes, total);
    }

    /// A request of the messenger's application.
    fn request(&mut self, input: &mut Input<'_>) {
        self.world.context += 1;
        let (context, peer, kind) = (self.world.context, self.world.fuzzed, input.byte());
        let length = input.number(40_000).min(REGION);
        let tag = (kind & 8 != 0).then_some(KEY);
        let token = Token { context, user: 0 };
        let remote = RemoteRange { address: 0, length: length.min(1024), key: 1 };
        let (data, complete) = (ranges(0, remote.length), CompleteWhen::Transmitted);
        let access = AccessRequest { peer, data, remote, immediate: None, complete, token };
        let from = (kind & 16 != 0).then_some(peer);
        let mut buffer = receive(from, length, tag.map(|tag| (tag, u64::MAX)), context);
        let messenger = &mut self.world.victim.messenger;
        let accepted = match kind % 8 {
            0 => messenger.send(&send(peer, length, tag, context)),
            1 => messenger.write(&AccessRequest { data: ranges(0, length), remote: RemoteRange { length, ..remote }, ..access }),
            2 => messenger.read(&access),
            3 => messenger.read(&AccessRequest { data: ranges(BUFFERS, length), remote: RemoteRange { length, ..remote }, ..access }),
            4 => messenger.atomic(&AtomicRequest {
                peer,
                operation: 1,
                datatype: 1,
                remote,
                operand: data,
                compare: HostRanges::default(),
                fetch: if kind & 32 != 0 { data } else { HostRanges::default() },
                complete,
                token,
            }),
            5 => {
                buffer.multi = (tag.is_none() && kind & 32 != 0).then_some(1000);
                messenger.receive(&buffer)
            }
            6 => messenger.receive(&buffer),
            _ => {
                let result = messenger.peek(&buffer, [Peek::Look, Peek::Claim, Peek::Discard][kind as usize >> 6 & 1]);
                if kind & 64 != 0 && result.is_ok() {
                    self.claimed.push((context, tag.is_some()));
                }
                result
            }
        };
        // A buffer for several messages completes several times: it has no name.
        if accepted.is_ok() && buffer.multi.is_none() {
            self.waiting.insert(context);
        } else if buffer.multi.is_some() {
            self.world.victim.messenger.cancel(context);
            self.waiting.insert(context);
        }
    }

    /// The session ends: the peer returns credits that it does not have. Nothing of it remains.
    fn end(&mut self) {
        self.settle();
        let region = self.granted.region;
        self.transfer(&region, 4096, &[0; 64], 1);
        self.settle();
        let posted: Vec<u64> = self.waiting.iter().copied().collect();
        for context in posted {
            self.world.victim.messenger.cancel(context);
        }
        self.step();
        for (context, is_tagged) in std::mem::take(&mut self.claimed) {
            let request = receive(None, 0, is_tagged.then_some((0, u64::MAX)), context);
            if self.world.victim.messenger.receive_claimed(&request, true).is_ok() {
                self.waiting.insert(context);
            }
        }
        for tag in [None, Some((0, u64::MAX))] {
            loop {
                let request = receive(None, 0, tag, 0);
                self.world.victim.messenger.peek(&request, Peek::Discard).expect("it works");
                let Some(done) = self.world.victim.messenger.next_completion() else { panic!("no result") };
                if done.token.context != 0 {
                    self.world.victim.done.push(done);
                } else if done.result == Err(Failure::NoMessage) {
                    break;
                }
            }
        }
        let begun = Instant::now();
        while self.world.victim.messenger.in_progress() > 0 || !self.waiting.is_empty() {
            self.step();
            let elapsed = begun.elapsed();
            assert!(elapsed < PATIENCE, "requests {:?} do not end: {:?}", self.waiting, self.world.victim.messenger);
        }
    }
}
