//! A card of the simulated network as an opened PCI function.

use crate::attendant::Attendant;
use crate::bar::SimBar;
use crate::dma::{PAGE, ranges};
use crate::network::SimNetwork;
use crate::signals::Kind;
use crate::state::CardFailure;
use fpga_card::CardDescription;
use fpga_card::description::LinkRate;
use fpga_pci::{
    AccessCounters, Backend, Bar, BarError, BarInfo, BarKind, CardTiming, Clock, ConfigSpaceError, DmaAccess,
    DmaMapError, Interrupt, InterruptError, ResetError, ResetLevel, SharedMemory, lock,
};
use fpga_protocol::Nanos;
use fpga_registers::Iova;
use std::ops::RangeInclusive;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fpga_card::config_space::CONFIG_SIZE;

/// Time without a poll after which a card works by itself while a program waits for its descriptors.
const ATTENDANT_INTERVAL: Duration = Duration::from_millis(1);

/// One opened card. See [`SimNetwork::backend`].
#[derive(Debug)]
pub struct SimBackend {
    network: SimNetwork,
    card: usize,
    name: String,
    /// Shared by all backends of the card; `None` only while it is dropped.
    opened: Option<Arc<()>>,
    /// Works while a program waits for the card's descriptors, once it has one.
    attendant: Mutex<Option<Attendant>>,
}

impl SimNetwork {
    /// Opens card `card`: memory decoding is on and bus mastering off, as vfio-pci leaves a device. All backends of one card share its
    /// mappings and interrupts, which are released when the last one is dropped.
    ///
    /// # Panics
    /// If there is no such card: a mistake of the program that built the simulated network.
    #[must_use]
    #[expect(clippy::expect_used, reason = "documented: the caller's own card number")]
    pub fn backend(&self, card: usize) -> Arc<SimBackend> {
        let mut state = self.lock();
        let number = state.network.first_card() + card;
        let slot = state.slots.get_mut(card).expect("card number below the number of cards");
        let opened = slot.opened.upgrade().unwrap_or_else(|| {
            slot.close();
            let opened = Arc::new(());
            slot.opened = Arc::downgrade(&opened);
            opened
        });
        Arc::new(SimBackend {
            network: self.clone(),
            card,
            name: format!("mock:{number}"),
            opened: Some(opened),
            attendant: Mutex::new(None),
        })
    }
}

impl SimBackend {
    /// Returns the simulated network that the card belongs to.
    #[must_use]
    pub const fn network(&self) -> &SimNetwork {
        &self.network
    }

    /// Returns the card's number in its simulated network.
    #[must_use]
    pub const fn card_number(&self) -> usize {
        self.card
    }
}

impl Drop for SimBackend {
    fn drop(&mut self) {
        if !self.network.is_own() {
            return;
        }
        // Its thread ends before the card is closed.
        drop(lock(&self.attendant).take());
        let mut state = self.network.lock();
        // Dropped under the lock, so that of two backends that are dropped at the same time the second one closes the card.
        drop(self.opened.take());
        if let Some(slot) = state.slots.get_mut(self.card)
            && slot.opened.strong_count() == 0
        {
            slot.close();
        }
    }
}

fn check_config(at: u16, length: usize) -> Result<(), ConfigSpaceError> {
    if usize::from(at) + length > CONFIG_SIZE {
        return Err(ConfigSpaceError::OutOfRange { at, length, size: CONFIG_SIZE });
    }
    Ok(())
}

