//! User interrupts: the design on the card interrupts the host by a line of `usr_irq_req`.
//!
//! A line is a level: the design holds it until the host has served the cause, usually by a register of the design. Here a thread plays the
//! design, and an atomic number is that register.
//!
//!     cargo run -p fpga-examples --example user_interrupts

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use fpga_driver::sim::SimNetwork;
use fpga_driver::{Card, Error, user_interrupt::UserInterruptError};
use fpga_sim::ThreadOptions;

/// Line that the design raises when a result is ready.
const RESULT: u8 = 3;
/// Line that the design raises for an alarm.
const ALARM: u8 = 7;
const LONG: Duration = Duration::from_secs(10);

/// Polls one future until it is ready. With tokio or smol, use their `block_on`.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let network = SimNetwork::builder().cards(1).threaded(ThreadOptions::default()).build()?;
    let card = Card::from_backend(network.backend(0))?;

    // Taking a line enables it, and the card's interrupts with it. A line that is already high interrupts at once.
    let result = card.user_interrupt(RESULT)?;
    println!("user interrupt {}: {:?}", result.line(), result.delivery());

    // The status register of the design: number of results that were not fetched.
    let ready = AtomicU32::new(0);
    thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
        scope.spawn(|| {
            for _ in 0..3 {
                ready.store(1, Ordering::SeqCst);
                network.set_user_interrupt(0, RESULT, true);
                while ready.load(Ordering::SeqCst) != 0 {
                    thread::yield_now();
                }
            }
        });
        let mut fetched = 0;
        while fetched < 3 {
            result.wait(LONG)?;
            // Serving the cause: the design lowers its line, and may raise it again for the next result at any time.
            network.set_user_interrupt(0, RESULT, false);
            // An interrupt may be reported twice (see `rearm`), so the status decides whether there is a result.
            if ready.swap(0, Ordering::SeqCst) != 0 {
                fetched += 1;
                println!("result {fetched}");
            }
            // A line that is high again interrupts again, even if it was never sampled low.
            result.rearm()?;
        }
        Ok(())
    })?;
    network.set_user_interrupt(0, RESULT, false);
    let _ = result.take()?;

    // As a future. The handle also has a file descriptor (`AsFd`), for epoll or tokio's AsyncFd.
    network.pulse_user_interrupt(0, RESULT);
    println!("as a future: {} interrupt", block_on(result.arrived())?);
    drop(result);

    // Several lines at once.
    let lines = card.user_interrupts(&[RESULT, ALARM])?;
    network.pulse_user_interrupt(0, ALARM);
    for (line, count) in lines.wait(LONG)? {
        println!("user interrupt {line} of two: {count} interrupt");
    }
    match lines.wait(Duration::from_millis(1)) {
        Err(error @ Error { kind: UserInterruptError::TimedOut { .. }, .. }) => {
            println!("no further interrupt: {error}")
        }
        other => return Err(format!("unexpected result: {other:?}").into()),
    }
    Ok(())
}
