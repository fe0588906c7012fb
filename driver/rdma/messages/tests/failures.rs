//! Peers that do not answer, or start again.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use fpga_messages::{CompleteWhen, Failure, LinkChoice, MessengerOptions, Peek, PostError, SendRequest};

use crate::bed::{Bed, End, options, receive, send};

/// The time to give up is real time. It is long enough for a program that the system interrupts.
fn impatient() -> fpga_messages::MessengerOptions {
    let mut options = options(LinkChoice::Auto);
    options.give_up = Duration::from_millis(400);
    options
}

fn is_unreachable(result: Result<(), Failure>) -> bool {
    matches!(result, Err(Failure::Unreachable { .. }))
}

#[test]
fn peer_that_never_was_fails_sends() {
    let mut bed = Bed::new(1, &impatient());
    let nobody = bed.0[0].messenger.add_peer("fpga://127.0.0.1:9".parse().unwrap()).unwrap();
    for (context, length) in [(1, 10), (2, 100_000)] {
        bed.0[0].messenger.send(&send(nobody.0 as usize, 0, length, None, context)).unwrap();
    }
    assert!(is_unreachable(bed.wait(0, 1).result));
    assert!(is_unreachable(bed.wait(0, 2).result));
    // At once, or, on a slow machine, after another attempt.
    match bed.0[0].messenger.send(&send(nobody.0 as usize, 0, 10, None, 3)) {
        Ok(()) => assert!(is_unreachable(bed.wait(0, 3).result)),
        Err(error) => assert!(matches!(error, PostError::Failed(Failure::Unreachable { .. })), "{error}"),
    }
}

/// Cards by UDP with the same key exchange messages; one with another key, and one without, are not heard.
#[test]
fn peer_with_another_key_is_unreachable() {
    let folder = tempfile::tempdir().unwrap();
    let key = |name: &str| {
        let path = folder.path().join(name);
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.unwrap().write_all(format!("{}\n", name.repeat(32)).as_bytes()).unwrap();
        path
    };
    let with_key = |key| {
        let mut options: MessengerOptions = options(LinkChoice::Udp);
        options.link_key = key;
        options
    };
    let (key, other) = (key("3a"), key("3b"));
    let mut bed = Bed::new(2, &with_key(Some(key)));
    for (length, context) in [(10, 1), (1_000_000, 2)] {
        bed.0[1].messenger.receive(&receive(Some(0), 0, length, None, context)).unwrap();
        bed.0[0].messenger.send(&send(1, 0, length, None, context)).unwrap();
        assert_eq!((bed.wait(0, context).result, bed.wait(1, context).result), (Ok(()), Ok(())));
    }
    let mut hardware = with_key(Some(other.clone()));
    hardware.card = "0000:65:00.0".to_owned();
    let error = End::refused(&hardware);
    assert!(error.to_string().contains("FPGA_LINK_KEY"), "{error}");
    for key in [Some(other), None] {
        let mut options = with_key(key);
        options.give_up = impatient().give_up;
        let mut stranger = End::open(&options);
        let peer = stranger.messenger.add_peer(bed.0[0].messenger.address()).unwrap();
        stranger.messenger.send(&send(peer.0 as usize, 0, 10, None, 1)).unwrap();
        let failed = loop {
            bed.0[0].progress();
            stranger.progress();
            if let Some(done) = stranger.take(1) {
                break done;
            }
        };
        assert!(is_unreachable(failed.result));
    }
}

#[test]
fn peer_that_never_was_fails_injected_sends() {
    let mut bed = Bed::new(1, &impatient());
    let nobody = bed.0[0].messenger.add_peer("fpga://127.0.0.1:9".parse().unwrap()).unwrap();
    for context in [1, 2] {
        let request =
            SendRequest { complete: CompleteWhen::Injected, ..send(nobody.0 as usize, 0, 10, None, context) };
        bed.0[0].messenger.send(&request).unwrap();
    }
    assert!(is_unreachable(bed.wait(0, 1).result));
    assert!(is_unreachable(bed.wait(0, 2).result));
}

