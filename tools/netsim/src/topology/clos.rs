//! Clos networks of two tiers (leaf-spine) and of three (fat tree), with radix, rate, delay and queue for each tier.
//!
//! Switches of the lowest tier are leaves, those of the highest are spines (two tiers) or cores (three). In three tiers, pods of leaves and
//! aggregation switches are connected by the cores: aggregation switch `j` of every pod leads to the same group `j` of cores.

use fpga_netmodel::BitRate;
use fpga_protocol::Nanos;

use super::TopologyError;

/// Maximum number of tiers.
pub(crate) const MAX_TIERS: usize = 3;

/// Switches of one tier, and the links below them.
///
/// Rate, delay and queue belong to the links between this tier and the one below, in both directions; `None`: those of the scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tier {
    /// Ports downwards of each switch, 1 to 1024: hosts of a leaf; of other tiers, switches below times `bundle`.
    pub down: u32,
    /// Ports upwards of each switch, 1 to 1024; 0 in the highest tier.
    pub up: u32,
    /// Parallel links between a switch and each one below it, 1 to 256; 1 in the lowest tier.
    pub bundle: u32,
    /// Rate of each link below.
    pub rate: Option<BitRate>,
    /// Propagation delay of each link below.
    pub delay: Option<Nanos>,
    /// Forwarding time of each switch of this tier.
    pub forwarding: Nanos,
    /// Queue in bytes of each switch port at a link below, at both of its ends.
    pub queue: Option<u64>,
}

impl Tier {
    /// Creates a tier of switches with `down` ports downwards and `up` upwards, single links, and the scenario's rate, delay and queue.
    #[must_use]
    pub const fn new(down: u32, up: u32) -> Self {
        Self { down, up, bundle: 1, rate: None, delay: None, forwarding: Nanos::ZERO, queue: None }
    }
}

/// Clos network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clos {
    tiers: [Tier; MAX_TIERS],
    count: usize,
}

/// Role of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Leaf(u32),
    /// Pod and index in it.
    Aggregation(u32, u32),
    /// Spine of two tiers, core of three.
    Top(u32),
}

impl Clos {
    /// Creates a network of the given tiers, the lowest first.
    ///
    /// # Errors
    /// [`TopologyError::Tiers`], [`TopologyError::Size`], [`TopologyError::Bundle`], [`TopologyError::Large`].
    pub fn new(tiers: &[Tier]) -> Result<Self, TopologyError> {
        let mut kept = [Tier::default(); MAX_TIERS];
        if !(2..=MAX_TIERS).contains(&tiers.len()) {
            return Err(TopologyError::Tiers { found: tiers.len() });
        }
        for (place, tier) in kept.iter_mut().zip(tiers) {
            *place = *tier;
        }
        let clos = Self { tiers: kept, count: tiers.len() };
        clos.validate()?;
        Ok(clos)
    }

    /// Creates a fat tree of switches with `radix` ports and full bisection: `radix`^2 / 2 hosts on two tiers, `radix`^3 / 4 on three.
    ///
    /// # Errors
    /// [`TopologyError::Radix`] if the radix is odd, 0 or above 128; [`TopologyError::Tiers`]; [`TopologyError::Large`].
    pub fn fat_tree(radix: u32, tiers: u32) -> Result<Self, TopologyError> {
        if radix == 0 || radix > 128 || !radix.is_multiple_of(2) {
            return Err(TopologyError::Radix { found: radix });
        }
        let (half, top) = (Tier::new(radix / 2, radix / 2), Tier::new(radix, 0));
        match tiers {
            2 => Self::new(&[half, top]),
            3 => Self::new(&[half, half, top]),
            _ => Err(TopologyError::Tiers { found: usize::try_from(tiers).unwrap_or(usize::MAX) }),
        }
    }

