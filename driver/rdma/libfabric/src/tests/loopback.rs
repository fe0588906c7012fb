//! Engine of unit tests: messages between endpoints of this process, without cards.

use crate::atomic_unit::HostAtomics;
use crate::engine::Engine;
use crate::memory::ApplicationMemory;
use fpga_driver::SharedSlice;
use fpga_messages::{
    AccessRequest, Address, AtomicCall, AtomicRequest, AtomicUnit, CompleteWhen, Completion, CompletionKind,
    Failure, HostMemory, HostRange, HostRanges, MessengerOptions, Peek, PeerId, PostError, ReceiveRequest,
    Regions, SendRequest, Token,
};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

/// Key that is never registered.
pub(crate) const UNKNOWN_KEY: u64 = 0xbad;
/// Number of messages that wait for a receive, above which sends are refused.
pub(crate) const MAX_UNEXPECTED: usize = 16;

struct Message {
    source: Address,
    tag: Option<u64>,
    data: Vec<u8>,
    immediate: Option<u64>,
    /// Completion of a sender that waits for the match.
    sender: Option<(Address, Completion)>,
}

#[derive(Default)]
struct Node {
    peers: Vec<Address>,
    unexpected: VecDeque<Message>,
    posted: VecDeque<ReceiveRequest>,
    claimed: HashMap<u64, Message>,
    done: VecDeque<Completion>,
    event: Option<Arc<OwnedFd>>,
    has_failed: bool,
}

static WORLD: LazyLock<Mutex<HashMap<Address, Node>>> = LazyLock::new(Mutex::default);

struct Loopback {
    address: Address,
    event: Arc<OwnedFd>,
}

pub(crate) fn open(_options: &MessengerOptions, _regions: Arc<Regions>) -> Result<Box<dyn Engine>, String> {
    let mut world = WORLD.lock().unwrap();
    let port = u16::try_from(world.len() + 1).unwrap();
    let address = Address::Link(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let event = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).map_err(|error| error.to_string())?);
    world.insert(address, Node { event: Some(Arc::clone(&event)), ..Node::default() });
    Ok(Box::new(Loopback { address, event }))
}

/// The card of the endpoint with this name fails.
pub(crate) fn fail_card(name: &str) {
    WORLD.lock().unwrap().get_mut(&name.parse::<Address>().unwrap()).unwrap().has_failed = true;
}

fn completion(kind: CompletionKind, token: Token, length: u64) -> Completion {
    let (address, tag, cut, is_tagged, is_last) = Default::default();
    Completion {
        token,
        kind,
        is_tagged,
        length,
        cut,
        address,
        tag,
        immediate: None,
        source: None,
        key: None,
        is_last,
        result: Ok(()),
    }
}

fn finish(world: &mut HashMap<Address, Node>, at: Address, completion: Completion) {
    let node = world.get_mut(&at).unwrap();
    node.done.push_back(completion);
    rustix::io::write(node.event.as_ref().unwrap(), &1_u64.to_ne_bytes()).unwrap();
}

fn gather(ranges: &HostRanges) -> Vec<u8> {
    let mut all = Vec::new();
    for range in ranges.as_slice() {
        let mut part = vec![0; usize::try_from(range.length).unwrap()];
        ApplicationMemory.read(range.address, SharedSlice::from_mut(&mut part));
        all.extend(part);
    }
    all
}

fn scatter(ranges: &HostRanges, mut data: &[u8]) {
    for HostRange { address, length } in ranges.as_slice() {
        let (part, rest) = data.split_at(data.len().min(usize::try_from(*length).unwrap()));
        ApplicationMemory.write(*address, SharedSlice::from_mut(&mut part.to_vec()));
        data = rest;
    }
}

impl Node {
    fn matches(&self, request: &ReceiveRequest, message: &Message) -> bool {
        let tags = match (request.tag, message.tag) {
            (None, None) => true,
            (Some(pattern), Some(tag)) => (pattern.tag ^ tag) & !pattern.ignore == 0,
            _ => false,
        };
        tags && request.from.is_none_or(|PeerId(peer)| self.peers[peer as usize] == message.source)
    }

    fn describe(&self, request: &ReceiveRequest, message: &Message) -> Completion {
        let base = completion(CompletionKind::Receive, request.token, message.data.len() as u64);
        let source = self.peers.iter().position(|peer| *peer == message.source);
        Completion {
            is_tagged: message.tag.is_some(),
            tag: message.tag.unwrap_or_default(),
            immediate: message.immediate,
            source: source.map(|peer| PeerId(u32::try_from(peer).unwrap())),
            ..base
        }
    }
}

