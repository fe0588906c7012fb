//! Accesses of every size to the user BAR and the bypass BAR, by a client without a driver.

use std::path::Path;
use std::time::Duration;

use fpga_driver::{CardAddr, CdmaRing, CdmaRingOptions, DescriptorPath, WaitOptions};
use fpga_vfio_user::socket::Connection;
use fpga_vfio_user::wire::{Capabilities, Kind, RegionAccess, Request, Version, encode_request, region};
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use crate::cdma;
use crate::simulator::{Simulation, read, write};

pub(crate) const USER: u32 = 0;
pub(crate) const BYPASS: u32 = 2;
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct Client {
    connection: Connection,
    id: u16,
}

impl Client {
    /// Connects, and switches memory decoding on.
    pub(crate) fn connect(path: &Path) -> Self {
        let mut client = Self { connection: Connection::connect(path, LIMIT).unwrap(), id: 0 };
        let version = Version { major: 0, minor: 1, capabilities: Capabilities::default() };
        client.ask(&Request::Version(version));
        client.write(region::CONFIG, 4, &[2, 0]);
        client
    }

    fn send(&mut self, request: &Request<'_>) {
        let mut out = Vec::new();
        self.id = self.id.wrapping_add(1);
        encode_request(self.id, false, request, &mut out);
        self.connection.send(&out, &[], LIMIT).unwrap();
    }

    fn ask(&mut self, request: &Request<'_>) -> Vec<u8> {
        let mut body = Vec::new();
        self.send(request);
        let header = self.connection.receive(&mut body, &mut Vec::new(), LIMIT).unwrap();
        assert!(matches!(header.kind, Kind::Reply { error: None }), "{header:?}");
        body
    }

    /// Requests a read and does not wait for its reply.
    pub(crate) fn begin_read(&mut self, region: u32, offset: u64, count: u32) {
        self.send(&Request::RegionRead(RegionAccess { offset, region, count }));
    }

    /// Requests a write and does not wait for its reply.
    pub(crate) fn begin_write(&mut self, region: u32, offset: u64, data: &[u8]) {
        let count = u32::try_from(data.len()).unwrap();
        self.send(&Request::RegionWrite(RegionAccess { offset, region, count }, data));
    }

    pub(crate) fn read(&mut self, region: u32, offset: u64, count: u32) -> Vec<u8> {
        self.ask(&Request::RegionRead(RegionAccess { offset, region, count }))[16..].to_vec()
    }

    /// Resets the card, and switches memory decoding on.
    pub(crate) fn reset(&mut self) {
        self.ask(&Request::DeviceReset);
        self.write(region::CONFIG, 4, &[2, 0]);
    }

    fn write(&mut self, region: u32, offset: u64, data: &[u8]) {
        let count = u32::try_from(data.len()).unwrap();
        self.ask(&Request::RegionWrite(RegionAccess { offset, region, count }, data));
    }
}

#[test]
fn narrow_register_writes_set_their_bytes() {
    let Some(simulation) = Simulation::start(&[]) else { return };
    let mut client = Client::connect(simulation.socket());
    client.write(USER, 4, &[1, 2, 3, 4]);
    client.write(USER, 5, &[0xAA]);
    assert_eq!(client.read(USER, 4, 4), [1, 0xAA, 3, 4]);
    client.write(USER, 6, &[0xBB, 0xCC]);
    assert_eq!(client.read(USER, 4, 4), [1, 0xAA, 0xBB, 0xCC]);
    assert_eq!((client.read(USER, 7, 1), client.read(USER, 4, 2)), (vec![0xCC], vec![1, 0xAA]));
    drop(client);
    simulation.end();
}

#[test]
fn bypass_accesses_of_all_sizes_match_reference() {
    let Some(simulation) = cdma::start(256, "+pressure=6") else { return };
    let mut client = Client::connect(simulation.socket());
    let mut random = Pcg64Mcg::new(11);
    let mut below = |limit: usize| usize::try_from(random.next_u64() % limit as u64).unwrap();
    let mut ram = vec![0; 8192];
    for at in (0..ram.len()).step_by(1024) {
        client.write(BYPASS, at as u64, &ram[at..at + 1024]);
    }
    for number in 0..400 {
        let length = [1, 2, 4, 8, 16, 32, 64, 3, 100][below(9)];
        let mut at = below(ram.len() - length);
        if below(2) == 0 {
            at -= at % length.next_power_of_two().min(64);
        }
        if below(2) == 0 {
            let data: Vec<u8> = (0..length).map(|_| u8::try_from(below(256)).unwrap()).collect();
            client.write(BYPASS, at as u64, &data);
            ram[at..at + length].copy_from_slice(&data);
        } else {
            let data = client.read(BYPASS, at as u64, u32::try_from(length).unwrap());
            assert!(data == ram[at..at + length], "access {number}: {length} bytes at {at:#x}");
        }
    }
    // No slave: the host reads all ones.
    assert_eq!(client.read(BYPASS, 1 << 20, 8), [0xFF; 8]);
    client.write(BYPASS, 1 << 20, &[0; 8]);
    drop(client);
    assert!(read(&simulation.card(), 0, 0, ram.len()) == ram);
    simulation.end_without_violations();
}

#[test]
fn ring_with_descriptors_through_bypass_bar_copies() {
    let Some(simulation) = cdma::start(256, "+pressure=7") else { return };
    let card = simulation.card();
    let data: Vec<u8> = (0..10_000_u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
    write(&card, 0, 0, &data);
    let path = DescriptorPath::bypass(CardAddr::ZERO);
    let options = CdmaRingOptions::new(CardAddr::new(0xF_0000));
    let cdma = card.cdma_at(cdma::FULL).unwrap();
    let mut ring: CdmaRing<()> =
        cdma.into_ring(path, options).unwrap_or_else(|refused| panic!("{}", refused.error));
    ring.copy(CardAddr::ZERO, CardAddr::new(0x1_0003), 5000, ()).unwrap();
    let last = ring.copy(CardAddr::new(5000), CardAddr::new(0x1_0003 + 5000), 5000, ()).unwrap();
    ring.wait(last, WaitOptions::default().timeout(LIMIT)).unwrap();
    drop(ring);
    assert!(read(&card, 0, 0x1_0003, data.len()) == data);
    drop(card);
    simulation.end_without_violations();
}
