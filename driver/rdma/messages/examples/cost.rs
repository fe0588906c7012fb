//! CPU time per message: two messengers, each with a simulated card, in one thread. Other programs on the machine change it little.
//!
//!     cargo run --release -p fpga-messages --example cost [-- LENGTH...]

mod shared;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use fpga_driver::{HugePages, SharedMemory};
use fpga_messages::{
    CompleteWhen, HostRanges, Messenger, MessengerOptions, ReceiveRequest, Regions, SendRequest, TagPattern,
    Token,
};
use rustix::time::{ClockId, clock_gettime};
use shared::{LARGEST, Memory, NoAtomics};

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn open(options: &MessengerOptions) -> Result<Messenger, Box<dyn Error>> {
    let memory = Arc::new(Memory(SharedMemory::anonymous(LARGEST, HugePages::Transparent)?));
    Ok(Messenger::open(options, memory, Arc::new(NoAtomics), Arc::new(Regions::default()))?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = MessengerOptions::from_environment()?;
    let (mut near, mut far) = (open(&options)?, open(&options)?);
    let peer = near.add_peer(far.address())?;
    far.add_peer(near.address())?;
    let given = std::env::args().skip(1).map(|length| length.parse()).collect::<Result<Vec<usize>, _>>()?;
    let usual = [0, 8, 512, 4096, 16_384, 65_536, 262_144, 1 << 20, LARGEST];
    for length in if given.is_empty() { usual.to_vec() } else { given } {
        if length > LARGEST {
            return Err(format!("{length} bytes: at most {LARGEST}").into());
        }
        let data = HostRanges::one(0, length as u64).unwrap_or_default();
        let rounds = if length <= 16_384 { 4_000 } else { 400 };
        let mut times = Vec::new();
        for _ in 0..5 {
            let begun = cpu_time();
            for _ in 0..rounds {
                far.receive(&ReceiveRequest {
                    from: None,
                    tag: Some(TagPattern { tag: 1, ignore: 0 }),
                    data,
                    multi: None,
                    token: Token::default(),
                })?;
                near.send(&SendRequest {
                    peer,
                    data,
                    tag: Some(1),
                    immediate: None,
                    complete: CompleteWhen::Transmitted,
                    token: Token::default(),
                })?;
                let mut open = 2;
                while open > 0 {
                    near.progress();
                    far.progress();
                    for messenger in [&mut near, &mut far] {
                        while let Some(done) = messenger.next_completion() {
                            done.result?;
                            open -= 1;
                        }
                    }
                }
            }
            times.push((cpu_time() - begun) / rounds);
        }
        times.sort_unstable();
        let [least, _, median, ..] = times[..] else { continue };
        let rate = length as f64 / median.as_secs_f64() / 1e9;
        println!(
            "{length:>8} bytes  {:>8.2} us of CPU (least {:>8.2})  {rate:>6.3} GB/s",
            median.as_secs_f64() * 1e6,
            least.as_secs_f64() * 1e6
        );
    }
    Ok(())
}