#[test]
fn peer_that_never_was_fails_receives_from_it() {
    let mut bed = Bed::new(1, &impatient());
    let nobody = bed.0[0].messenger.add_peer("fpga://127.0.0.1:9".parse().unwrap()).unwrap();
    bed.0[0].messenger.receive(&receive(Some(nobody.0 as usize), 0, 10, None, 1)).unwrap();
    assert!(is_unreachable(bed.wait(0, 1).result));
}

/// Whether the peer has closed its end, or, if its last record was lost with it, does not answer.
fn has_closed(result: Result<(), Failure>) -> bool {
    matches!(result, Err(Failure::Closed { .. } | Failure::Unreachable { .. }))
}

#[test]
fn peer_that_closes_fails_what_is_in_progress_with_it() {
    let mut bed = Bed::new(3, &impatient());
    bed.0[1].messenger.receive(&receive(Some(2), 0, 10, None, 1)).unwrap();
    bed.0[2].messenger.send(&send(1, 0, 10, None, 1)).unwrap();
    bed.wait(1, 1);
    bed.wait(2, 1);
    // From now on end 1 waits for a message of end 2, which ends.
    bed.0[1].messenger.receive(&receive(Some(2), 0, 10, None, 2)).unwrap();
    bed.0[1].messenger.receive(&receive(None, 0, 10, None, 3)).unwrap();
    bed.0[1].messenger.send(&send(2, 0, 100_000, Some(1), 4)).unwrap();
    drop(bed.0.pop());
    for context in [2, 4] {
        let result = bed.wait(1, context).result;
        assert!(matches!(result, Err(Failure::Closed { .. })), "{result:?}");
    }
    let refused = bed.0[1].messenger.send(&send(2, 0, 10, None, 5));
    assert!(matches!(refused, Err(PostError::Failed(Failure::Closed { .. })) | Ok(())), "{refused:?}");
    // Receives from any source, and other peers, are not concerned: the end of a peer is no failure.
    assert_eq!(bed.0[1].messenger.next_peer_failure(), None);
    bed.0[0].messenger.send(&send(1, 0, 10, None, 1)).unwrap();
    assert_eq!(bed.wait(1, 3).result, Ok(()));
}

/// A message that has completed at its sender is received after the sender has closed.
#[test]
fn peer_that_closes_leaves_messages() {
    let mut bed = Bed::new(2, &options(LinkChoice::Auto));
    bed.0[1].poke(0, b"last words");
    bed.0[1].messenger.send(&send(0, 0, 10, Some(3), 1)).unwrap();
    bed.wait(1, 1);
    bed.0[0].messenger.receive(&receive(Some(1), 100, 10, Some(4), 2)).unwrap();
    drop(bed.0.pop());
    assert!(has_closed(bed.wait(0, 2).result));
    for from in [Some(1), None] {
        let posted = bed.0[0].messenger.receive(&receive(from, 0, 10, Some(3), 3));
        match from {
            Some(_) => {
                posted.unwrap();
                assert_eq!((bed.wait(0, 3).result, bed.0[0].peek(0, 10)), (Ok(()), b"last words".to_vec()));
            }
            None => {
                bed.progress();
                assert!(bed.0[0].take(3).is_none());
            }
        }
    }
}

/// A message that was claimed before its sender has closed is received; of a large one whose data will not arrive, the failure is reported.
#[test]
fn peer_that_closes_leaves_claimed_messages() {
    let mut bed = Bed::new(2, &options(LinkChoice::Auto));
    bed.0[1].poke(0, b"last words");
    bed.0[1].messenger.send(&send(0, 0, 10, Some(3), 1)).unwrap();
    bed.0[1].messenger.send(&send(0, 0, 100_000, Some(4), 2)).unwrap();
    let request = |tag| receive(Some(1), 0, 100, Some(tag), tag);
    for tag in [3, 4] {
        loop {
            bed.0[0].messenger.peek(&request(tag), Peek::Claim).unwrap();
            if bed.wait(0, tag).result.is_ok() {
                break;
            }
        }
    }
    bed.0[0].messenger.receive(&receive(Some(1), 100, 10, Some(5), 5)).unwrap();
    drop(bed.0.pop());
    assert!(has_closed(bed.wait(0, 5).result));
    for tag in [3, 4] {
        bed.0[0].messenger.receive_claimed(&request(tag), false).unwrap();
    }
    assert_eq!((bed.wait(0, 3).result, bed.0[0].peek(0, 10)), (Ok(()), b"last words".to_vec()));
    assert!(has_closed(bed.wait(0, 4).result));
    assert_eq!(bed.0[0].messenger.unexpected(), (0, 0));
}

