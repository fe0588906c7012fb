//! Incarnations of a node that begins again: later ones replace earlier ones, and earlier ones are refused (docs/protocol.md 6).

use fpga_netmodel::Impairments;

use super::*;

/// Opens the endpoint of card 0 again, with another incarnation, and sends one transfer.
fn send_as(net: &mut Testbed, incarnation: u32, scheme: Scheme) -> Result<(), SendFailure> {
    let card = net.end(0).card().clone();
    net.ends[0] = None;
    let mut options = options(incarnation);
    options.scheme = scheme;
    net.ends[0] = Some(Endpoint::open_with(&card, &options).unwrap());
    let region = net.region(1, TARGET, 5000);
    let data = bytes(u64::from(incarnation), 5000);
    net.put(0, SOURCE, &data);
    net.send(0, SOURCE, &region.remote, 0, 5000);
    net.settle();
    let result = net.completions[0].pop_front().unwrap().result;
    if result.is_ok() {
        assert!(net.get(1, TARGET, 5000) == data, "{scheme}, {incarnation}");
    }
    net.end(1).close_region(&region).unwrap();
    result
}

#[test]
fn incarnation_earlier_is_refused_and_later_replaces_it() {
    for scheme in Scheme::ALL.iter().copied() {
        let mut net = Testbed::impaired(2, Impairments::default(), 1, |mut options| {
            options.scheme = scheme;
            options
        });
        assert_eq!(send_as(&mut net, 100, scheme), Ok(()), "{scheme}");
        let failure = send_as(&mut net, 99, scheme).unwrap_err();
        assert!(
            matches!(failure, SendFailure::Superseded { newest, .. } if newest.get() == 100),
            "{scheme}: {failure}"
        );
        assert!(failure.help().is_some_and(|help| help.contains("later incarnation")), "{failure}");
        assert!(failure.to_string().contains("0x00000064"), "{failure}");
        assert_eq!(send_as(&mut net, 101, scheme), Ok(()), "{scheme}");
        // Numbers wrap: the earlier half of them is refused.
        assert!(send_as(&mut net, 101_u32.wrapping_add(1 << 31), scheme).is_err(), "{scheme}");
        assert_eq!(send_as(&mut net, 101_u32.wrapping_add((1 << 31) - 1), scheme), Ok(()), "{scheme}");
    }
}

/// The default number is later than the last one of the card and of the state file.
#[test]
fn incarnation_by_default_is_later_at_each_start() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let directory = tempfile::tempdir().unwrap();
    let card = net.end(0).card().clone();
    let mut last = None;
    for _ in 0..3 {
        net.ends[0] = None;
        let mut options = EndpointOptions::default();
        options.incarnation_file = Some(directory.path().join("state/incarnation"));
        net.ends[0] = Some(Endpoint::open_with(&card, &options).unwrap());
        let number = net.end(0).incarnation();
        assert!(last.is_none_or(|last| number > last), "{number:?} after {last:?}");
        last = Some(number);
    }
    let stored = std::fs::read_to_string(directory.path().join("state/incarnation")).unwrap();
    assert_eq!(stored.trim().parse::<u32>().ok(), last.map(fpga_firmware::Incarnation::get));
}
