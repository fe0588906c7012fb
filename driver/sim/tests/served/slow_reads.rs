//! Reads that a design does not answer, and the client's other requests meanwhile.

use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use fpga_card::CardDescription;
use fpga_registers::CardAddr;
use fpga_sim::{AxiAccess, Design, DesignError, Requester, SimNetwork};
use fpga_vfio_user::wire::{Command, Kind, RegionAccess, Request, region};

use crate::served::client::{Client, DMA, LONG, Served, USER};

#[derive(Debug, Default)]
struct State {
    resets: u32,
    /// Number of reads that have arrived without a response at once.
    reads: u32,
}

/// Answers a read of a register when the card is reset or the client has gone; address 0 at once.
#[derive(Debug, Default)]
struct Silent {
    state: Mutex<State>,
    changed: Condvar,
    requester: Mutex<Option<Weak<dyn Requester>>>,
}

impl Design for Silent {
    fn read(&self, _: AxiAccess, _: &mut [u8]) -> Result<(), DesignError> {
        Err(DesignError::Decode)
    }

    fn write(&self, _: AxiAccess, _: &[u8]) -> Result<(), DesignError> {
        Err(DesignError::Decode)
    }

    fn has_slow_reads(&self) -> bool {
        true
    }

    fn read_register(&self, offset: u64) -> u32 {
        if offset == 0 {
            return 0x600D;
        }
        let mut state = self.state.lock().unwrap();
        let before = state.resets;
        state.reads += 1;
        self.changed.notify_all();
        loop {
            let requester = self.requester.lock().unwrap().as_ref().and_then(Weak::upgrade);
            if state.resets != before || requester.is_none_or(|requester| requester.has_gone()) {
                return u32::MAX;
            }
            state = self.changed.wait_timeout(state, Duration::from_millis(5)).unwrap().0;
        }
    }

    fn write_register(&self, _: u64, _: u32) {}

    fn read_bypass(&self, _: CardAddr, _: &mut [u8]) -> Result<(), DesignError> {
        Err(DesignError::Decode)
    }

    fn set_requester(&self, requester: Weak<dyn Requester>) {
        *self.requester.lock().unwrap() = Some(requester);
    }

    fn reset(&self) {
        self.state.lock().unwrap().resets += 1;
        self.changed.notify_all();
    }
}

impl Silent {
    /// Waits until the design has a read: a reset ends only reads that have reached it.
    fn wait_read(&self) {
        let state = self.state.lock().unwrap();
        let (state, _) = self.changed.wait_timeout_while(state, LONG, |state| state.reads == 0).unwrap();
        assert_ne!(state.reads, 0, "no read has reached the design");
    }
}

fn served(design: Arc<Silent>) -> Served {
    Served::of(SimNetwork::builder().card_with_design(CardDescription::default(), design).build().unwrap())
}

const SILENT: Request<'static> = Request::RegionRead(RegionAccess { offset: 0x1000, region: USER, count: 4 });

#[test]
fn silent_register_read_passed_by_other_requests() {
    let design = Arc::new(Silent::default());
    let served = served(Arc::clone(&design));
    let mut client = served.connect();
    assert_eq!(client.read32(USER, 0), 0x600D);
    let id = client.send(&SILENT, false, &[]);
    // Configuration space, the DMA BAR, and posted writes to the design.
    for _ in 0..3 {
        assert_eq!(client.read(region::CONFIG, 0, 4).unwrap(), 0x903F_10EE_u32.to_le_bytes());
        assert_eq!(client.read32(DMA, 0x2000) >> 16, 0x1FC2);
        client.write32(USER, 8, 1);
        client.write32(DMA, 0x2080, 0x0302_0100);
    }
    design.wait_read();
    // The reset ends the read, too. The two replies come in any order.
    let reset = client.send(&Request::DeviceReset, false, &[]);
    let mut replies = [(); 2].map(|()| client.receive().unwrap().0);
    replies.sort_by_key(|header| header.id);
    let answer = Kind::Reply { error: None };
    assert_eq!(
        replies.map(|header| (header.id, header.command, header.kind)),
        [(id, Command::REGION_READ, answer), (reset, Command::DEVICE_RESET, answer)]
    );
    assert_eq!(client.read32(USER, 0), 0x600D);
    drop(client);
    served.stop();
}

#[test]
fn silent_register_read_ends_with_client_and_server() {
    let served = served(Arc::default());
    for _ in 0..3 {
        let mut client = served.connect();
        // More than one: the next client gets no reply of them.
        for _ in 0..3 {
            client.send(&SILENT, false, &[]);
        }
        client.read32(DMA, 0x2000);
    }
    let mut client: Client = served.connect();
    client.send(&SILENT, false, &[]);
    client.read32(DMA, 0x2000);
    let counts = served.stop();
    assert!(counts.connections >= 4, "{counts:?}");
    assert!(client.connection.is_readable_within(LONG).unwrap(), "the end of the connection");
}