/// Environment variable with the address of the test that starts the child process.
const PARENT: &str = "FPGA_TEST_PARENT";

#[test]
#[ignore = "child process of peer_killed_fails_receives_within_a_second"]
fn child_that_sends_and_waits() {
    let mut end = End::open(&options(LinkChoice::Auto));
    let parent = end.messenger.add_peer(std::env::var(PARENT).unwrap().parse().unwrap()).unwrap();
    end.messenger.send(&send(parent.0 as usize, 0, 10, None, 1)).unwrap();
    loop {
        end.progress();
    }
}

/// A process that only receives from another one of its machine is notified of the end of that process long before the time to give up.
#[test]
fn peer_killed_fails_receives_within_a_second() {
    let mut patient = options(LinkChoice::Auto);
    patient.give_up = Duration::from_secs(3600);
    let mut bed = Bed(vec![End::open(&patient), End::open(&patient)]);
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "failures::child_that_sends_and_waits"])
        .env(PARENT, bed.0[0].messenger.address().to_string())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    bed.0[0].messenger.receive(&receive(None, 0, 10, None, 1)).unwrap();
    let source = bed.wait(0, 1).source.unwrap();
    bed.0[0].messenger.receive(&receive(Some(source.0 as usize), 0, 10, None, 2)).unwrap();
    bed.0[0].messenger.receive(&receive(None, 0, 10, None, 3)).unwrap();
    // While it runs, it may be silent.
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_millis(700) {
        bed.progress();
        assert!(bed.0[0].take(2).is_none());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_unreachable(bed.wait(0, 2).result));
    // A receive from any source, and other peers, are not concerned; the failure is reported beside them, once.
    assert!(is_unreachable(bed.0[0].messenger.next_peer_failure().map_or(Ok(()), Err)));
    assert_eq!(bed.0[0].messenger.next_peer_failure(), None);
    let address = bed.0[0].messenger.address();
    let first = bed.0[1].messenger.add_peer(address).unwrap();
    bed.0[1].messenger.send(&send(first.0 as usize, 0, 10, None, 1)).unwrap();
    assert_eq!(bed.wait(0, 3).result, Ok(()));
}

#[test]
fn peer_that_starts_again_has_a_new_session() {
    let mut bed = Bed::new(2, &impatient());
    bed.0[0].messenger.send(&send(1, 0, 10, None, 1)).unwrap();
    bed.wait(0, 1);
    let fpga_messages::Address::Link(address) = bed.0[1].messenger.address() else { unreachable!() };
    let own = bed.0[0].messenger.address();
    drop(bed.0.pop());
    // Waits for a message of the process that has ended, unless the messenger has noticed its end already.
    let waits = match bed.0[0].messenger.receive(&receive(Some(1), 0, 10, None, 2)) {
        Ok(()) => true,
        Err(PostError::Failed(failure)) => {
            assert!(has_closed(Err(failure)));
            false
        }
        Err(error) => panic!("{error}"),
    };
    let mut again = impatient();
    again.listen = Some(address);
    let mut second = End::open(&again);
    let first = second.messenger.add_peer(own).unwrap();
    second.messenger.send(&send(first.0 as usize, 0, 10, Some(5), 1)).unwrap();
    bed.0.push(second);
    if waits {
        let failure = bed.wait(0, 2).result;
        assert!(
            has_closed(failure.clone()) || matches!(failure, Err(Failure::Restarted { .. })),
            "{failure:?}"
        );
    }
    // Requests are refused for a while, unless the new process has opened its session.
    let begun = std::time::Instant::now();
    while bed.0[0].messenger.receive(&receive(Some(1), 0, 10, Some(5), 3)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        bed.progress();
    }
    assert_eq!(bed.wait(0, 3).result, Ok(()));
    bed.0[0].messenger.send(&send(1, 0, 10, Some(6), 4)).unwrap();
    assert_eq!(bed.wait(0, 4).result, Ok(()));
}

