//! Event descriptors of a card's interrupts, as VFIO defines them: five kinds, each with its vectors, each with an event descriptor.

use fpga_pci::InterruptTrigger;

/// Kinds of interrupt, in VFIO's order (`VFIO_PCI_*_IRQ_INDEX` in `linux/vfio.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// INTx, the legacy line.
    Intx,
    Msi,
    Msix,
    /// Uncorrectable error.
    Err,
    /// Device-release request (REQ).
    Req,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::Intx, Self::Msi, Self::Msix, Self::Err, Self::Req];
}

#[derive(Debug, Default)]
struct Vector {
    trigger: Option<InterruptTrigger>,
    masked: bool,
    /// Whether it fired while it was masked.
    pending: bool,
}

/// The event descriptors of one function.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    vectors: [Vec<Vector>; Kind::ALL.len()],
}

impl Signals {
    fn of(&mut self, kind: Kind) -> &mut Vec<Vector> {
        let [intx, msi, msix, err, req] = &mut self.vectors;
        match kind {
            Kind::Intx => intx,
            Kind::Msi => msi,
            Kind::Msix => msix,
            Kind::Err => err,
            Kind::Req => req,
        }
    }

    fn vector(&mut self, kind: Kind, number: usize) -> Option<&mut Vector> {
        self.of(kind).get_mut(number)
    }

    /// Assigns these event descriptors, and no others, to the vectors from `first` on, and unmasks them.
    pub(crate) fn assign(
        &mut self,
        kind: Kind,
        first: usize,
        triggers: impl IntoIterator<Item = Option<InterruptTrigger>>,
    ) {
        let vectors = self.of(kind);
        for (number, trigger) in (first..).zip(triggers) {
            if vectors.len() <= number {
                vectors.resize_with(number + 1, Vector::default);
            }
            if let Some(vector) = vectors.get_mut(number) {
                *vector = Vector { trigger, masked: false, pending: false };
            }
        }
    }

    /// Removes all event descriptors of the kind.
    pub(crate) fn clear(&mut self, kind: Kind) {
        self.of(kind).clear();
    }

    pub(crate) fn clear_all(&mut self) {
        *self = Self::default();
    }

    /// Returns whether an event descriptor is assigned.
    pub(crate) fn is_assigned(&mut self, kind: Kind) -> bool {
        self.of(kind).iter().any(|vector| vector.trigger.is_some())
    }

    /// Vectors that have an event descriptor.
    pub(crate) fn assigned(&mut self, kind: Kind) -> impl Iterator<Item = usize> {
        let vectors = self.of(kind).iter().enumerate();
        vectors.filter(|(_, vector)| vector.trigger.is_some()).map(|(number, _)| number)
    }

    /// Delivers a message interrupt.
    pub(crate) fn message(&mut self, kind: Kind, number: u16) {
        let Some(vector) = self.vector(kind, number.into()) else { return };
        if vector.masked {
            vector.pending = true;
        } else {
            vector.signal();
        }
    }

    /// Asserts INTx. It masks itself with the signal, as in the kernel: a level would signal continuously.
    pub(crate) fn line(&mut self) {
        if let Some(vector) = self.vector(Kind::Intx, 0)
            && !vector.masked
        {
            vector.masked = true;
            vector.signal();
        }
    }

    /// Signals independently of the mask.
    pub(crate) fn signal(&mut self, kind: Kind, number: usize) {
        if let Some(vector) = self.vector(kind, number) {
            vector.signal();
        }
    }

    /// Masks, or unmasks and signals a pending interrupt.
    pub(crate) fn set_masked(&mut self, kind: Kind, number: usize, masked: bool) {
        if let Some(vector) = self.vector(kind, number) {
            vector.masked = masked;
            if !masked && std::mem::take(&mut vector.pending) {
                vector.signal();
            }
        }
    }
}

impl Vector {
    fn signal(&self) {
        if let Some(trigger) = &self.trigger {
            trigger.signal();
        }
    }
}
