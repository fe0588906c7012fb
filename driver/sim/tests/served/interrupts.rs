//! Assignment and delivery of interrupts.

use crate::served::client::{Client, DMA, PAGE, Served, descriptor, file};
use fpga_pci::Interrupt;
use fpga_sim::{CardDescription, SimNetwork};
use fpga_vfio_user::wire::{IrqAction, IrqData, Request, SetIrqs, irq, region};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use IrqAction::{Mask, Trigger, Unmask};

pub(crate) fn set(
    client: &mut Client,
    index: u32,
    range: std::ops::Range<u32>,
    action: IrqAction,
    data: IrqData<'_>,
    fds: &[BorrowedFd<'_>],
) -> Result<(), u32> {
    let request = SetIrqs { data, action, index, start: range.start, count: range.end - range.start };
    client.ask(&Request::DeviceSetIrqs(request), fds).map(|_| ())
}

/// Assigns event descriptors to vectors `0..count` of a kind and returns them.
pub(crate) fn listen(client: &mut Client, index: u32, count: u32) -> Vec<Interrupt> {
    let interrupts: Vec<Interrupt> = (0..count).map(|_| Interrupt::pair().unwrap().0).collect();
    for (chunk, heard) in (0..).step_by(16).zip(interrupts.chunks(16)) {
        let fds: Vec<BorrowedFd<'_>> = heard.iter().map(AsFd::as_fd).collect();
        let range = chunk..chunk + u32::try_from(heard.len()).unwrap();
        set(client, index, range, Trigger, IrqData::EventFds, &fds).unwrap();
    }
    interrupts
}

pub(crate) fn taken(interrupts: &[Interrupt]) -> Vec<u64> {
    interrupts.iter().map(Interrupt::try_take).collect()
}

/// Prepares a card with a descriptor that transfers one page; its channel's interrupt uses `vector`.
fn prepare(client: &mut Client, vector: u32) -> OwnedFd {
    let memory = file(2, true);
    rustix::io::pwrite(&memory, &descriptor(4096, 0x10_1000, 0), 0).unwrap();
    client.map(0x10_0000, 2 * PAGE, 3, Some((&memory, 0))).unwrap();
    client.bus_master(true);
    client.write32(DMA, 0x20A0, vector);
    client.write32(DMA, 0x2014, 1);
    client.write32(DMA, 0x0090, 6);
    memory
}

#[test]
fn intx_signals_once_until_unmasked() {
    let served = Served::start();
    let mut client = served.connect();
    let _memory = prepare(&mut client, 0);
    let line = listen(&mut client, irq::INTX, 1);
    client.start_h2c(0x10_0000);
    assert_eq!(line[0].wait(crate::served::client::LONG).unwrap(), Some(1));
    client.h2c_idle();
    assert_eq!(taken(&line), [0], "the line is automasked");
    set(&mut client, irq::INTX, 0..1, Unmask, IrqData::None, &[]).unwrap();
    assert_eq!(taken(&line), [1], "the line is still asserted");
    // Reading the status clears the event: the line falls.
    client.read32(DMA, 0x0044);
    set(&mut client, irq::INTX, 0..1, Unmask, IrqData::Bool(&[1]), &[]).unwrap();
    assert_eq!(taken(&line), [0]);
    set(&mut client, irq::INTX, 0..1, Mask, IrqData::None, &[]).unwrap();
    client.start_h2c(0x10_0000);
    client.h2c_idle();
    assert_eq!(taken(&line), [0]);
    // A new listener is signalled while the line is asserted.
    let again = listen(&mut client, irq::INTX, 1);
    assert_eq!((taken(&line), taken(&again)), (vec![0], vec![1]));
    // INTx can be disabled in configuration space.
    client.write(region::CONFIG, 5, &[4]).unwrap();
    set(&mut client, irq::INTX, 0..1, Unmask, IrqData::None, &[]).unwrap();
    assert_eq!(taken(&again), [0]);
    served.stop();
}

#[test]
fn intx_unmask_event_fd_unmasks_line() {
    let served = Served::start();
    let mut client = served.connect();
    let _memory = prepare(&mut client, 0);
    let line = listen(&mut client, irq::INTX, 1);
    let (unmask, signal) = Interrupt::pair().unwrap();
    let assign = |client: &mut Client, fds: &[BorrowedFd<'_>]| {
        set(client, irq::INTX, 0..1, Unmask, IrqData::EventFds, fds)
    };
    assign(&mut client, &[unmask.as_fd()]).unwrap();
    client.start_h2c(0x10_0000);
    assert_eq!(line[0].wait(crate::served::client::LONG).unwrap(), Some(1));
    client.h2c_idle();
    // While the line is asserted, every unmasking signals again.
    for _ in 0..3 {
        assert_eq!(taken(&line), [0]);
        signal.signal();
        assert_eq!(line[0].wait(crate::served::client::LONG).unwrap(), Some(1));
    }
    // The event is cleared by a read: unmasked, and silent until the next event.
    client.read32(DMA, 0x0044);
    signal.signal();
    client.read32(DMA, 0);
    assert_eq!(taken(&line), [0]);
    client.start_h2c(0x10_0000);
    assert_eq!(line[0].wait(crate::served::client::LONG).unwrap(), Some(1));
    // A removed descriptor has no effect any more, nor one of disabled INTx.
    for back in [0, 1] {
        if back == 0 {
            assign(&mut client, &[]).unwrap();
        } else {
            // An earlier signal would count.
            assert_eq!(unmask.try_take(), 1);
            assign(&mut client, &[unmask.as_fd()]).unwrap();
            set(&mut client, irq::INTX, 0..0, Trigger, IrqData::None, &[]).unwrap();
        }
        signal.signal();
        client.read32(DMA, 0);
        assert_eq!(taken(&line), [0]);
    }
    let (pipe, _end) = rustix::pipe::pipe().unwrap();
    assert_eq!(assign(&mut client, &[pipe.as_fd()]), Err(22), "not an event descriptor");
    assert_eq!(assign(&mut client, &[unmask.as_fd(), unmask.as_fd()]), Err(22), "two for one");
    let mask = set(&mut client, irq::INTX, 0..1, Mask, IrqData::EventFds, &[unmask.as_fd()]);
    assert_eq!(mask, Err(95), "the kernel does not support it");
    served.stop();
}

#[test]
fn interrupt_masked_vector_is_pending_until_unmasked() {
    for index in [irq::MSIX, irq::MSI] {
        let served = Served::start();
        let mut client = served.connect();
        let interrupts = listen(&mut client, index, 2);
        let _memory = prepare(&mut client, 1);
        set(&mut client, index, 0..2, Mask, IrqData::Bool(&[0, 1]), &[]).unwrap();
        client.start_h2c(0x10_0000);
        client.h2c_idle();
        assert_eq!(taken(&interrupts), [0, 0]);
        if index == irq::MSIX {
            assert_eq!(client.read32(DMA, 0x8FE0), 2, "the pending bit");
        }
        set(&mut client, index, 1..2, Unmask, IrqData::None, &[]).unwrap();
        assert_eq!(interrupts[1].wait(crate::served::client::LONG).unwrap(), Some(1));
        assert_eq!(taken(&interrupts), [0, 0]);
        served.stop();
    }
}

#[test]
fn interrupt_vectors_assigned_removed_and_triggered() {
    let served = Served::start();
    let mut client = served.connect();
    let interrupts = listen(&mut client, irq::MSIX, 4);
    let index = irq::MSIX;
    set(&mut client, index, 0..4, Trigger, IrqData::None, &[]).unwrap();
    set(&mut client, index, 1..4, Trigger, IrqData::Bool(&[1, 0, 7]), &[]).unwrap();
    assert_eq!(taken(&interrupts), [1, 2, 1, 2]);
    // Without descriptors: removed.
    set(&mut client, index, 1..3, Trigger, IrqData::EventFds, &[]).unwrap();
    set(&mut client, index, 0..32, Trigger, IrqData::None, &[]).unwrap();
    assert_eq!(taken(&interrupts), [1, 0, 0, 1]);
    let other = Interrupt::pair().unwrap().0;
    set(&mut client, index, 3..4, Trigger, IrqData::EventFds, &[other.as_fd()]).unwrap();
    set(&mut client, index, 0..32, Trigger, IrqData::None, &[]).unwrap();
    assert_eq!((taken(&interrupts), other.try_take()), (vec![1, 0, 0, 0], 1));
    for (index, range) in [(irq::ERR, 0..1), (irq::REQ, 0..1)] {
        let event = listen(&mut client, index, 1);
        set(&mut client, index, range, Trigger, IrqData::None, &[]).unwrap();
        assert_eq!(taken(&event), [1]);
        assert_eq!(set(&mut client, index, 0..1, Mask, IrqData::None, &[]), Err(95));
    }
    served.stop();
}

#[test]
fn interrupt_invalid_request_is_refused_without_change() {
    let served = Served::start();
    let mut client = served.connect();
    let interrupts = listen(&mut client, irq::MSIX, 2);
    let fd = interrupts[0].as_fd();
    let msix = irq::MSIX;
    assert_eq!(set(&mut client, 5, 0..1, Trigger, IrqData::None, &[]), Err(22), "no such kind");
    assert_eq!(set(&mut client, msix, 31..33, Trigger, IrqData::None, &[]), Err(22), "beyond the last");
    assert_eq!(set(&mut client, msix, 0..0, Mask, IrqData::None, &[]), Err(22), "none");
    assert_eq!(set(&mut client, msix, 0..2, Trigger, IrqData::EventFds, &[fd]), Err(22), "one for two");
    assert_eq!(set(&mut client, msix, 0..1, Mask, IrqData::EventFds, &[fd]), Err(95), "masks by descriptor");
    let (pipe, _end) = rustix::pipe::pipe().unwrap();
    assert_eq!(set(&mut client, msix, 0..1, Trigger, IrqData::EventFds, &[pipe.as_fd()]), Err(22), "a pipe");
    set(&mut client, msix, 0..2, Trigger, IrqData::None, &[]).unwrap();
    assert_eq!(taken(&interrupts), [1, 1]);
    served.stop();
}

#[test]
fn interrupts_stay_enabled_after_reset() {
    let served = Served::start();
    let mut client = served.connect();
    let interrupts = listen(&mut client, irq::MSIX, 2);
    client.ask(&Request::DeviceReset, &[]).unwrap();
    let _memory = prepare(&mut client, 1);
    client.start_h2c(0x10_0000);
    assert_eq!(interrupts[1].wait(crate::served::client::LONG).unwrap(), Some(1));
    served.stop();
}

#[test]
fn release_request_reaches_client() {
    let served = Served::start();
    let mut client = served.connect();
    let wanted = listen(&mut client, irq::REQ, 1);
    served.stop();
    assert_eq!(taken(&wanted), [1]);
    assert!(client.receive().is_err());
}

#[test]
fn error_interrupt_signals_uncorrectable_only() {
    use fpga_card::fault_plan::Opportunity;
    use fpga_card::{CorrectableError, FaultPlan, InjectedFault, PciError, PlannedFault, UncorrectableError};
    let served = Served::start();
    let mut client = served.connect();
    let signalled = listen(&mut client, irq::ERR, 1);
    for (error, count) in [
        (PciError::Correctable(CorrectableError::Receiver), 0),
        (PciError::Uncorrectable(UncorrectableError::CompletionTimeout), 1),
    ] {
        let fault = PlannedFault::new(InjectedFault::Pci { error, on: Opportunity::Access });
        served.network.with_card(0, |card| card.set_fault_plan(&FaultPlan::new(1).with(fault))).unwrap();
        client.read32(DMA, 0);
        // The work that this access causes is done before the next one.
        client.read32(DMA, 0);
        assert_eq!(taken(&signalled), [count], "{error:?}");
    }
    served.stop();
}

/// A timer that begins on another thread ends on time while the server sleeps: here an interrupt that the fault plan delays.
#[test]
fn timer_of_other_thread_wakes_sleeping_server() {
    let delay = Duration::from_millis(5);
    let folder = tempfile::tempdir().unwrap();
    let description = folder.path().join("card.yaml");
    let text = format!(
        "schema_version: 3\nfaults:\n  list:\n    - {{ fault: late_interrupt, delay_ns: {}, times: null }}\n",
        delay.as_nanos()
    );
    std::fs::write(&description, text).unwrap();
    let description = CardDescription::load(&description).unwrap();
    let served = Served::of(SimNetwork::builder().card(description).build().unwrap());
    let mut client = served.connect();
    let heard = listen(&mut client, irq::MSIX, 32);
    client.bus_master(true);
    client.write32(DMA, 0x2084, 12 << 8);
    client.write32(DMA, 0x2008, 1 << 5);
    for round in 0..5 {
        // Meanwhile the server falls asleep, without limit.
        assert_eq!(heard[12].wait(delay).unwrap(), None, "round {round}");
        let began = Instant::now();
        assert!(served.network.set_user_interrupt(0, 5, true));
        assert_eq!(heard[12].wait(crate::served::client::LONG).unwrap(), Some(1), "round {round}");
        assert!(began.elapsed() >= delay, "round {round}: {:?}", began.elapsed());
        assert!(served.network.set_user_interrupt(0, 5, false));
    }
    served.stop();
}
