//! Machine of a guest, as the emulator's command line.

use core::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::kernel::Bootable;
use super::plan::{Device, Guest};
use super::qemu::{Qemu, value};

/// Address of a device in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    bus: u8,
    slot: usize,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0000:{:02x}:{:02x}.0", self.bus, self.slot)
    }
}

/// Addresses of this many devices: the firmware numbers the buses behind the root ports in slot order.
pub(crate) fn addresses(devices: &[Device]) -> Vec<Address> {
    let mut bus = 0;
    let address = |(slot, device): (usize, &Device)| {
        if device.is_integrated() {
            return Address { bus: 0, slot };
        }
        bus += 1;
        Address { bus, slot: 0 }
    };
    (FIRST_SLOT..).zip(devices).map(address).collect()
}

/// Files of one machine.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    folder: PathBuf,
    /// Number of the machine, and the folder of the other one, if there are two.
    pub(crate) number: usize,
    other: Option<PathBuf>,
}

impl Files {
    /// Files of the only machine.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), number: 0, other: None }
    }

    /// Files of machine `number` of two, each in a folder of its own.
    pub(crate) fn of_pair(folder: &Path, number: usize) -> Self {
        let of = |number: usize| folder.join(number.to_string());
        Self { folder: of(number), number, other: Some(of(1 - number.min(1))) }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sockets of the link between a card and that of the same number in the other machine: the own end first.
    pub(crate) fn links(&self, number: usize) -> Option<[PathBuf; 2]> {
        let other = self.other.as_ref()?;
        Some([&self.folder, other].map(|folder| folder.join(format!("card{number}.link"))))
    }

    /// Sockets of the network between the machines: the own end first.
    fn network(&self) -> Option<[PathBuf; 2]> {
        let other = self.other.as_ref()?;
        Some([&self.folder, other].map(|folder| folder.join("network.sock")))
    }

    /// Socket of the process that serves a card.
    pub(crate) fn card(&self, number: usize) -> PathBuf {
        self.folder.join(format!("card{number}.sock"))
    }

    /// Control socket of that process, for injecting faults into its card.
    pub(crate) fn card_control(&self, number: usize) -> PathBuf {
        self.folder.join(format!("card{number}.control"))
    }

    /// Statistics that the process writes about its card at its end.
    pub(crate) fn statistics(&self, number: usize) -> PathBuf {
        self.folder.join(format!("card{number}.json"))
    }

    /// Control socket of the emulator.
    pub(crate) fn control(&self) -> PathBuf {
        self.folder.join("control.sock")
    }

    /// Output of the guest's console.
    pub(crate) fn console(&self) -> PathBuf {
        self.folder.join("console.log")
    }

    /// File system of the guest.
    pub(crate) fn initramfs(&self) -> PathBuf {
        self.folder.join("initramfs.cpio")
    }
}

/// First slot of the root ports, and of devices on the root bus itself; the chip set occupies both ends.
const FIRST_SLOT: usize = 8;

/// Slot of the network interface.
const NETWORK_SLOT: usize = 4;

/// Emulator command, ready to be started. Results arrive on its standard output, and answers go to its standard input.
pub(crate) fn command(qemu: &Qemu, kernel: &Bootable, guest: &Guest, files: &Files) -> Command {
    let mut command = qemu.command();
    let memory = format!("{}G", guest.memory);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", &memory]);
    // rdrand: a guest with few events collects no entropy, and programs would wait for it forever. pdpe1gb: huge pages of 1 GiB.
    command.args(["-accel", "tcg", "-cpu", "qemu64,+rdrand,+pdpe1gb"]);
    // Shared memory lets a card's process map it; interrupt remapping requires the split interrupt controller.
    command.args(["-machine", "q35,kernel-irqchip=split,memory-backend=memory"]);
    command.args(["-object", &format!("memory-backend-memfd,id=memory,size={memory},share=on")]);
    if guest.iommu {
        // caching-mode: the guest's kernel reports every mapping, so that the emulator can pass it on to the card's process. The IOMMU must
        // precede the devices for which it translates.
        command.args(["-device", "intel-iommu,intremap=on,caching-mode=on,device-iotlb=on"]);
    }
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(files.initramfs());
    command.arg("-append").arg(parameters(guest));
    command.args(["-chardev", &format!("file,id=console,path={}", value(&files.console()))]);
    command.args(["-serial", "chardev:console"]);
    command.args(["-chardev", "stdio,id=results,signal=off", "-serial", "chardev:results"]);
    command.args(["-qmp", &format!("unix:{},server=on,wait=off", value(&files.control()))]);
    if let Some([own, other]) = files.network() {
        // Packets to a machine that does not run yet are lost.
        command.args(["-netdev", &network(&own, &other)]);
        command.args(["-device", &interface(files.number)]);
    }
    for (number, device) in guest.devices.iter().enumerate() {
        let slot = FIRST_SLOT + number;
        if device.is_integrated() {
            command.args(["-device", &on_bus(device, number, "pcie.0", slot, files)]);
            continue;
        }
        // At more than 5 GT/s the kernel accepts that a link is up again after a reset only when the port reports it
        // (pci_bridge_wait_for_secondary_bus). This port never does for a device that was present from the start.
        let port = format!(
            "pcie-root-port,x-speed=5,id=port{number},bus=pcie.0,chassis={number},slot={number},addr={slot:#x}"
        );
        command.args(["-device", &port]);
        command.args(["-device", &on_bus(device, number, &format!("port{number}"), 0, files)]);
        if let Device::Emulated { beside: Some(beside), .. } = device {
            command.args(["-device", &format!("{beside},bus=port{number}")]);
        }
    }
    command
}