#[test]
fn peer_that_starts_again_outlives_transfers_to_earlier_process() {
    let options = impatient();
    let mut bed = Bed::new(2, &options);
    bed.0[0].messenger.send(&send(1, 0, 10, None, 1)).unwrap();
    bed.wait(0, 1);
    let fpga_messages::Address::Link(address) = bed.0[1].messenger.address() else { unreachable!() };
    let own = bed.0[0].messenger.address();
    drop(bed.0.pop());
    for context in 10..20 {
        bed.0[0].messenger.send(&send(1, 0, 1000, None, context)).unwrap();
    }
    bed.progress();
    let mut again = options.clone();
    again.listen = Some(address);
    let mut second = End::open(&again);
    let first = second.messenger.add_peer(own).unwrap();
    second.messenger.send(&send(first.0 as usize, 0, 10, Some(5), 1)).unwrap();
    bed.0.push(second);
    bed.0[0].messenger.receive(&receive(None, 0, 10, Some(5), 2)).unwrap();
    assert_eq!(bed.wait(0, 2).result, Ok(()));
    // For longer than the endpoint repeats packets of the earlier transfers.
    let begun = std::time::Instant::now();
    while begun.elapsed() < 2 * options.give_up {
        bed.0[0].messenger.receive(&receive(Some(1), 0, 10, Some(6), 3)).unwrap();
        bed.0[1].messenger.send(&send(first.0 as usize, 0, 10, Some(6), 4)).unwrap();
        assert_eq!((bed.wait(0, 3).result, bed.wait(1, 4).result), (Ok(()), Ok(())));
    }
}

/// A server that starts again and only waits is found by a client that has lost its earlier process.
#[test]
fn peer_that_starts_again_and_waits_is_reached() {
    let mut bed = Bed::new(2, &impatient());
    bed.0[0].messenger.send(&send(1, 0, 10, None, 1)).unwrap();
    bed.wait(0, 1);
    let fpga_messages::Address::Link(address) = bed.0[1].messenger.address() else { unreachable!() };
    drop(bed.0.pop());
    // On a busy machine, the give-up time of the session's last packets may have passed before the request.
    match bed.0[0].messenger.send(&send(1, 0, 10, None, 2)) {
        Ok(()) => assert!(has_closed(bed.wait(0, 2).result)),
        Err(PostError::Failed(failure)) => assert!(has_closed(Err(failure))),
        Err(error) => panic!("{error}"),
    }
    let mut again = impatient();
    again.listen = Some(address);
    bed.0.push(End::open(&again));
    bed.0[1].messenger.receive(&receive(None, 0, 10, None, 1)).unwrap();
    // Requests are refused for a while.
    let begun = std::time::Instant::now();
    while bed.0[0].messenger.send(&send(1, 0, 10, None, 3)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        bed.progress();
    }
    assert_eq!(bed.wait(1, 1).result, Ok(()));
    assert_eq!(bed.wait(0, 3).result, Ok(()));
}

#[test]
fn addresses_that_cannot_be_peers_are_refused() {
    let mut end = End::open(&impatient());
    assert!(end.messenger.add_peer("fpga://node/5".parse().unwrap()).is_err());
    assert!(end.messenger.add_peer("fpga://[::1]:9".parse().unwrap()).is_err());
    end.messenger.add_peer("fpga://10.1.0.5:9".parse().unwrap()).unwrap();
    let error = end.messenger.add_peer("fpga://10.2.0.5:9".parse().unwrap()).unwrap_err();
    assert!(error.to_string().contains("same node id"), "{error}");
}

/// A peer whose application computes, and does not call the messenger, still acknowledges what arrives.
#[test]
fn peer_that_computes_is_not_taken_for_dead() {
    let mut bed = Bed::new(2, &options(LinkChoice::Auto));
    bed.0[0].messenger.send(&send(1, 0, 10, None, 1)).unwrap();
    bed.wait(0, 1);
    let mut sender = bed.0.remove(0);
    for context in 2..6 {
        sender.messenger.send(&send(1, 0, 1000, None, context)).unwrap();
        // The other end does not progress here.
        let begun = std::time::Instant::now();
        let done = loop {
            sender.progress();
            if let Some(done) = sender.take(context) {
                break done;
            }
            assert!(begun.elapsed() < Duration::from_secs(60));
        };
        assert_eq!(done.result, Ok(()));
    }
}
