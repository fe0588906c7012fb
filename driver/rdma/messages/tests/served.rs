//! Messengers on cards that other threads serve as vfio-user devices: memory is mapped through the backend, and the cards work on their own,
//! as cards behind VFIO do.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use fpga_messages::{Failure, LinkChoice, MessengerError, PeerId};
use fpga_sim::link::{ShmLink, ShmLinkOptions};
use fpga_sim::served::CardServer;
use fpga_sim::{CardDescription, SimNetwork};

use crate::bed::{Bed, End, bytes, options, receive, send};

/// A served card, which ends with this.
pub(crate) struct Served {
    socket: PathBuf,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    is_linked: bool,
}

impl Served {
    /// Serves card `own`, which is linked to card `other`, if there is one.
    pub(crate) fn start(folder: &Path, own: u32, other: Option<u32>) -> Self {
        let link = |node: u32| folder.join(format!("link{node}"));
        let mut card = CardDescription::default();
        card.ni.node_id = own;
        let mut options = ShmLinkOptions::new(link(own));
        if let Some(other) = other {
            options = options.peer(link(other));
        }
        let network = SimNetwork::builder().card(card).link(ShmLink::bind(&options).unwrap());
        let network = network.build().unwrap();
        let socket = folder.join(format!("card{own}"));
        let server = CardServer::bind(&socket).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || {
            server.run(&network, 0, stopped).unwrap();
        });
        Self { socket, stop: Some(stop), thread: Some(thread), is_linked: other.is_some() }
    }

    pub(crate) fn open(&self) -> End {
        self.try_open().unwrap()
    }

    pub(crate) fn try_open(&self) -> Result<End, MessengerError> {
        let mut options = options(LinkChoice::Auto);
        options.card = format!("vfio-user:{}", self.socket.display());
        // A link that does not exist never answers; one that exists may be slow to, on a busy machine.
        options.give_up = if self.is_linked { Duration::from_secs(20) } else { Duration::from_millis(700) };
        End::try_open(&options)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop = None;
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}

/// Ends on two cards: peer `n` of each is end `n`.
fn bed(cards: &[Served; 2]) -> Bed {
    let mut bed = Bed(cards.iter().map(Served::open).collect());
    for end in &mut bed.0 {
        for (number, node) in [(0, 1), (1, 2)] {
            let address = format!("fpga://node/{node}").parse().unwrap();
            assert_eq!(end.messenger.add_peer(address).unwrap(), PeerId(number));
        }
    }
    bed
}

#[test]
fn served_cards_exchange_messages() {
    let folder = tempfile::tempdir().unwrap();
    let cards = [(1, 2), (2, 1)].map(|(own, other)| Served::start(folder.path(), own, Some(other)));
    // A second process on each card finds it usable.
    for process in 0..2 {
        let mut bed = bed(&cards);
        for (round, length) in (1..).zip([0, 63, 16_320, 131_073, 1_000_000]) {
            for (from, to) in [(0, 1), (1, 0)] {
                let data = bytes(round + process, length);
                bed.0[from].poke(0, &data);
                bed.0[to].messenger.receive(&receive(Some(from), 2 << 20, length, Some(round), 1)).unwrap();
                bed.0[from].messenger.send(&send(to, 0, length, Some(round), 2)).unwrap();
                let done = bed.wait(to, 1);
                assert_eq!((done.length, done.result), (length as u64, Ok(())));
                assert!(bed.0[to].peek(2 << 20, length) == data, "{length} bytes");
                assert_eq!(bed.wait(from, 2).result, Ok(()));
            }
        }
    }
}

#[test]
fn served_card_without_link_reports_unreachable_peer() {
    let folder = tempfile::tempdir().unwrap();
    let cards = [1, 2].map(|own| Served::start(folder.path(), own, None));
    let mut bed = bed(&cards);
    bed.0[0].messenger.send(&send(1, 0, 10, None, 1)).unwrap();
    bed.0[1].messenger.receive(&receive(Some(0), 0, 10, None, 2)).unwrap();
    for (end, context) in [(0, 1), (1, 2)] {
        let failure = bed.wait(end, context).result;
        assert!(matches!(failure, Err(Failure::Unreachable { .. })), "{failure:?}");
    }
}

#[test]
fn served_card_whose_server_ends_fails_every_operation() {
    let folder = tempfile::tempdir().unwrap();
    let cards = [(1, 2), (2, 1)].map(|(own, other)| Served::start(folder.path(), own, Some(other)));
    let mut bed = bed(&cards);
    bed.0[0].messenger.receive(&receive(Some(1), 0, 10, None, 1)).unwrap();
    bed.0[1].messenger.send(&send(0, 0, 10, None, 2)).unwrap();
    assert_eq!((bed.wait(0, 1).result, bed.wait(1, 2).result), (Ok(()), Ok(())));
    bed.0[0].messenger.receive(&receive(Some(1), 0, 10, None, 3)).unwrap();
    let [first, _second] = cards;
    drop(first);
    let failure = bed.wait(0, 3).result;
    assert!(matches!(failure, Err(Failure::Card { .. })), "{failure:?}");
    assert!(bed.0[0].messenger.send(&send(1, 0, 10, None, 4)).is_err());
}