/// Datagrams between two emulators.
fn network(own: &Path, other: &Path) -> String {
    let (own, other) = (value(own), value(other));
    format!("dgram,id=network,local.type=unix,local.path={own},remote.type=unix,remote.path={other}")
}

/// Network interface of a machine. Without a boot program, whose file is not in the emulator's package.
fn interface(machine: usize) -> String {
    format!(
        "virtio-net-pci,netdev=network,mac=52:54:00:00:00:{machine:02x},romfile=,bus=pcie.0,addr={NETWORK_SLOT:#x}"
    )
}

fn on_bus(device: &Device, number: usize, bus: &str, slot: usize, files: &Files) -> String {
    match device {
        // A socket can be named only in the JSON form.
        Device::Card { .. } => serde_json::json!({
            "driver": "vfio-user-pci",
            "id": format!("card{number}"),
            "bus": bus,
            "addr": format!("{slot:x}.0"),
            "socket": { "type": "unix", "path": files.card(number) },
        })
        .to_string(),
        Device::Emulated { device, .. } => format!("{device},id=card{number},bus={bus}"),
    }
}

/// Kernel parameters. Warnings and errors go to the console, including IOMMU faults. CPU mitigations are off: a guest has no attackers, and
/// mitigations cost much under emulation. RCU grace periods are expedited: with one CPU there are no other readers, so waiting for them in
/// ticks (some for each device that is opened or closed) has no benefit. The timer interrupt is not checked: on a busy host the emulated one
/// comes later than the kernel waits for it, which ends the boot ("timer doesn't work through Interrupt-remapped IO-APIC").
fn parameters(guest: &Guest) -> String {
    let iommu = if guest.iommu { "on" } else { "off" };
    let mut line = format!(
        "console=ttyS0 loglevel=5 panic=-1 mitigations=off rcupdate.rcu_expedited=1 no_timer_check intel_iommu={iommu}"
    );
    for parameter in &guest.parameters {
        line.push(' ');
        line.push_str(parameter);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_pair_has_two_ends() {
        assert_eq!(Files::in_folder(Path::new("/tmp/x")).links(0), None);
        let [first, second] = [0, 1].map(|number| Files::of_pair(Path::new("/tmp/x"), number));
        let ends = ["/tmp/x/0/card2.link", "/tmp/x/1/card2.link"].map(PathBuf::from);
        assert_eq!(first.links(2), Some(ends.clone()));
        let [own, other] = second.links(2).unwrap();
        assert_eq!([other, own], ends);
        let [own, other] = second.network().unwrap();
        let option = network(&own, &other);
        assert!(option.ends_with(
            "local.path=/tmp/x/1/network.sock,remote.type=unix,remote.path=/tmp/x/0/network.sock"
        ));
    }

    #[test]
    fn machine_device_is_behind_root_port() {
        let files = Files::in_folder(Path::new("/tmp/x"));
        let edu = Device::Emulated { device: "edu".to_owned(), beside: None };
        assert_eq!(on_bus(&edu, 1, "port1", 0, &files), "edu,id=card1,bus=port1");
        let card = Device::Card { file: None, integrated: false, rtl: false };
        let option = on_bus(&card, 0, "port0", 0, &files);
        for part in [r#""path":"/tmp/x/card0.sock""#, r#""bus":"port0""#, r#""addr":"0.0""#] {
            assert!(option.contains(part), "{option}");
        }
        let integrated = Device::Card { file: None, integrated: true, rtl: false };
        let option = on_bus(&integrated, 1, "pcie.0", 9, &files);
        assert!(option.contains(r#""addr":"9.0""#), "{option}");
        let addresses = addresses(&[edu, integrated, card]);
        assert_eq!(
            addresses.iter().map(Address::to_string).collect::<Vec<_>>(),
            ["0000:01:00.0", "0000:00:09.0", "0000:02:00.0"]
        );
    }
}