/// Puts a message into a buffer. Returns the rest of a buffer for several messages.
fn fill(
    world: &mut HashMap<Address, Node>,
    at: Address,
    request: &ReceiveRequest,
    message: Message,
) -> Option<ReceiveRequest> {
    let mut done = world[&at].describe(request, &message);
    let space = request.data.length();
    let length = done.length.min(space);
    (done.length, done.cut) = (length, done.length - length);
    done.address = request.data.as_slice().first().map_or(0, |range| range.address);
    if done.cut > 0 {
        done.result = Err(Failure::Truncated);
    }
    scatter(&request.data, &message.data[..usize::try_from(length).unwrap()]);
    let mut rest = None;
    if let Some(minimum) = request.multi {
        done.is_last = space - length < minimum;
        let data = HostRanges::one(done.address + length, space - length).unwrap();
        rest = (!done.is_last).then_some(ReceiveRequest { data, ..*request });
    }
    finish(world, at, done);
    if let Some((sender, completion)) = message.sender {
        finish(world, sender, completion);
    }
    rest
}

impl Loopback {
    fn world(&self) -> MutexGuard<'static, HashMap<Address, Node>> {
        WORLD.lock().unwrap()
    }

    fn peer(&self, world: &HashMap<Address, Node>, PeerId(peer): PeerId) -> Result<Address, PostError> {
        let address = world[&self.address].peers[peer as usize];
        let unreachable = || PostError::Failed(Failure::Unreachable { address: address.to_string().into() });
        world.contains_key(&address).then_some(address).ok_or_else(unreachable)
    }

    /// Completes an operation at once.
    fn end(&self, world: &mut HashMap<Address, Node>, done: Completion, complete: CompleteWhen) {
        if complete != CompleteWhen::Injected || done.result.is_err() {
            finish(world, self.address, done);
        }
    }

    /// Completion of remote access.
    fn accessed(&self, kind: CompletionKind, token: Token, remote: fpga_messages::RemoteRange) -> Completion {
        let mut done = completion(kind, token, remote.length);
        if remote.key == UNKNOWN_KEY {
            done.result = Err(Failure::KeyRefused { address: self.address.to_string().into() });
        }
        done
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        // The entry stays: addresses are not used twice.
        *self.world().get_mut(&self.address).unwrap() =
            Node { event: Some(Arc::clone(&self.event)), ..Node::default() };
    }
}

impl Loopback {
    fn has_failed(&self) -> bool {
        self.world()[&self.address].has_failed
    }
}

impl Engine for Loopback {
    fn address(&self) -> Address {
        self.address
    }

    fn add_peer(&mut self, address: Address) -> Option<PeerId> {
        let mut world = self.world();
        let peers = &mut world.get_mut(&self.address)?.peers;
        let index = peers.iter().position(|peer| *peer == address).unwrap_or_else(|| {
            peers.push(address);
            peers.len() - 1
        });
        u32::try_from(index).ok().map(PeerId)
    }

