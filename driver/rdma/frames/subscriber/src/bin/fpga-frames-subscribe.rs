//! Prints the frames of a publisher.
//!
//! ```text
//! cargo run -p fpga-frames-subscriber -- 10.0.0.1:7400 2 10.0.0.1:7001 [LOCAL]
//! ```
//!
//! The arguments are the publisher's bootstrap port, this program's node number, the UDP address of the publisher's link, and this
//! program's UDP address, which the publisher names with `--link` as its peer.
#![expect(clippy::print_stdout, reason = "prints its results")]

use std::error::Error;
use std::time::Duration;

use fpga_frames_subscriber::{Event, Subscriber, SubscriberOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (publisher, node, link, local) = match arguments.as_slice() {
        [publisher, node, link] => (publisher, node, link, None),
        [publisher, node, link, local] => (publisher, node, link, Some(local.parse()?)),
        _ => return Err("give PUBLISHER NODE LINK [LOCAL]".into()),
    };
    let mut options = SubscriberOptions::new(node.parse()?, link.parse()?);
    options.local = local;
    let mut subscriber = Subscriber::join(publisher.parse()?, &options)?;
    println!("joined from {}", subscriber.local_address()?);
    loop {
        match subscriber.next(Duration::from_secs(10))? {
            Some(Event::Frame(frame)) => println!("frame {}: {} bytes", frame.sequence(), frame.data().len()),
            Some(Event::Gap { missed, first }) => println!("{missed} frames missed, from frame {first} on"),
            Some(Event::Ended { next }) => {
                println!("the stream ended before frame {next}");
                break;
            }
            Some(other) => println!("{other:?}"),
            None => println!("no frame for ten seconds"),
        }
    }
    println!("{:?}", subscriber.leave(Duration::from_secs(2))?);
    Ok(())
}
