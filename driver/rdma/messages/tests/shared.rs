//! Messengers on views of shared cards.

use std::path::PathBuf;
use std::thread::JoinHandle;

use fpga_driver::Card;
use fpga_messages::{Address, Failure, LinkChoice, MessengerOptions};
use fpga_sim::{CardDescription, SimNetwork, ThreadOptions};
use fpgad::{Owner, OwnerOptions, ViewInterface};

use crate::bed::{Bed, End, bytes, options, receive, send};

/// Owner of a simulated card, on a thread.
struct Served {
    folder: tempfile::TempDir,
    stop: Option<std::io::PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn new() -> Self {
        let network = SimNetwork::builder().card(CardDescription::default());
        let network = network.threaded(ThreadOptions::default()).build().unwrap();
        let card = Card::from_backend(network.backend(0)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let interface = ViewInterface::LinkedAt("127.0.0.1".parse().unwrap());
        let options = OwnerOptions { interface, ..OwnerOptions::default() };
        let owner = Owner::bind(card, &folder.path().join("card"), options).unwrap();
        let (stopped, stop) = std::io::pipe().unwrap();
        let thread = std::thread::spawn(move || drop(owner.run(&stopped).unwrap()));
        Self { folder, stop: Some(stop), thread: Some(thread) }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("card")
    }

    fn options(&self) -> MessengerOptions {
        let mut options = options(LinkChoice::Auto);
        options.card = format!("vfio-user:{}", self.socket().display());
        options
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sends messages between all ends.
fn exchange(bed: &mut Bed, lengths: &[usize]) {
    let mut context = 100;
    let ends = bed.0.len();
    for (length, from, to) in
        lengths.iter().flat_map(|length| (0..ends * ends).map(move |at| (*length, at / ends, at % ends)))
    {
        if from == to {
            continue;
        }
        let data = bytes(context, length);
        bed.0[from].poke(0, &data);
        bed.0[to].messenger.receive(&receive(Some(from), 4 << 20, length, Some(context), context)).unwrap();
        bed.0[from].messenger.send(&send(to, 0, length, Some(context), context + 1)).unwrap();
        bed.wait(from, context + 1).result.unwrap();
        bed.wait(to, context).result.unwrap();
        assert!(bed.0[to].peek(4 << 20, length) == data, "{length} bytes from {from} to {to}");
        context += 2;
    }
}

fn bed(options: &[MessengerOptions]) -> Bed {
    let mut ends: Vec<End> = options.iter().map(End::open).collect();
    let addresses: Vec<_> = ends.iter().map(|end| end.messenger.address()).collect();
    for end in &mut ends {
        for address in &addresses {
            // As launchers exchange it.
            let text = address.to_string();
            end.messenger.add_peer(text.parse::<Address>().unwrap()).unwrap();
        }
    }
    Bed(ends)
}

#[test]
fn views_of_one_card_exchange_messages() {
    let owner = Served::new();
    exchange(&mut bed(&[owner.options(), owner.options(), owner.options()]), &[0, 1, 5000, 1 << 20]);
}

#[test]
fn views_exchange_messages_with_those_of_other_owners_and_simulated_cards() {
    let owners = [Served::new(), Served::new()];
    let [one, other] = owners.each_ref().map(Served::options);
    exchange(
        &mut bed(&[one.clone(), other, options(LinkChoice::Auto), options(LinkChoice::Udp)]),
        &[1, 300_000],
    );
}

/// A program that only polls for messages of others learns that the owner of its card has ended.
#[test]
fn view_without_owner_fails_what_waits() {
    let owner = Served::new();
    let mut bed = bed(&[owner.options()]);
    bed.0[0].messenger.receive(&receive(None, 0, 10, None, 1)).unwrap();
    bed.progress();
    assert_eq!(bed.0[0].messenger.failure(), None);
    drop(owner);
    let failure = bed.wait(0, 1).result.unwrap_err();
    assert!(matches!(failure, Failure::Card { .. }), "{failure}");
    assert!(failure.to_string().contains("server"), "{failure}");
    assert_eq!(bed.0[0].messenger.failure(), Some(failure));
}

/// A view that only waits for one of another owner learns that this owner has ended.
#[test]
fn view_waiting_for_view_of_ended_owner_fails() {
    let (owner, other) = (Served::new(), Served::new());
    let [mut one, mut two] = [&owner, &other].map(Served::options);
    one.give_up = std::time::Duration::from_secs(3600);
    two.give_up = one.give_up;
    let mut bed = bed(&[one, two]);
    bed.0[0].messenger.receive(&receive(Some(1), 0, 10, None, 1)).unwrap();
    bed.0[1].messenger.send(&send(0, 0, 10, None, 1)).unwrap();
    bed.wait(0, 1).result.unwrap();
    bed.0[0].messenger.receive(&receive(Some(1), 0, 10, None, 2)).unwrap();
    drop(other);
    let failure = bed.wait(0, 2).result.unwrap_err();
    assert!(matches!(failure, Failure::Unreachable { .. }), "{failure}");
    assert_eq!(bed.0[0].messenger.failure(), None);
}