    fn send(&mut self, request: &SendRequest) -> Result<(), PostError> {
        let mut world = self.world();
        let to = self.peer(&world, request.peer)?;
        let data = gather(&request.data);
        let done = completion(CompletionKind::Send, request.token, data.len() as u64);
        let (tag, immediate, source) = (request.tag, request.immediate, self.address);
        let mut message = Message { source, tag, data, immediate, sender: None };
        let node = &world[&to];
        let found = node.posted.iter().position(|posted| node.matches(posted, &message));
        if found.is_none() && node.unexpected.len() >= MAX_UNEXPECTED {
            return Err(PostError::Full);
        }
        if request.complete == CompleteWhen::Matched {
            message.sender = Some((self.address, done));
        } else {
            self.end(&mut world, done, request.complete);
        }
        match found {
            None => world.get_mut(&to).unwrap().unexpected.push_back(message),
            Some(index) => {
                let posted = world.get_mut(&to).unwrap().posted.remove(index).unwrap();
                if let Some(rest) = fill(&mut world, to, &posted, message) {
                    world.get_mut(&to).unwrap().posted.insert(index, rest);
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self, request: &ReceiveRequest) -> Result<(), PostError> {
        let mut world = self.world();
        let mut request = *request;
        loop {
            let node = world.get_mut(&self.address).unwrap();
            let Some(index) = node.unexpected.iter().position(|message| node.matches(&request, message))
            else {
                node.posted.push_back(request);
                return Ok(());
            };
            let message = node.unexpected.remove(index).unwrap();
            match fill(&mut world, self.address, &request, message) {
                Some(rest) => request = rest,
                None => return Ok(()),
            }
        }
    }

    fn peek(&mut self, request: &ReceiveRequest, action: Peek) -> Result<(), PostError> {
        let mut world = self.world();
        let node = world.get_mut(&self.address).unwrap();
        let found = node.unexpected.iter().position(|message| node.matches(request, message));
        let mut done = completion(CompletionKind::Receive, request.token, 0);
        match found {
            None => done.result = Err(Failure::NoMessage),
            Some(index) => {
                done = node.describe(request, &node.unexpected[index]);
                if action != Peek::Look {
                    let message = node.unexpected.remove(index).unwrap();
                    if action == Peek::Claim {
                        node.claimed.insert(request.token.context, message);
                    }
                }
            }
        }
        finish(&mut world, self.address, done);
        Ok(())
    }

    fn receive_claimed(&mut self, request: &ReceiveRequest, discard: bool) -> Result<(), PostError> {
        let mut world = self.world();
        let node = world.get_mut(&self.address).unwrap();
        let message = node.claimed.remove(&request.token.context);
        let message =
            message.ok_or(PostError::Invalid { text: "no message was claimed with this context" })?;
        if discard {
            let done = node.describe(request, &message);
            finish(&mut world, self.address, done);
        } else {
            fill(&mut world, self.address, request, message);
        }
        Ok(())
    }

    fn cancel(&mut self, context: u64) -> bool {
        let mut world = self.world();
        let node = world.get_mut(&self.address).unwrap();
        let Some(index) = node.posted.iter().position(|posted| posted.token.context == context) else {
            return false;
        };
        let posted = node.posted.remove(index).unwrap();
        let mut done = completion(CompletionKind::Receive, posted.token, 0);
        done.result = Err(Failure::Cancelled);
        finish(&mut world, self.address, done);
        true
    }

    fn write(&mut self, request: &AccessRequest) -> Result<(), PostError> {
        let mut world = self.world();
        let to = self.peer(&world, request.peer)?;
        let done = self.accessed(CompletionKind::Write, request.token, request.remote);
        if done.result.is_ok() {
            ApplicationMemory
                .write(request.remote.address, SharedSlice::from_mut(&mut gather(&request.data)));
            if request.immediate.is_some() {
                let remote = completion(CompletionKind::RemoteWrite, Token::default(), request.remote.length);
                finish(&mut world, to, Completion { immediate: request.immediate, ..remote });
            }
        }
        self.end(&mut world, done, request.complete);
        Ok(())
    }

    fn read(&mut self, request: &AccessRequest) -> Result<(), PostError> {
        let mut world = self.world();
        self.peer(&world, request.peer)?;
        let done = self.accessed(CompletionKind::Read, request.token, request.remote);
        if done.result.is_ok() {
            scatter(
                &request.data,
                &gather(&HostRanges::one(request.remote.address, request.remote.length).unwrap()),
            );
        }
        self.end(&mut world, done, request.complete);
        Ok(())
    }

    fn atomic(&mut self, request: &AtomicRequest) -> Result<(), PostError> {
        let mut world = self.world();
        self.peer(&world, request.peer)?;
        let mut fetch = vec![0; usize::try_from(request.fetch.length()).unwrap()];
        let (operand, compare) = (gather(&request.operand), gather(&request.compare));
        let (address, length) = (request.remote.address, request.remote.length);
        let unit = HostAtomics::default();
        let (operation, datatype, fetch_place) = (request.operation, request.datatype, &mut fetch[..]);
        let (operand, compare) = (&operand[..], &compare[..]);
        let call = AtomicCall { operation, datatype, address, length, operand, compare, fetch: fetch_place };
        assert!(unit.apply(call));
        scatter(&request.fetch, &fetch);
        let done = completion(CompletionKind::Atomic, request.token, length);
        self.end(&mut world, done, request.complete);
        Ok(())
    }

    fn progress(&mut self) -> usize {
        usize::from(rustix::io::read(&self.event, &mut [0; 8]).is_ok())
    }

    fn failure(&self) -> Option<Failure> {
        self.has_failed().then(|| Failure::Card { text: "test".into() })
    }

    fn next_completion(&mut self) -> Option<Completion> {
        self.world().get_mut(&self.address)?.done.pop_front()
    }

    fn in_progress(&self) -> usize {
        0
    }

    fn is_idle(&self) -> bool {
        true
    }

    fn prepare_to_sleep(&mut self) -> Duration {
        if self.world()[&self.address].done.is_empty() { Duration::from_secs(3600) } else { Duration::ZERO }
    }

    fn events(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }
}
