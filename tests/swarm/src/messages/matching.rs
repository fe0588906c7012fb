//! Order in which messages match receives.

use super::model::Request;
use super::plan::Call;
use crate::model::{Checked, check};

/// A message and its receive, both as positions among the requests.
struct Pair<'a> {
    message: (usize, &'a Request),
    receive: (usize, &'a Request),
}

const fn tag_of(request: &Request) -> Option<u64> {
    if let Call::Send { tag, .. } = request.call { tag } else { None }
}

/// Checks that receives have matched in the order of their submission, and messages of one sender in that of theirs. `is_calm` says of two
/// nodes whether one session has lasted.
pub(crate) fn check_order(requests: &[Request], is_calm: impl Fn(usize, usize) -> bool) -> Checked {
    let pairs: Vec<Pair<'_>> = requests
        .iter()
        .enumerate()
        .filter_map(|(index, message)| {
            let receive = message.partner.filter(|_| !message.is_receive())?;
            Some(Pair { message: (index, message), receive: (receive, &requests[receive]) })
        })
        .collect();
    for pair in &pairs {
        let (first, message) = pair.message;
        let (taken_by, receive) = pair.receive;
        let (from, to) = (message.call.node(), receive.call.node());
        if !is_calm(from, to) {
            continue;
        }
        let same_process = |other: &Request| other.call.node() == to && other.lives.0 == receive.lives.0;
        for (index, earlier) in requests.iter().enumerate().take(taken_by) {
            let waits = earlier.is_receive() && earlier.result.is_none() && same_process(earlier);
            check(!(waits && earlier.accepts(from, tag_of(message))), || {
                format!("a message has passed receive {index} {earlier:?}: {message:?}, {receive:?}")
            })?;
        }
        for other in &pairs {
            let (second, later) = other.message;
            // The later message has taken a receive that was posted before, and that accepts the earlier one.
            let is_overtaken = second > first
                && later.call.node() == from
                && later.lives == message.lives
                && same_process(other.receive.1)
                && other.receive.0 < taken_by
                && other.receive.1.accepts(from, tag_of(message));
            check(!is_overtaken, || {
                format!("{message:?} was overtaken by {later:?}: {receive:?}, {:?}", other.receive.1)
            })?;
        }
    }
    Ok(())
}
