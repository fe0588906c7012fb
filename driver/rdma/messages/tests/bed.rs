//! Messengers of one thread, and the memory of their application.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fpga_driver::{HugePages, SharedMemory, SharedSlice};
use fpga_rdma::Endpoint;

use fpga_messages::{
    AtomicCall, AtomicUnit, CompleteWhen, Completion, HostMemory, HostRanges, LinkChoice, Messenger,
    MessengerError, MessengerOptions, PeerId, ReceiveRequest, Regions, SendRequest, TagPattern, Token,
};

const TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const MEMORY: usize = 8 << 20;

/// Memory of an application: addresses are positions.
pub(crate) struct Memory {
    bytes: SharedMemory,
    /// Number of times that a part was lent to the card.
    pub(crate) lent: AtomicUsize,
    /// Number of bytes that were copied.
    pub(crate) copied: AtomicUsize,
}

impl Memory {
    fn at(&self, address: u64, length: usize) -> SharedSlice<'_> {
        self.bytes.view().slice(address as usize, length).unwrap()
    }
}

impl HostMemory for Memory {
    fn read(&self, from: u64, to: SharedSlice<'_>) {
        self.copied.fetch_add(to.len(), Ordering::Relaxed);
        to.copy_from(0, self.at(from, to.len()), 0, to.len()).unwrap();
    }

    fn write(&self, to: u64, from: SharedSlice<'_>) {
        self.copied.fetch_add(from.len(), Ordering::Relaxed);
        self.at(to, from.len()).copy_from(0, from, 0, from.len()).unwrap();
    }

    fn lend(&self, from: u64, length: u64) -> Option<SharedMemory> {
        self.lent.fetch_add(1, Ordering::Relaxed);
        self.bytes.part(from as usize, length as usize).ok()
    }
}

/// Adds words of 64 bits: operation 1 on type 1.
pub(crate) struct Adder(pub(crate) Arc<Memory>);

impl AtomicUnit for Adder {
    fn apply(&self, call: AtomicCall<'_>) -> bool {
        let AtomicCall { operation, datatype, address, length, operand, fetch, .. } = call;
        if (operation, datatype) != (1, 1) || operand.len() as u64 != length {
            return false;
        }
        let memory = self.0.at(address, length as usize);
        let mut target = vec![0; length as usize];
        memory.read(0, &mut target).unwrap();
        if !fetch.is_empty() {
            fetch.copy_from_slice(&target);
        }
        for (word, add) in target.chunks_exact_mut(8).zip(operand.chunks_exact(8)) {
            let sum = u64::from_le_bytes(word.try_into().unwrap())
                .wrapping_add(u64::from_le_bytes(add.try_into().unwrap()));
            word.copy_from_slice(&sum.to_le_bytes());
        }
        memory.write(0, &target).unwrap();
        true
    }
}

pub(crate) struct End {
    pub(crate) messenger: Messenger,
    pub(crate) memory: Arc<Memory>,
    pub(crate) regions: Arc<Regions>,
    pub(crate) done: Vec<Completion>,
}

impl End {
    pub(crate) fn open(options: &MessengerOptions) -> Self {
        Self::try_open(options).unwrap()
    }

    pub(crate) fn refused(options: &MessengerOptions) -> MessengerError {
        Self::try_open(options).err().unwrap()
    }

    pub(crate) fn try_open(options: &MessengerOptions) -> Result<Self, MessengerError> {
        Self::opened(|memory, atomics, regions| Messenger::open(options, memory, atomics, regions))
    }

    /// Opens a messenger on an endpoint.
    pub(crate) fn on(endpoint: Endpoint, options: &MessengerOptions) -> Self {
        Self::opened(|memory, atomics, regions| Messenger::new(endpoint, options, memory, atomics, regions))
            .unwrap()
    }

    fn opened(
        open: impl FnOnce(
            Arc<dyn HostMemory>,
            Arc<dyn AtomicUnit>,
            Arc<Regions>,
        ) -> Result<Messenger, MessengerError>,
    ) -> Result<Self, MessengerError> {
        let bytes = SharedMemory::anonymous(MEMORY, HugePages::No).unwrap();
        let memory = Arc::new(Memory { bytes, lent: AtomicUsize::new(0), copied: AtomicUsize::new(0) });
        let regions = Arc::new(Regions::default());
        let (theirs, atomics) =
            (Arc::clone(&memory) as Arc<dyn HostMemory>, Arc::new(Adder(Arc::clone(&memory))));
        let messenger = open(theirs, atomics, Arc::clone(&regions))?;
        Ok(Self { messenger, memory, regions, done: Vec::new() })
    }

    pub(crate) fn poke(&self, at: u64, bytes: &[u8]) {
        self.memory.at(at, bytes.len()).write(0, bytes).unwrap();
    }

    pub(crate) fn peek(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.at(at, length).read(0, &mut bytes).unwrap();
        bytes
    }

    pub(crate) fn progress(&mut self) {
        self.messenger.progress();
        while let Some(done) = self.messenger.next_completion() {
            self.done.push(done);
        }
    }

    pub(crate) fn take(&mut self, context: u64) -> Option<Completion> {
        let at = self.done.iter().position(|done| done.token.context == context)?;
        Some(self.done.remove(at))
    }
}

pub(crate) fn options(link: LinkChoice) -> MessengerOptions {
    let mut options = MessengerOptions::default();
    options.listen = Some("127.0.0.1:0".parse().unwrap());
    options.link = link;
    options
}

/// Ends that know each other: peer `n` of each is end `n`.
pub(crate) struct Bed(pub(crate) Vec<End>);

impl Bed {
    pub(crate) fn new(count: usize, options: &MessengerOptions) -> Self {
        let mut ends: Vec<End> = (0..count).map(|_| End::open(options)).collect();
        let addresses: Vec<_> = ends.iter().map(|end| end.messenger.address()).collect();
        for end in &mut ends {
            for (number, address) in (0..).zip(&addresses) {
                assert_eq!(end.messenger.add_peer(*address).unwrap(), PeerId(number));
            }
        }
        Self(ends)
    }

    pub(crate) fn progress(&mut self) {
        self.0.iter_mut().for_each(End::progress);
    }

    /// Waits for the completion with `context` at end `at`.
    pub(crate) fn wait(&mut self, at: usize, context: u64) -> Completion {
        let begun = Instant::now();
        loop {
            if let Some(done) = self.0[at].take(context) {
                return done;
            }
            assert!(
                begun.elapsed() < TIMEOUT,
                "no completion {context} at end {at}: {:?}",
                self.0[at].messenger
            );
            self.progress();
        }
    }
}

pub(crate) fn ranges(at: u64, length: usize) -> HostRanges {
    HostRanges::one(at, length as u64).unwrap()
}

pub(crate) fn send(to: usize, at: u64, length: usize, tag: Option<u64>, context: u64) -> SendRequest {
    SendRequest {
        peer: PeerId(to as u32),
        data: ranges(at, length),
        tag,
        immediate: None,
        complete: CompleteWhen::Transmitted,
        token: Token { context, user: 7 },
    }
}

pub(crate) fn receive(
    from: Option<usize>,
    at: u64,
    length: usize,
    tag: Option<u64>,
    context: u64,
) -> ReceiveRequest {
    ReceiveRequest {
        from: from.map(|from| PeerId(from as u32)),
        tag: tag.map(|tag| TagPattern { tag, ignore: 0 }),
        data: ranges(at, length),
        multi: None,
        token: Token { context, user: 9 },
    }
}

/// Bytes that depend on `seed`.
pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}
