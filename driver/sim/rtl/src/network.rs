//! Network ports (`fpga_network`): frames of AXI4-Stream ports through a simulated network.
//!
//! All instances of a simulation are ports of one network. A frame goes to the port behind which its destination node has sent last; one
//! for an unknown node goes to all other ports, and to the link to other processes, if there is one. Each port has an impaired link
//! towards the design: losses, duplicates, damage, delay and disorder. Everything happens on the simulator's thread. While frames are in
//! flight, simulated time advances also with a locked clock ([`is_any_busy`]).

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use fpga_netmodel::{Conditions, Delay, ImpairedLink, Impairments, Loss, Order, OrderError, Probability};
use fpga_pci::lock;
use fpga_protocol::time::Nanos;
use fpga_registers::bytes::u32_at;
use fpga_sim::link::{Link, ShmLink, ShmLinkOptions, UdpLink, UdpLinkOptions};

use crate::burst::MAX_WIDTH;
use crate::stream::StreamBeat;

/// Maximum number of frames in flight towards one port; further ones are lost.
const CAPACITY: usize = 4096;
/// Maximum number of ports.
const PORTS: usize = 64;
/// Bytes of the longest frame; a longer one is cut off, and its checksum is wrong.
const MAX_FRAME: usize = 64 * 1024;
/// Time for which a frame is held to be overtaken by later ones.
const MAX_HOLD: Nanos = Nanos::from_micros(20);

static NETWORK: Mutex<Option<Network>> = Mutex::new(None);
static BUSY: AtomicBool = AtomicBool::new(false);

/// Returns whether frames are in flight.
pub(crate) fn is_any_busy() -> bool {
    BUSY.load(Ordering::Relaxed)
}

/// Reason why a network does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    #[error("parameter DATA_WIDTH of fpga_network is {0}: it must be 64, 128, 256 or 512")]
    Width(i32),
    #[error("a simulation has at most {PORTS} instances of fpga_network: remove the others")]
    Ports,
    #[error(
        "option `{0}` is not one of loss=P, duplicate=P, damage=P, delay_ns=N, reorder=N, seed=N, link=udp:ADDRESS, link=shm:PATH"
    )]
    Option(String),
    #[error("link= has ends of two kinds; give only udp:ADDRESS, or only shm:PATH")]
    MixedLinks,
    #[error(transparent)]
    Link(#[from] fpga_sim::link::LinkError),
    #[error(transparent)]
    Order(#[from] OrderError),
}

/// Options of the network: a list like `loss=0.01,reorder=64`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NetworkOptions {
    conditions: Conditions,
    reorder: usize,
    seed: u64,
    /// Ends of the link to other processes: this one, then the others.
    links: Vec<String>,
}

impl NetworkOptions {
    /// Parses a list. An empty one gives the defaults: no impairment, no link.
    pub(crate) fn parse(text: &str) -> Result<Self, NetworkError> {
        let mut options = Self::default();
        for item in text.split(',').filter(|item| !item.is_empty()) {
            let invalid = || NetworkError::Option(item.to_owned());
            let (name, value) = item.split_once('=').ok_or_else(invalid)?;
            let probability = || {
                let fraction: f64 = value.parse().map_err(|_| invalid())?;
                Probability::new(fraction).map_err(|_| invalid())
            };
            let conditions = options.conditions;
            match name {
                "loss" => options.conditions.loss = Loss::Independent(probability()?),
                "duplicate" => options.conditions = conditions.copies(probability()?, conditions.copy_delay),
                "damage" => options.conditions = conditions.damage(probability()?),
                "delay_ns" => {
                    let delay = Delay::Constant(Nanos::new(value.parse().map_err(|_| invalid())?));
                    options.conditions = conditions.delay(delay);
                }
                "reorder" => options.reorder = value.parse().map_err(|_| invalid())?,
                "seed" => options.seed = value.parse().map_err(|_| invalid())?,
                "link" => options.links.push(value.to_owned()),
                _ => return Err(invalid()),
            }
        }
        Ok(options)
    }

    fn impairments(&self) -> Impairments {
        let impairments = Impairments::both(self.conditions);
        match self.reorder {
            0 => impairments,
            depth => impairments.order(Order::Random { depth, patience: MAX_HOLD }),
        }
    }

    fn link(&self) -> Result<Option<Link>, NetworkError> {
        let Some((local, peers)) = self.links.split_first() else { return Ok(None) };
        let invalid = |text: &String| NetworkError::Option(format!("link={text}"));
        let address = |text: &String| match text.strip_prefix("udp:") {
            Some(address) => address.parse().map_err(|_| invalid(text)),
            None if text.starts_with("shm:") => Err(NetworkError::MixedLinks),
            None => Err(invalid(text)),
        };
        if let Some(path) = local.strip_prefix("shm:") {
            let mut options = ShmLinkOptions::new(path);
            for peer in peers {
                options = options.peer(peer.strip_prefix("shm:").ok_or(NetworkError::MixedLinks)?);
            }
            return Ok(Some(ShmLink::bind(&options)?.into()));
        }
        let mut options = UdpLinkOptions::new(address(local)?).divided();
        for peer in peers {
            options = options.peer(address(peer)?);
        }
        Ok(Some(UdpLink::bind(options)?.into()))
    }
}

/// One instance of `fpga_network`.
#[derive(Debug)]
struct Port {
    width: usize,
    /// Frames towards the design.
    link: ImpairedLink<Vec<u8>>,
    /// Frame that the design is sending.
    outgoing: Vec<u8>,
    /// Rest of the frame that the design is receiving.
    incoming: VecDeque<u8>,
}