    fn validate(&self) -> Result<(), TopologyError> {
        let size = |name, found: u32, least, most| {
            if (least..=most).contains(&found) {
                Ok(())
            } else {
                Err(TopologyError::Size { name, found, least, most })
            }
        };
        for (number, tier) in (0..).zip(self.tiers()) {
            let top = number + 1 == self.count;
            size("down", tier.down, 1, 1024)?;
            size("up", tier.up, u32::from(!top), if top { 0 } else { 1024 })?;
            size("bundle", tier.bundle, 1, if number == 0 { 1 } else { 256 })?;
            let below = number.checked_sub(1).map(|below| self.tier(below).up);
            for (ports, count) in [("down", Some(tier.down)), ("up of the tier below", below)] {
                if let Some(found) = count.filter(|count| !count.is_multiple_of(tier.bundle)) {
                    return Err(TopologyError::Bundle {
                        tier: number + 1,
                        ports,
                        found,
                        bundle: tier.bundle,
                    });
                }
            }
        }
        // Each factor is at most 1024, so that nothing overflows.
        let hosts = u64::from(self.tier(0).down) * u64::from(self.leaves_per_pod()) * u64::from(self.pods());
        let links =
            hosts + u64::from(self.leaves_per_pod()) * u64::from(self.pods()) * u64::from(self.tier(0).up);
        if hosts > 1 << 16 || links > 1 << 20 || hosts < 2 {
            return Err(TopologyError::Large { hosts });
        }
        Ok(())
    }

    /// Tiers, the lowest first.
    #[must_use]
    pub fn tiers(&self) -> &[Tier] {
        self.tiers.get(..self.count).unwrap_or(&self.tiers)
    }

    pub(crate) fn tier(&self, number: usize) -> Tier {
        self.tiers.get(number).copied().unwrap_or_default()
    }

    /// Number of the highest tier, from 0.
    pub(crate) const fn top(&self) -> usize {
        self.count - 1
    }