impl Backend for SimBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn config_read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigSpaceError> {
        check_config(at, into.len())?;
        let mut state = self.network.lock();
        match state.slots.get_mut(self.card) {
            Some(slot) if slot.failure != CardFailure::Gone => slot.card.config_read(at, into),
            _ => into.fill(0xFF),
        }
        Ok(())
    }

    fn config_write(&self, at: u16, from: &[u8]) -> Result<(), ConfigSpaceError> {
        check_config(at, from.len())?;
        let mut state = self.network.lock();
        match state.slots.get_mut(self.card) {
            Some(slot) if slot.failure != CardFailure::Gone => slot.card.config_write(at, from),
            _ => {}
        }
        Ok(())
    }

    fn bars(&self) -> [Option<BarInfo>; 6] {
        let mut bars = [None; 6];
        let state = self.network.lock();
        let layouts = state.slots.get(self.card).map_or(&[][..], |slot| slot.card.bars());
        for layout in layouts {
            if let Some(bar) = bars.get_mut(usize::from(layout.index)) {
                let kind = if layout.wide { BarKind::Memory64 } else { BarKind::Memory32 };
                let prefetchable = layout.wide && layout.role == fpga_card::BarRole::Bypass;
                *bar = Some(BarInfo { index: layout.index, size: layout.size, kind, prefetchable });
            }
        }
        bars
    }

    fn open_bar(&self, index: u8) -> Result<Bar, BarError> {
        let bars = self.bars();
        let info = bars.get(usize::from(index)).ok_or(BarError::BadIndex { index })?;
        let info = info.as_ref().ok_or(BarError::Absent { index })?;
        let generation = self.network.lock().slots.get(self.card).map_or(0, |slot| slot.generation);
        Ok(Bar::new(Arc::new(SimBar::new(self.network.clone(), self.card, index, info.size, generation))))
    }

    fn map_dma(&self, iova: Iova, memory: &SharedMemory, access: DmaAccess) -> Result<(), DmaMapError> {
        let length = memory.len() as u64;
        let mut state = self.network.lock();
        let slot = state.slots.get_mut(self.card).ok_or(DmaMapError::OutsideRanges { iova, length })?;
        slot.host.map.map(iova, memory, access)
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), DmaMapError> {
        let mut state = self.network.lock();
        let slot = state.slots.get_mut(self.card).ok_or(DmaMapError::NotMapped { iova, length })?;
        slot.host.map.unmap(iova, length)
    }

    fn iova_ranges(&self) -> Vec<RangeInclusive<Iova>> {
        ranges()
    }

    fn dma_page_size(&self) -> u64 {
        PAGE
    }

    fn interrupt_vectors(&self) -> u32 {
        let state = self.network.lock();
        state.slots.get(self.card).map_or(0, |slot| slot.card.description().interrupts.msix_vectors.into())
    }

    fn enable_interrupts(&self, count: u32) -> Result<Vec<Interrupt>, InterruptError> {
        let available = self.interrupt_vectors();
        let vectors = u16::try_from(count).ok().filter(|_| count <= available);
        let vectors = vectors.ok_or(InterruptError::TooMany { asked: count, available })?;
        let pairs = (0..count).map(|_| Interrupt::pair()).collect::<Result<Vec<_>, _>>()?;
        let mut state = self.network.lock();
        let Some(slot) = state.slots.get_mut(self.card) else { return Ok(Vec::new()) };
        if slot.host.signals.is_assigned(Kind::Msix) {
            return Err(InterruptError::AlreadyEnabled);
        }
        let (interrupts, triggers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        slot.host.signals.assign(Kind::Msix, 0, triggers.into_iter().map(Some));
        slot.card.enable_msix(vectors);
        Ok(interrupts)
    }

    fn disable_interrupts(&self) -> Result<(), InterruptError> {
        let mut state = self.network.lock();
        if let Some(slot) = state.slots.get_mut(self.card) {
            slot.card.disable_msix();
            slot.host.signals.clear(Kind::Msix);
        }
        Ok(())
    }

    fn reset(&self, level: ResetLevel) -> Result<(), ResetError> {
        if level != ResetLevel::Hot {
            // Public XDMA cards report FLReset-.
            return Err(ResetError::Unsupported { level });
        }
        let mut state = self.network.lock();
        let Some(slot) = state.slots.get_mut(self.card) else { return Err(ResetError::NoAnswer { level }) };
        if slot.failure == CardFailure::Gone || slot.card.is_removed() {
            return Err(ResetError::NoAnswer { level });
        }
        slot.reset();
        slot.host.signals.clear_all();
        if let Some(threaded) = self.network.threaded() {
            threaded.set_generation(self.card, slot.generation);
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        self.network.now().get()
    }

    /// Virtual, unless the simulated network has a thread of its own or a link to other processes.
    fn clock(&self) -> Clock {
        if self.network.is_real_time() { Clock::Monotonic } else { Clock::Virtual }
    }

    fn relax(&self) {
        if self.network.is_own() {
            self.network.relax();
        }
    }

    /// Lets `span` of virtual time pass while the simulated network works. With a thread of its own, the calling thread does its work while
    /// that thread has no CPU, and sleeps if there is nothing to do.
    fn pause(&self, span: core::time::Duration) {
        if !self.network.is_own() {
            return;
        }
        if self.network.is_threaded() {
            if !self.network.work_for_thread() {
                fpga_pci::sleep(span);
            }
            return;
        }
        self.network.pause(Nanos::from(span));
    }

    fn work_unattended(&self) -> Result<(), InterruptError> {
        if self.network.is_threaded() || !self.network.is_own() {
            return Ok(());
        }
        let mut attendant = lock(&self.attendant);
        if attendant.is_none() {
            let started = Attendant::start(&self.network, ATTENDANT_INTERVAL);
            *attendant = Some(started.map_err(|error| InterruptError::WaitFailed { source: error.into() })?);
        }
        Ok(())
    }

    /// Lets the simulated network work until the interrupt has arrived or `timeout` of virtual time has passed. Sleeps if the network has a
    /// thread of its own; with a link to other processes it sleeps between frames and timers.
    ///
    /// Every wait takes at least the time of one poll, in which the simulated network works. Otherwise continuous interrupts would stop
    /// virtual time, and a caller that waits for something else would never reach its deadline.
    fn wait_interrupt(
        &self,
        interrupt: &Interrupt,
        timeout: core::time::Duration,
    ) -> Result<Option<u64>, InterruptError> {
        if self.network.is_threaded() {
            return interrupt.wait(timeout);
        }
        let span = Nanos::from(timeout);
        if self.network.is_linked() {
            let mut count = 0;
            self.network.run_linked(span, Some(interrupt.as_fd()), || {
                count = interrupt.try_take();
                count > 0
            });
            return Ok((count > 0).then_some(count));
        }
        let mut count = interrupt.try_take();
        self.relax();
        if count == 0 {
            self.network.rest_until(span, || {
                count = interrupt.try_take();
                count > 0
            });
        }
        Ok((count > 0).then_some(count))
    }

    fn counters(&self) -> Option<AccessCounters> {
        if !self.network.is_own() {
            return None;
        }
        let state = self.network.lock();
        let counters = state.slots.get(self.card)?.card.counters();
        Some(AccessCounters {
            mmio_reads: counters.mmio_reads,
            mmio_writes: counters.mmio_writes,
            interrupts: counters.interrupts,
            user_interrupts: counters.user_interrupts,
            descriptors: counters.descriptors,
            dma_bytes: counters.h2c_bytes + counters.c2h_bytes,
        })
    }
    fn timing(&self) -> Option<CardTiming> {
        if !self.network.is_own() {
            return None;
        }
        let real_time = self.network.is_real_time();
        let state = self.network.lock();
        let CardDescription { link, memory, cdma, ni, .. } = state.slots.get(self.card)?.card.description();
        // In real time, only described rates apply.
        (!real_time || link.rate == LinkRate::Described).then(|| CardTiming {
            read_latency_ns: link.read_latency_ns,
            write_latency_ns: link.write_latency_ns,
            memory_latency_ns: memory.latency_ns,
            memory_megabytes_per_second: memory.megabytes_per_second,
            // Its data path moves `data_width` at 250 MHz.
            copy_megabytes_per_second: u64::from(cdma.data_width / 8) * 250,
            copy_descriptor_ns: cdma.descriptor_ns,
            network_megabits_per_second: ni.megabits_per_second,
            network_latency_ns: ni.latency_ns,
        })
    }
}
