//! Simulated kernel for tests: a tree whose files act when they are written, and concurrent users that bind drivers.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::kernel::Kernel;
use crate::testing::Tree;

/// Action of a concurrent user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConcurrentAction {
    /// Binds the function to this driver, if it has none.
    Binds(&'static str),
    /// Unbinds the function's driver.
    Unbinds,
    /// Sets `driver_override` to another driver.
    Overrides(&'static str),
    /// Removes the function from the bus.
    Removes,
    /// Unloads a driver.
    Unloads(&'static str),
    /// Replaces the function's record by a directory, which cannot be removed as a file.
    Keeps,
}

/// Event at a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The write fails and has no effect.
    Fails(Errno),
    /// A concurrent user acts before the write.
    Before(ConcurrentAction),
    /// A concurrent user acts right after the write.
    After(ConcurrentAction),
}

/// Simulated kernel of one function.
#[derive(Debug)]
pub(super) struct FakeKernel<'a> {
    tree: &'a Tree,
    address: &'a str,
    /// Drivers that match the function by its ids, in the order in which they are probed.
    wanting: &'static [&'static str],
    /// Drivers whose probe fails, and the error.
    failing: Vec<(&'static str, Errno)>,
    plan: RefCell<Vec<(u32, Event)>>,
    writes: Cell<u32>,
    pauses: Cell<u32>,
}

impl<'a> FakeKernel<'a> {
    pub(super) fn new(tree: &'a Tree, address: &'a str) -> Self {
        Self {
            tree,
            address,
            wanting: &["xdma"],
            failing: Vec::new(),
            plan: RefCell::default(),
            writes: Cell::new(0),
            pauses: Cell::new(0),
        }
    }

    /// Adds an event at write number `at`, counted from 0.
    pub(super) fn at(self, at: u32, event: Event) -> Self {
        self.plan.borrow_mut().push((at, event));
        self
    }

    /// Makes the driver's probe fail.
    pub(super) fn failing(mut self, driver: &'static str, errno: Errno) -> Self {
        self.failing.push((driver, errno));
        self
    }

    pub(super) fn wanting(mut self, wanting: &'static [&'static str]) -> Self {
        self.wanting = wanting;
        self
    }

    pub(super) fn writes(&self) -> u32 {
        self.writes.get()
    }

    pub(super) fn pauses(&self) -> u32 {
        self.pauses.get()
    }

    fn device(&self) -> String {
        format!("sys/bus/pci/devices/{}", self.address)
    }

    pub(super) fn driver(&self) -> Option<String> {
        let link = std::fs::read_link(self.tree.root().join(self.device()).join("driver")).ok()?;
        Some(link.file_name()?.to_str()?.to_owned())
    }

    pub(super) fn only(&self) -> Option<String> {
        let text =
            std::fs::read_to_string(self.tree.root().join(self.device()).join("driver_override")).ok()?;
        let text = text.trim();
        (text != "(null)").then(|| text.to_owned())
    }

    fn unbind(&self) {
        let _ = self.tree.remove(&format!("{}/driver", self.device()));
        let _ = self.tree.remove("dev/vfio/14");
    }

    /// Returns whether the driver is loaded and matches: by `driver_override` if it is set, else by the function's ids.
    fn matches(&self, driver: &str) -> bool {
        let loaded = self.tree.root().join("sys/bus/pci/drivers").join(driver).exists();
        let named = self.only();
        loaded && named.map_or_else(|| self.wanting.contains(&driver), |only| only == driver)
    }

    fn probe(&self, driver: &str) -> io::Result<()> {
        if let Some((_, errno)) = self.failing.iter().find(|(name, _)| *name == driver) {
            return Err((*errno).into());
        }
        self.tree.bound(self.address, driver)?;
        if driver == "vfio-pci" {
            self.tree.device_file("dev/vfio/14", 0o600)?;
        }
        Ok(())
    }

    fn other(&self, other: ConcurrentAction) {
        match other {
            ConcurrentAction::Binds(driver) => {
                if self.driver().is_none() && self.matches(driver) {
                    let _ = self.probe(driver);
                }
            }
            ConcurrentAction::Unbinds => self.unbind(),
            ConcurrentAction::Overrides(driver) => {
                let _ = self.tree.file(&format!("{}/driver_override", self.device()), format!("{driver}\n"));
            }
            ConcurrentAction::Removes => {
                self.unbind();
                let _ = self.tree.remove(&self.device());
            }
            ConcurrentAction::Unloads(driver) => {
                if self.driver().as_deref() == Some(driver) {
                    self.unbind();
                }
                let _ = self.tree.remove(&format!("sys/bus/pci/drivers/{driver}"));
            }
            ConcurrentAction::Keeps => {
                let record = self.tree.roots().state.join("bound").join(self.address.replace('.', "-"));
                let _ = std::fs::remove_file(&record);
                let _ = std::fs::create_dir(&record);
            }
        }
    }

    /// Performs the kernel's action, after `drivers/base/bus.c` and `drivers/pci/pci-sysfs.c`.
    fn act(&self, path: &Path, text: &str) -> io::Result<()> {
        let errno = |errno: Errno| Err(errno.into());
        if !path.exists() {
            return errno(Errno::NOENT);
        }
        let relative = path.strip_prefix(self.tree.root()).map_err(io::Error::other)?;
        let parts: Vec<&str> = relative.iter().filter_map(|part| part.to_str()).collect();
        let here = self.tree.root().join(self.device()).exists();
        match parts.as_slice() {
            [.., "driver_override"] => {
                let name = text.trim();
                let kept = if name.is_empty() { "(null)" } else { name };
                std::fs::write(path, format!("{kept}\n"))
            }
            _ if text != self.address || !here => errno(Errno::NODEV),
            [.., driver, "unbind"] => {
                if self.driver().as_deref() != Some(driver) {
                    return errno(Errno::NODEV);
                }
                self.unbind();
                Ok(())
            }
            [.., driver, "bind"] => {
                if !self.matches(driver) {
                    return errno(Errno::NODEV);
                }
                if self.driver().is_some() {
                    return errno(Errno::BUSY);
                }
                self.probe(driver)
            }
            [.., "drivers_probe"] => {
                if self.driver().is_none() {
                    let named = self.only();
                    let candidates = named.as_deref().into_iter().chain(self.wanting.iter().copied());
                    for driver in candidates {
                        if self.matches(driver) && self.probe(driver).is_ok() {
                            break;
                        }
                    }
                }
                Ok(())
            }
            _ => errno(Errno::ACCESS),
        }
    }
}

impl Kernel for FakeKernel<'_> {
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let number = self.writes.get();
        self.writes.set(number + 1);
        let events: Vec<Event> =
            self.plan.borrow().iter().filter(|(at, _)| *at == number).map(|(_, event)| *event).collect();
        for event in &events {
            match event {
                Event::Fails(errno) => return Err((*errno).into()),
                Event::Before(other) => self.other(*other),
                Event::After(_) => {}
            }
        }
        let result = self.act(path, text);
        for event in &events {
            if let Event::After(other) = event {
                self.other(*other);
            }
        }
        result
    }

    fn pause(&self, _: u32) {
        self.pauses.set(self.pauses.get() + 1);
    }
}