    /// Number of hosts.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        self.tier(0).down * self.leaves()
    }

    /// Oversubscription of a tier, the lowest being 0: the total rate of a switch's links downwards divided by that upwards, where `rate` is
    /// that of links without their own. `None` for the highest tier.
    #[must_use]
    pub fn oversubscription(&self, tier: usize, rate: BitRate) -> Option<f64> {
        let upper = self.tiers().get(tier + 1)?;
        let of = |ports: u32, own: Option<BitRate>| {
            f64::from(ports) * crate::numbers::float(own.unwrap_or(rate).get())
        };
        let tier = self.tier(tier);
        Some(of(tier.down, tier.rate) / of(tier.up, upper.rate).max(1.0))
    }

    pub(crate) fn leaves_per_pod(&self) -> u32 {
        self.tier(1).down / self.tier(1).bundle.max(1)
    }

    pub(crate) fn pods(&self) -> u32 {
        if self.count == 2 { 1 } else { self.tier(2).down / self.tier(2).bundle.max(1) }
    }

    pub(crate) fn leaves(&self) -> u32 {
        self.leaves_per_pod() * self.pods()
    }

    /// Switches of the second tier in a pod.
    fn seconds_per_pod(&self) -> u32 {
        self.tier(0).up / self.tier(1).bundle.max(1)
    }

    /// Cores at each aggregation switch.
    fn cores_per_group(&self) -> u32 {
        self.tier(1).up / self.tier(2).bundle.max(1)
    }

    /// Number of switches of a tier.
    #[must_use]
    pub fn switches(&self, tier: usize) -> u32 {
        match tier {
            0 => self.leaves(),
            1 => self.seconds_per_pod() * self.pods(),
            2 if self.count == 3 => self.seconds_per_pod() * self.cores_per_group(),
            _ => 0,
        }
    }

    /// Tier of a switch, and its number in the tier, both from 0; `switch` counts all switches, the lowest tier first.
    pub(crate) fn tier_of(&self, switch: u32) -> (usize, u32) {
        let mut number = switch;
        for tier in 0..self.count {
            let switches = self.switches(tier);
            if number < switches {
                return (tier, number);
            }
            number -= switches;
        }
        (self.top(), number)
    }

    pub(crate) fn place(&self, switch: u32) -> Place {
        match self.tier_of(switch) {
            (0, leaf) => Place::Leaf(leaf),
            (1, number) if self.count == 3 => {
                let per_pod = self.seconds_per_pod().max(1);
                Place::Aggregation(number / per_pod, number % per_pod)
            }
            (_, number) => Place::Top(number),
        }
    }

    /// Ports of a switch in order: for each the vertex at its end, and the tier whose links it is one of.
    pub(crate) fn ports(&self, switch: u32) -> Vec<(u32, usize)> {
        let hosts = self.hosts();
        let first = |tier: usize| hosts + (0..tier).map(|tier| self.switches(tier)).sum::<u32>();
        let (leaf, second, top) = (self.tier(0), self.tier(1), self.tier(2));
        let per_pod = self.seconds_per_pod();
        match self.place(switch) {
            Place::Leaf(number) => {
                let pod = number / self.leaves_per_pod().max(1);
                let down = (0..leaf.down).map(|host| (number * leaf.down + host, 0));
                let up = (0..leaf.up).map(|port| (first(1) + pod * per_pod + port / second.bundle, 1));
                down.chain(up).collect()
            }
            Place::Aggregation(pod, number) => {
                let leaf = |port| hosts + pod * self.leaves_per_pod() + port / second.bundle;
                let down = (0..second.down).map(|port| (leaf(port), 1));
                let group = first(2) + number * self.cores_per_group();
                let up = (0..second.up).map(|port| (group + port / top.bundle, 2));
                down.chain(up).collect()
            }
            Place::Top(_) if self.count == 2 => {
                (0..second.down).map(|port| (hosts + port / second.bundle, 1)).collect()
            }
            Place::Top(number) => {
                let group = number / self.cores_per_group().max(1);
                let below = |port| first(1) + port / top.bundle * per_pod + group;
                (0..top.down).map(|port| (below(port), 2)).collect()
            }
        }
    }

    /// Numbers of a switch's ports that are on shortest routes to a host.
    pub(crate) fn ways(&self, place: Place, to: u32) -> core::ops::Range<u32> {
        let leaf = to / self.tier(0).down.max(1);
        let leaves = self.leaves_per_pod().max(1);
        let (second, top) = (self.tier(1), self.tier(2));
        let bundle = |child: u32, bundle: u32| child * bundle..(child + 1) * bundle;
        match place {
            Place::Leaf(number) if number == leaf => bundle(to % self.tier(0).down.max(1), 1),
            Place::Leaf(_) => self.tier(0).down..self.tier(0).down + self.tier(0).up,
            Place::Aggregation(pod, _) if leaf / leaves == pod => bundle(leaf % leaves, second.bundle),
            Place::Aggregation(..) => second.down..second.down + second.up,
            Place::Top(_) if self.count == 2 => bundle(leaf, second.bundle),
            Place::Top(_) => bundle(leaf / leaves, top.bundle),
        }
    }

    /// Links on the shortest route between two hosts.
    pub(crate) fn hops(&self, from: u32, to: u32) -> u32 {
        let leaf = |host: u32| host / self.tier(0).down.max(1);
        let pod = |host: u32| leaf(host) / self.leaves_per_pod().max(1);
        match () {
            () if from == to => 0,
            () if leaf(from) == leaf(to) => 2,
            () if pod(from) == pod(to) => 4,
            () => 6,
        }
    }
}

/// Without commas, so that it can be a field of a CSV file.
impl core::fmt::Display for Clos {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("clos")?;
        for (number, tier) in self.tiers().iter().enumerate() {
            write!(f, " {}", tier.down)?;
            if number < self.top() {
                write!(f, "/{}", tier.up)?;
            }
            if tier.bundle > 1 {
                write!(f, "x{}", tier.bundle)?;
            }
        }
        Ok(())
    }
}