/// The network of a simulation.
#[derive(Debug)]
struct Network {
    options: NetworkOptions,
    ports: Vec<Port>,
    /// Port behind which a node was seen.
    nodes: HashMap<u32, usize>,
    link: Option<Link>,
}

impl Network {
    /// Delivers a frame. `from` is `None` for one from another process.
    fn deliver(&mut self, now: Nanos, from: Option<usize>, frame: &[u8]) {
        let (source, destination) = (u32_at(frame, 4), u32_at(frame, 8));
        if let (Some(port), Some(node)) = (from, source) {
            self.nodes.insert(node, port);
        }
        let known = destination.and_then(|node| self.nodes.get(&node).copied());
        for (number, port) in self.ports.iter_mut().enumerate() {
            // A node reaches itself, too.
            let is_way_back = Some(number) == from && source != destination;
            if !is_way_back && known.is_none_or(|known| known == number) {
                // A full link loses the frame, as a full queue of a switch does.
                let _ = port.link.offer(now, frame.to_vec());
            }
        }
        if let (Some(link), Some(_), None) = (&mut self.link, from, known) {
            link.queue(frame);
            link.flush();
        }
    }

    /// Takes the frames from other processes.
    fn receive(&mut self, now: Nanos) {
        let Some(mut link) = self.link.take() else { return };
        let nodes = &self.nodes;
        let mut frames = Vec::new();
        while let Some(frame) = link.receive(|node| nodes.contains_key(&node.get())) {
            frames.push(frame.to_vec());
        }
        self.link = Some(link);
        for frame in frames {
            self.deliver(now, None, &frame);
        }
    }

    fn is_busy(&self) -> bool {
        self.ports.iter().any(|port| !port.link.is_empty() || !port.incoming.is_empty())
    }
}

/// Opens a port. `options` count for the first one, which builds the network. Returns its handle.
pub(crate) fn open(data_bits: i32, options: &str) -> Result<usize, NetworkError> {
    let width = usize::try_from(data_bits / 8).ok().filter(|&width| matches!(width, 8 | 16 | 32 | MAX_WIDTH));
    let width = width.ok_or(NetworkError::Width(data_bits))?;
    let mut network = lock(&NETWORK);
    if network.is_none() {
        let options = NetworkOptions::parse(options)?;
        let link = options.link()?;
        *network = Some(Network { options, ports: Vec::new(), nodes: HashMap::new(), link });
    }
    let Some(network) = network.as_mut().filter(|network| network.ports.len() < PORTS) else {
        return Err(NetworkError::Ports);
    };
    let number = network.ports.len();
    let seed = network.options.seed.wrapping_add(number as u64);
    let link = ImpairedLink::new(network.options.impairments(), CAPACITY, seed)?;
    network.ports.push(Port { width, link, outgoing: Vec::new(), incoming: VecDeque::new() });
    Ok(number)
}

/// A beat from the design.
pub(crate) fn send(handle: i32, now: Nanos, beat: &StreamBeat) {
    let mut network = lock(&NETWORK);
    let Some(network) = network.as_mut() else { return };
    let number = usize::try_from(handle).unwrap_or(usize::MAX);
    let Some(port) = network.ports.get_mut(number) else { return };
    let valid = beat.data.iter().take(port.width).enumerate().filter(|(byte, _)| beat.keep >> byte & 1 != 0);
    port.outgoing.extend(valid.map(|(_, value)| value));
    port.outgoing.truncate(MAX_FRAME);
    if beat.is_last {
        let frame = std::mem::take(&mut port.outgoing);
        network.deliver(now, Some(number), &frame);
        BUSY.store(true, Ordering::Relaxed);
    }
}

/// Next beat for the design.
pub(crate) fn beat(handle: i32, now: Nanos) -> Option<StreamBeat> {
    let mut network = lock(&NETWORK);
    let network = network.as_mut()?;
    let number = usize::try_from(handle).ok()?;
    if number == 0 {
        network.receive(now);
    }
    let port = network.ports.get_mut(number)?;
    if port.incoming.is_empty() {
        let frame = port.link.poll(now);
        if frame.is_none() {
            BUSY.store(network.is_busy(), Ordering::Relaxed);
            return None;
        }
        port.incoming.extend(frame.into_iter().flatten());
    }
    let length = port.width.min(port.incoming.len());
    let mut beat = StreamBeat { data: [0; MAX_WIDTH], keep: 0, is_last: port.incoming.len() == length };
    for (byte, value) in port.incoming.drain(..length).enumerate() {
        if let Some(place) = beat.data.get_mut(byte) {
            *place = value;
        }
        beat.keep |= 1 << byte;
    }
    Some(beat)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_or_named() {
        let options = NetworkOptions::parse("loss=0.01,reorder=64,seed=7,delay_ns=500").expect("options");
        assert_eq!((options.reorder, options.seed), (64, 7));
        assert_eq!(options.conditions.loss, Loss::Independent(Probability::new(0.01).expect("a fraction")));
        assert_eq!(NetworkOptions::parse("").expect("none"), NetworkOptions::default());
        for text in ["loss", "loss=2", "speed=1", "reorder=-1"] {
            let error = NetworkOptions::parse(text).expect_err(text).to_string();
            assert!(error.contains(text), "{error}");
        }
        let mixed = NetworkOptions::parse("link=shm:/tmp/a,link=udp:127.0.0.1:1").expect("parsed").link();
        assert!(matches!(mixed, Err(NetworkError::MixedLinks)));
    }
}
